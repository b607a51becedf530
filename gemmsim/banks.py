"""Shared-memory passes of warp accesses, lane by lane.

32 banks of 4 bytes; a pass serves one distinct word of every bank, to any number of lanes. Lanes are
served in groups: all 32 together up to 32 bits a lane, halves at 64 bits, quarters at 128. A load
merges neighbouring groups when, over the whole warp, every active lane i finds lane i^1 inactive or at
its own address, or every one lane i^2; stores never merge. Valid for compute capability 7.0 and later:
NVIDIA staff state the rule for 7.x (developer forum, thread 77228), and it explains every one of the
patterns measured on an H200 that the tests hold. What was documented before is in `older_banks.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.errors import InputError

Lanes = NDArray[np.int64]
Mask = NDArray[np.bool_]
BANKS = 32
BANK_BYTES = 4
PASS_BYTES = BANKS * BANK_BYTES
"""What a multiprocessor's banks deliver in a cycle, and L1, which they are part of, as well."""
FACING = np.arange(32) ^ np.array([[1], [2]])
"""The lanes that each lane may share a load with, by which of the two rules."""
WIDTHS_BYTES = (1, 2, 4, 8, 16)
COPY_WIDTHS_BYTES = (4, 8, 16)


@dataclass(frozen=True)
class Passes:
    """Wavefronts of each warp access, what they would be without conflicts, and the most passes of any
    lane group: `counts` has these on its first axis."""

    counts: Lanes

    @property
    def wavefronts(self) -> Lanes:
        """Passes of each warp access."""
        found: Lanes = self.counts[0]
        return found

    @property
    def ideal_wavefronts(self) -> Lanes:
        """What they would be without conflicts."""
        found: Lanes = self.counts[1]
        return found

    @property
    def degree(self) -> Lanes:
        """The most passes of any lane group."""
        found: Lanes = self.counts[2]
        return found

    @property
    def excess(self) -> Lanes:
        """Wavefronts beyond the ideal: what a profiler calls bank conflicts."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True)
class Collision:
    """A bank that a lane group asks for several words: their numbers, and the lanes that ask for each."""

    bank: int
    words: tuple[int, ...]
    lanes: tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class LaneGroup:
    """Active lanes that are served together, after merging; their passes, and why more than one."""

    lanes: tuple[int, ...]
    passes: int
    collisions: tuple[Collision, ...]


def checked_lanes(byte_addresses: Any, active: Any, width_bytes: int) -> tuple[Lanes, Mask]:
    """Addresses and activity of the lanes of warp accesses, as arrays of one shape with the 32 lanes last.

    Raises InputError for a width that no access has, for a last axis that is not a warp, and for an active
    lane whose address is negative or no multiple of the width: such an access does not execute.
    """
    if width_bytes not in WIDTHS_BYTES:
        raise InputError(f"accesses of {width_bytes} bytes do not exist; allowed: 1, 2, 4, 8, 16")
    given = np.asarray(byte_addresses)
    if given.dtype.kind not in "iu":
        raise InputError(f"byte addresses are whole numbers below 2^63; these are of the type {given.dtype}")
    addresses, active = given.astype(np.int64, copy=False), np.asarray(active, bool)
    if addresses.shape != active.shape:
        addresses, active = np.broadcast_arrays(addresses, active)
    if addresses.shape[-1:] != (32,):
        raise InputError(f"a warp access has 32 lanes, on the last axis; this one has the shape {addresses.shape}")
    wrong = active & ((addresses & (width_bytes - 1) != 0) | (addresses < 0))
    if wrong.any():
        at = tuple(np.argwhere(wrong)[0])
        if addresses[at] < 0:
            raise InputError(f"lane {at[-1]} has the byte address {addresses[at]}; allowed: 0 and more")
        raise InputError(
            f"lane {at[-1]} is misaligned: a {8 * width_bytes}-bit access at byte address"
            f" {addresses[at]:#x} ({addresses[at]:#x} % {width_bytes} = {addresses[at] % width_bytes})"
        )
    return addresses, active


def passes(byte_addresses: Any, active: Any, width_bytes: int, store: bool) -> Passes:
    """Passes of warp accesses: `byte_addresses` and `active` have the 32 lanes last.

    Raises InputError for a width that no access has, and for an active lane whose address is not a
    multiple of the width: such an access does not execute, so it has no degree.
    """
    return passes_of_lanes(*checked_lanes(byte_addresses, active, width_bytes), width_bytes, store)


def passes_of_lanes(addresses: Lanes, active: Mask, width_bytes: int, store: bool) -> Passes:
    """The same of lanes as `checked_lanes` returns them: nothing is checked."""
    warps = addresses.shape[:-1]
    addresses, active = addresses.reshape(-1, 32), active.reshape(-1, 32)

    unit, per_pass = units(addresses, active, width_bytes)
    if store or per_pass == 32:
        counts = group_passes(unit, per_pass, per_pass)
    else:
        merged = _merges(unit)
        of_all = bool(merged.all())
        if of_all or not merged.any():
            counts = group_passes(unit, per_pass, 2 * per_pass if of_all else per_pass)
        else:
            counts = np.empty((3, len(unit)), np.int64)
            for rows, group_lanes in ((~merged, per_pass), (merged, 2 * per_pass)):
                counts[:, rows] = group_passes(unit[rows], per_pass, group_lanes)
    return Passes(counts.reshape(3, *warps))


def ldmatrix_passes(row_addresses: Any, matrices: int) -> Passes:
    """Passes of ldmatrix: lanes 0 to 8 `matrices` - 1 give the addresses of rows of 16 bytes, the others none.

    Each 8x8 matrix of 16-bit elements is a group of its 8 rows; groups never merge. As measured on an H200.
    """
    if matrices not in (1, 2, 4):
        raise InputError(f"ldmatrix of {matrices} matrices does not exist; allowed: 1, 2, 4")
    return passes(row_addresses, np.arange(32) < 8 * matrices, 16, store=True)


def async_copy_passes(
    byte_addresses: Any, active: Any, width_bytes: int, through_l1: bool, global_addresses: Any = None
) -> Passes:
    """Passes of the writes of cp.async; `byte_addresses` are those in shared memory, the 32 lanes last.

    Through L1 (cp.async.ca) they are stores. Past it (cp.async.cg, 16 bytes alone) data come from L2 in
    sectors of 32 bytes, and banks do not matter: see `_bypass_passes`. There `global_addresses` count; by
    default lanes copy neighbouring vectors that start with a line of 128 bytes, as is assumed of the measured
    patterns.
    An ideal is then one pass for each line of global memory, and the degree is that of a line.
    """
    allowed = COPY_WIDTHS_BYTES if through_l1 else COPY_WIDTHS_BYTES[-1:]
    if width_bytes not in allowed:
        name = "cp.async.ca" if through_l1 else "cp.async.cg"
        raise InputError(f"{name} of {width_bytes} bytes does not exist; allowed: {', '.join(map(str, allowed))}")
    if through_l1:
        return passes(byte_addresses, active, width_bytes, store=True)
    shared, active = checked_lanes(byte_addresses, active, width_bytes)
    sources = 16 * np.arange(32) if global_addresses is None else global_addresses
    source, active = checked_lanes(np.broadcast_to(sources, shared.shape), active, width_bytes)
    counts = _bypass_passes(shared.reshape(-1, 32) // 16, source.reshape(-1, 32) // 16, active.reshape(-1, 32))
    return Passes(counts.reshape(3, *shared.shape[:-1]))


def _bypass_passes(target: Lanes, source: Lanes, active: Mask) -> Lanes:
    """Rows of wavefronts, lines and degree of cp.async.cg; addresses count vectors of 16 bytes.

    A sector whose two halves go to one aligned 32 bytes moves whole, in order or swapped; else its halves move
    apart. One pass writes into one row of 128 bytes the pieces of one line of 128 bytes that are alike: whole
    in the same order, or the same half to the same half; and with the same parity of sector number plus place in
    the row. A conjecture: it explains all 27 patterns measured on an H200, of which three decide between it and its
    rivals (docs/theory.md).
    """
    other_half = (_of_others(source) ^ 1 == _of_lanes(source)) & (_of_others(target) ^ 1 == _of_lanes(target))
    whole = active & (other_half & _of_others(active)).any(axis=2)
    from_half, to_half = source & 1, target & 1
    piece = np.where(whole, 4 + (from_half ^ to_half), 2 * from_half + to_half)
    parity = (source ^ target) >> 1 & 1
    line = source // 8
    first = is_first(active, line, target // 8, 2 * piece + parity)
    of_line = np.count_nonzero((_of_others(line) == _of_lanes(line)) & _of_others(first), axis=2)
    lines = np.count_nonzero(is_first(active, line), axis=1)
    return np.stack([np.count_nonzero(first, axis=1), lines, of_line.max(axis=1)])


def _of_lanes(values: NDArray[Any]) -> NDArray[Any]:
    """What each lane of warps has, to be held against `_of_others`."""
    return values[:, :, None]


def _of_others(values: NDArray[Any]) -> NDArray[Any]:
    """What each other lane of its warp has, on an axis of its own."""
    return values[:, None, :]


def lane_groups(byte_addresses: Any, active: Any, width_bytes: int, store: bool) -> tuple[LaneGroup, ...]:
    """The lane groups of one warp access that have an active lane; their passes add up to its wavefronts."""
    addresses, active = checked_lanes(byte_addresses, active, width_bytes)
    if addresses.shape != (32,):
        raise InputError(f"lane groups are those of one warp; this is the shape {addresses.shape}")
    group_lanes = PASS_BYTES // max(width_bytes, BANK_BYTES)
    if not store and group_lanes < 32 and _merges(units(addresses, active, width_bytes)[0][None])[0]:
        group_lanes *= 2
    groups = (np.arange(first, first + group_lanes) for first in range(0, 32, group_lanes))
    return tuple(_lane_group(lanes[active[lanes]], addresses, width_bytes) for lanes in groups if active[lanes].any())


def _lane_group(lanes: Lanes, addresses: Lanes, width_bytes: int) -> LaneGroup:
    """One group, word by word."""
    asked: dict[int, dict[int, list[int]]] = {}
    for lane in lanes.tolist():
        first = int(addresses[lane])
        for word in range(first // BANK_BYTES, (first + width_bytes - 1) // BANK_BYTES + 1):
            asked.setdefault(word % BANKS, {}).setdefault(word, []).append(lane)
    collisions = tuple(
        Collision(bank, tuple(sorted(words)), tuple(tuple(words[word]) for word in sorted(words)))
        for bank, words in sorted(asked.items())
        if len(words) > 1
    )
    return LaneGroup(tuple(lanes.tolist()), max(map(len, asked.values())), collisions)


def units(addresses: Lanes, active: Mask, width_bytes: int) -> tuple[Lanes, int]:
    """(number of the unit that each lane asks for, -1 if inactive; units that fill a pass).

    A unit is a word, or a whole access where that is wider: aligned accesses share all of their banks or
    none, so they conflict just when their words do. A group has, before merging, as many lanes as fill a pass.
    """
    unit_bytes = max(width_bytes, BANK_BYTES)
    return np.where(active, addresses // unit_bytes, -1), PASS_BYTES // unit_bytes


def _merges(unit: Lanes) -> Mask:
    """Whether each warp's load, of units as `units` has them that are whole accesses, merges neighbouring groups."""
    own, other = unit[:, None], unit[:, FACING]
    merges: Mask = ((own == other) | (own | other < 0)).all(axis=2).any(axis=1)
    return merges


