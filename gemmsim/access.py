"""Which element every lane touches, in every load and store of every kernel: the one address truth.

A block's accesses repeat from tile to tile, so they are written down once, as the places of lanes within the
tile. `gemmsim.tile_classes` lays them over a launch.

Shared memory: many warp instructions are the same pattern, moved. A move by a constant that keeps every lane
aligned, or by an exclusive or within 32 columns that is the same for all lanes, gives every bank another number
and changes no pass. Such patterns are written down once, with how often they occur.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, product
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import BANKS, COPY_WIDTHS_BYTES, Passes, async_copy_passes, is_first, passes
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.kernels import Kernel, Widths
from gemmsim.problem import ceil_div, common_power
from gemmsim.tiling import SWIZZLED_COLUMNS, WARP_SIZE, Tiling
from gemmsim.warp_tiles import copies_of_a, copies_of_b, first_elements, lanes_along, piece, pieces

Lanes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Direction = Literal["load", "store", "copy"]
"""A copy goes from global to shared memory past the registers: one instruction that is both."""
Operand = Literal["a", "b"]
OPERANDS: tuple[Operand, Operand] = "a", "b"
T = TypeVar("T")
LANE = np.arange(WARP_SIZE, dtype=np.int64)
ONCE = range(1)


@dataclass(frozen=True)
class Runs:
    """Runs of up to 32 neighbouring items, one for each instruction of each warp.

    Items are the threads of a block, or the vectors of a tile; item i is number i % per_row in row
    i // per_row. `first` and `lanes` have the shape (instructions, warps): the first item of the run, and how many
    it has, 0 where the warp has nothing to do.
    """

    first: Lanes
    lanes: Lanes
    per_row: int

    def spread(self) -> tuple[Lanes, Lanes, Mask]:
        """(row, number in its row, whether there is one) of every lane's item: (instructions, 1, warps, 32)."""
        item = self.first[:, None, :, None] + LANE
        return item // self.per_row, item % self.per_row, self.lanes[:, None, :, None] > LANE

    def alike(self, period: int, slides: bool) -> tuple[Runs, Lanes]:
        """One of all runs that are `period` rows apart, moved to the first rows, and how many those are.

        Where a run within one row `slides`, it makes no difference either where in the row it starts.
        """
        first, lanes = (each[self.lanes > 0] for each in (self.first, self.lanes))
        if slides:
            first = np.where(first % self.per_row + lanes <= self.per_row, first // self.per_row * self.per_row, first)
        kinds = first % (period * self.per_row) * (WARP_SIZE + 1) + lanes
        if (kinds == kinds[0]).all():
            kinds, times = kinds[:1], np.array([len(kinds)])
        else:
            kinds, times = np.unique(kinds, return_counts=True)
        first, lanes = np.divmod(kinds, WARP_SIZE + 1)
        return Runs(first[None], lanes[None], self.per_row), times


def runs_of_threads(tiling: Tiling) -> Runs:
    """The threads of each warp, row by row of thread tiles."""
    first = np.arange(0, tiling.threads, WARP_SIZE, dtype=np.int64)[None]
    return Runs(first, np.minimum(WARP_SIZE, tiling.threads - first), tiling.thread_columns)


def runs_of_vectors(rows: int, columns: int, width: int, threads: int) -> Runs:
    """The vectors of a tile that each warp carries, step by step: `Carrier` in kernels/common.cuh."""
    vectors = rows * columns // width
    thread = np.arange(0, threads, WARP_SIZE, dtype=np.int64)
    first = np.arange(ceil_div(vectors, threads), dtype=np.int64)[:, None] * threads + thread
    lanes = np.clip(np.minimum(threads - thread, vectors - first), 0, WARP_SIZE)
    return Runs(first, lanes, columns // width)


def pairs(outer: range, inner: range) -> tuple[Lanes, Lanes]:
    """What two nested loops go through, turn by turn, as (turns, 1, 1) each."""
    turns = np.array([*product(outer, inner)], np.int64).T[:, :, None, None]
    return turns[0], turns[1]


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
        return passes(self.elements * element_bytes, self.active, width_bytes, self.direction == "store")


@dataclass(frozen=True)
class GlobalAccess:
    """One access of a block to a matrix in global memory, for one tile of k, or once for each block.

    `matrix` names the axes of the matrix's rows and columns. Items of one row of the runs lie along `across`,
    the rows along `down`; both axes guard the access. From one item to the next it is as many elements as the steps
    say, and the instructions of a thread add the moves to that, every pair of them.
    """

    name: str
    direction: Direction
    width: int
    matrix: tuple[str, str]
    down: str
    across: str
    runs: Runs
    step_down: int = 1
    step_across: int = 1
    moves_down: range = ONCE
    moves_across: range = ONCE
    once_per_block: bool = False

    @property
    def instructions(self) -> int:
        """Instructions that a thread executes."""
        return len(self.runs.first) * len(self.moves_down) * len(self.moves_across)


@dataclass(frozen=True)
class LaneAccess:
    """One access of a block to a matrix in global memory, lane by lane, where lanes are no runs.

    `rows` and `columns` are each lane's place in the tile, `there` says which lanes there are: (instructions, warps,
    32). Places along the axis `clamped` that lie beyond the matrix become its last; along others, and along that one
    where the access is `guarded`, they guard it.
    The rest is as in `GlobalAccess`.
    """

    name: str
    direction: Direction
    width: int
    matrix: tuple[str, str]
    rows: Lanes
    columns: Lanes
    there: Mask
    clamped: str = ""
    guarded: bool = False
    once_per_block: bool = False

    @property
    def instructions(self) -> int:
        """Instructions that a thread executes."""
        return len(self.there)

    def within(self, rows_left: int, columns_left: int) -> tuple[Lanes, Lanes, Mask]:
        """(row, column, active) of every lane where the matrix reaches so far."""
        down, across = self.matrix
        rows, columns, active = self.rows, self.columns, self.there
        if self.clamped == down and not self.guarded:
            rows = np.minimum(rows, rows_left - 1)
        if self.clamped == across and not self.guarded:
            columns = np.minimum(columns, columns_left - self.width)
        return rows, columns, active & (rows < rows_left) & (columns < columns_left)


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


def column_in_a(column: Lanes, row: Lanes, tiling: Tiling, widths: Widths) -> Lanes:
    """Where a column lies in its row of the shared tile of A, transposed: rows that came as one vector are
    moved by `swizzle` columns against the next such rows. As `column_in_a` of kernels/common.cuh."""
    swizzle, together = int(tiling.swizzle), int(widths.global_a)
    return column ^ row // together * swizzle % SWIZZLED_COLUMNS


def column_in_b(column: Lanes, tiling: Tiling, widths: Widths) -> Lanes:
    """Where a column lies in its row of the shared tile of B: with a swizzle, each 32 columns are moved by one
    vector against the next. As `column_in_b` of kernels/common.cuh."""
    return column ^ column // SWIZZLED_COLUMNS * widths.shared_b % SWIZZLED_COLUMNS if tiling.swizzle else column


def _of_shape(values: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """As `np.broadcast_to`, which takes long where nothing is to be done."""
    return values if values.shape == shape else np.broadcast_to(values, shape)


@dataclass(frozen=True)
class _Plan:
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
        runs, times, outer, inner = self.runs, np.ones(self.runs.first.shape[1], np.int64), self.outer, self.inner
        if not every:
            runs, times = runs.alike(SWIZZLED_COLUMNS if self.swizzled else 1, slides=not self.swizzled)
            outer, inner = outer[:1], inner if self.crosses else inner[:1]
            times = times * (len(self.outer) * len(self.inner) // len(inner))
        row, number, active = runs.spread()
        shape = (len(runs.first), len(outer) * len(inner), len(times), WARP_SIZE)
        elements = _of_shape(self.place(row, number, *pairs(outer, inner)), shape).reshape(-1, *shape[2:])
        active = _of_shape(active, shape).reshape(elements.shape)
        instructions = len(self.runs.first) * len(self.outer) * len(self.inner)
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
    fields |= {"traversal": 0, "spread": np.minimum(tiling.spread, 1)[()]}
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


def global_accesses(kernel: Kernel, tiling: Tiling, widths: Widths) -> Iterator[GlobalAccess | LaneAccess]:
    """Every access of a block to the matrices: for one tile of k, and the results once."""
    a, b, c = ("m", "k"), ("k", "n"), ("m", "n")
    threads = runs_of_threads(tiling)
    if kernel.copies:
        yield LaneAccess("copy_a", "copy", 1, a, *copies_of_a(tiling), clamped="m")
        width = widths.global_b
        guarded = bool(tiling.spread)
        yield LaneAccess("copy_b", "copy", width, b, *copies_of_b(tiling, width), clamped="n", guarded=guarded)
    elif kernel.staged:
        of_a = runs_of_vectors(tiling.block_m, tiling.block_k, widths.global_a, tiling.threads)
        yield GlobalAccess("load_a", "load", widths.global_a, a, *a, of_a, step_across=widths.global_a)
        of_b = runs_of_vectors(tiling.block_k, tiling.block_n, widths.global_b, tiling.threads)
        yield GlobalAccess("load_b", "load", widths.global_b, b, *b, of_b, step_across=widths.global_b)
    else:  # a thread outside C has left, so both axes of C guard both loads
        yield GlobalAccess("load_a", "load", 1, a, *c, threads)
        yield GlobalAccess("load_b", "load", 1, b, *c, threads)
    if kernel.warp_tiled:
        yield _results_of_warps(tiling, widths)
        return
    yield GlobalAccess(
        "store_c", "store", widths.global_c, c, *c, threads, tiling.thread_m, tiling.thread_n,
        range(tiling.thread_m), range(0, tiling.thread_n, widths.global_c), once_per_block=True,
    )  # fmt: skip


def _results_of_warps(tiling: Tiling, widths: Widths) -> LaneAccess:
    """The results where lanes lie along both axes of a warp's tile: row by row of a thread's, vector by vector."""
    (first_row, first_column), (lane_rows, lane_columns) = first_elements(tiling), lanes_along(tiling)
    rows, columns = (
        (pieces(thread, lanes)[:, None] + np.arange(0, piece(thread), width)).reshape(-1)
        for thread, lanes, width in (
            (tiling.thread_m, lane_rows, 1), (tiling.thread_n, lane_columns, widths.global_c),
        )
    )  # fmt: skip
    shape = (len(rows) * len(columns), tiling.warps, WARP_SIZE)
    row = np.repeat(rows, len(columns))[:, None, None] + first_row
    column = np.tile(columns, len(rows))[:, None, None] + first_column
    there = np.ones(shape, bool)
    return LaneAccess("store_c", "store", widths.global_c, ("m", "n"), row, column, there, once_per_block=True)
