"""The pictures of a chapter: what is drawn, how to read it, and what it says without being seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from gemmsim import plots
from gemmsim.report.chapter import Chapter, Rung
from gemmsim.roofline import SHARED_BYTES_PER_CYCLE
from gemmsim.traffic import Traffic
from gemmsim.units import duration, percent, si


@dataclass(frozen=True)
class Picture:
    """One picture of a chapter: how it is drawn, how to read it, and what it says without being seen."""

    name: str
    title: str
    reading: str
    draw: Callable[[Chapter, plots.Theme], Figure]
    alt: Callable[[Chapter], str]
    has_data: Callable[[Chapter], bool]


def intensity(counted: Traffic) -> dict[str, float]:
    """FLOP for each byte at every level of the roofline that the launch uses.

    DRAM and L2 by the bytes of `Traffic`; shared memory by its wavefronts, each a pass of all banks.
    """
    wavefronts = counted.shared_load.wavefronts + counted.shared_store.wavefronts
    moved = {**counted.bytes, "shared_memory": wavefronts * SHARED_BYTES_PER_CYCLE}
    return {level: counted.problem.flop / moved[level] for level in plots.LEVELS if moved[level]}


def roofline_points(of: Chapter) -> dict[str, list[plots.RooflinePoint]]:
    """The rungs at each level, predicted and, where there is a time, measured."""
    found: dict[str, list[plots.RooflinePoint]] = {level: [] for level in plots.LEVELS}
    for rung in of.rungs:
        rates = {False: float(rung.prediction.flop_per_s)}
        if rung.measured:
            rates[True] = rung.measured.flop_per_s
        for level, flop_per_byte in intensity(rung.traffic).items():
            found[level] += [
                plots.RooflinePoint(rung.kernel.name, flop_per_byte, rate, measured) for measured, rate in rates.items()
            ]
    return found


def _draw_rooflines(of: Chapter, theme: plots.Theme) -> Figure:
    title = f"{of.device.title}, {of.problem}"
    return plots.rooflines(plots.figure(11.5, 5.4, theme), of.device, roofline_points(of), title, theme)


def _draw_reads(of: Chapter, theme: plots.Theme) -> Figure:
    drawn = plots.figure(8.4, theme=theme)
    plots.reads_per_level(drawn.subplots(), {r.kernel.name: r.traffic.reads for r in of.rungs}, of.problem, theme)
    return drawn


def _draw_terms(of: Chapter, theme: plots.Theme) -> Figure:
    drawn = plots.figure(theme=theme)
    predictions = {rung.kernel.name: rung.prediction for rung in of.rungs}
    measured_s = {rung.kernel.name: rung.measured.measured_s for rung in of.rungs if rung.measured}
    plots.time_terms(drawn.subplots(), predictions, measured_s, theme)
    return drawn


def _draw_comparison(of: Chapter, theme: plots.Theme) -> Figure:
    assert of.comparison is not None, "drawn only where something was measured"
    drawn = plots.figure(11, 5.6, theme)
    left, right = drawn.subplots(1, 2)
    plots.predicted_against_measured(left, of.comparison, theme)
    plots.errors(right, of.comparison, theme)
    return drawn


def _of_rungs(of: Chapter, say: Callable[[Rung], str]) -> str:
    return "; ".join(f"{rung.kernel.name} {say(rung)}" for rung in of.rungs)


def _say_reads(rung: Rung) -> str:
    reads = rung.traffic.reads
    levels = {"global": reads.global_memory, "shared": reads.shared_memory, "register": reads.register}
    return ", ".join(f"{si(number, '').strip()} {level}" for level, number in levels.items())


def _say_rate(rung: Rung) -> str:
    predicted = f"predicted {si(float(rung.prediction.flop_per_s), 'FLOP/s')}"
    return f"{predicted}, measured {si(rung.measured.flop_per_s, 'FLOP/s')}" if rung.measured else predicted


def _say_time(rung: Rung) -> str:
    predicted = f"predicted {duration(float(rung.prediction.time_s))} by {rung.prediction.bound_by}"
    return f"{predicted}, measured {duration(rung.measured.measured_s)}" if rung.measured else predicted


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
        " The bands mark 5 % and 10 % on either side; on the right the same points by their error, where the bands"
        " can be seen.",
        _draw_comparison,
        _alt_comparison,
        lambda of: of.comparison is not None,
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
