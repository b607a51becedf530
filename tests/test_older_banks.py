"""The bank rules before compute capability 7.0: the guides' own examples, and a search of what they allow."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.banks import passes
from gemmsim.errors import InputError
from gemmsim.older_banks import RULES, documented_passes

LANE = np.arange(32)


def cost_on(capability, addresses, width=4, store=False, active=True):
    cost = documented_passes(addresses, active, width, store, capability)
    return int(cost.wavefronts), int(cost.ideal_wavefronts), int(cost.degree)


@pytest.mark.parametrize("capability", ["2.x", "5.x", "6.x"])
@given(data=st.data(), width=st.sampled_from([1, 2, 4]))
def test_narrow_accesses_are_as_today_since_there_are_32_banks(capability, data, width):
    lanes = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 500)), min_size=32, max_size=32))
    addresses, active = [(unit or 0) * width for unit in lanes], [unit is not None for unit in lanes]
    now = passes(addresses, active, width, store=False)
    assert cost_on(capability, addresses, width, active=active)[:2] == (now.wavefronts, now.ideal_wavefronts)


def test_wide_accesses_of_capability_1_are_several():
    assert cost_on("1.x", 8 * LANE, 8) == (8, 4, 2)
    assert cost_on("1.x", 16 * LANE, 16) == (32, 8, 4)


def test_half_and_quarter_warps_of_capability_2():
    assert cost_on("2.x", 8 * LANE, 8) == (2, 2, 1)
    assert cost_on("2.x", 256 * LANE, 8) == (32, 2, 16)
    assert cost_on("2.x", 16 * LANE, 16) == (8, 4, 2)  # the guide: one more than the banks say


def test_the_two_modes_of_capability_3():
    assert cost_on("3.x, 32-bit banks", 4 * (LANE + LANE // 16 * 16)) == (1, 1, 1)  # words i and i + 32 of 64 together
    assert cost_on("3.x, 32-bit banks", 4 * (32 + LANE + LANE // 16 * 16)) == (2, 1, 2)  # in different 64
    assert cost_on("3.x, 32-bit banks", 4 * 64 * LANE) == (32, 1, 32)
    assert cost_on("3.x, 64-bit banks", 8 * LANE, 8) == (1, 1, 1)
    assert cost_on("3.x, 64-bit banks", 8 * LANE + 4 * (LANE % 2)) == (1, 1, 1)
    assert cost_on("3.x, 64-bit banks", 4 * 64 * LANE) == (32, 1, 32)


def test_reads_by_the_one_word_broadcast_of_capability_1():
    half = LANE < 16
    assert cost_on("1.x", 4 * LANE) == (2, 2, 1)
    assert cost_on("1.x", 0 * LANE) == (2, 2, 1)
    assert cost_on("1.x", 4 * np.where(LANE % 16 < 8, 0, LANE), active=half) == (1, 1, 1)  # one word is broadcast
    assert cost_on("1.x", 4 * (LANE % 8), active=half) == (2, 1, 2)  # eight pairs: today one pass
    assert cost_on("1.x", LANE, 1) == (8, 2, 4)  # bytes in a row: four words of four lanes
    assert cost_on("1.x", LANE, 1, store=True) == (8, 2, 4)
    assert cost_on("1.x", 4 * (LANE % 8), store=True, active=half) == (1, 1, 1)  # of each pair one lane writes


@given(words=st.lists(st.integers(0, 40), min_size=1, max_size=7))
def test_capability_1_takes_the_fewest_passes_that_the_guide_allows(words):
    def fewest(left):
        """By trying every broadcast word, and in every other bank every address."""
        if not left:
            return 0
        best = len(left)
        for broadcast in {words[lane] for lane in left}:
            elsewhere = {}
            for lane in left:
                if words[lane] % 16 != broadcast % 16:
                    elsewhere.setdefault(words[lane] % 16, []).append(lane)
            for served in product(*elsewhere.values()):
                rest = frozenset(lane for lane in left if words[lane] != broadcast and lane not in served)
                best = min(best, 1 + fewest(rest))
        return best

    words = [word // 10 * 16 + word % 2 for word in words]  # two banks of five words
    addresses = np.zeros(32, int)
    addresses[: len(words)] = 4 * np.array(words)
    assert cost_on("1.x", addresses, active=len(words) > LANE)[0] == fewest(frozenset(range(len(words))))


def test_what_the_older_guides_do_not_say_is_an_error():
    for capability in ("5.x", "6.x", "3.x, 32-bit banks"):
        with pytest.raises(InputError, match=r"64-bit accesses on .* is not documented; documented: 8, 16, 32 bits"):
            cost_on(capability, 8 * LANE, 8)
    with pytest.raises(InputError, match=r"unknown compute capability before 7\.0 '4\.x'"):
        cost_on("4.x", LANE)
    assert list(RULES) == ["1.x", "2.x", "3.x, 32-bit banks", "3.x, 64-bit banks", "5.x", "6.x"]
