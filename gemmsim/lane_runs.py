"""Which items of a row of threads or vectors the lanes of each warp have: runs of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gemmsim.problem import ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling

Lanes = NDArray[np.int64]
Mask = NDArray[np.bool_]
Direction = Literal["load", "store", "copy"]
"""A copy goes from global to shared memory past the registers: one instruction that is both."""
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
