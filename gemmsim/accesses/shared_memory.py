"""Which element of its tiles in shared memory every lane touches, in every load, store and copy of every kernel.

Many warp instructions are the same pattern, moved. A move by a constant that keeps every lane aligned, or by an
exclusive or within 32 columns that is the same for all lanes, gives every bank another number and changes no pass. Such
patterns are written down once, with how often they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from gemmsim.accesses.copies import copy_passes
from gemmsim.accesses.lane_runs import ONCE, Direction, Runs, alike, pairs, runs_of_threads, runs_of_vectors
from gemmsim.accesses.warp_tiles import copies_of_a, copies_of_b, first_elements, lanes_along, pieces
from gemmsim.banks import BANKS, Lanes, Mask, Passes, passes_of_lanes
from gemmsim.kernels import Kernel, Widths
from gemmsim.problem import common_power
from gemmsim.tiling import SWIZZLED_COLUMNS, Tiling

Operand = Literal["a", "b"]
OPERANDS: tuple[Operand, Operand] = "a", "b"
T = TypeVar("T")


@dataclass(frozen=True)
class SharedAccess:
    """One access that a block makes to a tile in shared memory, for one tile of k.

    elements, active   of every lane: the element, counted from the start of the tile, and whether it takes part;
                       (instructions, warps, 32), or (patterns, warps, 32) where each pattern stands for others
    times              how often each warp's patterns occur: (warps,)
    instructions       that a thread executes
    start              element of the block's shared memory at which the tile starts
    sources            of a copy: where in global memory its lanes read, every row of the matrix being whole lines of
                       L1; that decides its passes where it goes past L1
    stage_elements     of a copy: from one stage of the ring to the next
    """

    name: str
    direction: Direction
    width: int
    elements: Lanes
    active: Mask
    times: Lanes
    instructions: int
    start: int
    sources: Lanes | None = None
    stage_elements: int = 0

    def passes(self, element_bytes: int) -> Passes:
        """The passes of each pattern."""
        width_bytes = self.width * element_bytes
        if self.sources is not None:
            return copy_passes(self.elements + self.start, self.sources, self.active, width_bytes, element_bytes)
        return passes_of_lanes(self.elements * element_bytes, self.active, width_bytes, self.direction == "store")


def column_in_a(column: Lanes, row: Lanes, tiling: Tiling, widths: Widths) -> Lanes:
    """Where a column lies in its row of the shared tile of A, transposed: rows that came as one vector are
    moved by `swizzle` columns against the next such rows. As `column_in_a` of kernels/common.cuh."""
    return column ^ row // widths.global_a * tiling.swizzle % SWIZZLED_COLUMNS if tiling.swizzle else column


def column_in_b(column: Lanes, tiling: Tiling, widths: Widths) -> Lanes:
    """Where a column lies in its row of the shared tile of B: with a swizzle, each 32 columns are moved by one
    vector against the next. As `column_in_b` of kernels/common.cuh."""
    return column ^ column // SWIZZLED_COLUMNS * widths.shared_b % SWIZZLED_COLUMNS if tiling.swizzle else column


def _of_shape(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """As `np.broadcast_to`, which takes long where nothing is to be done."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


