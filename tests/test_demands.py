"""What a tile of k demands: the closed forms beside enumerations, and beside what was measured."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.analytic import demands
from gemmsim.analytic.demands import (
    CODE_WAYS,
    _moved,
    demand_of,
    missed_code,
    passes_of_lines,
    passes_of_rows,
    scalars,
)
from gemmsim.coalescing import l1_wavefronts
from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.pipeline.timing import BARRIER_HELD_CYCLES, CODE_INSTRUCTIONS
from gemmsim.predict import counted_shared, predict
from gemmsim.problem import Problem
from gemmsim.tiling import WARP_SIZE

H200 = device("h200")
CUBE = Problem(1024, 1024, 1024)
INSTRUCTIONS_OF_LINE = 8
LOOPS = {1984: 1.022, 2048: 1.202, 2112: 1.494, 2240: 1.947, 2304: 2.200, 2432: 2.590, 2560: 2.830, 4096: 2.805}
"""Cycles of each FFMA of a loop of so many, one warp on each sub-core, as measured on an H200."""


@given(st.integers(1, 700))
def test_code_is_missed_as_a_cache_of_ways_misses_a_loop(lines):
    sets = CODE_INSTRUCTIONS // INSTRUCTIONS_OF_LINE // CODE_WAYS
    places: list[OrderedDict[int, None]] = [OrderedDict() for _ in range(sets)]
    for _ in range(3):
        missed = 0
        for line in range(lines):
            place = places[line % sets]
            missed += line not in place
            place[line] = None
            place.move_to_end(line)
            if len(place) > CODE_WAYS:
                place.popitem(last=False)
    assert missed_code(lines * INSTRUCTIONS_OF_LINE) == pytest.approx(missed / lines)


def test_code_is_missed_as_measured():
    within, beyond = LOOPS[1984], LOOPS[4096]
    for instructions, cycles in LOOPS.items():
        expected = within + float(missed_code(instructions)) * (beyond - within)
        assert expected == pytest.approx(cycles, rel=0.06)


@pytest.mark.parametrize(("width", "block_k"), [(1, 4), (1, 8), (1, 16), (1, 32), (4, 8), (4, 16), (4, 32), (4, 64)])
def test_rows_share_no_pass_where_they_begin_alike(width, block_k):
    rows, pitch = 64, 1024
    vector = np.arange(rows * block_k // width).reshape(-1, WARP_SIZE)
    row, column = np.divmod(vector, block_k // width)
    passes = l1_wavefronts(4 * (row * pitch + column * width), np.ones(vector.shape, bool), 4 * width).data.sum()
    assert passes == passes_of_rows(rows, block_k)


def passes_on_average(lines: int, pitches: np.ndarray) -> float:
    """Of a word from each of so many lines, by the hash of L1's tags and the banks."""
    row = np.arange(WARP_SIZE) * lines // WARP_SIZE
    addresses = 4 * (row * pitches[:, None] + 8 * np.arange(len(pitches))[:, None])
    return float(l1_wavefronts(addresses, np.ones(addresses.shape, bool), 4).data.mean())


@pytest.mark.parametrize("lines", [1, 2, 4, 8, 16, 32])
def test_lines_meet_in_slots_by_chance_and_in_banks_by_their_pitch(lines):
    ragged = np.arange(1001, 4001, 26)
    assert passes_of_lines(lines, 1001) == pytest.approx(passes_on_average(lines, ragged), rel=0.2)
    assert passes_of_lines(lines, 1024) == passes_on_average(lines, np.full(8, 1024)) == lines
    assert passes_of_lines(32, 1024 + 16) == 16


def moved(pad_a: int, block_k: int = 24) -> float:
    of = kernel("async")
    tiling = of.tiling(
        block_m=192, block_n=64, block_k=block_k, warp_m=64, warp_n=8, thread_m=8, thread_n=2, pad_a=pad_a
    )
    problem = Problem(2304, 640, 1536)
    widths = of.widths(problem, tiling)
    return float(_moved(problem, of, tiling, widths, H200, counted_shared(of, tiling, widths, 4)))


