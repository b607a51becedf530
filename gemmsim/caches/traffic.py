"""What passes from L2 to the L1s, and between L2 and memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.caches.company import company
from gemmsim.caches.dram import dram_reads
from gemmsim.caches.merging import crossing_share, merged_sectors, strides
from gemmsim.caches.panels import Panels, panels, sectors_of_tiles
from gemmsim.caches.reuse import Capacity, crossings
from gemmsim.caches.scalars import apart, keeps_in_l1, l2_capacity, l2_copies, lag, neighbours, scalars
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.kernels.rules import PIECE
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import partial_sums


@dataclass(frozen=True)
class CacheTraffic:
    """Of one launch, or of many: sectors of 32 bytes, and bytes; averages, which need not be whole.

    l1_fill_sectors    that L1s, and copies past them, get from L2
    l1_write_sectors   that they send there
    l2_read_sectors    that are read in L2: fewer where requests of several multiprocessors travel as one, more where
                       one half of L2 reads the other
    l2_write_sectors   that are written in L2: what is at home in the other half passes through both
    dram_read_bytes, dram_write_bytes   between L2 and memory, by the end of the launch
    left_in_l2_bytes   that have been written and are in L2 alone then
    code_sectors, code_bytes   of instructions and constants that are read in L2 and in memory besides
    """

    l1_fill_sectors: Any
    l1_write_sectors: Any
    l2_read_sectors: Any
    l2_write_sectors: Any
    dram_read_bytes: Any
    dram_write_bytes: Any
    left_in_l2_bytes: Any
    code_sectors: Any
    code_bytes: Any

    @property
    def counters(self) -> dict[str, int]:
        """The counts of one launch that hardware counts too, by the names of records: code and matrices alike."""
        counts = {
            "l1_fill_sectors": self.l1_fill_sectors,
            "l2_read_sectors": self.l2_read_sectors + self.code_sectors,
            "l2_write_sectors": self.l2_write_sectors,
            "dram_read_bytes": self.dram_read_bytes + self.code_bytes,
            "dram_write_bytes": self.dram_write_bytes,
        }
        return {name: round(float(count)) for name, count in counts.items()}

    @property
    def bytes(self) -> dict[str, int]:
        """Bytes of one launch between L2 and the L1s, and between memory and L2, both ways; what is written, whenever
        it leaves L2."""
        through_l2 = SECTOR_BYTES * (self.l1_fill_sectors + self.l1_write_sectors)
        through_dram = self.dram_read_bytes + self.dram_write_bytes + self.left_in_l2_bytes
        return {"l2": round(float(through_l2)), "dram": round(float(through_dram))}


def cache_traffic(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, blocks_per_sm: Any) -> CacheTraffic:
    """Traffic below L1 of a launch of which each multiprocessor holds `blocks_per_sm` blocks at once.

    Caches are empty before it, as the profiler leaves them. Sizes, fields of the tiling and `blocks_per_sm` may be
    arrays; the cost does not grow with m, n and k. docs/caches.md derives it and says what it is worth.
    """
    slots, l2 = device.sms * np.maximum(1, blocks_per_sm), l2_capacity(device)
    tiles, team = grid(problem, tiling), company(problem, tiling, slots)
    resident = np.clip(tiles.blocks / device.sms, 1, np.maximum(1, blocks_per_sm))
    size = problem.element_bytes
    out = apart(problem, kernel, tiling, device, resident)
    # lags add up at random from wave to wave
    lagging = out * lag(problem, kernel)
    times_a, times_b = dram_reads(problem, tiling, team, l2, resident, lagging, team.waves**0.5, l2_copies())
    read_a, read_b = times_a * size * problem.m * problem.k, times_b * size * problem.k * problem.n
    code = code_bytes(kernel, tiling)
    gpcs = max(1.0, device.sms / scalars()["merged"]["gpc_sms"])

    partial = partial_sums(problem, tiling) * size / SECTOR_BYTES
    fills = l1_fills(problem, kernel, tiling, device, blocks_per_sm, resident, out)
    stride = strides(problem, tiling)
    crossing = (
        read_a * crossing_share(tiles.n / times_a, stride.a, team.waves, l2.parts)
        + read_b * crossing_share(tiles.m / times_b, stride.b, team.waves, l2.parts)
    ) / SECTOR_BYTES + partial * crossings(1, l2.parts) * (1 - 1 / l2.parts)
    stored = stored_sectors(problem, kernel, tiling) + partial
    output = size * problem.m * problem.n + SECTOR_BYTES * partial
    left = np.minimum(output, device.l2_bytes / l2.parts)
    return CacheTraffic(
        fills.total + partial,
        stored,
        fills.total - merged_sectors(problem, kernel, tiling, fills, device, resident, team.waves) + partial + crossing,
        stored * (1 + crossings(1, l2.parts)),
        read_a + read_b,
        output - left,
        left,
        code * (gpcs + crossings(gpcs, l2.parts)) / SECTOR_BYTES,
        code,
    )


def code_bytes(kernel: Kernel, tiling: Tiling) -> Any:
    """Code and constants that a launch reads, about: each GPC for itself, from L2."""
    values = scalars()["code"]
    unrolled = tiling.thread_m * tiling.thread_n * (tiling.block_k if kernel.staged else 1)
    return values["launch_bytes"] + values["bytes_per_ffma"] * unrolled


def l1_bytes(kernel: Kernel, tiling: Tiling, device: Device, blocks_per_sm: Any) -> Any:
    """What shared memory leaves of the unified cache: the smallest carve-out that holds the resident blocks is taken
    off. 0 where global loads do not go through a unified cache, before compute capability 7.0."""
    chip = device.capability
    if chip.unified_cache_bytes is None:
        return 0
    block = np.where(
        kernel.shared_bytes(tiling) > 0, kernel.shared_bytes(tiling) + chip.shared_bytes_reserved_per_block, 0
    )
    sizes = np.array(chip.carveouts_bytes)
    place = np.minimum(np.searchsorted(sizes, block * blocks_per_sm), len(sizes) - 1)
    return chip.unified_cache_bytes - sizes[place]


def l1_fills(
    problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, blocks_per_sm: Any, resident: Any, apart: Any
) -> Panels:
    """Sectors of A and of B that blocks get from L2: each once a block, as long as L1 keeps what two tiles share.

    Where rows do not start with a sector, neighbouring tiles of k share sectors of A. Blocks of one multiprocessor
    share rows of A as far as they are not `apart`: those of the first wave lie as many numbers apart as there are
    multiprocessors, so a row of tiles must be longer than that; later ones may have ended together and gone on with
    neighbours. Where every k is read at once, those of the first wave may have columns of B in common, too.
    """
    once, tiles, size = panels(problem, tiling), grid(problem, tiling), problem.element_bytes
    depth = np.maximum(tiling.block_k, SECTOR_BYTES // size)
    l1 = l1_bytes(kernel, tiling, device, blocks_per_sm)
    kept = Capacity(l1, l1).kept(size * depth * (tiling.block_m + tiling.block_n) * resident)
    again = (
        tiles.n * problem.m * sectors_of_tiles(problem.k, tiling.block_k, problem.k, size) if kernel.staged else once.a
    )
    of_a = kept * once.a + (1 - kept) * np.maximum(again, once.a)
    first = np.minimum(1, device.sms * resident / tiles.blocks)  # of the blocks, those of the first wave
    keeps = keeps_in_l1(problem, kernel, tiling, device, apart)
    beside = np.maximum(np.maximum(0.0, 1 - device.sms / tiles.n), (1 - first) * neighbours(kernel, tiling, device))
    alike = keeps * beside * (1 - 1 / resident) * (tiling.group == 1) * (tiling.split_k == 1)
    of_a = of_a * (1 - kept * alike)
    of_b = once.b
    if not kernel.staged:
        columns = np.minimum(resident, tiles.n // np.gcd(tiles.n, device.sms))  # of a multiprocessor's first blocks
        of_b = of_b * (1 - first * keeps * (1 - columns / resident))
    return Panels(of_a, of_b * (past_l1(problem, kernel, tiling) if kernel.copies else 1))


def past_l1(problem: Problem, kernel: Kernel, tiling: Tiling) -> Any:
    """How often a sector of B is fetched by copies. Those of 16 bytes go past L1, and move each half for itself where
    the two go to different sectors of shared memory: every second row, if rows of the matrix and of the tile shift
    against each other."""
    half = SECTOR_BYTES // problem.element_bytes // 2
    widest = kernel.widths(problem, tiling).global_b == half
    shifted = (problem.n + kernel.pitches(tiling)[1]) % (2 * half) != 0
    return np.where(widest & shifted, 1.5, 1.0)[()]


def stored_sectors(problem: Problem, kernel: Kernel, tiling: Tiling) -> Any:
    """Sectors of C that are written, counted once for each store of a warp that touches them.

    Lanes that each have a run of C, but store it in narrower pieces, touch its sectors as often.
    """
    width = kernel.widths(problem, tiling).global_c
    run = np.minimum(tiling.thread_n, PIECE) if kernel.warp_tiled else tiling.thread_n
    size = problem.element_bytes
    again = np.maximum(1, np.minimum(run, SECTOR_BYTES // size) / width)
    return problem.m * sectors_of_tiles(problem.n, tiling.block_n, problem.n, size) * again
