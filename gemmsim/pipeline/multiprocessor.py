"""An event-driven simulation of one multiprocessor: schedulers, scoreboards, barriers, and the queues that its
sub-cores share.

Each sub-core issues one warp's step at a time. It stays with a warp as long as that can go on, then turns to the
youngest that can: Huerta et al., "Analyzing Modern NVIDIA GPU Cores" (arXiv 2503.20481), found this order on sm_86, and
of those that were tried here none comes closer on an H200. Shared accesses, and what global loads bring, pass one data
stage at a wavefront a cycle; tags of global accesses are looked up in a stage of its own; below L1 is a queue that
moves bytes at the multiprocessor's share of the rate, then a latency that varies, always in the same way: so blocks do not
fall into step for good.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from gemmsim.coalescing import LINE_BYTES
from gemmsim.pipeline.program import SCOREBOARDS, Step, Steps
from gemmsim.pipeline.timing import Cost, Costs, Timing

SUB_CORES = 4
MULTIPLIER, INCREMENT, MODULUS = 1664525, 1013904223, 2**32
"""The linear congruential generator of Knuth and Lewis: no two loads are equally far from memory."""
Watch = Callable[[float, float, int, int, Step, int], None]
"""Is told of every step: (start, end of issue, block, warp in it, step, pass of the main loop or -1)."""


@dataclass
class Work:
    """What a multiprocessor is given: `blocks`, at most `resident` of them at once, of `warps` warps.

    Each warp runs `before`, then `passes` times `loop`, then `after`.
    """

    before: Steps
    loop: Steps
    after: Steps
    passes: int
    blocks: int
    resident: int
    warps: int

    def part(self, number: int) -> Steps:
        """The steps of part 0, 1 or 2."""
        return (self.before, self.loop, self.after)[number]


@dataclass(eq=False, slots=True)
class _Warp:
    block: _Block
    sub_core: int
    age: int
    ready: float
    part: int = 0
    at: int = 0
    left: int = 0
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


def run(work: Work, costs: Costs, timing: Timing, watch: Watch | None = None) -> float:
    """Cycles until all blocks have ended, their stores on their way; the time of the simulation grows with
    blocks, warps and passes."""
    return _Multiprocessor(work, costs, timing, watch).run()


class _Multiprocessor:
    def __init__(self, work: Work, costs: Costs, timing: Timing, watch: Watch | None) -> None:
        self.work, self.costs, self.timing, self.watch = work, costs, timing, watch
        self.parts = [list(work.part(number)) for number in range(3)]
        self.warps: list[list[_Warp]] = [[] for _ in range(SUB_CORES)]
        self.current: list[_Warp | None] = [None] * SUB_CORES
        self.free = [0.0] * SUB_CORES
        self.next = [math.inf] * SUB_CORES
        self.events: list[tuple[float, int]] = []
        self.started = 0
        self.random = 1
        self.data = self.tags = self.below = self.arrivals = self.end = 0.0

    def run(self) -> float:
        for number in range(min(self.work.resident, self.work.blocks)):
            self.start_block(number * self.timing.block_start_cycles)
        events = self.events
        while events:
            now, sub_core = heapq.heappop(events)
            if now != self.next[sub_core]:
                continue
            if now < self.free[sub_core]:
                self.wake(sub_core, self.free[sub_core], again=True)
                continue
            warp, when = self.choose(sub_core, now)
            if warp is None:
                self.next[sub_core] = math.inf
                if when < math.inf:
                    self.wake(sub_core, when)
                continue
            self.issue(warp, sub_core, now)
        return max(self.end, self.data, self.below)

    def wake(self, sub_core: int, when: float, again: bool = False) -> None:
        """Let a sub-core look for work at some time, unless it does so earlier."""
        if again or when < self.next[sub_core]:
            self.next[sub_core] = when
            heapq.heappush(self.events, (when, sub_core))

    def start_block(self, now: float) -> None:
        block = _Block(self.started)
        self.started += 1
        for number in range(self.work.warps):
            sub_core = number % SUB_CORES
            warp = _Warp(block, sub_core, block.number * self.work.warps + number, now, left=self.work.passes)
            if self.settle(warp):
                continue
            block.warps.append(warp)
            self.warps[sub_core].append(warp)
            self.wake(sub_core, max(now, self.free[sub_core]))
        block.running = len(block.warps)

    def choose(self, sub_core: int, now: float) -> tuple[_Warp | None, float]:
        """(the warp to issue, now), or (None, when to look again)."""
        best: _Warp | None = None
        soonest = math.inf
        current = self.current[sub_core]
        for warp in self.warps[sub_core]:
            if warp.waits_at_barrier:
                continue
            ready = warp.ready
            for scoreboard in self.parts[warp.part][warp.at].waits:
                if warp.free[scoreboard] > ready:
                    ready = warp.free[scoreboard]
            if ready <= now:
                if warp is current:
                    return warp, now
                if best is None or warp.age > best.age:
                    best = warp
            elif ready < soonest:
                soonest = ready
        return best, soonest

    def issue(self, warp: _Warp, sub_core: int, now: float) -> None:
        step = self.parts[warp.part][warp.at]
        end = now + step.issue_cycles
        self.free[sub_core] = end
        self.current[sub_core] = warp
        warp.ready = now + step.ready_cycles
        self.wake(sub_core, end, again=True)
        if self.watch:
            lap = self.work.passes - warp.left if warp.part == 1 else -1
            self.watch(now, end, warp.block.number, warp.age % self.work.warps, step, lap)
        if step.action:
            self.act(warp, step, end)
        warp.at += 1
        if warp.at == len(self.parts[warp.part]):
            warp.at = 0
            if warp.part == 1:
                warp.left -= 1
            if (warp.part != 1 or warp.left <= 0) and self.settle(warp, moving=True):
                self.end_warp(warp, end)

    def settle(self, warp: _Warp, moving: bool = False) -> bool:
        """Move a warp to the next part that has steps; whether there is none."""
        if moving:
            warp.part += 1
        while warp.part < 3 and (not self.parts[warp.part] or (warp.part == 1 and warp.left <= 0)):
            warp.part += 1
        return warp.part == 3

    def end_warp(self, warp: _Warp, now: float) -> None:
        self.warps[warp.sub_core].remove(warp)
        block = warp.block
        block.running -= 1
        if block.running:
            return
        self.end = max(self.end, now)
        if self.started < self.work.blocks:
            self.start_block(now + self.timing.block_turnover_cycles)

    def act(self, warp: _Warp, step: Step, now: float) -> None:
        """What the last instruction of a step sets going, and when its scoreboards are free."""
        timing, action = self.timing, step.action
        if action == "barrier":
            self.arrive(warp.block, warp, now)
            return
        if action == "commit":
            warp.groups.append(warp.copied)
            return
        if action == "await_copies":
            done = len(warp.groups) - step.registers
            if done > 0:
                warp.ready = max(warp.ready, warp.groups[done - 1])
                del warp.groups[:done]
            return
        if action == "fence":
            warp.ready = max(warp.ready, max(self.below, now) + timing.fence_cycles)
            return
        written = read = now + timing.operand_cycles
        if action in ("shared_load", "shared_store"):
            cost = self.costs.get((action, step.registers), UNKNOWN)
            self.data = max(self.data, now) + cost.wavefronts
            read = self.data - cost.wavefronts + timing.operand_cycles
            written = self.data - 1 + timing.shared_load_cycles[step.registers]
        elif action == "global_load":
            cost = self.costs.get((action, step.registers), UNKNOWN)
            looked_up = self.look_up(cost, now)
            missed = cost.bytes * timing.l1_misses
            hit = 1 - timing.l1_misses
            self.data = max(self.data, looked_up) + hit * cost.wavefronts + missed / LINE_BYTES
            read = looked_up + timing.operand_cycles
            written = self.data + timing.l1_cycles
            if missed:
                written = max(written, self.fetch(missed, looked_up))
        elif action == "global_copy":
            source = self.costs.get(("global_copy_source", step.registers), UNKNOWN)
            looked_up = self.look_up(source, now)
            self.data = max(self.data, now) + self.costs.get((action, step.registers), UNKNOWN).wavefronts
            warp.copied = max(warp.copied, self.fetch(source.bytes * timing.l1_misses, looked_up))
            read = written = looked_up + timing.operand_cycles
        elif action == "global_store":
            cost = self.costs.get((action, step.registers), UNKNOWN)
            looked_up = self.look_up(cost, now)
            self.below = max(self.below, looked_up) + cost.bytes * timing.store_cycles_per_byte
            read = written = looked_up + timing.operand_cycles
        elif action == "local":
            written = now + timing.l1_cycles
        elif action == "atomic":
            written = now + timing.atomic_cycles
        else:
            written = now + timing.other_cycles
        for scoreboard, cycle in ((step.written, written), (step.read, read)):
            if scoreboard >= 0 and warp.free[scoreboard] < cycle:
                warp.free[scoreboard] = cycle

    def look_up(self, cost: Cost, now: float) -> float:
        """When the tags of a request have been looked up."""
        self.tags = max(self.tags, now) + cost.lookups
        return self.tags

    def fetch(self, bytes_: float, now: float) -> float:
        """When so many bytes are there from below L1, asked for now."""
        self.below = max(self.below, now) + bytes_ * self.timing.load_cycles_per_byte
        self.random = (self.random * MULTIPLIER + INCREMENT) % MODULUS
        spread = self.timing.global_spread_cycles * (2 * self.random / MODULUS - 1)
        return self.below + self.timing.global_cycles + spread

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
                self.wake(other.sub_core, max(on, self.free[other.sub_core]))


UNKNOWN = Cost()
"""Of a request of which nothing is known, such as one of a partial sum."""
