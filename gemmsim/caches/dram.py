"""How often A and B are read from memory: what blocks that run together share, and what the next ones still find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.caches.company import Company
from gemmsim.caches.panels import BURST_BYTES, runs_of
from gemmsim.caches.reuse import Capacity
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import partial_sums


@dataclass(frozen=True)
class Times:
    """Times that a matrix is read from memory, on average over it.

    together   by blocks that run together, the first of which brings it in for all
    alone      by blocks that come too late for that, each for itself
    """

    together: Any
    alone: Any

    @property
    def all(self) -> Any:
        """Both."""
        return self.together + self.alone


def dram_reads(
    problem: Problem, tiling: Tiling, together: Company, l2: Capacity, convoys: Any = 1, apart: Any = 1.0
) -> tuple[Times, Times]:
    """Times that A and B are read from memory by a launch whose blocks run `together` like this, L2 empty before it.

    Blocks that run together take their panels, the rows of A and columns of B that they need, through L2 together, a
    tile of k a turn. A panel is read once for every wave that has blocks of it, unless the wave before left it there.
    A stays with a band of rows, B goes round with every band.

    Blocks start in step and fall apart during the first wave, into up to so many `convoys` of blocks that keep step, to
    the degree `apart`. Once they are spread evenly over a block's life, a whole wave passes through L2 while a convoy
    catches up with another one's place in a panel; on the way there, as much of it as they are spread.

    Supposed is that blocks start in the order of their numbers and last alike. Left out are instructions, and reads of
    the partial sums of a split k, which follow right after they are written.
    """
    tiles, size = grid(problem, tiling), problem.element_bytes
    bytes_a, bytes_b = 1.0 * size * problem.m * problem.k, 1.0 * size * problem.k * problem.n
    written = 1.0 * size * (problem.m * problem.n + partial_sums(problem, tiling))
    group = np.minimum(tiling.group, tiles.m)
    several = together.bands > 1
    # what a wave takes through L2, and what passes there between two rounds along the same columns of B
    of_a, of_b = bytes_a * together.rows / tiles.m, bytes_b * together.columns / tiles.n
    besides = of_a + written * together.tiles / tiles.tiles
    # of a life, from the last convoy of a wave to the first of the next
    followed = 1 - apart * (1 - 1 / together.waves) * (1 - 1 / np.minimum(convoys, together.bands))
    round_trip = np.where(several, of_b + besides * followed, (bytes_a + written) * group / tiles.m + bytes_b)

    first_a, first_b = np.where(several, 1.0, passes(tiles.n, together.columns)), passes(tiles.m, together.rows)
    chain_a = np.where(several, 1.0, together.columns)  # columns that follow each other along a row of tiles

    lost_in_turn = 1 - l2.kept((of_a + of_b) * _turn(problem, tiling))
    late_a, late_b = (
        first * (np.minimum(convoys, chain) - 1) * apart * (1 - _kept_when_apart(l2, sweep, together.waves))
        for first, chain, sweep in (
            (first_a, chain_a, of_a + of_b / chain_a), (first_b, together.bands, of_b + of_a / together.bands),
        )
    )  # fmt: skip
    bursts = runs_of(problem, tiling, BURST_BYTES) * BURST_BYTES / (size * np.minimum(tiling.block_n, problem.n))
    return (
        Times(
            1 + (first_a - 1) * (1 - l2.kept(of_b + besides)), np.maximum(late_a, (tiles.n - first_a) * lost_in_turn)
        ),
        Times(
            1 + (first_b - 1) * (1 - l2.kept(round_trip)),
            np.maximum(late_b * bursts, (tiles.m - first_b) * lost_in_turn),
        ),
    )


def passes(tiles: Any, together: Any) -> Any:
    """Waves that so many tiles take, `together` at once; a last one with less than a whole tile counts in part."""
    whole = np.floor(tiles / together + 1e-9)
    return np.maximum(1.0, whole + np.minimum(1.0, tiles - whole * together))


def _kept_when_apart(l2: Capacity, sweep: Any, waves: Any) -> Any:
    """Share of `sweep`, what a wave reads, that convoys find: in the first wave they get apart, later on they are."""
    return (l2.kept_on_the_way(sweep) + (waves - 1) * l2.kept(sweep)) / waves


def _turn(problem: Problem, tiling: Tiling) -> Any:
    """Share of k that blocks which run together read at the same time: a tile of k each, at least a sector of a row."""
    depth = np.maximum(tiling.block_k, SECTOR_BYTES // problem.element_bytes)
    return np.minimum(1.0, tiling.split_k * depth / problem.k)
