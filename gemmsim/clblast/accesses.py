"""What the CLBlast kernel's warps ask of shared memory and of L1: addresses lane by lane, and what they cost.

Of A (along m, with MDIMC, MDIMA, VWM, SA), and likewise of B:

copy    staged: each thread's vectors of the tile, from global memory to shared memory
step    a thread's run of MWI neighbours, once a step of k: from shared memory where staged, else from global memory
result  a thread's run of C, for each of its columns

An access moves a vector, one of 8 is two of 128 bits: the compiler knows nothing more of how pointers are aligned.
But where both tiles are staged it lays B behind A, and joins neighbours of B to the vectors of A where these are wider
(read off the times of the public search spaces: see docs/clblast.md). Other steps, rows and blocks shift addresses by
whole sectors, alike for all lanes, so that one of them stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import passes
from gemmsim.clblast.configurations import WIDEST, Configurations, Numbers
from gemmsim.coalescing import l1_wavefronts, transactions
from gemmsim.tiling import WARP_SIZE

ELEMENT_BYTES = 4
ROW_ELEMENTS = 4096
"""Elements from row to row of a matrix where global addresses are made up. Requests and sectors are those of every
pitch of whole sectors; of L1's lookups others may take a few more or less, because its tags are hashed."""
Columns = tuple[Numbers, ...]
Lanes = tuple[Any, Any]
"""Byte addresses and activity of lanes, of the shape (accesses, 32)."""


@dataclass(frozen=True)
class Cost:
    """One kind of access, of all warps of a block; arrays with an entry for each configuration.

    `elements` are those of active lanes, a broadcast counted for each; `wavefronts` those of the banks, for global
    loads those of L1's data stage; `sectors` and `lookups` (of L1's tag stage) are 0 in shared memory.
    """

    elements: Numbers
    requests: Numbers
    wavefronts: Numbers
    sectors: Numbers
    lookups: Numbers

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(mine + its for mine, its in zip(vars(self).values(), vars(other).values(), strict=True)))

    def __mul__(self, times: Numbers) -> Cost:
        return Cost(*(times * count for count in vars(self).values()))


@dataclass(frozen=True)
class Accesses:
    """The accesses of a block: loads of one step of k, the copy of one tile of KWG steps, and C, which is read and
    written alike, once."""

    global_step: Cost
    shared_step: Cost
    copy_load: Cost
    copy_store: Cost
    result: Cost

    def of_launch(self, c: Configurations, blocks: Numbers, tiles: Numbers) -> dict[str, Cost]:
        """Totals of a launch of so many blocks, each with so many tiles of k: global and shared loads and stores.

        `global_load` has the loads of C as well, `global_store` its stores.
        """
        once, steps = self.result * blocks, blocks * tiles * c.kwg
        return {
            "global_load": self.global_step * steps + self.copy_load * (blocks * tiles) + once,
            "global_store": once,
            "shared_load": self.shared_step * steps,
            "shared_store": self.copy_store * (blocks * tiles),
        }


def accesses(c: Configurations) -> Accesses:
    """What a block of each configuration asks for. Configurations must be legal."""
    wide_a, wide_b = (np.minimum(vector, WIDEST) for vector in (c.vwm, c.vwn))
    joined_b = np.where(c.sa == 1, np.maximum(wide_a, wide_b), wide_b)
    of_a = _operand(c, (c.mwg, c.mdimc, c.mdima, wide_a, wide_a, c.sa), 0)
    of_b = _operand(c, (c.nwg, c.ndimc, c.ndimb, wide_b, joined_b, c.sb), 1)
    rows_of_c = (c.mdimc, c.threads, c.mwi, c.nwi, 0 * c.mwg + ROW_ELEMENTS)
    result = _counted(_global, _copy_lanes, wide_a, rows_of_c) * c.nwi
    global_step, shared_step, copy_load, copy_store = (a + b for a, b in zip(of_a, of_b, strict=True))
    return Accesses(global_step, shared_step, copy_load, copy_store, result)


