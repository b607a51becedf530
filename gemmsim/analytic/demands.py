"""What a tile of k demands of a multiprocessor, in closed form: issue slots, the data stage, the way from below.

A block works on a tile in two phases that a barrier parts: it moves the tile into shared memory, then reads fragments
and multiplies. In each phase issue slots and data stage overlap (`joined`; the warps of a block that read queue for the
latter, `served`), but the phases of one block follow each other; those of several blocks overlap too, so that what all
of them together need of a resource counts (`work`).

Rates are measured ones (`calibration/`); what is left open are the named scalars of `data/rounds.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from gemmsim.accesses.warp_tiles import run_of_a
from gemmsim.analytic.load_schedules import UNKNOWN, LoadSchedule
from gemmsim.analytic.spills import Spills, carried, spills
from gemmsim.calibration import Calibration, calibration
from gemmsim.coalescing import LINE_BYTES, TAG_SLOTS
from gemmsim.device import DATA, Device
from gemmsim.elementwise import either, larger, smaller, somewhere
from gemmsim.errors import reading
from gemmsim.kernels import Kernel, Widths
from gemmsim.pipeline.timing import BARRIER_HELD_CYCLES, CODE_INSTRUCTIONS, Timing, timing
from gemmsim.problem import Problem, ceil_div, common_power
from gemmsim.tiling import WARP_SIZE, Tiling, grid
from gemmsim.toml_files import read_toml

SCALARS = DATA / "rounds.toml"
UNROLLED = 16
"""Multiplications of a thread that a kernel without tiles loads operands for at once."""
REGISTERS_OF_BATCH = 3 * UNROLLED
"""Registers that hold these operands, and what is beside them."""
INSTRUCTIONS_OF_MULTIPLICATION = 6.56
"""Of a kernel without tiles: two loads, the FFMA, and what addresses take; nvcc writes 105 for UNROLLED of them."""
FEW_LOADS, WIDEST = 3, 4
"""Loads of a thread, and elements of each, up to which and from which on nvcc leaves them where they stand."""
LINE_WORDS = LINE_BYTES // 4
"""Elements of a line of L1."""
CODE_WAYS = 4
"""Places that a line of code has in the cache of a sub-core. A loop of N FFMA took on an H200 1.02 cycles each up to
N = 1984, then more in proportion to N, and from 2560 on 2.8."""
CODE_AGAIN = 1.17
"""How much longer such lines of a loop take than code that is run once and fetched ahead (calibrated)."""


@dataclass(frozen=True)
class Scalars:
    """The named scalars, as `data/rounds.toml` explains them one by one."""

    shared_request_cycles: float
    global_load_cycles: float
    tile_cycles: float
    unhidden_share: float
    unstaged_latencies: float
    split_cycles: float
    pace: Mapping[str, float]
    source: str = ""


@cache
def scalars() -> Scalars:
    """The shipped scalars."""
    found = read_toml(SCALARS)
    with reading(SCALARS):
        return Scalars(**found)


class SharedWork(NamedTuple):
    """What the shared accesses of a block do for a tile of k, numbers or arrays: wavefronts and warp instructions of
    loads, and of stores, asynchronous copies among them."""

    load_wavefronts: Any
    loads: Any
    store_wavefronts: Any
    stores: Any

    @property
    def wavefronts(self) -> Any:
        """Of loads and stores together."""
        return self.load_wavefronts + self.store_wavefronts

    @property
    def requests(self) -> Any:
        """Warp instructions of both."""
        return self.loads + self.stores


@dataclass(frozen=True)
class Demand:
    """What one tile of k of one block demands, in cycles of a multiprocessor where nothing else is said; numbers or
    arrays.

    work     of its issue slots, with the waits of FFMA for register ports, and of the data stage that shared memory,
             global loads and local memory pass
    alone    until the warps of the block are through with that, one phase after the other, with their waits and the
             fetch of code
    moving   of that until what is on its way has been stored, or asked for by copies
    below    of the way from L2 and memory
    exposed  share of `alone` behind which no latency hides
    spills   what lacking registers cost beside
    code     instructions of the loop
    """

    work: Any
    alone: Any
    moving: Any
    below: Any
    exposed: Any
    spills: Spills
    code: Any = 0.0


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
    schedule: LoadSchedule = UNKNOWN,
) -> Demand:
    """The demand of a tile of k, or of UNROLLED multiplications of each thread where nothing is staged, in the
    multiprocessor that ends last. What `schedule` does not know is as usual."""
    cores, warps = device.schedulers_per_sm, ceil_div(tiling.threads, WARP_SIZE)
    size, lacking = problem.element_bytes, spills(kernel, tiling, widths, registers, spilled)
    if not kernel.staged:
        rows, columns = lanes_at_work(problem, tiling)
        warps = ceil_div(rows * columns, WARP_SIZE)
        bytes_ = size * UNROLLED * (rows + columns)
        rows_of_warp = WARP_SIZE / smaller(WARP_SIZE, tiling.block_n)
        data = UNROLLED * warps * (passes_of_lines(rows_of_warp, problem.k) + 1)
        work = joined(warps / cores * UNROLLED * INSTRUCTIONS_OF_MULTIPLICATION, data)
        at_once = registers >= REGISTERS_OF_BATCH
        lacking = replace(lacking, batches=either(at_once, 1.0, of.unstaged_latencies))
        below = bytes_ * _below(problem, device, bytes_, problem.k / UNROLLED, tiling)
        return Demand(work, work, 0.0, below, 1.0, lacking)
    schedule = schedule.or_else(lacking.batches, _exposed(kernel, tiling, widths, of))
    _, loads = carried(tiling, widths)
    ffma = tiling.block_m * tiling.block_n * tiling.block_k / device.fp32_lanes_per_sm * of.pace.get(kernel.name, 0.0)
    computing = ffma + shared.loads / cores * of.shared_request_cycles + lacking.lines / cores
    moving = shared.stores / cores * of.shared_request_cycles
    moving = moving + warps / cores * (loads * of.global_load_cycles + of.tile_cycles)
    # each phase ends with a barrier, but where the tile that is read next has a place of its own
    read = shared.load_wavefronts + lacking.lines + (0.0 if kernel.prefetches else BARRIER_HELD_CYCLES)
    moved = _moved(problem, kernel, tiling, widths, device, shared) + BARRIER_HELD_CYCLES

    of_sub_core = ceil_div(warps, cores) * (computing * cores / warps)  # warps need not be spread evenly
    of_warp = read / warps
    # half of the copies pass while fragments that were read ahead are multiplied, as long as there are so many of these
    storing = joined(moving, moved - 0.5 * smaller(moved, of_sub_core) if kernel.copies else moved)
    alone = served(warps, of_warp, of_sub_core + of_warp) + storing
    of_thread = tiling.thread_m * tiling.thread_n * tiling.block_k
    instructions = 1.02 * of_thread + (shared.requests + lacking.lines) / warps + 8 * loads + 20
    if somewhere(instructions > CODE_INSTRUCTIONS):
        alone = alone + missed_code(instructions) * larger(
            0.0, instructions * (CODE_AGAIN * timing_of(device, calibration(device)).code_cycles) - alone
        )
    bytes_ = size * tiling.block_k * (tiling.block_m + tiling.block_n)
    below = bytes_ * _below(problem, device, bytes_, grid(problem, tiling).steps, tiling)
    work = joined(computing + moving, read + moved)
    lacking = replace(lacking, batches=schedule.batches)
    return Demand(work, alone, storing, below, schedule.exposed, lacking, instructions)


def _moved(problem: Problem, kernel: Kernel, tiling: Tiling, widths: Widths, device: Device, shared: SharedWork) -> Any:
    """Passes of the data stage until a tile is in shared memory.

    A global load passes it once for each line, and no two rows that start at the same place of a line share a pass
    (`gemmsim.coalescing.l1_wavefronts`); a store as its banks conflict. A copy comes through twice as often as its
    write conflicts, and one of less than 16 bytes a lane, as all of A's are, for each run of a row beside: on an H200
    lines + 2.2 passes of the write, each cycles of the multiprocessor, beside shared loads (6.1 without conflicts, 8.3
    two-way, 21.7 eight-way, 9.6 where runs are of 4). Runs of B are lines, two of which lie where one is long if rows
    begin anywhere.
    """
    if not kernel.copies:
        loaded = passes_of_rows(tiling.block_m, tiling.block_k) + passes_of_rows(tiling.block_k, tiling.block_n)
        return shared.store_wavefronts + loaded
    runs = tiling.block_m * tiling.block_k / run_of_a(tiling.block_k)
    runs = runs + (widths.global_b < WIDEST) * (tiling.block_k * tiling.block_n * 2 / LINE_WORDS)
    tiles = grid(problem, tiling)
    # lanes beyond the columns of B read its last ones, one by one, in the last block of a row; the multiprocessor that
    # is the last has such a block among its own
    beyond = tiling.block_k * (tiles.n * tiling.block_n - problem.n) / widths.global_b
    beyond = beyond * larger(1 / ceil_div(tiles.blocks, device.sms), 1 / tiles.n)
    return 2 * shared.store_wavefronts + runs + (tiling.spread == 0) * beyond


def passes_of_rows(rows: Any, columns: Any) -> Any:
    """Passes of L1's data stage that the loads of a tile take whose rows share none."""
    return rows * larger(1.0, columns / LINE_WORDS)


