"""An event-driven simulation of one multiprocessor: schedulers, scoreboards, barriers, and the queues that its
sub-cores share (`gemmsim.pipeline.memory`).

Each sub-core issues one warp's step at a time. It stays with a warp as long as that can go on, then turns to the
oldest that can. On an H200 older blocks go first, but the warps of one block go on alike, and wide loads between FFMA
make blocks more alike than here (`campaigns/core_blocks.py`; docs/theory.md says by how much). A few accesses of memory
wait in front of the queues that all share, and no more; where all warps wait for room there, that which issued last
stays the first. Huerta et al., "Analyzing Modern NVIDIA GPU Cores" (arXiv 2503.20481), found room for five on sm_86.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from gemmsim.main_loops.sub_core import SCOREBOARDS
from gemmsim.pipeline.costs import Costs
from gemmsim.pipeline.memory import Memory
from gemmsim.pipeline.program import Step
from gemmsim.pipeline.ready import NOTHING, SUB_CORES, Ready, parts_of
from gemmsim.pipeline.timing import BARRIER_HELD_CYCLES, CODE_INSTRUCTIONS, Timing
from gemmsim.pipeline.work import Issued, Watch, Work

CODE_AHEAD = 128
"""Instructions that are fetched before they are needed, as long as the code goes straight on."""
MEMORY_QUEUE = 5
"""Accesses of memory that a sub-core has issued and nobody has begun to serve, at most."""


@dataclass(eq=False, slots=True)
class _SubCore:
    """`free` when it can issue again; of its cache of code when each step is there and what had been fetched by then,
    what has been fetched in all, and until when. `left`: when its last accesses of memory left its own queue; it takes
    another once the first of these has."""

    number: int
    code: list[tuple[float, float] | None]
    warps: list[_Warp] = field(default_factory=list)
    current: _Warp | None = None
    free: float = 0.0
    fetched: float = 0.0
    fetching: float = 0.0
    left: deque[float] = field(default_factory=lambda: deque([0.0] * MEMORY_QUEUE, MEMORY_QUEUE))


@dataclass(eq=False, slots=True)
class _Warp:
    """`ready` is when it could go on but for scoreboards, `go` with these; never while it waits at a barrier."""

    block: _Block
    core: _SubCore
    number: int
    ready: float
    left: int
    next: Ready
    part: int = 0
    at: int = 0
    steps: list[Ready] = field(default_factory=list)
    go: float = math.inf
    waits_at_barrier: bool = False
    copied: float = 0.0
    groups: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=lambda: [0.0] * SCOREBOARDS)


@dataclass(eq=False, slots=True)
class _Block:
    number: int
    warps: list[_Warp] = field(default_factory=list)
    arrived: int = 0
    running: int = 0


class Ran(NamedTuple):
    """Cycles until all blocks have ended, their stores on their way; and when each of them ended, in that order."""

    cycles: float
    block_ends: tuple[float, ...]


def run(work: Work, costs: Costs, timing: Timing, watch: Watch | None = None) -> Ran:
    """Simulate; that takes time by blocks, warps and passes."""
    return _Multiprocessor(work, costs, timing, watch).run()


class _Multiprocessor:
    def __init__(self, work: Work, costs: Costs, timing: Timing, watch: Watch | None) -> None:
        self.work, self.timing, self.watch = work, timing, watch
        self.memory = Memory(costs, timing)
        self.parts = parts_of(work, self.memory, timing)
        steps = sum(map(len, self.parts[0]))
        self.cores = [_SubCore(number, [None] * steps) for number in range(SUB_CORES)]
        self.due = [math.inf] * SUB_CORES
        self.started = 0
        self.arrivals = 0.0
        self.block_ends: list[float] = []

    def run(self) -> Ran:
        for number in range(min(self.work.resident, self.work.blocks)):
            self.start_block(number * self.timing.block_start_cycles)
        due, cores, issue = self.due, self.cores, self.issue
        while (now := min(due)) < math.inf:
            core = cores[due.index(now)]
            warp = core.current
            room = core.left[0]
            if warp is None or warp.go > now or (room > now and warp.next.request):
                soonest = math.inf
                for warp in core.warps:  # by age
                    if (go := warp.go) <= now:
                        if room <= now or not warp.next.request:
                            core.current = warp
                            break
                        go = room
                    if go < soonest:
                        soonest = go
                else:
                    due[core.number] = soonest
                    continue
            issue(warp, core, now)
        ends = sorted(self.block_ends)
        return Ran(float(max(*ends, self.memory.data, self.memory.below)), tuple(ends))

    def wake(self, core: _SubCore, when: float) -> None:
        """Let a sub-core look for work at some time, unless it does so earlier."""
        self.due[core.number] = min(self.due[core.number], max(when, core.free))

    def start_block(self, now: float) -> None:
        block = _Block(self.started)
        self.started += 1
        for number in range(self.work.warps):
            core = min(self.cores, key=lambda each: len(each.warps))
            warp = _Warp(block, core, number, now, self.work.passes, NOTHING)
            if self.settle(warp):
                continue
            self.expect(warp, core, now)
            block.warps.append(warp)
            core.warps.append(warp)
            self.wake(core, now)
        block.running = len(block.warps)

    def issue(self, warp: _Warp, core: _SubCore, now: float) -> None:
        _, issue_cycles, ready_cycles, _, request, written, read, step = warp.next
        end = now + issue_cycles
        core.free = self.due[core.number] = end
        seen = self.watch and waited(warp, step)
        warp.ready = now + ready_cycles
        if request:
            there, taken = request(end, warp.left)
            core.left.append(taken - self.timing.operand_cycles)
            if step.action == "global_copy":
                warp.copied = max(warp.copied, there)
                there = taken
            if written >= 0 and warp.free[written] < there:
                warp.free[written] = there
            if read >= 0 and warp.free[read] < taken:
                warp.free[read] = taken
        elif step.action:
            self.control(warp, step, end)
        if self.watch and seen:
            lap = self.work.passes - warp.left if warp.part == 1 else -1
            of = warp.block.number, warp.number, core.number
            self.watch(Issued(now, end, *of, step, lap, *seen, done(warp, step, end)))
        warp.at += 1
        if warp.at == len(warp.steps) and self.turn(warp):
            self.end_warp(warp, end)
        else:
            self.expect(warp, core, end)

    def expect(self, warp: _Warp, core: _SubCore, now: float) -> None:
        """Find when a warp can go on with its next step, once its sub-core has the code."""
        number, _, _, waits, _, _, _, _ = of = warp.next = warp.steps[warp.at]
        held = core.code[number]
        if held is None or core.fetched - held[1] >= CODE_INSTRUCTIONS:
            held = self.fetch_code(core, of, now)
        there = held[0]
        if there > warp.ready:
            warp.ready = there
        if warp.waits_at_barrier:
            warp.go = math.inf
            return
        go = warp.ready
        if waits:
            free = warp.free
            for scoreboard in waits:
                if free[scoreboard] > go:
                    go = free[scoreboard]
        warp.go = go

    def fetch_code(self, core: _SubCore, of: Ready, now: float) -> tuple[float, float]:
        """When a sub-core has the code of a step, and what it has fetched by then: that comes line by line, and drives
        out what came longest ago."""
        instructions = of.step.instructions or of.step.issue_cycles
        ahead = now - CODE_AHEAD * self.timing.code_cycles
        core.fetching = max(core.fetching, ahead) + instructions * self.timing.code_cycles
        core.fetched += instructions
        held = core.code[of.number] = core.fetching, core.fetched
        return held

    def turn(self, warp: _Warp) -> bool:
        """Let a warp go round the loop once more, or on to its next part; whether there is none."""
        warp.at = 0
        if warp.part == 1:
            warp.left -= 1
            if warp.left > 0:
                return False
        warp.part += 1
        return self.settle(warp)

    def settle(self, warp: _Warp) -> bool:
        """Move a warp on to a part that has steps; whether there is none."""
        parts = self.parts[warp.number]
        while warp.part < 3 and (not parts[warp.part] or (warp.part == 1 and warp.left <= 0)):
            warp.part += 1
        if warp.part == 3:
            return True
        warp.steps = parts[warp.part]
        return False

    def end_warp(self, warp: _Warp, now: float) -> None:
        warp.go, warp.waits_at_barrier = math.inf, False
        warp.core.warps.remove(warp)
        block = warp.block
        block.running -= 1
        if block.running:
            return
        self.block_ends.append(now)
        if self.started < self.work.blocks:
            self.start_block(now + self.timing.block_turnover_cycles)

    def control(self, warp: _Warp, step: Step, now: float) -> None:
        """What the last instruction of a step does if it asks no memory."""
        if step.action == "barrier":
            self.arrive(warp.block, warp, max(now, warp.core.left[-1]))
        elif step.action == "commit":
            warp.groups.append(warp.copied)
        elif step.action == "fence":
            warp.ready = max(warp.ready, max(self.memory.below, now) + self.timing.fence_cycles)
        elif (over := len(warp.groups) - step.registers) > 0:  # awaits copies
            warp.ready = max(warp.ready, warp.groups[over - 1])
            del warp.groups[:over]

    def arrive(self, block: _Block, warp: _Warp, now: float) -> None:
        """Let a warp wait for those of its block, and all of them go on when the last has come."""
        warp.waits_at_barrier = True
        block.arrived += 1
        self.arrivals = max(self.arrivals, now) + self.timing.arrival_cycles
        if block.arrived < block.running:
            return
        block.arrived = 0
        self.memory.hold(now, BARRIER_HELD_CYCLES)
        on = self.arrivals + self.timing.barrier_cycles
        for other in block.warps:
            if other.waits_at_barrier:
                other.waits_at_barrier = False
                other.ready = max(other.ready, on)
                other.go = max(other.ready, *(other.free[each] for each in other.next.waits), 0.0)
                self.wake(other.core, on)


def waited(warp: _Warp, step: Step) -> tuple[float, float, int]:
    """(when the warp could go on by itself, when its scoreboards were free, which of these last)."""
    last = max(step.waits, key=warp.free.__getitem__, default=-1)
    return warp.ready, warp.free[last] if last >= 0 else 0.0, last


def done(warp: _Warp, step: Step, end: float) -> float:
    """When what a step asked memory for is there."""
    if step.action == "global_copy":
        return warp.copied
    return warp.free[step.written] if step.written >= 0 else end
