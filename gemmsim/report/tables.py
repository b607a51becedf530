"""The tables of a chapter: raw values for the CSV files, the same written out for the page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmsim.compare import ComparedPoint, Pick, counter_differences
from gemmsim.kernels import kernel as kernel_named
from gemmsim.ladder import Rung
from gemmsim.records import Record
from gemmsim.report.chapter import Chapter
from gemmsim.units import count, duration, percent, short_percent, si, tau, words


@dataclass(frozen=True)
class Column:
    """One column: its name in the CSV file, its heading on the page, and how the page writes a value."""

    name: str
    heading: str
    show: Callable[[Any], str] = str

    @property
    def is_text(self) -> bool:
        """Whether it reads from the left."""
        return self.show in (str, words)


@dataclass(frozen=True)
class Table:
    """Rows of raw values; `shown_rows` are those for the page, all of them unless given."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    shown_rows: tuple[tuple[Any, ...], ...] | None = None

    @property
    def shown(self) -> list[list[tuple[Column, str]]]:
        """The cells of the page, with their columns."""
        rows = self.rows if self.shown_rows is None else self.shown_rows
        return [[(column, column.show(value)) for column, value in zip(self.columns, row, strict=True)] for row in rows]


_signed = partial(percent, signed=True)
_SIZE = (Column("m", "m", count), Column("n", "n", count), Column("k", "k", count))
_POINT = (*_SIZE, Column("kernel", "Kernel"), Column("tiling", "Tiling"))
_TIMES = (
    Column("predicted_s", "Predicted", duration),
    Column("measured_s", "Measured", duration),
    Column("error", "Error", _signed),
    Column("bound_by", "Bound by", words),
    Column("measured_flop_per_s", "Rate", lambda value: si(value, "FLOP/s")),
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


def tables(of: Chapter) -> list[Table]:
    """The tables that have rows, the answer first."""
    every = (table(of) for table in (best, picks, ladder, kernels, counters, counts, points, failures))
    return [table for table in every if table.rows]


def best(of: Chapter) -> Table:
    """The fastest measured configuration of each size."""
    return Table(
        "best",
        "Best configuration of each size",
        f"The fastest of those measured, and what the model says of it. {_SORTED}",
        _POINT + _TIMES,
        tuple(map(_compared, of.fastest)),
    )


def picks(of: Chapter) -> Table:
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


def ladder(of: Chapter) -> Table:
    """What the pictures of the ladder show."""

    def row(rung: Rung) -> tuple[Any, ...]:
        reads, prediction = rung.traffic.reads, rung.prediction
        return (
            rung.kernel.name, rung.described, reads.global_memory, reads.shared_memory,
            reads.register, float(prediction.time_s), rung.measured_s, str(prediction.bound_by),
        )  # fmt: skip

    return Table(
        "ladder",
        f"The ladder at {of.problem}",
        f"{of.tilings[0].upper()}{of.tilings[1:]}; reads are elements.",
        (
            Column("kernel", "Kernel"), Column("tiling", "Tiling"), Column("global_reads", "Global reads", count),
            Column("shared_reads", "Shared reads", count), Column("register_reads", "Register reads", count),
            Column("predicted_s", "Predicted", duration),
            Column("measured_s", "Measured", lambda value: "-" if value is None else duration(value)),
            Column("bound_by", "Bound by", words),
        ),
        tuple(map(row, of.rungs)),
    )  # fmt: skip


def kernels(of: Chapter) -> Table:
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


def counters(of: Chapter) -> Table:
    """How often each count equals the hardware's."""
    agreements = of.comparison.counters.items() if of.comparison else ()
    return Table(
        "counters",
        "Counts of the model against hardware counters",
        "Whole numbers of the whole launch; equal means equal to the last digit.",
        (
            Column("counter", "Counter"), Column("equal", "Equal", count), Column("total", "Points", count),
            Column("worst_relative", "Worst off by", short_percent),
        ),
        tuple((name, each.equal, each.total, each.worst_relative) for name, each in agreements),
    )  # fmt: skip


def counts(of: Chapter) -> Table:
    """Every count beside the hardware's; the page shows those that differ."""
    measured = of.comparison.points if of.comparison else ()
    rows = tuple(
        (*_point(point.record), name, model, hardware, model - hardware)
        for point in measured
        for name, (model, hardware) in counter_differences(point.record).items()
    )
    differing = tuple(row for row in rows if row[-1])
    return Table(
        "counts",
        "Counts that differ",
        f"{len(differing)} of {len(rows)} counts differ; the CSV file has all.",
        (
            *_POINT, Column("counter", "Counter"), Column("model", "Model", count),
            Column("hardware", "Hardware", count), Column("difference", "Difference", lambda value: f"{value:+,}"),
        ),
        rows,
        differing,
    )  # fmt: skip


def points(of: Chapter) -> Table:
    """Every measured point."""
    measured = of.comparison.points if of.comparison else ()
    return Table(
        "points",
        "All points",
        "Measured time is the median of the samples. In the order of the records.",
        _POINT + _TIMES,
        tuple(map(_compared, measured)),
    )


def failures(of: Chapter) -> Table:
    """Every point without a time, and why."""
    return Table(
        "failed",
        "Points without a time",
        "They take no part in the errors.",
        (*_POINT, Column("reason", "Reason")),
        tuple((*_point(record), record.failure) for record in of.failed),
    )
