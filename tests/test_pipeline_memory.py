"""The queues that sub-cores share, request by request: cases by hand, and how latencies are distributed."""

from __future__ import annotations

import numpy as np
import pytest

from gemmsim.pipeline.costs import Cost, Costs
from gemmsim.pipeline.memory import COPIES_AHEAD, COPY_CYCLES, TURN_CYCLES, Memory, copy_cycles
from gemmsim.pipeline.program import Action
from gemmsim.pipeline.timing import ALL, Shares, Timing

COSTS: Costs = {
    ("shared_load", 1): (Cost(1, 1, 0),),
    ("global_load", 1): (Cost(2, 1, 128),),
    ("global_load", 4): (Cost(4, 4, 512, 4),),
    ("global_store", 1): (Cost(1, 1, 128),),
    ("global_copy", 1): (Cost(1, 2, 0),),
    ("global_copy", 4): (Cost(1, 4, 0),),
    ("global_copy_source", 1): (Cost(3, 1, 128),),
    ("global_copy_source", 4): (Cost(3, 4, 512, 4),),
}
MISSES = Timing(
    shared_load_cycles={1: 20.0, 2: 22.0, 4: 26.0}, l1_cycles=30.0, global_cycles=500.0, load_cycles_per_byte=0.02,
    store_cycles_per_byte=0.04, barrier_cycles=16.0, arrival_cycles=2.0, code_cycles=0.0, fence_cycles=100.0,
    atomic_cycles=700.0, block_start_cycles=0.0, block_turnover_cycles=500.0, cold_cycles=900.0,
)  # fmt: skip
FAR_APART = 10_000
MANY = 4000


def latencies(at: Timing, action: Action = "global_load", registers: int = 1) -> np.ndarray:
    """Of many requests that do not wait for each other."""
    ask = Memory(COSTS, at).request(action, registers)
    return np.array([ask(now)[0] - now for now in range(0, MANY * FAR_APART, FAR_APART)])


# Data stage and tags


@pytest.mark.parametrize("misses", [0.0, 0.3, 1.0])
def test_a_load_passes_the_data_stage_whether_it_hits_or_misses(misses: float):
    memory = Memory(COSTS, MISSES.with_(l1_misses=misses))
    memory.request("global_load", 4)(0)
    assert (memory.tags, memory.data) == (4, 4 + 4)  # lookups, then its wavefronts
    there, _ = memory.request("shared_load", 1)(0)
    assert there == 8 + 20 - 1  # the cycle of its issue is the latency's own


def test_a_load_that_misses_is_there_after_its_wavefronts_too():
    near = MISSES.with_(global_cycles=1, load_cycles_per_byte=0)
    assert Memory(COSTS, near).request("global_load", 4)(0)[0] == 4 + 4 + 30


@pytest.mark.parametrize(("places", "written", "registers", "cycles"), [
    (4, 1, 1, 4 + 1 + COPY_CYCLES), (1, 2, 2, 3 + 2 + COPY_CYCLES), (4, 4, 4, 4),
])  # fmt: skip
def test_copies_take_a_cycle_for_each_place_or_lookup_and_write(
    places: int, written: int, registers: int, cycles: float
):
    """Of 16 bytes a lane they do not pass through L1: only what they write counts."""
    source, target = Cost(3, 1, 128, places), Cost(0, written)
    assert copy_cycles(source, target, registers) == pytest.approx(cycles)
    memory = Memory({("global_copy", registers): (target,), ("global_copy_source", registers): (source,)}, MISSES)
    there, read = memory.request("global_copy", registers)(0)
    assert (memory.tags, memory.data) == (3, 0)
    assert memory.copies == pytest.approx(cycles)
    assert read == MISSES.operand_cycles
    assert there == pytest.approx(3 + 128 * 0.02 + 500)


def test_copies_let_pass_what_comes_later():
    memory = Memory(COSTS, MISSES)
    copy, load, far = (memory.request(action, 1) for action in ("global_copy", "shared_load", "global_load"))
    copy(0)
    taken = memory.copies
    assert load(1)[0] == 1 + 20 - 1  # as if there were no copy, which waits meanwhile
    assert memory.copies == pytest.approx(taken + 1)
    far(2)
    assert memory.copies == pytest.approx(taken + 1 + 1)
    load(100)
    copy(100)
    assert memory.copies == pytest.approx(101 + taken)  # behind the load


def test_so_many_copies_pile_up_before_one_waits():
    memory = Memory(COSTS, MISSES)
    copy = memory.request("global_copy", 1)
    waits = [copy(0)[1] - MISSES.operand_cycles for _ in range(COPIES_AHEAD + 2)]
    assert waits[:COPIES_AHEAD] == [0] * COPIES_AHEAD
    each = memory.copies / (COPIES_AHEAD + 2)
    assert waits[COPIES_AHEAD:] == [pytest.approx(each), pytest.approx(2 * each)]


@pytest.mark.parametrize("registers", [1, 4])
def test_copies_behind_shared_accesses_take_a_turn(registers: int):
    took = []
    for behind in (False, True):
        memory = Memory(COSTS, MISSES)
        memory.request("global_copy", registers, 0, behind)(0)
        took.append(memory.copies)
    assert took[1] - took[0] == pytest.approx(TURN_CYCLES[registers])


def test_lanes_that_copy_one_place_hold_the_data_stage():
    memory = Memory(COSTS | {("global_copy", 1): (Cost(0, 2, again=30),)}, MISSES)
    memory.request("global_copy", 1)(5)
    assert memory.data == 5 + 30
    assert memory.request("shared_load", 1)(6)[0] == 35 + 20 - 1


