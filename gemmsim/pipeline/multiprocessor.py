"""An event-driven simulation of one multiprocessor: schedulers, scoreboards, barriers, and the queues that its
sub-cores share (`gemmsim.pipeline.memory`).

Each sub-core issues one warp's step at a time. It stays with a warp as long as that can go on, then turns to one of the
oldest block that has any that can; of these to the one that has not issued for longest. Stamps of the clock in every
warp of the loops of `campaigns/core_loops.py` showed all three on an H200. A few accesses of memory wait in front of
the queues that all share, and no more; where all warps wait for room there, that which issued last stays the first.
Huerta et al., "Analyzing Modern NVIDIA GPU Cores" (arXiv 2503.20481), found room for five on sm_86. What loads bring is
written to registers when nothing else needs their port (`gemmsim.pipeline.registers`).
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

from gemmsim.main_loops.sub_core import SCOREBOARDS
from gemmsim.pipeline.costs import Costs
from gemmsim.pipeline.memory import Asker, Memory, Request
from gemmsim.pipeline.program import Action, Step, Steps
from gemmsim.pipeline.registers import Arrivals, spare_cycles
from gemmsim.pipeline.timing import CODE_INSTRUCTIONS, Timing
from gemmsim.pipeline.work import Issued, Watch, Work

SUB_CORES = 4
CODE_AHEAD = 128
"""Instructions that are fetched before they are needed, as long as the code goes straight on."""
MEMORY_QUEUE = 5
"""Accesses of memory that a sub-core has issued and nobody has begun to serve, at most."""
DATA: tuple[Action, ...] = ("shared_load", "shared_store", "global_load", "global_copy")
"""Actions that the data stage serves."""
LOADS: tuple[Action, ...] = ("shared_load", "global_load")
"""Actions that bring what is written to registers."""
CONTROL: tuple[Action, ...] = ("barrier", "commit", "await_copies", "fence")
"""Actions that ask no memory."""
ENDED = 3
"""The part of a program that a warp is in when it has done all."""


class _Ready(NamedTuple):
    """A step as it is issued over and over: its number in the code, what is looked at each time, and the step; `spare`
    are the cycles in which it leaves the port of the registers to what loads bring, `brings` whether it is a load."""

    number: int
    issue_cycles: float
    ready_cycles: float
    waits: tuple[int, ...]
    request: Request | None
    written: int
    read: int
    spare: float
    brings: bool
    step: Step


NOTHING = _Ready(-1, 0.0, 0.0, (), None, -1, -1, 0.0, False, Step(0.0, 0.0))


@dataclass(eq=False, slots=True)
class _SubCore:
    """`free` when it can issue again; of its cache of code when each step is there and what had been fetched by then,
    what has been fetched in all, and until when. `left`: when its last accesses of memory left its own queue; it takes
    another once the first of these has. `warps` in the order of their turns."""

    number: int
    code: list[tuple[float, float] | None]
    warps: list[_Warp] = field(default_factory=list)
    current: _Warp | None = None
    free: float = 0.0
    fetched: float = 0.0
    fetching: float = 0.0
    left: deque[float] = field(default_factory=lambda: deque([0.0] * MEMORY_QUEUE, MEMORY_QUEUE))
    arrivals: Arrivals[_Warp] = field(default_factory=Arrivals)

    def turn_to(self, place: int) -> None:
        """Let a warp issue, and the others of its block come first the next time."""
        warps = self.warps
        warp = self.current = warps[place]
        last = place
        while last + 1 < len(warps) and warps[last + 1].block is warp.block:
            last += 1
        if last > place:
            del warps[place]
            warps.insert(last, warp)


@dataclass(eq=False, slots=True)
class _Warp:
    """`ready` is when it could go on but for scoreboards, `go` with these; never while it waits at a barrier, or for
    what loads bring. Of each scoreboard `free` says from when on it is, `loads` how many hold it, and `taken` until
    when others do."""

    block: _Block
    core: _SubCore
    asker: Asker
    ready: float
    left: int
    next: _Ready
    part: int = 0
    at: int = 0
    steps: list[_Ready] = field(default_factory=list)
    go: float = math.inf
    waits_at_barrier: bool = False
    copied: float = 0.0
    groups: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=lambda: [0.0] * SCOREBOARDS)
    loads: list[int] = field(default_factory=lambda: [0] * SCOREBOARDS)
    taken: list[float] = field(default_factory=lambda: [0.0] * SCOREBOARDS)


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
        self.parts = self.prepared()
        steps = sum(map(len, self.parts[0]))
        self.cores = [_SubCore(number, [None] * steps) for number in range(SUB_CORES)]
        self.due = [math.inf] * SUB_CORES
        self.started = 0
        self.arrivals = 0.0
        self.block_ends: list[float] = []

    def prepared(self) -> list[list[list[_Ready]]]:
        """The three parts as each warp of a block runs them: some warps have no lane in some accesses."""
        parts: list[list[list[_Ready]]] = [[] for _ in range(self.work.warps)]
        numbers = count()
        for part in range(3):
            for of_warp in parts:
                of_warp.append([])
            turns: dict[tuple[str, int], int] = defaultdict(int)
            for step in (each for step in self.work.part(part) for each in in_time(step)):
                number, of = next(numbers), (step.action, step.registers)
                taking = self.memory.cost(*of, turns[of]).warps
                ready = self.ready(number, step, turns[of])
                idle = self.ready(number, step._replace(action="", written=-1, read=-1)) if taking else ready
                turns[of] += 1
                for warp, of_warp in enumerate(parts):
                    of_warp[part].append(ready if not taking or taking[warp] else idle)
        return parts

    def ready(self, number: int, step: Step, turn: int = 0) -> _Ready:
        asks = step.action and step.action not in CONTROL
        request = self.memory.request(step.action, step.registers, turn) if asks else None
        late = step.ffma * self.timing.ffma_late_cycles
        issue_cycles, ready_cycles = step.issue_cycles + late, step.ready_cycles + late
        spare = spare_cycles(issue_cycles, step.ffma, request is not None)
        brings = step.action in LOADS and step.written >= 0
        return _Ready(
            number, issue_cycles, ready_cycles, step.waits, request, step.written, step.read, spare, brings, step
        )

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
                for place, warp in enumerate(core.warps):
                    if (go := warp.go) <= now:
                        if room <= now or not warp.next.request:
                            if warp is not core.current:
                                core.turn_to(place)
                            break
                        go = room
                    if go < soonest:
                        soonest = go
                else:
                    due[core.number] = self.write_back(core, now, soonest)
                    continue
            issue(warp, core, now)
        ends = sorted(self.block_ends)
        return Ran(float(max(*ends, self.memory.data, self.memory.below)), tuple(ends))

    def wake(self, core: _SubCore, when: float) -> None:
        """Let a sub-core look for work at some time, unless it does so earlier."""
        self.due[core.number] = min(self.due[core.number], max(when, core.free))

    def write_back(self, core: _SubCore, now: float, soonest: float) -> float:
        """Write to registers what loads bring, while no warp can go on; when the first one can."""
        arrivals = core.arrivals
        while arrivals.first < soonest and (written := arrivals.write(now, soonest)) is not None:
            now, warp, scoreboard = written
            soonest = min(soonest, self.let_go(warp, scoreboard, now))
        return soonest

    def write_beside(self, core: _SubCore, now: float, end: float) -> None:
        """The same in the cycles that a step leaves."""
        while (written := core.arrivals.write(now, end)) is not None:
            now, warp, scoreboard = written
            self.let_go(warp, scoreboard, now)

    def let_go(self, warp: _Warp, scoreboard: int, now: float) -> float:
        """Free a scoreboard of a load whose result has been written; when its warp can go on, if that waited for it."""
        warp.loads[scoreboard] -= 1
        if warp.loads[scoreboard]:
            return math.inf
        warp.free[scoreboard] = max(now, warp.taken[scoreboard])
        if warp.go < math.inf or warp.waits_at_barrier or warp.part == ENDED:
            return math.inf
        warp.go = max(warp.ready, *(warp.free[each] for each in warp.next.waits))
        return warp.go

    def start_block(self, now: float) -> None:
        block = _Block(self.started)
        self.started += 1
        for number in range(self.work.warps):
            core = min(self.cores, key=lambda each: len(each.warps))
            turn, place = divmod(block.number, self.work.resident)
            warp = _Warp(block, core, Asker(place, turn, number), now, self.work.passes, NOTHING)
            if self.settle(warp):
                continue
            self.expect(warp, core, now)
            block.warps.append(warp)
            core.warps.append(warp)
            self.wake(core, now)
        block.running = len(block.warps)

    def issue(self, warp: _Warp, core: _SubCore, now: float) -> None:
        _, issue_cycles, ready_cycles, _, request, written, read, spare, brings, step = warp.next
        done = end = now + issue_cycles
        core.free = self.due[core.number] = end
        seen = self.watch and waited(warp, step)
        warp.ready = now + ready_cycles
        if core.arrivals.first < end and spare:
            self.write_beside(core, end - spare, end)
        if request:
            there, taken = request(end, warp.left, warp.asker)
            done = there
            core.left.append(taken - self.timing.operand_cycles)
            if step.action == "global_copy":
                warp.copied = done = max(warp.copied, there)
                there = taken
            if brings:
                warp.loads[written] += 1
                warp.free[written] = math.inf
                core.arrivals.add(there - step.registers, warp, written, step.registers)
            elif written >= 0 and warp.taken[written] < there:
                warp.taken[written] = there
                warp.free[written] = math.inf if warp.loads[written] else there
            if read >= 0 and warp.free[read] < taken:
                warp.taken[read] = warp.free[read] = taken
        elif step.action:
            self.control(warp, step, end)
        if self.watch and seen:
            lap = self.work.passes - warp.left if warp.part == 1 else -1
            of = warp.block.number, warp.asker.warp, core.number
            self.watch(Issued(now, end, *of, step, lap, *seen, done))
        warp.at += 1
        if warp.at == len(warp.steps) and self.turn(warp):
            self.end_warp(warp, end)
        else:
            self.expect(warp, core, end)

    def expect(self, warp: _Warp, core: _SubCore, now: float) -> None:
        """Find when a warp can go on with its next step, once its sub-core has the code."""
        of = warp.next = warp.steps[warp.at]
        number, waits = of.number, of.waits
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

    def fetch_code(self, core: _SubCore, of: _Ready, now: float) -> tuple[float, float]:
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
        parts = self.parts[warp.asker.warp]
        while warp.part < ENDED and (not parts[warp.part] or (warp.part == 1 and warp.left <= 0)):
            warp.part += 1
        if warp.part == ENDED:
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
        on = self.arrivals + self.timing.barrier_cycles
        for other in block.warps:
            if other.waits_at_barrier:
                other.waits_at_barrier = False
                other.ready = max(other.ready, on)
                other.go = max(other.ready, *(other.free[each] for each in other.next.waits), 0.0)
                self.wake(other.core, on)


def busy_cycles(loop: Steps, costs: Costs) -> float:
    """Cycles of a multiprocessor that a warp takes of what is asked most in a pass of a loop: the issue slots of all
    sub-cores, the lookups of tags, or the data stage. No number of warps goes round faster."""
    turns: dict[tuple[str, int], int] = defaultdict(int)
    lookups = data = 0.0
    for step in loop:
        of = step.action, step.registers
        if each := costs.get(of):
            cost = each[turns[of] % len(each)]
            taking = sum(cost.warps) / len(cost.warps) if cost.warps else 1.0
            lookups += taking * cost.lookups * step.action.startswith("global")
            data += taking * cost.wavefronts * (step.action in DATA)
            turns[of] += 1
    return max(sum(step.issue_cycles for step in loop) / SUB_CORES, lookups, data)


def in_time(step: Step) -> Iterator[Step]:
    """A step as it is issued: what asks memory after other instructions by itself, so that all requests of a
    multiprocessor are met in the order of their times."""
    before = step.ready_cycles - step.after_cycles
    if before > 1 and step.action and max(step.instructions, step.issue_cycles) >= 2:
        slots = min(1.0, step.issue_cycles)
        yield Step(
            step.issue_cycles - slots, before, step.waits, ffma=step.ffma, instructions=max(0, step.instructions - 1)
        )
        yield step._replace(
            issue_cycles=slots, ready_cycles=step.after_cycles, waits=(), ffma=0, instructions=min(1, step.instructions)
        )
    else:
        yield step


def waited(warp: _Warp, step: Step) -> tuple[float, float, int]:
    """(when the warp could go on by itself, when its scoreboards were free, which of these last)."""
    last = max(step.waits, key=warp.free.__getitem__, default=-1)
    return warp.ready, warp.free[last] if last >= 0 else 0.0, last
