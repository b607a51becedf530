"""Whole figures by name, from the nouns of the model: what `gemmsim plot` writes and what the page shows.

Each takes a theme and whether the figure has to be narrow, as on a phone or in a column of a paper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill

from matplotlib.figure import Figure

from gemmsim.compare import Comparison
from gemmsim.device import Capability
from gemmsim.ladder import Rung
from gemmsim.occupancy.cliffs import Sweep
from gemmsim.pipeline.timeline import Timeline
from gemmsim.plots.accuracy import HeldOut, errors, none_held_out, predicted_against_measured
from gemmsim.plots.bank_map import DIGITS_POINTS, bank_map
from gemmsim.plots.ladder import reads_per_level, time_terms
from gemmsim.plots.landscape import landscape_pictures
from gemmsim.plots.occupancy import charts
from gemmsim.plots.roofline import LEVELS, RooflinePoint, rooflines
from gemmsim.plots.style import LIGHT, Theme, figure, handles_of, legend_of_figure
from gemmsim.plots.tile_order import tile_order
from gemmsim.plots.timeline import timeline_pictures
from gemmsim.roofline import bandwidths, intensities
from gemmsim.scenes import TileOrders, WarpAccess
from gemmsim.search.landscapes import Landscape
from gemmsim.search.scoring import Result

WIDE_IN, NARROW_IN = 9.2, 4.3
"""Widths of figures: on a screen, and where 9-point text has to stay readable on a phone."""
LABEL_CHARACTERS = 18


def reads(rungs: Sequence[Rung], theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    """What each kernel reads at every level, of at least one rung."""
    drawn = figure(_width(narrow), 1.5 + 0.8 * len(rungs), theme)
    reads_of = {label(rung): rung.traffic.reads for rung in rungs}
    reads_per_level(drawn.subplots(), reads_of, rungs[0].prediction.problem, theme)
    return _one_legend(_titled(drawn, theme), theme, 2 if narrow else 4)


def roofline(rungs: Sequence[Rung], theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    """The rooflines of every level, with each rung as predicted and, where there is a time, as measured."""
    first = rungs[0].prediction
    points = roofline_points(rungs)
    drawn = figure(NARROW_IN, 4.0 + 3.1 * len(points), theme) if narrow else figure(WIDE_IN, 8.6, theme)
    title = f"{first.device.title}, {first.problem}"
    return rooflines(drawn, first.device, points, title, theme, stacked=narrow)


def roofline_points(rungs: Sequence[Rung]) -> dict[str, list[RooflinePoint]]:
    """The rungs at each level that the device has a rate for, predicted and, where there is a time, measured."""
    known = bandwidths(rungs[0].prediction.device)
    found: dict[str, list[RooflinePoint]] = {level: [] for level in LEVELS if level in known}
    for rung in rungs:
        rates = {False: float(rung.prediction.flop_per_s)}
        if rung.measured_flop_per_s is not None:
            rates[True] = rung.measured_flop_per_s
        for level, flop_per_byte in intensities(rung.traffic).items():
            if level in found:
                found[level] += [
                    RooflinePoint(rung.kernel.name, flop_per_byte, rate, measured) for measured, rate in rates.items()
                ]
    return found


def terms(rungs: Sequence[Rung], theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    """What each resource needs of the time of each rung, beside the predicted and the measured time."""
    drawn = figure(_width(narrow), 1.9 + 0.95 * len(rungs), theme)
    predictions = {label(rung): rung.prediction for rung in rungs}
    measured_s = {label(rung): rung.measured_s for rung in rungs if rung.measured_s is not None}
    time_terms(drawn.subplots(), predictions, measured_s, theme)
    return _one_legend(_titled(drawn, theme), theme, 3 if narrow else 5)


def label(rung: Rung) -> str:
    """The kernel, and below it its tiling in lines short enough for a tick."""
    return f"{rung.kernel.name}\n{fill(rung.described, LABEL_CHARACTERS)}"


def compare(
    comparison: Comparison, theme: Theme = LIGHT, narrow: bool = False, held_out: HeldOut = none_held_out
) -> Figure:
    """Predicted over measured time, and the errors."""
    drawn = figure(NARROW_IN, 9.4, theme) if narrow else figure(WIDE_IN, 5.3, theme)
    first, second = drawn.subplots(2, 1) if narrow else drawn.subplots(1, 2)
    predicted_against_measured(first, comparison, theme, held_out)
    errors(second, comparison, theme, held_out)
    for ax in (first, second):
        ax.set_box_aspect(1)
    return _one_legend(drawn, theme, 3 if narrow else 5)


def banks(accesses: Mapping[str, WarpAccess], theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    """Maps of the lanes of warps over the banks, each with its title."""
    panels = len(accesses)
    drawn = figure(NARROW_IN, 4.9 * panels, theme) if narrow else figure(WIDE_IN if panels > 1 else 7.2, 5.4, theme)
    axes = drawn.subplots(*((panels, 1) if narrow else (1, panels)), squeeze=False)
    for ax, (title, access) in zip(axes.flat, accesses.items(), strict=True):
        digits_points = 4.6 if narrow else DIGITS_POINTS if panels == 1 else 6.0
        bank_map(ax, access.groups, f"{fill(title, 40)}\n{fill(str(access), 44)}", theme, digits_points)
    return _one_legend(drawn, theme, 1 if narrow else 2)


def registers(orders: TileOrders, theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    """The thread tile in its order, and in the best that was found where that is faster."""
    plans = [("In order", orders.plan, orders.report)]
    if orders.gain > 0:
        plans.append(("Best found", orders.best.plan, orders.best.report))
    cell_in = (_width(narrow) / (1 if narrow else len(plans)) - 0.4) / (orders.tile.thread_n + 1.3)
    height_in = 0.4 + min(cell_in, 0.62) * (orders.tile.thread_m + 1.3)
    drawn = figure(_width(narrow), height_in * (len(plans) if narrow else 1) + 0.5, theme)
    axes = drawn.subplots(*((len(plans), 1) if narrow else (1, len(plans))), squeeze=False)
    for ax, (name, plan, report) in zip(axes.flat, plans, strict=True):
        title = f"{name}: {report.cycles_per_ffma:.3f} cycles per FFMA"
        tile_order(ax, plan, plan.stream(orders.file), report, orders.file.banks, title, theme)
    return _one_legend(drawn, theme, 2 if narrow else 3)


def occupancy(
    sweeps: Mapping[str, Sweep], capability: Capability, title: str, theme: Theme = LIGHT, narrow: bool = False
) -> Figure:
    """Resident warps against each resource of a block, with the cliffs."""
    drawn, narrower = figure(_width(narrow), 8.6, theme), {"title_characters": 46, "most_ticks": 8}
    return charts(drawn, sweeps, capability, title, theme, **narrower if narrow else {})


def landscape(
    maps: Sequence[Landscape], pick: Result, title: str, theme: Theme = LIGHT, narrow: bool = False
) -> Figure:
    """The best time over two parameters at once, for each pair that was searched, with the pick."""
    drawn = figure(_width(narrow), 0.6 + (3.9 if narrow else 4.6) * len(maps), theme)
    return landscape_pictures(drawn, maps, pick, fill(title, 46 if narrow else 90), theme)


def timeline(timelines: Sequence[Timeline], theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    """What the warps of one sub-core do over two large iterations, of each of the timelines, to the same scale."""
    rows = [sum(1 for of in each.warps.values() if of[0].sub_core == 0) for each in timelines]
    height_in = sum(1.0 + 0.5 * count for count in rows) if narrow else 1.0 + 0.5 * max(rows)
    drawn = figure(_width(narrow), height_in + (1.2 if narrow else 0.8), theme)
    return _one_legend(timeline_pictures(drawn, timelines, theme, stacked=narrow), theme, 2 if narrow else 5)


def _titled(drawn: Figure, theme: Theme) -> Figure:
    """The title of the only axes over the whole figure, where it has more room."""
    (ax,) = drawn.axes
    drawn.suptitle(ax.get_title(), **theme.text(10.5))
    ax.set_title("")
    return drawn


def _width(narrow: bool) -> float:
    return NARROW_IN if narrow else WIDE_IN


def _one_legend(drawn: Figure, theme: Theme, columns: int) -> Figure:
    """The legends of all panels as one."""
    legend_of_figure(drawn, handles_of(drawn), theme, columns)
    for ax in drawn.axes:
        legend = ax.get_legend()
        if legend is not None:
            legend.remove()
    return drawn
