"""Timelines: intervals that cover each warp's time, against the simulation's own record of its steps."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import kernel
from gemmsim.pipeline.costs import Cost
from gemmsim.pipeline.multiprocessor import run
from gemmsim.pipeline.program import Action, Program, Step
from gemmsim.pipeline.ready import SUB_CORES
from gemmsim.pipeline.timeline import BUSY, MEANINGS, Interval, flights_of, intervals_of, timeline, window
from gemmsim.pipeline.timing import Timing
from gemmsim.pipeline.trace import ON_THE_WAY, chrome_trace
from gemmsim.pipeline.work import Issued, Work
from gemmsim.problem import Problem
from gemmsim.scenes import same_tiling, timeline_of

H200 = device("h200")
CUBE = Problem(2048, 2048, 2048)
TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}
PLAIN = Timing(
    shared_load_cycles={1: 20.0, 2: 22.0, 4: 26.0}, l1_cycles=30.0, global_cycles=500.0, load_cycles_per_byte=0.02,
    store_cycles_per_byte=0.02, barrier_cycles=16.0, arrival_cycles=2.0, code_cycles=0.0, fence_cycles=100.0,
    atomic_cycles=700.0, block_start_cycles=150.0, block_turnover_cycles=500.0, l1_misses=0.0,
    ffma_late_cycles=0.0,
)  # fmt: skip
COSTS = {
    ("global_load", 1): (Cost(1, 1, 128),), ("shared_load", 1): (Cost(1, 1, 0),), ("shared_store", 1): (Cost(1, 1, 0),),
}  # fmt: skip


def simulated(work: Work, at: Timing = PLAIN) -> list[Issued]:
    """All steps as they were issued."""
    issued: list[Issued] = []
    run(work, COSTS, at, issued.append)
    return issued


def lone_warp(*loop: Step, passes: int = 3) -> list[tuple[str, float]]:
    """(kind, cycles) of the second pass of a warp that has the multiprocessor for itself."""
    return [
        (each.kind, each.cycles)
        for each in intervals_of(simulated(Work((), loop, (), passes, 1, 1, 1)))
        if each.lap == 1
    ]


def test_a_load_is_waited_for_until_it_is_there():
    # from the end of its issue: 1 cycle for the tags, 1 for the data, 30 of latency
    found = lone_warp(Step(1, 1, action="global_load", written=0), Step(10, 10, (0,), ffma=8))
    assert found == [("load", 1), ("wait_memory", 1 + 1 + 30), ("compute", 10)]


def test_what_is_done_meanwhile_is_not_waited_for():
    early, later = Step(1, 1, action="global_load", written=0), Step(10, 10, (0,), ffma=8)
    assert lone_warp(early, Step(20, 20, ffma=20), later) == [
        ("load", 1), ("compute", 20), ("wait_memory", 32 - 20), ("compute", 10),
    ]  # fmt: skip
    assert lone_warp(early, Step(40, 40, ffma=40), later) == [("load", 1), ("compute", 50)]


def test_shared_memory_is_told_from_global():
    # its issue and its wavefront are in the latency of 20
    found = lone_warp(Step(1, 1, action="shared_load", written=2), Step(4, 4, (2,), ffma=4))
    assert found == [("shared", 1), ("wait_shared", 19), ("compute", 4)]


def test_the_last_scoreboard_to_be_free_names_the_wait():
    far, near = Step(1, 1, action="global_load", written=0), Step(1, 1, action="shared_load", written=1)
    assert lone_warp(far, near, Step(4, 4, (0, 1), ffma=4))[2] == ("wait_memory", 31)
    slow = replace(PLAIN, shared_load_cycles={1: 60.0, 2: 60.0, 4: 60.0})
    issued = simulated(Work((), (far, near, Step(4, 4, (0, 1), ffma=4)), (), 1, 1, 1, 1), slow)
    assert [each.kind for each in intervals_of(issued)] == ["load", "shared", "wait_shared", "compute"]


def test_an_access_at_the_end_of_ffma_takes_a_slot_of_them():
    assert lone_warp(Step(8, 8, action="shared_load", ffma=5, instructions=7)) == [("compute", 7), ("shared", 1)]
    assert lone_warp(Step(5, 5, action="global_store", instructions=4)) == [("other", 5)]
    # alone it has all cycles of its issue, such as those for which its lanes merge
    assert lone_warp(Step(1.5, 4, action="shared_load", instructions=1)) == [("wait_own", 2.5), ("shared", 1.5)]


def test_own_latency_is_waited_for():
    assert lone_warp(Step(2, 6, ffma=2), Step(1, 1)) == [("compute", 2), ("wait_own", 4), ("other", 1)]


def test_a_barrier_holds_even_a_lone_warp():
    # its own arrival takes 2 cycles, the barrier 16
    found = lone_warp(Step(1, 5, action="barrier"), Step(3, 3, ffma=3))
    assert found == [("other", 1), ("wait_barrier", 2 + 16), ("compute", 3)]


def test_copies_are_waited_for_where_their_groups_are():
    loop = (
        Step(1, 1, action="global_copy"), Step(1, 1, action="commit"), Step(1, 1, action="await_copies", registers=0),
        Step(4, 4, ffma=4),
    )  # fmt: skip
    kinds = [kind for kind, _ in lone_warp(*loop)]
    assert kinds == ["load", "other", "wait_memory", "compute"]


def test_code_that_is_not_there_yet_is_waited_for():
    issued = simulated(
        Work((), (Step(4, 4, ffma=4, instructions=4),) * 2, (), 2, 1, 1, 1), replace(PLAIN, code_cycles=8.0)
    )
    assert [each.kind for each in intervals_of(issued)][:3] == ["compute", "wait_own", "compute"]


def test_two_warps_of_a_sub_core_take_turns():
    issued = simulated(Work((), (Step(10, 10, ffma=10),), (), 4, 1, 1, 1 + SUB_CORES))
    found = list(intervals_of(issued))
    (twin,) = (warp for warp in range(1, 1 + SUB_CORES) if on(found, 0, warp) == on(found, 0, 0))
    first, second = (min(each.start for each in issued if each.warp == warp) for warp in (0, twin))
    assert abs(first - second) >= 10  # one after the other


def on(intervals: list[Interval], block: int, warp: int) -> int:
    return next(each.sub_core for each in intervals if (each.block, each.warp) == (block, warp))


@st.composite
def steps(draw: st.DrawFn) -> Step:
    issue = draw(st.integers(1, 12))
    action: Action = draw(
        st.sampled_from(["", "", "global_load", "shared_load", "shared_store", "other", "global_copy"])
    )
    scoreboard = draw(st.integers(0, 5))
    return Step(
        float(issue),
        float(issue + draw(st.integers(0, 6))),
        tuple(sorted(draw(st.sets(st.integers(0, 5), max_size=2)))),
        action,
        1,
        scoreboard if action in ("global_load", "shared_load", "other") else -1,
        scoreboard if action == "shared_store" else -1,
        draw(st.integers(0, issue)),
        issue,
    )


BARRIER, FFMA = Step(1.0, 5.0, action="barrier", instructions=1), Step(6.0, 6.0, ffma=6, instructions=6)


@st.composite
def works(draw: st.DrawFn) -> Work:
    loop = tuple(draw(st.lists(steps(), min_size=1, max_size=6)))
    loop += (FFMA,) + ((BARRIER,) if draw(st.booleans()) else ())
    before = tuple(draw(st.lists(steps(), max_size=3)))
    passes, blocks, warps = (draw(st.integers(1, most)) for most in (5, 3, 9))
    after = (Step(1.0, 1.0, instructions=1),)  # as every kernel ends with EXIT
    return Work(before, loop, after, passes, blocks, draw(st.integers(1, blocks)), warps)


@given(works(), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 3.0]))
def test_intervals_cover_each_warp_and_say_what_was_issued(work, misses, code_cycles):
    issued = simulated(work, replace(PLAIN, l1_misses=misses, code_cycles=code_cycles, global_tail_cycles=40.0))
    found = list(intervals_of(issued))
    steps_of, lanes = defaultdict(list), defaultdict(list)
    for each in issued:
        steps_of[each.block, each.warp].append(each)
    for each in found:
        lanes[each.block, each.warp].append(each)
    assert lanes.keys() == steps_of.keys()
    for of, lane in lanes.items():
        assert lane[0].start_cycles == steps_of[of][0].start
        assert lane[-1].end_cycles == steps_of[of][-1].end
        assert all(before.end_cycles == after.start_cycles for before, after in pairwise(lane))
        busy = sum(each.cycles for each in lane if each.kind in BUSY)
        assert busy == pytest.approx(sum(each.step.issue_cycles for each in steps_of[of]))
        # the slow route: whether a step is being issued, asked at the middle of every interval
        for each in lane:
            middle = (each.start_cycles + each.end_cycles) / 2
            under_way = any(step.start <= middle < step.end for step in steps_of[of])
            assert under_way == (each.kind in BUSY)
    for sub_core in range(SUB_CORES):
        busy = sorted(
            (each.start_cycles, each.end_cycles) for each in found if each.sub_core == sub_core and each.kind in BUSY
        )
        assert all(first[1] <= second[0] for first, second in pairwise(busy))


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=8))
def test_flights_are_when_anything_is_on_its_way(loads):
    step = Step(1, 1, action="global_load", written=0)
    issued = [
        Issued(end - 1.0, end, 0, warp, 0, step, 0, 0.0, 0.0, -1, end + latency)
        for warp, end, latency in sorted(loads, key=lambda load: load[1])
    ]
    found = list(flights_of(issued, 20.0, 50.0))
    for warp in (0, 1):
        own = [flight for flight in found if flight.warp == warp]
        assert all(before.end_cycles < after.start_cycles for before, after in pairwise(own))
        for cycle in range(30):  # the slow route: asked in the middle of each cycle of the window
            at = cycle + 0.5
            under_way = any(each.end <= 20 + at < each.done for each in issued if each.warp == warp)
            assert under_way == any(flight.start_cycles <= at < flight.end_cycles for flight in own)


@given(works())
def test_the_window_has_the_work_that_was_asked_for(work):
    work = replace(work, passes=12, resident=work.blocks)
    issued = simulated(work)
    ffma = 2 * sum(step.ffma for step in work.loop)
    found = window(issued, ffma)
    if found is None:  # where a block ends before another begins
        return
    start, end = found
    loop = [each for each in issued if each.lap >= 0]
    for of in {(each.block, each.warp) for each in loop}:
        own = [each for each in loop if (each.block, each.warp) == of]
        assert own[0].start <= start < end <= own[-1].end
    inside = [each.step.ffma for each in issued if start < each.end <= end]
    warps = len({(each.block, each.warp) for each in issued})
    longest = max(step.ffma for step in work.loop)
    assert sum(inside) / warps == pytest.approx(ffma, abs=2 * longest)


@pytest.fixture(scope="module")
def single():
    return timeline_of(CUBE, kernel("vectorized"), kernel("vectorized").tiling(**TILE), H200)


@pytest.fixture(scope="module")
def double():
    return timeline_of(CUBE, kernel("double_buffer"), kernel("double_buffer").tiling(**TILE), H200)


def test_every_warp_fills_the_window(single, double):
    for found in (single, double):
        assert len(found.warps) == found.blocks * found.tiling.warps
        for lane in found.warps.values():
            assert (lane[0].start_cycles, lane[-1].end_cycles) == (0, pytest.approx(found.cycles))
            assert all(a.end_cycles == b.start_cycles for a, b in pairwise(lane))
            assert sum(each.cycles for each in lane) == pytest.approx(found.cycles)
        assert set(found.cycles_by_kind) == set(MEANINGS)
        assert sum(found.cycles_by_kind.values()) == pytest.approx(found.cycles)
        assert 0 < found.issuing <= 1


def test_issue_slots_hold_two_iterations(single, double):
    ffma = 2 * TILE["thread_m"] * TILE["thread_n"] * TILE["block_k"]
    for found in (single, double):
        assert ffma <= found.cycles_by_kind["compute"] <= 1.5 * ffma  # at least a slot each, and waits for ports
        assert found.cycles_per_iteration >= ffma / 2 * found.tiling.warps / SUB_CORES


def test_a_second_buffer_hides_the_loads(single, double):
    assert double.waiting < single.waiting
    assert double.held_up < single.held_up / 2
    assert double.hidden > 0.9 > single.hidden
    assert double.cycles < single.cycles
    assert double.issuing > single.issuing


def test_flights_lie_in_the_window_and_apart(single, double):
    for found in (single, double):
        lanes = defaultdict(list)
        for flight in found.flights:
            assert 0 <= flight.start_cycles < flight.end_cycles <= found.cycles
            lanes[flight.block, flight.warp].append(flight)
        assert lanes.keys() == found.warps.keys()
        for lane in lanes.values():
            assert all(a.end_cycles < b.start_cycles for a, b in pairwise(lane))


def test_memory_is_waited_for_only_while_something_is_on_its_way(single):
    for each in single.intervals:
        if each.kind == "wait_memory":
            middle = (each.start_cycles + each.end_cycles) / 2
            assert any(
                (flight.block, flight.warp) == (each.block, each.warp)
                and flight.start_cycles <= middle <= flight.end_cycles
                for flight in single.flights
            )


def test_the_cost_does_not_grow_with_k():
    tiling = kernel("double_buffer").tiling(**TILE)
    counts = [
        len(timeline_of(Problem(2048, 2048, k), kernel("double_buffer"), tiling, H200).intervals) for k in (16, 8192)
    ]
    assert counts[1] < 1.5 * counts[0]


def test_one_large_iteration_is_too_few():
    with pytest.raises(InputError, match=r"k 8 is one large iteration of block_k 8; .* smallest k that has them is 9"):
        timeline_of(Problem(2048, 2048, 8), kernel("vectorized"), kernel("vectorized").tiling(**TILE), H200)


def test_a_kernel_without_tiles_has_passes():
    found = timeline_of(Problem(1024, 1024, 1024), kernel("naive"), kernel("naive").tiling(), H200)
    assert found.iterations == 2
    assert found.cycles_by_kind["shared"] == found.cycles_by_kind["wait_barrier"] == 0
    assert found.cycles_by_kind["wait_memory"] > 0


def test_the_same_tiling_of_another_kernel():
    tiling = kernel("vectorized").tiling(**TILE, pad_a=4)
    assert same_tiling(kernel("double_buffer"), tiling) == kernel("double_buffer").tiling(**TILE, pad_a=4)
    warps = same_tiling(kernel("warp_tiled"), kernel("vectorized").tiling(**{**TILE, "thread_m": 16, "block_m": 256}))
    assert (warps.block_m, warps.block_k, warps.thread_m) == (256, 8, 16)
    with pytest.raises(InputError, match="thread tiles"):
        same_tiling(kernel("warp_tiled"), tiling)  # of whose threads 64 would make a warp


def test_an_interval_has_a_length():
    with pytest.raises(InputError, match="has no length"):
        Interval(0, 0, 0, "compute", 4.0, 4.0, 1)


def test_blocks_that_go_on_unequally_still_fill_a_window():
    # many blocks of short work: those that begin first have ended when the last begins, unless passes are added
    loop = (Step(1, 1, action="global_load", written=0), Step(32, 32, (0,), ffma=32))
    program = Program((), loop, (), (Step(1, 1),))
    found = timeline(Problem(512, 512, 512), kernel("naive"), kernel("naive").tiling(), H200, program, 16)
    assert found.cycles > 0
    assert all(math.isclose(lane[-1].end_cycles, found.cycles) for lane in found.warps.values())


# The Chrome trace format: what its description demands of each kind of event


def test_traces_follow_the_format(single, double):
    trace = chrome_trace([single, double])
    assert set(trace) == {"traceEvents", "displayTimeUnit", "otherData"}
    assert trace["displayTimeUnit"] in ("ms", "ns")
    for event in trace["traceEvents"]:
        assert {"ph", "name", "pid", "tid", "args"} <= set(event)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name")
            assert isinstance(event["args"]["name"], str)
        else:
            assert event["ph"] == "X"
            assert event["dur"] > 0
            assert event["ts"] >= 0
            assert {"start_cycles", "cycles"} <= set(event["args"])


def test_traces_hold_every_interval_on_a_named_track_of_its_own(single, double):
    events = chrome_trace([single, double])["traceEvents"]
    complete = [event for event in events if event["ph"] == "X"]
    assert len(complete) == sum(len(each.intervals) + len(each.flights) for each in (single, double))
    tracks = defaultdict(list)
    for event in complete:
        tracks[event["pid"], event["tid"]].append(event)
    named = {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    assert tracks.keys() <= named
    assert {event["pid"] for event in events if event["name"] == "process_name"} == {pid for pid, _ in tracks}
    assert len({pid for pid, _ in tracks}) == single.blocks + double.blocks
    for track in tracks.values():
        for before, after in pairwise(track):  # events of a track nest or follow, never cross
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
    first = next(event for event in complete if event["name"] != ON_THE_WAY)
    assert first["dur"] == pytest.approx(1e6 * first["args"]["cycles"] / single.clock_hz, abs=2e-6)
