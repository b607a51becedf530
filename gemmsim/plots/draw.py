"""The pictures. Each takes data and a Matplotlib Axes, draws, and returns the Axes; none computes.

Numbers are SI; prefixes appear in labels only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gemmsim.compare import Comparison
from gemmsim.device import Device
from gemmsim.plots.style import LIGHT, MARKERS, Theme, finish, legend_below, plain_ticks, points_at, styles
from gemmsim.predict import Prediction
from gemmsim.problem import Problem
from gemmsim.roofline import attainable, bandwidths, ridge
from gemmsim.traffic import Reads
from gemmsim.units import percent, short_percent, si, words

LEVELS = {"dram": "DRAM", "l2": "L2", "shared_memory": "shared memory"}
"""Levels of the memory that a roofline has a roof for, as pictures write them."""
BANDS = {0.10: 0.16, 0.05: 0.28}
"""Errors that the pictures mark, and how strongly they do."""


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel on a roofline: what it does, FLOP/s, for each byte that it moves at one level."""

    kernel: str
    flop_per_byte: float
    flop_per_s: float
    measured: bool


def reads_per_level(
    ax: Axes, reads: Mapping[str, Reads], problem: Problem, theme: Theme = LIGHT, note: str = ""
) -> Axes:
    """Elements that each kernel reads from global memory, shared memory and registers, beside the
    fewest that any kernel must move. A level that a kernel does not use says 0 at the foot. The keys of
    `reads` are the labels; `note` is a second line of the title.
    """
    levels = {"global memory": "global_memory", "shared memory": "shared_memory", "registers": "register"}
    width = 0.88 / len(levels)
    once = float(problem.compulsory_elements)
    floor = once / 10
    for index, (label, field) in enumerate(levels.items()):
        counts = [float(getattr(of_kernel, field)) for of_kernel in reads.values()]
        places = np.arange(len(counts)) + (index - (len(levels) - 1) / 2) * width
        ax.bar(
            places, counts, width * 0.92, label=label, zorder=2,
            color=theme.series[index + 1], edgecolor=theme.background, hatch=("", "//", "..")[index],
        )  # fmt: skip
        for place, count in zip(places, counts, strict=True):
            ax.annotate(
                si(count, "").strip(), (place, max(count, floor)), xytext=(0, 3), textcoords="offset points",
                ha="center", fontsize=7, color=theme.ink,
            )  # fmt: skip
    ax.axhline(once, color=theme.ink, ls="--", lw=1, label="A, B and C once", zorder=3)
    ax.set_yscale("log")
    # registers are read at least as often as any other level
    ax.set_ylim(floor, 4 * max([once, *(float(of_kernel.register) for of_kernel in reads.values())]))
    ax.set_xticks(range(len(reads)), list(reads))
    ax.set_ylabel("Reads (elements)")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value, "").strip()))
    finish(ax, theme, f"Reads at every level, {problem}\n{note}".rstrip(), grid="y")
    return legend_below(ax, theme, columns=4)


