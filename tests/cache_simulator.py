"""Blocks of a GEMM run against caches, sector by sector: slow, and takes nothing from the model.

All resident blocks go through k together, a tile a turn; each reads what it needs of the tile through the L1 of its
multiprocessor, then L2. When a block has stored its tile of C, the next one in order takes its place.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass


class Cache:
    """A fully associative cache of so many sectors. It evicts the least recently used one, or any where `chance` is."""

    def __init__(self, sectors: int, chance: random.Random | None = None) -> None:
        self.sectors, self.chance = sectors, chance
        self.held: dict[object, bool] = {}
        self.order: list[object] = []
        self.written_back = 0

    def touch(self, sector: object, write: bool = False) -> bool:
        """Whether the sector is there; it is afterwards."""
        hit = sector in self.held
        dirty = write or (hit and self.held[sector])
        if self.chance is None:
            self.held.pop(sector, None)
        elif not hit:
            self.order.append(sector)
        self.held[sector] = dirty
        while len(self.held) > self.sectors:
            self.evict()
        return hit

    def evict(self) -> None:
        if self.chance is None:
            victim = next(iter(self.held))
        else:
            place = self.chance.randrange(len(self.order))
            victim = self.order[place]
            self.order[place] = self.order[-1]
            self.order.pop()
        self.written_back += self.held.pop(victim)


@dataclass(frozen=True)
class Machine:
    """What the blocks run on; caches in sectors."""

    sms: int
    blocks_per_sm: int
    l1_sectors: int
    l2_sectors: int


@dataclass
class Block:
    row: int
    column: int
    part: int
    first: int
    last: int


def blocks_in_order(m, n, k, t):
    """(row, column) of the first element of C, and the first and last step of k, of every block in starting order."""
    down, across, steps = -(-m // t.block_m), -(-n // t.block_n), -(-k // t.block_k)
    tiles = []
    for band in range(0, down, t.group):
        height = min(t.group, down - band)
        tiles += [(band + i, j) for j in range(across) for i in range(height)]
    if t.group == 1:
        assert tiles == [(i, j) for i in range(down) for j in range(across)]
    return [
        Block(i * t.block_m, j * t.block_n, part, steps * part // t.split_k, steps * (part + 1) // t.split_k)
        for i, j in tiles
        for part in range(t.split_k)
    ]


def run(m, n, k, t, machine, seed=None, spread=0.0, elements=8):
    """Counter of l1_fills, l2_reads, l2_writes, dram_reads and dram_writes, in sectors, of one launch.

    With a `seed` L2 evicts at random. `spread` is by how much of its life the last of the first blocks starts later
    than the first. C is written past L1; partial sums of a split k are left out.
    """
    waiting = blocks_in_order(m, n, k, t)[::-1]
    l1 = [Cache(machine.l1_sectors) for _ in range(machine.sms)]
    l2 = Cache(machine.l2_sectors, None if seed is None else random.Random(seed))
    count = Counter()
    slots = [place % machine.sms for place in range(machine.sms * machine.blocks_per_sm)]
    running = []
    steps = -(-k // t.block_k)
    for place, sm in enumerate(slots):
        if waiting:
            block = waiting.pop()
            delay = int(spread * steps * place / len(slots))
            running.append([sm, block, block.first - delay])
    while running:
        for job in list(running):
            sm, block, step = job
            if step >= block.first and step < block.last:
                for sector in sectors_of_step(m, n, k, t, block, step, elements):
                    if not l1[sm].touch(sector):
                        count["l1_fills"] += 1
                        count["dram_reads"] += not l2.touch(sector)
            job[2] += 1
            if job[2] >= block.last:
                for sector in sectors_of_tile(m, n, t, block, elements):
                    count["l2_writes"] += 1
                    l2.touch(sector, write=True)
                if waiting:
                    job[1] = waiting.pop()
                    job[2] = job[1].first
                else:
                    running.remove(job)
    count["dram_writes"] = l2.written_back
    return count


def sectors_of_step(m, n, k, t, block, step, elements):
    """Sectors of A and B that a block reads for one tile of k."""
    depth = range(step * t.block_k, min(k, (step + 1) * t.block_k))
    if not depth:
        return
    for i in range(block.row, min(m, block.row + t.block_m)):
        first, last = i * k + depth[0], i * k + depth[-1]
        yield from (("a", s) for s in range(first // elements, last // elements + 1))
    right = min(n, block.column + t.block_n)
    for p in depth:
        first, last = p * n + block.column, p * n + right - 1
        yield from (("b", s) for s in range(first // elements, last // elements + 1))


def sectors_of_tile(m, n, t, block, elements):
    """Sectors that a block writes: of C, or where k is split its partial sums and its share of C."""
    if t.split_k > 1:
        yield from (("p", block.row, block.column, block.part, s) for s in range(t.block_m * t.block_n // elements))
    yield from list(sectors_of_c(m, n, t, block, elements))[block.part :: t.split_k]


def sectors_of_c(m, n, t, block, elements):
    """Sectors of C in a block's tile."""
    right = min(n, block.column + t.block_n)
    for i in range(block.row, min(m, block.row + t.block_m)):
        first, last = i * n + block.column, i * n + right - 1
        yield from (("c", s) for s in range(first // elements, last // elements + 1))
