"""How often A and B are read from memory: what blocks that run together share, and what the next ones still find."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmsim.caches.company import Company
from gemmsim.caches.reuse import Capacity
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
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
    L2 hold for others, the first of `copies` are there in step, the second out of it.

    Supposed is that blocks start in the order of their numbers and last alike. Left out are instructions, and reads of
    the partial sums of a split k, which follow right after they are written.
    """
    in_step = _reads(problem, tiling, together, l2, copies[0])
    out_of_step = _reads(problem, tiling, together, l2, copies[1], convoys, lives)
    a, b = ((1 - apart) * step + apart * out for step, out in zip(in_step, out_of_step, strict=True))
    return a, b


def _reads(
    problem: Problem,
    tiling: Tiling,
    together: Company,
    l2: Capacity,
    copies: float,
    convoys: Any = 1,
    lives: Any = 0.0,
) -> tuple[Any, Any]:
    """The same of blocks that form so many convoys. While one reaches the place of the one before, all of the matrix
    that they share and a convoy's own part of the rest passes through L2."""
    tiles, size = grid(problem, tiling), problem.element_bytes
    written = 1.0 * size * (problem.m * problem.n + partial_sums(problem, tiling))
    group = np.minimum(tiling.group, tiles.m)
    several = together.bands > 1
    # what all of A, B and C would take of L2, and what those of a wave do
    all_a = l2.taken(1.0 * size * problem.m * problem.k, together.columns, copies)
    all_b = l2.taken(1.0 * size * problem.k * problem.n, together.rows, copies)
    all_c = l2.taken(written, 1)
    of_a, of_b = all_a * together.rows / tiles.m, all_b * together.columns / tiles.n
    wave = of_a + of_b + all_c * together.tiles / tiles.tiles

    # bands that one wave begins and the next one ends
    cut = (np.ceil(together.waves - 1e-9) - 1) * (together.bands % 1 > 1e-9) * group / tiles.m
    cut = np.minimum(np.minimum(cut, 1), tiles.n - 1)
    first_a = np.where(several, 1 + cut, passes(tiles.n, together.columns))
    first_b = passes(tiles.m, together.rows)
    round_trip = np.where(several, wave, (all_a + all_c) * group / tiles.m + all_b)
    reads_a, reads_b = 1 + (first_a - 1) * (1 - l2.kept(wave)), 1 + (first_b - 1) * (1 - l2.kept(round_trip))

    # convoys that use a row of A, all next to each other, and a column of B: each sweeps as much of its panels
    convoys = np.minimum(convoys, together.tiles)
    chain_a = np.clip(group * together.columns * convoys / together.tiles, 1, together.columns)
    chain_b = np.minimum(convoys, together.bands)
    between_a = of_a * np.minimum(1, chain_a / convoys) + of_b * np.minimum(1, chain_b / convoys)
    own_a = of_a * np.minimum(1, chain_a / chain_b)
    missed_a = 1 - l2.kept_apart(between_a, lives)
    late_a = first_a * (chain_a - 1) * missed_a
    # where no wave of a stretch ends at once, the next columns find the band's rows of A as other convoys do
    goes_on = (np.asarray(lives) > 0) & ~several
    reads_a = np.where(goes_on, np.minimum(reads_a, 1 + (first_a - 1) * missed_a), reads_a)
    late_b = first_b * (chain_b - 1) * (1 - l2.kept_apart(of_b + own_a, lives, of_a - own_a))
    lost_in_turn = 1 - l2.kept((of_a + of_b) * _turn(problem, tiling))
    return (
        reads_a + np.maximum(late_a, (tiles.n - reads_a) * lost_in_turn),
        reads_b + np.maximum(late_b, (tiles.m - reads_b) * lost_in_turn),
    )


def passes(tiles: Any, together: Any) -> Any:
    """Waves that so many tiles take, `together` at once; a last one with less than a whole tile counts in part."""
    whole = np.floor(tiles / together + 1e-9)
    return np.maximum(1.0, whole + np.minimum(1.0, tiles - whole * together))


def _turn(problem: Problem, tiling: Tiling) -> Any:
    """Share of k that blocks which run together read at the same time: a tile of k each, at least a sector of a row."""
    depth = np.maximum(tiling.block_k, SECTOR_BYTES // problem.element_bytes)
    return np.minimum(1.0, tiling.split_k * depth / problem.k)
