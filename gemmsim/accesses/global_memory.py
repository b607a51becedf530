"""Which element of the matrices in global memory every lane touches, in every load, store and copy of every kernel.

A block's accesses repeat from tile to tile, so they are written down once, as the places of lanes within the tile.
`gemmsim.accesses.classes` lays them over a launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gemmsim.accesses.lane_runs import ONCE, Direction, Runs, runs_of_threads, runs_of_vectors
from gemmsim.accesses.warp_tiles import copies_of_a, copies_of_b, first_elements, lanes_along, piece, pieces
from gemmsim.banks import Lanes, Mask
from gemmsim.kernels import Kernel, Widths
from gemmsim.tiling import WARP_SIZE, Tiling


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
        return self.runs.instructions * len(self.moves_down) * len(self.moves_across)


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
