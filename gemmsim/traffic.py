"""Reads, requests, wavefronts and bytes at every level of the memory of a GPU.

Reads and FFMA are closed forms (docs/theory.md derives them) and take arrays as well as numbers.
Requests, wavefronts and sectors depend on the address of every lane: `gemmsim.access` knows those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmsim.access import SECTOR_BYTES, Direction, count_global, global_accesses, shared_accesses
from gemmsim.banks import PASS_BYTES
from gemmsim.errors import InputError, require
from gemmsim.kernels import Kernel, Widths
from gemmsim.problem import LARGEST_COUNT, Count, Problem, fits
from gemmsim.tiling import Tiling, grid


def ffma(problem: Problem, kernel: Kernel, tiling: Tiling) -> Count:
    """FFMA executed, per thread, over the launch; padded lanes included.

    A staged kernel multiplies whole tiles, whatever lies outside being zero; a thread of an unstaged
    one leaves when its element lies outside C. Raises InputError when the count, or that of the
    register reads, passes 2^63 - 1.
    """
    if not kernel.staged:
        return problem.m * problem.n * problem.k
    m, n, k = grid(problem, tiling).padded
    require(
        fits((2, m, n, k)),
        "the padded problem {m} x {n} x {k} has more register reads than 2^63 - 1",
        m=m, n=n, k=k,
    )  # fmt: skip
    return m * n * k


def block_reads(problem: Problem, tiling: Tiling) -> Count:
    """Elements of A and B that all blocks read if each reads its rows of A and columns of B once: A once for
    each column of blocks, B once for each row of blocks. At most 2mnk, so it is a count wherever that is."""
    tiles = grid(problem, tiling)
    return problem.m * problem.k * tiles.n + problem.k * problem.n * tiles.m


@dataclass(frozen=True)
class Reads:
    """Elements read by active lanes over the launch, a broadcast counted once for each lane."""

    global_memory: Count
    shared_memory: Count
    register: Count


def reads(problem: Problem, kernel: Kernel, tiling: Tiling) -> Reads:
    """Elements read at every level.

    Global: each block reads the part of its rows of A and of its columns of B that exists; without
    staging each of the mn threads reads its own row and column. Shared: an FFMA needs one element of A for
    every thread_n results and one of B for every thread_m. Register: two operands for each FFMA.
    """
    multiplied = ffma(problem, kernel, tiling)
    if not kernel.staged:
        return Reads(2 * multiplied, 0 * multiplied, 2 * multiplied)
    return Reads(
        block_reads(problem, tiling),
        multiplied // tiling.thread_n + multiplied // tiling.thread_m,
        2 * multiplied,
    )


@dataclass(frozen=True)
class SharedCounts:
    """Shared-memory warp instructions and wavefronts of one direction."""

    requests: Count
    wavefronts: Count
    ideal_wavefronts: Count

    @property
    def excess(self) -> Count:
        """Wavefronts beyond the ideal: bank conflicts."""
        return self.wavefronts - self.ideal_wavefronts

    def __add__(self, other: SharedCounts) -> SharedCounts:
        return SharedCounts(
            self.requests + other.requests,
            self.wavefronts + other.wavefronts,
            self.ideal_wavefronts + other.ideal_wavefronts,
        )

    def __mul__(self, times: Count) -> SharedCounts:
        return SharedCounts(self.requests * times, self.wavefronts * times, self.ideal_wavefronts * times)


@dataclass(frozen=True)
class AccessCost(SharedCounts):
    """One access to shared memory: what one block pays for it in one large iteration."""

    name: str
    op: Direction
    width_bits: int


@lru_cache(maxsize=65536)
def access_costs(kernel: Kernel, tiling: Tiling, widths: Widths, element_bytes: int = 4) -> tuple[AccessCost, ...]:
    """Every access of a block to shared memory and its cost for one tile of k, by simulating every lane."""
    costs = []
    for access in shared_accesses(kernel, tiling, widths):
        passes, repeats = access.passes(element_bytes), access.repeats
        costs.append(
            AccessCost(
                repeats * int(access.active.any(axis=-1).sum()),
                repeats * int(passes.wavefronts.sum()),
                repeats * int(passes.ideal_wavefronts.sum()),
                access.name,
                access.direction,
                8 * access.width * element_bytes,
            )
        )
    return tuple(costs)


def shared_per_tile(
    kernel: Kernel, tiling: Tiling, widths: Widths, element_bytes: int = 4
) -> tuple[SharedCounts, SharedCounts]:
    """(loads, stores) of one block for one tile of k."""
    loads = stores = SharedCounts(0, 0, 0)
    for cost in access_costs(kernel, tiling, widths, element_bytes):
        if cost.op == "load":
            loads += cost
        else:
            stores += cost
    return loads, stores


@dataclass(frozen=True)
class GlobalCounts:
    """Global-memory warp instructions with an active lane, and the sectors that they touch."""

    requests: int
    sectors: int


@dataclass(frozen=True)
class Traffic:
    """Everything counted of one launch, whole numbers."""

    problem: Problem
    ffma: int
    reads: Reads
    shared_load: SharedCounts
    shared_store: SharedCounts
    global_load: GlobalCounts
    global_store: GlobalCounts

    @property
    def counters(self) -> dict[str, int]:
        """The counts that hardware counts too, by the names of records."""
        return {
            "ffma": self.ffma,
            "shared_load_requests": self.shared_load.requests,
            "shared_store_requests": self.shared_store.requests,
            "shared_load_wavefronts": self.shared_load.wavefronts,
            "shared_store_wavefronts": self.shared_store.wavefronts,
            "global_load_requests": self.global_load.requests,
            "global_load_sectors": self.global_load.sectors,
            "global_store_requests": self.global_store.requests,
            "global_store_sectors": self.global_store.sectors,
        }

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes by level. `l2` is an upper bound (nothing hits in L1), `dram` a lower one (all in L2)."""
        return {
            "compulsory": self.problem.compulsory_bytes,
            "global_issued": self.reads.global_memory * self.problem.element_bytes,
            "l2": SECTOR_BYTES * (self.global_load.sectors + self.global_store.sectors),
            "dram": self.problem.compulsory_bytes,
        }

    @property
    def flop_per_byte(self) -> dict[str, float]:
        """FLOP, 2mnk, for each byte at every level that the launch uses: those of `bytes`, and for shared
        memory its wavefronts, each a pass of all banks."""
        passes = self.shared_load.wavefronts + self.shared_store.wavefronts
        moved = {"dram": self.bytes["dram"], "l2": self.bytes["l2"], "shared_memory": passes * PASS_BYTES}
        return {level: self.problem.flop / amount for level, amount in moved.items() if amount}

    bounds = {"l2": "upper", "dram": "lower"}  # noqa: RUF012 - one constant for all


