"""The tables of the page: raw values, which the CSV files have, and the same written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from math import isfinite
from typing import Any

from gemmsim.accesses.costs import access_costs
from gemmsim.compare import ComparedPoint, Pick
from gemmsim.kernels import kernel as kernel_named
from gemmsim.ladder import Rung
from gemmsim.narrate import hiding
from gemmsim.plots import LEVELS
from gemmsim.records import Record
from gemmsim.report.findings import Findings
from gemmsim.report.table import Column, Table
from gemmsim.roofline import intensities
from gemmsim.units import count, duration, percent, plural, short_percent, si, tau, words

_signed = partial(percent, signed=True)
_rate = partial(si, unit="FLOP/s")


def _resource(name: str) -> str:
    """A resource as a heading: "FFMA", "Shared memory"."""
    return name.upper() if len(name) <= len("ffma") else words(name).capitalize()


def _difference(value: int) -> str:
    return f"{value:+,}"


_SIZE = (Column("m", "m", count), Column("n", "n", count), Column("k", "k", count))
_POINT = (*_SIZE, Column("kernel", "Kernel"), Column("tiling", "Tiling"))
_TIMES = (
    Column("predicted_s", "Predicted", duration),
    Column("measured_s", "Measured", duration),
    Column("error", "Error", _signed),
    Column("bound_by", "Bound by", words),
    Column("measured_flop_per_s", "Rate", _rate),
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


_RUNG = (Column("kernel", "Kernel"), Column("tiling", "Tiling"))


def _of_rungs(
    of: Findings, name: str, title: str, columns: tuple[Column, ...], row: Callable[[Rung], tuple[Any, ...]]
) -> Table:
    """A table with a row for each rung of the ladder."""
    rows = tuple((rung.kernel.name, rung.described, *row(rung)) for rung in of.rungs)
    return Table(name, f"{title} at {of.problem}", f"{of.tilings[0].upper()}{of.tilings[1:]}.", _RUNG + columns, rows)


def reads(of: Findings) -> Table:
    """Elements that each rung reads at each level."""

    def row(rung: Rung) -> tuple[Any, ...]:
        found = rung.traffic.reads
        return found.global_memory, found.shared_memory, found.register

    columns = (
        Column("global_reads", "Global reads", count), Column("shared_reads", "Shared reads", count),
        Column("register_reads", "Register reads", count),
    )  # fmt: skip
    return _of_rungs(of, "reads", "Elements read", columns, row)


def rates(of: Findings) -> Table:
    """The rate of each rung, and its FLOP for each byte at each level."""
    levels = list(LEVELS)

    def row(rung: Rung) -> tuple[Any, ...]:
        found = intensities(rung.traffic)
        rates = float(rung.prediction.flop_per_s), rung.measured_flop_per_s
        return *rates, *(found.get(level) for level in levels)

    columns = (
        Column("predicted_flop_per_s", "Predicted", _rate),
        Column("measured_flop_per_s", "Measured", _rate),
        *(
            Column(f"{level}_flop_per_byte", f"FLOP/byte, {LEVELS[level]}", lambda value: f"{value:.3g}")
            for level in levels
        ),
    )
    return _of_rungs(of, "roofline", "Rates and intensities", columns, row)


def terms(of: Findings) -> Table:
    """What each resource needs for each rung, the prediction and the measured time."""
    names = list(dict.fromkeys(name for rung in of.rungs for name in rung.prediction.terms))

    def row(rung: Rung) -> tuple[Any, ...]:
        found = rung.prediction
        needed = (found.terms.get(name) for name in names)
        return (
            *(None if each is None else float(each) for each in needed),
            float(found.time_s), rung.measured_s, str(found.bound_by),
        )  # fmt: skip

    columns = (
        *(Column(f"{name}_s", _resource(name), duration) for name in names),
        Column("predicted_s", "Predicted", duration), Column("measured_s", "Measured", duration),
        Column("bound_by", "Bound by", words),
    )  # fmt: skip
    return _of_rungs(of, "terms", "Time of each resource", columns, row)


def banks(of: Findings) -> Table:
    """Every shared access of the tilings that the maps are of."""

    def rows() -> Iterator[tuple[Any, ...]]:
        for each in of.banked.values():
            widths = each.kernel.widths(each.problem, each.tiling)
            for cost in access_costs(each.kernel, each.tiling, widths, each.problem.element_bytes):
                yield (
                    each.kernel.name, each.kernel.describe(each.tiling), cost.name, cost.op, cost.width_bits,
                    cost.requests, cost.wavefronts, cost.ideal_wavefronts, cost.excess,
                )  # fmt: skip

    return Table(
        "banks",
        "Accesses to shared memory",
        "One block and one tile of k; excess wavefronts are bank conflicts.",
        (
            *_RUNG, Column("access", "Access"), Column("op", "Op"), Column("width_bits", "Width (bit)", count),
            Column("requests", "Requests", count), Column("wavefronts", "Wavefronts", count),
            Column("ideal_wavefronts", "Ideal", count), Column("excess", "Excess", count),
        ),
        tuple(rows()),
    )  # fmt: skip


def registers(of: Findings) -> Table:
    """The thread tile in its order and in the best."""
    found = of.orders
    plans = {"row": found.report, "best found": found.best.report} if found else {}
    return Table(
        "registers",
        f"Orders of thread tile {found.tile}" if found else "Orders",
        "One pass through the FFMA of a step along k, at the ports of one sub-core.",
        (
            Column("order", "Order"), Column("cycles_per_ffma", "Cycles per FFMA", lambda value: f"{value:.3f}"),
            Column("peak_fraction", "Of peak", percent), Column("reuse_hits", "Reuse hits", count),
        ),
        tuple((name, each.cycles_per_ffma, each.peak_fraction, each.reuse_hits) for name, each in plans.items()),
    )  # fmt: skip


def occupancy(of: Findings) -> Table:
    """The nearest cliffs of the best configuration's block."""
    rows = tuple(
        (name, side, cliff.value, cliff.change, cliff.blocks_per_sm, cliff.warps_per_sm, cliff.occupancy)
        for name, sweep in of.sweeps.items()
        for side, cliff in (("fewer", sweep.fewer), ("more", sweep.more))
        if cliff
    )
    return Table(
        "occupancy",
        "The nearest cliffs",
        "What would change the blocks or warps of a multiprocessor.",
        (
            Column("resource", "Resource", words), Column("side", "Side"), Column("value", "Value", count),
            Column("change", "Change", _difference), Column("blocks_per_sm", "Blocks", count),
            Column("warps_per_sm", "Warps", count), Column("occupancy", "Occupancy", percent),
        ),
        rows,
    )  # fmt: skip


