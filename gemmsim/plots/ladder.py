"""Kernels side by side: what each reads at every level, and what each of its resources needs of the time."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmsim.plots.style import LIGHT, MARKERS, Theme, finish, legend_below, plain_ticks
from gemmsim.predict import Prediction
from gemmsim.problem import Problem
from gemmsim.traffic import Reads
from gemmsim.units import si, words

LEVELS = {"global memory": "global_memory", "shared memory": "shared_memory", "registers": "register"}
"""The fields of `Reads` as pictures write them."""
HATCHES = ("", "///", "...")


def reads_per_level(ax: Axes, reads: Mapping[str, Reads], problem: Problem, theme: Theme = LIGHT) -> Axes:
    """Elements that each kernel reads from global memory, shared memory and registers, beside the
    fewest that any kernel must move. A level that a kernel does not use says 0 at the foot. The keys of
    `reads` are the labels.
    """
    width = 0.84 / len(LEVELS)
    once = float(problem.compulsory_elements)
    floor = once / 10
    most = max([once, *(float(of_kernel.register) for of_kernel in reads.values())])  # no level is read more often
    ax.set(xscale="log", xlim=(floor, 8 * most), ylim=(len(reads) - 0.5, -0.5), xlabel="Reads (elements)")
    for index, (label, field) in enumerate(LEVELS.items()):
        counts = [float(getattr(of_kernel, field)) for of_kernel in reads.values()]
        places = np.arange(len(counts)) + (index - (len(LEVELS) - 1) / 2) * width
        ax.barh(
            places, counts, width * 0.9, label=label, zorder=2,
            color=theme.series[index + 1], edgecolor=theme.background, hatch=HATCHES[index], lw=0,
        )  # fmt: skip
        for place, count in zip(places, counts, strict=True):
            ax.annotate(
                si(count, "").strip(), (max(count, floor), place), xytext=(4, 0), textcoords="offset points",
                va="center_baseline", **theme.text(7.5),
            )  # fmt: skip
    ax.axvline(once, color=theme.ink, ls="--", lw=1.2, label="A, B and C once", zorder=3)
    ax.set_yticks(range(len(reads)), list(reads))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: si(value, "").strip()))
    _lanes(ax, len(reads), theme)
    finish(ax, theme, f"Reads at every level, {problem}", grid="x")
    return legend_below(ax, theme, columns=2)


def time_terms(
    ax: Axes, predictions: Mapping[str, Prediction], measured_s: Mapping[str, float], theme: Theme = LIGHT
) -> Axes:
    """The seconds that each resource needs for each kernel, one lane a resource, and the predicted and the measured
    time as lines across the lanes of its kernel. The keys are the labels.
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
        ax.hlines(places, left, np.maximum(values, left), color=color, lw=2, alpha=0.6)
        ax.plot(
            values, places, ls="", marker=MARKERS[index % len(MARKERS)], ms=6, color=color, label=words(term), zorder=3
        )
    predicted_s = {name: float(prediction.time_s) for name, prediction in predictions.items()}
    for label, times_s, dashes in (("predicted", predicted_s, (0, (2, 1))), ("measured", measured_s, "-")):
        rows = [row for row, name in enumerate(predictions) if np.isfinite(times_s.get(name, np.inf))]
        if rows:
            ax.vlines(
                [1e3 * times_s[name] for name in predictions if np.isfinite(times_s.get(name, np.inf))],
                np.array(rows) - 0.46, np.array(rows) + 0.46, color=theme.ink, lw=2.2, ls=dashes, label=label, zorder=4,
            )  # fmt: skip
    ax.set(xscale="log", xlim=(left, right), ylim=(len(predictions) - 0.5, -0.5), xlabel="Time (ms)")
    ax.set_yticks(range(len(predictions)), list(predictions))
    ax.xaxis.set_major_formatter(FuncFormatter(plain_ticks))
    problem = next((f", {prediction.problem}" for prediction in predictions.values()), "")
    _lanes(ax, len(predictions), theme)
    finish(ax, theme, f"What each resource needs{problem}", grid="x")
    return legend_below(ax, theme, columns=3)


def _lanes(ax: Axes, kernels: int, theme: Theme) -> None:
    """Lines that part the kernels."""
    for edge in np.arange(kernels - 1) + 0.5:
        ax.axhline(edge, color=theme.faint, lw=0.8)
    ax.tick_params(axis="y", length=0)
