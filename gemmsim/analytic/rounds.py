"""Time of a launch in closed form: rounds of its blocks, from what a tile of k demands of each resource.

The blocks that a multiprocessor holds go through their tiles of k together. A round, one tile of each, takes what the
busiest resource needs for all of them, or what one block needs alone, latencies included: a few blocks wait for their
latencies, many for the resource, and in between also for each other (`served`). A launch is rounds times tiles times
waves, with a beginning and an end. Latencies and rates are measured ones (`calibration/`); what is left open are the
named scalars of `data/rounds.toml`, which `campaigns/rounds.py` chooses and docs/accuracy.md judges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.analytic.demands import (
    UNROLLED,
    Scalars,
    SharedWork,
    demand_of,
    joined,
    or_else,
    scalars,
    served,
    timing_of,
)
from gemmsim.analytic.load_schedules import UNKNOWN, LoadSchedule
from gemmsim.calibration import Calibration, calibration
from gemmsim.coalescing import LINE_BYTES
from gemmsim.device import Device
from gemmsim.elementwise import either, larger, smaller, somewhere
from gemmsim.kernels import Kernel, Widths
from gemmsim.pipeline.waves import fits_in_l2
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling, grid

LOADED_TOGETHER = 16
"""Partial sums of other blocks that a thread loads before it waits for the first (`TOGETHER` of split.cuh)."""
WIDEST_PIECE = 4
"""Neighbours of a thread tile's row that are stored and added up at once, where it has them."""
OVER_IN_STEP, OVER = 0.5, 0.25
"""Share of another block's tile, or life, that is over when a block comes to wait for it (`served`): half of it where
blocks of thread tiles go on in step, from the first wave's beginning; half of that where they differ."""


@dataclass(frozen=True)
class LaunchRounds:
    """Cycles of a launch: `cycles` in all; tiles of k of a block; and of the kinds of waves (how many, cycles of a tile
    of one block alone whose resources are infinitely fast but for its own work)."""

    cycles: Any
    steps: Any
    lonely_waves: tuple[tuple[Any, Any], ...]

    @property
    def latency(self) -> Any:
        """Cycles that would remain if every resource were infinitely fast."""
        return (self.steps * sum(times * cycles for times, cycles in self.lonely_waves))[()]


