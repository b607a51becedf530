"""Whom a multiprocessor prefers: loops that blocks run side by side, on an H200 and in the simulation.

When each block ended is shipped with the programs (`campaigns/core_blocks.py`). The bounds are on means: of single
loops some are far off, as docs/theory.md says.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from campaigns.core_blocks import BLOCKS_MEASURED, BLOCKS_PROGRAMS, SIDE_BY_SIDE, WARPS, blocks_hash
from campaigns.core_loops import steps_of
from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.pipeline import multiprocessor
from gemmsim.pipeline.costs import Cost
from gemmsim.pipeline.multiprocessor import run
from gemmsim.pipeline.timing import timing
from gemmsim.pipeline.work import Work

PASSES = 12
AT = timing(device("h200"), calibration(device("h200"))).with_(l1_misses=0.0, block_start_cycles=20.0)
RECORDS = [json.loads(line) for line in BLOCKS_MEASURED.read_text().splitlines()]
BODIES = {
    (each["loop"], each["barrier"]): each
    for each in map(json.loads, gzip.decompress(BLOCKS_PROGRAMS.read_bytes()).splitlines())
}
LOOPS = {loop.name: loop for loop in SIDE_BY_SIDE}
AGAIN = {("global_load", 1): (Cost(1, 1, 4),)}
"""The factors of their FFMA, which loops with a barrier read anew in each pass; L1 has them."""


def simulated(record):
    """When each block ends, by their numbers as in a record, in cycles for each pass."""
    blocks, ends = WARPS // record["warps"], {}

    def watch(issued):
        ends[issued.block] = max(issued.end, ends.get(issued.block, 0))

    steps = steps_of(BODIES[record["loop"], record["barrier"]]["steps"])
    run(
        Work((), steps, (), PASSES, blocks, blocks, record["warps"]),
        AGAIN | dict(LOOPS[record["loop"]].costs),
        AT,
        watch,
    )
    return np.array([ends[number] for number in range(blocks)]) / PASSES


def compared(barrier, warps=(4, 16)):
    """(how far ends are off as shares of the last one, how far the last one is off)."""
    shares, last = [], []
    for record in RECORDS:
        if record["barrier"] == barrier and record["warps"] in warps and "cp" not in record["loop"]:
            ends, measured = simulated(record), np.array(record["ends"]) / record["passes"]
            shares.append(np.abs(ends / ends.max() - measured / measured.max()).mean())
            last.append(ends.max() / measured.max() - 1)
    return np.array(shares), np.array(last)


def test_records_and_programs_are_of_the_loops_as_they_are_written():
    assert {(each["loop"], each["barrier"]) for each in RECORDS} == set(BODIES)
    assert {each["source"] for each in (*RECORDS, *BODIES.values())} == {blocks_hash()}
    assert {each["environment"]["compiler"] for each in RECORDS} == {each["compiler"] for each in BODIES.values()}
    assert all(len(each["ends"]) == WARPS // each["warps"] for each in RECORDS)


@pytest.mark.parametrize("barrier", [False, True])
def test_blocks_end_nearly_as_on_hardware(barrier):
    shares, last = compared(barrier)
    assert shares.mean() <= 0.07
    assert np.abs(last).mean() <= 0.04


def test_hardware_prefers_older_blocks():
    for record in RECORDS:
        ends = np.array(record["ends"])
        assert np.diff(ends).min() > -0.02 * ends.max(), record["loop"]


def test_preference_of_the_youngest_would_be_seen(monkeypatch):
    start_block = multiprocessor._Multiprocessor.start_block

    def youngest_first(self, now):
        start_block(self, now)
        for core in self.cores:
            core.warps.sort(key=lambda warp: (-warp.block.number, -warp.number))

    monkeypatch.setattr(multiprocessor._Multiprocessor, "start_block", youngest_first)
    assert compared(False, (4,))[0].mean() > 0.2
