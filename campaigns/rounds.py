"""Choose the named scalars of `gemmsim/data/rounds.toml`; prints what they are worth.

python -m campaigns.rounds             as they are
python -m campaigns.rounds --write     chooses them again, a minute; writes the file, its comments kept

Chosen on the points of the shipped records that are not held out, but for two campaigns (LEFT_OUT): the mean of
|ln(predicted / measured)|, no point more than 1, those of the campaigns over all kernels twice, is made small by moving
one scalar after the other in steps that become shorter. What a scalar is worth: how much larger that mean is where it
says nothing, the others as they are.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from campaigns.accuracy import CAMPAIGNS, DEVICE, FRESH, records
from gemmsim.analytic.demands import Scalars, scalars
from gemmsim.analytic.load_schedules import load_schedule
from gemmsim.analytic.rounds import launch_rounds
from gemmsim.calibration import calibration
from gemmsim.device import DATA, Device, device
from gemmsim.held_out import held_out
from gemmsim.kernels import KERNELS, REGISTER_BYTES, Kernel
from gemmsim.predict import counted_shared, resident_blocks
from gemmsim.problem import Problem
from gemmsim.records import Record
from gemmsim.tiling import FIELDS, Tiling
from gemmsim.units import percent

FILE = DATA / "rounds.toml"
SWEEPS, FIRST_STEP, SHORTER = 8, 0.2, 0.6
LEFT_OUT = ("third", FRESH)
"""Campaigns that no scalar is chosen on: formulas are judged on the one, error bars and weights fitted to the other."""
CHOSEN_ON = tuple(name for name in CAMPAIGNS if name not in LEFT_OUT)
TWICE = ("times", "again")
"""Campaigns that count twice: theirs are the tilings that people take."""
SILENT = {"unstaged_latencies": 1.0, "unhidden_share": 1.0}
"""What says nothing, where that is not 0."""
LEAST_PACE = 1.0
"""Issue cycles that no FFMA takes less than."""

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Measured:
    """Points of one kernel as arrays: seconds by scalars, seconds measured, and campaigns."""

    seconds: Callable[[Scalars], Floats]
    measured_s: Floats
    campaign: np.ndarray[Any, np.dtype[np.str_]]


def measured(on: Device) -> list[Measured]:
    """The points that scalars are chosen on: of these campaigns, and not held out."""
    found: dict[str, list[tuple[str, Record]]] = {}
    for campaign, record in records(on, own=True):
        if campaign in CHOSEN_ON and not held_out(record.point) and record.resources:
            found.setdefault(record.point.kernel, []).append((campaign, record))
    return [_measured(KERNELS[name], of, on) for name, of in found.items()]


def _measured(kernel: Kernel, of: Sequence[tuple[str, Record]], on: Device) -> Measured:
    points, compiled = [record.point for _, record in of], [record.compiled for _, record in of]
    problem = Problem(*np.array([(point.problem.m, point.problem.n, point.problem.k) for point in points]).T)
    tiling = Tiling(**{name: np.array([getattr(point.tiling, name) for point in points]) for name in FIELDS})
    registers, local = (np.array([of[name] for of in compiled]) for name in ("registers_per_thread", "local_bytes"))
    resident = resident_blocks(kernel.resources(problem, tiling, registers), on).blocks_per_sm
    widths = kernel.widths(problem, tiling)
    launch = partial(
        launch_rounds, problem, kernel, tiling, widths, on, counted_shared(kernel, tiling, widths, 4), resident,
        registers, local // REGISTER_BYTES, schedule=load_schedule(kernel, problem, tiling, on.capability),
    )  # fmt: skip
    known = calibration(on)
    assert known.clock_hz
    assert known.launch_overhead_s
    return Measured(
        lambda chosen: launch(of=chosen).cycles / known.clock_hz + known.launch_overhead_s,
        np.array([record.median_s for _, record in of]),
        np.array([campaign for campaign, _ in of]),
    )


def errors(of: Sequence[Measured], chosen: Scalars) -> dict[str, Floats]:
    """|ln(predicted / measured)| of every point, by campaign."""
    logs = [np.abs(np.log(each.seconds(chosen) / each.measured_s)) for each in of]
    return {
        name: np.concatenate([log[each.campaign == name] for log, each in zip(logs, of, strict=True)])
        for name in CHOSEN_ON
    }


def loss(of: Sequence[Measured], chosen: Scalars) -> float:
    """What is made as small as it goes."""
    each = errors(of, chosen)
    twice = [each[name] for name in TWICE]
    return float(np.minimum(np.concatenate([*each.values(), *twice]), 1.0).mean())


def values(of: Scalars) -> dict[str, float]:
    """{name: value}; of the paces their kernels' names."""
    own = (each.name for each in fields(of) if each.name not in ("pace", "source"))
    return {name: getattr(of, name) for name in own} | dict(of.pace)


def with_value(of: Scalars, name: str, value: float) -> Scalars:
    """The same scalars but for one."""
    changes: dict[str, Any] = {"pace": {**of.pace, name: value}} if name in of.pace else {name: value}
    return replace(of, **changes)


def chosen(of: Sequence[Measured], start: Scalars) -> Scalars:
    """The best scalars that steps from some others find."""
    best, least = start, loss(of, start)
    for sweep in range(SWEEPS):
        for name in values(start):
            for sign in (1, -1):
                while True:
                    step = 1 + sign * FIRST_STEP * SHORTER**sweep
                    value = values(best)[name] * step
                    if name in best.pace and value < LEAST_PACE:
                        break
                    tried = with_value(best, name, value)
                    if (error := loss(of, tried)) > least * (1 - 1e-6):
                        break
                    best, least = tried, error
    return best


def written(text: str, found: Mapping[str, float]) -> str:
    """The text of the file with other numbers."""
    for name, value in found.items():
        text = re.sub(rf"(?m)^({name} = )[\d.]+", rf"\g<1>{float(f'{value:.3g}'):g}", text)
    return text


def table(of: Sequence[Measured], at: Scalars) -> Iterator[str]:
    """What the scalars are worth, as lines."""
    whole = loss(of, at)
    for name, each in errors(of, at).items():
        yield f"{CAMPAIGNS[name]}: {percent(float(np.mean(each)))}"
    yield f"all, none more than 1: {percent(whole)}"
    for name, value in values(at).items():
        without = loss(of, with_value(at, name, SILENT.get(name, 0.0)))
        yield f"{name} = {value:g}: {percent(without - whole, signed=True)} without"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(prog="campaigns.rounds", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="choose and write")
    asked = parser.parse_args(arguments)
    of = measured(device(DEVICE))
    if asked.write:
        found = chosen(of, scalars())
        FILE.write_text(written(FILE.read_text(encoding="utf-8"), values(found)), encoding="utf-8")
        scalars.cache_clear()
    print("\n".join(table(of, scalars())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
