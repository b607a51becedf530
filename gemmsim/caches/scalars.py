"""The named scalars of the model of caches, as data."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.caches.reuse import Capacity
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid

FILE = Path(__file__).parents[1] / "data" / "caches.toml"


@cache
def scalars() -> dict[str, dict[str, Any]]:
    """The tables of data/caches.toml."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def l2_capacity(device: Device) -> Capacity:
    """What L2 holds, and of how many parts it is that each keep what their own multiprocessors read."""
    shares = scalars()["l2_capacity"]
    parts = int(scalars()["l2_parts"].get(device.capability.name, 1))
    return Capacity(shares["least"] * device.l2_bytes, shares["most"] * device.l2_bytes, parts)


def apart(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, resident: Any) -> Any:
    """How far the `resident` blocks of a multiprocessor fall out of step with those of others, from 0 to 1.

    The more tiles it has under way, and the more of its time L2 delivers them, which is never at the same pace to all:
    by the product of the tiles and of the bytes of them that it needs a cycle. Threads with one element do entirely.
    """
    values = scalars()["apart"]
    if not kernel.staged:
        return values["unstaged"]
    if not kernel.thread_tiled:
        return 1.0
    widths = kernel.widths(problem, tiling)
    # a quarter of a warp's multiply-add is done in a cycle, and one of its loads from shared memory
    loads = 4 * (1 / (tiling.thread_n * widths.shared_a) + 1 / (tiling.thread_m * widths.shared_b))
    per_cycle = device.capability.fp32_lanes_per_sm * (1 / tiling.block_m + 1 / tiling.block_n)
    busy = resident * tiling.stages * problem.element_bytes * per_cycle / np.maximum(1, loads)
    return np.clip((busy - values["least"]) / (values["most"] - values["least"]), 0, 1)


def lives_apart(kernel: Kernel, waves: Any) -> Any:
    """By how many of their lives blocks do: up to one where they wait at every k, else the more, the more waves."""
    return waves**0.5 if kernel.staged else 1.0


def copies_apart(apart: Any) -> Any:
    """Share of the lines that are in parts of L2 where they are not at home, of those that were read there: all that
    blocks in step use at the same time; those of blocks that are apart leave, and are fetched from home again."""
    return 1 - apart * (1 - scalars()["apart"]["copies"])


def in_step(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, resident: Any) -> Any:
    """Share of a launch in which blocks of several multiprocessors keep step well enough to read the same at once.

    Blocks alone on their multiprocessors do as long as they wait for what they load, and for so many cycles where loads
    are fetched ahead. Several on one get out of step soon: the more so the more blocks there have been, or to what is
    left to chance where they do not wait. A thread with one element has little else to do than wait.
    """
    values = scalars()["in_step"]
    blocks = np.maximum(1, grid(problem, tiling).blocks / device.sms)
    cycles = blocks * _cycles(problem, tiling, device)
    if not kernel.staged:
        return np.minimum(1, values["unstaged_cycles"] / cycles)
    if kernel.prefetches and (kernel.copies or not kernel.warp_tiled):
        alone, later = np.minimum(1, values["alone_cycles"] / cycles), values["chance"]
    else:
        often = 1 if kernel.thread_tiled else values["element"]
        alone, later = 1, np.minimum(values["beside"], often * blocks**-0.5)
    beside = np.clip(values["several_cycles"] / cycles, later, 1)
    several = np.clip(resident - 1, 0, 1)  # of the multiprocessors, those that have more than one
    return alone + several * (beside - alone)


def keeps_in_l1(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, resident: Any) -> Any:
    """Share of what two blocks of a multiprocessor both need that L1 still has for the second of them."""
    if not kernel.staged:
        return np.minimum(1, scalars()["in_step"]["l1_cycles"] / _cycles(problem, tiling, device))
    return 1 - apart(problem, kernel, tiling, device, resident)


def _cycles(problem: Problem, tiling: Tiling, device: Device) -> Any:
    """Cycles that a multiprocessor needs at least to multiply a block's tile."""
    work = 1.0 * tiling.block_m * tiling.block_n * problem.k / tiling.split_k
    return work / device.capability.fp32_lanes_per_sm
