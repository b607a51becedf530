"""What asynchronous copies into shared memory cost: passes, and sectors of those past L1."""

from __future__ import annotations

import numpy as np

from gemmsim.banks import COPY_WIDTHS_BYTES, Lanes, Mask, Passes, async_copy_passes, is_first
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.tiling import WARP_SIZE


def copies_through_l1(width_bytes: int) -> bool:
    """Whether copies of this width go through L1: the widest are written such that they do not."""
    return width_bytes < COPY_WIDTHS_BYTES[-1]


def copy_passes(elements: Lanes, sources: Lanes, active: Mask, width_bytes: int, element_bytes: int) -> Passes:
    """The passes of copies into shared memory: through L1 but for the widest, which go past it.

    For those the rule is a conjecture (see `gemmsim.banks.async_copy_passes`); supposed is besides that zeros,
    which lanes beyond the end of k write, take the passes of what would lie there.
    """
    through_l1 = copies_through_l1(width_bytes)
    return async_copy_passes(
        elements * element_bytes, active, width_bytes, through_l1, None if through_l1 else sources * element_bytes
    )


def past_l1_sectors(targets: Lanes, sources: Lanes, active: Mask, element_bytes: int) -> Lanes:
    """Sectors that hardware counts of each copy past L1, given the elements where lanes start.

    A sector of 32 bytes counts once for each aligned 32 bytes of shared memory to which its halves go in the same
    order: once where it moves whole, twice where its halves part, and once more for each repeat. As counted on an H200.
    """
    sector, half = (SECTOR_BYTES // size // element_bytes for size in (1, 2))
    swapped = (targets // half ^ sources // half) & 1
    moves = (each.reshape(-1, WARP_SIZE) for each in (sources // sector, 2 * (targets // sector) + swapped))
    counted: Lanes = np.count_nonzero(is_first(active.reshape(-1, WARP_SIZE), *moves), axis=-1)
    return counted.reshape(active.shape[:-1])
