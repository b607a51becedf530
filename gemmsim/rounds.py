"""Time of a launch in closed form: rounds of its blocks, from what a tile of k demands of each resource.

The blocks that a multiprocessor holds go through their tiles of k together. A round, one tile of each, takes what the
busiest resource needs for all of them, or what one block needs alone, latencies included: a few blocks wait for their
latencies, many for the resource, and in between also for each other (`served`). A launch is rounds times tiles times
waves, with a beginning and an end. Latencies and rates are measured ones (`calibration.py`); what is left open are the
named scalars of `data/rounds.toml`, which `campaigns/rounds.py` chooses and docs/accuracy.md judges.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from gemmsim.banks import PASS_BYTES
from gemmsim.calibration import Calibration, calibration
from gemmsim.coalescing import LINE_BYTES
from gemmsim.device import DATA, Device
from gemmsim.kernels import Kernel, Widths
from gemmsim.pipeline.multiprocessor import CODE_INSTRUCTIONS
from gemmsim.pipeline.timing import Timing, timing
from gemmsim.pipeline.waves import fits_in_l2
from gemmsim.problem import Problem, ceil_div
from gemmsim.spills import Spills, carried, spills
from gemmsim.tiling import WARP_SIZE, Tiling, grid
from gemmsim.warp_tiles import run_of_a

UNROLLED = 16
"""Multiplications of a thread that a kernel without tiles loads operands for at once."""
REGISTERS_OF_BATCH = 3 * UNROLLED
"""Registers that hold these operands, and what is beside them."""
INSTRUCTIONS_OF_MULTIPLICATION = 4.5
"""Of a kernel without tiles: two loads, the FFMA, and what addresses take."""
FEW_LOADS, WIDEST = 3, 4
"""Loads of a thread, and elements of each, up to which and from which on nvcc leaves them where they stand."""


@dataclass(frozen=True)
class Scalars:
    """The named scalars, as `data/rounds.toml` explains them one by one."""

    shared_request_cycles: float
    global_load_cycles: float
    tile_cycles: float
    shared_wait_cycles: float
    unhidden_share: float
    unstaged_latencies: float
    split_cycles: float
    pace: Mapping[str, float]
    source: str = ""


@cache
def scalars() -> Scalars:
    """The shipped scalars."""
    return Scalars(**tomllib.loads((DATA / "rounds.toml").read_text(encoding="utf-8")))


class SharedWork(NamedTuple):
    """What the shared accesses of a block do for a tile of k, numbers or arrays: wavefronts and warp instructions of
    loads, and of stores, asynchronous copies among them."""

    load_wavefronts: Any
    loads: Any
    store_wavefronts: Any
    stores: Any

    @property
    def wavefronts(self) -> Any:
        return self.load_wavefronts + self.store_wavefronts

    @property
    def requests(self) -> Any:
        return self.loads + self.stores


@dataclass(frozen=True)
class Demand:
    """What one tile of k of one block demands, in cycles of a multiprocessor where nothing else is said; numbers or
    arrays.

    work     of its issue slots, with the waits of FFMA for register ports, and of the data stage that shared memory,
             global loads and local memory pass
    alone    until the warps of the block are through with that, with their waits and the fetch of code
    below    of the way from L2 and memory
    exposed  share of `alone` behind which no latency hides
    spills   what lacking registers cost beside
    """

    work: Any
    alone: Any
    below: Any
    exposed: Any
    spills: Spills


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
) -> LaunchRounds:
    """The cycles of a launch, events not counted.

    `shared` is of a block and tile; a thread has so many `registers`, and `spilled` words of
    local memory. Sizes, tiling fields and the rest may be arrays that broadcast together. Valid for whole launches of
    one kernel on an empty GPU whose L2 holds nothing of A and B.
    """
    of, known = of or scalars(), calibration(device)
    missed = _or(known.cold_latency_cycles, _or(known.dram_latency_cycles, 700.0))
    hit = _or(known.l2_latency_far_cycles, _or(known.l2_latency_near_cycles, 300.0))
    # a block waits for the slowest of its first loads
    cold, warm = (_or(known.cold_slowest_cycles, missed), missed), (hit, hit)
    tiles, times = grid(problem, tiling), _timing(device, known)
    steps = tiles.steps if kernel.staged else problem.k / UNROLLED
    demand = demand_of(problem, kernel, tiling, widths, device, shared, registers, spilled, of)
    spills, warps = demand.spills, ceil_div(tiling.threads, WARP_SIZE)
    barriers = 0 if not kernel.staged else 1 if kernel.prefetches else 2
    barrier = barriers * (times.barrier_cycles + times.arrival_cycles * warps)
    begun_with, more_batches = np.minimum(1, spills.batches), np.maximum(0, spills.batches - 1)

    # whole numbers as floats, which arrays divide several times as fast; exact below 2^52
    blocks = 1.0 * tiles.blocks
    resident = np.minimum(np.maximum(1.0, blocks_per_sm), np.ceil(blocks / device.sms))
    at_once = resident * device.sms
    full = np.floor(blocks / at_once)
    left = np.ceil((blocks - full * at_once) / device.sms)

    lacks = np.any(spills.held_lines)  # a great many do without, whose shared memory then does not matter
    missing = spills.missing(resident, kernel.shared_bytes(tiling), device.capability) if lacks else 0.0
    alone = demand.alone + spills.waits * (times.l1_cycles + missing * hit)
    below = demand.below + missing * spills.lines * LINE_BYTES * times.load_cycles_per_byte
    most, exposed = np.maximum(demand.work, below), demand.exposed * alone

    def chain(first: Any, again: Any) -> Any:
        """Cycles of a round of one block whose resources are its own, by the latencies of its first batch of loads and
        of those that follow it."""
        if kernel.copies:
            return np.maximum(alone + barrier, first / np.maximum(1, tiling.stages - 1))
        return np.maximum(alone, begun_with * first + exposed) + (more_batches * again + barrier)

    result = _result_cycles(problem, kernel, tiling, widths, device, known.l2_write_bytes_per_s)
    meeting = of.split_cycles * (tiling.split_k > 1)

    def wave(resident: Any, latency: Any, cycles: Any, following: Any = None) -> Any:
        """Cycles of a wave; behind another, the beginnings and ends of its blocks and their computing hide each
        other."""
        inside, ends = steps * cycles, latency + resident * result + meeting
        if following is None:
            return inside + ends
        return inside + ends - (following & (resident > 1)) * np.minimum(inside, ends)

    begun, more, rest, left = full > 0, np.maximum(0.0, full - 1), left > 0, np.maximum(1.0, left)
    first_chain = next_chain = last_chain = chain(*cold)
    first = following = served(resident, most, first_chain)
    later: Any = cold[0]
    latest: Any = cold[0]
    if np.any(fits_in_l2(problem, device)):
        new_rows = tiling.block_m / (tiling.block_m + tiling.block_n)  # of A in each wave; B is known by then
        again = np.where(fits_in_l2(problem, device), new_rows, 1.0)
        later, again_later = (near + again * (far - near) for near, far in zip(warm, cold, strict=True))
        next_chain = chain(later, again_later)
        last_chain = np.where(begun, next_chain, first_chain)
        following = served(resident, most, next_chain)
        latest = np.where(begun, later, cold[0])
    cycles = begun * wave(resident, cold[0], first) + more * wave(resident, later, following, True)
    cycles = cycles + rest * wave(left, latest, served(left, most, last_chain), begun)
    return LaunchRounds(cycles[()], steps, ((begun, first_chain), (more, next_chain), (rest, last_chain)))


def served(users: Any, demand: Any, alone: Any) -> Any:
    """Cycles until each of the users has been served once who wait for one resource: `demand` of each of it, and
    `alone` what each would take if nobody else were there.

    Mean value analysis of a closed queue in Schweitzer's approximation (1979), which is exact for one user, and where
    nobody does anything but wait: of t cycles from one service to the next a user is (t - elsewhere) in the queue, so
    it finds (users - 1) (t - elsewhere) / t others there, each of which takes `demand`; that is quadratic in t.
    """
    elsewhere = np.maximum(0, alone - demand)
    all_of_it = users * demand
    half = 0.5 * (elsewhere - all_of_it)
    return half + all_of_it + np.sqrt(half * half + demand * elsewhere)


def demand_of(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    widths: Widths,
    device: Device,
    shared: SharedWork,
    registers: Any,
    spilled: Any,
    of: Scalars,
) -> Demand:
    """The demand of a tile of k, or of UNROLLED multiplications of each thread where nothing is staged."""
    cores, warps = device.schedulers_per_sm, ceil_div(tiling.threads, WARP_SIZE)
    size, lacking = problem.element_bytes, spills(kernel, tiling, widths, registers, spilled)
    if not kernel.staged:
        rows, columns = lanes_at_work(problem, tiling)
        warps = ceil_div(rows * columns, WARP_SIZE)
        bytes_ = size * UNROLLED * (rows + columns)
        data = UNROLLED * warps * (WARP_SIZE / np.minimum(WARP_SIZE, tiling.block_n) + 1)
        work = joined(warps / cores * UNROLLED * INSTRUCTIONS_OF_MULTIPLICATION, data)
        at_once = registers >= REGISTERS_OF_BATCH
        lacking = replace(lacking, batches=np.where(at_once, 1.0, of.unstaged_latencies))
        below = bytes_ * _below(problem, device, bytes_, problem.k / UNROLLED, tiling)
        return Demand(work, work, below, 1.0, lacking)
    times = _timing(device, calibration(device))
    _, loads = carried(tiling, widths)
    ffma = tiling.block_m * tiling.block_n * tiling.block_k / device.fp32_lanes_per_sm * of.pace.get(kernel.name, 0.0)
    computing = ffma + shared.loads / cores * of.shared_request_cycles + lacking.lines / cores
    moving = shared.stores / cores * of.shared_request_cycles
    moving = moving + warps / cores * (loads * of.global_load_cycles + of.tile_cycles)
    bytes_ = size * tiling.block_k * (tiling.block_m + tiling.block_n)
    read, moved = shared.load_wavefronts + lacking.lines, shared.store_wavefronts
    if not kernel.copies:
        moved = moved + passes_of_rows(tiling.block_m, tiling.block_k) * np.where(problem.k % 32 == 0, 1.0, 0.7) + passes_of_rows(tiling.block_k, tiling.block_n)
    else:  # of A's tile, element by element; lanes beyond the columns of B read its last ones, one by one
        moved = moved + shared.store_wavefronts
        lines = WARP_SIZE // run_of_a(tiling.block_k)  # of rows of A that a copy reads
        moved = moved + tiling.block_m * tiling.block_k / WARP_SIZE * lines * np.where(problem.k % 32 == 0, 1.0, 0.5)
        tiles = grid(problem, tiling)
        beyond = tiling.block_k * (tiles.n * tiling.block_n - problem.n) / widths.global_b
        moved = moved + beyond * np.where(tiles.blocks <= device.sms, 1.0, 1 / tiles.n)
    waits = tiling.block_k * of.shared_wait_cycles
    of_warp = computing * cores / warps
    of_sub_core = served(ceil_div(warps, cores), of_warp, of_warp + waits)  # warps need not be spread evenly
    alone = joined(of_sub_core, read) + joined(moving, moved * (0.5 if kernel.copies else 1.0))
    requests = shared.requests
    of_thread = tiling.thread_m * tiling.thread_n * tiling.block_k
    instructions = 1.02 * of_thread + (requests + lacking.lines) / warps + 8 * loads + 20
    missing = np.clip(5 * (1 - 2016 / instructions), 0.0, 1.0)
    alone = alone + missing * np.maximum(0.0, instructions * (1.17 * times.code_cycles) - alone)
    below = bytes_ * _below(problem, device, bytes_, grid(problem, tiling).steps, tiling)
    return Demand(joined(computing + moving, read + moved), alone, below, _exposed(kernel, tiling, widths, of), lacking)


def passes_of_rows(rows: Any, columns: Any) -> Any:
    """Passes of L1's data stage that loads of a tile take: no two rows share one."""
    return rows * np.maximum(1.0, columns / 32)


