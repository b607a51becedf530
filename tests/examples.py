"""One ordinary tiling of each kernel."""

from __future__ import annotations

from gemmsim.kernels import KERNELS, kernel
from gemmsim.tiling import Tiling

TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}


def example(name: str) -> Tiling:
    """The textbook tile where the kernel has thread tiles, 32 x 32 x 32 where it has none."""
    values = {"block_m": 32, "block_n": 32, "block_k": 32} if name == "shared" else TILE if KERNELS[name].staged else {}
    return kernel(name).tiling(**values)
