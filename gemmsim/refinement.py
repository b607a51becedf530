"""The first configurations of a ranking looked at more closely than millions can be.

All are predicted in full, wavefronts counted and registers looked up. The first get the warps, stages, widths, layouts
and orders that suit their tiles best, and are simulated, their programs told from the kernel's description, so that
none is favored. What comes to the front that way is simulated in its turn, until all that lead have been.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gemmsim.caches.traffic import cache_traffic
from gemmsim.calibration import calibration
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.errors import InputError
from gemmsim.pipeline.described import described_program
from gemmsim.predict import predict
from gemmsim.scoring import TELLING, Result
from gemmsim.simulated_times import simulated_s
from gemmsim.spaces import Space
from gemmsim.tables import ORDERS, rows_of, size_of
from gemmsim.tiling import FIELDS, Tiling

Tell = Callable[[str, int, int], None]
"""What hears of long work: (phase, done, of how many)."""
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


def refined(results: Sequence[Result], spaces: Sequence[Space], simulated: int, tell: Tell = untold) -> list[Result]:
    """The same, the first of them in what suits their tiles best, and of these so many simulated; the fastest first.

    Where both routes were asked, the time is the geometric mean of what they say: it orders configurations better than
    either, since they err for different reasons (`benchmarks/refining.py`). The times of the others are moved by as
    much as those of the simulated ones are, by the median.
    """
    by_kernel = {of.kernel.name: of for of in spaces}
    found = [*results]
    for at, each in enumerate(found[:SUITED]):
        found[at] = suited(each, by_kernel[each.kernel.name])
        tell("tiles suited", at + 1, min(SUITED, len(found)))
    found = _ordered(found)
    try:
        for at, each in enumerate(found[:simulated]):
            found[at] = simulated_too(each, by_kernel[each.kernel.name])
            tell("simulated", at + 1, min(simulated, len(found)))
    except InputError:  # too little is known of the device
        return _ordered(replace(each, time_s=each.analytic_s, simulated_s=None) for each in found)
    moved = statistics.median(each.time_s / each.analytic_s for each in found[:simulated]) if simulated else 1.0
    return _ordered(
        [*found[:simulated], *(replace(each, time_s=moved * each.analytic_s) for each in found[simulated:])]
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


def simulated_too(result: Result, of: Space) -> Result:
    """The same with the simulated time, and the mean of both routes."""
    launch = of.problem, result.kernel, result.tiling, of.device
    program, fit = described_program(*launch), int(predict(*launch).occupancy.blocks_per_sm)
    time_s = simulated_s(*launch, program, fit, calibration(of.device))
    return replace(result, simulated_s=time_s, time_s=math.sqrt(result.analytic_s * time_s))


def _together(results: Sequence[Result]) -> Tiling:
    columns = np.array([[getattr(each.tiling, name) for name in FIELDS] for each in results]).T
    return Tiling(**dict(zip(FIELDS, columns, strict=True)))


def _one(tilings: Tiling, at: int) -> Tiling:
    return Tiling(**vars(rows_of(tilings, at)))


def _ordered(results: Iterable[Result]) -> list[Result]:
    return sorted(results, key=lambda each: each.time_s)
