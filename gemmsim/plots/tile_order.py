"""A thread tile: the order of its FFMA, the banks of its registers, what is kept, and where reads collide."""

from __future__ import annotations

from itertools import pairwise

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from gemmsim.plots.style import LIGHT, Theme, finish, legend_below
from gemmsim.registers.reads import PortReport, Stream
from gemmsim.registers.tile_order import Plan, bank_names, waits

COLORS = (2, 1, 3, 4)
"""Colors, of the theme's series, for the banks."""
FRAGMENT = 0.55
"""How far fragments stand from the tile, and how large they are, in cells."""


def tile_order(
    ax: Axes, plan: Plan, stream: Stream, report: PortReport, banks: int, title: str, theme: Theme = LIGHT
) -> Axes:
    """A cell for each accumulator, in the color of its bank, with the number of its FFMA (upper left), the slots whose
    operand that keeps (upper right) and its register; fragments of A to the left, of B above; a path through the cells
    in the order of their FFMA. Cells with a heavy edge wait for a bank. Of several sets of fragments the first is
    drawn; waits are those of all.
    """
    m, n = len(plan.allocation.c), len(plan.allocation.c[0])
    ax.set(xlim=(-1.4, n - 0.3), ylim=(m - 0.3, -1.4), aspect="equal")
    names = bank_names(banks)
    for bank in range(banks):
        color = theme.series[COLORS[bank % len(COLORS)]]
        ax.add_patch(Rectangle((0, 0), 0, 0, facecolor=color, alpha=0.45, label=f"bank {bank} ({names[bank]})"))
    ax.add_patch(Rectangle((0, 0), 0, 0, fill=False, edgecolor=theme.ink, lw=2.2, label="waits for a bank"))
    for name, registers in (("A", plan.allocation.a[0]), ("B", plan.allocation.b[0])):
        for index, register in enumerate(registers):
            _box(ax, (-1, index) if name == "A" else (index, -1), FRAGMENT, register, banks, theme)
    waiting = waits(plan, report)
    for number, (i, j) in enumerate(plan.order):
        _box(ax, (j, i), 0.94, plan.allocation.c[i][j], banks, theme, (i, j) in waiting)
        kept = stream.instructions[number].reuse
        ax.text(j - 0.42, i - 0.28, str(number), ha="left", va="center", zorder=5, **theme.text(7.5))
        ax.text(j + 0.42, i - 0.28, kept, ha="right", va="center", zorder=5, **theme.text(5))
    _path(ax, plan, theme)
    finish(ax, theme, title)
    ax.grid(False)
    ax.set_xticks(range(n), [f"b{j}" for j in range(n)])
    ax.set_yticks(range(m), [f"a{i}" for i in range(m)])
    ax.tick_params(length=0)
    return legend_below(ax, theme, columns=3)


def _box(
    ax: Axes, middle: tuple[int, int], size: float, register: int, banks: int, theme: Theme, heavy: bool = False
) -> None:
    """A register as a square in the color of its bank."""
    x, y = middle
    color = theme.series[COLORS[register % banks % len(COLORS)]]
    corner = (x - size / 2, y - size / 2)
    ax.add_patch(Rectangle(corner, size, size, facecolor=color, alpha=0.45, edgecolor="none", zorder=2))
    if heavy:
        ax.add_patch(Rectangle(corner, size, size, fill=False, edgecolor=theme.ink, lw=2.2, zorder=4))
    (left, low), at = ((x + 0.42, y + 0.35), "right") if size > FRAGMENT else (middle, "center")
    ax.text(left, low, f"R{register}", ha=at, va="center", zorder=5, **theme.text(5))


def _path(ax: Axes, plan: Plan, theme: Theme) -> None:
    """Arrows from cell to cell, and a dot where they begin."""
    ax.plot(*plan.order[0][::-1], marker="o", ms=4, color=theme.ink, zorder=3)
    for here, there in pairwise(plan.order):
        ax.annotate(
            "", there[::-1], here[::-1], zorder=3,
            arrowprops={"arrowstyle": "->", "color": theme.ink, "alpha": 0.6, "lw": 0.8, "shrinkA": 2, "shrinkB": 2},
        )  # fmt: skip
