"""How far off predicted times are, and the error bars that follow; prints the tables.

python -m campaigns.accuracy             the tables, from what is shipped
python -m campaigns.accuracy --write     simulates what is not known yet (minutes); writes simulated_times.json and
                                         error_bars.toml in gemmsim/data/, and docs/accuracy.md

Error bars, and the weights of the two routes, are fitted to points that took part in nothing else; nothing is fitted to
those that are held out. What the GPU was measured to do holds its share of the credit: launches are predicted once more
as if it had not been calibrated.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from statistics import fmean

from gemmsim import routes, simulated_times
from gemmsim.calibration import as_if_uncalibrated, calibration
from gemmsim.compare import ComparedPoint, Comparison, error_bars
from gemmsim.compare.error_bars import Factors, as_toml, fitted, regime_of, set_name
from gemmsim.device import Device, device
from gemmsim.errors import InputError
from gemmsim.held_out import held_out
from gemmsim.kernels import kernel as kernel_named
from gemmsim.pipeline.programs import program_for
from gemmsim.predict import Prediction, predict
from gemmsim.record_files import SHIPPED, latest, read_points, read_records, shipped_records
from gemmsim.records import Record
from gemmsim.routes import SimulatedPrediction, by_route, route_of
from gemmsim.units import percent, tau

DEVICE = "h200"
CAMPAIGNS = {
    "": "the ladder: five kernels, ten problems",
    "times": "the campaign: all kernels, good tilings and bad, 22 problems",
    "again": "its second draw: as many others, measured when the model had been tuned on the first",
    "third": "its third draw: measured when the model had been tuned on both, and developed with since",
    "fourth": "its fourth draw: for error bars and weights, with which no part of the model was made",
    "cublas": "the fastest tilings, beside cuBLAS",
    "random": "random legal configurations of four problems",
}
"""The shipped records that hold times, and what they are."""
FRESH = "fourth"
"""The one whose points error bars and weights are fitted to. It alone is predicted once more as if the GPU had not been
calibrated."""
SEEN = Path(__file__).with_name("times_fourth_seen.jsonl")
"""Points of that one which an earlier model has predicted."""
DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "accuracy.md"
WORST, WRITTEN, SAMPLE = 10, 50, 40
"""Points that are listed; times after which the file is written, so that another run goes on from there; times that
are simulated again before others are kept."""


@dataclass(frozen=True)
class Judged:
    """A measured point predicted by one route, and the campaign that it is of."""

    point: ComparedPoint
    campaign: str

    @property
    def kernel(self) -> str:
        """Its kernel."""
        return self.point.point.kernel

    @property
    def regime(self) -> str:
        """Its regime, by the prediction."""
        return regime_of(self.point.prediction)

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.point.predicted_s / self.point.measured_s

    @property
    def fresh(self) -> bool:
        """Whether error bars and weights are fitted to it."""
        return self.point.point.key in fresh()


@cache
def fresh() -> frozenset[str]:
    """Keys of the points that took part in nothing else: those of the fresh campaign that are not held out, have not
    been predicted, and stand in no other shipped record."""
    drawn = shipped_records(FRESH)
    spent = {point.key for point in read_points(SEEN)}
    for other in set(drawn.parent.glob(f"{SHIPPED.stem}*")) - {drawn}:
        spent |= {record.point.key for record in read_records(other)[0]}
    points = (record.point for record in read_records(drawn)[0])
    return frozenset(point.key for point in points if not held_out(point) and point.key not in spent)


def records(on: Device, own: bool) -> list[tuple[str, Record]]:
    """(campaign, record) of every shipped record that counts, campaign by campaign; a point of several is of the last.
    Not `own`: of those that are predicted without the GPU's own numbers."""
    found: dict[str, tuple[str, Record]] = {}
    for campaign in CAMPAIGNS if own else (FRESH,):
        try:
            path = shipped_records(campaign)
        except InputError:  # not shipped
            continue
        for record in latest(read_records(path)[0]):
            if record.ok and record.device == on.name:
                found.pop(record.point.key, None)
                found[record.point.key] = campaign, record
    return list(found.values())


def analytic(record: Record, on: Device) -> Prediction:
    """The analytic prediction of a record, its registers as compiled."""
    point = record.point
    return predict(point.problem, kernel_named(point.kernel), point.tiling, on, **record.compiled)


def judged(on: Device) -> dict[str, list[Judged]]:
    """{route: the points that it predicts}; "auto" is both where there is a program, else analytic."""
    found: dict[str, list[Judged]] = {route: [] for route in ROUTES}
    for campaign, record in records(on, calibration(on).own):
        closed = analytic(record, on)
        if not closed.occupancy.launches:
            continue
        best = by_route(closed, "auto")
        predictions = {"auto": best, "analytic": closed}
        if route_of(best) == "both":
            predictions["both"] = best
            predictions["simulated"] = by_route(closed, "simulated")
        for route, prediction in predictions.items():
            found[route].append(Judged(ComparedPoint(record, prediction), campaign))
    return found


