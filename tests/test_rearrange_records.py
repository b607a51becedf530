"""The shipped runs of rearranged kernels: no failure, bits the same, the prediction as good as was asked for; and the
tables of the documentation are theirs."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

from campaigns.rearrange import error, table

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "rearrange.md").read_text()


def rows(name: str):
    return [json.loads(line) for line in (ROOT / "campaigns" / "measured" / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def run():
    return rows("rearranged.jsonl")


def test_all_ran_and_left_the_same_bits_at_ten_shapes(run):
    assert all(row["identical"] and row["failure"] is None and row["different"] == 0 for row in run)
    shapes = Counter(row["predicted"]["name"] for row in run if not row["after_s"])
    assert len(shapes) >= 8
    assert set(shapes.values()) == {10}


def test_the_ratio_of_times_is_predicted_within_three_per_cent(run):
    assert error(run) <= 0.03
    assert f"{error(run):.1%}".replace("%", " %") in TEXT


def test_the_table_is_that_of_the_run(run):
    for line in table(run):
        assert line in TEXT


@pytest.fixture(scope="module")
def beside_cublas():
    return rows("rearranged_cublas.jsonl")


def test_the_table_beside_cublas_is_that_of_the_run(beside_cublas):
    assert all(row["identical"] and row["failure"] is None for row in beside_cublas)
    assert all(line in TEXT for line in table(beside_cublas))


@pytest.mark.parametrize("size", [4096, 8192])
def test_the_fastest_passes_cublas(beside_cublas, size):
    """Everything in turn: medians of the same rounds."""
    timed = [row for row in beside_cublas if row["after_s"] and row["point"]["m"] == size]
    ratios = [statistics.median(row["cublas_s"]) / statistics.median(row["after_s"]) for row in timed]
    assert len(timed) >= 4
    assert max(ratios) >= 1.05
