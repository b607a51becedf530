"""Print points that say what the order of the source is worth: traversals of the thread tile, and spread copies.

python -m campaigns.traversal > points.jsonl
python -m benchmarks.cublas --points points.jsonl --out campaigns/measured/traversal.jsonl --all        on a GPU

All of one problem are verified against float64 and timed in turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from gemmsim.kernels import kernel

NAMES = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")
SIZE = 4096
OLDER: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("vectorized", "128x128x8x8x8", {}),
    ("vectorized", "128x64x8x8x4", {"pad_a": 4, "pad_b": 4}),
    ("double_buffer", "128x128x8x8x8", {"pad_a": 4}),
    ("double_buffer", "64x64x16x8x4", {"pad_a": 4}),
    ("warp_tiled", "128x128x8x64x64x16x8", {"pad_a": 4}),
    ("warp_tiled", "128x128x8x64x32x8x8", {"pad_a": 4}),
)
TRAVERSALS = (0, 1, 2, 4, 8, 16)
FAST = (
    ("async", "128x256x16x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 8, "traversal": 1}),
    ("async", "96x128x16x48x64x12x8", {"stages": 3, "pad_a": 4, "group": 8, "traversal": 4}),
    ("async", "64x256x16x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 8, "traversal": 1}),
)
SPREAD, SIZES = (0, 1, 2, 3, 4, 8), (4096, 8192)


def points() -> Iterator[dict[str, object]]:
    """Every traversal of the older kernels, and every spread of the fast ones."""
    for name, extents, more in OLDER:
        for traversal in TRAVERSALS:
            if traversal <= _extents(name, extents)["thread_m"]:
                yield _point(SIZE, name, extents, {**more, "traversal": traversal})
    for size in SIZES:
        for name, extents, more in FAST:
            for spread in SPREAD:
                yield _point(size, name, extents, {**more, "spread": spread})


def _extents(name: str, text: str) -> dict[str, int]:
    names = [each for each in NAMES if each in kernel(name).fields]
    return dict(zip(names, map(int, text.split("x")), strict=True))


def _point(size: int, name: str, extents: str, more: dict[str, int]) -> dict[str, object]:
    return {"m": size, "n": size, "k": size, "kernel": name, "tiling": _extents(name, extents) | more}


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point))