def launch_rounds(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    widths: Widths,
    device: Device,
    shared: SharedWork,
    blocks_per_sm: Any,
    registers: Any,
    spilled: Any = 0,
    of: Scalars | None = None,
    schedule: LoadSchedule = UNKNOWN,
) -> LaunchRounds:
    """The cycles of a launch, events not counted.

    `shared` is of a block and tile; a thread has so many `registers`, and `spilled` words of local memory; its loop
    waits for loads by the `schedule`, where that is known. Sizes, tiling fields and the rest may be arrays that
    broadcast together. Valid for whole launches of one kernel on an empty GPU whose L2 holds nothing of A and B.
    """
    of, known = of or scalars(), calibration(device)
    missed = or_else(known.cold_latency_cycles, or_else(known.dram_latency_cycles, 700.0))
    hit = or_else(known.l2_latency_far_cycles, or_else(known.l2_latency_near_cycles, 300.0))
    # a block waits for the slowest of its first loads
    cold, warm = (or_else(known.cold_slowest_cycles, missed), missed), (hit, hit)
    tiles, times = grid(problem, tiling), timing_of(device, known)
    steps = tiles.steps if kernel.staged else problem.k / UNROLLED
    # whole numbers as floats, which arrays divide several times as fast; exact below 2^52
    blocks = 1.0 * tiles.blocks
    resident = smaller(larger(1.0, blocks_per_sm), np.ceil(blocks / device.sms))
    at_once = resident * device.sms
    full = np.floor(blocks / at_once)
    remaining = blocks - full * at_once
    left = np.ceil(remaining / device.sms)

    demand = demand_of(problem, kernel, tiling, widths, device, shared, registers, spilled, of, schedule)
    spills, warps = demand.spills, ceil_div(tiling.threads, WARP_SIZE)
    barriers = 0 if not kernel.staged else 1 if kernel.prefetches else 2
    barrier = barriers * (times.barrier_cycles + times.arrival_cycles * warps)
    begun_with, more_batches = smaller(1, spills.batches), larger(0, spills.batches - 1)

    lacks = somewhere(spills.held_lines)  # a great many do without, whose shared memory then does not matter
    missing = spills.missing(resident, kernel.shared_bytes(tiling), device.capability) if lacks else 0.0
    alone = demand.alone + spills.waits * (times.l1_cycles + missing * hit)
    below = demand.below + missing * spills.lines * LINE_BYTES * times.load_cycles_per_byte
    most = larger(demand.work, below)
    users = 1
    if not kernel.staged:  # no barrier binds the warps of a block: each queues for itself
        users, most, alone = warps, most / warps, alone / warps
    exposed = demand.exposed * alone

    def chain(first: Any, again: Any) -> Any:
        """Cycles of a round of one block whose resources are its own, by the latencies of its first batch of loads and
        of those that follow it."""
        if kernel.copies:
            arrived = first + demand.moving + barrier  # copies, asked for after a barrier, in one go; latencies vary
            return joined(alone + barrier, arrived / larger(1, tiling.stages - 1))
        return larger(alone, begun_with * first + exposed) + (more_batches * again + barrier)

    result = _result_bytes(problem, kernel, tiling, widths) * write_cycles(blocks, device, known)
    meeting = (of.split_cycles + _adding_cycles(tiling, hit)) * (tiling.split_k > 1)
    filling = tiling.stages * demand.moving if kernel.copies else 0.0  # of the ring, before the first tile is read

    ends = meeting + filling
    between = times.block_turnover_cycles + ends + result
    computing, writing = steps * most, result / users
    longest = np.sqrt(computing * computing + writing * writing)  # some write while others compute, by chance
    in_step, out_of_step = (OVER_IN_STEP if kernel.thread_tiled else OVER, OVER) if kernel.staged else (0.0, 0.0)

    def first_wave(resident: Any, latency: Any, chain: Any) -> Any:
        """Cycles of a wave whose blocks begin together and end together."""
        return steps * served(users * resident, most, chain, in_step) + latency + ends + resident * result

    def later_wave(resident: Any, latency: Any, chain: Any) -> Any:
        """Cycles of a wave behind another, whose blocks begin and end while others compute: each queues for what it
        needs most, through all of its life."""
        return served(users * resident, longest, steps * chain + latency + between, out_of_step)

    begun, more, rest, left = full > 0, larger(0.0, full - 1), left > 0, larger(1.0, left)
    first_chain = next_chain = last_chain = chain(*cold)
    # first blocks of one warp a sub-core that leave room to each other end in step too: two of the few behind them then
    # begin on one multiprocessor
    pairs = kernel.staged & (full == 1) & (warps <= device.schedulers_per_sm) & (resident * most < 2 * first_chain)
    left = smaller(resident, left + pairs)
    later: Any = cold[0]
    latest: Any = cold[0]
    if somewhere(fits := fits_in_l2(problem, device)):
        new_rows = tiling.block_m / (tiling.block_m + tiling.block_n)  # of A in each wave; B is known by then

        def latencies(new: Any) -> tuple[Any, Any]:
            """Of the first batch and of others, where so much of them is new to L2."""
            return tuple(near + new * (far - near) for near, far in zip(warm, cold, strict=True))

        later, again_later = latencies(either(fits, new_rows, 1.0))
        next_chain = chain(later, again_later)
        # the fewer are left, the more of them go on with rows that others have begun, and the fewer ask memory at once
        filled = remaining / at_once
        latest, again_latest = latencies(either(fits & begun, new_rows * filled, 1.0))
        last_chain = chain(latest, again_latest)
    fetching = larger(0.0, demand.code * times.code_cycles - demand.alone)  # in the first pass
    cycles = fetching + begun * first_wave(resident, cold[0], first_chain)
    if somewhere(begun):
        cycles = cycles + more * later_wave(resident, later, next_chain)
        last = either(begun, later_wave(left, latest, last_chain), first_wave(left, latest, last_chain))
    else:
        last = first_wave(left, latest, last_chain)
    cycles = cycles + rest * last
    return LaunchRounds(cycles[()], steps, ((begun, first_chain), (more, next_chain), (rest, last_chain)))


def _adding_cycles(tiling: Tiling, latency: Any) -> Any:
    """Cycles in which a block adds up its share of a tile of partial sums: each warp one piece of its lanes after the
    other, and of each the parts of k a batch after the other, each of which waits for L2."""
    pieces = ceil_div(tiling.thread_m * tiling.thread_n, WIDEST_PIECE * tiling.split_k)
    return pieces * ceil_div(tiling.split_k, LOADED_TOGETHER) * latency


def write_cycles(blocks: Any, device: Device, known: Calibration) -> Any:
    """Cycles of a multiprocessor for each byte that it writes: at its share of the rate of all that have a block, and
    no faster than it can alone."""
    rate = or_else(known.l2_write_bytes_per_s, device.l2_bytes_per_s / 2) / device.clock_hz
    alone = or_else(known.l2_write_bytes_per_cycle_per_sm, rate)
    return 1 / smaller(rate / smaller(blocks, device.sms), alone)


def _result_bytes(problem: Problem, kernel: Kernel, tiling: Tiling, widths: Widths) -> Any:
    """Bytes that a block's results are: whole sectors of those that exist, for each store again."""
    rows, columns = smaller(tiling.block_m, problem.m), smaller(tiling.block_n, problem.n)
    again = 1 if kernel.warp_tiled else larger(1, smaller(tiling.thread_n, 8) / widths.global_c)
    through_sums = either(tiling.split_k > 1, 2.5, 1.0)
    return problem.element_bytes * rows * columns * again * through_sums
