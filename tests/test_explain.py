"""The decomposition of a launch, and what ragged sizes do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from examples import example
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.accesses.costs import access_costs, shared_per_tile
from gemmsim.errors import InputError
from gemmsim.explain import MOST_PADDING, clearing_padding, conflicts, explain, narrate
from gemmsim.explain.edges import aligned_multiples, coverage, edges, unguarded_overrun
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling
from gemmsim.traffic import ffma

SIZES = st.integers(1, 300)
SMALL_SIZES = st.integers(1, 40)
TILES = st.integers(1, 12)
NAMES = st.sampled_from(sorted(KERNELS))


@pytest.fixture(scope="module")
def textbook():
    tiling = kernel("double_buffer").tiling(block_m=128, block_n=128, block_k=8, thread_m=8, thread_n=8)
    return explain(Problem(2048, 2048, 2048), kernel("double_buffer"), tiling)


def test_the_textbook_example(textbook):
    assert textbook.blocks == 256  # (2048 / 128)^2
    assert textbook.block_grid == (16, 16, 256)
    assert textbook.thread_grid == (16, 16)  # 128 / 8 each way
    assert textbook.outputs_per_block == 16384  # 128 x 128
    assert textbook.tiling.threads == 256
    assert textbook.outputs_per_thread == 64  # 8 x 8
    assert textbook.k_iterations == 256  # 2048 / 8
    assert textbook.inner_iterations == 8
    assert textbook.ffma_per_inner_iteration == 64
    assert textbook.tile_elements == {"a": (128, 8), "b": (8, 128)}
    assert textbook.shared_bytes_per_stage == 8192  # 4 (128 x 8 + 8 x 128)
    assert textbook.resources.shared_bytes == 16384
    assert textbook.edges.whole


def test_the_accesses_of_the_textbook_example(textbook):
    costs = {cost.name: cost for cost in textbook.accesses}
    assert {name: cost.width_bits for name, cost in costs.items()} == {
        "store_a": 32, "store_b": 128, "load_a": 128, "load_b": 128,
    }  # fmt: skip
    # 8 warps, each lane four rows of the transposed tile: two lanes in one bank
    assert (costs["store_a"].requests, costs["store_a"].wavefronts, costs["store_a"].excess) == (32, 64, 32)
    # 8 warps x 8 steps x 2 vectors; lanes 32 bytes apart read 128 bits: twice the ideal
    assert (costs["load_b"].requests, costs["load_b"].wavefronts, costs["load_b"].excess) == (128, 1024, 512)


def test_where_the_conflicts_of_the_textbook_example_are_from(textbook):
    assert textbook.conflicts == {
        # two vectors of four along k in a row of A: rows 0 and 4 of the transposed tile, 4 x 128 elements apart
        "store_a": "lanes spread over 2 rows of the tile, 512 elements apart, so a warp takes 2 wavefronts, not 1;"
        " pad_a 4 clears it",
        # a thread reads 8 neighbours in two vectors; 4 quarters of a warp, each twice
        "load_b": "lanes lie 8 elements apart, so a warp takes 8 wavefronts, not 4; all in one row of the tile, so"
        " pad_b cannot change it",
    }


@st.composite
def padded_tilings(draw):
    """(kernel, tiling) of a staged kernel, with some padding."""
    of = kernel(draw(st.sampled_from([name for name in sorted(KERNELS) if KERNELS[name].staged])))
    ranges = {"block_m": (16, 32), "block_n": (16, 32), "block_k": (4, 8, 16), "pad_a": (0, 4, 8), "pad_b": (0, 4)}
    if of.warp_tiled:
        ranges |= {"block_n": (32, 64), "warp_m": (16,), "warp_n": (32,), "thread_m": (4,), "thread_n": (4,)}
    elif of.thread_tiled:
        ranges |= {"thread_m": (4, 8), "thread_n": (4, 8)}
    return of, of.tiling(**{name: draw(st.sampled_from(values)) for name, values in ranges.items()})


@given(padded_tilings(), st.sampled_from([63, 64]))
def test_what_is_said_of_conflicts_is_so(chosen, k):
    (of, tiling), problem = chosen, Problem(64, 64, k)
    widths = of.widths(problem, tiling)

    def excess(access, **padding):
        padded = replace(tiling, **padding)
        return next(c.excess for c in access_costs(of, padded, of.widths(problem, padded)) if c.name == access)

    said = conflicts(problem, of, tiling)
    assert set(said) == {cost.name for cost in access_costs(of, tiling, widths) if cost.excess}
    for access, sentence in said.items():
        pad = f"pad_{access[-1]}"
        as_wide = [p for p in range(0, MOST_PADDING + 1, tiling.vector)
                   if of.widths(problem, replace(tiling, **{pad: p})) == widths]  # fmt: skip
        cleared = [p for p in as_wide if not excess(access, **{pad: p})]
        if "cannot change it" in sentence:
            assert {excess(access, **{pad: p}) for p in as_wide} == {excess(access)}
        elif cleared:
            assert sentence.endswith(f"; {pad} {cleared[0]} clears it")
            assert clearing_padding(problem, of, tiling, access) == cleared[0]
        else:
            assert sentence.endswith(f"; no aligned {pad} up to 32 clears it")


def test_edges_say_what_is_so_of_this_launch():
    of = kernel("vectorized")
    ragged = explain(Problem(1001, 1903, 2107), of, example("vectorized"))
    assert dict(narrate.edges(ragged)) == {
        "last tile": "covers 105 of 128 along m, 111 of 128 along n, 3 of 8 along k",
        "FFMA": "3.3 % multiply zeros outside; every access is guarded, so the result is right",
        "A": "moves one element at a time, k = 2107 not being a multiple of 4",
        "B and C": "move one element at a time, n = 1903 not being a multiple of 4",
    }
    even = explain(Problem(1024, 1920, 2112), of, example("vectorized"))
    assert dict(narrate.edges(even)) == {"tiles": "all whole: m, n and k are multiples of the tile"}
    one = explain(Problem(1001, 1024, 8), kernel("shared"), Tiling(8, 8, 8))
    assert dict(narrate.unguarded(one.edges))["grid rounded down"] == "row 1000 never written"
    assert "rows 1001 to 1023 out of range" in dict(narrate.unguarded(one.edges))["grid swapped"]


def test_registers_are_marked_with_where_they_are_from():
    problem, shared = Problem(64, 64, 64), kernel("shared")
    assert explain(problem, shared, example("shared")).resources.source == "estimate"
    known = explain(problem, shared, example("shared"), registers_per_thread=36)
    assert (known.resources.registers_per_thread, known.resources.source) == (36, "compiler")


def test_what_cannot_be_launched_is_refused():
    naive = kernel("naive")
    with pytest.raises(InputError, match="fp16 has no kernels"):
        explain(Problem(64, 64, 64, "fp16"), naive, naive.tiling())
    with pytest.raises(InputError, match="4294836224 blocks"):
        explain(Problem(2**31 - 2**16, 2, 1), naive, naive.tiling(block_m=1, block_n=1))
    with pytest.raises(InputError, match="has no block_k"):
        explain(Problem(64, 64, 64), naive, Tiling(8, 32, 8))


@given(NAMES, SIZES, SIZES, SIZES)
def test_the_parts_make_the_whole(name, m, n, k):
    problem, tiling = Problem(m, n, k), example(name)
    found = explain(problem, kernel(name), tiling)
    assert found.blocks * found.outputs_per_block >= m * n
    assert found.tiling.threads * found.outputs_per_thread == found.outputs_per_block
    steps = found.k_iterations * found.inner_iterations
    work = found.blocks * found.tiling.threads * steps * found.ffma_per_inner_iteration
    if kernel(name).staged:
        assert work == ffma(problem, kernel(name), tiling)
    assert found.edges.padding_fraction == pytest.approx(1 - m * n * k / ffma(problem, kernel(name), tiling))


@given(NAMES, SIZES, SIZES, SIZES)
def test_the_accesses_add_up_to_the_traffic(name, m, n, k):
    problem, tiling = Problem(m, n, k), example(name)
    costs = explain(problem, kernel(name), tiling).accesses
    loads, stores = shared_per_tile(kernel(name), tiling, kernel(name).widths(problem, tiling))
    for ops, counts in ((("load",), loads), (("store", "copy"), stores)):
        of_op = [cost for cost in costs if cost.op in ops]
        assert sum(cost.requests for cost in of_op) == counts.requests
        assert sum(cost.wavefronts for cost in of_op) == counts.wavefronts
        assert sum(cost.ideal_wavefronts for cost in of_op) == counts.ideal_wavefronts
        assert sum(cost.excess for cost in of_op) == counts.wavefronts - counts.ideal_wavefronts


# Edges


@given(SMALL_SIZES, SMALL_SIZES, SMALL_SIZES, TILES, TILES, TILES)
def test_overrun_against_every_read(m, n, k, bm, bn, bk):
    """A kernel that guards m and n in the last row and column of blocks, and k nowhere, read by read."""
    found = unguarded_overrun(Problem(m, n, k), Tiling(bm, bn, bk))
    unsafe = set()
    for row in range(0, m - bm, bm):  # all blocks but the last along m, and below along n
        for column in range(0, n - bn, bn):
            past = [
                (inner, across)
                for start in range(0, k, bk)
                for inner in range(start, start + bk)
                for across in range(column, column + bn)
                if inner * n + across >= k * n
            ]
            if past:
                unsafe.add((row, column))
                assert len(past) == found.elements_past_b
    assert found.unsafe_blocks == len(unsafe)


@given(SMALL_SIZES, SMALL_SIZES, TILES, TILES, st.integers(0, 8), st.integers(0, 8))
def test_coverage_against_every_element(m, n, bm, bn, blocks_m, blocks_n):
    found = coverage(Problem(m, n, 1), Tiling(bm, bn), blocks_m, blocks_n)
    rows = {block * bm + row for block in range(blocks_m) for row in range(bm)}
    columns = {block * bn + column for block in range(blocks_n) for column in range(bn)}
    assert set(found.rows_never_written) == set(range(m)) - rows
    assert set(found.columns_never_written) == set(range(n)) - columns
    assert set(found.rows_out_of_range) == rows - set(range(m))
    assert set(found.columns_out_of_range) == columns - set(range(n))
    assert found.exact == (rows == set(range(m)) and columns == set(range(n)))
    assert found.launches == bool(rows and columns)


@given(SMALL_SIZES, SMALL_SIZES, SMALL_SIZES, TILES, TILES, TILES)
def test_padded_sizes_are_the_nearest_that_fit(m, n, k, bm, bn, bk):
    found = edges(Problem(m, n, k), kernel("shared"), Tiling(bm, bn, bk))
    for axis, size, tile in zip("mnk", (m, n, k), (bm, bn, bk), strict=True):
        assert found.multiples[axis] == tile
        assert found.padded[axis] == next(size + more for more in range(tile) if (size + more) % tile == 0)
        assert found.left[axis] == (size - 1) % tile + 1
    assert found.whole == (m % bm == n % bn == k % bk == 0)
    if found.whole:
        assert found.grid_rounded_down.exact
        assert found.overrun.unsafe_blocks == 0
        assert found.padding_fraction == 0


@given(SMALL_SIZES, SMALL_SIZES, SMALL_SIZES, st.sampled_from([2, 4]), st.booleans())
def test_aligned_multiples_against_every_vector(m, n, k, vector, column_major):
    """Vectors run along a row of a row-major matrix, along a column of a column-major one."""

    def aligned(rows, columns):
        lines, run = (columns, rows) if column_major else (rows, columns)
        return all(
            (line * run + at) % vector == 0 for line in range(lines) for at in range(0, run - run % vector, vector)
        )

    fits = all(size % aligned_multiples(vector, column_major).get(axis, 1) == 0
               for axis, size in zip("mnk", (m, n, k), strict=True))  # fmt: skip
    if fits:
        assert aligned(m, k)
        assert aligned(k, n)
        assert aligned(m, n)
    elif min(m, n, k) > vector:
        assert not (aligned(m, k) and aligned(k, n) and aligned(m, n))


def test_scalars_need_no_alignment():
    assert aligned_multiples(1) == {}