class _Plan(NamedTuple):
    """One access to shared memory as the sources write it.

    `place` is the element of the tile at which the lane with item (row, number in it) starts, given what the two
    loops around the access, outer and inner, have come to. Runs whole rows of items apart are the same pattern, and
    so are those within a row, wherever in it; in a swizzled tile only those whole swizzles of rows apart. All turns
    of the loops are one pattern too, but for those of the inner one where fragments cross the swizzled columns.
    """

    name: str
    direction: Direction
    width: int
    runs: Runs
    place: Callable[[Lanes, Lanes, Lanes, Lanes], Lanes]
    swizzled: bool
    outer: range = ONCE
    inner: range = ONCE
    crosses: bool = False
    start: int = 0

    def written_down(self, every: bool) -> SharedAccess:
        """The access instruction by instruction, or pattern by pattern."""
        outer, inner = self.outer, self.inner
        if every:
            row, number, active = self.runs.spread()
            times = np.ones(row.shape[2], np.int64)
        else:
            row, number, active, times = alike(self.runs, SWIZZLED_COLUMNS if self.swizzled else None)
            outer, inner = outer[:1], inner if self.crosses else inner[:1]
            times = times * (len(self.outer) * len(self.inner) // len(inner))
        shape = (len(row), len(outer) * len(inner), *row.shape[2:])
        elements = _of_shape(self.place(row, number, *pairs(outer, inner)), shape).reshape(-1, *shape[2:])
        active = _of_shape(active, shape).reshape(elements.shape)
        instructions = self.runs.instructions * len(self.outer) * len(self.inner)
        return SharedAccess(self.name, self.direction, self.width, elements, active, times, instructions, self.start)


def shared_accesses(kernel: Kernel, tiling: Tiling, widths: Widths, every: bool = False) -> Iterator[SharedAccess]:
    """Every access of a block to shared memory, for one tile of k (plain numbers, no arrays).

    With `every` all instructions of all warps, in the order of a warp; else each pattern once.
    """
    if kernel.staged:
        yield from in_order(kernel, *(accesses_to(of, kernel, tiling, widths, every) for of in OPERANDS))


def in_order(kernel: Kernel, of_a: Iterable[T], of_b: Iterable[T]) -> Iterator[T]:
    """What there is of each access to the tile of A and to that of B, in the order in which they are made."""
    return chain.from_iterable(zip(of_a, of_b, strict=True)) if kernel.warp_tiled else chain(of_a, of_b)


def accesses_to(
    operand: Operand, kernel: Kernel, tiling: Tiling, widths: Widths, every: bool = False
) -> Iterator[SharedAccess]:
    """The accesses to the tile of one operand of a kernel that has some, as `shared_accesses`."""
    plans = _plans_of_a(kernel, tiling, widths) if operand == "a" else _plans_of_b(kernel, tiling, widths)
    for plan in plans if not kernel.copies else ():
        if not kernel.warp_tiled or plan.direction == "store":
            yield plan.written_down(every)
    if kernel.copies:
        yield _copy(operand, kernel, tiling, widths)
    if kernel.warp_tiled:
        yield _fragments_of_warps(operand, kernel, tiling, widths, every)


def what_matters(operand: Operand, kernel: Kernel, tiling: Tiling, widths: Widths) -> tuple[Tiling, Widths]:
    """The same with what makes no difference to the passes of accesses to the tile of one operand left out: so that
    tilings which differ in nothing else have their passes counted once.

    A's padding moves the tile of B. That matters to copies alone, and only within a pass.
    """
    fields = vars(tiling) | {"stages": 1, "split_k": 1, "group": 1, "pad_b" if operand == "a" else "pad_a": 0}
    fields |= {"traversal": 0, "spread": min(tiling.spread, 1)}
    if operand == "a":
        fields["spread"] = 0
        return Tiling.unchecked(**fields), Widths(widths.global_a, 1, 1, widths.shared_a, 1)
    if kernel.copies:
        fields["pad_a"] = tiling.pad_a % (BANKS // common_power(BANKS, tiling.block_k))
    fields["swizzle"] = min(tiling.swizzle, 1)
    return Tiling.unchecked(**fields), Widths(1, widths.global_b, 1, 1, widths.shared_b)


def _copy(operand: Operand, kernel: Kernel, tiling: Tiling, widths: Widths) -> SharedAccess:
    """The copy of a tile of A, which transposes it, or of B."""
    pitch_a, pitch_b = map(int, kernel.pitches(tiling))
    start = kernel.start_b(tiling)
    line, times, stage = BANKS * tiling.block_n, np.ones(tiling.warps, np.int64), start + tiling.block_k * pitch_b
    if operand == "a":
        row, along, there = copies_of_a(tiling)
        place, source = along * pitch_a + row, row * line + along
        return SharedAccess("copy_a", "copy", 1, place, there, times, len(there), 0, source, stage)
    along, column, there = copies_of_b(tiling, widths.global_b)
    place, source = along * pitch_b + column, along * line + column
    return SharedAccess("copy_b", "copy", widths.global_b, place, there, times, len(there), start, source, stage)


def _fragments_of_warps(operand: Operand, kernel: Kernel, tiling: Tiling, widths: Widths, every: bool) -> SharedAccess:
    """The fragments of A or B where lanes lie along both axes of a warp's tile.

    Rows, pieces and warps are one pattern: they differ by whole pieces.
    """
    of = OPERANDS.index(operand)
    first, lanes = first_elements(tiling)[of], lanes_along(tiling)[of]
    read, thread = ((widths.shared_a, tiling.thread_m), (widths.shared_b, tiling.thread_n))[of]
    start = (0, kernel.start_b(tiling))[of]
    rows = np.arange(tiling.block_k)[:, None] * int(kernel.pitches(tiling)[of])
    moves = (rows + pieces(thread, lanes)).reshape(-1, 1, 1)
    instructions, times = len(moves), np.ones(tiling.warps, np.int64)
    elements = moves + first
    if not every:
        elements, times = elements[:1, :1], np.array([instructions * tiling.warps])
    active = np.ones(elements.shape, bool)
    return SharedAccess(f"load_{operand}", "load", read, elements, active, times, instructions, start)


def _plans_of_a(kernel: Kernel, tiling: Tiling, widths: Widths) -> Iterator[_Plan]:
    pitch, width, read = int(kernel.pitches(tiling)[0]), widths.global_a, widths.shared_a
    vectors = runs_of_vectors(tiling.block_m, tiling.block_k, width, tiling.threads)
    threads, rows, swizzled = runs_of_threads(tiling), tiling.thread_m, bool(tiling.swizzle)

    def transposed(along_m: Lanes, along_k: Lanes) -> Lanes:
        return along_k * pitch + column_in_a(along_m, along_k, tiling, widths)

    if kernel.transposed:
        yield _Plan(
            "store_a", "store", 1, vectors, lambda row, vector, _, i: transposed(row, vector * width + i),
            swizzled, inner=range(width),
        )  # fmt: skip
        yield _Plan(
            "load_a", "load", read, threads, lambda row, _, along_k, i: transposed(row * rows + i, along_k),
            swizzled, range(tiling.block_k), range(0, rows, read),
        )  # fmt: skip
    else:
        yield _Plan("store_a", "store", width, vectors, lambda row, vector, *_: row * pitch + vector * width, swizzled)
        yield _Plan(
            "load_a", "load", read, threads, lambda row, _, along_k, i: (row * rows + i) * pitch + along_k,
            swizzled, range(0, tiling.block_k, read), range(rows),
        )  # fmt: skip


def _plans_of_b(kernel: Kernel, tiling: Tiling, widths: Widths) -> Iterator[_Plan]:
    pitch, width, read = int(kernel.pitches(tiling)[1]), widths.global_b, widths.shared_b
    vectors = runs_of_vectors(tiling.block_k, tiling.block_n, width, tiling.threads)
    threads, columns, swizzled = runs_of_threads(tiling), tiling.thread_n, bool(tiling.swizzle)

    def straight(along_k: Lanes, along_n: Lanes) -> Lanes:
        return along_k * pitch + column_in_b(along_n, tiling, widths)

    start = kernel.start_b(tiling)
    yield _Plan(
        "store_b", "store", width, vectors, lambda row, vector, *_: straight(row, vector * width),
        swizzled, start=start,
    )  # fmt: skip
    yield _Plan(
        "load_b", "load", read, threads, lambda _, number, along_k, i: straight(along_k, number * columns + i),
        swizzled, range(tiling.block_k), range(0, columns, read), swizzled and SWIZZLED_COLUMNS % columns > 0, start,
    )  # fmt: skip