def test_copies_take_what_their_conflicts_do():
    """As the time of a tile was measured with copies of A whose writes conflict 8-way and 2-way, and without conflicts:
    21.7, 8.3 and 6.1 cycles for each of 144."""
    copies = 192 * 24 / WARP_SIZE
    assert (moved(0) - moved(4)) / copies == pytest.approx(21.7 - 6.1, rel=0.15)
    assert (moved(8) - moved(4)) / copies == pytest.approx(8.3 - 6.1, rel=0.15)


@pytest.mark.parametrize(("down", "share"), [(20, 1), (66, 1 / 2), (660, 1 / 4)])
def test_one_of_the_few_blocks_of_a_multiprocessor_lies_at_the_last_columns(down: int, share: float):
    """Four blocks in a row, the last with one column; as many rows of them as make 1, 2 and 20 blocks a multiprocessor:
    of one or two at least one lies there, of many one in four."""
    of = kernel("async")
    tiling = of.tiling(block_m=64, block_n=256, block_k=8, warp_m=32, warp_n=128, thread_m=16, thread_n=8, pad_a=4)

    def passes(n: int) -> float:
        problem = Problem(64 * down, n, 1536)
        widths = of.widths(Problem(64 * down, 1024, 1536), tiling)  # as if rows were whole vectors
        return float(_moved(problem, of, tiling, widths, H200, counted_shared(of, tiling, widths, 4)))

    assert passes(1024 - 255) - passes(1024) == pytest.approx(share * 8 * 255 / 4)


def test_the_phases_of_a_tile_follow_each_other_in_one_block():
    of = kernel("vectorized")
    tiling = of.tiling(**dict(of.default_tile))
    widths = of.widths(CUBE, tiling)
    shared = counted_shared(of, tiling, widths, 4)
    arguments = CUBE, of, tiling, widths, H200
    demand = demand_of(*arguments, shared, 255, 0, scalars())
    assert 0 < demand.moving < demand.alone
    assert demand.work < demand.alone
    more = demand_of(*arguments, shared._replace(store_wavefronts=shared.store_wavefronts + 1000), 255, 0, scalars())
    assert more.alone - demand.alone == pytest.approx(more.moving - demand.moving)
    assert more.alone - demand.alone > more.work - demand.work


@pytest.mark.parametrize(("name", "barriers"), [("shared", 2), ("double_buffer", 1)])
def test_each_barrier_of_a_tile_holds_the_data_stage(name, barriers, monkeypatch):
    of = kernel(name)
    tiling = of.tiling(**dict(of.default_tile))
    widths = of.widths(CUBE, tiling)
    shared = counted_shared(of, tiling, widths, 4)
    busy = shared._replace(load_wavefronts=100 * shared.load_wavefronts)  # so that nothing else counts
    held = []
    for cycles in (0.0, BARRIER_HELD_CYCLES):
        monkeypatch.setattr(demands, "BARRIER_HELD_CYCLES", cycles)
        held.append(float(demand_of(CUBE, of, tiling, widths, H200, busy, 255, 0, scalars()).work))
    assert held[1] - held[0] == pytest.approx(barriers * BARRIER_HELD_CYCLES, rel=1e-3)


@pytest.mark.parametrize("shape", [(8, 128), (16, 64), (4, 32), (32, 32)])
def test_without_barriers_warps_queue_whatever_their_block(shape):
    of = kernel("naive")
    tiling = of.tiling(block_m=shape[0], block_n=shape[1])
    assert predict(CUBE, of, tiling, H200, 32).time_s == pytest.approx(
        float(predict(CUBE, of, replace(tiling, block_m=8, block_n=32), H200, 32).time_s), rel=0.06
    )
