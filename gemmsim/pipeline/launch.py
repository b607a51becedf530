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

from gemmsim.caches.traffic import CacheTraffic, cache_traffic
from gemmsim.calibration import Calibration, calibration
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.pipeline.costs import Costs, costs
from gemmsim.pipeline.multiprocessor import Ran, run
from gemmsim.pipeline.program import Program, Steps
from gemmsim.pipeline.ready import busy_cycles
from gemmsim.pipeline.timing import Shares, Timing, timing
from gemmsim.pipeline.waves import IN_STEP, Wave, busiest, cold_share, drawn_together, first_wave, read_ahead
from gemmsim.pipeline.work import Work
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import traffic

FEWEST_PASSES, MOST_PASSES = 6, 26
"""Passes of the main loop in the longer simulation; what further ones take is its difference to a shorter one."""


SLOWEST_OF_64 = sum(1 / number for number in range(1, 65))
"""The slowest of 64 exponentially distributed times, over their mean: a harmonic number."""
STEPS = 24_000
"""Steps of warps that a simulation may take, about: fewer passes where there are many warps."""


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

    Plain numbers, no arrays. Blocks at the edges of the matrix count as whole ones. The first blocks go to all
    multiprocessors in turn, each further one to where a block has ended: where several end at once on one, several
    begin there, and others get none. Raises InputError when the kernel does not take the tiling.
    """
    known = known or calibration(device)
    moved = cache_traffic(problem, kernel, tiling, device, blocks_per_sm)
    blocks = grid(problem, tiling).blocks
    one_of = ceil_div(blocks, device.sms)  # blocks of a multiprocessor, of which one may lie at an edge
    cost, base = costs(problem, kernel, tiling, 1 / one_of), timing(device, known)
    first = first_wave(blocks, blocks_per_sm, device)
    resident, at_once = first.resident, first.resident * device.sms
    loaded_bytes = loaded_bytes_of(problem, kernel, tiling)
    depth = grid(problem, tiling).steps * tiling.block_k if kernel.staged else problem.k
    passes, left_over = program.passes(float(tiling.thread_m * tiling.thread_n * depth))
    repeats = ceil_div(tiling.thread_m * tiling.thread_n, 4 * tiling.split_k) if tiling.split_k > 1 else 0
    life = _life(tiling, program, program.after(left_over, repeats), passes, cost)
    least_cycles = busy_cycles(program.loop, cost, tiling.warps) * passes

    @cache
    def lives(blocks: int, wave: Wave) -> Ran:
        return life(blocks, wave.resident, below(base, wave, device, known, moved, loaded_bytes))

    waves = [(first, lives(first.resident, first).cycles)]
    if any(ahead := read_ahead(problem, tiling, min(blocks, at_once), device.sms)):
        # They read what multiprocessors with a block less have read before, unless they would overtake these.
        fewer, later = (
            first._replace(resident=first.resident - 1),
            first._replace(cold=Shares(1 - ahead.a, 1 - ahead.b)),
        )
        waves = [(later, max(lives(fewer.resident, fewer).cycles, lives(first.resident, later).cycles))]
    if (left := blocks - at_once) > 0:

        def cold(begin: int, end: int) -> Shares:
            return cold_share(problem, tiling, device, begin, end, at_once)

        later = Wave(resident, 1, cold(at_once, blocks), device.sms)
        alone, pair = lives(resident, later).cycles, lives(2 * resident, later)
        if resident > 1 and kernel.thread_tiled and not kernel.warp_tiled:
            lonely = lives(1, first._replace(resident=1)).cycles
            pair = drawn_together(pair) if resident * least_cycles < IN_STEP * lonely else pair
        more = busiest(pair, left, device.sms)
        rest = (more - 1) % resident + 1
        if rounds := (more - rest) // resident:
            cycles = max(pair.cycles - alone, resident * least_cycles)
            waves.append((later._replace(times=rounds), rounds * cycles))
        begin = min(blocks - 1, (1 + rounds) * at_once)
        last = Wave(resident, 1, cold(begin, blocks), min(ceil_div(blocks - begin, rest), device.sms))
        cycles = lives(resident + rest, last).cycles - lives(resident, last).cycles
        waves.append((last, max(cycles, rest * least_cycles)))
    return LaunchTime(tuple(waves), known.clock_hz or device.clock_hz, known.launch_overhead_s or 3e-6)


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
    written_alone = 1 / (known.l2_write_bytes_per_cycle_per_sm or 32.0)
    warm, warm_tail = distance(base.global_cycles, known.l2_slowest_cycles)
    farther = known.cold_latency_cycles or known.dram_latency_cycles or 2 * base.global_cycles
    # Of the slowest of many loads some cycles are the queue that they all stand in, whether they hit L2 or not.
    queue = warm_tail * (SLOWEST_OF_64 - 1)
    slowest = known.cold_rows_slowest_cycles or known.cold_slowest_cycles
    cold, cold_tail = distance(farther, slowest and slowest - queue)
    return base.with_(
        global_cycles=warm,
        global_tail_cycles=warm_tail,
        cold_cycles=cold,
        cold_tail_cycles=cold_tail,
        cold_share=wave.cold,
        load_cycles_per_byte=max(alone, l2, same, dram),
        line_cycles=max(known.l2_line_alone_cycles or 0.0, share * (known.l2_line_cycles or 0.0)),
        store_cycles_per_byte=max(written_alone, base.store_cycles_per_byte * share),
        l1_misses=min(1.0, filled / max(1.0, loaded_bytes)),
    )


def distance(mean_cycles: float, slowest_cycles: float | None) -> tuple[float, float]:
    """(the least latency, what it takes longer on average) of loads of which the slowest of 64 took so long."""
    tail = max(0.0, (slowest_cycles or mean_cycles) - mean_cycles) / (SLOWEST_OF_64 - 1)
    return mean_cycles - tail, tail


@cache
def loaded_bytes_of(problem: Problem, kernel: Kernel, tiling: Tiling) -> float:
    """Bytes of the sectors that the global loads of a launch ask for."""
    return float(SECTOR_BYTES * traffic(problem, kernel, tiling).loaded_sectors)


def _life(
    tiling: Tiling, program: Program, after: Steps, passes: float, cost: Costs
) -> Callable[[int, int, Timing], Ran]:
    """What simulates so many blocks, so many of them at once."""

    def simulated(blocks: int, resident: int, at: Timing, count: int) -> Ran:
        work = Work(program.prologue, program.loop, after, count, blocks, resident, tiling.warps)
        return run(work, cost, at)

    def life(blocks: int, resident: int, at: Timing) -> Ran:
        in_a_pass = len(program.loop) * tiling.warps * resident
        last = min(MOST_PASSES, max(FEWEST_PASSES, STEPS // in_a_pass))
        if passes <= last:
            return simulated(blocks, resident, at, round(passes))
        first = 2 * last // 5
        short, long = (simulated(blocks, resident, at, count) for count in (first, last))
        further = float(passes - last) / (last - first)
        ends = (end + further * (end - before) for before, end in zip(short.block_ends, long.block_ends, strict=True))
        return Ran(long.cycles + further * (long.cycles - short.cycles), tuple(ends))

    return life