def group_passes(unit: Lanes, units_per_pass: int, group_lanes: int) -> Lanes:
    """Rows of wavefronts, of groups with an active lane, and of degree: a column for each warp.

    `unit` and `units_per_pass` are as `units` returns them, `unit` of the shape (warps, 32).
    """
    groups = np.sort(unit.reshape(-1, group_lanes), axis=1)
    distinct = np.ones(groups.shape, bool)
    np.not_equal(groups[:, 1:], groups[:, :-1], out=distinct[:, 1:])
    distinct &= groups >= 0
    slots = units_per_pass * len(groups)
    slot = (groups & (units_per_pass - 1)) + np.arange(0, slots, units_per_pass)[:, None]
    in_bank = np.bincount(slot[distinct], minlength=slots)
    per_warp = in_bank.reshape(len(unit), 32 // group_lanes, units_per_pass).max(axis=2)
    return np.array([per_warp.sum(axis=1), (per_warp > 0).sum(axis=1), per_warp.max(axis=1)])


def is_first(active: Mask, *keys: Lanes) -> Mask:
    """Which active lanes are the first of their warp to have their keys; arrays of the shape (warps, 32)."""
    order = np.lexsort(
        (*keys, ~active), axis=-1
    )  # stable: of the active lanes with the same keys the first comes first
    new = np.take_along_axis(active, order, axis=-1)
    alike = new[:, 1:].copy()
    for key in keys:
        ordered = np.take_along_axis(key, order, axis=-1)
        alike &= ordered[:, 1:] == ordered[:, :-1]
    new[:, 1:] &= ~alike
    first = np.empty_like(active)
    np.put_along_axis(first, order, new, axis=-1)
    return first
