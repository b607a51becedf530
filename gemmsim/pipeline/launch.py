"""Time of a launch from the simulation of one multiprocessor: the busiest one, wave after wave.

A launch fills the multiprocessors with as many blocks as fit, over and over, then with what is left. A few passes of
the main loop are simulated, with all blocks of a multiprocessor, until they repeat; the others take as long as the last
of these. So the cost does not grow with m, n and k. What comes from below L1 comes at the rate and with the latency
that its place gives it: the first wave finds nothing in L2, later ones what has been left there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from gemmsim.caches.traffic import CacheTraffic, cache_traffic
from gemmsim.calibration import Calibration, calibration
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.pipeline.multiprocessor import run
from gemmsim.pipeline.program import Program
from gemmsim.pipeline.timing import Costs, Timing, costs, timing
from gemmsim.pipeline.work import Work
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import traffic

FEWEST_PASSES, MOST_PASSES = 6, 26
"""Passes of the main loop in the longer simulation; what further ones take is its difference to a shorter one."""


SLOWEST_OF_64 = sum(1 / number for number in range(1, 65))
"""The slowest of 64 exponentially distributed times, over their mean: a harmonic number."""
STEPS = 30_000
"""Steps of warps that a simulation may take, about: fewer passes where there are many warps."""


class Wave(NamedTuple):
    """Blocks that a multiprocessor has at once: `times` in a row, `cold` if L2 holds nothing of what they need."""

    resident: int
    times: int
    cold: bool
    active_sms: int


@dataclass(frozen=True)
class LaunchTime:
    """Cycles of a launch as simulated: of each kind of waves, and seconds that a launch takes beyond its blocks."""

    waves: tuple[tuple[Wave, float], ...]
    clock_hz: float
    overhead_s: float

    @property
    def cycles(self) -> float:
        """Cycles from the first block's start to the last one's end."""
        return sum(cycles for _, cycles in self.waves)

    @property
    def time_s(self) -> float:
        """Seconds as events around the launch measure them."""
        return self.cycles / self.clock_hz + self.overhead_s


def simulate_launch(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    program: Program,
    blocks_per_sm: int,
    known: Calibration | None = None,
) -> LaunchTime:
    """The time of a launch whose warps run this program, `blocks_per_sm` blocks fitting on a multiprocessor.

    Plain numbers, no arrays. Blocks at the edges of the matrix count as whole ones, and each wave begins when the one
    before has ended, but for the overlap of neighbouring blocks on a multiprocessor. Raises InputError when the kernel
    does not take the tiling.
    """
    known = known or calibration(device)
    moved = cache_traffic(problem, kernel, tiling, device, blocks_per_sm)
    cost = costs(problem, kernel, tiling)
    base = timing(device, known)
    life = _life(problem, tiling, kernel, program, cost)
    waves = []
    for wave in waves_of(grid(problem, tiling).blocks, blocks_per_sm, device, fits_in_l2(problem, device)):
        at = below(base, wave, device, known, moved, loaded_bytes_of(problem, kernel, tiling))
        one = life(wave.resident, wave.resident, at)
        # one after the other: the end of a wave overlaps the beginning of the next
        more = life(2 * wave.resident, wave.resident, at) - one if wave.times > 1 else 0.0
        waves.append((wave, one + (wave.times - 1) * more))
    return LaunchTime(tuple(waves), known.clock_hz or device.clock_hz, known.launch_overhead_s or 3e-6)


def waves_of(blocks: int, blocks_per_sm: int, device: Device, fits: bool) -> list[Wave]:
    """The waves of a launch: full ones, the first of them cold, and what is left; blocks spread evenly."""
    resident = min(blocks_per_sm, ceil_div(blocks, device.sms))
    full, left = divmod(blocks, resident * device.sms)
    found = []
    if full:
        found.append(Wave(resident, 1 if fits else full, True, device.sms))
        if fits and full > 1:
            found.append(Wave(resident, full - 1, False, device.sms))
    if left:
        found.append(Wave(ceil_div(left, device.sms), 1, not full or not fits, min(left, device.sms)))
    return found


def fits_in_l2(problem: Problem, device: Device) -> Any:
    """Whether A and B stay in L2 once they have been read; it keeps what all multiprocessors read twice. Sizes may be
    arrays."""
    return problem.element_bytes * problem.k * (problem.m + problem.n) <= device.l2_bytes * 2 / 3


def below(
    base: Timing, wave: Wave, device: Device, known: Calibration, moved: CacheTraffic, loaded_bytes: float
) -> Timing:
    """The timing of a wave's loads: what of them misses L1, and the rate and latency of where that comes from.

    The rate is that of the slowest of what all pass: L2, which serves requests for the same line at once, the way from
    there to the multiprocessors, and memory, for the share of it that comes from there.
    """
    filled = float(moved.l1_fill_sectors) * SECTOR_BYTES
    from_dram = min(1.0, float(moved.dram_read_bytes) / filled)
    merged = float(moved.l2_read_sectors) * SECTOR_BYTES / filled
    share = wave.active_sms / device.sms
    cycles_a_second = device.sms * device.clock_hz * share
    l2 = base.load_cycles_per_byte * share * merged
    same = cycles_a_second / (known.l2_same_lines_bytes_per_s or 2 * device.l2_bytes_per_s)
    dram = cycles_a_second / (known.dram_bytes_per_s or device.dram_bytes_per_s) * from_dram
    alone = 1 / (known.l2_bytes_per_cycle_per_sm or 64.0)
    if wave.cold:
        mean = known.cold_latency_cycles or known.dram_latency_cycles or 2 * base.global_cycles
        slowest = known.cold_slowest_cycles or mean
    else:
        mean = base.global_cycles
        slowest = known.l2_slowest_cycles or mean
    tail: float = max(0.0, slowest - mean) / (SLOWEST_OF_64 - 1)
    return base.with_(
        global_cycles=mean - tail,
        global_tail_cycles=tail,
        load_cycles_per_byte=max(alone, l2, same, dram),
        l1_misses=min(1.0, filled / max(1.0, loaded_bytes)),
    )


@cache
def loaded_bytes_of(problem: Problem, kernel: Kernel, tiling: Tiling) -> float:
    """Bytes of the sectors that the global loads of a launch ask for."""
    return float(SECTOR_BYTES * traffic(problem, kernel, tiling).loaded_sectors)


def _life(
    problem: Problem, tiling: Tiling, kernel: Kernel, program: Program, cost: Costs
) -> Callable[[int, int, Timing], float]:
    """What gives the cycles of so many blocks, so many of them at once."""
    depth = grid(problem, tiling).steps * tiling.block_k if kernel.staged else problem.k
    passes, left_over = program.passes(float(tiling.thread_m * tiling.thread_n * depth))
    repeats = ceil_div(tiling.thread_m * tiling.thread_n, 4 * tiling.split_k) if tiling.split_k > 1 else 0
    after = program.after(left_over, repeats)

    def simulated(blocks: int, resident: int, at: Timing, count: int) -> float:
        work = Work(program.prologue, program.loop, after, count, blocks, resident, tiling.warps)
        return run(work, cost, at)

    def life(blocks: int, resident: int, at: Timing) -> float:
        in_a_pass = len(program.loop) * tiling.warps * resident
        last = min(MOST_PASSES, max(FEWEST_PASSES, STEPS // in_a_pass))
        if passes <= last:
            return simulated(blocks, resident, at, round(passes))
        first = 2 * last // 5
        short, long = (simulated(blocks, resident, at, count) for count in (first, last))
        rate: float = (long - short) / (last - first)
        return long + rate * float(passes - last)

    return life
