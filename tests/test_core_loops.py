"""The simulated multiprocessor against an H200: loops of sixteen accesses of memory, by one to eight warps a sub-core.

What they took is shipped with their programs (`campaigns/core_loops.py`). Everything is in L1 or in shared memory, so
that nothing below takes part. The bounds are on means: of single loops some are far off, as docs/theory.md says.
"""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from campaigns.core_loop_bodies import ACCESSES, KINDS, LOOPS, source_hash
from campaigns.core_loops import DEVICE, MEASURED, PROGRAMS, SUB_CORES, cycles_of_pass, steps_of
from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.pipeline.multiprocessor import run
from gemmsim.pipeline.ready import DATA
from gemmsim.pipeline.timing import timing
from gemmsim.pipeline.work import Work

FEW, MANY = 4, 12
"""Passes that are simulated: their difference has neither start nor end in it."""
AT = timing(device(DEVICE), calibration(device(DEVICE))).with_(l1_misses=0.0)
RECORDS = {each["loop"]: each for each in map(json.loads, MEASURED.read_text().splitlines())}
BODIES = {each["loop"]: each for each in map(json.loads, gzip.decompress(PROGRAMS.read_bytes()).splitlines())}


COPIES = {name for name, each in KINDS.items() if each.action == "global_copy"}


def simulated(loop, warps):
    """Cycles of a pass with so many warps on each sub-core."""
    steps = steps_of(BODIES[loop.name]["program"]["loop"])
    few, many = (
        run(Work((), steps, (), count, 1, 1, SUB_CORES * warps), loop.costs, AT).cycles for count in (FEW, MANY)
    )
    return (many - few) / (MANY - FEW)


def errors(loops, warps):
    """Simulated over measured, less one, of each loop."""
    measured = [cycles_of_pass(RECORDS[loop.name]["cycles"][str(warps)]) for loop in loops]
    return np.array([simulated(loop, warps) for loop in loops]) / measured - 1


GROUPS = {
    "loads and stores": [loop for loop in LOOPS if "cp" not in loop.pattern],
    "copies": [loop for loop in LOOPS if set(loop.pattern.split()) <= COPIES],
    "copies between others": [loop for loop in LOOPS if "cp" in loop.pattern and set(loop.pattern.split()) - COPIES],
}


def test_records_and_programs_are_of_the_loops_as_they_are_written():
    assert list(RECORDS) == list(BODIES) == [loop.name for loop in LOOPS]
    assert {each["source"] for each in (*RECORDS.values(), *BODIES.values())} == {source_hash()}
    assert {each["environment"]["compiler"] for each in RECORDS.values()} == {
        each["compiler"] for each in BODIES.values()
    }


def test_a_pass_has_all_its_accesses():
    for loop in LOOPS:
        done = sorted((step[3], step[4]) for step in BODIES[loop.name]["program"]["loop"] if step[3] in DATA)
        assert done == sorted((each.action, each.registers) for each in loop.accesses), loop.name
        assert len(done) == ACCESSES


@pytest.mark.parametrize(
    ("group", "warps", "mean", "most"),
    [
        ("loads and stores", 1, 0.05, 0.3), ("loads and stores", 2, 0.05, 0.25), ("loads and stores", 4, 0.05, 0.15),
        ("loads and stores", 8, 0.03, 0.15), ("copies", 8, 0.15, 0.25),
        ("copies between others", 2, 0.08, 0.2), ("copies between others", 8, 0.08, 0.12),
    ],
)  # fmt: skip
def test_loops_take_what_they_take_on_hardware(group, warps, mean, most):
    found = abs(errors(GROUPS[group], warps))
    assert found.mean() <= mean
    assert found.max() <= most
