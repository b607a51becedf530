"""Who does what when on a multiprocessor: every warp, cycle by cycle, over two large iterations in the steady state."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from gemmsim.caches.traffic import cache_traffic
from gemmsim.calibration import Calibration, calibration
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.pipeline.costs import costs
from gemmsim.pipeline.launch import below, loaded_bytes_of
from gemmsim.pipeline.multiprocessor import run
from gemmsim.pipeline.program import Program, Step
from gemmsim.pipeline.ready import SUB_CORES
from gemmsim.pipeline.timing import timing
from gemmsim.pipeline.waves import cold_share, first_wave
from gemmsim.pipeline.work import Issued, Work
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid

Kind = Literal[
    "compute", "load", "shared", "other", "wait_memory", "wait_shared", "wait_barrier", "wait_own", "wait_turn",
]  # fmt: skip
MEANINGS: dict[Kind, str] = {
    "compute": "issues FFMA, register ports included",
    "load": "issues global loads or copies",
    "shared": "issues shared loads or stores",
    "other": "issues anything else",
    "wait_memory": "waits for global memory",
    "wait_shared": "waits for shared memory",
    "wait_barrier": "waits at the barrier",
    "wait_own": "waits for its own results or code",
    "wait_turn": "could go on, another warp does",
}
"""What a warp does, or waits for."""
BUSY: tuple[Kind, ...] = ("compute", "load", "shared", "other")
"""Kinds that take issue slots."""

ITERATIONS = 2
WINDOWS = 5
"""Lengths of the window, about, that are simulated."""
INSTANT = 1e-5
"""Cycles of an interval that only the rounding of sums has made."""
WARM_UP = 0.25
"""Share of the time with all warps in the main loop that passes before the window may begin."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What one warp does for a while. `lap` is the pass of the main loop that it is in, from the simulation's first; a
    wait is in that of what it holds up."""

    block: int
    warp: int
    sub_core: int
    kind: Kind
    start_cycles: float
    end_cycles: float
    lap: int

    def __post_init__(self) -> None:
        if not self.start_cycles < self.end_cycles:
            raise InputError(f"an interval from cycle {self.start_cycles} to {self.end_cycles} has no length")

    @property
    def cycles(self) -> float:
        """Its length."""
        return self.end_cycles - self.start_cycles


class Flight(NamedTuple):
    """A while in which something that a warp asked global memory for is on its way."""

    block: int
    warp: int
    start_cycles: float
    end_cycles: float


@dataclass(frozen=True)
class Timeline:
    """One multiprocessor over `iterations` large iterations, on average over its warps, from cycle 0 of the window.

    The intervals of each warp follow each other without a gap, ordered by block, warp and time. `program` is the
    source of the code, "compiled" or "described".
    """

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    device: Device
    clock_hz: float
    program: str
    iterations: int
    cycles: float
    intervals: tuple[Interval, ...]
    flights: tuple[Flight, ...]

    @cached_property
    def warps(self) -> dict[tuple[int, int], tuple[Interval, ...]]:
        """{(block, warp): its intervals}."""
        found: dict[tuple[int, int], list[Interval]] = defaultdict(list)
        for each in self.intervals:
            found[each.block, each.warp].append(each)
        return {of: tuple(intervals) for of, intervals in found.items()}

    @property
    def blocks(self) -> int:
        """Blocks at once on the multiprocessor."""
        return len({block for block, _ in self.warps})

    @cached_property
    def cycles_by_kind(self) -> dict[Kind, float]:
        """Cycles of the window that a warp spends on each kind, on average; they add up to the window."""
        return {
            kind: sum(each.cycles for each in self.intervals if each.kind == kind) / len(self.warps)
            for kind in MEANINGS
        }

    @property
    def cycles_per_iteration(self) -> float:
        """Cycles that the multiprocessor gives to one large iteration of one block; whole ones of a block take so many
        for each block that is there."""
        return self.cycles / (self.iterations * self.blocks)

    @property
    def waiting(self) -> float:
        """Share of its time that a warp waits, be it for its turn."""
        return sum(spent for kind, spent in self.cycles_by_kind.items() if kind not in BUSY) / self.cycles

    @property
    def held_up(self) -> float:
        """Share of its time that a warp waits for global memory, or for others of its block at the barrier."""
        return (self.cycles_by_kind["wait_memory"] + self.cycles_by_kind["wait_barrier"]) / self.cycles

    @property
    def issuing(self) -> float:
        """Share of the issue slots of the sub-cores that are used."""
        busy = sum(self.cycles_by_kind[kind] for kind in BUSY) * len(self.warps)
        return busy / (SUB_CORES * self.cycles)

    @cached_property
    def flight_cycles(self) -> float:
        """Cycles of the window in which something is on its way from global memory to a warp, on average."""
        return sum(each.end_cycles - each.start_cycles for each in self.flights) / len(self.warps)

    @property
    def hidden(self) -> float:
        """Share of these cycles in which the warp does not stand still for memory; 1 where nothing is loaded."""
        return max(0.0, 1 - self.cycles_by_kind["wait_memory"] / self.flight_cycles) if self.flights else 1.0


def timeline(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    program: Program,
    blocks_per_sm: int,
    known: Calibration | None = None,
) -> Timeline:
    """Two large iterations of a launch, `blocks_per_sm` blocks fitting on a multiprocessor, in the middle of a long
    main loop; of the wave that comes most often, the first of several.

    Plain numbers, no arrays. The simulation is that of `launch.simulate_launch`; a main loop that is short in the
    launch is shown as if it went on. As blocks do not go on equally fast, the window is one in which the warps do the
    FFMA of two large iterations on average; of a kernel without tiles, of two passes of its loop. Raises InputError
    where the launch has fewer large iterations, and when the kernel does not take the tiling.
    """
    if kernel.staged and grid(problem, tiling).steps < ITERATIONS:
        raise InputError(
            f"k {problem.k} is one large iteration of block_k {tiling.block_k}; a timeline shows {ITERATIONS};"
            f" the smallest k that has them is {tiling.split_k * tiling.block_k + 1}"
        )
    known = known or calibration(device)
    wave = first_wave(grid(problem, tiling).blocks, blocks_per_sm, device)
    blocks, at_once = grid(problem, tiling).blocks, wave.resident * device.sms
    if at_once < blocks:
        wave = wave._replace(cold=cold_share(problem, tiling, device, at_once, blocks, at_once))
    moved = cache_traffic(problem, kernel, tiling, device, blocks_per_sm)
    at = below(timing(device, known), wave, device, known, moved, loaded_bytes_of(problem, kernel, tiling))
    an_iteration = tiling.thread_m * tiling.thread_n * tiling.block_k if kernel.staged else program.loop_ffma
    cost, after = costs(problem, kernel, tiling), program.after(left_over=False)
    passes = WINDOWS * max(1, math.ceil(ITERATIONS * an_iteration / program.loop_ffma))
    found, issued = None, []  # type: tuple[float, float] | None, list[Issued]
    while found is None:
        work = Work(program.prologue, program.loop, after, passes, wave.resident, wave.resident, tiling.warps)
        issued.clear()
        run(work, cost, at, issued.append)
        found = window(issued, ITERATIONS * an_iteration)
        passes *= 2  # where one block has ended before another has begun
    start, end = found
    return Timeline(
        problem,
        kernel,
        tiling,
        device,
        known.clock_hz or device.clock_hz,
        program.source,
        ITERATIONS,
        end - start,
        tuple(_within(intervals_of(issued), start, end)),
        tuple(flights_of(issued, start, end)),
    )


def window(issued: Sequence[Issued], ffma: float) -> tuple[float, float] | None:
    """The first and the last cycle of a while in which all warps are in the main loop and do so many FFMA each on
    average, from where a warp of the last block begins a pass; of several the one of median length. None without any.
    """
    begins: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
    for each in issued:
        if each.lap >= 0:
            begins[each.block, each.warp].setdefault(each.lap, each.start)
    first = max(laps[0] for laps in begins.values())
    last = min(laps[max(laps)] for laps in begins.values())
    ends, done = np.array(sorted((each.end, each.step.ffma) for each in issued)).T
    done = np.cumsum(done) / len(begins)
    starts = np.array([start for start in begins[max(begins)].values() if start >= first + WARM_UP * (last - first)])
    until = np.interp(np.interp(starts, ends, done) + ffma, done, ends)
    found = [(start, end) for start, end in zip(starts.tolist(), until.tolist(), strict=True) if end <= last]
    found.sort(key=lambda each: each[1] - each[0])
    return found[len(found) // 2] if found else None


def intervals_of(issued: Iterable[Issued]) -> Iterator[Interval]:
    """What each warp does from its first step to its last, in the order of the steps; neighbours of a kind are one."""
    by_warp: dict[tuple[int, int], list[Issued]] = defaultdict(list)
    for each in issued:
        by_warp[each.block, each.warp].append(each)
    for of in sorted(by_warp):
        yield from _joined(_of_warp(by_warp[of]))


def _of_warp(steps: Sequence[Issued]) -> Iterator[Interval]:
    writers: dict[int, str] = {}
    before: Issued | None = None
    for each in steps:
        if before is not None:
            yield from _pieces(each, before.end, _waits(before, each, writers))
        plain = each.end - _action_cycles(each.step)
        kind: Kind = "compute" if each.step.ffma else "other"
        yield from _pieces(each, each.start, ((plain, kind), (each.end, ISSUING.get(each.step.action, kind))))
        for scoreboard in (each.step.written, each.step.read):
            if scoreboard >= 0:
                writers[scoreboard] = each.step.action
        before = each


ISSUING: dict[str, Kind] = {
    "global_load": "load", "global_copy": "load", "shared_load": "shared", "shared_store": "shared",
    "barrier": "other", "global_store": "other",
}  # fmt: skip
HELD: dict[str, Kind] = {"barrier": "wait_barrier", "await_copies": "wait_memory", "fence": "wait_memory"}
"""What a warp waits for after an action without a scoreboard, beyond its own latency."""
AWAITED: dict[str, Kind] = {"shared_load": "wait_shared", "shared_store": "wait_shared", "other": "wait_own"}
"""What a scoreboard makes it wait for, by the action that set it; memory where nothing is said."""


def _waits(before: Issued, now: Issued, writers: dict[int, str]) -> tuple[tuple[float, Kind], ...]:
    """(until when, for what) of the time between two steps of a warp, each after the one before."""
    action = before.step.action
    own = before.end if action == "barrier" else before.start + before.step.ready_cycles
    return (
        (own, "wait_own"),
        (now.ready, HELD.get(action, "wait_own")),
        (now.free, AWAITED.get(writers.get(now.last, ""), "wait_memory")),
        (now.start, "wait_turn"),
    )


def _action_cycles(step: Step) -> float:
    """Cycles of a step's issue that are its action's, of a step without FFMA what the plain ones leave."""
    if not step.action:
        return 0.0
    others = step.instructions - 1
    return min(step.issue_cycles, 1.0 if step.ffma else max(1.0, step.issue_cycles - others))


def _pieces(of: Issued, start: float, ends: Iterable[tuple[float, Kind]]) -> Iterator[Interval]:
    """Intervals one after the other, each to its end, none for one that has passed; all of them until the last end."""
    *_, (last, _) = ends = tuple(ends)
    for until, kind in ends:
        end = min(until, last)
        if end > start:
            yield Interval(of.block, of.warp, of.sub_core, kind, start, end, of.lap)
            start = end


def _joined(intervals: Iterable[Interval]) -> Iterator[Interval]:
    held: Interval | None = None
    for each in intervals:
        if held and (each.cycles < INSTANT or (held.kind, held.lap) == (each.kind, each.lap)):
            each = _moved(held, held.start_cycles, each.end_cycles)
        elif held:
            yield held
        held = each
    if held:
        yield held


def _moved(interval: Interval, start: float, end: float) -> Interval:
    of = interval
    return Interval(of.block, of.warp, of.sub_core, of.kind, start, end, of.lap)


def _within(intervals: Iterable[Interval], start: float, end: float) -> Iterator[Interval]:
    """What of them lies in a window, from its start on."""
    for each in intervals:
        first, last = max(start, each.start_cycles), min(end, each.end_cycles)
        if first + INSTANT < last:
            yield _moved(each, first - start, last - start)


def flights_of(issued: Iterable[Issued], start: float, end: float) -> Iterator[Flight]:
    """When something is on its way to each warp, in a window, from its start on; what overlaps is one."""
    on_the_way: dict[tuple[int, int], list[tuple[float, float]]] = defaultdict(list)
    for each in issued:
        asks = each.step.action in ("global_load", "global_copy")
        if asks and max(start, each.end) < min(end, each.done):
            on_the_way[each.block, each.warp].append((max(start, each.end), min(end, each.done)))
    for (block, warp), flights in sorted(on_the_way.items()):
        since, until = flights[0]
        for first, last in flights:
            if first > until:
                yield Flight(block, warp, since - start, until - start)
                since = first
            until = max(until, last)
        yield Flight(block, warp, since - start, until - start)
