"""Programs told from a kernel's description, beside compiled ones and the accesses that the model counts."""

from __future__ import annotations

import statistics
from collections import Counter

import pytest
from examples import tilings
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.accesses.global_memory import global_accesses
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, Kernel, kernel
from gemmsim.ladder import default_tiling
from gemmsim.main_loops.port_shares import port_share
from gemmsim.main_loops.sub_core import SCOREBOARDS
from gemmsim.pipeline.described import UNROLLED, described_program
from gemmsim.pipeline.launch import simulate_launch
from gemmsim.pipeline.program import Program, Steps
from gemmsim.pipeline.programs import program_for
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.records import Record
from gemmsim.simulated_times import simulated_s
from gemmsim.tiling import Tiling

H200 = device("h200")
CUBE = Problem(4096, 4096, 4096)
COUNTED = ("shared_load", "shared_store", "global_load", "global_copy", "barrier", "commit", "await_copies")
PARTS = ("prologue", "loop", "remainder", "tail", "repeated", "rest")


def counts(steps: Steps) -> Counter[tuple[str, int]]:
    """Instructions by what they do, and by the registers that they move."""
    return Counter(
        (step.action, step.registers if step.action.startswith(("shared", "global")) else 0)
        for step in steps
        if step.action in COUNTED
    )


def tiles(program: Program, of: Kernel, tiling: Tiling) -> float:
    """Tiles of k, or elements of it where nothing is staged, in a pass."""
    return program.loop_ffma / (tiling.thread_m * tiling.thread_n * (tiling.block_k if of.staged else 1))


def per_tile(program: Program, of: Kernel, tiling: Tiling) -> dict[tuple[str, int], float]:
    number = tiles(program, of, tiling)
    return {key: count / number for key, count in counts(program.loop).items()}


def records() -> list[Record]:
    """Of each shipped kernel and code the last record, which ran."""
    found = {}
    for campaign in ("", "layouts", "copies", "counts", "times"):
        for each in read_records(shipped_records(campaign))[0]:
            if each.ok and each.resources:
                of = kernel(each.point.kernel)
                widths = of.widths(each.point.problem, each.point.tiling)
                found[of.name, each.point.tiling, widths] = each
    return list(found.values())


SHIPPED = records()


def both(record: Record) -> tuple[Program, Program]:
    """(compiled, described)"""
    of, problem, tiling = kernel(record.point.kernel), record.point.problem, record.point.tiling
    compiled = program_for(of, problem, tiling, H200)
    assert compiled is not None
    return compiled, described_program(problem, of, tiling, H200)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_pass_does_what_a_compiled_one_does(name):
    of = kernel(name)
    seen = [record for record in SHIPPED if record.point.kernel == name]
    assert seen
    for record in seen:
        compiled, described = both(record)
        tiling = record.point.tiling
        assert per_tile(described, of, tiling) == per_tile(compiled, of, tiling), of.describe(tiling)


def test_times_are_near_those_of_compiled_code():
    """Mean difference within a tenth, of every twelfth; the two need not agree on any one."""
    found = []
    for record in SHIPPED[::12]:
        launch = record.point.problem, kernel(record.point.kernel), record.point.tiling, H200
        blocks = record.resources["blocks_per_sm"]
        compiled, described = both(record)
        kept_s = simulated_s(*launch, compiled, blocks, calibration(H200))  # most are shipped
        found.append(simulate_launch(*launch, described, blocks).time_s / kept_s - 1)
    assert len(found) >= 20
    assert statistics.mean(map(abs, found)) < 0.10
    assert abs(statistics.median(found)) < 0.06


@pytest.mark.parametrize("name", sorted(KERNELS))
@given(data=st.data())
def test_any_tiling_has_the_accesses_that_the_model_counts(name, data):
    of = kernel(name)
    tiling, problem = data.draw(tilings(name)), Problem(*(data.draw(st.integers(1, 300)) for _ in "mnk"))
    program = described_program(problem, of, tiling, H200)
    widths = of.widths(problem, tiling)
    expected: Counter[tuple[str, int]] = Counter()
    names = {"load": "shared_load", "store": "shared_store", "copy": "global_copy"}
    for each in shared_accesses(of, tiling, widths):
        expected[names[each.direction], int(each.width)] += each.instructions
    for each in global_accesses(of, tiling, widths):
        if each.direction == "load":
            expected["global_load", int(each.width)] += each.instructions
    found = {key: count for key, count in per_tile(program, of, tiling).items() if key[1]}
    assert found == dict(expected)
    stores = {each.instructions for each in global_accesses(of, tiling, widths) if each.direction == "store"}
    if tiling.split_k == 1:
        assert {sum(step.action == "global_store" for step in program.tail)} == stores
    barriers = per_tile(program, of, tiling).get(("barrier", 0), 0)
    assert barriers == (1 if of.prefetches else 2 if of.staged else 0)
    assert well_formed(program)


