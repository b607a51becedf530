"""The rule that holds points out, against what a shell would say of the same keys, and how it falls."""

from __future__ import annotations

import hashlib

import pytest

from gemmsim.held_out import held_out
from gemmsim.kernels import kernel
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.records import Point


def point(size, **tiling):
    return Point(Problem(size, size, size), "naive", kernel("naive").tiling(**tiling))


def test_the_rule_by_hand():
    # printf %s 'naive 64 x 64 x 64 fp32 block_m=8 block_n=32' | sha256sum | cut -c 1-8
    assert point(64, block_m=8, block_n=32).key == "naive 64 x 64 x 64 fp32 block_m=8 block_n=32"
    digest = hashlib.sha256(b"naive 64 x 64 x 64 fp32 block_m=8 block_n=32").hexdigest()
    assert digest.startswith(HAND)
    assert held_out(point(64, block_m=8, block_n=32)) == (HAND[-1] in "048c")


HAND = "709625b2"


@pytest.mark.parametrize("campaign", ["", "times", "random"])
def test_about_a_quarter_of_each_campaign_is_held_out(campaign):
    points = [record.point for record in read_records(shipped_records(campaign))[0]]
    assert len(points) / 6 < sum(map(held_out, points)) < len(points) / 3


def test_about_a_quarter_of_many_points_is_held_out():
    share = sum(held_out(point(size, block_m=8, block_n=32)) for size in range(1, 4001)) / 4000
    assert share == pytest.approx(0.25, abs=0.03)  # four standard deviations