def traffic(problem: Problem, kernel: Kernel, tiling: Tiling) -> Traffic:
    """All counts of one launch (plain numbers, no arrays), exact for every size.

    The cost does not grow with the problem. Raises InputError when the kernel does not take the tiling or
    the dtype, or a count passes 2^63 - 1.
    """
    if np.ndim(problem.m + problem.n + problem.k + tiling.threads * tiling.block_k):
        raise InputError("traffic counts one launch, of whole numbers; reads and ffma take arrays")
    kernel.check(tiling, problem=problem)
    widths = kernel.widths(problem, tiling)
    tiles = grid(problem, tiling)
    loads, stores = shared_per_tile(kernel, tiling, widths, problem.element_bytes)
    in_global: dict[str, list[int]] = {"load": [0, 0], "store": [0, 0]}
    for access in global_accesses(kernel, tiling, widths):
        requests, sectors = count_global(access, problem, tiling)
        in_global[access.direction][0] += requests
        in_global[access.direction][1] += sectors
    counted = Traffic(
        problem,
        ffma(problem, kernel, tiling),
        reads(problem, kernel, tiling),
        loads * (tiles.blocks * tiles.k),
        stores * (tiles.blocks * tiles.k),
        GlobalCounts(*in_global["load"]),
        GlobalCounts(*in_global["store"]),
    )
    for name, count in (counted.counters | counted.bytes).items():
        require(count <= LARGEST_COUNT, f"{problem}: the count {name} passes 2^63 - 1")
    return counted


def formulas(kernel: Kernel) -> dict[str, str]:
    """The closed forms of the reads, in the textbook's letters; exact where every tile divides."""
    if not kernel.staged:
        return {"global": "2 m n k", "shared": "0", "register": "2 m n k"}
    shared = "m n k (1/r_m + 1/r_n)" if kernel.thread_tiled else "2 m n k"
    return {"global": "m n k (1/b_m + 1/b_n)", "shared": shared, "register": "2 m n k"}