def keyed(on: Device, own: bool) -> dict[str, Record]:
    """The records that have a program, by the key of their simulated time."""
    found = {}
    with knowing(own):
        for _, record in records(on, own):
            closed = analytic(record, on)
            program = program_for(closed.kernel, closed.problem, closed.tiling, on)
            if program is not None and closed.occupancy.launches:
                blocks = int(closed.occupancy.blocks_per_sm)
                launch = closed.problem, closed.kernel, closed.tiling, on
                found[simulated_times.key_of(*launch, program, blocks, calibration(on))] = record
    return found


def simulated(on: Device, own: bool, pool: Executor) -> dict[str, float]:
    """{key: seconds} of all that the records need, simulated where it is not known yet; `own`: with the numbers of the
    GPU itself."""
    needed = keyed(on, own)
    shipped = simulated_times.read_times()
    todo = {key: record for key, record in needed.items() if key not in shipped}
    times = {key: shipped[key] for key in needed if key in shipped}
    results = pool.map(partial(_simulated_s, on=on, own=own), todo.values(), chunksize=4)
    for number, (key, time_s) in enumerate(zip(todo, results, strict=True), 1):
        times[key] = time_s
        if number % WRITTEN == 0:
            simulated_times.write_times(shipped | times)
        print(f"\rsimulated {number} of {len(todo)}", end="", file=sys.stderr)
    print(file=sys.stderr)
    return times


def _simulated_s(record: Record, on: Device, own: bool) -> float:
    with knowing(own):
        found = by_route(analytic(record, on), "simulated")
    assert isinstance(found, SimulatedPrediction)
    return found.simulated_s


def knowing(own: bool) -> AbstractContextManager[None]:
    """Inside, GPUs have the numbers that were measured of them, or those that others lend."""
    return nullcontext() if own else as_if_uncalibrated()


def residuals(points: Iterable[Judged]) -> Iterator[tuple[str, str, float]]:
    """What error bars are fitted to: the fresh ones of the points."""
    return ((each.kernel, each.regime, each.ratio) for each in points if each.fresh)


def groups(points: Sequence[Judged]) -> Iterator[tuple[str, list[Judged]]]:
    """(title, points) of the rows of a table: all, campaigns, kernels, regimes."""
    yield "all", list(points)
    keys: tuple[Callable[[Judged], str], ...] = (
        lambda each: CAMPAIGNS[each.campaign].partition(":")[0],
        lambda each: each.kernel,
        lambda each: each.regime,
    )
    for key in keys:
        parted: dict[str, list[Judged]] = {}
        for each in points:
            parted.setdefault(key(each), []).append(each)
        yield from parted.items()


def table(on: Device, points: Sequence[Judged]) -> Iterator[str]:
    """The errors of points as a table in Markdown."""
    yield "| points | number | mean error | 95 % below | largest | Kendall tau | within a problem | in error bars |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    for title, some in groups(points):
        found = Comparison(on, tuple(each.point for each in some), {}, ())
        cells = (
            percent(found.mape), percent(found.percentile_95), percent(found.max_error), tau(found.kendall_tau),
            tau(found.tau_within_problems), "-" if math.isnan(found.covered) else percent(found.covered),
        )  # fmt: skip
        yield f"| {title} | {len(some)} | {' | '.join(cells)} |"


def worst(points: Sequence[Judged]) -> Iterator[str]:
    """The held-out points that are predicted worst."""
    yield "| point | route | predicted [us] | measured [us] | error |"
    yield "| --- | --- | ---: | ---: | ---: |"
    for each in sorted(points, key=lambda each: -abs(each.point.error))[:WORST]:
        at = each.point
        yield (
            f"| {at.point} | {at.route} | {at.predicted_s * 1e6:.1f} | {at.measured_s * 1e6:.1f}"
            f" | {percent(at.error, signed=True)} |"
        )


def document(on: Device) -> Iterator[str]:
    """docs/accuracy.md, line by line."""
    own = judged(on)
    apart = {route: [each for each in points if each.point.held_out] for route, points in own.items()}
    present = dict.fromkeys(each.campaign for each in own["auto"])
    yield INTRODUCTION.format(
        title=on.title, points=len(own["auto"]), held_out=len(apart["auto"]), promised=percent(error_bars.PROMISED),
        aimed=percent(error_bars.AIMED), fewest=error_bars.FEWEST_POINTS, few_of_regime=error_bars.FEWEST_OF_REGIME,
        small_us=error_bars.SMALL_S * 1e6, few=error_bars.FEW_WAVES, fresh=sum(each.fresh for each in own["auto"]),
        campaigns="\n".join(f"* {CAMPAIGNS[name]}" for name in present),
    )  # fmt: skip
    for route, text in ROUTES.items():
        yield from ("", f"## {text}", "", "Held out:", "", *table(on, apart[route]))
        yield from ("", "The others:", "", *table(on, [each for each in own[route] if not each.point.held_out]))
    yield from ("", "## Predicted worst, of those held out", "", *worst(apart["auto"]))
    yield from ("", "## As if the GPU had not been calibrated", "", WITHOUT)
    with as_if_uncalibrated():
        without = judged(on)
        for route in ("both", "simulated", "analytic"):
            points = [each for each in without[route] if each.point.held_out]
            yield from ("", f"{ROUTES[route]}; held out:", "", *table(on, points))


