"""The order of the source, which changes no result: traversals of the thread tile, and spread copies."""

from __future__ import annotations

from pathlib import Path

import pytest

from campaigns.traversal import table
from gemmsim.device import capability, device
from gemmsim.errors import InputError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.kernels import KERNELS, kernel
from gemmsim.machine_code.cubin import read_cubin
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records
from gemmsim.records import Point
from gemmsim.traffic import traffic

ROOT = Path(__file__).parent.parent
RAGGED = ROOT / "campaigns" / "measured" / "traversal_ragged.jsonl"
CUBE = Problem(512, 512, 512)
TILE = {"block_m": 64, "block_n": 64, "block_k": 8, "thread_m": 8, "thread_n": 4}
WARP = {**TILE, "warp_m": 32, "warp_n": 32}


def test_a_point_without_them_is_the_same_point_as_ever():
    """Its key decides whether it is held out."""
    plain = Point(CUBE, "async", kernel("async").tiling(**WARP))
    assert "traversal" not in plain.key
    assert "spread" not in str(plain.to_dict())
    assert Point(CUBE, "async", kernel("async").tiling(**WARP, traversal=0, spread=0)) == plain


@pytest.mark.parametrize("more", [{"traversal": 4}, {"spread": 3}, {"traversal": 8, "spread": 7}], ids=str)
def test_a_point_with_them_is_another_and_comes_back(more):
    point = Point(CUBE, "async", kernel("async").tiling(**WARP, **more))
    assert Point.from_dict(point.to_dict()) == point
    assert all(f" {name}={value}" in point.key and f" {name}={value}" in str(point) for name, value in more.items())
    assert point.key != Point(CUBE, "async", kernel("async").tiling(**WARP)).key


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("vectorized", {**TILE, "traversal": 3}, "traversal 3: .* allowed: 0, and what divides thread_m 8, nearest 2"),
        ("vectorized", {**TILE, "traversal": 16}, "traversal 16: .* nearest 8"),
        ("vectorized", {**TILE, "traversal": -1}, "traversal -1"),
        ("double_buffer", {**TILE, "spread": 1}, "kernel double_buffer has no spread; it has: .*"),
        ("shared", {"block_m": 32, "block_n": 32, "block_k": 8, "traversal": 1}, "kernel shared has no traversal.*"),
        ("async", {**WARP, "spread": 8}, "spread 8: .* allowed with block_k 8: 0 to 7"),
        ("async", {**WARP, "block_k": 12, "spread": 2}, "spread 2: .* threads 128 is no multiple of 12; .*"),
        ("async", {**WARP, "block_k": 4, "spread": 2}, "spread 2: .* block_n 64 is no multiple of 128; .*"),
        ("async", {**WARP, "block_m": 32, "block_n": 512, "spread": 2}, "spread 2: .* block_m 32 is no multiple .*"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)  # fmt: skip
def test_what_is_refused_is_refused_in_a_line(name, values, wanted):
    with pytest.raises(InputError, match=f"^{wanted}") as refused:
        kernel(name).tiling(**values)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["vectorized", "async"])
def test_the_code_is_another_and_as_much_is_multiplied(name):
    of, on = kernel(name), capability("9.0")
    values = WARP if of.warp_tiled else TILE
    words = {
        traversal: read_cubin(
            compile_kernel(of, of.launch(CUBE, of.tiling(**values, traversal=traversal)), on).path
        ).words()
        for traversal in (0, 8)
    }
    assert words[0] != words[8]


def test_the_model_takes_them():
    """Traversals take the same time; spread copies read what the others read, and one tile of zeros less a block."""
    of, on = kernel("async"), device("h200")
    plain, ordered, spread = (of.tiling(**WARP, **more) for more in ({}, {"traversal": 2}, {"spread": 3}))
    registers = {"registers_per_thread": 128}
    assert predict(CUBE, of, ordered, on, **registers).time_s == predict(CUBE, of, plain, on, **registers).time_s
    assert of.shared_bytes(plain) == of.shared_bytes(spread)
    counts, others = (traffic(CUBE, of, tiling).counters for tiling in (plain, spread))
    assert others["copy_requests"] == counts["copy_requests"] * (64 + 2) // (64 + 3)
    differ = {name for name in counts if counts[name] != others[name]}
    assert differ == {"copy_requests"}


def test_all_ran_at_ragged_sizes_and_spread_copies_are_counted_exactly():
    records, warnings = read_records(RAGGED)
    assert not warnings
    assert all(record.ok for record in records)
    assert {record.point.kernel for record in records} == {name for name, of in KERNELS.items() if of.thread_tiled}
    counted = [record for record in records if record.counters]
    assert len(counted) == 15
    assert all(record.point.tiling.spread for record in counted)
    for record in counted:
        point = record.point
        expected = traffic(point.problem, kernel(point.kernel), point.tiling).counters
        assert {name: value for name, value in record.counters.items() if name in expected} == expected


def test_the_table_is_that_of_the_run():
    text = (ROOT / "docs" / "rearrange.md").read_text()
    assert all(line in text for line in table())