def roofline(
    ax: Axes,
    device: Device,
    points: Iterable[RooflinePoint],
    level: str = "l2",
    theme: Theme = LIGHT,
    legend: bool = True,
) -> Axes:
    """Points under the roofs of a device, on axes that the device alone sets, so that pictures of one
    device compare. `level` says which bytes the intensities count: its roof is drawn strong. A point
    outside the axes stands at their border, with an arrow and its numbers.
    """
    points = list(points)
    peak, rates = device.fp32_flop_per_s, bandwidths(device)
    ridges = {name: ridge(peak, rate) for name, rate in rates.items()}
    left, right = min(ridges.values()) / 32, max(ridges.values()) * 128
    bottom = attainable(left, peak, min(rates.values()))
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom / 1e12, 2 * peak / 1e12))

    ends = np.array([left, right])
    for (name, rate), line in zip(rates.items(), (":", "--", "-."), strict=True):
        ax.plot(
            ends, ends * rate / 1e12, color=theme.ink, ls=line, lw=1.8, alpha=1 if name == level else 0.35,
            label=f"{LEVELS[name]}, {si(rate, 'B/s')}",
        )  # fmt: skip
    ax.axhline(peak / 1e12, color=theme.ink, lw=1.8, label=f"FP32 peak, {si(peak, 'FLOP/s')}")
    ax.plot(
        list(ridges.values()), [peak / 1e12] * len(ridges), ls="", marker="d", ms=6, zorder=4,
        mfc=theme.background, mec=theme.ink, label="ridge points",
    )  # fmt: skip

    for name, style in styles((point.kernel for point in points), theme).items():
        for measured in (False, True):
            series = [point for point in points if point.kernel == name and point.measured == measured]
            if series:
                points_at(
                    ax, [(p.flop_per_byte, p.flop_per_s / 1e12) for p in series], theme, style=style,
                    label=f"{name}, {'measured' if measured else 'predicted'}", filled=measured,
                    where="{:.4g} FLOP/byte, {:.4g} TFLOP/s",
                )  # fmt: skip
    ax.set_xlabel(f"Arithmetic intensity at {LEVELS[level]} (FLOP/byte)")
    ax.set_ylabel("Performance (TFLOP/s)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(plain_ticks))
    finish(ax, theme, f"{device.title}, {_with_ridge(device, level)}")
    return legend_below(ax, theme, columns=3) if legend else ax


def rooflines(
    drawn: Figure,
    device: Device,
    points: Mapping[str, Sequence[RooflinePoint]],
    title: str,
    theme: Theme = LIGHT,
    stacked: bool = False,
) -> Figure:
    """One roofline for each level on the same axes, side by side or `stacked`, with one title and one legend."""
    drawn.suptitle(title, color=theme.ink, fontsize=10.5)
    shape = (len(points), 1) if stacked else (1, len(points))
    handles: dict[str, Any] = {}
    for ax, (level, of_level) in zip(drawn.subplots(*shape, squeeze=False).flat, points.items(), strict=True):
        roofline(ax, device, of_level, level, theme, legend=False)
        ax.set_title(_with_ridge(device, level), color=theme.ink, fontsize=10)
        handles |= {str(label): handle for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
        if not stacked:
            ax.label_outer()
    order = sorted(handles, key=lambda label: label.endswith(("measured", "predicted")))
    legend = drawn.legend(
        [handles[label] for label in order], order, loc="outside lower center", ncols=2 if stacked else 4,
        fontsize=8, frameon=False, labelcolor=theme.ink, columnspacing=1.2,
    )  # fmt: skip
    for handle in legend.legend_handles:
        if handle is not None:
            handle.set_alpha(1)
    return drawn


def _with_ridge(device: Device, level: str) -> str:
    """The level and its ridge: a title, as the number would hide points beside the ridge itself."""
    ridge_at = ridge(device.fp32_flop_per_s, bandwidths(device)[level])
    return f"{LEVELS[level]}: ridge at {ridge_at:.3g} FLOP/byte"


def predicted_against_measured(ax: Axes, comparison: Comparison, theme: Theme = LIGHT) -> Axes:
    """Predicted over measured time of every point, with the bands of 5 % and 10 % around equality."""
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
    for name, style in styles((point.point.kernel for point in points), theme).items():
        places = [(1e3 * p.measured_s, 1e3 * p.predicted_s) for p in points if p.point.kernel == name]
        where = "{:.3g} ms, predicted {:.3g} ms"
        points_at(ax, places, theme, style=style, label=name, where=where)
    ax.set_xlabel("Measured time (ms)")
    ax.set_ylabel("Predicted time (ms)")
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(FuncFormatter(plain_ticks))
    finish(ax, theme, f"{comparison.device.title}: {len(points)} points")
    return legend_below(ax, theme, columns=3)


def errors(ax: Axes, comparison: Comparison, theme: Theme = LIGHT) -> Axes:
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
    for name, style in styles((point.point.kernel for point in points), theme).items():
        places = [(1e3 * p.measured_s, 100 * p.error) for p in points if p.point.kernel == name]
        points_at(ax, places, theme, style=style, label=name, where="{:.3g} ms, error {:.3g} %")
    ax.set_xlabel("Measured time (ms)")
    ax.set_ylabel("Error: predicted / measured - 1 (%)")
    ax.xaxis.set_major_formatter(FuncFormatter(plain_ticks))
    finish(ax, theme, f"Mean absolute error {percent(comparison.mape)}")
    return legend_below(ax, theme, columns=3)


def time_terms(
    ax: Axes,
    predictions: Mapping[str, Prediction],
    measured_s: Mapping[str, float],
    theme: Theme = LIGHT,
    note: str = "",
) -> Axes:
    """The seconds that each resource needs for each kernel, one lane a resource, and the measured time
    as a line across the lanes of its kernel. The keys are the labels; `note` is a second line of the title.
    """
    terms = list(dict.fromkeys(chain.from_iterable(prediction.terms for prediction in predictions.values())))
    times_ms = [1e3 * float(t) for p in predictions.values() for t in p.terms.values() if 0 < t < np.inf]
    times_ms += [1e3 * measured for measured in measured_s.values()]
    left, right = min(times_ms, default=1.0) / 2, max(times_ms, default=1.0) * 2
    lane = 0.8 / max(1, len(terms))
    for index, term in enumerate(terms):
        rows = [row for row, p in enumerate(predictions.values()) if term in p.terms]
        places = [row + (index - (len(terms) - 1) / 2) * lane for row in rows]
        values = [1e3 * float(p.terms[term]) for p in predictions.values() if term in p.terms]
        color = theme.series[index % len(theme.series)]
        ax.hlines(places, left, np.maximum(values, left), color=color, lw=1, alpha=0.5)
        ax.plot(
            values, places, ls="", marker=MARKERS[index % len(MARKERS)], ms=6, color=color, label=words(term), zorder=3
        )
    rows = [row for row, name in enumerate(predictions) if name in measured_s]
    if rows:
        ax.vlines(
            [1e3 * measured_s[name] for name in predictions if name in measured_s],
            np.array(rows) - 0.44, np.array(rows) + 0.44, color=theme.ink, lw=3, label="measured", zorder=4,
        )  # fmt: skip
    for edge in np.arange(len(predictions) - 1) + 0.5:
        ax.axhline(edge, color=theme.faint, lw=0.8)
    ax.set(xscale="log", xlim=(left, right), ylim=(len(predictions) - 0.5, -0.5), xlabel="Time (ms)")
    ax.set_yticks(range(len(predictions)), list(predictions))
    ax.xaxis.set_major_formatter(FuncFormatter(plain_ticks))
    problem = next((f", {prediction.problem}" for prediction in predictions.values()), "")
    finish(ax, theme, f"What each resource needs{problem}\n{note}".rstrip(), grid="x")
    return legend_below(ax, theme, columns=4)