ROUTES = {
    "auto": "As `gemmsim predict` and `compare` say it: both routes where there is a program, else closed forms",
    "both": "Both routes together",
    "simulated": "Simulated alone",
    "analytic": "Closed forms alone",
}
INTRODUCTION = """# How far off predicted times are

Written by `python -m campaigns.accuracy --write` from the shipped records of the {title}: {points} points, of which
{held_out} are held out by a hash of the point (`gemmsim/held_out.py`), a rule that stood before anything was tuned.

{campaigns}

Error: predicted over measured, minus 1, its absolute value taken for the mean. "Within a problem" is the mean of
Kendall's tau among the tilings of one problem. Regimes: small, predicted below {small_us:.0f} microseconds; part of a
wave, the GPU not filled once; few waves, up to {few}; many waves. Error bars promise to hold {promised} of the measured
times. They and the weights of the two routes are fitted to {fresh} points of the fourth draw that took part in nothing
else: not held out, in no other record, and not among those that an earlier model had predicted. Bars are taken at
{aimed}, for each kernel and regime with at least {fewest} such points, else for the kernel with as many or the regime
with at least {few_of_regime}, whichever is wider."""
WITHOUT = """The same with the numbers that the GPU would inherit: of other GPUs, as published for its compute
capability, and of its datasheet; of the fourth draw alone. Such errors, of its points that took part in nothing else,
are the error bars of GPUs that were never calibrated."""
SOURCE = """Factors of error bars, by route, kernel and regime (gemmsim/compare/error_bars.py reads and explains them).
Written by `python -m campaigns.accuracy --write` from those points of the fourth draw ({device}) that took part in
nothing else.
calibrated: with the GPU's own numbers; inherited: as if it had none."""


WEIGHTS_SOURCE = "Weight of the simulated route (gemmsim/routes.py). Written by `python -m campaigns.accuracy --write`."


def factors(on: Device) -> dict[str, Factors]:
    """The factors of every route, with the GPU's own numbers and without."""
    found: dict[str, Factors] = {}
    for own in (True, False):
        with knowing(own):
            points = judged(on)
        for route in ("both", "simulated", "analytic"):
            found[set_name(route, own)] = fitted(residuals(points[route]))
    return found


def weights(on: Device) -> dict[str, float]:
    """{kernel: weight of the simulated route}: the inverse of the mean square of its errors' logarithms, over fresh
    points, as a share of the sum of both routes'."""
    points = judged(on)
    keys = {each.point.point.key for each in points["simulated"]}
    squares: dict[str, dict[str, list[float]]] = {}
    for route in ("simulated", "analytic"):
        for each in points[route]:
            if each.point.point.key in keys and each.fresh:
                squares.setdefault(each.kernel, {}).setdefault(route, []).append(math.log(each.ratio) ** 2)
    return {
        name: round(1 - fmean(of["simulated"]) / (fmean(of["simulated"]) + fmean(of["analytic"])), 2)
        for name, of in sorted(squares.items())
    }


def unchanged(on: Device, pool: Executor) -> bool:
    """Whether a sample of the times in the file, of whatever code, is what the present code gives, digit by digit."""
    known = simulated_times.read_times(of_other_code=True)
    needed = [(key, record) for key, record in keyed(on, own=True).items() if key in known]
    sample = random.Random(3).sample(needed, min(SAMPLE, len(needed)))
    found = pool.map(partial(_simulated_s, on=on, own=True), [record for _, record in sample])
    return bool(sample) and [known[key] for key, _ in sample] == list(found)


def write(on: Device, processes: int) -> None:
    """Simulate what is not known yet, fit the error bars, and write both. Times of other code are kept where a sample
    of them comes out the same."""
    times: dict[str, float] = {}
    with ProcessPoolExecutor(processes) as pool:
        if not simulated_times.read_times() and unchanged(on, pool):
            simulated_times.write_times(simulated_times.read_times(of_other_code=True))
        for own in (True, False):
            times |= simulated(on, own, pool)
            simulated_times.write_times(simulated_times.read_times() | times)
    simulated_times.write_times(times)  # without those that nobody needs any more
    simulated_times.forget()
    lines = [f"{name} = {weight}" for name, weight in weights(on).items()]
    routes.WEIGHTS.write_text("\n".join([f"# {WEIGHTS_SOURCE}", *lines, ""]), encoding="utf-8")
    routes.weights.cache_clear()
    error_bars.FILE.write_text(as_toml(factors(on), SOURCE.format(device=on.name)), encoding="utf-8")
    error_bars.forget()


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(prog="campaigns.accuracy", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="simulate, fit and write")
    parser.add_argument("--processes", type=int, default=1, help="that simulate (default: 1)")
    asked = parser.parse_args(arguments)
    on = device(DEVICE)
    if asked.write:
        write(on, asked.processes)
    text = "\n".join(document(on)) + "\n"
    if asked.write:
        DOCUMENT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