def well_formed(program: Program) -> bool:
    """Whether each wait is for a scoreboard that something frees, and all steps take time."""
    steps = [step for name in PARTS for step in getattr(program, name)]
    freed = {step.written for step in steps} | {step.read for step in steps}
    waited = {scoreboard for step in steps for scoreboard in step.waits}
    positive = all(step.ready_cycles >= step.issue_cycles - 1e-9 and step.issue_cycles > 0 for step in steps)
    return waited <= freed and max(waited | {0}) < SCOREBOARDS and positive


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_ffma_of_all_passes_are_those_of_a_thread(name):
    of = kernel(name)
    tiling = default_tiling(of)
    for k in (7, 64, 1000):
        problem = Problem(256, 256, k)
        depth = -(-k // tiling.block_k) * tiling.block_k if of.staged else k
        ffma = tiling.thread_m * tiling.thread_n * depth
        program = described_program(problem, of, tiling, H200)
        passes, left_over = program.passes(ffma)
        assert passes == int(passes)
        assert passes * program.loop_ffma + left_over * program.remainder_ffma == ffma
        assert left_over == (not of.staged and k % UNROLLED > 0)


@pytest.mark.parametrize("name", ["vectorized", "double_buffer", "warp_tiled", "async"])
def test_a_pass_takes_what_ports_and_issue_slots_leave(name):
    of = kernel(name)
    tiling = default_tiling(of)
    program = described_program(CUBE, of, tiling, H200)
    share = port_share(of, CUBE, tiling, H200.capability)
    cycles = sum(step.issue_cycles for step in program.loop)
    # beside what lanes that merge hold up, and barriers
    assert program.loop_ffma / share.fraction < cycles < 1.06 * program.loop_ffma / share.fraction


def test_half_as_many_lanes_take_twice_as_long_for_an_ffma():
    of = kernel("vectorized")
    tiling = default_tiling(of)
    slow, fast = (described_program(CUBE, of, tiling, device(gpu)) for gpu in ("t4", "h200"))
    assert slow.loop_ffma == fast.loop_ffma
    pace = [
        min(step.issue_cycles / step.ffma for step in program.loop if step.ffma and not step.action)
        for program in (slow, fast)
    ]
    assert pace[0] >= 2
    assert pace[1] < 2


def test_tiles_are_fetched_ahead_where_the_kernel_does():
    """Copies of a ring: as many tiles before the loop as it has stages, and all but one of them pending at its end."""
    of = kernel("async")
    tiling = default_tiling(of)
    program = described_program(CUBE, of, tiling, H200)
    assert sum(step.action == "commit" for step in program.prologue) == tiling.stages
    steps = program.prologue + program.loop
    pending = [step.registers for step in steps if step.action == "await_copies"]
    assert pending == [tiling.stages - 1, tiling.stages - 2]


def test_blocks_that_split_k_meet_and_add_up():
    of = kernel("async")
    tiling = of.tiling(**{**vars(default_tiling(of)), "split_k": 4})
    whole, split = (described_program(CUBE, of, each, H200) for each in (default_tiling(of), tiling))
    assert not whole.repeated
    loads = [step for step in split.repeated if step.action == "global_load"]
    assert len(loads) == 4
    assert {step.registers for step in loads} == {4}
    assert sum(step.action == "global_store" for step in split.tail) == tiling.thread_m * tiling.thread_n // 4
    assert {"fence", "atomic", "barrier"} <= {step.action for step in split.tail}
    assert "atomic" in {step.action for step in split.prologue}


def test_tilings_of_other_kernels_are_refused():
    with pytest.raises(InputError):
        described_program(CUBE, kernel("naive"), default_tiling(kernel("async")), H200)