def joined(issue: Any, data: Any) -> Any:
    """Cycles of two resources that overlap, but not entirely: the fourth root of the sum of their fourth powers, which
    is the longer where one is short, and a fifth more where they are equal."""
    issue, data = issue * issue, data * data
    return np.sqrt(np.sqrt(issue * issue + data * data))


def _exposed(kernel: Kernel, tiling: Tiling, widths: Widths, of: Scalars) -> Any:
    """Share of a block's computing that does not go on while its loads are under way: all of it, or if the next tile is
    prefetched little. But nvcc moves loads with many guards down to where their values are stored: then all but the
    last small iteration."""
    if not kernel.prefetches:
        return 1.0
    _, loads = carried(tiling, widths)
    moved = (loads > FEW_LOADS) & (np.minimum(widths.global_a, widths.global_b) < WIDEST)
    return np.where(moved, 1 - 1 / tiling.block_k, of.unhidden_share)


def lanes_at_work(problem: Problem, tiling: Tiling) -> tuple[Any, Any]:
    """(rows, columns) of a block that stages nothing which its warps with an element of C cover."""
    rows_of_warp = np.maximum(1, WARP_SIZE // tiling.block_n)
    rows = np.minimum(tiling.block_m, ceil_div(problem.m, rows_of_warp) * rows_of_warp)
    return rows, np.minimum(tiling.block_n, ceil_div(problem.n, WARP_SIZE) * WARP_SIZE)


def _below(problem: Problem, device: Device, bytes_: Any, steps: Any, tiling: Tiling) -> Any:
    """Cycles of a multiprocessor for each byte that it gets from L2, some of which come from memory first."""
    known = calibration(device)
    cycles_a_second = device.sms * device.clock_hz
    asked = grid(problem, tiling).blocks * steps * bytes_
    compulsory = problem.element_bytes * problem.k * (problem.m + problem.n)
    from_dram = np.minimum(1.0, compulsory / asked)
    l2 = cycles_a_second / _or(known.l2_bytes_per_s, device.l2_bytes_per_s)
    return np.maximum(l2, from_dram * cycles_a_second / _or(known.dram_bytes_per_s, device.dram_bytes_per_s))


def _result_cycles(
    problem: Problem, kernel: Kernel, tiling: Tiling, widths: Widths, device: Device, l2_write: float | None
) -> Any:
    """Cycles until a block's results are on their way: whole sectors of those that exist, for each store again."""
    rows, columns = np.minimum(tiling.block_m, problem.m), np.minimum(tiling.block_n, problem.n)
    again = 1 if kernel.warp_tiled else np.maximum(1, np.minimum(tiling.thread_n, 8) / widths.global_c)
    through_sums = np.where(tiling.split_k > 1, 2.5, 1.0)
    rate = _or(l2_write, device.l2_bytes_per_s / 2) / device.sms / device.clock_hz
    return problem.element_bytes * rows * columns * again * through_sums / rate


@lru_cache(maxsize=64)
def _timing(device: Device, known: Calibration) -> Timing:
    return timing(device, known)


def _or(known: float | None, otherwise: float) -> float:
    return otherwise if known is None else known
