"""The named scalars of the model of caches, as data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.caches.reuse import Capacity
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling
from gemmsim.toml_files import read_toml

BURST_BYTES = 64
"""What memory delivers at least, two sectors."""
FILE = Path(__file__).parents[1] / "data" / "caches.toml"


@cache
def scalars() -> dict[str, dict[str, Any]]:
    """The tables of data/caches.toml."""
    return read_toml(FILE)


def l2_capacity(device: Device) -> Capacity:
    """What L2 holds, and of how many parts it is that each keep what their own multiprocessors read."""
    shares = scalars()["l2_capacity"]
    parts = int(scalars()["l2_parts"].get(device.capability.name, 1))
    return Capacity(shares["least"] * device.l2_bytes, shares["most"] * device.l2_bytes, parts)


def l2_copies() -> tuple[float, float]:
    """Of the lines that parts of L2 keep for others, those that are there: when B comes round again, and when a
    convoy that lags comes to them."""
    values = scalars()["l2_copies"]
    return values["again"], values["apart"]


def apart(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, resident: Any) -> Any:
    """How far the `resident` blocks of a multiprocessor fall out of step with those of others, from 0 to 1.

    The more tiles it has under way, and the more of its time L2 delivers them, which is never at the same pace to all:
    by the product of the tiles and of the bytes of them that it needs a cycle. Copies have one more under way than
    their ring has stages: nobody waits for the latest. Threads that wait for a tile and then store it transposed begin
    earlier. Threads with one element do entirely, unless they read every k, and whole bursts of it.
    """
    values = scalars()["apart"]
    if not kernel.staged:
        return np.where(problem.element_bytes * tiling.block_n < BURST_BYTES, 1.0, values["unstaged"])[()]
    if not kernel.thread_tiled:
        return 1.0
    per_cycle = device.capability.fp32_lanes_per_sm * (1 / tiling.block_m + 1 / tiling.block_n)
    busy = resident * (tiling.stages + kernel.copies) * problem.element_bytes * per_cycle
    least, most = values["transposing" if _waits_and_transposes(kernel) else "busy"]
    return np.clip((busy - least) / (most - least), 0, 1)


def lag(problem: Problem, kernel: Kernel) -> Any:
    """Share of what falls apart that lags by enough to matter in L2: who waits for tiles does so in a long k alone."""
    return np.minimum(1, problem.k / scalars()["apart"]["transposing_k"]) if _waits_and_transposes(kernel) else 1.0


def _waits_and_transposes(kernel: Kernel) -> bool:
    return kernel.transposed and not kernel.prefetches


def in_step(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, resident: Any, waves: Any) -> Any:
    """Share of a launch in which blocks of several multiprocessors keep step well enough to read the same at once.

    The less the more blocks a multiprocessor holds, and the more waves of them there are. The square of it where loads
    are fetched ahead, except by `warp_tiled`, which comes to wait for them again. Where a thread has one element, and
    little else to do than wait, the fourth root of both. Blocks that read every k keep step for a number of cycles.
    """
    values = scalars()["in_step"]
    if not kernel.staged:
        return np.minimum(1, values["unstaged_cycles"] / (_cycles(problem, tiling, device) * resident * waves))
    if not kernel.thread_tiled:
        return (resident * waves) ** -0.25
    share = resident ** -values["blocks"] * waves ** -values["waves"]
    return share**2 if kernel.prefetches and (kernel.copies or not kernel.warp_tiled) else share


def keeps_in_l1(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, apart: Any) -> Any:
    """Share of what two blocks of a multiprocessor both need that L1 still has for the second of them: what they read
    while they are not `apart`; where they read every k, what they read in the first cycles."""
    if kernel.staged:
        return 1 - apart
    return np.minimum(1, scalars()["in_step"]["unstaged_cycles"] / _cycles(problem, tiling, device))


def _cycles(problem: Problem, tiling: Tiling, device: Device) -> Any:
    """Cycles that a multiprocessor needs at least to multiply a block's tile."""
    return 1.0 * tiling.block_m * tiling.block_n * problem.k / tiling.split_k / device.capability.fp32_lanes_per_sm


def neighbours(kernel: Kernel, tiling: Tiling, device: Device) -> Any:
    """Share of the later blocks that begin together with a neighbour on their multiprocessor: those of a thread for
    each of its lanes, or of fewer, take turns, so some end together."""
    if not kernel.thread_tiled:
        return 0.0
    return scalars()["in_step"]["neighbours"] * (tiling.threads <= device.capability.fp32_lanes_per_sm)
