"""The lanes of a warp over the banks of shared memory: who touches which, and in which pass."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gemmsim.banks import BANKS, LaneGroup
from gemmsim.patterns import Served
from gemmsim.plots.style import LIGHT, Theme, finish, legend_below
from gemmsim.tiling import WARP_SIZE

FIRST, LATER = 2, 1
"""Colors, of the theme's series, for what the first pass of a group serves and for what has to wait."""


DIGITS_POINTS = 7.0


def bank_map(
    ax: Axes,
    groups: Sequence[tuple[LaneGroup, Sequence[Served]]],
    title: str,
    theme: Theme = LIGHT,
    digits_points: float = DIGITS_POINTS,
) -> Axes:
    """A cell for each bank that a lane touches, with the number of the pass that serves it; two numbers in
    one column of a lane group are a conflict, one number at several lanes is a word that they share. Lines
    part the lane groups. `groups` are those of `gemmsim.patterns.served`, `digits_points` the size of the numbers.
    """
    ax.set(xlim=(-0.5, BANKS - 0.5), ylim=(WARP_SIZE - 0.5, -0.5))
    for name, color in (("served in the first pass", FIRST), ("in a later one: a bank conflict", LATER)):
        ax.add_patch(Rectangle((0, 0), 0, 0, facecolor=theme.series[color], label=name))
    for group, slots in groups:
        ax.axhline(group.lanes[0] - 0.5, color=theme.ink, lw=0.8, zorder=3)
        for slot in slots:
            _draw(ax, slot, theme, digits_points)
    ax.set_xlabel("Bank (4 bytes)")
    ax.set_ylabel("Lane")
    ax.set_xticks(range(0, BANKS, 4))
    ax.set_yticks(range(0, WARP_SIZE, 4))
    finish(ax, theme, title)
    return legend_below(ax, theme, columns=2)


def _draw(ax: Axes, slot: Served, theme: Theme, digits_points: float) -> None:
    """What a pass serves: a cell at each of its lanes, as wide as its banks."""
    color = theme.series[FIRST if slot.turn == 0 else LATER]
    for lane in slot.lanes:
        corner = (slot.banks.start - 0.5, lane - 0.5)
        ax.add_patch(
            Rectangle(corner, len(slot.banks), 1, facecolor=color, edgecolor=theme.background, lw=0.5, zorder=2)
        )
        middle = (slot.banks.start + (len(slot.banks) - 1) / 2, lane)
        ax.text(
            *middle, str(slot.turn + 1), ha="center", va="center_baseline", zorder=4,
            **theme.text(digits_points) | {"color": theme.background},
        )  # fmt: skip
