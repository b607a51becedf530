"""Which blocks run at once, which multiprocessor gets the next one, and what of their tiles L2 has not held before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmsim.device import Device
from gemmsim.pipeline.timing import ALL, NOTHING, Shares
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import Tiling, grid

if TYPE_CHECKING:
    from gemmsim.pipeline.multiprocessor import Ran

UNEVEN = 0.04
"""How much later than on the fastest multiprocessor the blocks of the slowest end: on an H200 2 to 6 %."""
IN_STEP, APART = 1.6, 0.2
"""Blocks of thread tiles that together ask for less than `IN_STEP` times what one takes alone, its waits included, of
what they ask for most, end so much nearer to each other than simulated. Stamps of the clock in 23 launches of an H200
say so: the first of a multiprocessor's blocks ended after 0.91 of the time of the last, on average over 18 of them,
where 0.66 is simulated, but after 0.67 instead of 0.49 in the other five. Without thread tiles, or with tiles of warps,
blocks end about as simulated."""
WAVES = 16
"""Waves that are looked at block by block."""
ROUNDS = 4
"""Rounds of blocks that are handed out one by one; before, all multiprocessors get as many."""


class Wave(NamedTuple):
    """Blocks that a multiprocessor has at once: `times` in a row; `cold`, the share of their tiles of A and of B that
    L2 has not held before they begin."""

    resident: int
    times: int
    cold: Shares
    active_sms: int


def first_wave(blocks: int, blocks_per_sm: int, device: Device) -> Wave:
    """The blocks that begin with the launch, spread evenly; L2 holds nothing of what they need."""
    return Wave(min(blocks_per_sm, ceil_div(blocks, device.sms)), 1, ALL, min(blocks, device.sms))


def read_ahead(problem: Problem, tiling: Tiling, blocks: int, sms: int) -> Shares:
    """Share of their tiles, of A and of B, that blocks find in L2 since multiprocessors with one block less run ahead.

    Of the first `blocks`, in turn to all `sms`; those of one row of blocks share a tile of A, those of a column B.
    """
    if blocks < sms or not blocks % sms:
        return NOTHING
    numbers = np.arange(blocks)
    ahead = numbers % sms >= blocks % sms
    tiles, part = np.divmod(numbers, int(tiling.split_k))
    row, column = place_of(tiles, problem, tiling)
    both = row * tiling.split_k + part, column * tiling.split_k + part
    return Shares(*(float(np.isin(keys[~ahead], keys[ahead]).mean()) for keys in both))


def place_of(tiles: Any, problem: Problem, tiling: Tiling) -> tuple[Any, Any]:
    """(row, column) of blocks by the numbers of their tiles: down `group` rows, then on along n (kernels/split.cuh)."""
    down, across = grid(problem, tiling).m, grid(problem, tiling).n
    band, within = np.divmod(tiles, tiling.group * across)
    column, row = np.divmod(within, np.minimum(tiling.group, down - band * tiling.group))
    return band * tiling.group + row, column


def drawn_together(pair: Ran) -> Ran:
    """Two waves of blocks whose ends lie so much nearer to the last one of their wave as those of blocks in step do."""
    resident = len(pair.block_ends) // 2
    waves = pair.block_ends[:resident], pair.block_ends[resident:]
    return pair._replace(block_ends=tuple(ends[-1] - APART * (ends[-1] - end) for ends in waves for end in ends))


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


def cold_share(problem: Problem, tiling: Tiling, device: Device, first: int, last: int, at_once: int) -> Shares:
    """Share of their tiles of A and of B that L2 has not held before, of blocks `first` to `last`, `at_once` in a wave.

    A tile of A or B is new to a wave none of whose predecessors has a block that shares it. Everything is new where A
    and B do not stay in L2. Of more than `WAVES` waves the first ones stand for all.
    """
    if not fits_in_l2(problem, device):
        return ALL
    numbers = np.arange(first, min(last, first + WAVES * at_once))
    began = first + (numbers - first) // at_once * at_once
    tiles, part = np.divmod(numbers, int(tiling.split_k))
    row, column = place_of(tiles, problem, tiling)
    down, across = grid(problem, tiling).m, grid(problem, tiling).n
    row_first = row // tiling.group * tiling.group * across + row % tiling.group
    column_first = column * np.minimum(tiling.group, down)
    return Shares(*(float((tile * tiling.split_k + part >= began).mean()) for tile in (row_first, column_first)))


def fits_in_l2(problem: Problem, device: Device) -> Any:
    """Whether A and B stay in L2 once they have been read; it keeps what all multiprocessors read twice. Sizes may be
    arrays."""
    return problem.element_bytes * problem.k * (problem.m + problem.n) <= device.l2_bytes * 2 / 3
