"""The bank rule: against every pattern measured on an H200, a slow word-by-word route, and known cases."""

from __future__ import annotations

import json
from pathlib import Path

import brute
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.banks import passes
from gemmsim.errors import InputError

MEASURED = [
    json.loads(line)
    for line in (Path(__file__).parent / "data" / "shared_memory_patterns_h200.jsonl").read_text().splitlines()
]
LANE = np.arange(32)


def one(byte_addresses, width_bytes=4, store=False, active=True):
    cost = passes(np.asarray(byte_addresses), active, width_bytes, store)
    return int(cost.wavefronts), int(cost.ideal_wavefronts)


@pytest.mark.parametrize("pattern", MEASURED, ids=lambda p: f"{p['op']}{p['width_bits']}-{p['pattern']}")
def test_measured_patterns(pattern):
    lanes = pattern["lane_byte_address"]
    cost = passes(
        [address or 0 for address in lanes],
        [address is not None for address in lanes],
        pattern["width_bits"] // 8,
        pattern["op"] == "st",
    )
    assert cost.wavefronts == pattern["wavefronts_per_instruction"]
    assert cost.excess == pattern["conflicts_per_instruction"]


@given(
    width=st.sampled_from([4, 8, 16]),
    store=st.booleans(),
    lanes=st.lists(st.one_of(st.none(), st.integers(0, 60), st.integers(0, 5000)), min_size=32, max_size=32),
    twins=st.sampled_from([0, 1, 2]),
)
def test_the_fast_rule_equals_the_slow_one(width, store, lanes, twins):
    lanes = [lanes[i & ~twins] for i in range(32)]  # twins make loads merge
    active = np.array([unit is not None for unit in lanes])
    addresses = np.array([(unit or 0) * width for unit in lanes])
    expected = brute.slow_passes({i: int(addresses[i]) for i in range(32) if active[i]}, width, store)
    assert one(addresses, width, store, active) == expected


@given(
    shift=st.integers(0, 1000),
    width=st.sampled_from([4, 8, 16]),
    units=st.lists(st.integers(0, 400), min_size=32, max_size=32),
)
def test_moving_a_pattern_by_whole_accesses_changes_nothing(shift, width, units):
    addresses = np.array(units) * width
    assert one(addresses, width) == one(addresses + shift * width, width)


@given(data=st.data(), width=st.sampled_from([4, 8, 16]))
def test_many_warps_at_once_are_each_warp_alone(data, width):
    warps = data.draw(st.lists(st.lists(st.integers(0, 300), min_size=32, max_size=32), min_size=1, max_size=6))
    addresses = np.array(warps) * width
    together = passes(addresses, True, width, store=False)
    assert [(int(w), int(i)) for w, i in zip(together.wavefronts, together.ideal_wavefronts, strict=True)] == [
        one(row, width) for row in addresses
    ]


def test_column_of_an_unpadded_tile_takes_a_pass_for_each_lane():
    assert one(LANE * 32 * 4) == (32, 1)
    assert 32 * (one(LANE * 32 * 4)[0] - 1) == 992  # a 32 x 32 block transposing one tile
    assert one(LANE * 33 * 4) == (1, 1)


def test_padding_by_one_is_only_right_for_blocks_32_wide():
    load = LANE % 16 + LANE // 16 * 17
    store = LANE // 16 + LANE % 16 * 17
    assert one(4 * load) == (2, 1)
    assert one(4 * store, store=True) == (2, 1)
    costs = {
        stride: one(4 * (LANE % 16 + LANE // 16 * stride))[0]
        + one(4 * (LANE // 16 + LANE % 16 * stride), store=True)[0]
        for stride in range(16, 64)
    }
    assert min(costs, key=costs.get) == 18
    assert costs[18] == 3
    assert (one(4 * LANE)[0], one(4 * (LANE // 16 + LANE % 16 * 16), store=True)[0]) == (1, 8)


@pytest.mark.parametrize("field", [0, 1, 2])
def test_three_word_structs_do_not_conflict(field):
    assert one(4 * (3 * LANE + field)) == (1, 1)


def test_two_word_structs_conflict_word_by_word_but_not_whole():
    assert one(8 * LANE) == (2, 1)
    assert one(8 * LANE, width_bytes=8) == (2, 2)


def test_wide_accesses():
    assert one(16 * LANE, width_bytes=16) == (4, 4)  # 128 bits in sequence: no excess
    assert one(128 * LANE, width_bytes=16) == (32, 4)
    assert one(16 * (LANE % 4), width_bytes=16) == (4, 4)  # a period of four lanes does not merge
    assert one(16 * (LANE // 2 % 4), width_bytes=16) == (2, 2)  # twins do
    assert one(0 * LANE, width_bytes=16) == (2, 2)  # and never further
    assert one(256 * LANE, width_bytes=8) == (32, 2)  # a column of double[32][32]
    assert one(264 * LANE, width_bytes=8) == (2, 2)  # of double[32][33]


@pytest.mark.parametrize(("pitch", "degree"), [(128, 4), (129, 2), (130, 1), (132, 2)])
def test_transposing_store_of_a_warp_tiled_kernel(pitch, degree):
    assert one(4 * (LANE % 4 * 4 * pitch + LANE // 4), store=True)[0] == degree


def test_transposing_store_of_a_128_by_8_tile():
    assert one(4 * (LANE % 2 * 4 * 128 + LANE // 2), store=True) == (2, 1)


def test_fragment_loads_eight_floats_apart():
    assert one(4 * 8 * (LANE % 16), width_bytes=16) == (8, 4)
    assert one(4 * 8 * (LANE % 16))[0] == 4


def test_two_block_rows_in_a_warp():
    assert one(4 * 32 * (LANE // 16))[0] == 2
    assert one(4 * (LANE % 16))[0] == 1


def test_inactive_lanes_cost_nothing():
    degrees = [one(4 * 2 * s * LANE, active=2 * s * LANE < 256)[0] for s in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert degrees == [2, 4, 8, 8, 8, 4, 2, 1]
    assert one(LANE, active=False) == (0, 0)


def test_permutations_of_a_row():
    assert one(4 * (LANE // 8 * 8 + LANE % 8)) == one(4 * (LANE % 8 * 4 + LANE // 8)) == (1, 1)


def test_a_misaligned_vector_is_an_error_and_has_no_degree():
    with pytest.raises(InputError, match=r"lane 3 is misaligned: a 128-bit access .*0x10a8 % 16 = 8"):
        one(np.where(LANE == 3, 0x10A8, 16 * LANE), width_bytes=16)
    with pytest.raises(InputError, match="allowed: 1, 2, 4, 8, 16"):
        one(LANE, width_bytes=12)