def _operand(c: Configurations, of: Columns, axis: int) -> Iterator[Cost]:
    """global_step, shared_step, copy_load and copy_store of A (lanes along the first axis of the block) or of B."""
    tile, along, copied_along, width, shared_width, staged = of
    run, copied_run = tile // along, tile // copied_along
    rows = c.kwg * copied_along // c.threads  # that each thread copies
    step = (c.mdimc, c.threads, run, axis + 0 * run)
    copy = (copied_along, c.threads, copied_run, rows)
    yield _counted(_global, _step_lanes, width, step) * (1 - staged)
    yield _counted(_shared_load, _step_lanes, np.gcd(shared_width, run), step) * staged
    yield _counted(_global, _copy_lanes, width, (*copy, 0 * rows + ROW_ELEMENTS)) * (staged * rows)
    yield _counted(_shared_store, _copy_lanes, np.gcd(shared_width, copied_run), (*copy, tile)) * (staged * rows)


def _counted(count: Callable[..., Any], lanes: Callable[..., Lanes], width: Numbers, columns: Columns) -> Cost:
    """The cost of each row of width and columns; every distinct row once, all of one width together."""
    given = np.stack((width, *columns))
    keys = np.ravel_multi_index(tuple(given), tuple(given.max(axis=1) + 1))  # far quicker to sort than rows
    _, first, which = np.unique(keys, return_index=True, return_inverse=True)
    table = given[:, first].T
    counts = np.empty((len(table), 5), np.int64)
    for elements in np.unique(table[:, 0]):
        (rows,) = np.nonzero(table[:, 0] == elements)
        cases = [lanes(*map(int, table[row])) for row in rows]
        starts = np.cumsum([0, *(len(addresses) for addresses, _ in cases[:-1])])
        addresses, active = (np.concatenate(part) for part in zip(*cases, strict=True))
        each = np.stack(
            (elements * active.sum(axis=1), np.ones(len(active)), *count(addresses, active, elements)), axis=1
        )
        counts[rows] = np.add.reduceat(each.astype(np.int64), starts)
    return Cost(*counts[which.ravel()].T)


def _step_lanes(width: int, lanes: int, threads: int, run: int, axis: int) -> Lanes:
    """A step's loads: threads lie `lanes` to a row; runs follow each other along an axis."""
    thread = _threads(threads)
    return _vectors((thread % lanes, thread // lanes)[axis] * run, run, width, thread < threads)


def _copy_lanes(width: int, lanes: int, threads: int, run: int, rows: int, pitch: int) -> Lanes:
    """Accesses of a copy, or to C, to one of the `rows` rows of each thread: threads lie `lanes` to a row, each with a
    run."""
    thread = _threads(threads)
    return _vectors(thread // lanes * rows * pitch + thread % lanes * run, run, width, thread < threads)


def _threads(threads: int) -> NDArray[np.int64]:
    """Numbers of the threads, a warp a row; the last ones may not exist."""
    return np.arange(-(-threads // WARP_SIZE) * WARP_SIZE).reshape(-1, WARP_SIZE)


def _vectors(start: Any, run: int, width: int, exists: Any) -> Lanes:
    """Accesses to the vectors of runs that start at these elements."""
    offsets = np.arange(0, run, width)[:, None, None]
    addresses = ELEMENT_BYTES * (start + offsets).reshape(-1, WARP_SIZE)
    return addresses, np.tile(exists, (run // width, 1))


def _shared_load(addresses: Any, active: Any, width: int) -> tuple[Any, ...]:
    wavefronts = passes(addresses, active, ELEMENT_BYTES * width, store=False).wavefronts
    return wavefronts, 0 * wavefronts, 0 * wavefronts


def _shared_store(addresses: Any, active: Any, width: int) -> tuple[Any, ...]:
    wavefronts = passes(addresses, active, ELEMENT_BYTES * width, store=True).wavefronts
    return wavefronts, 0 * wavefronts, 0 * wavefronts


def _global(addresses: Any, active: Any, width: int) -> tuple[Any, ...]:
    stages = l1_wavefronts(addresses, active, ELEMENT_BYTES * width)
    return stages.data, transactions(addresses, active, ELEMENT_BYTES * width).sectors, stages.tag
