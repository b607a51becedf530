"""Every configuration of a space with its time by the quick route, table by table, and the best of all of them.

Only the best are kept, so memory does not grow with the space.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.search.quick_times import quick_times
from gemmsim.search.spaces import Space
from gemmsim.search.tables import Table
from gemmsim.tiling import FIELDS, Tiling

Floats = NDArray[np.float64]
TELLING = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "split_k")
"""Fields in one of which those that are kept differ, unless they are of different kernels."""


@dataclass(frozen=True)
class Result:
    """One configuration and its predicted time; what the analytic route says of it, and the simulation if it was asked;
    the name of the term that bounds it, "" where that is not known; whether both know its compiled code."""

    kernel: Kernel
    tiling: Tiling
    time_s: float
    analytic_s: float
    simulated_s: float | None = None
    bound_by: str = ""
    compiled: bool = False

    def __str__(self) -> str:
        return f"{self.kernel.name} {self.kernel.describe(self.tiling)}"


@dataclass(frozen=True)
class Scored:
    """A table of configurations of one kernel with their times: `time_s` broadcasts to its shape, infinite where a cell
    is no configuration, or none that launches; `count` are the others."""

    problem: Problem
    kernel: Kernel
    table: Table
    time_s: Floats
    count: int


class Watcher(Protocol):
    """What sees every table that a search goes through."""

    def take(self, scored: Scored) -> None:
        """Look at one table."""
        ...


def scores(of: Space) -> Iterator[Scored]:
    """Every configuration of a space with its time by the quick route, table by table."""
    for table in of.tables():
        time_s = np.where(table.legal, quick_times(of.problem, of.kernel, table.tilings, of.device), np.inf)
        count = math.prod(table.shape) // time_s.size * int(np.count_nonzero(np.isfinite(time_s)))
        if count:
            yield Scored(of.problem, of.kernel, table, time_s, count)


class Best:
    """The `most` fastest configurations of those seen, the fastest first; `seen` is how many there were in all.

    They are really different: the fastest stands for all of its kernel with the same block and thread tile and parts of
    k, whatever their warps, stages, widths, layouts of tiles and orders of blocks; of those that take as long the one
    seen first.
    """

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0
        self._kernels: list[Kernel] = []
        self._time_s: Floats = np.empty(0)
        self._rows = np.empty((0, 1 + len(FIELDS)), np.int64)  # which kernel, and the fields of the tiling

    def take(self, scored: Scored) -> None:
        """Let the rows of a table in that are faster than the slowest kept, or for which there is room."""
        self.seen += scored.count
        cells = scored.time_s.reshape(len(scored.time_s), -1)
        best_s = cells.min(axis=1)
        faster = np.flatnonzero(best_s < (self._time_s[-1] if len(self._time_s) == self.most else np.inf))
        if not len(faster):
            return
        if scored.kernel not in self._kernels:
            self._kernels.append(scored.kernel)
        places = np.unravel_index(cells[faster].argmin(axis=1), scored.time_s.shape[1:])
        chosen = vars(scored.table.flat(np.ravel_multi_index((faster, *places), scored.table.shape)))
        columns = [np.broadcast_to(self._kernels.index(scored.kernel), faster.shape)]
        columns += [np.broadcast_to(chosen[name], faster.shape) for name in FIELDS]
        time_s = np.concatenate([self._time_s, best_s[faster]])
        rows = np.concatenate([self._rows, np.stack(columns, axis=1)])
        order = np.argsort(time_s, kind="stable")  # what was seen earlier stays before what takes as long
        kept = order[_distinct(rows[order])[: self.most]]
        self._time_s, self._rows = time_s[kept], rows[kept]

    @property
    def results(self) -> tuple[Result, ...]:
        """Those that were kept, the fastest first."""
        return tuple(
            Result(self._kernels[row[0]], Tiling(**dict(zip(FIELDS, row[1:], strict=True))), time_s, time_s)
            for row, time_s in zip(self._rows.tolist(), self._time_s.tolist(), strict=True)
        )


def _distinct(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which are the first of their kernel and the telling fields; in their order."""
    telling = [0, *(1 + FIELDS.index(name) for name in TELLING)]
    return np.sort(np.unique(rows[:, telling], axis=0, return_index=True)[1])
