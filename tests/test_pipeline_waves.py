"""Blocks handed out to where others end, and what of their tiles L2 holds: by hand, and beside enumeration."""

from __future__ import annotations

import heapq
import math
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import device
from gemmsim.pipeline.multiprocessor import Ran
from gemmsim.pipeline.timing import ALL, NOTHING, Shares
from gemmsim.pipeline.waves import (
    APART,
    ROUNDS,
    UNEVEN,
    WAVES,
    Wave,
    busiest,
    cold_share,
    drawn_together,
    first_wave,
    fits_in_l2,
    place_of,
    read_ahead,
)
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid

H200 = device("h200")
FEW = st.integers(1, 40)


def ran(*ends: float) -> Ran:
    """Two waves of blocks that end at these times."""
    return Ran(ends[-1], ends)


@st.composite
def pairs(draw) -> Ran:
    """Two waves of one to eight blocks, the second as long as the first and all of it after that; some end at once."""
    gaps = draw(st.lists(st.sampled_from([0, 0, 1, 5, 60]), min_size=1, max_size=8))
    first = 1000 + np.cumsum(gaps)
    return ran(*map(float, first), *map(float, first + first[-1]))


SPREAD = ran(500, 1000, 1500, 2000)
AT_ONCE = ran(1000, 1000, 2000, 2000)


# The first wave


@pytest.mark.parametrize(
    ("blocks", "blocks_per_sm", "wave"),
    [
        (132 * 2 * 3, 2, Wave(2, 1, ALL, 132)),
        (7, 4, Wave(1, 1, ALL, 7)),  # one by one to as many multiprocessors
        (133, 4, Wave(2, 1, ALL, 132)),  # one of them gets a second
        (132, 4, Wave(1, 1, ALL, 132)),
    ],
)
def test_the_first_blocks_are_spread_evenly(blocks: int, blocks_per_sm: int, wave: Wave):
    assert first_wave(blocks, blocks_per_sm, H200) == wave


