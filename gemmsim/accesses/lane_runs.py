"""Which items of a row of threads or vectors the lanes of each warp have: runs of neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Literal

import numpy as np

from gemmsim.banks import Lanes, Mask
from gemmsim.problem import ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling

Direction = Literal["load", "store", "copy"]
"""A copy goes from global to shared memory past the registers: one instruction that is both."""
LANE = np.arange(WARP_SIZE, dtype=np.int64)
ONCE = range(1)


@dataclass(frozen=True)
class Runs:
    """Runs of up to 32 neighbouring items, one for each instruction of each warp of a block of so many `threads`.

    Items are these threads, or the vectors of a tile that they carry step by step (`Carrier` in kernels/common.cuh);
    item i is number i % per_row in row i // per_row.
    """

    items: int
    per_row: int
    threads: int

    @property
    def instructions(self) -> int:
        """Instructions of a warp."""
        return int(ceil_div(self.items, self.threads))

    def written_down(self) -> tuple[Lanes, Lanes]:
        """(first item, how many, none or less where the warp has nothing to do) of each run: (instructions, warps)."""
        before = np.arange(0, self.threads, WARP_SIZE, dtype=np.int64)
        first = np.arange(self.instructions, dtype=np.int64)[:, None] * self.threads + before
        return first, np.minimum(np.minimum(WARP_SIZE, self.threads - before), self.items - first)

    def spread(self) -> tuple[Lanes, Lanes, Mask]:
        """(row, number in its row, whether there is one) of every lane's item: (instructions, 1, warps, 32)."""
        return _spread(*self.written_down(), self.per_row)


def _spread(first: Lanes, lanes: Lanes, per_row: int) -> tuple[Lanes, Lanes, Mask]:
    row, number = np.divmod(first[:, None, :, None] + LANE, per_row)
    return row, number, lanes[:, None, :, None] > LANE


@lru_cache(maxsize=2**12)
def alike(runs: Runs, period: int | None = None) -> tuple[Lanes, Lanes, Mask, Lanes]:
    """As `Runs.spread`, but one of all runs that are alike, as the warps of one instruction; and how many those are.

    Runs are alike that lie whole rows apart, and within one row wherever they start; with a `period` those alone that
    lie as many rows apart.
    """
    (first, lanes), per_row = runs.written_down(), runs.per_row
    some = lanes > 0
    first, lanes = first[some], lanes[some]
    number = first % ((period or 1) * per_row)
    if period is None:
        number *= number + lanes > per_row
    kinds = number * (WARP_SIZE + 1) + lanes
    if (kinds == kinds[0]).all():  # as most are
        kinds, times = kinds[:1], np.array([len(kinds)])
    else:
        kinds, times = np.unique(kinds, return_counts=True)
    first, lanes = np.divmod(kinds[None], WARP_SIZE + 1)
    return *_spread(first, lanes, per_row), times


def runs_of_threads(tiling: Tiling) -> Runs:
    """The threads of each warp, row by row of thread tiles."""
    return Runs(tiling.threads, tiling.thread_columns, tiling.threads)


def runs_of_vectors(rows: int, columns: int, width: int, threads: int) -> Runs:
    """The vectors of a tile, row by row."""
    return Runs(rows * columns // width, columns // width, threads)


@lru_cache(maxsize=2**8)
def pairs(outer: range, inner: range) -> tuple[Lanes, Lanes]:
    """What two nested loops go through, turn by turn, as (turns, 1, 1) each."""
    turns = np.array([*product(outer, inner)], np.int64).T[:, :, None, None]
    return turns[0], turns[1]
