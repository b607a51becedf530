"""Time of a launch in closed form: rounds of its blocks, from what a tile of k demands of each resource.

The blocks that a multiprocessor holds go through their tiles of k together. A round, one tile of each, takes at least
what the busiest resource needs for all of them, and at least what one block needs alone, latencies included. Both
count, neither hides the other altogether: the cube root of the sum of their cubes joins them, which is their sum where
one is small and a quarter more than the longer where they are equal. A launch is rounds times tiles times waves, with a
beginning and an end. Latencies and rates are measured ones (`calibration.py`); what is left open are the named scalars
of `data/rounds.toml`, whose worth docs/accuracy.md states.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from gemmsim.banks import PASS_BYTES
from gemmsim.calibration import calibration
from gemmsim.device import DATA, Device
from gemmsim.kernels import Kernel, Widths
from gemmsim.pipeline.launch import fits_in_l2
from gemmsim.pipeline.multiprocessor import CODE_INSTRUCTIONS
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling, grid

UNROLLED = 16
"""Multiplications of a thread that a kernel without tiles loads operands for at once."""


@dataclass(frozen=True)
class Scalars:
    """The named scalars, as `data/rounds.toml` explains them one by one."""

    ffma_cycles: float
    warp_tile_ffma_cycles: float
    shared_request_cycles: float
    global_load_cycles: float
    tile_cycles: float
    spilled_register_cycles: float
    solitude: float
    uncached_code_cycles: float
    unstaged_latency: float
    wave_overlap: float
    split_cycles: float
    pace: Mapping[str, float]
    source: str = ""


@cache
def scalars() -> Scalars:
    """The shipped scalars."""
    return Scalars(**tomllib.loads((DATA / "rounds.toml").read_text(encoding="utf-8")))


@dataclass(frozen=True)
class Demand:
    """What one tile of k of one block demands, in cycles of a multiprocessor; numbers or arrays.

    issue     of its issue slots, with the waits of FFMA for register ports; `alone` of the block's slowest sub-core
    data      of the data stage that shared memory and global loads pass
    below     of the way from L2 and memory
    code      of the fetch of instructions, where a pass does not fit into the cache of code; else 0
    """

    issue: Any
    alone: Any
    data: Any
    below: Any
    code: Any


@dataclass(frozen=True)
class LaunchRounds:
    """Cycles of a launch: `cycles` in all, and of its kinds of waves (how many, cycles of one block alone whose
    resources are infinitely fast but for its own work)."""

    cycles: Any
    lonely_waves: tuple[tuple[Any, Any], ...]

    @property
    def latency(self) -> Any:
        """Cycles that would remain if every resource were infinitely fast."""
        return sum(times * cycles for times, cycles in self.lonely_waves)[()]


def launch_rounds(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    widths: Widths,
    device: Device,
    shared: tuple[Any, Any],
    blocks_per_sm: Any,
    spilled: Any = 0,
    of: Scalars | None = None,
) -> LaunchRounds:
    """The cycles of a launch, events not counted.

    `shared` are (wavefronts, requests) of a block and tile; `spilled` registers of a thread that did not fit. Sizes,
    tiling fields and the rest may be arrays that broadcast together. Valid for whole launches of one kernel on an empty
    GPU whose L2 holds nothing of A and B.
    """
    of, known = of or scalars(), calibration(device)
    cold = _or(known.cold_slowest_cycles, _or(known.dram_latency_cycles, 700.0))
    warm = _or(known.l2_latency_far_cycles, _or(known.l2_latency_near_cycles, 300.0))
    tiles = grid(problem, tiling)
    steps = tiles.steps if kernel.staged else problem.k / UNROLLED
    warps = ceil_div(tiling.threads, WARP_SIZE)
    demand = demand_of(problem, kernel, tiling, widths, device, shared, spilled, of)

    def rounds(resident: Any, *latencies: Any) -> Iterator[tuple[Any, Any]]:
        """(cycles of a round, the same of one block whose resources are its own) for each latency."""
        lonely = 1 + of.solitude * (resident * warps <= device.schedulers_per_sm) * kernel.thread_tiled
        computing = np.maximum(demand.alone * lonely, demand.data)
        barrier = 12.0 + 2.0 * 2.0 * warps
        issue, data, below = demand.issue * lonely * resident, demand.data * resident, demand.below * resident
        most, other = _cube(np.maximum(np.maximum(issue, data), below)), _cube(np.minimum(issue, data))
        for latency in latencies:
            if not kernel.staged:
                chain = of.unstaged_latency * latency + np.maximum(demand.issue, demand.data)
            elif kernel.copies:
                chain = np.maximum(computing + barrier, latency / np.maximum(1, tiling.stages - 1))
            elif kernel.prefetches:
                chain = np.maximum(computing, latency) + barrier
            else:
                chain = latency + computing + 2 * barrier
            chain = np.maximum(chain, demand.code)
            yield np.cbrt(most + _cube(chain) + other), chain

    # whole numbers as floats, which arrays divide several times as fast; exact below 2^52
    blocks = 1.0 * tiles.blocks
    resident = np.minimum(np.maximum(1.0, blocks_per_sm), np.ceil(blocks / device.sms))
    at_once = resident * device.sms
    full = np.floor(blocks / at_once)
    left = np.ceil((blocks - full * at_once) / device.sms)
    later = np.where(fits_in_l2(problem, device), warm, cold)

    result = _result_cycles(problem, kernel, tiling, widths, device, known.l2_write_bytes_per_s)
    meeting = of.split_cycles * (tiling.split_k > 1)

    def wave(resident: Any, latency: Any, cycles: Any, following: Any) -> Any:
        ends = latency + resident * result + meeting
        hidden = of.wave_overlap * (following & (resident > 1))
        return steps * cycles + (1 - hidden) * ends

    begun, more, rest = full > 0, np.maximum(0.0, full - 1), left > 0
    of_full = [*rounds(resident, *((cold,) if np.all(later == cold) else (cold, later)))]
    (first_cycles, first_chain), (next_cycles, next_chain) = of_full[0], of_full[-1]
    latency, left = np.where(begun, later, cold), np.maximum(1.0, left)
    ((last_cycles, last_chain),) = rounds(left, latency)
    cycles = begun * wave(resident, cold, first_cycles, False) + more * wave(resident, later, next_cycles, True)
    cycles = cycles + rest * wave(left, latency, last_cycles, begun)
    chains = ((begun, steps * first_chain), (more, steps * next_chain), (rest, steps * last_chain))
    return LaunchRounds(cycles[()], chains)


def demand_of(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    widths: Widths,
    device: Device,
    shared: tuple[Any, Any],
    spilled: Any,
    of: Scalars,
) -> Demand:
    """The demand of a tile of k, or of UNROLLED multiplications of each thread where nothing is staged."""
    cores, warps = device.schedulers_per_sm, ceil_div(tiling.threads, WARP_SIZE)
    wavefronts, requests = shared
    lanes = device.fp32_lanes_per_sm
    pace = of.pace.get(kernel.name, 1.0)
    size = problem.element_bytes
    if not kernel.staged:
        columns = np.minimum(WARP_SIZE, tiling.block_n)
        issue = tiling.threads * UNROLLED / lanes * pace + warps / cores * UNROLLED * 4.5
        bytes_ = size * UNROLLED * (tiling.block_m + tiling.block_n)
        data = UNROLLED * warps * (WARP_SIZE / columns + 1)
        return Demand(issue, issue, data, bytes_ * _below(problem, device, bytes_, problem.k / UNROLLED, tiling), 0.0)
    ffma = tiling.block_m * tiling.block_n * tiling.block_k
    each = of.warp_tile_ffma_cycles if kernel.warp_tiled else of.ffma_cycles
    loads = _loads_of_thread(tiling, widths)
    spills = warps * spilled * of.spilled_register_cycles
    issue = (
        ffma / lanes * each * pace
        + requests / cores * of.shared_request_cycles
        + warps / cores * (loads * of.global_load_cycles + of.tile_cycles)
        + spills / cores
    )
    alone = issue * ceil_div(warps, cores) * cores / warps  # its warps need not be spread evenly
    bytes_ = size * tiling.block_k * (tiling.block_m + tiling.block_n)
    of_thread = tiling.thread_m * tiling.thread_n * tiling.block_k
    instructions = 1.02 * of_thread + requests / warps + 8 * loads + 20
    return Demand(
        issue,
        alone,
        wavefronts + bytes_ / PASS_BYTES + spills,
        bytes_ * _below(problem, device, bytes_, grid(problem, tiling).steps, tiling),
        np.where(instructions > CODE_INSTRUCTIONS, instructions * of.uncached_code_cycles, 0.0),
    )


def _loads_of_thread(tiling: Tiling, widths: Widths) -> Any:
    """Global loads, or copies, of a thread for a tile."""
    elements = tiling.block_m * tiling.block_k / widths.global_a + tiling.block_k * tiling.block_n / widths.global_b
    return elements / tiling.threads


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


def _cube(value: Any) -> Any:
    return value * value * value


def _or(known: float | None, otherwise: float) -> float:
    return otherwise if known is None else known
