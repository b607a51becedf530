"""Shared-memory passes of warp accesses, lane by lane.

32 banks of 4 bytes; a pass serves one distinct word of every bank, to any number of lanes. Lanes are
served in groups: all 32 together up to 32 bits a lane, halves at 64 bits, quarters at 128. A load
merges neighbouring groups when, over the whole warp, every active lane i finds lane i^1 inactive or at
its own address, or every one lane i^2; stores never merge. Valid for compute capability 7.0 and later:
NVIDIA staff state the rule for 7.x (developer forum, thread 77228), and it explains every one of the
patterns measured on an H200 that the tests hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.errors import InputError

BANKS = 32
BANK_BYTES = 4
PASS_BYTES = BANKS * BANK_BYTES
"""What a multiprocessor's banks deliver in a cycle, and L1, which they are part of, as well."""
WIDTHS_BYTES = (1, 2, 4, 8, 16)


@dataclass(frozen=True)
class Passes:
    """Wavefronts of each warp access, and what they would be without conflicts; arrays of one shape."""

    wavefronts: NDArray[np.int64]
    ideal_wavefronts: NDArray[np.int64]

    @property
    def excess(self) -> NDArray[np.int64]:
        """Wavefronts beyond the ideal: what a profiler calls bank conflicts."""
        return self.wavefronts - self.ideal_wavefronts


def passes(byte_addresses: Any, active: Any, width_bytes: int, store: bool) -> Passes:
    """Passes of warp accesses: `byte_addresses` and `active` have the 32 lanes last.

    Raises InputError for a width that no access has, and for an active lane whose address is not a
    multiple of the width: such an access does not execute, so it has no degree.
    """
    if width_bytes not in WIDTHS_BYTES:
        raise InputError(f"accesses of {width_bytes} bytes do not exist; allowed: 1, 2, 4, 8, 16")
    addresses, active = np.broadcast_arrays(np.asarray(byte_addresses, np.int64), np.asarray(active, bool))
    misaligned = active & (addresses % width_bytes != 0)
    if misaligned.any():
        at = tuple(np.argwhere(misaligned)[0])
        raise InputError(
            f"lane {at[-1]} is misaligned: a {8 * width_bytes}-bit access at byte address"
            f" {addresses[at]:#x} ({addresses[at]:#x} % {width_bytes} = {addresses[at] % width_bytes})"
        )
    warps = addresses.shape[:-1]
    addresses, active = addresses.reshape(-1, 32), active.reshape(-1, 32)

    unit_bytes = max(width_bytes, BANK_BYTES)  # aligned units conflict just when their words do
    unit = np.where(active, addresses // unit_bytes, -1)
    group_lanes = PASS_BYTES // unit_bytes
    if store or group_lanes == 32:
        wavefronts, ideal = _group_passes(unit, group_lanes, unit_bytes)
    else:
        merged = _merges(addresses, active)
        wavefronts, ideal = np.empty(len(unit), np.int64), np.empty(len(unit), np.int64)
        for rows, lanes in ((~merged, group_lanes), (merged, 2 * group_lanes)):
            wavefronts[rows], ideal[rows] = _group_passes(unit[rows], lanes, unit_bytes)
    return Passes(wavefronts.reshape(warps), ideal.reshape(warps))


def _merges(addresses: NDArray[np.int64], active: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each warp's load merges neighbouring lane groups."""
    lanes = np.arange(32)
    alone_or_alike = [
        (~active | ~active[:, lanes ^ step] | (addresses == addresses[:, lanes ^ step])).all(axis=1) for step in (1, 2)
    ]
    merges: NDArray[np.bool_] = alone_or_alike[0] | alone_or_alike[1]
    return merges


def _group_passes(
    unit: NDArray[np.int64], group_lanes: int, unit_bytes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(wavefronts, groups with an active lane) of each warp; `unit` is -1 on inactive lanes."""
    units_per_pass = PASS_BYTES // unit_bytes
    groups = np.sort(unit.reshape(-1, group_lanes), axis=1)
    distinct = groups >= 0
    distinct[:, 1:] &= groups[:, 1:] != groups[:, :-1]
    slot = groups % units_per_pass + units_per_pass * np.arange(len(groups))[:, None]
    in_bank = np.bincount(slot[distinct], minlength=units_per_pass * len(groups))
    of_group = in_bank.reshape(len(groups), units_per_pass).max(axis=1, initial=0)
    per_warp = of_group.reshape(len(unit), 32 // group_lanes)
    return per_warp.sum(axis=1), (per_warp > 0).sum(axis=1)
