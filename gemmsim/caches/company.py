"""Which blocks run together, and so which rows of A and columns of B are read at the same time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid


@dataclass(frozen=True)
class Company:
    """The `tiles` of C that are worked on together, on average over the launch; no number need be whole.

    rows, columns   of tiles that they lie in
    bands           runs of `group` rows of tiles among them: blocks go down a band's rows, then on along n
    waves           times that as many follow each other
    """

    tiles: Any
    rows: Any
    columns: Any
    bands: Any
    waves: Any


def company(problem: Problem, tiling: Tiling, slots: Any) -> Company:
    """The tiles whose blocks run together where the GPU holds `slots` blocks at once.

    Blocks start in the order of their numbers: `split_k` for each tile, tiles down the rows of a band and then along n
    (kernels/split.cuh; a band is one row for kernels without `group`). So those that run together are either a number
    of whole bands, or a stretch of one.
    """
    tiles = grid(problem, tiling)
    together = np.clip(slots / tiling.split_k, 1, tiles.tiles)
    group = np.minimum(tiling.group, tiles.m)
    bands = together / (group * tiles.n)
    several = bands >= 1
    return Company(
        together,
        np.where(several, np.minimum(together / tiles.n, tiles.m), np.minimum(group, together))[()],
        np.where(several, tiles.n, np.maximum(1, together / group))[()],
        np.maximum(1, bands)[()],
        tiles.tiles / together,
    )
