"""Predictions against measurements: times over times, and errors, with the bands that the model is to keep to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmsim.compare import ComparedPoint, Comparison
from gemmsim.plots.style import LIGHT, Theme, finish, legend_below, plain_ticks, points_at, styles
from gemmsim.records import Point
from gemmsim.units import percent, short_percent

BANDS = {0.10: 0.16, 0.05: 0.28}
"""Errors that the pictures mark, and how strongly they do."""
HELD_OUT_POINTS = 11
HeldOut = Callable[[Point], bool]
"""Which points took no part in any fit."""


def none_held_out(point: Point) -> bool:
    """Where nothing was fitted, nothing was held out."""
    return False


def predicted_against_measured(
    ax: Axes, comparison: Comparison, theme: Theme = LIGHT, held_out: HeldOut = none_held_out
) -> Axes:
    """Predicted over measured time of every point, with the bands of 5 % and 10 % around equality; rings around points
    that are held out."""
    points = comparison.points
    times_ms = [1e3 * t for point in points for t in (point.measured_s, point.predicted_s) if np.isfinite(t)]
    ends = np.array([min(times_ms) / 1.5, max(times_ms) * 1.5])
    ax.set(xscale="log", yscale="log", xlim=tuple(ends), ylim=tuple(ends), aspect="equal")
    for share, alpha in BANDS.items():
        ax.fill_between(
            ends, ends * (1 - share), ends * (1 + share), color=theme.series[2], alpha=alpha, lw=0,
            label=f"within {short_percent(share)}",
        )  # fmt: skip
    ax.plot(ends, ends, color=theme.ink, lw=1, label="equal")
    _scatter(
        ax,
        points,
        lambda p: (1e3 * p.measured_s, 1e3 * p.predicted_s),
        "{:.3g} ms, predicted {:.3g} ms",
        theme,
        held_out,
    )
    ax.set_xlabel("Measured time (ms)")
    ax.set_ylabel("Predicted time (ms)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(plain_ticks))
    finish(ax, theme, f"{comparison.device.title}: {len(points)} points")
    return legend_below(ax, theme, columns=3)


def errors(ax: Axes, comparison: Comparison, theme: Theme = LIGHT, held_out: HeldOut = none_held_out) -> Axes:
    """Error of every point over its measured time, with the same bands, where they are wide enough to see."""
    points = comparison.points
    percents = [100 * point.error for point in points if np.isfinite(point.error)]
    ax.set(xscale="log", ylim=(min([-15.0, *percents]) - 5, max([15.0, *percents]) + 5))
    for share, alpha in BANDS.items():
        ax.axhspan(
            -100 * share, 100 * share, color=theme.series[2], alpha=alpha, lw=0, label=f"within {short_percent(share)}"
        )
    ax.axhline(0, color=theme.ink, lw=1, label="equal")
    times_ms = [1e3 * point.measured_s for point in points]
    ax.set_xlim(min(times_ms) / 1.5, max(times_ms) * 1.5)
    _scatter(ax, points, lambda p: (1e3 * p.measured_s, 100 * p.error), "{:.3g} ms, error {:.3g} %", theme, held_out)
    ax.set_xlabel("Measured time (ms)")
    ax.set_ylabel("Error: predicted / measured - 1 (%)")
    ax.xaxis.set_major_formatter(FuncFormatter(plain_ticks))
    finish(ax, theme, f"Mean absolute error {percent(comparison.mape)}")
    return legend_below(ax, theme, columns=3)


def _scatter(
    ax: Axes,
    points: Sequence[ComparedPoint],
    place: Callable[[ComparedPoint], tuple[float, float]],
    where: str,
    theme: Theme,
    held_out: HeldOut,
) -> None:
    """The points in the color and form of their kernels, those held out within a ring."""
    for name, style in styles((point.point.kernel for point in points), theme).items():
        places = [place(point) for point in points if point.point.kernel == name]
        points_at(ax, places, theme, style=style, label=name, where=where)
    apart = [place(point) for point in points if held_out(point.point)]
    if apart:
        ax.plot(
            *zip(*apart, strict=True), ls="", marker="o", ms=HELD_OUT_POINTS, mfc="none", mec=theme.ink, mew=0.8,
            label="held out", zorder=7,
        )  # fmt: skip