def passes_of_lines(lines: Any, pitch: Any) -> Any:
    """Passes of L1's data stage for a load of a word from each of so many lines, `pitch` elements apart.

    Those that begin in the same bank share none; and tags are looked up in four slots, one line of each at a time,
    among which lines fall as if at random (`gemmsim.coalescing`): the fullest has on average n / 4 + 0.54 sqrt(n) of n.
    """
    in_one_bank = lines * common_power(LINE_WORDS, pitch) / LINE_WORDS
    in_one_slot = lines / TAG_SLOTS + 0.54 * np.sqrt(lines)
    return larger(larger(1.0, in_one_slot), in_one_bank)


def missed_code(instructions: Any) -> Any:
    """Share of a loop's lines of code that are not in the cache when they are needed.

    The cache drops the line that was used longest ago, and a loop needs its lines in turn. So of the places of a cache
    of W ways those have all they need that W lines fall upon, and those with W + 1 have none of them; of N instructions
    where C have room these are (W + 1)(N - C) / N.
    """
    return np.clip((CODE_WAYS + 1) * (1 - CODE_INSTRUCTIONS / instructions), 0.0, 1.0)


def joined(issue: Any, data: Any) -> Any:
    """Cycles of two resources that overlap, but not entirely: the fourth root of the sum of their fourth powers, which
    is the longer where one is short, and a fifth more where they are equal."""
    issue, data = issue * issue, data * data
    return np.sqrt(np.sqrt(issue * issue + data * data))


