"""The tables of what the model says: raw values, which the CSV files have, and the same written out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

from gemmsim.accesses.costs import access_costs
from gemmsim.explain.narrate import hiding
from gemmsim.ladder import Rung
from gemmsim.plots import LEVELS
from gemmsim.report.findings import Findings
from gemmsim.report.table import Column, Table, as_difference, as_rate
from gemmsim.roofline import intensities
from gemmsim.units import count, duration, percent, plural, words

_RUNG = (Column("kernel", "Kernel"), Column("tiling", "Tiling"))


def _of_rungs(
    of: Findings, name: str, title: str, columns: tuple[Column, ...], row: Callable[[Rung], tuple[Any, ...]]
) -> Table:
    """A table with a row for each rung of the ladder."""
    rows = tuple((rung.kernel.name, rung.described, *row(rung)) for rung in of.rungs)
    return Table(name, f"{title} at {of.problem}", f"{of.tilings[0].upper()}{of.tilings[1:]}.", _RUNG + columns, rows)


def _resource(name: str) -> str:
    """A resource as a heading: "FFMA", "Shared memory"."""
    return name.upper() if len(name) <= len("ffma") else words(name).capitalize()


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
        Column("predicted_flop_per_s", "Predicted", as_rate),
        Column("measured_flop_per_s", "Measured", as_rate),
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
            Column("change", "Change", as_difference), Column("blocks_per_sm", "Blocks", count),
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
