"""What pictures of a launch show beside counts and times: the warp that conflicts most, the orders of a thread tile,
what lies around a tiling, what warps do over two large iterations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gemmsim.accesses.copies import copies_through_l1
from gemmsim.accesses.lane_runs import Direction
from gemmsim.accesses.shared_memory import SharedAccess, shared_accesses
from gemmsim.banks import LaneGroup
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.patterns import Pattern, Served, served
from gemmsim.pipeline.described import described_program
from gemmsim.pipeline.programs import program_for
from gemmsim.pipeline.timeline import Timeline, timeline
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.registers.reads import PortReport, simulate
from gemmsim.registers.register_files import RegisterFile
from gemmsim.registers.tile_allocation import ACCUMULATORS, Runs, ThreadTile, allocate, placement
from gemmsim.registers.tile_order import Plan, order_of
from gemmsim.registers.tile_search import Found, best_plan
from gemmsim.search import Found as Searched
from gemmsim.search import rank, spaces_of
from gemmsim.search.landscapes import Landscape, landscapes
from gemmsim.tiling import Tiling


@dataclass(frozen=True)
class WarpAccess:
    """One warp instruction to shared memory: what its lanes touch, and what that costs."""

    name: str
    direction: Direction
    pattern: Pattern
    wavefronts: int
    ideal_wavefronts: int

    @property
    def groups(self) -> tuple[tuple[LaneGroup, tuple[Served, ...]], ...]:
        """Its lane groups, each with what its passes deliver."""
        return served(self.pattern, 0, self.direction != "load")

    def __str__(self) -> str:
        return (
            f"{self.name}, {8 * self.pattern.width_bytes}-bit {self.direction}:"
            f" {self.wavefronts} {'wavefront' if self.wavefronts == 1 else 'wavefronts'},"
            f" {self.ideal_wavefronts} without conflicts"
        )


def worst_access(problem: Problem, kernel: Kernel, tiling: Tiling, name: str | None = None) -> WarpAccess | None:
    """The warp instruction with most wavefronts beyond the ideal, of several the first; of the accesses of that name
    alone, where there are any.

    None for a kernel without shared memory. Copies past L1 are left out: their rule is not the one that a map of banks
    shows.
    """
    widths = kernel.widths(problem, tiling)
    shown = [each for each in shared_accesses(kernel, tiling, widths) if _follows_the_banks(each, problem)]
    named = [each for each in shown if each.name == name]
    candidates = [_worst_warp(access, problem.element_bytes) for access in named or shown]
    return max(candidates, key=lambda each: each.wavefronts - each.ideal_wavefronts, default=None)


def _follows_the_banks(access: SharedAccess, problem: Problem) -> bool:
    return access.direction != "copy" or copies_through_l1(access.width * problem.element_bytes)


def _worst_warp(access: SharedAccess, element_bytes: int) -> WarpAccess:
    passes = access.passes(element_bytes)
    # of equal excess the one with most wavefronts, which has lanes at all
    weight = passes.excess * (1 + passes.wavefronts.max()) + passes.wavefronts
    worst = np.unravel_index(int(weight.argmax()), weight.shape)
    touched = Pattern(
        access.elements[worst][None] * element_bytes, access.active[worst][None], access.width * element_bytes
    )
    return WarpAccess(
        access.name,
        access.direction,
        touched,
        int(passes.wavefronts[worst]),
        int(passes.ideal_wavefronts[worst]),
    )


@dataclass(frozen=True)
class TileOrders:
    """A thread tile in the registers and the order that suggest themselves, and in the best that are found."""

    file: RegisterFile
    plan: Plan
    report: PortReport
    best: Found

    @property
    def tile(self) -> ThreadTile:
        """The thread tile."""
        return self.plan.allocation.tile

    @property
    def gain(self) -> float:
        """By how much faster the best is."""
        return self.report.cycles / self.best.report.cycles - 1


def tile_orders(tile: ThreadTile, file: RegisterFile, order: str = "row") -> TileOrders:
    """The tile in consecutive registers, its FFMA in an order as `order_of` reads it, and the best plan that is found.

    Raises InputError for an order that is none, and for a tile that the registers of a thread do not hold.
    """
    runs = Runs.widest(tile)
    registers = allocate(placement(tile, next(iter(ACCUMULATORS)), runs, file.banks), runs, file.banks)
    plan = Plan(registers, order_of(order, tile))
    (report,) = simulate([plan.stream(file)], file)
    return TileOrders(file, plan, report, best_plan(tile, file, runs))


KEPT = ("thread_m", "thread_n", "vector", "pad_a", "pad_b", "swizzle", "group")
"""Fields of a tiling that a search around it leaves as they are."""


def around(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device) -> tuple[Searched, tuple[Landscape, ...]]:
    """(the search of every legal tiling with the thread tile, widths and padding of this one; its landscape over the
    blocks). Seconds at most.

    Raises InputError where nothing is left to rank.
    """
    kept = {name: [int(getattr(tiling, name))] for name in KEPT if name in kernel.fields}
    spaces = spaces_of(problem, device, [kernel], (), kept)
    maps = landscapes(spaces)[:1]
    return rank(spaces, 1, maps, simulated=0), maps


def timeline_of(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device) -> Timeline:
    """Two large iterations of a launch, as its shipped program runs them, or where there is none one that is described
    without a compiler. Some seconds at most.

    Raises InputError for a launch that does not fit on a multiprocessor, and as `pipeline.timeline.timeline` does.
    """
    resident = predict(problem, kernel, tiling, device).occupancy
    if not resident.launches:
        raise InputError(f"{kernel.name} {kernel.describe(tiling)} does not launch on {device.name}: {resident.reason}")
    program = program_for(kernel, problem, tiling, device) or described_program(problem, kernel, tiling, device)
    return timeline(problem, kernel, tiling, device, program, int(resident.blocks_per_sm))


def same_tiling(kernel: Kernel, tiling: Tiling) -> Tiling:
    """What of a tiling the kernel has too, with its own defaults for the rest and its own number of stages.

    Raises InputError where that is no tiling of the kernel.
    """
    own = {**dict(kernel.default_tile), **{name: int(getattr(tiling, name)) for name in SHARED_FIELDS}}
    return kernel.tiling(**{name: value for name, value in own.items() if name in kernel.fields})


SHARED_FIELDS = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "vector", "pad_a", "pad_b", "swizzle")
"""Fields of a tiling that mean the same for every kernel that has them."""
