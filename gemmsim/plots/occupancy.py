"""The classic charts of occupancy: resident warps against what a block takes, with the present block and its cliffs."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gemmsim.device import Capability
from gemmsim.occupancy.cliffs import Cliff, Sweep
from gemmsim.plots.style import LIGHT, Theme, finish, handles_of, legend_of_figure
from gemmsim.units import count

CHARTS = {
    "registers": ("Registers a thread", 16),
    "shared_bytes": ("Shared memory of a block (KiB)", 2**14),
    "threads": ("Threads of a block", 128),
}
"""What is drawn, in this order: the name of each axis, and the distance of its ticks, doubled where they are many."""
MOST_TICKS = 17
TITLE_CHARACTERS = 80


def charts(
    drawn: Figure,
    sweeps: Mapping[str, Sweep],
    capability: Capability,
    title: str,
    theme: Theme = LIGHT,
    title_characters: int = TITLE_CHARACTERS,
    most_ticks: int = MOST_TICKS,
) -> Figure:
    """The three charts, one below the other, with one title and one legend; `sweeps` by resource."""
    drawn.suptitle(textwrap.fill(title, title_characters), **theme.text(10.5))
    axes = drawn.subplots(len(CHARTS), 1, squeeze=False)[:, 0]
    for ax, resource in zip(axes, CHARTS, strict=True):
        chart(ax, sweeps[resource], capability, theme, most_ticks)
    handles = handles_of(drawn)
    legend_of_figure(drawn, handles, theme, len(handles))
    return drawn


def chart(ax: Axes, sweep: Sweep, capability: Capability, theme: Theme = LIGHT, most_ticks: int = MOST_TICKS) -> Axes:
    """Resident warps for every value of one resource; the present value, and the nearest cliffs on its sides."""
    name, step = CHARTS[sweep.resource]
    last = int(sweep.values[-1])
    # what lies between two values is that of the next one
    ax.step(sweep.values, sweep.swept.warps_per_sm, where="pre", color=theme.series[2], lw=1.6, label="resident warps")
    for index, cliff in enumerate(cliff for cliff in (sweep.fewer, sweep.more) if cliff):
        ax.plot(
            cliff.value, cliff.warps_per_sm, ls="", marker="D", ms=5.5, color=theme.series[4], zorder=4,
            label="nearest cliff" if index == 0 else None,
        )  # fmt: skip
        ax.annotate(
            _there(cliff), (cliff.value, cliff.warps_per_sm), xytext=(0, 7), textcoords="offset points",
            ha="right" if cliff.change < 0 else "left", zorder=5, **theme.text(7.5),
            bbox={"facecolor": theme.background, "edgecolor": "none", "pad": 0.5, "alpha": 0.6},
        )  # fmt: skip
    ax.plot(
        min(sweep.present, last), sweep.now.warps_per_sm, ls="", marker="o", ms=8, mec=theme.background,
        color=theme.ink, zorder=6, label="this block",
    )  # fmt: skip
    while last / step > most_ticks:
        step *= 2
    ticks, unit = range(0, last + 1, step), 1024 if name.endswith("(KiB)") else 1
    ax.set_xticks(ticks, [f"{tick // unit}" for tick in ticks])
    ax.set(xlim=(0, last), ylim=(0, 1.15 * capability.max_warps_per_sm), xlabel=name, ylabel="Resident warps")
    ax.set_yticks(range(0, capability.max_warps_per_sm + 1, capability.max_warps_per_sm // 4))
    percent = 100 / capability.max_warps_per_sm
    share = ax.secondary_yaxis("right", functions=(partial(np.multiply, percent), partial(np.multiply, 1 / percent)))
    share.set_ylabel("Occupancy (%)", **theme.text(10))
    share.tick_params(colors=theme.ink, labelsize=theme.text_points, labelfontfamily=theme.family)
    share.set_yticks(range(0, 101, 25))
    for spine in share.spines.values():
        spine.set_color(theme.faint)
    finish(ax, theme, "")
    return ax


def _there(cliff: Cliff) -> str:
    """Such as "81: 2 blocks"."""
    blocks = f"{cliff.blocks_per_sm} block{'' if cliff.blocks_per_sm == 1 else 's'}"
    return f"{count(cliff.value)}: {blocks if cliff.blocks_per_sm else 'does not launch'}"
