"""What the fields of a kernel are varied over where nothing else is said, and what of that makes no sense."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem, ceil_div
from gemmsim.rules import Rule
from gemmsim.tiling import WARP_SIZE, grid

LARGEST_THREAD_TILE = 128
"""Elements of a thread, 16 x 8, beyond which accumulators and fragments no longer fit into 255 registers."""
MOST_SPLIT_BLOCKS = 4
"""Blocks for each multiprocessor that a launch with a split k dimension has at most."""

BLOCKS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
WARPS = (4, 8, 16, 24, 32, 48, 64, 96, 128)
THREADS = (1, 2, 4, 6, 8, 12, 16)
VALUES: Mapping[str, tuple[int, ...]] = {
    "block_m": BLOCKS,
    "block_n": BLOCKS,
    "block_k": (4, 8, 12, 16, 24, 32, 48, 64),
    "thread_m": THREADS,
    "thread_n": THREADS,
    "warp_m": WARPS,
    "warp_n": WARPS,
    "stages": (2, 3, 4, 6),
    "vector": (1, 2, 4),
    "pad_a": (0, 1, 2, 4, 8),
    "pad_b": (0, 1, 2, 4, 8),
    "swizzle": (0, 1, 2, 4, 8, 16),
    "split_k": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
    "group": (1, 2, 4, 8, 16),
    "traversal": (0,),
    "spread": (0,),
}
"""What each field is varied over: powers of two and one and a half times these, paddings up to the eight elements that
move a row by a quarter of the banks, every swizzle. Closed forms do not tell orders of the FFMA and copies of a thread
apart, so these stay the kernel's own."""
UNSTAGED_VALUES = {"block_m": (1, 2, 4, 8, 16, 32), "block_n": (8, 16, 32, 64, 128, 256)}
"""The same where a thread computes one element, so that a block is as many threads."""


def default_values(kernel: Kernel) -> dict[str, tuple[int, ...]]:
    """What each field of a kernel is varied over."""
    values = VALUES if kernel.thread_tiled else {**VALUES, **UNSTAGED_VALUES}
    return {name: values[name] for name in kernel.fields}


def sensible(kernel: Kernel, problem: Problem, device: Device) -> Iterator[Rule]:
    """What the default values leave out although the kernel takes it: it is slow for sure, or the same as another."""
    if kernel.thread_tiled:
        yield Rule(
            lambda of: of.thread_m * of.thread_n <= LARGEST_THREAD_TILE,
            f"thread tiles of up to {LARGEST_THREAD_TILE} elements",
            vars,
        )
    yield Rule(lambda of: of.threads >= WARP_SIZE, "blocks of a whole warp at least", vars)
    if "split_k" in kernel.fields:
        most = MOST_SPLIT_BLOCKS * device.sms
        yield Rule(
            lambda of: (of.split_k == 1) | (grid(problem, of).blocks <= most),
            f"k is split in launches of up to {most} blocks",
            vars,
        )
        yield Rule(
            lambda of: (of.split_k == 1) | (ceil_div(problem.k, of.block_k) >= of.split_k),
            "every part of k has a tile",
            vars,
        )
    if "group" in kernel.fields:
        yield Rule(
            lambda of: (of.group == 1) | (ceil_div(problem.m, of.block_m) >= of.group),
            "groups of as many rows as there are",
            vars,
        )
