"""Refused tilings name the multiple that is needed, and nothing is compiled for what cannot run."""

from __future__ import annotations

import re

import pytest
from examples import example
from fake_gpu import FakeGpu
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.gpu import machine, run
from gemmsim.gpu.machine import GpuMachine
from gemmsim.gpu.run import measure_point
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Point

SIZES = st.integers(1, 40).map(lambda i: 4 * i) | st.integers(1, 150)
FIELDS = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n", "pad_a", "pad_b")
ASYNC = KERNELS["async"]
TILE = {"block_m": 64, "block_n": 64, "block_k": 8, "warp_m": 32, "warp_n": 32, "thread_m": 8, "thread_n": 4}


def refusal(values) -> str:
    """What `async` has against a tiling; empty if nothing."""
    try:
        ASYNC.tiling(**values)
    except InputError as error:
        return str(error)
    return ""


def rule(message: str) -> str:
    """A message without its numbers: the same for all that break the same rule."""
    return re.sub(r"\d+", "#", message)


@given(values=st.fixed_dictionaries(dict.fromkeys(FIELDS, SIZES)))
def test_the_nearest_multiple_is_one_that_is_taken(values):
    message = refusal(values)
    named = re.match(r"(\w+) (\d+)\b.*nearest(?: that does)?:? (\d+)$", message)
    if named:
        name, value, nearest = named[1], int(named[2]), int(named[3])
        assert values[name] == value
        assert nearest != value
        assert rule(refusal({**values, name: nearest})) != rule(message)  # it obeys this one


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("block_m", 72, "block_m 72: a block tile is whole warp tiles; allowed: multiples of warp_m 32, nearest 64"),
        ("block_n", 100, "block_n 100: a block tile is whole warp tiles; allowed: multiples of warp_n 32, nearest 96"),
        ("warp_n", 34, "warp_n 34: a warp tile is whole thread tiles; allowed: multiples of thread_n 4, nearest 36"),
        ("warp_m", 64, "needed: 32, one for each lane, so warp_m times warp_n of 1024"),
        ("pad_b", 3, "pad_b 3 breaks the alignment of 4-element accesses; allowed: multiples of 4, nearest 4"),
    ],
)
def test_the_multiple_is_named(field, value, words):
    assert words in refusal(TILE | {field: value})


@pytest.fixture
def compiled(monkeypatch):
    """The jobs that were compiled."""
    jobs = []
    monkeypatch.setattr(machine, "compile_many", lambda wanted, **_: jobs.extend(wanted) or [None] * len(wanted))
    monkeypatch.setattr(run, "compile_kernel", lambda *job: jobs.append(job))
    return jobs


def prepared(on: str, *points: Point):
    """What a campaign on this device says of each point before it runs."""
    present = GpuMachine.__new__(GpuMachine)
    present.device = device(on)
    return [failure and failure.reason for failure in present.prepare(points, lambda done, of: None)]


def test_a_campaign_compiles_nothing_for_a_gpu_that_cannot_copy(compiled):
    point = Point(Problem(64, 64, 64), "async", example("async"))
    assert prepared("t4", point) == ["kernel async needs compute capability 8.0; t4 has 7.5"]
    assert compiled == []


def test_nor_for_more_parts_of_k_than_blocks_are_sure_to_run_at_once(compiled):
    point = Point(Problem(64, 64, 64), "async", ASYNC.tiling(**TILE, split_k=200))
    (reason,) = prepared("h200", point)
    assert reason.endswith("h200 is only sure to hold 132 at once; allowed: up to 132")
    assert compiled == []


def test_nor_for_tiles_that_do_not_fit(compiled):
    point = Point(Problem(64, 64, 64), "async", ASYNC.tiling(**TILE, stages=64))
    (reason,) = prepared("h200", point)
    assert "bytes of shared memory a block; allowed on h200" in reason
    assert compiled == []


def test_a_single_point_is_refused_as_early(compiled):
    class Turing(FakeGpu):
        facts = FakeGpu.facts.__class__("Tesla T4", "7.5", 40, 4096, 10**9, "0000:00:04.0", "13.0", "2026.1")

    record = measure_point(Turing(), Point(Problem(64, 64, 64), "async", example("async")), "t4")
    assert record.failure == "kernel async needs compute capability 8.0; Tesla T4 has 7.5"
    assert compiled == []
