"""The queues that all sub-cores of a multiprocessor share, and when what passes through them is there.

Shared accesses, and what global loads bring, pass one data stage at a wavefront a cycle; copies pass it behind all of
these, and pile up in front of it; tags of global accesses are looked up in a stage of its own; below L1 is a queue that
moves bytes at the multiprocessor's share of the rate, then a latency that varies, always in the same way, so that
blocks do not fall into step for good.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from gemmsim.coalescing import LINE_BYTES
from gemmsim.pipeline.costs import Cost, Costs
from gemmsim.pipeline.program import Action
from gemmsim.pipeline.timing import Timing

MULTIPLIER, INCREMENT, MODULUS = 1664525, 1013904223, 2**32
"""The linear congruential generator of Knuth and Lewis: no two loads are equally far from memory."""
COPY_CYCLES = 0.7
"""What a copy through L1 takes of the data stage beyond a cycle for each place that it reads and what it writes: on an
H200, of 4 bytes a lane 2.7 cycles in all where that is one place, 3.7 where two, 5.2 to 6.1 where four; in those loops
of `campaigns/core_loops.py` whose lines L1 holds 2.4, 3.4 and 4.6."""
TURN_CYCLES = {1: 3.1, 2: 3.1, 4: 1.1}
"""What a copy behind a shared access of its warp takes of it besides, by registers moved: loops of copies and shared
loads in turn take 2.6 to 3.4 cycles more for each such pair than both by themselves, with 16 bytes a lane 0.6 to 1.1;
as much for each change where two or four of a kind follow one another, and next to nothing beside global loads."""
COPIES_AHEAD = 40
"""Copies that a multiprocessor holds in front of the data stage before warps have to wait: on an H200 one warp issues
26 at its own pace of one in four cycles, of which one in six is served; four warps, one on each sub-core, 16 each."""
SLOWER_CYCLES = {1: 2.0, 2: 2.0, 4: 3.0}
"""What a further wavefront adds to the latency of a shared load, by registers moved: on an H200 a load of a word takes
2 cycles more with a conflict of two lanes, 6 with one of four; of four words 6 less where lanes share half of them."""
UNKNOWN = Cost()
"""Of a request of which nothing is known."""
Request = Callable[..., tuple[float, float]]
"""Asks at a cycle, so many passes before the last one; tells when the result is there (of a copy, what it wrote), and
when the operands have been read."""


def whole_lines(registers: int) -> Cost:
    """The cost of a request whose lanes are neighbours, such as one of partial sums."""
    return Cost(registers, registers, LINE_BYTES * registers, registers)


def latency_cycles(timing: Timing, wavefronts: float, registers: int) -> float:
    """From the begin of a shared load to when its result is there, so many wavefronts being served for it."""
    return timing.shared_load_cycles[registers] - 1 + (wavefronts - registers) * SLOWER_CYCLES[registers]


def copy_cycles(source: Cost, target: Cost, registers: int) -> float:
    """What a copy takes of the data stage when nothing else is there; 16 bytes a lane do not pass through L1."""
    if registers == 4:
        return target.wavefronts
    return max(source.lookups, source.places) + target.wavefronts + COPY_CYCLES


class Memory:
    """When the data stage has served all that went before copies, and these; when the tags, and the queue below L1, are
    free again."""

    def __init__(self, costs: Costs, timing: Timing) -> None:
        self.costs, self.timing = costs, timing
        self.data = self.copies = self.tags = self.below = 0.0
        self.random = 1

    def cost(self, action: str, registers: int, turn: int = 0) -> Cost:
        """Of the accesses of a kind and width, the one in turn; again the first after the last."""
        found = self.costs.get((action, registers))
        return found[turn % len(found)] if found else UNKNOWN

    def request(self, action: Action, registers: int, turn: int = 0, behind_shared: bool = False) -> Request:
        """What the instruction whose turn it is asks for, again and again; `behind_shared`: a shared access is the last
        thing that its warp has asked for."""
        timing = self.timing
        cost = self.cost(action, registers, turn)
        match action:
            case "shared_load" | "shared_store":
                return self._shared(cost.wavefronts, latency_cycles(timing, cost.wavefronts, registers))
            case "global_load" if (action, registers) in self.costs:
                return self._load(cost, timing.l1_misses)
            case "global_load":
                return self._load(whole_lines(registers), 1.0)
            case "partial_store":
                return self._store(whole_lines(registers))
            case "global_copy":
                source = self.cost("global_copy_source", registers, turn)
                return self._copy(source, cost, registers, TURN_CYCLES[registers] if behind_shared else 0.0)
            case "global_store":
                return self._store(cost)
        farther = max(timing.cold_share) * max(0.0, timing.cold_cycles - timing.global_cycles)
        fixed = {"local": timing.l1_cycles, "atomic": timing.atomic_cycles + farther}.get(action, timing.other_cycles)
        return lambda now, left=0: (now + fixed, now + timing.operand_cycles)

    def _shared(self, data_cycles: float, latency_cycles: float) -> Request:
        operand_cycles = self.timing.operand_cycles

        def ask(now: float, left: int = 0) -> tuple[float, float]:
            begin = self.hold(now, data_cycles)
            return begin + latency_cycles, begin + operand_cycles

        return ask

    def _load(self, cost: Cost, l1_misses: float) -> Request:
        timing = self.timing
        missed = cost.bytes * l1_misses
        lookup_cycles, data_cycles = cost.lookups, cost.wavefronts
        l1_cycles, operand_cycles = timing.l1_cycles, timing.operand_cycles
        fetch = self._fetch(missed, cost)

        def ask(now: float, left: int = 0) -> tuple[float, float]:
            looked_up = self.tags = (self.tags if self.tags > now else now) + lookup_cycles
            there = self.hold(looked_up, data_cycles) + data_cycles + l1_cycles
            if missed and (fetched := fetch(looked_up, left)) > there:
                there = fetched
            return there, looked_up + operand_cycles

        return ask

    def hold(self, now: float, data_cycles: float) -> float:
        """When the data stage begins to serve something of so many cycles; copies wait meanwhile."""
        begin = self.data if self.data > now else now
        self.data = begin + data_cycles
        if self.copies > begin:
            self.copies += data_cycles
        return begin

    def _copy(self, source: Cost, target: Cost, registers: int, turn_cycles: float) -> Request:
        fetch = self._fetch(source.bytes * self.timing.l1_misses, source)
        data_cycles = copy_cycles(source, target, registers) + turn_cycles
        piled_cycles = COPIES_AHEAD * data_cycles

        def ask(now: float, left: int = 0) -> tuple[float, float]:
            looked_up = self.tags = (self.tags if self.tags > now else now) + source.lookups
            self.copies = max(self.copies, self.data, now) + data_cycles
            if target.again:
                self.hold(now, target.again)
            return fetch(looked_up, left), max(now, self.copies - piled_cycles) + self.timing.operand_cycles

        return ask

    def _store(self, cost: Cost) -> Request:
        cycles = cost.bytes * self.timing.store_cycles_per_byte

        def ask(now: float, left: int = 0) -> tuple[float, float]:
            looked_up = self._look_up(cost, now)
            self.below = max(self.below, looked_up) + cycles
            read = looked_up + self.timing.operand_cycles
            return read, read

        return ask

    def draw(self) -> float:
        """A number from 0 to 1; the same row of them in every run."""
        self.random = (self.random * MULTIPLIER + INCREMENT) % MODULUS
        return self.random / MODULUS

    def _look_up(self, cost: Cost, now: float) -> float:
        """When the tags of a request have been looked up."""
        self.tags = max(self.tags, now) + cost.lookups
        return self.tags

    def _fetch(self, bytes_: float, cost: Cost) -> Callable[[float, int], float]:
        """What tells when so many bytes are there from below L1."""
        timing, passes_apart = self.timing, cost.passes_apart
        lines = max(cost.places, cost.bytes / LINE_BYTES) * timing.l1_misses
        moved_cycles = max(bytes_ * timing.load_cycles_per_byte, lines * timing.line_cycles)
        # Of so many places the slowest counts, whoever was the first to miss it.
        power = 1 / cost.places if cost.places else math.inf
        share = timing.cold_share[cost.operand != "a"]
        warm_cycles, warm_tail_cycles = timing.global_cycles, timing.global_tail_cycles
        cold_cycles, cold_tail_cycles = timing.cold_cycles, timing.cold_tail_cycles

        def there(now: float, left: int) -> float:
            below = self.below = (self.below if self.below > now else now) + moved_cycles
            late = -math.log1p(-(self.draw() ** power))
            if share and not left % passes_apart and self.draw() < share:
                return below + cold_cycles + late * cold_tail_cycles
            return below + warm_cycles + late * warm_tail_cycles

        return there
