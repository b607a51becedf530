"""The classes of a launch: their lane addresses against the kernel run on paper, and how often each occurs."""

from __future__ import annotations

from collections import Counter

import brute
import numpy as np
import pytest
from examples import example, tilings
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemmsim.accesses.classes import lane_addresses, segments
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import traffic

SIZES = st.integers(1, 60)
WRITTEN = ("global_copy", "shared_copy", "global_store")


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_address_equals_the_kernel_run_on_paper(name, data):
    tiling = data.draw(tilings(name))
    # fewer than two tiles along each axis: each class has one block and step, whose addresses are all there are
    m, n, k = (data.draw(st.integers(1, 2 * getattr(tiling, f"block_{axis}") - 1)) for axis in "mnk")
    assume(m * n * k <= 20_000)
    found: Counter[tuple[str, int, tuple[tuple[int, int], ...]]] = Counter()
    for access in lane_addresses(Problem(m, n, k), kernel(name), tiling):
        assert access.times == (tiling.tiles_ahead * tiling.split_k if access.step == "past the end" else 1)
        for addresses, active in zip(access.byte_addresses.reshape(-1, 32), access.active.reshape(-1, 32), strict=True):
            lanes = tuple((int(lane), int(addresses[lane])) for lane in np.flatnonzero(active))
            if lanes:
                found[f"{access.memory}_{access.direction}", access.width_bits, lanes] += access.times
    done = Counter(brute.launch(name, m, n, k, tiling, trace=True).trace)
    if KERNELS[name].copies:  # besides, it loads first fragments once more, and what blocks leave to each other
        found, done = (Counter({key: times for key, times in of.items() if key[0] in WRITTEN}) for of in (found, done))
        assert any(key[0] == "global_copy" for key in found)
    assert found == done


@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data())
def test_the_classes_make_the_launch(name, data):
    problem = Problem(*(data.draw(SIZES) for _ in "mnk"))
    tiling = data.draw(tilings(name))
    counted = traffic(problem, kernel(name), tiling)
    requests: Counter[str] = Counter()
    times: Counter[tuple[str, str]] = Counter()
    for access in lane_addresses(problem, kernel(name), tiling):
        requests[f"{access.memory}_{access.direction}"] += access.requests
        if access.step != "past the end":
            times[access.name, access.memory] += access.times
        assert (access.step == "once a block") == (access.name == "store_c")
    tiles = grid(problem, tiling)
    assert set(times.values()) <= {tiles.tiles * tiles.k, tiles.tiles}
    assert times["store_c", "global"] == tiles.tiles
    if KERNELS[name].copies:
        assert requests["shared_copy"] == counted.copies.requests >= requests["global_copy"] > 0
        return
    for memory in ("global", "shared"):
        for direction in ("load", "store"):
            kind = f"{memory}_{direction}"
            assert requests[kind] == getattr(counted, kind).requests


def test_the_classes_of_ragged_sizes_have_names():
    accesses = lane_addresses(Problem(300, 200, 20), kernel("vectorized"), example("vectorized"))
    found = {(access.blocks, access.step): access.times for access in accesses}
    # 3 x 2 blocks of 128 x 128 results, the last of each partial; 3 steps of 8 along k, the last partial
    assert found == {
        ("interior", "whole"): 4, ("interior", "last partial"): 2, ("interior", "once a block"): 2,
        ("right edge", "whole"): 4, ("right edge", "last partial"): 2, ("right edge", "once a block"): 2,
        ("bottom edge", "whole"): 2, ("bottom edge", "last partial"): 1, ("bottom edge", "once a block"): 1,
        ("corner", "whole"): 2, ("corner", "last partial"): 1, ("corner", "once a block"): 1,
    }  # fmt: skip


def test_whole_tiles_are_one_class():
    accesses = list(lane_addresses(Problem(256, 256, 64), kernel("double_buffer"), example("double_buffer")))
    assert {(a.blocks, a.step) for a in accesses} == {("interior", "whole"), ("interior", "once a block")}
    assert all(a.active.all() for a in accesses)
    load = next(a for a in accesses if a.name == "load_b" and a.memory == "global")
    assert (load.width_bits, load.times, load.byte_addresses.shape) == (128, 4 * 8, (1, 8, 32))
    # warp 1 carries row 1 of the tile of B: 256 elements on, a lane every 16 bytes
    assert load.byte_addresses[0, 1].tolist() == [4 * 256 + 16 * lane for lane in range(32)]


def stand_for_all(name, problem, tiling):
    """Holds that each access costs the same by its patterns as by all its instructions."""
    widths = kernel(name).widths(problem, tiling)
    patterns = shared_accesses(kernel(name), tiling, widths)
    for some, every in zip(patterns, shared_accesses(kernel(name), tiling, widths, every=True), strict=True):
        assert (some.name, some.instructions) == (every.name, every.instructions)
        assert every.elements.shape[0] == every.instructions
        for count in ("wavefronts", "ideal_wavefronts"):
            in_all = getattr(every.passes(4), count).sum()
            assert (some.times * getattr(some.passes(4), count)).sum() == in_all, every.name


@pytest.mark.parametrize("name", [name for name in KERNELS if KERNELS[name].staged])
@given(data=st.data())
def test_patterns_stand_for_all_instructions(name, data):
    stand_for_all(name, Problem(40, data.draw(SIZES), data.draw(SIZES)), data.draw(tilings(name)))


@pytest.mark.parametrize("swizzle", [0, 8])
def test_patterns_of_warps_that_begin_anywhere_in_a_swizzled_row(swizzle):
    # 40 threads carry B one by one: runs begin at columns 40, 80, ..., and cross from 32 columns into the next
    tiling = kernel("vectorized").tiling(block_m=160, block_n=128, block_k=8, thread_m=32, thread_n=16, swizzle=swizzle)
    stand_for_all("vectorized", Problem(40, 41, 43), tiling)


@given(st.integers(1, 1000), st.integers(1, 70))
def test_segments_cover_an_axis_once(size, tile):
    parts = segments(size, tile)
    assert sum(part.count * part.left for part in parts) == size
    assert [part.left for part in parts if part.left < tile] == ([size % tile] if size % tile else [])
    assert [part.first for part in parts] == [0, *(part.count for part in parts[:-1])]


def test_tilings_of_another_kernel_are_refused():
    with pytest.raises(InputError, match="kernel naive has no thread_m, not 8"):
        next(lane_addresses(Problem(64, 64, 64), kernel("naive"), Tiling(64, 64, 1, 8, 8)))
