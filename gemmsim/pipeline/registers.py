"""When what loads bring to a sub-core is written to its registers.

They take a register a cycle, and FFMA come first: five of six leave the port no cycle, and the issue of an access takes
one too. So loads wait where FFMA fill all cycles, in the order of their arrival, whoever asked for them; that makes
warps alike that otherwise would come one after the other. Blocks of one to four warps on a sub-core that ran loops of
`campaigns/core_loops.py` side by side on an H200 ended as they do here: docs/theory.md compares them.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush
from typing import Generic, TypeVar

FFMA_CYCLES = 5 / 6
"""Of the port, that an FFMA takes."""
Warp = TypeVar("Warp")


def spare_cycles(issue_cycles: float, ffma: int, asks: bool) -> float:
    """Cycles in which a step leaves the port to what loads bring."""
    return max(0.0, issue_cycles - FFMA_CYCLES * ffma - asks)


class Arrivals(Generic[Warp]):
    """What has come, or is on its way, to one sub-core: first come, first written. `first` is when the first comes."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, int, Warp, int, int]] = []
        self.first = math.inf
        self.count = 0
        self.done_cycles = 0.0

    def add(self, when: float, warp: Warp, scoreboard: int, registers: int) -> None:
        """Expect so many registers at a cycle, for which a warp waits at a scoreboard."""
        self.count += 1
        heappush(self.waiting, (when, self.count, warp, scoreboard, registers))
        self.first = self.waiting[0][0]

    def write(self, start: float, until: float) -> tuple[float, Warp, int] | None:
        """Write the first that came, in the cycles from `start` to `until`: (when that was done, whose it is, the
        scoreboard); None where they do not suffice, and it goes on the next time."""
        begin = start if start > self.first else self.first
        if begin >= until:
            return None
        _, _, warp, scoreboard, registers = self.waiting[0]
        end = begin + registers - self.done_cycles
        if end > until:
            self.done_cycles += until - begin
            return None
        heappop(self.waiting)
        self.first = self.waiting[0][0] if self.waiting else math.inf
        self.done_cycles = 0.0
        return end, warp, scoreboard
