"""Sectors of the rows of A and of the columns of B that blocks read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.problem import Count, Problem, ceil_div
from gemmsim.tiling import Tiling, grid


def sectors_of_runs(elements: Any, spacing: Count, element_bytes: int) -> Any:
    """Sectors that a run of so many elements touches, on average over runs that start at multiples of `spacing`.

    Whatever the starts are, they fall on every multiple of g within a sector alike, g the greatest common divisor of
    the spacing and the elements of a sector, here 8. Of a run of q whole sectors and e elements more, those that start
    in its first 8 - e elements touch q + 1, the others q + 2 (and where e is 0, the one at its beginning q).
    """
    whole = SECTOR_BYTES // element_bytes
    step = np.minimum(spacing & -spacing, whole)  # a power of two divides both
    complete, rest = elements // whole, elements % whole
    late = whole / step - 1 - np.floor((whole - rest) / step)  # of the starts, those that touch one sector more
    return complete + 1 + late * step / whole


@dataclass(frozen=True)
class Panels:
    """Sectors that all blocks touch, each counted once a block: of their rows of A, and of their columns of B."""

    a: Any
    b: Any

    @property
    def total(self) -> Any:
        """Of both."""
        return self.a + self.b


def sectors_of_tiles(length: Any, tile: Any, spacing: Count, element_bytes: int) -> Any:
    """Sectors of a run of so many elements if each of the tiles that it is cut into counts its own, on average over
    rows that start at multiples of `spacing`."""
    tiles = ceil_div(length, tile)
    starts = spacing | np.where(tiles > 1, tile, 0)
    whole = sectors_of_runs(np.minimum(tile, length), starts, element_bytes)
    return (tiles - 1) * whole + sectors_of_runs(length - (tiles - 1) * tile, starts, element_bytes)


def panels(problem: Problem, tiling: Tiling) -> Panels:
    """What blocks read if each reads its part of A and B once: an average over the places of rows within sectors, so
    exact where rows start with a sector and off by less than the rows' ends where not."""
    tiles, size = grid(problem, tiling), problem.element_bytes
    depth = tiles.steps * tiling.block_k  # of a block; exact for the first, one tile more than some others
    along = sectors_of_tiles(problem.k, depth, problem.k, size)
    across = sectors_of_tiles(problem.n, tiling.block_n, problem.n, size)
    return Panels(tiles.n * problem.m * along, tiles.m * problem.k * across)
