"""How pictures look: themes, kernels' colors and markers, points that leave the axes, legends, bytes.

Nothing here touches pyplot or other global state.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from gemmsim.kernels import KERNELS

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
MARKER_POINTS = (8.5, 7.0, 8.0, 6.0, 7.0, 7.5, 7.0, 9.5)
"""Their sizes, which look alike."""
PNG_DOTS_PER_INCH = 160


@dataclass(frozen=True)
class Theme:
    """Colors and letters of a picture. `series` tell kernels and terms apart; `text_points` is the size of the text
    along an axis, to which all other text is in proportion; `family` is a font family of Matplotlib's.

    The series keep a contrast of 3 to 1 against the background (WCAG 2.2, 1.4.11) and stay apart for readers with
    protanopia, deuteranopia and tritanopia; markers, hatches and positions say the same without color.
    """

    background: str
    ink: str
    faint: str
    series: tuple[str, ...]
    text_points: float = 9.0
    family: str = "sans-serif"

    def text(self, points: float = 9.0) -> dict[str, Any]:
        """The look of text that has so many points where `text_points` is 9, as keywords of Matplotlib's."""
        return {"color": self.ink, "fontsize": points * self.text_points / 9, "fontfamily": self.family}

    def font(self, points: float = 9.0) -> FontProperties:
        """The same size and family for legends, which take their color apart."""
        return FontProperties(family=self.family, size=points * self.text_points / 9)


LIGHT = Theme(
    "#ffffff", "#1a1d21", "#d5d8dc", ("#939387", "#f75802", "#159cdc", "#1a3fa6", "#7e4479", "#8904ff", "#8e3117")
)
DARK = Theme(
    "#14171c", "#e8eaed", "#3a4048", ("#98908e", "#ff8504", "#54affd", "#00ff6e", "#436993", "#8a0dff", "#c92131")
)
PAPER = replace(LIGHT, ink="#000000", faint="#c8c8c8", text_points=8.0, family="serif")
"""For print: black on white, in the letters of a paper."""
STYLES = {"light": LIGHT, "dark": DARK, "paper": PAPER}
"""The themes by name."""
FORMS = ("png", "svg", "pdf")
"""What `render` writes."""


def figure(width_in: float = 7.2, height_in: float = 4.8, theme: Theme = LIGHT) -> Figure:
    """An empty figure, bound to no display."""
    return Figure(figsize=(width_in, height_in), facecolor=theme.background, layout="constrained")


def render(drawn: Figure, form: str) -> bytes:
    """The figure in one of FORMS: the same bytes for the same figure, without date or versions."""
    blank = {
        "svg": ("Date", "Creator", "Format", "Type"),
        "png": ("Software",),
        "pdf": ("CreationDate", "Creator", "Producer"),
    }[form]
    target = io.BytesIO()
    with rc_context({"svg.hashsalt": "gemmsim", "svg.fonttype": "path", "pdf.fonttype": 42}):
        drawn.savefig(target, format=form, dpi=PNG_DOTS_PER_INCH, metadata=dict.fromkeys(blank))
    return target.getvalue()


def plain_ticks(value: float, _: Any) -> str:
    """Labels without powers of ten, as far as numbers stay short."""
    return f"{value:g}"


def _two_and_five(value: float, _: Any) -> str:
    """Labels between powers of ten."""
    return f"{value:g}" if f"{value:e}"[0] in "25" else ""


@dataclass(frozen=True)
class Style:
    """How the points of one kernel look."""

    color: str
    marker: str
    points: float


def styles(names: Iterable[str], theme: Theme) -> dict[str, Style]:
    """The style of each name: a kernel keeps its own in every picture, in the order of the family."""
    present = set(names)
    every = [*KERNELS, *sorted(present - set(KERNELS))]
    return {
        name: Style(
            theme.series[index % len(theme.series)], MARKERS[index % len(MARKERS)], MARKER_POINTS[index % len(MARKERS)]
        )
        for index, name in enumerate(every)
        if name in present
    }


