"""What each warp of a sub-core does when: load, compute and wait, in lanes over two large iterations."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from gemmsim.pipeline.timeline import Interval, Kind, Timeline
from gemmsim.plots.style import LIGHT, Theme, finish

Span = tuple[float, float, float]
"""(row, first cycle, last cycle)."""


class Look(NamedTuple):
    """How a kind is drawn: the series of its color, none for the faint one, how high, and its hatch."""

    label: str
    kinds: tuple[Kind, ...]
    series: int | None
    height: float
    hatch: str = ""


LOOKS = (
    Look("waits for its turn or itself", ("wait_turn", "wait_own"), None, 0.3),
    Look("waits for shared memory", ("wait_shared",), 3, 0.3, "...."),
    Look("waits at the barrier", ("wait_barrier",), 6, 0.3, "xxxx"),
    Look("waits for global memory", ("wait_memory",), 1, 0.3, "////"),
    Look("issues anything else", ("other",), 0, 0.56),
    Look("computes (FFMA)", ("compute",), 2, 0.56),
    Look("uses shared memory", ("shared",), 3, 0.56),
    Look("asks global memory", ("load",), 1, 0.56),
)
"""From the lowest layer to the highest. Issue is high, waiting low and hatched: the two are apart without color."""
FLIGHT, PASS = "loads on their way", "a pass begins"
FLIGHT_AT = 0.38
"""Below the middle of the row."""
FINEST = 1 / 1000
"""Share of the axis that is told apart: gaps in between are closed, and what is shorter is drawn so long, as an access
of one cycle would not be seen."""


def timeline_picture(
    ax: Axes, of: Timeline, theme: Theme = LIGHT, sub_core: int = 0, until: float | None = None
) -> Axes:
    """The warps of one sub-core, a row each, from the start of the window to cycle `until`, by default its end. At most
    one of them issues at a time. Below each lies when something is on its way from global memory to it, and a short
    line in it says where a pass of the main loop begins.
    """
    rows = [warp for warp, intervals in of.warps.items() if intervals[0].sub_core == sub_core]
    row_of = {warp: row for row, warp in enumerate(rows)}
    shown = [(row_of[each.block, each.warp], each) for each in of.intervals if (each.block, each.warp) in row_of]
    finest = FINEST * (until or of.cycles)
    for look in LOOKS:
        spans = [(row, each.start_cycles, each.end_cycles) for row, each in shown if each.kind in look.kinds]
        color = theme.faint if look.series is None else theme.series[look.series]
        ax.add_patch(_bars(_coarse(spans, finest), look, color, theme))
    flights = [
        (row_of[each.block, each.warp] + FLIGHT_AT, each.start_cycles, each.end_cycles)
        for each in of.flights
        if (each.block, each.warp) in row_of
    ]
    heights, starts, ends = zip(*flights, strict=True) if flights else ((), (), ())
    ax.hlines(heights, starts, ends, color=theme.series[1], lw=1.6, label=FLIGHT)
    passes = [(row, start) for row, warp in enumerate(rows) for start in _passes(of.warps[warp])]
    middles, starts = zip(*passes, strict=True) if passes else ((), ())
    ax.vlines(
        starts, np.array(middles) - 0.4, np.array(middles) + 0.3, color=theme.ink, lw=1.2, zorder=3, label=PASS
    )  # fmt: skip
    ax.set(xlim=(0, until or of.cycles), ylim=(len(rows) - 0.5, -0.5), xlabel="Cycles")
    ax.set_yticks(range(len(rows)), [f"block {block}, warp {warp}" for block, warp in rows])
    finish(ax, theme, f"{of.kernel.name}\n{of.cycles_per_iteration:,.0f} cycles an iteration of a block", grid="x")
    ax.tick_params(axis="y", length=0)
    return ax


def _passes(intervals: Sequence[Interval]) -> list[float]:
    """Where passes of the main loop begin."""
    return [now.start_cycles for before, now in pairwise(intervals) if now.lap != before.lap]


def timeline_pictures(
    drawn: Figure, timelines: Sequence[Timeline], theme: Theme = LIGHT, stacked: bool = False
) -> Figure:
    """Each timeline in axes of its own, to the same scale, so that the shorter one ends earlier."""
    count = len(timelines)
    axes = list(drawn.subplots(*((count, 1) if stacked else (1, count)), squeeze=False).flat)
    until = max(each.cycles for each in timelines)
    for ax, each in zip(axes, timelines, strict=True):
        timeline_picture(ax, each, theme, until=until)
        if each.cycles < until:
            ax.axvline(each.cycles, color=theme.ink, lw=1.0, ls=":")
    labels = [[text.get_text() for text in ax.get_yticklabels()] for ax in axes]
    for ax, own in zip(axes[1:], labels[1:], strict=True):
        if not stacked and own == labels[0]:
            ax.tick_params(axis="y", labelleft=False)
    return drawn


def _coarse(spans: Iterable[Span], finest: float) -> Iterator[Span]:
    """The spans, in order, as far as they can be told apart."""
    held: Span | None = None
    for row, start, end in spans:
        end = max(end, start + finest)
        if held and held[0] == row and start - held[2] < finest:
            held = row, held[1], max(end, held[2])
            continue
        if held:
            yield held
        held = row, start, end
    if held:
        yield held


def _bars(spans: Iterable[Span], look: Look, color: str, theme: Theme) -> PathPatch:
    """All bars of one look as one shape, which keeps files small."""
    half = look.height / 2
    boxes = [
        Path([(start, row - half), (end, row - half), (end, row + half), (start, row + half), (start, row - half)],
             closed=True)
        for row, start, end in spans
    ]  # fmt: skip
    path = Path.make_compound_path(*boxes) if boxes else Path([(0, 0)])
    if look.hatch:
        drawn = {"facecolor": theme.background, "edgecolor": color, "hatch": look.hatch, "lw": 0.0}
    else:
        drawn = {"facecolor": color, "edgecolor": "none", "lw": 0.0}
    return PathPatch(path, label=look.label, zorder=2, **drawn)