def landscape(of: Findings) -> Table:
    """The places of the landscape, the fastest first."""
    found, maps = of.landscape or (None, ())
    rows = [
        (x, y, float(landscape.best_s[row, column]), float(landscape.best_s[row, column] / landscape.best_s.min()))
        for landscape in maps
        for row, y in enumerate(landscape.ys)
        for column, x in enumerate(landscape.xs)
        if isfinite(landscape.best_s[row, column])
    ]
    names = (maps[0].x, maps[0].y) if maps else ("x", "y")
    return Table(
        "landscape",
        "Best predicted time of each block",
        f"Of {plural(found.evaluated, 'configuration')}, all of {found.spaces[0].kernel.name}, the fastest first."
        if found
        else "",
        (
            *(Column(name, words(name).capitalize(), count) for name in names), Column("best_s", "Predicted", duration),
            Column("over_best", "Over the best", lambda value: f"{value:.3f}"),
        ),
        tuple(sorted(rows, key=lambda row: row[2])),
    )  # fmt: skip


def timelines(of: Findings) -> Table:
    """What a warp spends its cycles on over two large iterations, by kernel and kind."""
    rows = (
        (each.kernel.name, each.kernel.describe(each.tiling), kind, spent, spent / each.cycles)
        for each in of.timelines
        for kind, spent in each.cycles_by_kind.items()
        if spent
    )
    return Table(
        "timeline",
        "Cycles of a warp over two large iterations",
        hiding(of.timelines) if of.timelines else "",
        (
            *_RUNG, Column("kind", "What it does", words),
            Column("cycles", "Cycles", lambda value: count(round(value))), Column("share", "Of its time", percent),
        ),
        tuple(rows),
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
            Column("hardware", "Hardware", count), Column("difference", "Difference", _difference),
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
