"""The best predicted time over two parameters at once, as a field of colors with the pick in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure

from gemmsim.plots.style import LIGHT, Theme, finish
from gemmsim.search.landscapes import Landscape
from gemmsim.search.scoring import Result
from gemmsim.units import duration, words

SLOWEST = 2.0
"""Times beyond so many times the best have one color: what matters lies below."""
MOST_LABELED = 16
"""Columns up to which each place says how much slower it is."""


def landscape_pictures(
    drawn: Figure, maps: Sequence[Landscape], pick: Result, title: str, theme: Theme = LIGHT
) -> Figure:
    """Each landscape in axes of its own, one below the other."""
    drawn.suptitle(title, color=theme.ink, fontsize=10.5)
    for ax, landscape in zip(drawn.subplots(len(maps), 1, squeeze=False)[:, 0], maps, strict=True):
        landscape_picture(ax, landscape, pick, theme)
    return drawn


def landscape_picture(ax: Axes, landscape: Landscape, pick: Result, theme: Theme = LIGHT) -> Axes:
    """The time over the best of the landscape, for each pair of values that has a configuration; a ring around the
    place of the pick, where its parameters are fields of its tiling, and around the best place otherwise."""
    shown, xs, ys = _occupied(landscape)
    best = np.nanmin(shown)
    colors = LinearSegmentedColormap.from_list("slower", [theme.series[2], theme.background])
    image = ax.imshow(
        shown / best, cmap=colors, vmin=1, vmax=SLOWEST, origin="lower", aspect="auto", interpolation="nearest"
    )
    if len(xs) <= MOST_LABELED:
        for y, x in np.argwhere(np.isfinite(shown)):
            ratio = shown[y, x] / best
            ax.annotate(
                f"{ratio:.2f}" if ratio < 10 else f"{ratio:.0f}", (x, y), ha="center", va="center", fontsize=6.5,
                color=_readable(colors((ratio - 1) / (SLOWEST - 1)), theme),
            )  # fmt: skip
    y, x = _place(landscape, pick, shown, xs, ys)
    ax.plot(x, y, ls="", marker="o", ms=22, mfc="none", mec=theme.series[4], mew=1.8, gid="pick")
    ax.set_xticks(range(len(xs)), list(map(str, xs)))
    ax.set_yticks(range(len(ys)), list(map(str, ys)))
    ax.set(xlabel=_label(landscape.x), ylabel=_label(landscape.y))
    bar = ax.figure.colorbar(image, ax=ax, extend="max")
    bar.set_label("Time over the best", color=theme.ink)
    bar.ax.tick_params(colors=theme.ink, labelsize=9)
    finish(ax, theme, f"{_label(landscape.y)} by {_label(landscape.x).lower()}, best over all else: {duration(best)}")
    ax.grid(False)
    return ax


def _readable(fill: tuple[float, ...], theme: Theme) -> str:
    """The one of the theme's two colors for text that is further from the color of a place in brightness."""
    return max((theme.ink, theme.background), key=lambda color: abs(sum(to_rgb(color)) - sum(fill[:3])))


def _occupied(landscape: Landscape) -> tuple[Any, list[int], list[int]]:
    """(times, values of x, values of y) without the rows and columns that have no configuration; NaN for a place
    that has none."""
    some = np.isfinite(landscape.best_s)
    rows, columns = np.flatnonzero(some.any(axis=1)), np.flatnonzero(some.any(axis=0))
    times_s = np.where(some, landscape.best_s, np.nan)[np.ix_(rows, columns)]
    return times_s, [landscape.xs[at] for at in columns], [landscape.ys[at] for at in rows]


def _place(landscape: Landscape, pick: Result, shown: Any, xs: list[int], ys: list[int]) -> tuple[int, int]:
    x, y = (getattr(pick.tiling, name, None) for name in (landscape.x, landscape.y))
    if x in xs and y in ys:
        return ys.index(y), xs.index(x)
    row, column = np.unravel_index(int(np.nanargmin(shown)), shown.shape)
    return int(row), int(column)


def _label(name: str) -> str:
    if name == "registers":
        return "Registers a thread, estimated"
    text = words(name)
    return text[0].upper() + text[1:]
