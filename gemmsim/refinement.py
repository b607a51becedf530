"""The first configurations of a ranking looked at more closely than millions can be.

All are predicted in full, wavefronts counted and registers looked up. The first get the warps, stages, widths, layouts
and orders that suit their tiles best, and are simulated, their programs told from the kernel's description, so that
none is favored; or, where a compiler is at hand, all of them compiled, and by both routes what became of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from gemmsim.caches.traffic import cache_traffic
from gemmsim.calibration import calibration
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.errors import InputError
from gemmsim.load_schedules import schedule_of
from gemmsim.pipeline.described import described_program
from gemmsim.pipeline.program import Program
from gemmsim.predict import predict
from gemmsim.scoring import TELLING, Result
from gemmsim.simulated_times import simulated_s
from gemmsim.spaces import Space
from gemmsim.tables import ORDERS, rows_of, size_of
from gemmsim.tiling import FIELDS, Tiling

Tell = Callable[[str, int, int], None]
"""What hears of long work: (phase, done, of how many)."""


class Compiled(NamedTuple):
    """What a compiler made of a launch: registers and local memory of a thread, and the program of its warps."""

    registers_per_thread: int
    local_bytes: int
    program: Program


Compiler = Callable[[Sequence[Result], Sequence[Space], Tell], Sequence[Compiled | None]]
"""Compiles configurations of some spaces; None for one that does not compile, or whose code is not understood."""
SUITED = 24
"""Configurations of which all is tried that leaves their tiles as they are."""
NEARLY = 1.01
"""Traffic that is no more than so many times the least is as good: the simplest order of blocks is taken then."""


def untold(phase: str, done: int, of: int) -> None:
    """Nobody wants to hear."""


def in_full(results: Sequence[Result], spaces: Sequence[Space], tell: Tell = untold) -> list[Result]:
    """The same configurations as predicted in full, the fastest first; without those that do not launch."""
    found: list[Result] = []
    for of in spaces:
        mine = [each for each in results if each.kernel is of.kernel]
        if mine:
            found += (each for each in _predicted(of, mine, _together(mine)) if math.isfinite(each.time_s))
            tell("predicted in full", len(found), len(results))
    return _ordered(found)


def refined(
    results: Sequence[Result],
    spaces: Sequence[Space],
    simulated: int,
    tell: Tell = untold,
    compiler: Compiler | None = None,
) -> list[Result]:
    """The same, the first of them in what suits their tiles best, and of these so many simulated; the fastest first.

    With a compiler they are simulated as compiled, and predicted with the registers that they really have. Where both
    routes were asked, the time is the longer of what they say: of millions those come first whose time is told too
    short, and the routes err for different reasons. The times of the others are moved by as much as those of the
    simulated ones are, by the median.
    """
    by_kernel = {of.kernel.name: of for of in spaces}
    found, suiting = [*results], max(SUITED, simulated)
    for at, each in enumerate(found[:suiting]):
        found[at] = suited(each, by_kernel[each.kernel.name])
        tell("tiles suited", at + 1, min(suiting, len(found)))
    found = _ordered(found)
    before, codes = found[:simulated], compiler(found[:simulated], spaces, tell) if compiler else [None] * simulated
    try:
        for at, (each, code) in enumerate(zip(before, codes, strict=True)):
            if code or not compiler:
                found[at] = simulated_too(each, by_kernel[each.kernel.name], code)
            tell("simulated", at + 1, len(before))
    except InputError:  # too little is known of the device
        return _ordered(before + found[simulated:])
    both = [(each.time_s / was.analytic_s) for was, each in zip(before, found, strict=False) if each.simulated_s]
    moved = statistics.median(both) if both else 1.0
    return _ordered(
        each if each.simulated_s is not None else replace(each, time_s=moved * each.analytic_s) for each in found
    )


def suited(result: Result, of: Space) -> Result:
    """The fastest configuration of a space with these tiles, and then with the simplest order of its blocks that moves
    as little as any."""
    others = _varied(result.tiling, of, [name for name in of.kernel.fields if name not in TELLING + ORDERS])
    best = min(_predicted(of, [result] * size_of(others), others), key=lambda each: each.time_s)
    orders = _varied(best.tiling, of, ORDERS)
    moving_s = _below_l1_s(of, orders)
    simplest = int(np.flatnonzero(moving_s <= NEARLY * moving_s.min())[0])
    return replace(best, tiling=_one(orders, simplest))


def _varied(tiling: Tiling, of: Space, names: Sequence[str]) -> Tiling:
    """The configurations of a space that differ from one in these fields alone."""
    values = {name: of.values[name] if name in names else (getattr(tiling, name),) for name in of.kernel.fields}
    (found,) = replace(of, values=values).chunks()
    return Tiling(**vars(found))


def _below_l1_s(of: Space, tilings: Tiling) -> Any:
    """Seconds that traffic between L1 and L2, and between L2 and memory, takes at full rate, one after the other."""
    fit = predict(of.problem, of.kernel, tilings, of.device).occupancy.blocks_per_sm
    moved = cache_traffic(of.problem, of.kernel, tilings, of.device, fit)
    from_l2 = moved.l2_read_sectors * SECTOR_BYTES / of.device.l2_bytes_per_s
    return np.broadcast_to(from_l2 + moved.dram_read_bytes / of.device.dram_bytes_per_s, size_of(tilings))


def _predicted(of: Space, results: Sequence[Result], tilings: Tiling) -> Iterator[Result]:
    """The results with these tilings, and what is predicted in full of each."""
    found = predict(of.problem, of.kernel, tilings, of.device)
    times_s, bounds = (np.broadcast_to(each, len(results)) for each in (found.time_s, found.bound_by))
    for at, (each, time_s, bound) in enumerate(zip(results, times_s.tolist(), bounds.tolist(), strict=True)):
        yield replace(each, tiling=_one(tilings, at), time_s=time_s, analytic_s=time_s, bound_by=bound)


def simulated_too(result: Result, of: Space, code: Compiled | None = None) -> Result:
    """The same with the simulated time, and the longer of both routes' times: as described, or as compiled."""
    launch = of.problem, result.kernel, result.tiling, of.device
    registers, local_bytes = (code.registers_per_thread, code.local_bytes) if code else (None, 0)
    schedule = schedule_of(code.program, result.tiling) if code and result.kernel.staged else None
    found = predict(*launch, registers_per_thread=registers, local_bytes=local_bytes, schedule=schedule)
    program = code.program if code else described_program(*launch)
    time_s = simulated_s(*launch, program, int(found.occupancy.blocks_per_sm), calibration(of.device))
    analytic_s = float(found.time_s)
    return replace(
        result, analytic_s=analytic_s, simulated_s=time_s, time_s=max(analytic_s, time_s),
        bound_by=found.bound_by, compiled=code is not None,
    )  # fmt: skip


def _together(results: Sequence[Result]) -> Tiling:
    columns = np.array([[getattr(each.tiling, name) for name in FIELDS] for each in results]).T
    return Tiling(**dict(zip(FIELDS, columns, strict=True)))


def _one(tilings: Tiling, at: int) -> Tiling:
    return Tiling(**vars(rows_of(tilings, at)))


def _ordered(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda each: each.time_s)