def points_at(
    ax: Axes,
    places: Sequence[tuple[float, float]],
    theme: Theme,
    *,
    style: Style,
    label: str,
    where: str,
    filled: bool = True,
) -> None:
    """Markers where they belong; those outside the axes at the border, with an arrow and their numbers
    as `where` writes them.
    """
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    x, y = np.array(places, float).T
    outside = ~((left <= x) & (x <= right) & (bottom <= y) & (y <= top))
    # hollow markers lie on top, as they hide nothing
    look: dict[str, Any] = {"ls": "", "marker": style.marker, "zorder": 5 if filled else 6}
    if filled:  # the edge of the background parts it from a marker beneath
        look |= {"ms": style.points + 1.5, "mfc": style.color, "mec": theme.background, "mew": 0.7}
    else:
        look |= {"ms": style.points, "mfc": "none", "mec": style.color, "mew": 1.5}
    ax.plot(x[~outside], y[~outside], label=label, **look)
    for true_x, true_y in zip(x[outside], y[outside], strict=True):
        at = (np.clip(true_x, left, right), np.clip(true_y, bottom, top))
        # The text goes inward from the border, and the arrow outward to the point.
        inward = ((true_x < left) - float(true_x > right), (true_y < bottom) - float(true_y > top))
        on_left = ax.transAxes.inverted().transform(ax.transData.transform(at))[0] < 0.5
        ax.plot(*at, clip_on=False, gid="outside", **look)
        ax.annotate(
            where.format(true_x, true_y), at, xytext=(34 * inward[0], 34 * inward[1]), textcoords="offset points",
            va="center", ha="left" if on_left else "right", zorder=4, **theme.text(7.5),
            bbox={"facecolor": theme.background, "edgecolor": "none", "pad": 1},
            arrowprops={"arrowstyle": "->", "color": style.color, "shrinkB": 6, "relpos": (0 if on_left else 1, 0.5)},
        )  # fmt: skip


def finish(ax: Axes, theme: Theme, title: str, grid: str = "both") -> None:
    """Colors, grid and title, the same in every picture."""
    ax.set_facecolor(theme.background)
    ax.set_title(title, **theme.text(10.5))
    ax.set_axisbelow(True)
    ax.grid(True, which="major", axis=grid, color=theme.faint, lw=0.6)  # type: ignore[arg-type]
    ax.tick_params(which="both", colors=theme.ink, labelsize=theme.text_points, labelfontfamily=theme.family)
    ax.tick_params(which="minor", pad=5)  # minor ticks are shorter; the labels of both stand in one line
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set(**theme.text(10))
        if axis.get_scale() == "log":
            low, high = axis.get_view_interval()
            short = high < 100 * low  # an axis on which powers of ten alone would say too little
            axis.set_minor_locator(LogLocator(subs=tuple(range(2, 10))) if short else NullLocator())
            axis.set_minor_formatter(FuncFormatter(_two_and_five) if short else NullFormatter())
    for spine in ax.spines.values():
        spine.set_color(theme.faint)


def legend_below(ax: Axes, theme: Theme, columns: int) -> Axes:
    """Every series, below the axes and the lines of their labels, where it hides nothing."""
    lines = max((label.get_text().count("\n") for label in ax.get_xticklabels()), default=0)
    below = ScaledTranslation(0, -(34 + 12 * lines) / 72 * theme.text_points / 9, ax.figure.dpi_scale_trans)
    ax.legend(
        loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=ax.transAxes + below, ncols=columns,
        prop=theme.font(8), frameon=False, labelcolor=theme.ink, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip
    return ax


def legend_of_figure(drawn: Figure, handles: Mapping[str, Any], theme: Theme, columns: int) -> None:
    """One legend below all panels, of {label: what is drawn}."""
    legend = drawn.legend(
        list(handles.values()), list(handles), loc="outside lower center", ncols=columns, prop=theme.font(8),
        frameon=False, labelcolor=theme.ink, columnspacing=1.2, handletextpad=0.5,
    )  # fmt: skip
    for handle in legend.legend_handles:
        if isinstance(handle, Line2D):  # faint lines are to be read there
            handle.set_alpha(1)


def handles_of(drawn: Figure) -> dict[str, Any]:
    """{label: what is drawn} of all panels, each label once."""
    return {
        str(label): handle for ax in drawn.axes for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
