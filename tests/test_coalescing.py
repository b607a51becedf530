"""Sectors and lines of global accesses, wavefronts of L1: against an H200's counters, slow routes, known cases."""

from __future__ import annotations

import json
import time
from pathlib import Path

import brute
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.coalescing import SLOT_OF_BIT, l1_wavefronts, transactions
from gemmsim.errors import InputError


def read_lines(name):
    return [json.loads(line) for line in (Path(__file__).parent / "data" / name).read_text().splitlines()]


MEASURED = [pattern for pattern in read_lines("memory_patterns_h200.jsonl") if pattern["op"].startswith("global")]
LOADS = [pattern for pattern in MEASURED if pattern["op"] == "global load"]
LANE = np.arange(32)
WARPS = st.lists(st.one_of(st.none(), st.integers(0, 700)), min_size=32, max_size=32)
WIDTHS = st.sampled_from([1, 2, 4, 8, 16])


def lanes_of(pattern):
    """(byte addresses, active, width in bytes)"""
    lanes = pattern["lane_byte_address"]
    return [lane or 0 for lane in lanes], [lane is not None for lane in lanes], pattern["width_bits"] // 8


@pytest.mark.parametrize("pattern", MEASURED, ids=lambda p: f"{p['op']}{p['width_bits']}-{p['pattern']}")
def test_measured_requests_and_sectors(pattern):
    counted = transactions(*lanes_of(pattern))
    assert (counted.requests, counted.sectors) == (pattern["requests"], pattern["sectors"])


def test_measured_wavefronts_of_l1():
    differences = []
    for pattern in LOADS:
        counted = l1_wavefronts(*lanes_of(pattern))
        extra = pattern["l1_tag_wavefronts"] - counted.tag, pattern["l1_data_wavefronts"] - counted.data
        if any(extra):
            differences.append((f"{pattern['width_bits']} {pattern['pattern']}", *extra))
    assert len(LOADS) == 60
    assert sorted(differences) == [("128 stride3", 1, 1), ("32 stride17", 1, 1), ("64 random", 1, 1)]


@pytest.mark.parametrize("pattern", read_lines("l1_patterns_h200.jsonl"), ids=lambda p: p["pattern"])
def test_wavefronts_of_l1_measured_after_the_rule_was_found(pattern):
    counted = l1_wavefronts(*lanes_of(pattern))
    assert (counted.tag, counted.data) == (pattern["l1_tag_wavefronts"], pattern["l1_data_wavefronts"])


@given(lanes=WARPS, width=WIDTHS)
def test_every_byte_is_in_a_counted_sector(lanes, width):
    touched = [byte for unit in lanes if unit is not None for byte in range(unit * width, (unit + 1) * width)]
    active = [unit is not None for unit in lanes]
    counted = transactions([(unit or 0) * width for unit in lanes], active, width)
    expected = any(active), len({byte // 32 for byte in touched}), len({byte // 128 for byte in touched})
    assert (counted.requests, counted.sectors, counted.lines) == expected


def slow_l1(addresses, width):
    """(tag, data) wavefronts; lane -> byte address."""
    queues = {}
    for lane in sorted(addresses):
        line = addresses[lane] // 128
        slot = 0
        for bit, adds in enumerate(SLOT_OF_BIT.tolist()):
            slot ^= adds * (line >> bit & 1)
        if line not in queues.setdefault(slot, []):
            queues[slot].append(line)
    tag = max(map(len, queues.values()), default=0)
    data = 0
    for turn in range(tag):
        lines = {queue[turn] for queue in queues.values() if turn < len(queue)}
        served = {lane: address for lane, address in addresses.items() if address // 128 in lines}
        data += brute.slow_passes(served, width, store=True)[0]  # a load that never merges
    return tag, data


@given(lanes=WARPS, width=WIDTHS, spread=st.sampled_from([1, 3, 32]))
def test_wavefronts_of_l1_equal_the_slow_route(lanes, width, spread):
    addresses = np.array([(unit or 0) * spread * width % 65536 for unit in lanes])
    active = np.array([unit is not None for unit in lanes])
    counted = l1_wavefronts(addresses, active, width)
    assert (counted.tag, counted.data) == slow_l1({i: int(addresses[i]) for i in range(32) if active[i]}, width)


@given(data=st.data(), width=WIDTHS)
def test_many_warps_at_once_are_each_warp_alone(data, width):
    warps = data.draw(st.lists(st.lists(st.integers(0, 4000), min_size=32, max_size=32), min_size=2, max_size=6))
    addresses = np.array([warps, warps]) * width
    together, l1 = transactions(addresses, True, width), l1_wavefronts(addresses, True, width)
    assert together.sectors.shape == l1.data.shape == (2, len(warps))
    for i, row in enumerate(addresses[1]):
        alone, l1_alone = transactions(row, True, width), l1_wavefronts(row, True, width)
        assert (together.sectors[1, i], together.lines[1, i]) == (alone.sectors, alone.lines)
        assert (l1.tag[1, i], l1.data[1, i]) == (l1_alone.tag, l1_alone.data)


def test_rows_and_columns_of_a_naive_product():
    pitch = 4096
    row_of_lane = transactions(4 * pitch * LANE, True, 4)  # every lane its own row of A
    same = transactions(0 * LANE, True, 4)  # and all the same column of B
    assert (row_of_lane.sectors, same.sectors) == (32, 1)
    assert (row_of_lane.sectors + same.sectors) / 2 == 16.5


@pytest.mark.parametrize(("width", "sectors", "lines"), [(4, 4, 1), (8, 8, 2), (16, 16, 4)])
def test_lanes_in_sequence(width, sectors, lines):
    aligned, shifted = (
        transactions([width * LANE, 32 + width * LANE], True, width),
        transactions(16 + width * LANE, True, width),
    )
    assert aligned.sectors.tolist() == [sectors, sectors]
    assert aligned.lines.tolist() == [lines, lines + 1]
    assert shifted.sectors == sectors + 1


def test_a_request_without_lanes_is_none():
    counted, l1 = transactions(4 * LANE, False, 4), l1_wavefronts(4 * LANE, False, 4)
    assert [int(count) for count in (counted.requests, counted.sectors, counted.lines, l1.tag, l1.data)] == [0] * 5


def test_l1_where_the_rule_is_plain():
    assert l1_wavefronts(4 * LANE, True, 4).data == 1
    assert l1_wavefronts(128 * LANE, True, 4).data == 32  # scattered: every lane its own line, all in one bank
    assert l1_wavefronts(0 * LANE, True, 16).data == 4  # a uniform load does not merge, as one from shared memory does


def test_what_cannot_be_counted():
    with pytest.raises(
        InputError, match=r"lane 31 is misaligned: a 64-bit access at byte address 0xfc \(0xfc % 8 = 4\)"
    ):
        transactions(np.where(LANE == 31, 252, 8 * LANE), True, 8)
    with pytest.raises(InputError, match="known within 32 MiB, and active lanes of a warp are farther apart"):
        l1_wavefronts([4 * LANE, 2**21 * LANE], True, 4)
    assert l1_wavefronts(2**20 * LANE, True, 4).tag == l1_wavefronts(2**40 + 2**20 * LANE, True, 4).tag


def test_a_hundred_thousand_warps_a_second():
    addresses = 16 * np.random.default_rng(0).integers(0, 1 << 30, (4000, 32))

    def seconds():
        start = time.process_time()
        transactions(addresses, True, 16)
        return time.process_time() - start

    assert len(addresses) / min(seconds() for _ in range(5)) > 100_000
