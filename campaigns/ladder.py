"""Print the points of the first campaign: every kernel, tilings from bad to good, sizes even and ragged.

python campaigns/ladder.py > campaigns/ladder.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator

SQUARES = (256, 512, 1024, 2048, 4096)
RAGGED = ((1001, 1903, 2107), (1004, 1900, 2100), (3000, 70, 513), (33, 2050, 1), (129, 130, 5))
"""None a multiple of any tile; the second keeps leading dimensions at multiples of 4, the others do not."""

BLOCKS: dict[str, tuple[dict[str, int], ...]] = {
    "naive": ({"block_m": 8, "block_n": 32}, {"block_m": 16, "block_n": 16}, {"block_m": 32, "block_n": 8}),
    "shared": (
        {"block_m": 32, "block_n": 32, "block_k": 32},
        {"block_m": 16, "block_n": 16, "block_k": 16},
        {"block_m": 32, "block_n": 32, "block_k": 8},
        {"block_m": 16, "block_n": 32, "block_k": 32, "pad_a": 1},
    ),
}
THREAD_TILES: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("64x64x8", "4x4", {}),
    ("128x128x8", "8x8", {}),
    ("128x128x8", "8x8", {"pad_a": 4}),
    ("64x64x16", "8x4", {"pad_a": 4}),
    ("32x64x16", "4x4", {}),
    ("128x64x8", "8x4", {"pad_a": 4, "pad_b": 4}),
)


def tilings(kernel: str) -> Iterator[dict[str, int]]:
    """The tilings of one kernel."""
    if kernel in BLOCKS:
        yield from BLOCKS[kernel]
        return
    for block, thread, padding in THREAD_TILES:
        names = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
        yield dict(zip(names, map(int, f"{block}x{thread}".split("x")), strict=True)) | padding


def points() -> Iterator[dict[str, object]]:
    """Every kernel and tiling at every size, small sizes first."""
    for m, n, k in (*((size,) * 3 for size in SQUARES[:3]), *RAGGED, *((size,) * 3 for size in SQUARES[3:])):
        for kernel in ("naive", "shared", "register", "vectorized", "double_buffer"):
            for tiling in tilings(kernel):
                yield {"m": m, "n": n, "k": k, "kernel": kernel, "tiling": tiling}


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point))
