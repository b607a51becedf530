"""The roofline of every level of a device's memory, with kernels as they are predicted and as they were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from gemmsim.device import Device
from gemmsim.plots.style import (
    LIGHT,
    Theme,
    finish,
    handles_of,
    legend_below,
    legend_of_figure,
    plain_ticks,
    points_at,
    styles,
)
from gemmsim.roofline import attainable, bandwidths, ridge
from gemmsim.units import si

LEVELS = {"dram": "DRAM", "l2": "L2", "shared_memory": "shared memory", "registers": "registers"}
"""Levels of the memory that a roofline has a roof for, as pictures write them."""
DASHES = {"dram": ":", "l2": "--", "shared_memory": "-.", "registers": (0, (6, 1.5))}
KINDS = {False: "predicted", True: "measured"}


@dataclass(frozen=True)
class RooflinePoint:
    """One kernel on a roofline: what it does, FLOP/s, for each byte that it moves at one level."""

    kernel: str
    flop_per_byte: float
    flop_per_s: float
    measured: bool


def roofline(
    ax: Axes,
    device: Device,
    points: Iterable[RooflinePoint],
    level: str = "l2",
    theme: Theme = LIGHT,
    legend: bool = True,
) -> Axes:
    """Points under the roofs of a device, on axes that the device alone sets, so that pictures of one
    device compare. `level` says which bytes the intensities count: its roof is drawn strong. Predicted points are
    hollow, measured ones filled. A point outside the axes stands at their border, with an arrow and its numbers.
    """
    points = list(points)
    peak, rates = device.fp32_flop_per_s, bandwidths(device)
    ridges = {name: ridge(peak, rate) for name, rate in rates.items()}
    left, right = min(ridges.values()) / 8, max(ridges.values()) * 128
    bottom = attainable(left, peak, min(rates.values()))
    ax.set(xscale="log", yscale="log", xlim=(left, right), ylim=(bottom / 1e12, 2 * peak / 1e12))

    ends = np.array([left, right])
    for name, rate in rates.items():
        ax.plot(
            ends, ends * rate / 1e12, color=theme.ink, ls=DASHES[name], lw=2.2 if name == level else 1.2,
            alpha=1 if name == level else 0.35, label=f"{LEVELS[name]}, {si(rate, 'B/s')}",
        )  # fmt: skip
    ax.axhline(peak / 1e12, color=theme.ink, lw=1.8, label=f"FP32 peak, {si(peak, 'FLOP/s')}")
    ax.plot(
        list(ridges.values()), [peak / 1e12] * len(ridges), ls="", marker="d", ms=5, zorder=4,
        mfc=theme.background, mec=theme.ink, label="ridge points",
    )  # fmt: skip

    for name, style in styles((point.kernel for point in points), theme).items():
        for measured in KINDS:
            series = [point for point in points if point.kernel == name and point.measured == measured]
            if series:
                points_at(
                    ax, [(p.flop_per_byte, p.flop_per_s / 1e12) for p in series], theme, style=style,
                    label=f"{name}, {KINDS[measured]}", filled=measured,
                    where="{:.4g} FLOP/byte, {:.4g} TFLOP/s",
                )  # fmt: skip
    ax.set_xlabel(f"FLOP/byte of {LEVELS[level]}")
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
    """One roofline for each level on the same axes, in two columns or `stacked`, with one title and one legend."""
    drawn.suptitle(title, **theme.text(10.5))
    columns = 1 if stacked else 2
    axes = drawn.subplots(-(-len(points) // columns), columns, squeeze=False)
    for ax in axes.flat[len(points) :]:
        ax.remove()
    for ax, (level, of_level) in zip(axes.flat, points.items(), strict=False):
        roofline(ax, device, of_level, level, theme, legend=False)
        ax.set_title(_with_ridge(device, level), **theme.text(10))
    if not stacked:
        for ax in axes[:, 1:].flat:
            ax.set_ylabel("")
    engine = drawn.get_layout_engine()
    if engine is not None:
        engine.set(h_pad=0.1)  # type: ignore[call-arg]
    handles = handles_of(drawn)
    order = sorted(handles, key=lambda label: label.endswith(tuple(KINDS.values())))
    legend_of_figure(drawn, {label: handles[label] for label in order}, theme, 2 if stacked else 4)
    return drawn


def _with_ridge(device: Device, level: str) -> str:
    """The level and its ridge: a title, as the number would hide points beside the ridge itself."""
    ridge_at = ridge(device.fp32_flop_per_s, bandwidths(device)[level])
    return f"{LEVELS[level]}: ridge at {ridge_at:.3g} FLOP/byte"
