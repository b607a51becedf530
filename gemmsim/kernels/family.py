"""The kernels there are: the rungs of the ladder, from the plainest up."""

from __future__ import annotations

from gemmsim.errors import unknown
from gemmsim.kernels.traits import Kernel

PADDING = (("pad_a", 0), ("pad_b", 0))
TRAVERSAL = ("traversal", 0)
BLOCK_128 = (("block_m", 128), ("block_n", 128), ("block_k", 8), ("thread_m", 8), ("thread_n", 8))

WARP_64 = (("warp_m", 64), ("warp_n", 64), ("thread_m", 16), ("thread_n", 8))

KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "naive",
            "one thread an element, straight from global memory",
            staged=False,
            thread_tiled=False,
            default_tile=(("block_m", 8), ("block_n", 32)),
        ),
        Kernel(
            "shared",
            "tiles of A and B in shared memory, one thread an element",
            thread_tiled=False,
            options=PADDING,
            default_tile=(("block_m", 32), ("block_n", 32), ("block_k", 32)),
        ),
        Kernel(
            "register",
            "a thread computes a small tile of C from fragments in registers",
            options=(*PADDING, TRAVERSAL),
            default_tile=BLOCK_128,
        ),
        Kernel(
            "vectorized",
            "register tiling with 128-bit accesses, A transposed in shared memory",
            transposed=True,
            options=(("vector", 4), *PADDING, ("swizzle", 0), TRAVERSAL),
            default_tile=(*BLOCK_128, ("pad_a", 4)),
        ),
        Kernel(
            "double_buffer",
            "the same with the next tile and the next fragment fetched meanwhile",
            transposed=True,
            prefetches=True,
            options=(("vector", 4), *PADDING, ("swizzle", 0), TRAVERSAL),
            default_tile=(*BLOCK_128, ("pad_a", 4)),
        ),
        Kernel(
            "warp_tiled",
            "the same with a tile for each warp, whose lanes read fragments without conflicts",
            transposed=True,
            prefetches=True,
            warp_tiled=True,
            options=(*PADDING, TRAVERSAL),
            default_tile=(*BLOCK_128[:3], *WARP_64, ("pad_a", 4)),
        ),
        Kernel(
            "async",
            "warp tiles fed by asynchronous copies past the registers; k can be split",
            transposed=True,
            prefetches=True,
            warp_tiled=True,
            copies=True,
            least_capability="8.0",
            options=(("stages", 3), *PADDING, ("split_k", 1), ("group", 1), TRAVERSAL, ("spread", 0)),
            default_tile=(("block_m", 128), ("block_n", 256), ("block_k", 8), *WARP_64, ("pad_a", 4), ("group", 8)),
        ),
    )
}


def kernel(name: str) -> Kernel:
    """The kernel of that name; InputError with the nearest names if there is none."""
    if name not in KERNELS:
        raise unknown("kernel", str(name), KERNELS)
    return KERNELS[name]
