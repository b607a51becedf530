"""The tables of what was measured, with predictions beside: raw values, which the CSV files have, and the same written
out."""

from __future__ import annotations

from functools import partial
from typing import Any

from gemmsim.compare import ComparedPoint, Pick
from gemmsim.kernels import kernel as kernel_named
from gemmsim.records import Record
from gemmsim.report.findings import Findings
from gemmsim.report.table import Column, Table, as_difference, as_rate
from gemmsim.units import count, duration, percent, plural, short_percent, tau, words

_signed = partial(percent, signed=True)
_SIZE = (Column("m", "m", count), Column("n", "n", count), Column("k", "k", count))
_POINT = (*_SIZE, Column("kernel", "Kernel"), Column("tiling", "Tiling"))
_TIMES = (
    Column("predicted_s", "Predicted", duration),
    Column("measured_s", "Measured", duration),
    Column("error", "Error", _signed),
    Column("bound_by", "Bound by", words),
    Column("measured_flop_per_s", "Rate", as_rate),
    Column("peak_fraction", "Of FP32 peak", percent),
)

_SORTED = "By size (2mnk), the smallest first."


def _point(record: Record) -> tuple[Any, ...]:
    point = record.point
    text = kernel_named(point.kernel).describe(point.tiling)
    return point.problem.m, point.problem.n, point.problem.k, point.kernel, text


def _compared(point: ComparedPoint) -> tuple[Any, ...]:
    return (
        *_point(point.record), point.predicted_s, point.measured_s, point.error, str(point.prediction.bound_by),
        point.flop_per_s, point.peak_fraction,
    )  # fmt: skip


def best(of: Findings) -> Table:
    """The fastest measured configuration of each size."""
    return Table(
        "best",
        "Best configuration of each size",
        f"The fastest of those measured, and what the model says of it. {_SORTED}",
        _POINT + _TIMES,
        tuple(map(_compared, of.fastest)),
    )


def picks(of: Findings) -> Table:
    """What it costs, at each size, to take the configuration that the model calls the fastest."""
    found = of.comparison.picks() if of.comparison else {}

    def row(pick: Pick) -> tuple[Any, ...]:
        return *_point(pick.picked.record), pick.of, pick.picked.measured_s, pick.best.measured_s, pick.regret

    return Table(
        "picks",
        "The pick at each size",
        "How much longer the configuration predicted fastest takes than the best one measured; of several predicted"
        f" alike the slowest counts. {_SORTED}",
        (
            *_SIZE, Column("kernel", "Predicted fastest"), Column("tiling", "Tiling"), Column("points", "Of", count),
            Column("measured_s", "Measured", duration), Column("best_measured_s", "Best measured", duration),
            Column("regret", "Regret", percent),
        ),
        tuple(row(found[best.point.problem]) for best in of.fastest if found[best.point.problem].of > 1),
    )  # fmt: skip


def kernels(of: Findings) -> Table:
    """Errors of each kernel, and of all."""
    parts = {**of.comparison.by_kernel(), "all": of.comparison} if of.comparison else {}
    return Table(
        "kernels",
        "Error of the predicted time, by kernel",
        "Error is predicted over measured, minus 1: below zero where the prediction is too fast. Tau within a size is"
        " the mean over sizes of three points or more.",
        (
            Column("kernel", "Kernel"), Column("points", "Points", count), Column("mape", "Mean abs. error", percent),
            Column("max_error", "Largest abs. error", percent), Column("mean_error", "Mean error", _signed),
            Column("kendall_tau", "Kendall tau", tau), Column("tau_within_problems", "Tau within a size", tau),
        ),
        tuple(
            (name, len(part.points), part.mape, part.max_error, part.mean_error, part.kendall_tau,
             part.tau_within_problems)
            for name, part in parts.items()
        ),
    )  # fmt: skip


def counters(of: Findings) -> Table:
    """How often each count equals the hardware's."""
    agreements = of.comparison.counters.items() if of.comparison else ()
    return Table(
        "counters",
        "Agreement of each counter",
        "Whole numbers of the whole launch; equal means equal to the last digit.",
        (
            Column("counter", "Counter"), Column("equal", "Equal", count), Column("total", "Points", count),
            Column("worst_relative", "Worst off by", short_percent),
        ),
        tuple((name, each.equal, each.total, each.worst_relative) for name, each in agreements),
    )  # fmt: skip


def counts(of: Findings) -> Table:
    """Every count beside the hardware's; the page shows those that differ."""
    rows = tuple(
        (*_point(record), name, model, hardware, model - hardware) for record, name, model, hardware in of.differences
    )
    differing = tuple(row for row in rows if row[-1])
    return Table(
        "counts",
        "Counts that differ",
        f"{count(len(differing))} of {plural(len(rows), 'count')} differ; the CSV file has all.",
        (
            *_POINT, Column("counter", "Counter"), Column("model", "Model", count),
            Column("hardware", "Hardware", count), Column("difference", "Difference", as_difference),
        ),
        rows,
        differing,
    )  # fmt: skip


def points(of: Findings) -> Table:
    """Every measured point."""
    measured = of.comparison.points if of.comparison else ()
    return Table(
        "points",
        "Points with a time",
        "Measured time is the median of the samples. In the order of the records.",
        _POINT + _TIMES,
        tuple(map(_compared, measured)),
    )


def failures(of: Findings) -> Table:
    """Every point without a time, and why."""
    return Table(
        "failed",
        "Points without a time",
        "They take no part in the errors.",
        (*_POINT, Column("reason", "Reason")),
        tuple((*_point(record), record.failure) for record in of.failed),
    )
