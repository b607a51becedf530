"""Waves: how a launch fills a GPU, against published cases and against itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.analytic.launch_waves import SplitK, waves
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid


@pytest.mark.parametrize(
    ("tiles", "rounds", "percent"),
    [
        (108, 1, 100),
        (109, 2, 50.46),  # 109 of 216
        (216, 2, 100),
        (7 * 14, 1, 90.74),  # 1792 x 1792 in tiles of 256 x 128
        (8 * 15, 2, 55.56),  # 1793 x 1793: a row and a column of tiles more
    ],
)
def test_waves_on_an_a100(tiles, rounds, percent):
    spread = waves(tiles, device("a100-40gb-sxm").sms)
    assert spread.rounds == rounds
    assert 100 * spread.utilization == pytest.approx(percent, abs=0.005)


def test_second_round_starts_one_row_later():
    # ceil(N / 16) blocks on 36 SMs that hold 2 each: 72 slots
    assert waves(-(-1152 // 16), 36, 2).rounds == 1
    assert waves(-(-1153 // 16), 36, 2).rounds == 2


@given(st.integers(1, 10**6), st.integers(1, 200), st.integers(1, 32))
def test_waves_add_up(blocks, sms, per_sm):
    spread = waves(blocks, sms, per_sm)
    assert (spread.rounds - 1) * spread.slots < blocks <= spread.rounds * spread.slots
    assert spread.count == pytest.approx(spread.rounds - 1 + spread.tail_utilization)
    assert 0 < spread.tail_utilization <= 1
    assert 0 < spread.utilization <= 1
    many = waves(np.array([blocks, blocks]), sms, np.array([per_sm, per_sm]))
    assert many.rounds.tolist() == [spread.rounds] * 2
    assert many.tail_utilization.tolist() == [spread.tail_utilization] * 2


@pytest.mark.parametrize("arguments", [(0, 108), (10, 0), (10, 108, 0), (-1, 108), (1.5, 108)])
def test_waves_of_nothing(arguments):
    with pytest.raises(InputError):
        waves(*arguments)


def test_persistent_blocks_take_as_many_rounds_as_tiles_need():
    # 4096 x 4096 in tiles of 128 x 128, by one persistent block on each of so many SMs
    tiles = grid(Problem(4096, 4096, 4096), Tiling(128, 128, thread_m=8, thread_n=8)).blocks
    assert tiles == 1024
    rounds = {blocks: waves(tiles, blocks).rounds for blocks in (112, 120, 132)}
    assert rounds == {112: 10, 120: 9, 132: 8}
    assert rounds[112] / rounds[120] - 1 == pytest.approx(0.111, abs=5e-4)


def test_one_tile_keeps_one_sm_busy_unless_k_is_cut():
    v100, problem = device("v100-sxm2"), Problem(128, 128, 4096)
    assert v100.sms == 80
    assert waves(1, v100.sms).busy_sms == 1
    split = SplitK(problem, 16)
    assert waves(split.blocks(1), v100.sms).busy_sms == 16
    assert split.partial_bytes_written == 16 * 64 * 1024  # each slice writes a tile of 64 KB
    assert split.partial_bytes_written / 1e6 == pytest.approx(1.05, abs=5e-3)
    assert split.partial_bytes_read == split.partial_bytes_written


def test_without_a_cut_nothing_is_reduced():
    whole = SplitK(Problem(128, 128, 4096), 1)
    assert (whole.blocks(7), whole.partial_bytes_written, whole.partial_bytes_read) == (7, 0, 0)


@pytest.mark.parametrize(
    ("slices", "said"),
    [
        (0, "split_k 0 is out of range"),
        (2.5, "split_k 2.5 is not a whole number"),
        (101, "split_k 101: k 100 has no more slices; allowed: from 1 to 100; nearest: 100"),
        (np.array([2, 300]), "split_k 300: k 100"),
    ],
)
def test_cuts_that_cannot_be(slices, said):
    with pytest.raises(InputError, match=said):
        SplitK(Problem(64, 64, 100), slices)


def test_cuts_as_arrays():
    split = SplitK(Problem(64, 64, 100), np.array([1, 2, 100]))
    assert split.partial_bytes_written.tolist() == [0, 2 * 64 * 64 * 4, 100 * 64 * 64 * 4]
    assert split.blocks(3).tolist() == [3, 6, 300]


@given(st.integers(1, 10**6), st.integers(1, 200), st.integers(1, 32))
def test_blocks_dealt_out_one_sm_after_the_other(blocks, sms, per_sm):
    spread = waves(blocks, sms, per_sm)
    left = blocks % (sms * per_sm) or sms * per_sm
    assert spread.tail_blocks == left
    assert spread.busy_sms == len({block % sms for block in range(min(blocks, 2 * sms))})
    assert spread.tail_busy_sms == len({block % sms for block in range(min(left, 2 * sms))})
