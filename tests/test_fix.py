"""Layouts of shared tiles that cost less: those found, against every one of them run on paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import brute
import numpy as np
import pytest
from examples import TILE, example, tilings
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.kernels.rules import swizzles
from gemmsim.problem import Problem
from gemmsim.search.layouts import LAYOUT, costs, fixes, layouts

H200 = device("h200")
STAGED = [name for name in KERNELS if KERNELS[name].staged]
TEXTBOOK = kernel("vectorized").tiling(**TILE)
EVEN, ODD = Problem(128, 128, 128), Problem(129, 131, 133)


def layout(tiling) -> tuple[int, ...]:
    return tuple(getattr(tiling, name) for name in LAYOUT)


def on_paper(name, problem, tiling) -> tuple[int, int]:
    """(wavefronts, excess) of one block in one tile of k, every address of it."""
    notes = brute.launch(name, tiling.block_m, tiling.block_n, tiling.block_k, tiling)
    wavefronts = sum(notes.wavefronts.values())
    return wavefronts, wavefronts - sum(notes.ideal.values())


def test_the_textbook_tile():
    found = fixes(EVEN, kernel("vectorized"), TEXTBOOK, H200)
    # stores of A: two lanes a bank, 32 wavefronts too many; loads of B: twice the ideal 512
    assert (found.baseline.stores.excess, found.baseline.loads.excess) == (32, 512)
    assert (found.padding_clears, found.least_excess_padded, found.swizzle_clears) == (False, 512, True)
    swizzled, padded = found.better
    assert layout(swizzled.tiling) == (0, 0, 16)
    assert (swizzled.both.wavefronts, swizzled.both.excess, swizzled.resources.shared_bytes) == (832, 0, 8192)
    assert layout(padded.tiling) == (4, 0, 0)
    assert (padded.stores.excess, padded.loads.excess, padded.resources.shared_bytes) == (0, 512, 8320)
    assert found.tried == 8 * 8 * 4  # paddings of both tiles in steps of a vector, swizzles 0, 4, 8 and 16


def test_a_padding_that_clears_both():
    tiling = kernel("vectorized").tiling(**{**TILE, "thread_n": 4})
    found = fixes(EVEN, kernel("vectorized"), tiling, H200)
    assert found.padding_clears
    assert [layout(each.tiling) for each in found.better] == [(0, 0, 16), (4, 0, 0)]
    assert not any(each.both.excess for each in found.better)


def test_sizes_decide_how_stores_conflict():
    # k = 133: A is carried one by one, eight lanes along k meet in a bank
    found = fixes(ODD, kernel("vectorized"), TEXTBOOK, H200)
    assert found.baseline.stores.excess == 224
    assert layout(found.better[0].tiling) == (0, 0, 4)
    assert found.better[0].both.excess == 0


def test_nothing_to_fix():
    shared = kernel("shared")
    found = fixes(EVEN, shared, example("shared"), H200)
    assert found.baseline.both.excess == 0
    assert (found.better, found.padding_clears, found.least_excess_swizzled) == ((), True, None)
    none = fixes(EVEN, kernel("naive"), kernel("naive").tiling(), H200)
    assert (none.better, none.tried, none.baseline.both.wavefronts) == ((), 1, 0)


def test_a_kernel_without_a_swizzle_says_what_padding_leaves():
    found = fixes(EVEN, kernel("register"), example("register"), H200)
    assert (found.better, found.padding_clears, found.swizzle_clears) == ((), False, False)
    assert (found.least_excess_padded, found.least_excess_swizzled) == (512, None)


def test_every_layout_of_a_small_tile_against_the_kernel_run_on_paper():
    of, problem = kernel("vectorized"), Problem(64, 64, 64)
    tiling = of.tiling(block_m=32, block_n=32, block_k=8, thread_m=4, thread_n=8)
    all_costs = {
        (pad_a, pad_b, swizzle): on_paper(
            "vectorized", problem, replace(tiling, pad_a=pad_a, pad_b=pad_b, swizzle=swizzle)
        )
        for pad_a, pad_b, swizzle in product(range(0, 32, 4), range(0, 32, 4), swizzles(4))
    }
    found = fixes(problem, of, tiling, H200)
    assert found.tried == len(all_costs)
    assert (found.baseline.both.wavefronts, found.baseline.both.excess) == all_costs[0, 0, 0]
    assert found.least_excess_padded == min(excess for (*_, swizzle), (_, excess) in all_costs.items() if not swizzle)
    assert found.least_excess_swizzled == min(excess for (*_, swizzle), (_, excess) in all_costs.items() if swizzle)
    assert found.better[0].both.wavefronts == min(wavefronts for wavefronts, _ in all_costs.values())
    for each in found.better:
        assert (each.both.wavefronts, each.both.excess) == all_costs[layout(each.tiling)]
        for (pad_a, pad_b, swizzle), (wavefronts, _) in all_costs.items():  # none of its kind is better in both
            shared_bytes = 4 * 8 * (32 + pad_a + 32 + pad_b)
            if bool(swizzle) == bool(each.tiling.swizzle) and shared_bytes <= each.resources.shared_bytes:
                assert wavefronts > each.both.wavefronts or shared_bytes == each.resources.shared_bytes
                assert wavefronts >= each.both.wavefronts


@pytest.mark.parametrize("name", STAGED)
@settings(max_examples=25)
@given(data=st.data())
def test_what_is_found_is_legal_cheaper_and_as_counted(name, data):
    of, tiling = kernel(name), data.draw(tilings(name))
    # whole tiles: what is carried in vectors is so in the problem too
    problem = Problem(tiling.block_m, tiling.block_n, tiling.block_k)
    found = fixes(problem, of, tiling, H200)
    for each in (found.baseline, *found.better):
        if not of.copies:  # those fetch tiles past the end of k too
            assert (each.both.wavefronts, each.both.excess) == on_paper(name, problem, each.tiling)
    costs_in_order = [(each.both.wavefronts, each.resources.shared_bytes) for each in found.better]
    assert costs_in_order == sorted(costs_in_order)
    now = of.widths(problem, tiling)
    for each in found.better:
        of.check(each.tiling, H200, problem)
        assert replace(each.tiling, **dict(zip(LAYOUT, layout(tiling), strict=True))) == tiling
        then = of.widths(problem, each.tiling)
        assert (then.shared_a >= now.shared_a, then.shared_b >= now.shared_b) == (True, True)
        assert each.both.wavefronts < found.baseline.both.wavefronts
    assert found.padding_clears == (found.least_excess_padded == 0)
    assert found.baseline.both.excess or found.padding_clears or tiling.swizzle


def test_costs_of_many_layouts_are_those_of_each():
    of, tiling = kernel("double_buffer"), kernel("double_buffer").tiling(**{**TILE, "vector": 2})
    tried = layouts(EVEN, of, tiling, H200)
    wavefronts, excess = costs(EVEN, of, tried)
    for at in np.random.default_rng(0).choice(len(wavefronts), 20):
        one = replace(tiling, **{name: int(getattr(tried, name)[at]) for name in LAYOUT})
        alone = fixes(EVEN, of, one, H200).baseline.both
        assert (wavefronts[at], excess[at]) == (alone.wavefronts, alone.excess)


def test_of_equals_the_least_changed_is_best():
    # a warp stores one vector along k for 32 rows of A: no swizzle of A is needed, and any moves B
    of, tiling = kernel("vectorized"), kernel("vectorized").tiling(**{**TILE, "block_k": 4})
    tried = layouts(EVEN, of, tiling, H200)
    wavefronts, _ = costs(EVEN, of, tried)
    equals = (wavefronts == wavefronts.min()) & (tried.pad_a + tried.pad_b == 0)
    assert tried.swizzle[equals].tolist() == [4, 8, 16]
    assert layout(fixes(EVEN, of, tiling, H200).better[0].tiling) == (0, 0, 4)


def test_layouts_that_the_device_cannot_hold_are_left_out():
    of = kernel("vectorized")
    tiling = of.tiling(**{**TILE, "block_k": 224})  # 4 x 224 x 256 bytes; four columns more pass 232448
    tried = layouts(EVEN, of, tiling, H200)
    assert set(tried.pad_a.tolist()) == set(tried.pad_b.tolist()) == {0}
    with pytest.raises(InputError, match="allowed on rtx-3090: up to 101376"):
        fixes(EVEN, of, tiling, device("rtx-3090"))


def test_rows_of_other_lengths_have_no_swizzle():
    tiling = kernel("vectorized").tiling(**{**TILE, "block_n": 48, "thread_n": 4})
    found = fixes(EVEN, kernel("vectorized"), tiling, H200)
    assert found.least_excess_swizzled is None
    assert all(each.tiling.swizzle == 0 for each in found.better)


def test_accesses_get_no_narrower_and_may_get_wider():
    shared = kernel("shared")
    wide = shared.tiling(block_m=32, block_n=8, block_k=32)
    assert set(layouts(EVEN, shared, wide, H200).pad_a.tolist()) == set(range(0, 32, 4))
    odd = replace(wide, pad_a=1)  # an odd pitch of A makes runs of one element
    assert shared.widths(EVEN, odd).shared_a == 1
    best = fixes(EVEN, shared, odd, H200).better[0]
    assert shared.widths(EVEN, best.tiling).shared_a > 1


def test_registers_are_asked_for_where_somebody_knows():
    seen = []

    def registers_of(tiling):
        seen.append(layout(tiling))
        return 128 if tiling.swizzle == 0 else 136

    found = fixes(EVEN, kernel("vectorized"), TEXTBOOK, H200, registers_of)
    assert seen == [(0, 0, 0), (0, 0, 16), (4, 0, 0)]
    assert {each.resources.source for each in (found.baseline, *found.better)} == {"compiler"}
    # 65536 registers: two blocks of 256 threads with 128 each, one with 136
    assert [each.resident.blocks_per_sm for each in (found.baseline, *found.better)] == [2, 1, 2]