@given(FEW, FEW, st.integers(1, 9), st.integers(1, 3), st.integers(1, 4), st.integers(1, 60))
def test_what_is_read_ahead_is_what_those_with_a_block_less_share(m, n, group, split_k, resident, sms):
    tiling = Tiling(16, 48, 8, group=group, split_k=split_k)
    problem = Problem(m * 16, n * 48, 64)
    blocks = min(m * n * split_k, resident * sms)
    places, numbers = {}, count()
    for first in range(0, m, group):  # down a band, then along n
        for column in range(n):
            for row in range(first, min(m, first + group)):
                places.update({next(numbers): (row, column, part) for part in range(split_k)})
    for number in range(0, m * n * split_k, split_k):
        assert place_of(number // split_k, problem, tiling) == places[number][:2]
    held = [[places[number] for number in range(sm, blocks, sms)] for sm in range(min(sms, blocks))]
    most = max(map(len, held))
    ahead = {place for own in held if len(own) < most for place in own} if blocks >= sms else set()
    found = [
        (any((row, part) == (r, p) for r, _, p in ahead), any((column, part) == (c, p) for _, c, p in ahead))
        for own in held if len(own) == most for row, column, part in own
    ]  # fmt: skip
    assert read_ahead(problem, tiling, blocks, sms) == pytest.approx(np.mean(found, axis=0))


# Blocks that follow


def test_where_blocks_end_at_once_as_many_begin():
    # 306 blocks, 264 at first: on an H200 of 132 multiprocessors 18 got two more, 6 one, 108 none
    assert busiest(AT_ONCE, 306 - 2 * 132, 132) == 2
    assert busiest(ran(1000, 1010, 2000, 2010), 42, 132) == 2  # apart by less than multiprocessors differ
    assert busiest(SPREAD, 42, 132) == 1
    assert busiest(ran(1000, 1000, 1000, 2000, 2000, 2000), 30, 132) == 3


@given(pairs())
def test_ends_are_drawn_to_the_last_one_of_their_wave(pair: Ran):
    nearer, resident = drawn_together(pair), len(pair.block_ends) // 2
    for wave in (slice(0, resident), slice(resident, None)):
        ends, drawn = np.array(pair.block_ends[wave]), np.array(nearer.block_ends[wave])
        assert drawn[-1] == ends[-1]
        assert drawn[-1] - drawn == pytest.approx(APART * (ends[-1] - ends))
    assert nearer.cycles == pair.cycles


def test_no_more_begin_than_are_left():
    assert busiest(AT_ONCE, 1, 132) == 1
    assert busiest(AT_ONCE, 2 * 132 + 1, 132) == 2 + 1
    assert busiest(AT_ONCE, 2 * 132 + 2, 132) == 2 + 2


@pytest.mark.parametrize(
    ("left", "more"), [(1, 1), (131, 1), (132, 1), (133, 2), (264, 2), (265, 3), (4 * 264, 8), (4 * 264 + 1, 9)]
)
def test_blocks_that_end_apart_are_spread_evenly(left: int, more: int):
    assert busiest(SPREAD, left, 132) == more == math.ceil(left / 132)


@given(pairs(), st.integers(1, 2000), FEW)
def test_the_fastest_gets_its_share_and_no_more_than_there_is(pair: Ran, left: int, sms: int):
    more = busiest(pair, left, sms)
    assert math.ceil(left / sms) <= more <= left
    assert busiest(pair, left + 1, sms) - more in (0, 1)


@given(pairs(), st.integers(1, 300), FEW)
def test_blocks_are_handed_out_one_by_one(pair: Ran, left: int, sms: int):
    """As a queue of all ends of all multiprocessors says it, each block to where one ended first."""
    resident = len(pair.block_ends) // 2
    left = min(left, ROUNDS * resident * sms)
    first, second = pair.block_ends[:resident], pair.block_ends[resident:]
    period = pair.cycles - first[-1]

    def ends(sm: int):
        slowness = np.linspace(1, 1 + UNEVEN, sms)[sm]
        yield from ((end * slowness, sm) for end in first)
        for lap in count():
            yield from (((end + period * lap) * slowness, sm) for end in second)

    queue = heapq.merge(*map(ends, range(sms)))
    got = [next(queue)[1] for _ in range(left)]
    assert busiest(pair, left, sms) == got.count(0)


@given(pairs(), st.integers(0, 500), FEW, st.integers(0, 100))
def test_rounds_before_the_last_give_all_as_many(pair: Ran, more: int, sms: int, rounds: int):
    """So however many there are, no more need be looked at than the last few."""
    resident = len(pair.block_ends) // 2
    left = ROUNDS * resident * sms + more
    expected = busiest(pair, left, sms) + rounds * resident
    assert busiest(pair, left + rounds * resident * sms, sms) == expected


# What L2 holds of their tiles


def blocks_of(m: int, n: int, tiling: Tiling, k: int = 64) -> Problem:
    """The problem of so many blocks."""
    return Problem(m * tiling.block_m, n * tiling.block_n, k)


def later_blocks(problem: Problem, tiling: Tiling, resident: int) -> Shares:
    """What the blocks behind the first wave are the first to need, of A and of B."""
    at_once = resident * H200.sms
    return cold_share(problem, tiling, H200, at_once, grid(problem, tiling).blocks, at_once)


def test_whole_strips_begin_new_rows_and_know_the_columns():
    tiling = Tiling(128, 64, 8, 8, 8)
    # a strip of 66 blocks, 2 strips in a wave: all rows of A are new, no column of B
    assert later_blocks(blocks_of(20, 66, tiling), tiling, 1) == (1, 0)


def test_a_strip_of_several_waves_is_new_once():
    tiling = Tiling(128, 128, 8, 8, 8)
    # strips of 264 blocks are two waves: every other one begins rows, of the 7 behind the first the second, fourth and
    # sixth; the first of them ends the first strip, and its 132 blocks are the first to need their columns
    expected = (3 / 7, 1 / 7)
    assert later_blocks(blocks_of(4, 264, tiling), tiling, 1) == pytest.approx(expected)
    # so are strips of two rows of 132 blocks, or of one row of 132 tiles in two parts
    grouped, parted = Tiling(128, 128, 8, 8, 8, group=2), Tiling(128, 128, 8, 8, 8, split_k=2)
    assert later_blocks(blocks_of(8, 132, tiling), grouped, 1) == pytest.approx(expected)
    assert later_blocks(blocks_of(4, 132, tiling), parted, 1) == pytest.approx(expected)


def test_a_few_blocks_left_know_the_rest_of_their_row():
    tiling = Tiling(128, 128, 8, 8, 8)
    problem = blocks_of(17, 8, tiling)  # 136 blocks: the last four are of a row whose first four were in the first wave
    assert later_blocks(problem, tiling, 1) == NOTHING
    assert cold_share(problem, tiling, H200, 128, 136, 132) == (1, 0)  # that whole row would be new, its columns not


def test_everything_is_new_where_l2_keeps_nothing():
    tiling = Tiling(128, 128, 8, 8, 8)
    large = Problem(8192, 8192, 8192)  # 512 MiB
    assert not fits_in_l2(large, H200)
    assert later_blocks(large, tiling, 1) == ALL
    small = Problem(8192, 8192, 512)  # 32 MiB of 60
    assert fits_in_l2(small, H200)
    assert max(later_blocks(small, tiling, 1)) < 1
    assert fits_in_l2(Problem(1024, 1024, 1024), H200)  # 8 MiB


@given(FEW, FEW, st.sampled_from([1, 2, 4]), st.integers(1, 9), st.integers(1, 300), st.data())
def test_a_tile_is_new_to_the_wave_that_first_has_a_block_of_it(m, n, split: int, group: int, at_once: int, data):
    """Block by block, in the order in which they are handed out."""
    tiling = Tiling(64, 32, 8, 4, 4, split_k=split, group=group)
    problem = blocks_of(m, n, tiling)
    blocks = grid(problem, tiling).blocks
    first = data.draw(st.integers(0, blocks - 1))
    last = min(blocks, first + WAVES * at_once)
    known: set[tuple[str, int, int]] = set()
    held, new = set(known), {"a": 0, "b": 0}
    for number in range(last):
        if number >= first and (number - first) % at_once == 0:
            held = set(known)  # the waves before this one
        tile, part = divmod(number, split)
        row, column = place_of(tile, problem, tiling)
        for name, which in (("a", row), ("b", column)):
            known.add((name, int(which), part))
            if number >= first:
                new[name] += (name, int(which), part) not in held
    found = cold_share(problem, tiling, H200, first, blocks, at_once)
    assert found == pytest.approx(tuple(count / (last - first) for count in new.values()))
