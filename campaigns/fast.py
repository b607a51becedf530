"""Print points that hold the counts of the kernels with warp tiles against the hardware's.

python campaigns/fast.py > campaigns/fast.jsonl

Every width of the rows of B and C, rings of several lengths, k split and not, padding, orders of blocks; sizes that are
ragged, tall, wide, flat in k, and smaller than a tile. All are small, since a profiler replays each launch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

SIZES = (
    (256, 256, 256),
    (250, 510, 130),  # leading dimensions even
    (257, 260, 300),  # multiples of 4, m odd
    (1000, 700, 77),  # rows of B and C multiples of 4, those of A odd
    (64, 513, 1000),  # the other way about, and deep
    (1999, 68, 44),  # tall
    (70, 2052, 36),  # wide
    (300, 515, 1),  # k = 1
    (131, 192, 5),  # k smaller than any tile
    (1, 640, 260),  # a row
    (509, 1, 77),  # a column
    (17, 19, 23),  # all of it inside one block
)
NAMES = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")
TILINGS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("warp_tiled", "64x64x8x32x32x8x4", {}),
    ("warp_tiled", "128x128x8x64x64x16x8", {"pad_a": 4}),
    ("warp_tiled", "64x128x8x32x64x8x8", {"pad_a": 4, "pad_b": 4}),
    ("warp_tiled", "32x32x12x16x16x4x2", {}),
    ("async", "64x64x8x32x32x8x4", {"stages": 3, "pad_a": 4}),
    ("async", "128x256x8x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 2}),
    ("async", "32x32x16x16x16x4x2", {"stages": 2}),
    ("async", "32x64x8x32x16x4x4", {"stages": 5, "split_k": 4}),
    ("async", "64x128x8x32x64x8x8", {"stages": 4, "split_k": 2, "pad_a": 4, "pad_b": 4}),
    ("async", "96x128x8x48x64x12x8", {"stages": 3, "split_k": 3, "pad_a": 8}),
    ("async", "32x32x12x16x16x4x2", {"stages": 3, "split_k": 7, "pad_a": 4, "group": 3}),
)


def points() -> Iterator[dict[str, object]]:
    """Every tiling at every size."""
    for m, n, k in SIZES:
        for kernel, extents, more in TILINGS:
            tiling = dict(zip(NAMES, map(int, extents.split("x")), strict=True)) | more
            yield {"m": m, "n": n, "k": k, "kernel": kernel, "tiling": tiling}


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point))
