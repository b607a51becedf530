"""What each warp of a block issues: the steps of its program, with what each asks memory for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain, count
from typing import NamedTuple

from gemmsim.pipeline.costs import Costs
from gemmsim.pipeline.memory import Memory, Request, copy_cycles
from gemmsim.pipeline.program import Action, Step, Steps
from gemmsim.pipeline.timing import BARRIER_HELD_CYCLES, Timing
from gemmsim.pipeline.work import Work

SUB_CORES = 4
DATA: tuple[Action, ...] = ("shared_load", "shared_store", "global_load", "global_copy")
"""Actions that the data stage serves."""
SHARED = DATA[:2]
CONTROL: tuple[Action, ...] = ("barrier", "commit", "await_copies", "fence")
"""Actions that ask no memory."""


class Ready(NamedTuple):
    """A step as it is issued over and over: its number in the code, what is looked at each time, and the step."""

    number: int
    issue_cycles: float
    ready_cycles: float
    waits: tuple[int, ...]
    request: Request | None
    written: int
    read: int
    step: Step


NOTHING = Ready(-1, 0.0, 0.0, (), None, -1, -1, Step(0.0, 0.0))
Parts = list[list[Ready]]
"""What a warp issues before its main loop, in each pass, and after it."""


def parts_of(work: Work, memory: Memory, timing: Timing) -> list[Parts]:
    """The parts of each warp of a block: where a warp has no lane in an access it only issues it."""
    parts: list[Parts] = [[] for _ in range(work.warps)]
    numbers = count()
    for part in range(3):
        for of_warp in parts:
            of_warp.append([])
        turns: dict[tuple[str, int], int] = defaultdict(int)
        steps = tuple(chain.from_iterable(map(in_time, work.part(part))))
        for step, behind_shared in zip(steps, behind_shared_accesses(steps), strict=True):
            number, of = next(numbers), (step.action, step.registers)
            taking = memory.cost(*of, turns[of]).warps
            asking = _ready(number, step, memory, timing, turns[of], behind_shared)
            idle = _ready(number, step._replace(action="", written=-1, read=-1), memory, timing) if taking else asking
            turns[of] += 1
            for warp, of_warp in enumerate(parts):
                of_warp[part].append(asking if not taking or taking[warp] else idle)
    return parts


def behind_shared_accesses(steps: Steps) -> Iterator[bool]:
    """Of each step, whether the last thing its warp asked the data stage for was a shared access; of the first ones, as
    if the last ones went before, as in a loop."""
    kinds = [step.action for step in steps if step.action in DATA]
    last = kinds[-1] if kinds else ""
    for step in steps:
        yield last in SHARED
        if step.action in DATA:
            last = step.action


def _ready(
    number: int, step: Step, memory: Memory, timing: Timing, turn: int = 0, behind_shared: bool = False
) -> Ready:
    asks = step.action and step.action not in CONTROL
    request = memory.request(step.action, step.registers, turn, behind_shared) if asks else None
    late = step.ffma * timing.ffma_late_cycles
    issue_cycles, ready_cycles = step.issue_cycles + late, step.ready_cycles + late
    return Ready(number, issue_cycles, ready_cycles, step.waits, request, step.written, step.read, step)


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


def busy_cycles(loop: Steps, costs: Costs, warps: int) -> float:
    """Cycles of a multiprocessor that a block of so many warps takes of what is asked most in a pass of a loop: the
    issue slots of all sub-cores, the lookups of tags, or the data stage. No number of blocks goes round faster."""
    turns: dict[tuple[str, int], int] = defaultdict(int)
    lookups = data = 0.0
    for step in loop:
        of = step.action, step.registers
        turn, turns[of] = turns[of], turns[of] + 1
        data += BARRIER_HELD_CYCLES * (step.action == "barrier")
        if not (each := costs.get(of)):
            continue
        cost = each[turn % len(each)]
        taking = sum(cost.warps) if cost.warps else warps
        lookups += taking * cost.lookups * step.action.startswith("global")
        if step.action == "global_copy" and (sources := costs.get(("global_copy_source", step.registers))):
            data += taking * (copy_cycles(sources[turn % len(sources)], cost, step.registers) + cost.again)
        else:
            data += taking * cost.wavefronts * (step.action in DATA)
    return max(warps * sum(step.issue_cycles for step in loop) / SUB_CORES, lookups, data)
