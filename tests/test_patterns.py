"""Patterns of lanes: threads as CUDA numbers them, addresses, and what a pass serves."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.banks import passes
from gemmsim.errors import InputError
from gemmsim.expressions import parse
from gemmsim.patterns import (
    ALL_LANES,
    VARIABLES,
    Block,
    Pattern,
    lanes_of_sectors,
    parse_lanes,
    pattern,
    ranges,
    served,
    useful_bytes,
)

WIDTHS = st.sampled_from([1, 2, 4, 8, 16])


WARP = Block()


def of(text: str, block: Block = WARP, width_bytes: int = 4, lanes=ALL_LANES, **more) -> Pattern:
    return pattern(parse(text, VARIABLES), block, lanes, width_bytes, **more)


@st.composite
def patterns(draw) -> Pattern:
    """Addresses of a few warps, near each other or not, some lanes inactive."""
    width, warps = draw(WIDTHS), draw(st.integers(1, 3))
    spread = draw(st.sampled_from([2, 8, 64, 4096]))
    elements = draw(st.lists(st.integers(0, spread), min_size=32 * warps, max_size=32 * warps))
    active = draw(st.lists(st.booleans(), min_size=32 * warps, max_size=32 * warps) | st.just([True] * 32 * warps))
    return Pattern(np.reshape(elements, (-1, 32)) * width, np.reshape(active, (-1, 32)), width)


# Threads


@given(st.integers(1, 40), st.integers(1, 25), st.sets(st.integers(0, 31), min_size=1))
def test_threads_are_numbered_as_cuda_does_it(x, y, lanes):
    block = Block(x, y)
    values = block.variables
    threads = {(tx, ty): ty * x + tx for ty in range(y) for tx in range(x)}
    assert (block.threads, block.warps) == (len(threads), -(-len(threads) // 32))
    for (tx, ty), tid in threads.items():
        at = divmod(tid, 32)
        assert {name: value[at] for name, value in values.items()} == {
            "lane": tid % 32, "tid": tid, "tx": tx, "ty": ty, "warp": tid // 32,
        }  # fmt: skip
    expected = {tid for tid in threads.values() if tid % 32 in lanes}
    if expected:
        assert set(np.flatnonzero(block.active(sorted(lanes)).ravel())) == expected
    else:
        with pytest.raises(InputError, match="none is active in a block of"):
            block.active(sorted(lanes))


@pytest.mark.parametrize(("x", "y"), [(0, 1), (1, 0), (-4, -4), (33, 32), (1025, 1)])
def test_blocks_that_no_gpu_has(x, y):
    with pytest.raises(InputError, match=rf"a block of {x} x {y} threads; allowed: 1 to 1024 in all"):
        Block(x, y)


@given(st.sets(st.integers(0, 31), min_size=1).map(sorted))
def test_lists_of_lanes_read_back(lanes):
    assert parse_lanes(ranges(lanes)) == tuple(lanes)
    assert parse_lanes(",".join(map(str, lanes))) == tuple(lanes)


def test_lists_of_lanes():
    assert parse_lanes("0-3, 8,2-4") == (0, 1, 2, 3, 4, 8)
    assert (ranges([0, 1, 2, 5, 7, 8]), ranges([]), ranges([31])) == ("0-2, 5, 7-8", "", "31")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0-32", "lanes '0-32' do not exist; allowed: 0 to 31, such as 0-7,16"),
        ("40", "lanes '40' do not exist"), ("3-2", "lanes '3-2' do not exist"), ("0-3,99", "lanes '99' do not exist"),
        ("", "lanes '' are no list"), ("a", "no list"), ("-1", "no list"), ("1-", "no list"), ("0-3-5", "no list"),
        ("1,,2", "no list"), ("1.5", "no list"), ("\u0661", "no list"), ("9" * 50, "no list"),
    ],
)  # fmt: skip
def test_lists_that_are_none(text, says):
    with pytest.raises(InputError) as refusal:
        parse_lanes(text)
    assert says in str(refusal.value)


# Addresses


def test_an_index_is_in_elements_or_bytes_from_the_base():
    assert of("lane * 3", width_bytes=8).byte_addresses.tolist() == [[24 * lane for lane in range(32)]]
    assert of("lane * 8", width_bytes=8, in_bytes=True).byte_addresses.tolist() == [[8 * lane for lane in range(32)]]
    assert of("lane - 2", base_bytes=8).byte_addresses.tolist() == [[4 * lane for lane in range(32)]]
    two_rows = of("ty * 100 + tx", Block(16, 16))
    assert two_rows.byte_addresses[3].tolist() == [4 * (100 * (6 + lane // 16) + lane % 16) for lane in range(32)]


def test_what_inactive_lanes_would_do_does_not_matter():
    assert of("32 // lane - 4", lanes=range(1, 8)).active.sum() == 7
    assert of("10 - tid", Block(11)).active.sum() == 11
    assert of("1 << 2 * lane", lanes=range(4)).byte_addresses[0, :4].tolist() == [4, 16, 64, 256]
    assert of("lane * 6", width_bytes=8, in_bytes=True, lanes=[0, 4, 8], size_bytes=56).active.sum() == 3


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (lambda: of("lane - 3"), "lane 0 has the byte address -12; allowed: 0"),
        (lambda: of("tid - 40 + 32 // (warp + 1)", Block(64)), "warp 0, lane 0 has the byte address -32"),
        (lambda: of("60 - tid", Block(64)), "warp 1, lane 29 has the byte address -4"),
        (lambda: of("lane * 4", width_bytes=16, in_bytes=True),
         "lane 1 is misaligned: a 128-bit access at byte address 0x4 (0x4 % 16 = 4)"),
        (lambda: of("tid * 4 + warp", Block(8, 8), in_bytes=True), "warp 1, lane 0 is misaligned: a 32-bit access"),
        (lambda: of("lane", base_bytes=2), "lane 0 is misaligned"),
        (lambda: of("lane", size_bytes=100), "lane 25 runs out of the array: 4 bytes at byte address 100; allowed"),
        (lambda: of("lane", width_bytes=16, size_bytes=8), "lane 0 runs out of the array: 16 bytes at byte address 0"),
        (lambda: of("tid", Block(96), size_bytes=256), "warp 2, lane 0 runs out of the array"),
        (lambda: of("1 << lane * 2"), "'1 << lane * 2' is 4611686018427387904 at lane 31, which is beyond any memory"),
        (lambda: of("(1 << 62) + lane"), "'(1 << 62) + lane' is 4611686018427387904 at lane 0, which is beyond any"),
        (lambda: of("-(1 << 62) * 2 + warp", Block(64)), "is -9223372036854775808 at warp 0, lane 0, which"),
        (lambda: of("lane << 60"), "'lane << 60' passes 64 bits at lane 8"),
        (lambda: of("1 // (tid - 40)", Block(64)), "'1 // (tid - 40)' divides by zero at warp 1, lane 8, tid 40"),
    ],
)  # fmt: skip
def test_indices_that_lead_nowhere(asked, says):
    with pytest.raises(InputError) as refusal:
        asked()
    assert says in str(refusal.value)


def test_the_last_element_of_an_array_is_in_it():
    assert of("lane", size_bytes=128).warps == 1
    assert of("(1 << 58) - 1 - lane", width_bytes=16).active.all()


# What a pass serves, and what a warp touches


@given(patterns(), st.booleans())
def test_passes_serve_every_lane_once_and_every_bank_at_most_once(touched, store):
    cost = passes(touched.byte_addresses, touched.active, touched.width_bytes, store)
    for warp in range(touched.warps):
        groups = served(touched, warp, store)
        assert sum(group.passes for group, _ in groups) == cost.wavefronts[warp]
        assert len(groups) == cost.ideal_wavefronts[warp]
        for group, slots in groups:
            assert sorted(lane for slot in slots for lane in slot.lanes) == sorted(group.lanes)
            busy = [(slot.turn, bank) for slot in slots for bank in slot.banks]
            assert len(set(busy)) == len(busy)
            assert {turn for turn, _ in busy} == set(range(group.passes))
            for slot in slots:
                for lane in slot.lanes:
                    first = int(touched.byte_addresses[warp, lane]) // 4
                    words = range(first, first + max(1, touched.width_bytes // 4))
                    assert [word % 32 for word in words] == list(slot.banks)
                    assert slot.word == first


@given(patterns())
def test_useful_bytes_and_sectors_are_those_touched(touched):
    for warp in range(touched.warps):
        starts = {
            lane: int(touched.byte_addresses[warp, lane]) for lane in range(32) if touched.active[warp, lane]
        }  # fmt: skip
        bytes_of = {lane: set(range(start, start + touched.width_bytes)) for lane, start in starts.items()}
        assert useful_bytes(touched)[warp] == len(set().union(*bytes_of.values()))
        sectors: dict[int, set[int]] = {}
        for lane, own in bytes_of.items():
            for byte in own:
                sectors.setdefault(byte // 32, set()).add(lane)
        found = lanes_of_sectors(touched, warp)
        assert list(found) == sorted(sectors)
        assert {sector: set(lanes) for sector, lanes in found.items()} == sectors
