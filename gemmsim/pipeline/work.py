"""What a multiprocessor is given to do, and what it tells of each step as it does it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from gemmsim.pipeline.program import Step, Steps


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


class Issued(NamedTuple):
    """A step as it was issued.

    start, end   cycles of its issue
    block, warp, sub_core   whose it is: the block, the warp in it, and where it runs
    step         the step
    lap          pass of the main loop, -1 outside
    ready        when the warp could go on by itself, after barriers
    free         when the scoreboards that it waits for were free; 0 without any
    last         the one of these that was free last, -1 without any
    done         when what it asks memory for is there; `end` where nothing can be waited for
    """

    start: float
    end: float
    block: int
    warp: int
    sub_core: int
    step: Step
    lap: int
    ready: float
    free: float
    last: int
    done: float


Watch = Callable[[Issued], None]
"""Is told of every step."""