def test_partial_sums_are_whole_lines_in_l2():
    memory = Memory(COSTS, MISSES.with_(l1_misses=0.0))
    assert memory.request("partial_store", 4)(0) == (4 + 12, 4 + 12)  # four lookups, then the operands are read
    assert memory.below == pytest.approx(4 + 4 * 128 * 0.04)
    memory = Memory({}, MISSES.with_(l1_misses=0.0))  # no cost is known of such loads: they miss all the same
    there, read = memory.request("global_load", 4)(7)
    assert (there, read) == (pytest.approx(7 + 4 + 4 * 128 * 0.02 + 500), 7 + 4 + 12)
    assert memory.data == 7 + 4 + 4


@pytest.mark.parametrize(("share", "cycles"), [(0, 700), (0.25, 700 + 0.25 * 400), (1, 700 + 400)])
def test_atomics_go_farther_where_l2_holds_nothing(share: float, cycles: float):
    assert Memory({}, MISSES.with_(cold_share=Shares(share, share))).request("atomic", 1)(0)[0] == cycles


# Below L1


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 1.0])
@pytest.mark.parametrize(("action", "lookups"), [("global_load", 2), ("global_copy", 3)])
def test_so_many_loads_are_cold_as_is_said(share: float, action: Action, lookups: int):
    found = latencies(MISSES.with_(cold_share=Shares(share, share)), action) - lookups - 128 * 0.02
    cold = np.isclose(found, 900)
    assert np.all(cold | np.isclose(found, 500))
    assert cold.mean() == pytest.approx(share, abs=0.03 if 0 < share < 1 else 0)


def test_warm_and_cold_loads_have_tails_of_their_own():
    def late(**values: float | Shares) -> np.ndarray:
        return latencies(MISSES.with_(**values)) - 2 - 128 * 0.02

    tails = {"global_tail_cycles": 20.0, "cold_tail_cycles": 100.0}
    assert late(**tails).mean() == pytest.approx(500 + 20, rel=0.01)
    assert late(**tails, cold_share=ALL).mean() == pytest.approx(900 + 100, rel=0.01)


@pytest.mark.parametrize("misses", [0.25, 1.0])
def test_the_slowest_of_all_places_asked_for_counts(misses: float):
    """Of four places as of one each: the mean of the slowest of four is 1 + 1/2 + 1/3 + 1/4 times that of one."""
    at = MISSES.with_(l1_misses=misses, global_tail_cycles=60.0)
    moved = 512 * misses * 0.02
    found = latencies(at, registers=4) - 4 - moved - 500
    assert found.min() >= 0
    assert found.mean() == pytest.approx(60 * (1 + 1 / 2 + 1 / 3 + 1 / 4), rel=0.03)


def test_of_rows_along_k_only_every_other_pass_is_cold():
    """Where memory sends two passes at once, the second finds what it reads of A; B lies across k."""
    costs = {("global_load", 1): (Cost(1, 1, 32, 1, "a", passes_apart=2), Cost(1, 1, 32, 1, "b"))}

    def cold(left: int, turn: int, of: Shares = ALL) -> bool:
        ask = Memory(costs, MISSES.with_(cold_share=of)).request("global_load", 1, turn)
        return ask(0, left)[0] > 800

    assert [cold(left, 0) for left in (6, 7)] == [True, False]
    assert [cold(left, 1) for left in (6, 7)] == [True, True]
    assert cold(7, 1 + len(costs["global_load", 1]))  # after the last the first again
    assert [cold(6, turn, Shares(0.0, 1.0)) for turn in (0, 1)] == [False, True]


@pytest.mark.parametrize(("places", "asked"), [(1, 4), (4, 4), (9, 9)])
def test_lines_below_l1_have_a_rate_of_their_own(places: int, asked: int):
    """Of 512 bytes there are four lines at least, and so many as there are places that lie apart."""
    memory = Memory({("global_load", 1): (Cost(1, 1, 512, places),)}, MISSES.with_(line_cycles=20.0))
    memory.request("global_load", 1)(0)
    assert memory.below == 1 + 20 * asked
    slower = Memory({("global_load", 1): (Cost(1, 1, 512, places),)}, MISSES.with_(line_cycles=0.1))
    slower.request("global_load", 1)(0)
    assert slower.below == pytest.approx(1 + 512 * 0.02)


@pytest.mark.parametrize(
    ("registers", "wavefronts", "cycles"),
    [(1, 1, 20), (1, 2, 22), (1, 4, 26), (2, 2, 22), (2, 4, 26), (4, 4, 26), (4, 2, 20)],
)
def test_conflicts_add_to_the_latency_of_shared_loads(registers: int, wavefronts: int, cycles: int):
    memory = Memory({("shared_load", registers): (Cost(1, wavefronts),)}, MISSES)
    assert memory.request("shared_load", registers)(0)[0] == cycles - 1  # the cycle of its issue is before


def test_stores_and_loads_share_the_way_below():
    memory = Memory(COSTS, MISSES)
    memory.request("global_store", 1)(0)
    assert memory.below == pytest.approx(1 + 128 * 0.04)
    there, _ = memory.request("global_load", 1)(0)
    assert there == pytest.approx(1 + 128 * 0.04 + 128 * 0.02 + 500)  # looked up at 3, moved behind the store