def served(users: Any, demand: Any, alone: Any, over: float = 0.0) -> Any:
    """Cycles until each of the users has been served once who wait for one resource: `demand` of each of it, and
    `alone` what each would take if nobody else were there.

    Mean value analysis of a closed queue in Schweitzer's approximation (1979), which is exact for one user, and where
    nobody does anything but wait: of t cycles from one service to the next a user is (t - elsewhere) in the queue, so
    it finds (users - 1) (t - elsewhere) / t others there, each of which takes `demand`; that is quadratic in t. One
    of them is served already, in (users - 1) demand / t of the cases, and the share `over` of that is over: half of it
    where all services last alike, nothing where they vary as if at random (Reiser 1979).
    """
    elsewhere = larger(0, alone - demand)
    all_of_it = users * demand
    half = 0.5 * (elsewhere + all_of_it)
    found = half + np.sqrt(half * half - (all_of_it - demand) * (elsewhere + over * demand))
    return larger(all_of_it, found) if over else found


def _exposed(kernel: Kernel, tiling: Tiling, widths: Widths, of: Scalars) -> Any:
    """Share of a block's computing that does not go on while its loads are under way: all of it, or if the next tile is
    prefetched little. But nvcc moves loads with many guards down to where their values are stored: then all but the
    last small iteration."""
    if not kernel.prefetches:
        return 1.0
    _, loads = carried(tiling, widths)
    moved = (loads > FEW_LOADS) & (smaller(widths.global_a, widths.global_b) < WIDEST)
    return either(moved, 1 - 1 / tiling.block_k, of.unhidden_share)


def lanes_at_work(problem: Problem, tiling: Tiling) -> tuple[Any, Any]:
    """(rows, columns) of a block that stages nothing which its warps with an element of C cover."""
    rows_of_warp = larger(1, WARP_SIZE // tiling.block_n)
    rows = smaller(tiling.block_m, ceil_div(problem.m, rows_of_warp) * rows_of_warp)
    return rows, smaller(tiling.block_n, ceil_div(problem.n, WARP_SIZE) * WARP_SIZE)


def _below(problem: Problem, device: Device, bytes_: Any, steps: Any, tiling: Tiling) -> Any:
    """Cycles of a multiprocessor for each byte that it gets from L2, some of which come from memory first."""
    known = calibration(device)
    cycles_a_second = device.sms * device.clock_hz
    asked = grid(problem, tiling).blocks * steps * bytes_
    compulsory = problem.element_bytes * problem.k * (problem.m + problem.n)
    from_dram = smaller(1.0, compulsory / asked)
    l2 = cycles_a_second / or_else(known.l2_bytes_per_s, device.l2_bytes_per_s)
    return larger(l2, from_dram * cycles_a_second / or_else(known.dram_bytes_per_s, device.dram_bytes_per_s))


@lru_cache(maxsize=64)
def timing_of(device: Device, known: Calibration) -> Timing:
    """The timing of a device's multiprocessor."""
    return timing(device, known)


def or_else(known: float | None, otherwise: float) -> float:
    """What was measured, or what stands in."""
    return otherwise if known is None else known
