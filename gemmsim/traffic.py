"""Reads, requests, wavefronts and bytes at every level of the memory of a GPU.

Reads and FFMA are closed forms (docs/theory.md derives them) and take arrays as well as numbers.
Requests, wavefronts and sectors depend on the address of every lane: `gemmsim.accesses.shared_memory` and
`gemmsim.accesses.global_memory` know those, and `gemmsim.accesses.totals` how often each occurs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gemmsim.accesses.copies import copies_through_l1
from gemmsim.accesses.costs import SharedCounts, access_costs
from gemmsim.accesses.global_memory import LaneAccess, global_accesses
from gemmsim.accesses.lane_runs import Direction
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.accesses.totals import count_copy_passes, count_global, count_past_l1_sectors
from gemmsim.banks import PASS_BYTES
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.errors import InputError, require
from gemmsim.kernels import Kernel, Widths
from gemmsim.notebook import as_table
from gemmsim.problem import LARGEST_COUNT, Count, Problem, fits
from gemmsim.tiling import WARP_SIZE, Tiling, grid


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


def partial_sums(problem: Problem, tiling: Tiling) -> Count:
    """Elements of C that blocks leave to each other where they split k, each written and read once: a whole tile of
    every block."""
    m, n, _ = grid(problem, tiling).padded
    return (tiling.split_k > 1) * tiling.split_k * m * n


def working_blocks(problem: Problem, tiling: Tiling) -> Count:
    """Blocks that have a tile of k: all, unless k is split into more parts than it has tiles."""
    tiles = grid(problem, tiling)
    parts = np.minimum(tiles.k, tiling.split_k)
    return tiles.tiles * (parts if np.ndim(parts) else int(parts))


@dataclass(frozen=True)
class Reads:
    """Elements read by active lanes over the launch, a broadcast counted once for each lane."""

    global_memory: Count
    shared_memory: Count
    register: Count


def reads(problem: Problem, kernel: Kernel, tiling: Tiling) -> Reads:
    """Elements read at every level.

    Global: each block reads the part of its rows of A and of its columns of B that exists; without
    staging each of the mn threads reads its own row and column. Copies read whole tiles, the last row and column
    of a matrix in place of those beyond it, unless they are spread, which read no column twice; partial sums are read
    once more. Shared: an FFMA needs one element
    of A for every thread_n results and one of B for every thread_m; a kernel that copies reads the first fragments of
    the tile past its last as well, if it has one, and where k is split each thread its block's number. Register: two
    operands for each FFMA.
    """
    multiplied = ffma(problem, kernel, tiling)
    if not kernel.staged:
        return Reads(2 * multiplied, 0 * multiplied, 2 * multiplied)
    in_global, in_shared = block_reads(problem, tiling), multiplied // tiling.thread_n + multiplied // tiling.thread_m
    if kernel.copies:
        tiles = grid(problem, tiling)
        m, n, _ = tiles.padded
        n = n - (tiling.spread > 0) * (n - problem.n)
        in_global = m * problem.k * tiles.n + problem.k * n * tiles.m + partial_sums(problem, tiling)
        in_shared = in_shared + working_blocks(problem, tiling) * tiling.threads * (tiling.thread_m + tiling.thread_n)
        in_shared = in_shared + (tiling.split_k > 1) * tiles.blocks * tiling.threads
    return Reads(in_global, in_shared, 2 * multiplied)


@dataclass(frozen=True)
class GlobalCounts:
    """Global-memory warp instructions with an active lane, and the sectors that they touch."""

    requests: int
    sectors: int

    def __add__(self, other: GlobalCounts) -> GlobalCounts:
        return GlobalCounts(self.requests + other.requests, self.sectors + other.sectors)


@dataclass(frozen=True)
class Copies(SharedCounts):
    """Copies from global to shared memory: every warp instruction, and the sectors that they read through and past L1.

    Their wavefronts are of the writes into shared memory; past L1 these are conjectured. `reading` are the
    instructions of which a lane reads, rather than all write zeros.
    """

    reading: int
    sectors_through_l1: int
    sectors_past_l1: int

    @property
    def sectors(self) -> int:
        """Sectors that they read."""
        return self.sectors_through_l1 + self.sectors_past_l1


@dataclass(frozen=True)
class Traffic:
    """Everything counted of one launch, whole numbers; `copies` are in no other count, None where a kernel has none."""

    problem: Problem
    ffma: int
    reads: Reads
    shared_load: SharedCounts
    shared_store: SharedCounts
    global_load: GlobalCounts
    global_store: GlobalCounts
    copies: Copies | None = None

    _repr_html_ = as_table

    @property
    def counters(self) -> dict[str, int]:
        """The counts that hardware counts too, by the names of records."""
        return {
            "ffma": self.ffma,
            "shared_load_requests": self.shared_load.requests,
            "shared_store_requests": self.shared_store.requests,
            "shared_load_wavefronts": self.shared_load.wavefronts,
            "shared_store_wavefronts": self.shared_store.wavefronts,
            "global_load_requests": self.global_load.requests + (self.copies.reading if self.copies else 0),
            "global_load_sectors": self.global_load.sectors,
            "global_store_requests": self.global_store.requests,
            "global_store_sectors": self.global_store.sectors,
            **(self.copies_counted if self.copies else {}),
        }

    @property
    def copies_counted(self) -> dict[str, int]:
        """The counts of the copies, by the names of records; not their wavefronts, which are not settled."""
        assert self.copies is not None
        return {
            "copy_requests": self.copies.requests,
            "copy_sectors": self.copies.sectors_through_l1,
            "copy_past_l1_sectors": self.copies.sectors_past_l1,
        }

    @property
    def loaded_sectors(self) -> int:
        """Sectors of loads and of copies."""
        return self.global_load.sectors + (self.copies.sectors if self.copies else 0)

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes by level. `l2` is an upper bound (nothing hits in L1), `dram` a lower one (all in L2)."""
        return {
            "compulsory": self.problem.compulsory_bytes,
            "global_issued": self.reads.global_memory * self.problem.element_bytes,
            "l2": SECTOR_BYTES * (self.loaded_sectors + self.global_store.sectors),
            "dram": self.problem.compulsory_bytes,
        }

    @property
    def flop_per_byte(self) -> dict[str, float]:
        """FLOP, 2mnk, for each byte at every level that the launch uses: those of `bytes`, and for shared
        memory its wavefronts, each a pass of all banks."""
        passes = self.shared_load.wavefronts + self.shared_store.wavefronts
        passes += self.copies.wavefronts if self.copies else 0
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
    in_shared, none = _in_shared(problem, kernel, tiling, widths), GlobalCounts(0, 0)
    in_global: dict[Direction, GlobalCounts] = {"load": none, "store": none, "copy": none}
    for access in global_accesses(kernel, tiling, widths):
        in_global[access.direction] += GlobalCounts(*count_global(access, problem, tiling))
    if tiling.split_k > 1:  # partial sums lie without gaps, a fragment's piece of each lane of a warp after the other
        pieces = partial_sums(problem, tiling) // widths.shared_b
        sums = GlobalCounts(pieces // WARP_SIZE, pieces * widths.shared_b * problem.element_bytes // SECTOR_BYTES)
        in_global |= {"load": in_global["load"] + sums, "store": in_global["store"] + sums}
    counted = Traffic(
        problem,
        ffma(problem, kernel, tiling),
        reads(problem, kernel, tiling),
        in_shared["load"],
        in_shared["store"],
        in_global["load"],
        in_global["store"],
        _copies(problem, kernel, tiling, widths) if kernel.copies else None,
    )
    for name, count in (counted.counters | counted.bytes).items():
        require(count <= LARGEST_COUNT, f"{problem}: the count {name} passes 2^63 - 1")
    return counted


def _in_shared(
    problem: Problem, kernel: Kernel, tiling: Tiling, widths: Widths
) -> dict[Literal["load", "store"], SharedCounts]:
    """Loads and stores of the launch, without its copies.

    A kernel that copies loads the first fragments of a tile once more for each block that has one: of the tile past its
    last.
    Where k is split, one thread of each block stores the block's number, and all load it.
    """
    tiles, loads, stores = grid(problem, tiling), SharedCounts(0, 0, 0), SharedCounts(0, 0, 0)
    for cost in access_costs(kernel, tiling, widths, problem.element_bytes):
        if cost.op == "store":
            stores += cost * (tiles.tiles * tiles.k)
        elif cost.op == "load":
            loads += cost * (tiles.tiles * tiles.k)
            loads += cost // tiling.block_k * (working_blocks(problem, tiling) if kernel.copies else 0)
    if tiling.split_k > 1:
        once = SharedCounts(1, 1, 1)
        loads, stores = loads + once * (tiling.warps * tiles.blocks), stores + once * tiles.blocks
    return {"load": loads, "store": stores}


def _copies(problem: Problem, kernel: Kernel, tiling: Tiling, widths: Widths) -> Copies:
    """The copies of the launch: those of every tile, and of as many more for each block as are fetched ahead."""
    tiles = grid(problem, tiling)
    turns = tiles.tiles * tiles.k + tiles.blocks * tiling.tiles_ahead
    targets = {access.name: access for access in shared_accesses(kernel, tiling, widths)}
    requests = wavefronts = ideal = reading = through_l1 = past_l1 = 0
    for access in global_accesses(kernel, tiling, widths):
        if isinstance(access, LaneAccess) and access.direction == "copy":
            requests += turns * int(access.there.any(axis=-1).sum())
            passes = count_copy_passes(access, targets[access.name], problem, tiling)
            wavefronts, ideal = wavefronts + passes[0], ideal + passes[1]
            of_access = count_global(access, problem, tiling)
            reading += of_access[0]
            if copies_through_l1(access.width * problem.element_bytes):
                through_l1 += of_access[1]
            else:
                past_l1 += count_past_l1_sectors(access, targets[access.name], problem, tiling)
    return Copies(requests, wavefronts, ideal, reading, through_l1, past_l1)


def formulas(kernel: Kernel) -> dict[str, str]:
    """The closed forms of the reads, in the textbook's letters; exact where every tile divides and k is not split."""
    if not kernel.staged:
        return {"global": "2 m n k", "shared": "0", "register": "2 m n k"}
    shared = "m n k (1/r_m + 1/r_n)" if kernel.thread_tiled else "2 m n k"
    shared += " + m n (1/r_m + 1/r_n)" if kernel.copies else ""  # the first fragments of the tile past the last
    return {"global": "m n k (1/b_m + 1/b_n)", "shared": shared, "register": "2 m n k"}
