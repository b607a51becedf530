"""One multiprocessor: cases whose cycles can be counted by hand, and what must hold of any program."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.pipeline.costs import Cost, Costs
from gemmsim.pipeline.memory import Memory, Request
from gemmsim.pipeline.multiprocessor import CODE_AHEAD, MEMORY_QUEUE, run
from gemmsim.pipeline.program import Action, Step, Steps
from gemmsim.pipeline.ready import SUB_CORES, behind_shared_accesses, busy_cycles, in_time
from gemmsim.pipeline.timing import BARRIER_HELD_CYCLES, CODE_INSTRUCTIONS, Timing, timing
from gemmsim.pipeline.work import Issued, Work

PLAIN = Timing(
    shared_load_cycles={1: 20.0, 2: 22.0, 4: 26.0}, l1_cycles=30.0, global_cycles=500.0, load_cycles_per_byte=0.02,
    store_cycles_per_byte=0.04, barrier_cycles=16.0, arrival_cycles=2.0, code_cycles=0.0, fence_cycles=100.0,
    atomic_cycles=700.0, block_start_cycles=0.0, block_turnover_cycles=500.0, l1_misses=0.0,
    ffma_late_cycles=0.0,
)  # fmt: skip
COSTS: Costs = {
    ("shared_load", 1): (Cost(1, 1, 0),),
    ("shared_load", 4): (Cost(1, 4, 0),),
    ("shared_store", 1): (Cost(1, 2, 0),),
    ("global_load", 1): (Cost(2, 1, 128),),
    ("global_store", 1): (Cost(1, 1, 128),),
    ("global_copy", 4): (Cost(1, 4, 0),),
    ("global_copy_source", 4): (Cost(1, 4, 512),),
}
MULTIPLY = Step(16, 16, ffma=16)
BARRIER = Step(1, 1, action="barrier")


def lone(*steps: Step, at: Timing = PLAIN) -> float:
    """Cycles of one warp that goes through these steps once."""
    return run(Work(steps, (), (), 0, 1, 1, 1), COSTS, at).cycles


def loop(*steps: Step, passes: int = 50, warps: int = 4, resident: int = 1, at: Timing = PLAIN) -> float:
    """Cycles of resident blocks that go round a loop."""
    return run(Work((), steps, (), passes, resident, resident, warps), COSTS, at).cycles


# By hand


def test_plain_steps_take_their_issue_slots():
    assert lone(Step(10, 10)) == 10
    assert lone(Step(10, 10), Step(5, 5)) == 10 + 5


def test_a_step_waits_until_the_one_before_lets_it():
    assert lone(Step(10, 40), Step(5, 5)) == 40 + 5


def test_a_dependent_shared_load_is_waited_for_by_its_latency():
    # its issue and its one wavefront are the latency's own; then the step that waits
    assert lone(Step(1, 1, action="shared_load", written=0), Step(8, 8, (0,))) == 20 + 8
    assert lone(Step(1, 1, action="shared_load", registers=4, written=0), Step(8, 8, (0,))) == 26 + 8


def test_warps_without_a_lane_in_an_access_do_not_wait_for_it():
    load, use = Step(1, 1, action="shared_load", written=0), Step(8, 8, (0,))
    half = {("shared_load", 1): (Cost(1, 1, warps=(True, True, False, False)),)}
    told = list[Issued]()
    run(Work((load, use), (), (), 0, 1, 1, 4), half, PLAIN, told.append)
    assert [each.start for each in told if each.step is use] == [1, 1, 20, 21]
    assert [each.warp for each in told if each.step.action] == [0, 1]


def test_accesses_of_a_kind_cost_what_the_one_in_turn_costs():
    loads = (Step(1, 1, action="shared_store"),) * 4
    by_turns = {("shared_store", 1): (Cost(1, 10), Cost(1, 1))}
    assert run(Work(loads, (), (), 0, 1, 1, 1), by_turns, PLAIN).cycles == 1 + 10 + 1 + 10 + 1


def test_a_load_that_hits_l1_passes_tags_and_data():
    assert lone(Step(1, 1, action="global_load", written=0), Step(8, 8, (0,))) == 1 + 2 + 1 + 30 + 8


def test_a_load_that_misses_takes_its_bytes_and_the_latency():
    at = replace(PLAIN, l1_misses=1.0)
    found = lone(Step(1, 1, action="global_load", written=0), Step(8, 8, (0,)), at=at)
    assert found == pytest.approx(1 + 2 + 128 * 0.02 + 500 + 8)


def test_a_load_nobody_waits_for_delays_nobody():
    assert lone(Step(1, 1, action="global_load", written=0), Step(8, 8)) == 1 + 8


def test_a_load_frees_its_address_once_it_is_read():
    assert lone(Step(1, 1, action="global_load", read=2), Step(8, 8, (2,))) == 1 + 2 + PLAIN.operand_cycles + 8


def test_a_store_frees_its_operands_once_they_are_read():
    # looked up in one cycle, then read; the bytes follow
    found = lone(Step(1, 1, action="global_store", read=3), Step(8, 8, (3,)))
    assert found == 1 + 1 + PLAIN.operand_cycles + 8


@pytest.mark.parametrize(
    ("action", "cycles"), [("atomic", 700), ("local", 30), ("other", PLAIN.other_cycles)]
)  # fmt: skip
def test_results_from_elsewhere_take_what_they_take(action: Action, cycles: float):
    assert lone(Step(1, 1, action=action, written=5), Step(8, 8, (5,))) == 1 + cycles + 8


def test_a_fence_waits_for_stores():
    # the store's 128 bytes are on their way by 2 + 5.12
    found = lone(Step(1, 1, action="global_store"), Step(1, 1, action="fence"), Step(8, 8))
    assert found == pytest.approx(1 + 1 + 128 * 0.04 + 100 + 8)


def test_two_warps_meet_at_a_barrier():
    # one after the other arrives there, two cycles apart at least; both go on 16 cycles after the later
    first, second = 1, 1
    assert loop(BARRIER, Step(8, 8), passes=1, warps=2) == max(first + 2, second) + 2 + 16 + 8


def test_a_barrier_is_left_after_the_slowest():
    late: list[float] = []

    def watch(of: Issued) -> None:
        if of.step.ffma:
            late.append(of.start)

    # eight warps of a block: two on each sub-core, whose long step they do one after the other
    run(Work((), (Step(100, 100), BARRIER, MULTIPLY), (), 1, 1, 1, 8), COSTS, PLAIN, watch)
    assert len(late) == 8
    assert min(late) > 200


@pytest.mark.parametrize(("warps", "measured_cycles"), [(2, 17.98), (4, 16.29), (8, 15.48), (16, 14.94), (32, 14.57)])
def test_blocks_that_meet_hold_the_data_stage_as_on_hardware(warps: int, measured_cycles: float):
    """64 warps of an H200 that store and load shared memory in 14 wavefronts a pass, with two barriers; without, 14.25.
    Cycles of the multiprocessor for each warp and pass."""
    store, load = Step(1, 1, action="shared_store"), Step(1, 1, action="shared_load")
    wide = load._replace(registers=4)
    costs = {("shared_store", 1): (Cost(0, 1),), ("shared_load", 1): (Cost(0, 1),), ("shared_load", 4): (Cost(0, 2),)}
    at = timing(device("h200"), calibration(device("h200")))

    def cycles(passes: int, meeting: Steps = (BARRIER,)) -> float:
        steps = (store, store, *meeting, *(load,) * 8, wide, wide, *meeting)
        return run(Work((), steps, (), passes, 64 // warps, 64 // warps, warps), costs, at).cycles

    assert (cycles(36) - cycles(12)) / 24 / 64 == pytest.approx(measured_cycles, rel=0.05)
    assert (cycles(36, ()) - cycles(12, ())) / 24 / 64 == pytest.approx(14.25, rel=0.03)


def test_the_busiest_resource_counts_copies_and_barriers():
    copy, load = Step(1, 1, action="global_copy", registers=4), Step(1, 1, action="shared_load")
    costs = {("shared_load", 1): (Cost(0, 3),), ("global_copy", 4): (Cost(0, 4, again=2),)}
    assert busy_cycles((load, BARRIER), costs, 8) == 8 * 3 + BARRIER_HELD_CYCLES
    assert busy_cycles((load, copy), costs, 8) == 8 * (3 + 4)
    costs[("global_copy_source", 4)] = (Cost(1, 1),)
    assert busy_cycles((load, copy), costs, 8) == 8 * (3 + 4 + 2)
    assert busy_cycles((Step(100, 100), load), costs, 8) == 8 * 101 / SUB_CORES
    half = {("shared_load", 1): (Cost(0, 6, warps=(True, False) * 4),)}
    assert busy_cycles((load, load, load), half, 8) == 3 * 4 * 6


def test_what_copies_are_behind():
    load, copy, other = (
        Step(1, 1, action="shared_load"), Step(1, 1, action="global_copy"), Step(1, 1, action="global_load")
    )  # fmt: skip
    steps = (copy, Step(4, 4), copy, load, copy, copy, other, copy, load)
    assert list(behind_shared_accesses(steps)) == [True, False, False, False, True, False, False, False, False]
    assert list(behind_shared_accesses((Step(4, 4),))) == [False]


def test_warps_that_end_with_a_barrier_are_gone():
    for warps, resident in ((3, 3), (8, 2), (1, 1)):
        assert loop(Step(21, 21, action="barrier"), passes=4, warps=warps, resident=resident) > 4 * 21


def test_copies_are_awaited_group_by_group():
    at = replace(PLAIN, l1_misses=1.0)
    copy, commit = Step(1, 1, action="global_copy", registers=4), Step(1, 1, action="commit")
    there = 1 + 1 + 512 * 0.02 + 500  # issued, looked up, moved, on its way
    awaited = Step(1, 1, action="await_copies", registers=0)
    assert lone(copy, commit, awaited, MULTIPLY, at=at) == pytest.approx(there + 16)
    pending = Step(1, 1, action="await_copies", registers=1)
    assert lone(copy, commit, pending, MULTIPLY, at=at) < 50
    more = lone(copy, commit, *[Step(40, 40)] * 3, copy, commit, pending, MULTIPLY, at=at)
    assert more == pytest.approx(there + 16)


def test_warps_of_a_sub_core_share_its_issue_slots():
    assert loop(MULTIPLY, passes=1, warps=SUB_CORES) == 16
    assert loop(MULTIPLY, passes=1, warps=2 * SUB_CORES) == 32


def test_code_comes_line_by_line_once():
    cold = replace(PLAIN, code_cycles=2.5)
    step = Step(400, 400, instructions=400)
    assert lone(step, at=cold) == 400 * 2.5 + 400
    assert loop(step, passes=9, warps=1, at=cold) == 400 * 2.5 + 9 * 400


def test_code_is_fetched_ahead_as_far_as_it_can_be():
    cold = replace(PLAIN, code_cycles=2.5)
    first, second = Step(400, 400, instructions=400), Step(300, 300, instructions=300)
    # when the first is issued, so many of the second are there
    assert lone(first, second, at=cold) == 400 * 2.5 + 400 + (300 - CODE_AHEAD) * 2.5 + 300


def test_a_loop_beyond_the_cache_of_code_is_fetched_again_in_each_pass():
    cold = replace(PLAIN, code_cycles=2.5)
    part = Step(CODE_INSTRUCTIONS / 3, 1, instructions=CODE_INSTRUCTIONS // 3)
    fits, does_not = [part] * 3, [part] * 5
    for steps, grows in ((fits, False), (does_not, True)):
        warm = loop(*steps, passes=9, warps=1) - loop(*steps, passes=8, warps=1)
        fetched = loop(*steps, passes=9, warps=1, at=cold) - loop(*steps, passes=8, warps=1, at=cold)
        assert (fetched > 1.2 * warm) == grows


def test_blocks_end_when_their_last_step_does_and_a_launch_with_its_stores():
    ran = run(Work((Step(7, 7, action="global_store"),), (), (), 0, 1, 1, 1), COSTS, PLAIN)
    assert ran.block_ends == (7,)
    assert ran.cycles == pytest.approx(7 + 1 + 128 * 0.04)  # looked up, then under way


def test_an_ffma_takes_a_little_more_than_its_ports_say():
    assert lone(MULTIPLY, at=PLAIN.with_(ffma_late_cycles=0.25)) == 16 + 16 * 0.25
    assert lone(Step(16, 16), at=PLAIN.with_(ffma_late_cycles=0.25)) == 16


def test_the_oldest_warp_that_can_goes_on():
    """Three blocks, a warp of each on every sub-core, twice a result of 24 cycles and 30 cycles of work with it.

    The first has its result at 25, works until 55 and asks for the next, to be there at 80; the second works from 56
    to 86. Then the third has waited since 27, but the first goes before it, until 117, and so does the second, until
    147; the third works until 177, has its second result at 202, and ends at 232.
    """
    told = list[Issued]()
    work = Work((), (Step(1, 1, action="other", written=0), Step(30, 30, (0,))), (), 2, 3, 3, SUB_CORES)
    assert run(work, COSTS, PLAIN, told.append).block_ends == (117, 147, 232)
    ends = {number: max(each.end for each in told if each.block == number) for number in range(3)}
    assert ends == {0: 117, 1: 147, 2: 232}


def test_a_block_that_follows_is_younger_than_those_that_are_there():
    # Two blocks at once on every sub-core, and a third where the first ended.
    told = list[Issued]()
    run(Work((), (Step(30, 30),), (), 2, 3, 2, SUB_CORES), COSTS, PLAIN.with_(block_turnover_cycles=10), told.append)
    # the first until 60; the second, begun meanwhile, until 120, though the third could begin at 70
    assert [each.block for each in told if each.sub_core == 0] == [0, 0, 1, 1, 2, 2]
    assert [each.start for each in told if each.sub_core == 0] == [0, 30, 60, 90, 120, 150]


SLOW_LOAD = Step(1, 1, action="shared_load", registers=2)
"""Its 100 wavefronts keep the data stage busy."""
SLOW_COSTS: Costs = {("shared_load", 2): (Cost(1, 100, 0),)}


def test_so_many_accesses_wait_in_front_of_the_queues_and_no_more():
    told = list[Issued]()
    run(Work((SLOW_LOAD,) * 8, (), (), 0, 1, 1, 1), SLOW_COSTS, PLAIN, told.append)
    # served are they from 1, 101, 201... on: the first at once, five wait, the next is issued when the second is served
    assert MEMORY_QUEUE == 5
    assert [each.start for each in told] == [0, 1, 2, 3, 4, 5, 101, 201]


def test_other_warps_go_on_where_accesses_wait_but_not_with_accesses():
    told = list[Issued]()
    steps = (MULTIPLY, *(SLOW_LOAD,) * 7)
    run(Work(steps, (), (), 0, 1, 1, SUB_CORES + 1), SLOW_COSTS, PLAIN, told.append)
    first, fifth = ([each for each in told if each.warp == warp] for warp in (0, SUB_CORES))
    assert first[0].sub_core == fifth[0].sub_core
    assert [each.start for each in first[:7]] == [0, *range(16, 22)]
    assert fifth[0].start == 22  # its FFMA, as soon as the older warp can do no more
    # Four sub-cores take turns, so this one's second load is served from 17 + 4 * 100 on, and leaves room. The warp
    # that issued last has it, and all that follow; then the first one's last load has its turn, when after 7 loads of
    # each sub-core and one more of this the next is served.
    assert [each.start for each in fifth[1:]] == [17 + 4 * number * 100 for number in range(1, 8)]
    assert first[7].start == 17 + (4 * 7 + 1) * 100


@pytest.mark.parametrize("warps", [1, 4, 9])
@pytest.mark.parametrize("action", ["shared_load", "global_load", "global_store"])
def test_never_do_more_accesses_of_a_sub_core_wait(action: Action, warps: int, monkeypatch):
    """Of all that a sub-core has issued, no more than five have not begun to be served."""
    told, served = list[Issued](), list[float]()
    ask_of = Memory.request

    def request(memory: Memory, *of: Any) -> Request:
        ask = ask_of(memory, *of)

        def spy(now: float, left: int) -> tuple[float, float]:
            there, read = ask(now, left)
            served.append(read - PLAIN.operand_cycles)
            return there, read

        return spy

    monkeypatch.setattr(Memory, "request", request)
    costs = {of: (Cost(7, 7, 128),) for of in COSTS}
    work = Work((), (Step(1, 1, action=action),), (), 12, 2, 1, warps)
    run(work, costs, PLAIN, told.append)
    for core in range(SUB_CORES):
        own = [(each.start, began) for each, began in zip(told, served, strict=True) if each.sub_core == core]
        waiting = [sum(began > start for _, began in own[:number]) for number, (start, _) in enumerate(own)]
        assert max(waiting, default=0) <= MEMORY_QUEUE - 1  # beside the one that is issued
        assert warps < SUB_CORES or max(waiting) == MEMORY_QUEUE - 1


# Limits


def test_a_loop_of_ffma_reaches_the_rate_of_its_ports():
    pace = Step(1.25 * 64, 1.25 * 64, ffma=64)
    cycles = loop(Step(1, 1, action="shared_load", registers=4, written=0), pace, passes=100, warps=8)
    per_warp = cycles / (100 * 2)  # two warps a sub-core
    assert per_warp == pytest.approx(1.25 * 64 + 1, rel=0.01)


def test_a_loop_of_shared_loads_reaches_a_wavefront_a_cycle():
    load = Step(1, 1, action="shared_load", registers=4, written=0)
    cycles = loop(load, load, Step(1, 1, (0,)), passes=100, warps=32)
    assert cycles == pytest.approx(100 * 32 * 2 * 4, rel=0.02)


def test_a_loop_of_loads_that_miss_moves_its_share_of_bytes():
    at = replace(PLAIN, l1_misses=1.0, global_tail_cycles=20.0)
    cycles = loop(Step(1, 1, action="global_load", written=0), Step(1, 1, (0,)), passes=100, warps=32, resident=2,
                  at=replace(at, load_cycles_per_byte=0.5))  # fmt: skip
    assert cycles == pytest.approx(100 * 64 * 128 * 0.5, rel=0.02)


@pytest.mark.parametrize("action", ["shared_load", "global_load"])
def test_more_resident_blocks_hide_a_latency(action: Action):
    waits = Step(1, 1, action=action, written=0), Step(4, 4, (0,))
    per_block = [loop(*waits, warps=4, resident=blocks) / blocks for blocks in (1, 2, 3, 4)]
    assert per_block == sorted(per_block, reverse=True)
    assert per_block[-1] < 0.5 * per_block[0]


def test_blocks_beyond_the_resident_follow_in_their_places():
    one = run(Work((), (MULTIPLY,), (), 10, 1, 1, 4), COSTS, PLAIN)
    four = run(Work((), (MULTIPLY,), (), 10, 4, 1, 4), COSTS, PLAIN)
    assert one == (10 * 16, (10 * 16,))
    assert four.cycles == 4 * one.cycles + 3 * PLAIN.block_turnover_cycles
    assert four.block_ends == tuple(160 + number * (160 + 500) for number in range(4))


# Any program

STEPS = st.builds(
    lambda issue, more, waits, action, registers, board: Step(
        issue, issue + more, tuple(sorted(waits)), action, registers, board[0], board[1], 4
    ),
    st.integers(1, 40).map(float),
    st.integers(0, 20).map(float),
    st.sets(st.integers(0, 5), max_size=2),
    st.sampled_from(["", "shared_load", "shared_store", "global_load", "global_store", "other", "barrier"]),
    st.just(1),
    st.sampled_from([(-1, -1), (0, -1), (1, 2), (3, -1), (-1, 4)]),
)
LOOPS = st.lists(STEPS, min_size=1, max_size=8).map(tuple)
ALONE = {"global_cycles", "l1_cycles", "barrier_cycles", "operand_cycles", "other_cycles", "code_cycles"}


def each_wavefronts(times: float) -> Costs:
    return {of: (cost._replace(wavefronts=times * cost.wavefronts),) for of, (cost,) in COSTS.items()}


@given(LOOPS, st.sampled_from(sorted(ALONE)), st.floats(0, 300))
def test_a_warp_alone_never_gains_from_a_longer_latency(steps: Steps, name: str, more: float):
    slower = PLAIN.with_(**{name: getattr(PLAIN, name) + more})
    work = Work((), steps, (), 3, 1, 1, 1)
    assert run(work, COSTS, slower).cycles >= run(work, COSTS, PLAIN).cycles - 1e-9


@given(LOOPS, st.floats(1, 8))
def test_a_warp_alone_never_gains_from_more_wavefronts(steps: Steps, times: float):
    work = Work((), steps, (), 3, 1, 1, 1)
    assert run(work, each_wavefronts(times), PLAIN).cycles >= run(work, COSTS, PLAIN).cycles - 1e-9


@given(LOOPS, st.integers(1, 12), st.integers(1, 3))
def test_no_resource_is_used_beyond_its_rate(steps: Steps, warps: int, resident: int):
    """Cycles are at least the issue slots of the busiest sub-core, and the wavefronts of all."""
    passes = 4
    cycles = run(Work((), steps, (), passes, resident, resident, warps), COSTS, PLAIN).cycles
    on_a_sub_core = -(-warps * resident // SUB_CORES)
    issue = sum(step.issue_cycles for step in steps)
    shared = sum(COSTS[step.action, 1][0].wavefronts for step in steps if step.action.startswith("shared"))
    assert cycles >= passes * on_a_sub_core * issue - 1e-6
    assert cycles >= passes * warps * resident * shared - 1e-6


@given(LOOPS, st.integers(1, 12), st.integers(1, 3))
def test_every_step_of_every_warp_is_issued_once_and_in_order(steps: Steps, warps: int, resident: int):
    passes, told = 3, list[Issued]()
    work = Work((MULTIPLY,), steps, (MULTIPLY, MULTIPLY), passes, 2 * resident, resident, warps)
    ran = run(work, COSTS, PLAIN, told.append)
    expected = [part for step in (MULTIPLY, *steps * passes, MULTIPLY, MULTIPLY) for part in in_time(step)]
    for block in range(2 * resident):
        for warp in range(warps):
            own = [each for each in told if (each.block, each.warp) == (block, warp)]
            assert [each.step for each in own] == expected
            assert all(one.end <= two.start for one, two in pairwise(own))
            assert all(each.start >= max(each.ready, each.free) for each in own)
    for core in range(SUB_CORES):
        own = [each for each in told if each.sub_core == core]
        assert all(one.end <= two.start for one, two in pairwise(own))
    ends = [max(each.end for each in told if each.block == block) for block in range(2 * resident)]
    assert ran.block_ends == tuple(sorted(ends))
    assert ran.cycles >= max(ends)
    assert run(work, COSTS, PLAIN) == ran  # watching changes nothing, nor does chance


@given(LOOPS)
def test_parts_of_a_step_are_the_step(steps: Steps):
    for step in steps:
        *before, last = parts = list(in_time(step))
        assert sum(part.issue_cycles for part in parts) == pytest.approx(step.issue_cycles)
        assert sum(part.ready_cycles for part in parts) == pytest.approx(max(step.ready_cycles, step.issue_cycles))
        assert sum(part.ffma for part in parts) == step.ffma
        assert sum(part.instructions for part in parts) == step.instructions
        assert (last.action, last.registers, last.written, last.read) == step[3:7]
        assert all(not part.action and part.waits == step.waits for part in before)
        assert not before or (last.issue_cycles, last.ready_cycles) == (1, step.after_cycles)


def test_memory_serves_in_the_order_of_time():
    """What is behind 60 FFMA on one sub-core does not hold up what others ask meanwhile."""
    told: list[Issued] = []
    steps = (Step(61, 61, action="shared_load", written=0, ffma=60), Step(1, 1, (0,), "shared_load", written=1))
    run(Work((), steps, (), 4, 1, 1, 5), COSTS, PLAIN, told.append)  # two warps on one sub-core, one on the others
    served = [each.done for each in sorted(told, key=lambda each: each.end) if each.step.action]
    assert len(served) == 5 * 4 * 2
    assert served == sorted(served)


def test_a_barrier_waits_for_the_accesses_before_it():
    stores, costs = (Step(1, 1, action="shared_store"),) * 5, {("shared_store", 1): (Cost(1, 20),)}
    found = run(Work((*stores, BARRIER, MULTIPLY), (), (), 0, 1, 1, 1), costs, PLAIN).cycles
    # the fifth leaves the queue when the first four are served; then one arrives, and all go on
    assert found == pytest.approx(1 + 4 * 20 + 2 + 16 + 16)


@given(LOOPS)
def test_one_warp_takes_linear_time_once_steady(steps: Steps):
    """Of a warp alone, whose loads all hit: passes repeat."""
    first, second, third = (loop(*steps, passes=count, warps=1) for count in (20, 30, 40))
    assert third - second == pytest.approx(second - first, abs=45)
