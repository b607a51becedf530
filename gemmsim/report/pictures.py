"""The pictures of a chapter: what is drawn, how to read it, and what it says without being seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from textwrap import fill

from matplotlib.figure import Figure

from gemmsim import plots
from gemmsim.ladder import Rung
from gemmsim.report.chapter import Chapter
from gemmsim.units import duration, percent, si, words


@dataclass(frozen=True)
class Picture:
    """One picture of a chapter: how it is drawn, how to read it, and what it says without being seen.

    `draw_narrow` draws it for narrow screens, where it has panels that can be stacked.
    """

    name: str
    title: str
    reading: str
    draw: Callable[[Chapter, plots.Theme], Figure]
    alt: Callable[[Chapter], str]
    has_data: Callable[[Chapter], bool]
    draw_narrow: Callable[[Chapter, plots.Theme], Figure] | None = None


TICK_LABEL_CHARACTERS = 18
NARROW_IN = 5.2
"""Width of a picture for narrow screens, on which 9-point text stays readable."""


def roofline_points(of: Chapter) -> dict[str, list[plots.RooflinePoint]]:
    """The rungs at each level, predicted and, where there is a time, measured."""
    found: dict[str, list[plots.RooflinePoint]] = {level: [] for level in plots.LEVELS}
    for rung in of.rungs:
        rates = {False: float(rung.prediction.flop_per_s)}
        if rung.measured_flop_per_s is not None:
            rates[True] = rung.measured_flop_per_s
        for level, flop_per_byte in rung.traffic.flop_per_byte.items():
            found[level] += [
                plots.RooflinePoint(rung.kernel.name, flop_per_byte, rate, measured) for measured, rate in rates.items()
            ]
    return found


def _draw_rooflines(of: Chapter, theme: plots.Theme, stacked: bool = False) -> Figure:
    title = f"{of.device.title}, {of.problem}\n{of.tilings}"
    drawn = plots.figure(NARROW_IN, 13, theme) if stacked else plots.figure(11.5, 5.4, theme)
    return plots.rooflines(drawn, of.device, roofline_points(of), title, theme, stacked)


def _draw_reads(of: Chapter, theme: plots.Theme) -> Figure:
    drawn = plots.figure(8.4, theme=theme)
    reads = {_label(rung): rung.traffic.reads for rung in of.rungs}
    plots.reads_per_level(drawn.subplots(), reads, of.problem, theme, note=of.tilings)
    return drawn


def _draw_terms(of: Chapter, theme: plots.Theme) -> Figure:
    drawn = plots.figure(theme=theme)
    predictions = {_label(rung): rung.prediction for rung in of.rungs}
    measured_s = {_label(rung): rung.measured_s for rung in of.rungs if rung.measured_s is not None}
    plots.time_terms(drawn.subplots(), predictions, measured_s, theme, note=of.tilings)
    return drawn


def _label(rung: Rung) -> str:
    """The kernel, and below it its tiling in lines short enough for a tick."""
    return f"{rung.kernel.name}\n{fill(rung.described, TICK_LABEL_CHARACTERS)}"


def _draw_comparison(of: Chapter, theme: plots.Theme, stacked: bool = False) -> Figure:
    assert of.comparison is not None, "drawn only where something was measured"
    drawn = plots.figure(NARROW_IN, 11, theme) if stacked else plots.figure(11, 5.6, theme)
    first, second = drawn.subplots(2, 1) if stacked else drawn.subplots(1, 2)
    plots.predicted_against_measured(first, of.comparison, theme)
    plots.errors(second, of.comparison, theme)
    return drawn


def _of_rungs(of: Chapter, say: Callable[[Rung], str]) -> str:
    return "; ".join(f"{rung.kernel.name} {rung.described} {say(rung)}" for rung in of.rungs)


def _say_reads(rung: Rung) -> str:
    reads = rung.traffic.reads
    levels = {"global": reads.global_memory, "shared": reads.shared_memory, "register": reads.register}
    return ", ".join(f"{si(number, '').strip()} {level}" for level, number in levels.items())


def _say_rate(rung: Rung) -> str:
    predicted = f"predicted {si(float(rung.prediction.flop_per_s), 'FLOP/s')}"
    measured = rung.measured_flop_per_s
    return predicted if measured is None else f"{predicted}, measured {si(measured, 'FLOP/s')}"


def _say_time(rung: Rung) -> str:
    predicted = f"predicted {duration(float(rung.prediction.time_s))} by {words(rung.prediction.bound_by)}"
    return predicted if rung.measured_s is None else f"{predicted}, measured {duration(rung.measured_s)}"


def _alt_comparison(of: Chapter) -> str:
    assert of.comparison is not None, "described only where something was measured"
    parts = (f"{name} {percent(part.mape)}" for name, part in of.comparison.by_kernel().items())
    return (
        f"Predicted over measured time of {len(of.comparison.points)} points, mean absolute error"
        f" {percent(of.comparison.mape)}: {'; '.join(parts)}."
    )


PICTURES = (
    Picture(
        "comparison",
        "Predicted against measured time",
        "Every point is one measured launch: on the line the model is right, below it the model is too fast."
        " The bands mark 5 % and 10 % on either side; the second panel has the same points by their error, where the"
        " bands can be seen.",
        _draw_comparison,
        _alt_comparison,
        lambda of: of.comparison is not None,
        partial(_draw_comparison, stacked=True),
    ),
    Picture(
        "rooflines",
        "Rooflines of DRAM, L2 and shared memory",
        "The strong slope of a panel is what that level can feed, the flat line the FP32 peak, and the gap from a"
        " hollow point (predicted) to the filled one (measured) is the model's error. Bytes count every matrix once"
        " at DRAM, every sector at L2, every pass of the banks at shared memory; a point above the slope of L2 is"
        " served by L1 in part.",
        _draw_rooflines,
        lambda of: f"Rooflines of {of.device.title} at {of.problem}: {_of_rungs(of, _say_rate)}.",
        lambda of: bool(of.rungs),
        partial(_draw_rooflines, stacked=True),
    ),
    Picture(
        "terms",
        "What each resource needs, and the measured time",
        "Each lane is the time that one resource would need if nothing else cost anything; the rightmost is the"
        " prediction. The line across the lanes is the measured time: what lies between is not yet in the model.",
        _draw_terms,
        lambda of: f"Times of each resource at {of.problem}: {_of_rungs(of, _say_time)}.",
        lambda of: bool(of.rungs),
    ),
    Picture(
        "reads",
        "Reads at every level of the ladder",
        "Each step of the ladder moves reads from a far level to a nearer one, where they cost less; the register"
        " reads stay, as every multiplication needs two. The dashed line is the fewest elements that any kernel moves.",
        _draw_reads,
        lambda of: f"Reads, in elements, at {of.problem}: {_of_rungs(of, _say_reads)}.",
        lambda of: bool(of.rungs),
    ),
)
