"""Writes the program of a warp instruction by instruction, and makes steps of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from gemmsim.pipeline.program import Action, Step, Steps

RESULT = 4
"""The scoreboard of what is waited for at once."""
CHAIN_CYCLES = 2.5
"""From a plain instruction to the next: every other one waits four cycles for the one before."""


@dataclass
class Writer:
    """Steps in the making: plain instructions add up until one that acts, or before one that waits."""

    steps: list[Step] = field(default_factory=list)
    issue: float = 0.0
    ready: float = 0.0
    waits: tuple[int, ...] = ()
    ffma: int = 0
    count: int = 0

    def plain(self, count: int, cycles: float = CHAIN_CYCLES) -> None:
        """Instructions that only take time."""
        self._add(count, count, cycles * count)

    def multiply(self, count: int, pace: float) -> None:
        """FFMA, each after so many cycles."""
        self._add(count, pace * count, pace * count)
        self.ffma += count

    def wait(self, *scoreboards: int) -> None:
        """Let what follows wait for these."""
        self.end()
        self.waits += scoreboards

    def act(
        self, action: Action, times: int = 1, registers: int = 1, written: int = -1, read: int = -1, issue: float = 1.0
    ) -> None:
        """Instructions of which each sets something going."""
        for _ in range(times):
            self._add(1, issue, issue)
            self.end(action, registers, written, read, issue)

    def result(self, action: Action) -> None:
        """An instruction whose result is waited for at once."""
        self.act(action, written=RESULT)
        self.wait(RESULT)

    def end(
        self, action: Action = "", registers: int = 1, written: int = -1, read: int = -1, after: float = 1.0
    ) -> None:
        """Close a step, if there is anything in it."""
        if self.count:
            last = (action, registers, written, read, self.ffma, self.count, after)
            self.steps.append(Step(self.issue, self.ready, self.waits, *last))
            self.issue, self.ready, self.waits, self.ffma, self.count = 0.0, 0.0, (), 0, 0

    def done(self) -> Steps:
        """All steps."""
        self.end()
        return tuple(self.steps)

    def _add(self, count: int, issue: float, ready: float) -> None:
        self.issue += issue
        self.ready += ready
        self.count += count
