"""How often A and B are read from memory: what blocks that run together share, and what the next ones still find."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmsim.caches.company import Company
from gemmsim.caches.reuse import Capacity
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.problem import Problem
from gemmsim.tiling import Grid, Tiling, grid
from gemmsim.traffic import partial_sums


def dram_reads(
    problem: Problem,
    tiling: Tiling,
    together: Company,
    l2: Capacity,
    convoys: Any = 1,
    apart: Any = 0.0,
    lives: Any = 1.0,
    copies: tuple[float, float] = (1.0, 1.0),
) -> tuple[Any, Any]:
    """Times that A and B are read from memory by a launch whose blocks run `together` like this, L2 empty before it.

    Blocks that run together take their panels, the rows of A and columns of B that they need, through L2 together, a
    tile of k a turn. A panel is read once for every wave that has blocks of it, unless the wave before left it there.
    A stays with a band of rows, B goes round with every band.

    Blocks start in step. To a share they fall `apart`, into up to so many `convoys` that keep step, one for each block
    of a multiprocessor, and that lag behind each other by up to so many `lives` of a block. Of the lines that parts of
    L2 hold for others, the first of `copies` are there when B comes round again, the second when a convoy that lags
    comes to them.

    Supposed is that blocks start in the order of their numbers and last alike. Left out are instructions, and reads of
    the partial sums of a split k, which follow right after they are written.
    """
    tiles, (again, late) = grid(problem, tiling), copies
    first_a, first_b = _first_reads(tiling, tiles, together)
    missed_a, missed_b = _missed_by_waves(problem, tiling, together, l2, again)
    chain_a, chain_b = _chains(tiling, tiles, together, convoys)
    late_a, late_b = _missed_by_convoys(problem, tiling, together, l2, late, convoys, lives)
    # out of step no wave of a stretch of a band ends at once: the next columns find its rows of A as other convoys do
    missed_next = np.where(together.bands > 1, missed_a, np.minimum(missed_a, late_a))
    of_a, of_b = _wave_bytes(problem, tiling, together, l2, 1, 1)
    alone = 1 - l2.kept((of_a + of_b) * _turn(problem, tiling))

    def reads(most: Any, step: Any, out: Any) -> Any:
        step, out = (times + np.maximum(0, most - times) * alone for times in (step, out))
        return (1 - apart) * step + apart * out

    step_a, step_b = 1 + (first_a - 1) * missed_a, 1 + (first_b - 1) * missed_b
    out_a = 1 + (first_a - 1) * missed_next + first_a * (chain_a - 1) * late_a
    out_b = step_b + first_b * (chain_b - 1) * late_b
    return reads(tiles.n, step_a, out_a), reads(tiles.m, step_b, out_b)


def _wave_bytes(
    problem: Problem, tiling: Tiling, together: Company, l2: Capacity, copies_a: float, copies_b: float
) -> tuple[Any, Any]:
    """What the rows of A and the columns of B of the blocks that run together take of L2 with so many of the copies."""
    tiles, size = grid(problem, tiling), 1.0 * problem.element_bytes
    of_a = l2.taken(size * problem.m * problem.k, together.columns, copies_a) * together.rows / tiles.m
    of_b = l2.taken(size * problem.k * problem.n, together.rows, copies_b) * together.columns / tiles.n
    return of_a, of_b


def _written_bytes(problem: Problem, tiling: Tiling) -> Any:
    """C, and the partial sums of a split k."""
    return 1.0 * problem.element_bytes * (problem.m * problem.n + partial_sums(problem, tiling))


def _first_reads(tiling: Tiling, tiles: Grid, together: Company) -> tuple[Any, Any]:
    """Times that A and B are read where nothing is kept from wave to wave: once for each that has blocks of them."""
    # bands that one wave begins and the next one ends
    cut = (np.ceil(together.waves - 1e-9) - 1) * (together.bands % 1 > 1e-9) * np.minimum(tiling.group, tiles.m)
    cut = np.minimum(np.minimum(cut / tiles.m, 1), tiles.n - 1)
    first_a = np.where(together.bands > 1, 1 + cut, passes(tiles.n, together.columns))
    return first_a, passes(tiles.m, together.rows)


def _missed_by_waves(
    problem: Problem, tiling: Tiling, together: Company, l2: Capacity, copies: float
) -> tuple[Any, Any]:
    """Shares of what a wave reads of A and B again that have left L2 since the one before."""
    tiles = grid(problem, tiling)
    of_a, of_b = _wave_bytes(problem, tiling, together, l2, 1, copies)
    all_c = l2.taken(_written_bytes(problem, tiling), 1)
    wave = of_a + of_b + all_c * together.tiles / tiles.tiles
    # B comes round with every band: after a wave of several, or all the waves of one
    all_a, all_b = of_a * tiles.m / together.rows, of_b * tiles.n / together.columns
    band = (all_a + all_c) * np.minimum(tiling.group, tiles.m) / tiles.m + all_b
    return 1 - l2.kept(wave), 1 - l2.kept(np.where(together.bands > 1, wave, band))


def _chains(tiling: Tiling, tiles: Grid, together: Company, convoys: Any) -> tuple[Any, Any]:
    """Of so many convoys, those that use the same rows of A, all next to each other, and the same columns of B."""
    convoys = np.minimum(convoys, together.tiles)
    of_a = np.minimum(tiling.group, tiles.m) * together.columns * convoys / together.tiles
    return np.clip(of_a, 1, together.columns), np.minimum(convoys, together.bands)


def _missed_by_convoys(
    problem: Problem, tiling: Tiling, together: Company, l2: Capacity, copies: float, convoys: Any, lives: Any
) -> tuple[Any, Any]:
    """Shares of A and B that a convoy does not find where another one has read them. While one reaches the place of the
    one before, all of the matrix that they share, a convoy's own part of the rest and a wave's C pass through L2."""
    of_a, of_b = _wave_bytes(problem, tiling, together, l2, copies, copies)
    chain_a, chain_b = _chains(tiling, grid(problem, tiling), together, convoys)
    convoys = np.minimum(convoys, together.tiles)
    between_a = of_a * np.minimum(1, chain_a / convoys) + of_b * np.minimum(1, chain_b / convoys)
    own_a = of_a * np.minimum(1, chain_a / chain_b)
    of_c = _written_bytes(problem, tiling) / together.waves
    return 1 - l2.kept_apart(between_a + of_c, lives), 1 - l2.kept_apart(of_b + own_a + of_c, lives, of_a - own_a)


def passes(tiles: Any, together: Any) -> Any:
    """Waves that so many tiles take, `together` at once; a last one with less than a whole tile counts in part."""
    whole = np.floor(tiles / together + 1e-9)
    return np.maximum(1.0, whole + np.minimum(1.0, tiles - whole * together))


def _turn(problem: Problem, tiling: Tiling) -> Any:
    """Share of k that blocks which run together read at the same time: a tile of k each, at least a sector of a row."""
    depth = np.maximum(tiling.block_k, SECTOR_BYTES // problem.element_bytes)
    return np.minimum(1.0, tiling.split_k * depth / problem.k)
