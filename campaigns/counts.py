"""Print the points that hold the counts against the hardware's: every kernel, with and without bank conflicts.

python campaigns/counts.py > campaigns/counts.jsonl

Tilings have padding, vectors of every width and swizzles; sizes are ragged, tall, wide, flat in k, and smaller than a
tile. All are small, since a profiler replays each launch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

SIZES = (
    (250, 510, 130),  # ragged everywhere, leading dimensions even
    (257, 260, 300),  # leading dimensions multiples of 4, m odd
    (1999, 68, 44),  # tall
    (70, 2052, 36),  # wide
    (300, 515, 1),  # k = 1
    (131, 192, 5),  # k smaller than any tile
    (1, 640, 260),  # a row
    (509, 1, 77),  # a column
    (17, 19, 23),  # all of it inside one block
)
NAMES = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
PLAIN: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "naive": (("8x32", {}), ("32x8", {}), ("5x48", {})),
    "shared": (("32x32x32", {}), ("16x16x16", {"pad_a": 1, "pad_b": 1}), ("8x32x20", {"pad_a": 4})),
    "register": (
        ("64x64x8x4x4", {}),
        ("64x64x8x4x4", {"pad_a": 1, "pad_b": 2}),
        ("128x64x16x8x4", {"pad_a": 4}),
        ("48x96x12x3x6", {}),
    ),
}
TRANSPOSED = (
    ("64x64x8x4x4", {"vector": 4}),
    ("128x128x8x8x8", {"vector": 4, "pad_a": 4}),
    ("128x128x8x8x8", {"vector": 4, "swizzle": 16}),
    ("64x128x16x4x8", {"vector": 4, "swizzle": 8, "pad_b": 4}),
    ("64x64x16x8x4", {"vector": 2, "pad_a": 2, "pad_b": 2}),
    ("64x64x8x4x4", {"vector": 2, "swizzle": 8}),
    ("64x64x8x4x4", {"vector": 1, "pad_a": 1}),
    ("32x64x8x2x4", {"vector": 1, "swizzle": 4}),
)


def points() -> Iterator[dict[str, object]]:
    """Every tiling of every kernel at every size."""
    tilings = [(kernel, *each) for kernel, many in PLAIN.items() for each in many]
    tilings += [(kernel, *each) for kernel in ("vectorized", "double_buffer") for each in TRANSPOSED]
    for m, n, k in SIZES:
        for kernel, extents, more in tilings:
            tiling = dict(zip(NAMES, map(int, extents.split("x")), strict=False)) | more
            yield {"m": m, "n": n, "k": k, "kernel": kernel, "tiling": tiling}


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point))
