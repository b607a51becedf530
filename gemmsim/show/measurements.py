"""What was measured, alone and beside what was predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence

from gemmsim.compare import Comparison, Pick
from gemmsim.console import line, table
from gemmsim.kernels import kernel
from gemmsim.records import Point, Record
from gemmsim.units import count, duration, percent, plural, short_percent, si, tau

WORST_POINTS = 5


def comparison(found: Comparison) -> None:
    """Errors per kernel, counters, and the points that are worst."""
    line(f"{plural(len(found.points), 'point')} measured on {found.device.title} ({found.device.name})")
    if found.points:
        table(
            "Error of the predicted time: predicted / measured - 1",
            ("kernel", "points", "mean |error|", "closed forms", "largest", "mean signed", "Kendall tau",
             "within a size", "in bars"),
            (
                (name, count(len(part.points)), percent(part.mape), percent(part.analytic_mape),
                 percent(part.max_error), percent(part.mean_error, signed=True), tau(part.kendall_tau),
                 tau(part.tau_within_problems), "-" if math.isnan(part.covered) else f"{100 * part.covered:.0f} %")
                for name, part in _parts(found)
            ),
        )  # fmt: skip
        line(
            "\nclosed forms: mean |error| of the analytic route alone; in bars: measured times inside the error bars;"
            " held out: points that took no part in the model"
        )
        for warning in found.impossible():
            line(warning)
    if found.counters:
        table(
            "Counts: the model's against the hardware's",
            ("counter", "equal", "of points", "worst off by"),
            (
                (name, count(each.equal), count(each.total), short_percent(each.worst_relative))
                for name, each in found.counters.items()
            ),
        )
    picks = [pick for pick in found.picks().values() if pick.of > 1]
    if picks:
        table(
            "The pick at each size",
            ("MxNxK", "predicted fastest", "tiling", "of", "measured", "best", "regret"),
            (_pick(pick) for pick in sorted(picks, key=lambda pick: int(pick.best.point.problem.flop))),
            text=(0, 1, 2),
        )
    if found.points:
        worst = sorted(found.points, key=lambda point: -abs(point.error))[:WORST_POINTS]
        table(
            "Points predicted worst",
            ("kernel", "MxNxK", "tiling", "predicted", "measured", "error"),
            (
                (*_point(each.point), duration(each.predicted_s), duration(each.measured_s),
                 percent(each.error, signed=True))
                for each in worst
            ),
            text=(0, 1, 2),
        )  # fmt: skip
    _failures(found.failed)
    if found.skipped:
        line(f"\n{plural(len(found.skipped), 'point')} without a prediction")
        for reason in found.skipped:
            line(reason)


def _parts(found: Comparison) -> list[tuple[str, Comparison]]:
    """The rows of errors: each kernel, all points, and those of them that are held out."""
    apart = found.held_out()
    return [*found.by_kernel().items(), ("all", found), *([("held out", apart)] if apart.points else [])]


def _pick(pick: Pick) -> tuple[str, ...]:
    name, sizes, tiling = _point(pick.picked.point)
    measured_s, best_s = pick.picked.measured_s, pick.best.measured_s
    return sizes, name, tiling, count(pick.of), duration(measured_s), duration(best_s), percent(pick.regret)


def records(found: Sequence[Record]) -> None:
    """What was measured, one line a point."""
    table(
        "Measured",
        ("kernel", "MxNxK", "tiling", "median", "rate", "error of C"),
        ((*_point(record.point), *_outcome(record)) for record in found),
        text=(0, 1, 2),
    )
    _failures([record for record in found if not record.ok])


def _outcome(record: Record) -> tuple[str, str, str]:
    if record.median_s is None or not record.ok:
        return "failed", "", ""
    error = "" if record.verification_error is None else f"{record.verification_error:.1e}"
    return duration(record.median_s), si(record.point.problem.flop_per_s(record.median_s), "FLOP/s"), error


def _failures(failed: Sequence[Record]) -> None:
    if failed:
        line(f"\n{plural(len(failed), 'point')} failed")
        for record in failed:
            line(f"{record.point}: {record.failure}")


def _point(point: Point) -> tuple[str, str, str]:
    sizes = f"{point.problem.m}x{point.problem.n}x{point.problem.k}"
    return point.kernel, sizes, kernel(point.kernel).describe(point.tiling)
