"""The pictures of the walk: what gemmsim draws, of the walk's example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.figure import Figure

from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.ladder import climb
from gemmsim.occupancy.cliffs import Block, sweeps
from gemmsim.patterns import Pattern
from gemmsim.plots import figures
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import ThreadTile
from gemmsim.scenes import WarpAccess, tile_orders, timeline_of

PROBLEM = Problem(2048, 2048, 2048)
GPU = device("h200")
KERNEL, SINGLE = kernel("double_buffer"), kernel("vectorized")
TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}
FIVE = ("naive", "shared", "register", "vectorized", "double_buffer")
"""The rungs that the walk climbs."""


def reads() -> Figure:
    """Reads of each rung at every level."""
    return figures.reads([rung for rung in climb(PROBLEM, GPU) if rung.kernel.name in FIVE])


def roofline() -> Figure:
    """The rungs under the roofs of every level."""
    rungs = climb(PROBLEM, GPU, read_records(shipped_records())[0])
    return figures.roofline([rung for rung in rungs if rung.kernel.name in FIVE])


def banks() -> Figure:
    """How the threads read the tile of B, as it lies and swizzled."""
    return figures.banks({"as it lies": _first_warp("load_b"), "swizzle 16": _first_warp("load_b", swizzle=16)})


def registers() -> Figure:
    """The order of a thread tile's FFMA that suggests itself, and the best."""
    return figures.registers(tile_orders(ThreadTile(8, 8), register_file(GPU.capability)))


def occupancy() -> Figure:
    """What a block takes, and how many find room."""
    found = predict(PROBLEM, KERNEL, KERNEL.tiling(**TILE), GPU).resources
    block = Block(int(found.threads), int(found.registers_per_thread), dynamic_shared_bytes=int(found.shared_bytes))
    title = f"{KERNEL.name} {KERNEL.describe(KERNEL.tiling(**TILE))} on {GPU.title}"
    return figures.occupancy(sweeps(GPU.capability, block), GPU.capability, title)


def timeline() -> Figure:
    """What warps do with one buffer and with two."""
    return figures.timeline([timeline_of(PROBLEM, each, each.tiling(**TILE), GPU) for each in (SINGLE, KERNEL)])


PICTURES: dict[str, Callable[[], Figure]] = {
    drawn.__name__: drawn for drawn in (reads, roofline, banks, registers, occupancy, timeline)
}  # fmt: skip


def _first_warp(name: str, **layout: int) -> WarpAccess:
    """The first warp instruction of one of the kernel's shared accesses."""
    tiling = KERNEL.tiling(**TILE, **layout)
    widths = KERNEL.widths(PROBLEM, tiling)
    (access,) = (each for each in shared_accesses(KERNEL, tiling, widths) if each.name == name)
    first, passes = (0,) * (access.elements.ndim - 1), access.passes(PROBLEM.element_bytes)
    touched = Pattern(
        access.elements[first][None] * PROBLEM.element_bytes,
        np.broadcast_to(access.active, access.elements.shape)[first][None],
        access.width * PROBLEM.element_bytes,
    )
    return WarpAccess(
        name, access.direction, touched, int(passes.wavefronts[first]), int(passes.ideal_wavefronts[first])
    )
