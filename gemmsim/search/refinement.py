"""The first configurations of a ranking looked at more closely than millions can be.

All are predicted in full, wavefronts counted and registers looked up. The first get the warps, stages, widths, layouts
and orders that suit their tiles best, and are simulated: as compiled, where a compiler is at hand or what it makes of
them is known (`known_code.py`), else as the kernel's description tells their programs, which then counts for less.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmsim.analytic.load_schedules import schedule_of
from gemmsim.caches.traffic import cache_traffic
from gemmsim.calibration import calibration
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.errors import InputError
from gemmsim.kernels import REGISTER_BYTES
from gemmsim.pipeline.described import described_program
from gemmsim.predict import Prediction, predict
from gemmsim.register_table import resources
from gemmsim.routes import DESCRIBED, both_s
from gemmsim.search.known_code import Compiled, known_code, known_registers
from gemmsim.search.scoring import TELLING, Result
from gemmsim.search.spaces import Space
from gemmsim.search.tables import ORDERS, rows_of, size_of
from gemmsim.simulated_times import simulated_s
from gemmsim.tiling import FIELDS, Tiling

Tell = Callable[[str, int, int], None]
"""What hears of long work: (phase, done, of how many)."""

Compiler = Callable[[Sequence[Result], Sequence[Space], Tell], Sequence[Compiled | None]]
"""Compiles configurations of some spaces; None for one that does not compile, or whose code is not understood."""
SUITED = 40
"""Configurations of which all is tried that leaves their tiles as they are."""
NEARLY = 1.01
"""Traffic that is no more than so many times the least is as good: the simplest order of blocks is taken then."""

DEPTH, DEEPER = 8, 0.03
"""Of what leads searches both routes tell times the shorter the deeper the tiles of k are: by 2 % an octave over eight
problems of `campaigns/finalists.py` that were measured, of kernels that do not spill. Why is not known. So the time is
multiplied by block_k over this depth, to this power."""


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
    routes were asked, the time is their weighed mean (`gemmsim.routes`), a little longer for deep tiles. The times of
    the others are moved by as much as those of the simulated ones are, by the median.
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
    times_s = np.broadcast_to(_as_known(of, others).time_s, size_of(others))
    orders = _varied(_one(others, int(times_s.argmin())), of, ORDERS)
    moving_s = _below_l1_s(of, orders)
    simplest = np.flatnonzero(moving_s <= NEARLY * moving_s.min())[:1]
    (found,) = _predicted(of, [result], rows_of(orders, simplest))
    return found


def _varied(tiling: Tiling, of: Space, names: Sequence[str]) -> Tiling:
    """The configurations of a space that differ from one in these fields alone."""
    values = {name: of.values[name] if name in names else (getattr(tiling, name),) for name in of.kernel.fields}
    (found,) = replace(of, values=values).chunks()
    return Tiling(**vars(found))


def _below_l1_s(of: Space, tilings: Tiling) -> Any:
    """Seconds that traffic between L1 and L2, and between L2 and memory, takes at full rate, one after the other."""
    fit = _as_known(of, tilings).occupancy.blocks_per_sm
    moved = cache_traffic(of.problem, of.kernel, tilings, of.device, fit)
    from_l2 = moved.l2_read_sectors * SECTOR_BYTES / of.device.l2_bytes_per_s
    return np.broadcast_to(from_l2 + moved.dram_read_bytes / of.device.dram_bytes_per_s, size_of(tilings))


def _as_known(of: Space, tilings: Tiling) -> Prediction:
    """What the analytic route says of a list of configurations, with the registers that are known of their code."""
    launches = of.problem, of.kernel, tilings, of.device
    told = resources(of.kernel, of.problem, tilings, of.device.capability)
    registers, local_bytes = known_registers(*launches)
    return predict(
        *launches,
        registers_per_thread=np.where(registers > 0, registers, told.registers_per_thread)[()],
        local_bytes=np.where(registers > 0, local_bytes, REGISTER_BYTES * told.spilled)[()],
    )


def _predicted(of: Space, results: Sequence[Result], tilings: Tiling) -> Iterator[Result]:
    """The results with these tilings, and what is predicted in full of each."""
    found = _as_known(of, tilings)
    times_s, bounds = (np.broadcast_to(each, len(results)) for each in (found.time_s, found.bound_by))
    for at, (each, time_s, bound) in enumerate(zip(results, times_s.tolist(), bounds.tolist(), strict=True)):
        yield replace(each, tiling=_one(tilings, at), time_s=time_s, analytic_s=time_s, bound_by=bound)


def simulated_too(result: Result, of: Space, code: Compiled | None = None) -> Result:
    """The same with the simulated time, and the weighed mean of both routes' times: as just compiled, as known, or as
    described, and then it counts for less."""
    launch = of.problem, result.kernel, result.tiling, of.device
    if code := code or known_code(*launch):
        schedule = schedule_of(code.program, result.tiling) if result.kernel.staged else None
        found = predict(*launch, code.registers_per_thread, local_bytes=code.local_bytes, schedule=schedule)
        program, share = code.program, 1.0
    else:
        found, program, share = _as_known(of, result.tiling), described_program(*launch), DESCRIBED
    time_s = simulated_s(*launch, program, int(found.occupancy.blocks_per_sm), calibration(of.device))
    analytic_s = float(found.time_s)
    both = both_s(time_s, analytic_s, result.kernel.name, share)
    return replace(
        result, analytic_s=analytic_s, simulated_s=time_s, time_s=deeper(result) * both, bound_by=str(found.bound_by),
        compiled=code is not None,
    )  # fmt: skip


def deeper(result: Result) -> float:
    """How many times longer than both routes say tiles deeper than `DEPTH` take."""
    return (max(result.tiling.block_k, DEPTH) / DEPTH) ** DEEPER if result.kernel.staged else 1.0


def _together(results: Sequence[Result]) -> Tiling:
    columns = np.array([[getattr(each.tiling, name) for name in FIELDS] for each in results]).T
    return Tiling(**dict(zip(FIELDS, columns, strict=True)))


def _one(tilings: Tiling, at: int) -> Tiling:
    return Tiling(**vars(rows_of(tilings, at)))


def _ordered(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda each: each.time_s)
