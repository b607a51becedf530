"""Which element every lane touches, in every load and store of every kernel: the one address truth.

A block's accesses repeat from tile to tile, so they are written down once, as the offsets of lanes
within the tile; the launch repeats them over tiles along m, n and k. Along each axis there are at most
two kinds of tile, whole ones and a last partial one, and where a tile starts matters only modulo a
sector. Totals of a launch therefore come from a few representatives, whatever the sizes.

Assumed: A, B and C start at multiples of 32 bytes, as every CUDA allocation does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import Passes, passes
from gemmsim.kernels import Kernel, Widths
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling

Lanes = NDArray[np.int64]
Direction = Literal["load", "store"]
SECTOR_BYTES = 32


@dataclass(frozen=True)
class SharedAccess:
    """One access to shared memory that a block makes, `repeats` times for every tile of k.

    `elements` and `active` have the shape (instructions, warps, 32). The repeats are the same pattern
    moved by a constant that keeps its alignment, which changes no pass.
    """

    name: str
    direction: Direction
    width: int
    elements: Lanes
    active: NDArray[np.bool_]
    repeats: int

    def passes(self, element_bytes: int) -> Passes:
        """The passes of each warp instruction, one repeat of them."""
        width_bytes = self.width * element_bytes
        return passes(self.elements * element_bytes, self.active, width_bytes, self.direction == "store")


@dataclass(frozen=True)
class GlobalAccess:
    """One access to global memory: each lane's offset along m, n and k from where its tile starts.

    `offsets` has the axes that address or guard the access; `rows` and `columns` name those of the
    matrix. Arrays have the shape (instructions, warps, 32).
    """

    name: str
    direction: Direction
    width: int
    rows: str
    columns: str
    offsets: dict[str, Lanes]
    exists: NDArray[np.bool_]
    once_per_block: bool = False


@dataclass(frozen=True)
class Segment:
    """Tiles of one kind along an axis: `count` of them from number `first`, each `left` long."""

    first: int
    count: int
    left: int


def segments(size: int, tile: int) -> list[Segment]:
    """The whole tiles of an axis, then the partial one; those that exist."""
    whole, rest = divmod(size, tile)
    kinds = [Segment(0, whole, tile), Segment(whole, 1 if rest else 0, rest)]
    return [kind for kind in kinds if kind.count]


def _by_warp(threads: int) -> tuple[Lanes, NDArray[np.bool_]]:
    """Thread numbers as (1, warps, 32), and which of them exist."""
    warps = ceil_div(threads, WARP_SIZE)
    thread = np.arange(warps * WARP_SIZE, dtype=np.int64).reshape(1, warps, WARP_SIZE)
    return thread, thread < threads


def carried_items(rows: int, columns: int, width: int, threads: int) -> tuple[Lanes, Lanes, NDArray[np.bool_]]:
    """(row, column, exists) of the vectors that each thread carries: `Carrier` in kernels/common.cuh."""
    per_row = columns // width
    items = rows * per_row
    thread, here = _by_warp(threads)
    steps = ceil_div(items, threads)
    item = thread + threads * np.arange(steps, dtype=np.int64)[:, None, None]
    return item // per_row, item % per_row * width, here & (item < items)


def shared_accesses(kernel: Kernel, tiling: Tiling, widths: Widths) -> Iterator[SharedAccess]:
    """Every access of a block to shared memory, for one tile of k (plain numbers, no arrays)."""
    if not kernel.staged:
        return
    pitch_a, pitch_b = kernel.pitches(tiling)
    row, column, exists = carried_items(tiling.block_m, tiling.block_k, widths.global_a, tiling.threads)
    if kernel.transposed:
        yield SharedAccess("store_a", "store", 1, column * pitch_a + row, exists, widths.global_a)
    else:
        yield SharedAccess("store_a", "store", widths.global_a, row * pitch_a + column, exists, 1)
    row, column, exists = carried_items(tiling.block_k, tiling.block_n, widths.global_b, tiling.threads)
    yield SharedAccess("store_b", "store", widths.global_b, row * pitch_b + column, exists, 1)

    thread, here = _by_warp(tiling.threads)
    first_row = thread // tiling.thread_columns * tiling.thread_m
    first_column = thread % tiling.thread_columns * tiling.thread_n
    from_a = first_row if kernel.transposed else first_row * pitch_a
    reads_a = tiling.thread_m * tiling.block_k // widths.shared_a
    yield SharedAccess("load_a", "load", widths.shared_a, from_a, here, reads_a)
    reads_b = tiling.block_k * tiling.thread_n // widths.shared_b
    yield SharedAccess("load_b", "load", widths.shared_b, first_column, here, reads_b)


def global_accesses(kernel: Kernel, tiling: Tiling, widths: Widths) -> Iterator[GlobalAccess]:
    """Every access of a block to global memory: for one tile of k, and the results once."""
    thread, here = _by_warp(tiling.threads)
    row, column = thread // tiling.thread_columns, thread % tiling.thread_columns
    if kernel.staged:
        along_m, along_k, exists = carried_items(tiling.block_m, tiling.block_k, widths.global_a, tiling.threads)
        yield GlobalAccess("load_a", "load", widths.global_a, "m", "k", {"m": along_m, "k": along_k}, exists)
        along_k, along_n, exists = carried_items(tiling.block_k, tiling.block_n, widths.global_b, tiling.threads)
        yield GlobalAccess("load_b", "load", widths.global_b, "k", "n", {"k": along_k, "n": along_n}, exists)
    else:  # a thread outside C has left, so both axes of C guard both loads
        offsets = {"m": row, "n": column, "k": np.zeros_like(row)}
        yield GlobalAccess("load_a", "load", 1, "m", "k", offsets, here)
        yield GlobalAccess("load_b", "load", 1, "k", "n", offsets, here)

    in_row = np.arange(tiling.thread_m).repeat(tiling.thread_n // widths.global_c)[:, None, None]
    in_column = np.tile(np.arange(0, tiling.thread_n, widths.global_c), tiling.thread_m)[:, None, None]
    results = {"m": row * tiling.thread_m + in_row, "n": column * tiling.thread_n + in_column}
    yield GlobalAccess("store_c", "store", widths.global_c, "m", "n", results, here, once_per_block=True)


def count_global(access: GlobalAccess, problem: Problem, tiling: Tiling) -> tuple[int, int]:
    """(requests, sectors) of one access over the whole launch.

    A request is a warp instruction with an active lane; sectors are the distinct 32-byte sectors that
    its active lanes touch. Exact for every size: the classes of
    tiles are enumerated, with how often each alignment occurs.
    """
    sizes = {"m": problem.m, "n": problem.n, "k": problem.k}
    tiles = {"m": tiling.block_m, "n": tiling.block_n, "k": tiling.block_k}
    sector_elements = SECTOR_BYTES // problem.element_bytes
    leading = sizes[access.columns]
    elsewhere = 1
    for axis in "mnk":
        if axis not in access.offsets and not (axis == "k" and access.once_per_block):
            elsewhere *= sum(part.count for part in segments(sizes[axis], tiles[axis]))
    lane_element = access.offsets[access.rows] * leading + access.offsets[access.columns]

    requests = sectors = 0
    for parts in product(*(segments(sizes[axis], tiles[axis]) for axis in access.offsets)):
        at = dict(zip(access.offsets, parts, strict=True))
        active = access.exists
        for axis, part in at.items():
            active = active & (access.offsets[axis] < part.left)
        requests += elsewhere * math.prod(part.count for part in parts) * int(active.any(axis=-1).sum())

        guards = elsewhere
        for axis, part in at.items():
            if axis not in (access.rows, access.columns):
                guards *= part.count
        starts = _alignments(at[access.rows], tiles[access.rows] * leading, sector_elements)
        shifts = _alignments(at[access.columns], tiles[access.columns], sector_elements)
        occurrences = [0] * sector_elements
        for (start, n_start), (shift, n_shift) in product(enumerate(starts), enumerate(shifts)):
            occurrences[(start + shift) % sector_elements] += n_start * n_shift
        for alignment, occurs in enumerate(occurrences):
            if occurs:
                touched = np.where(active, (lane_element + alignment) // sector_elements, -1)
                sectors += guards * occurs * _distinct(touched)
    return requests, sectors


def _alignments(part: Segment, stride: int, modulus: int) -> list[int]:
    """How many tiles of the segment start at each offset modulo `modulus`, tiles being `stride` apart."""
    counts = [0] * modulus
    for phase in range(min(modulus, part.count)):
        alike = (part.count - phase - 1) // modulus + 1
        counts[(part.first + phase) * stride % modulus] += alike
    return counts


def _distinct(values: Lanes) -> int:
    """Distinct non-negative values of each row of 32 lanes, summed over rows."""
    ordered = np.sort(values.reshape(-1, WARP_SIZE), axis=1)
    new = ordered >= 0
    new[:, 1:] &= ordered[:, 1:] != ordered[:, :-1]
    return int(new.sum())
