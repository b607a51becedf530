"""What a warp access asks of global memory, and of L1: requests, sectors, lines; wavefronts of global loads.

A warp instruction is one request, or none where every lane is guarded off; it touches the distinct sectors of
32 bytes of its active lanes. That equals an H200's counters for all loads and stores that the tests hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import checked_lanes, group_passes, is_first, units
from gemmsim.errors import InputError

SECTOR_BYTES = 32
LINE_BYTES = 128
TAG_SLOTS = 4
SLOT_OF_BIT = np.array([3, 1, 3, 1, 2, 3, 1, 2, 1, 3, 1, 3, 2, 3, 2, 1, 3, 2])
"""What each bit of a line's number adds to the line's slot in the tag stage, by XOR; from bit 0."""
KNOWN_BYTES = LINE_BYTES << len(SLOT_OF_BIT)


@dataclass(frozen=True)
class Transactions:
    """Requests, distinct sectors and distinct lines of each warp access; arrays of one shape."""

    requests: NDArray[np.int64]
    sectors: NDArray[np.int64]
    lines: NDArray[np.int64]


@dataclass(frozen=True)
class L1Wavefronts:
    """Wavefronts of L1's tag stage and of its data stage, for each global load; arrays of one shape."""

    tag: NDArray[np.int64]
    data: NDArray[np.int64]


def transactions(byte_addresses: Any, active: Any, width_bytes: int) -> Transactions:
    """Transactions of warp accesses: `byte_addresses` and `active` have the 32 lanes last.

    Raises InputError for a width that no access has, and for an active lane whose address is not a
    multiple of the width.
    """
    addresses, active = checked_lanes(byte_addresses, active, width_bytes)
    sector = np.sort(np.where(active, addresses // SECTOR_BYTES, -1), axis=-1)  # aligned: a lane is in one sector
    lines = _distinct(sector // (LINE_BYTES // SECTOR_BYTES))
    return Transactions(active.any(axis=-1).astype(np.int64), _distinct(sector), lines)


def _distinct(ordered: NDArray[np.int64]) -> NDArray[np.int64]:
    """Distinct non-negative values along the last axis, on which they ascend."""
    new = ordered >= 0
    new[..., 1:] &= ordered[..., 1:] != ordered[..., :-1]
    return np.asarray(np.count_nonzero(new, axis=-1), np.int64)


def l1_wavefronts(byte_addresses: Any, active: Any, width_bytes: int) -> L1Wavefronts:
    """Wavefronts of global loads in L1, all of them hits: arguments as those of `transactions`.

    The tag stage looks up to four lines up at a time, one in each of its slots. A line's slot is a hash of
    its number; lines of one slot follow each other in the order of their first lanes. Each lookup hands its
    lanes to the data stage, which is the array of banks: a pass for each word in a bank, in the lane groups
    of the width, never merged. Found on an H200: docs/theory.md, "Global loads in L1".

    Raises InputError where active lanes are in different aligned windows of 32 MiB: of the hash 18 bits are known.
    """
    addresses, active = checked_lanes(byte_addresses, active, width_bytes)
    warps = addresses.shape[:-1]
    addresses, active = addresses.reshape(-1, 32), active.reshape(-1, 32)
    window = addresses // KNOWN_BYTES
    if (is_first(active, window).sum(axis=1) > 1).any():
        raise InputError("the hash of L1's tags is known within 32 MiB, and active lanes of a warp are farther apart")

    lookup = _lookups(addresses // LINE_BYTES, active)
    unit, per_pass = units(addresses, active, width_bytes)
    tag = lookup.max(axis=1) + 1
    data = np.zeros_like(tag)
    for turn in range(tag.max(initial=0)):
        looked_up = np.flatnonzero(tag > turn)
        of_turn = np.where(lookup[looked_up] == turn, unit[looked_up], -1)
        data[looked_up] += group_passes(of_turn, per_pass, per_pass)[0]
    return L1Wavefronts(tag.reshape(warps), data.reshape(warps))


def _lookups(line: NDArray[np.int64], active: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Which lookup of the tag stage, from 0, has each lane's line; -1 for inactive lanes."""
    bits = line[..., None] >> np.arange(len(SLOT_OF_BIT)) & 1
    slot = np.bitwise_xor.reduce(bits * SLOT_OF_BIT, axis=-1)
    first = is_first(active, line)
    lookup = np.full_like(line, -1)
    taken = np.zeros((len(line), TAG_SLOTS), np.int64)
    every = np.arange(len(line))
    for lane in range(32):
        new = first[:, lane]
        turn = taken[every, slot[:, lane]]
        lookup = np.where(new[:, None] & active & (line == line[:, [lane]]), turn[:, None], lookup)
        taken[every, slot[:, lane]] += new
    return lookup
