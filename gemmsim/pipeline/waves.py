"""Which blocks run at once, which multiprocessor gets the next one, and what of their tiles L2 has not held before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmsim.device import Device
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import Tiling, grid

if TYPE_CHECKING:
    from gemmsim.pipeline.multiprocessor import Ran

UNEVEN = 0.04
"""How much later than on the fastest multiprocessor the blocks of the slowest end: on an H200 2 to 6 %."""
ROUNDS = 4
"""Rounds of blocks that are handed out one by one; before, all multiprocessors get as many."""


class Wave(NamedTuple):
    """Blocks that a multiprocessor has at once: `times` in a row; `cold`, the share of the bytes of their tiles that L2
    has not held before they begin."""

    resident: int
    times: int
    cold: float
    active_sms: int


def first_wave(blocks: int, blocks_per_sm: int, device: Device) -> Wave:
    """The blocks that begin with the launch, spread evenly; L2 holds nothing of what they need."""
    return Wave(min(blocks_per_sm, ceil_div(blocks, device.sms)), 1, 1.0, min(blocks, device.sms))


def read_ahead(problem: Problem, tiling: Tiling, blocks: int, sms: int) -> float:
    """Share of the bytes of their tiles that blocks find in L2 since multiprocessors with one block less run ahead.

    Of the first `blocks`, in turn to all `sms`; those of one row of blocks share a tile of A, those of a column B.
    """
    if blocks < sms or not blocks % sms:
        return 0.0
    numbers = np.arange(blocks)
    ahead = numbers % sms >= blocks % sms
    tiles, part = np.divmod(numbers, int(tiling.split_k))
    row, column = place_of(tiles, problem, tiling)
    shares = [
        np.isin(keys[~ahead], keys[ahead]).mean()
        for keys in (row * tiling.split_k + part, column * tiling.split_k + part)
    ]
    return float(np.average(shares, weights=(tiling.block_m, tiling.block_n)))


def place_of(tiles: Any, problem: Problem, tiling: Tiling) -> tuple[Any, Any]:
    """(row, column) of blocks by the numbers of their tiles: down `group` rows, then on along n (kernels/split.cuh)."""
    down, across = grid(problem, tiling).m, grid(problem, tiling).n
    band, within = np.divmod(tiles, tiling.group * across)
    column, row = np.divmod(within, np.minimum(tiling.group, down - band * tiling.group))
    return band * tiling.group + row, column


def busiest(pair: Ran, left: int, sms: int) -> int:
    """Blocks that the multiprocessor gets that is fastest, after its first ones, of `left` that are handed out.

    `pair` is what two waves of blocks on it took; after these, blocks go on ending as those of the second did. Each
    block begins where one ended first; others are slower by up to `UNEVEN`.
    """
    resident = len(pair.block_ends) // 2
    alike = max(0, left // (resident * sms) - ROUNDS)
    left -= alike * resident * sms
    second = np.asarray(pair.block_ends[resident:])
    period = pair.cycles - pair.block_ends[resident - 1]
    rounds = np.arange(ceil_div(left, resident * sms) + 1)
    ends = np.concatenate([pair.block_ends[:resident], (second + period * rounds[:, None]).ravel()])
    slowness = np.linspace(1, 1 + UNEVEN, sms)
    # Of blocks that end at once on one multiprocessor each gives way to another, as long as there are any.
    takers = np.argsort(ends[:, None] * slowness, axis=None, kind="stable")[:left] % sms
    return alike * resident + int(np.count_nonzero(takers == 0))


def cold_share(problem: Problem, tiling: Tiling, device: Device, resident: int) -> float:
    """Share of the bytes of their tiles that later blocks are the first to need, on average.

    Blocks go along strips of `group` rows of blocks. Where those that run at once cover whole strips, each wave begins
    new rows of A, and knows B from the one before; where not, A is new only as often as a strip begins, and B in the
    first strip. Strips and waves that do not fit into each other begin in each other's middle. Everything is new where
    A and B do not stay in L2.
    """
    if not fits_in_l2(problem, device):
        return 1.0
    blocks = grid(problem, tiling)
    at_once = resident * device.sms
    strip = blocks.n * min(tiling.group, blocks.m) * tiling.split_k
    if strip <= at_once:
        new_rows = 1 - (strip / 2 / at_once if at_once % strip else 0)
    else:
        new_rows = (at_once / 2 if strip % at_once else at_once) / strip
    new_columns = min(1.0, max(0, strip - at_once) / max(1, blocks.blocks - at_once))
    rows, columns = tiling.block_m, tiling.block_n
    return float((new_rows * rows + new_columns * columns) / (rows + columns))


def fits_in_l2(problem: Problem, device: Device) -> Any:
    """Whether A and B stay in L2 once they have been read; it keeps what all multiprocessors read twice. Sizes may be
    arrays."""
    return problem.element_bytes * problem.k * (problem.m + problem.n) <= device.l2_bytes * 2 / 3
