"""The kernels in the order of the ladder, each with one good tiling, for pictures and for defaults."""

from __future__ import annotations

from gemmsim.errors import unknown
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.tiling import Tiling

_BLOCK_128 = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}

DEFAULTS = {
    "naive": {"block_m": 8, "block_n": 32},
    "shared": {"block_m": 32, "block_n": 32, "block_k": 32},
    "register": _BLOCK_128,
    "vectorized": {**_BLOCK_128, "pad_a": 4},
    "double_buffer": {**_BLOCK_128, "pad_a": 4},
}
"""Fields of the tiling of each kernel; the kernel's own defaults hold for the rest."""


def default_tiling(kernel: Kernel) -> Tiling:
    """A good tiling of the kernel for large problems on any GPU.

    Raises InputError for a kernel that has no entry.
    """
    if kernel.name not in DEFAULTS:
        raise unknown("kernel with a default tiling", kernel.name, DEFAULTS)
    return kernel.tiling(**DEFAULTS[kernel.name])


def ladder() -> tuple[tuple[Kernel, Tiling], ...]:
    """Every rung, from the simplest kernel to the fastest, with its default tiling."""
    return tuple((KERNELS[name], default_tiling(KERNELS[name])) for name in DEFAULTS)
