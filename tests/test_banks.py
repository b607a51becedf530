"""The bank rules: against every pattern measured on an H200, slow word-by-word routes, and known cases."""

from __future__ import annotations

import json
import time
from itertools import product
from pathlib import Path

import brute
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.banks import async_copy_passes, lane_groups, ldmatrix_passes, passes
from gemmsim.errors import InputError
from gemmsim.gpu.counters import METRICS
from gemmsim.older_banks import documented_passes

DATA = Path(__file__).parent / "data"
MEASURED = [json.loads(line) for line in (DATA / "shared_memory_patterns_h200.jsonl").read_text().splitlines()]
MEASURED_TOO = [json.loads(line) for line in (DATA / "memory_patterns_h200.jsonl").read_text().splitlines()]
LANE = np.arange(32)


def one(byte_addresses, width_bytes=4, store=False, active=True):
    cost = passes(np.asarray(byte_addresses), active, width_bytes, store)
    return int(cost.wavefronts), int(cost.ideal_wavefronts)


def name(pattern):
    return f"{pattern['op']}{pattern['width_bits']}-{pattern['pattern']}"


def lanes_of(pattern):
    """(byte addresses, active, width in bytes)"""
    lanes = pattern["lane_byte_address"]
    return [lane or 0 for lane in lanes], [lane is not None for lane in lanes], pattern["width_bits"] // 8


def of_op(start):
    return [pattern for pattern in MEASURED_TOO if pattern["op"].startswith(start)]


@pytest.mark.parametrize("pattern", MEASURED, ids=name)
def test_measured_patterns(pattern):
    cost = passes(*lanes_of(pattern), pattern["op"] == "st")
    assert cost.wavefronts == pattern["wavefronts_per_instruction"]
    assert cost.excess == pattern["conflicts_per_instruction"]


@pytest.mark.parametrize("pattern", of_op("ldmatrix"), ids=name)
def test_measured_ldmatrix(pattern):
    addresses, _, _ = lanes_of(pattern)
    assert ldmatrix_passes(addresses, int(pattern["op"][-1])).wavefronts == pattern["shared_wavefronts"]


@pytest.mark.parametrize("pattern", of_op("cp.async.ca"), ids=name)
def test_measured_copies_through_l1(pattern):
    assert async_copy_passes(*lanes_of(pattern), through_l1=True).wavefronts == pattern["shared_wavefronts"]


def test_measured_copies_past_l1():
    patterns = of_op("cp.async.cg")
    explained = [
        async_copy_passes(*lanes_of(pattern), through_l1=False).wavefronts == pattern["shared_wavefronts"]
        for pattern in patterns
    ]
    assert (sum(explained), len(patterns)) == (27, 27)


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


@given(data=st.data(), width=st.sampled_from([1, 2, 4, 8, 16]), store=st.booleans(), twins=st.sampled_from([0, 1, 2]))
def test_lane_groups_say_what_the_passes_are_made_of(data, width, store, twins):
    lanes = data.draw(st.lists(st.one_of(st.none(), st.integers(0, 200)), min_size=32, max_size=32))
    lanes = [lanes[i & ~twins] for i in range(32)]
    addresses, active = [(unit or 0) * width for unit in lanes], [unit is not None for unit in lanes]
    cost = passes(addresses, active, width, store)
    groups = lane_groups(addresses, active, width, store)
    assert sum(group.passes for group in groups) == cost.wavefronts
    assert len(groups) == cost.ideal_wavefronts
    assert max((group.passes for group in groups), default=0) == cost.degree
    assert sorted(lane for group in groups for lane in group.lanes) == list(np.flatnonzero(active))
    for group in groups:
        assert max((len(collision.words) for collision in group.collisions), default=1) == group.passes
        for collision in group.collisions:
            for word, its_lanes in zip(collision.words, collision.lanes, strict=True):
                assert word % 32 == collision.bank
                for lane in its_lanes:
                    assert lane in group.lanes
                    assert addresses[lane] // 4 <= word <= (addresses[lane] + width - 1) // 4


def test_a_collision_names_its_bank_words_and_lanes():
    group, *more = lane_groups(np.where(LANE == 5, 4 * 33, 4 * LANE), True, 4, store=False)
    assert not more
    assert (group.passes, [(c.bank, c.words, c.lanes) for c in group.collisions]) == (2, [(1, (1, 33), ((1,), (5,)))])


def slow_copy(targets, sources):
    """(wavefronts, lines, degree) of cp.async.cg; both map a lane to the number of a vector of 16 bytes."""
    pieces = {}
    for lane, target in targets.items():
        source = sources[lane]
        whole = any(sources[other] == source ^ 1 and targets[other] == target ^ 1 for other in targets if other != lane)
        kind = ("whole", (source + target) % 2) if whole else ("half", source % 2, target % 2)
        pieces.setdefault(source // 8, set()).add((target // 8, kind, (source // 2 + target // 2) % 2))
    sizes = [len(of_line) for of_line in pieces.values()]
    return sum(sizes), len(sizes), max(sizes, default=0)


@given(
    targets=st.lists(
        st.one_of(st.none(), st.integers(0, 40)), min_size=32, max_size=32, unique_by=lambda t: t or object()
    ),
    sources=st.one_of(st.none(), st.permutations(range(32)), st.lists(st.integers(0, 99), min_size=32, max_size=32)),
)
def test_copies_past_l1_equal_the_slow_route(targets, sources):
    active = np.array([target is not None for target in targets])
    vectors = np.array([target or 0 for target in targets])
    cost = async_copy_passes(16 * vectors, active, 16, False, None if sources is None else 16 * np.array(sources))
    lanes = np.flatnonzero(active)
    expected = slow_copy({i: vectors[i] for i in lanes}, LANE if sources is None else np.array(sources))
    assert (cost.wavefronts, cost.ideal_wavefronts, cost.degree) == expected


def test_copies_past_l1_serve_a_line_at_once_where_its_sectors_move_alike():
    def cost(targets, active=LANE < 8):
        return int(async_copy_passes(16 * np.resize(targets, 32), active, 16, through_l1=False).wavefronts)

    assert cost([0, 1, 2, 3, 4, 5, 6, 7]) == 1
    assert cost([1, 0, 3, 2, 5, 4, 7, 6]) == 1
    assert cost([0, 1, 2, 3, 5, 4, 7, 6]) == 2  # half of the sectors are swapped
    assert cost([2, 3, 4, 5, 6, 7, 8, 9]) == 2  # across two rows
    assert cost([0, 2, 4, 6, 1, 3, 5, 7]) == 8


def test_only_loads_merge():
    pairs = 16 * (LANE // 2)
    assert int(async_copy_passes(pairs, True, 16, through_l1=True).wavefronts) == 4
    assert int(ldmatrix_passes(pairs, 4).wavefronts) == 4
    assert one(pairs, 16, store=True) == (4, 4)
    assert one(pairs, 16) == (2, 2)


def test_copies_of_widths_that_do_not_exist():
    with pytest.raises(InputError, match=r"cp\.async\.cg of 8 bytes does not exist; allowed: 16"):
        async_copy_passes(8 * LANE, True, 8, through_l1=False)
    with pytest.raises(InputError, match=r"cp\.async\.ca of 2 bytes does not exist; allowed: 4, 8, 16"):
        async_copy_passes(2 * LANE, True, 2, through_l1=True)
    with pytest.raises(InputError, match="ldmatrix of 3 matrices does not exist; allowed: 1, 2, 4"):
        ldmatrix_passes(16 * LANE, 3)


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
    copied = async_copy_passes(16 * addresses, True, 16, through_l1=False)
    assert copied.wavefronts.tolist() == [
        async_copy_passes(16 * row, True, 16, through_l1=False).wavefronts for row in addresses
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
    assert costs[18] == 3  # so no stride has one and one
    assert (one(4 * LANE)[0], one(4 * (LANE // 16 + LANE % 16 * 16), store=True)[0]) == (1, 8)


@pytest.mark.parametrize("field", [0, 1, 2])
def test_three_word_structs_do_not_conflict(field):
    assert one(4 * (3 * LANE + field)) == (1, 1)


def test_two_word_structs_conflict_word_by_word_but_not_whole():
    assert one(8 * LANE) == (2, 1)
    assert one(8 * LANE, width_bytes=8) == (2, 2)
    assert documented_passes(8 * LANE, True, 4, False, "1.x").degree == 2  # either half of 16 lanes, 16 banks


def test_copying_vectors_of_four_words_conflicts_on_the_first_gpus_alone():
    assert documented_passes(16 * LANE, True, 16, False, "1.x").degree == 4
    assert documented_passes(16 * LANE, True, 16, True, "1.x").degree == 4
    for store in (False, True):
        assert passes(16 * LANE, True, 16, store).excess == 0


def test_counters_of_a_kernel_that_loads_vectors():
    instructions = 8_844_480
    assert [instructions * count for count in one(128 * LANE, width_bytes=16)] == [283_023_360, 35_377_920]
    assert instructions * int(passes(128 * LANE, True, 16, store=False).excess) == 247_645_440
    assert one(16 * LANE, width_bytes=16) == (4, 4)  # 35,377,920 wavefronts, no conflict


@pytest.mark.parametrize("pitch", [32, 33])
def test_tiled_multiplication_with_blocks_32_wide_has_no_conflict_to_remove(pitch):
    for k, row in product(range(32), range(2)):
        assert one(4 * (row * pitch + LANE), store=True) == (1, 1)  # both stores: a row of the tile
        assert one(4 * (row * pitch + k) + 0 * LANE) == (1, 1)  # A: one word for all lanes
        assert one(4 * (k * pitch + LANE)) == (1, 1)  # B: a row


def test_nothing_is_held_against_the_raw_conflict_counter():
    assert not [metric for metric in METRICS.values() if "conflict" in metric]


@pytest.mark.parametrize(("pitch", "degree"), [(128, 8), (64, 4), (144, 1), (80, 1), (32, 2)])
def test_rows_of_an_ldmatrix(pitch, degree):
    for matrices in (1, 2, 4):
        cost = ldmatrix_passes(pitch * LANE, matrices)
        assert (cost.wavefronts, cost.ideal_wavefronts, cost.degree) == (matrices * degree, matrices, degree)


def test_swizzled_rows_of_an_ldmatrix():
    assert ldmatrix_passes(128 * LANE + 16 * (LANE % 8), 4).degree == 1  # chunk 0 of row r is at 0 ^ (r % 8)


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


@pytest.mark.parametrize(
    ("addresses", "message"),
    [
        (4 * LANE - 4, "lane 0 has the byte address -4; allowed: 0 and more"),
        (4 * np.arange(31), r"32 lanes, on the last axis; this one has the shape \(31,\)"),
        (4.0 * LANE, "whole numbers below 2.63; these are of the type float64"),
        ([2**63] * 31 + [2**70], "whole numbers below 2.63"),
    ],
)
def test_what_is_no_warp_access(addresses, message):
    with pytest.raises(InputError, match=message):
        passes(addresses, True, 4, store=False)
    with pytest.raises(InputError, match=message):
        lane_groups(addresses, True, 4, store=False)


def test_lane_groups_are_those_of_one_warp():
    with pytest.raises(InputError, match=r"one warp; this is the shape \(2, 32\)"):
        lane_groups([4 * LANE, 4 * LANE], True, 4, store=False)


@pytest.mark.parametrize("width", [4, 8, 16])
@pytest.mark.parametrize("store", [False, True], ids=["load", "store"])
@pytest.mark.parametrize("twins", [0, 1], ids=["apart", "merging"])
def test_a_hundred_thousand_warps_a_second(width, store, twins):
    random = np.random.default_rng(0)
    units = random.integers(0, 8192 // width, (4000, 32))[:, LANE & ~twins]
    active = random.random(units.shape) < 0.9

    def seconds():
        start = time.process_time()
        passes(width * units, active, width, store)
        return time.process_time() - start

    assert len(units) / min(seconds() for _ in range(5)) > 100_000
