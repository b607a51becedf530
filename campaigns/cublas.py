"""Print the points that are held against cuBLAS: for each problem the tilings that a sweep on an H200 found fastest.

python -m campaigns.cublas > campaigns/cublas.jsonl

The sweep timed some 30 tilings of `async` for each problem; the tall problems are the wide ones turned round.
`benchmarks/cublas.py` runs them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

NAMES = ("block_m", "block_n", "warp_m", "warp_n", "thread_m", "thread_n")
TILES = {
    "32x32": (32, 32, 16, 16, 4, 2),
    "32x32 of 4x4": (32, 32, 16, 32, 4, 4),
    "32x64": (32, 64, 32, 16, 4, 4),
    "32x128": (32, 128, 32, 32, 8, 4),
    "64x64": (64, 64, 32, 32, 8, 4),
    "64x64 of 8x8": (64, 64, 32, 64, 8, 8),
    "64x128": (64, 128, 32, 64, 8, 8),
    "64x128 of 8x4": (64, 128, 32, 32, 8, 4),
    "128x64": (128, 64, 32, 64, 8, 8),
    "64x256": (64, 256, 32, 64, 8, 8),
    "64x256 of 16x8": (64, 256, 64, 64, 16, 8),
    "256x64": (256, 64, 32, 64, 8, 8),
    "256x64 of 16x8": (256, 64, 64, 64, 16, 8),
    "96x128": (96, 128, 48, 64, 12, 8),
    "96x192": (96, 192, 48, 96, 12, 12),
    "96x256": (96, 256, 48, 64, 12, 8),
    "128x128": (128, 128, 64, 64, 16, 8),
    "128x128 of 8x16": (128, 128, 64, 64, 8, 16),
    "128x192": (128, 192, 64, 48, 8, 12),
    "192x128": (192, 128, 48, 64, 12, 8),
    "128x256": (128, 256, 64, 64, 16, 8),
    "128x256 of 8x16": (128, 256, 64, 64, 8, 16),
    "256x128": (256, 128, 64, 64, 16, 8),
}
DEEP = {"block_k": 16, "stages": 3}
LONG = {"block_k": 8, "stages": 5}
"""Tiles twice as deep, or a longer ring: for problems so small that the first copies take a good part of the time."""

Candidates = tuple[tuple[str, dict[str, int]], ...]


def split(tile: str, *parts: int, **more: int) -> Candidates:
    """One tiling with k split into each of these numbers of parts."""
    return tuple((tile, {**more, "split_k": number}) for number in parts)


def plain(*tiles: str) -> Candidates:
    """Tilings as they are."""
    return tuple((tile, {}) for tile in tiles)


CANDIDATES: dict[tuple[int, int, int], Candidates] = {
    (256, 256, 256): (
        ("32x32", DEEP),
        ("32x32", LONG),
        *split("32x64", 4, **DEEP),
        *split("32x64", 4, **LONG),
        *split("64x64", 7, **DEEP),
        *split("64x64", 7, **LONG),
    ),
    (512, 512, 512): (
        ("32x64", DEEP),
        ("32x64", LONG),
        ("32x32 of 4x4", DEEP),
        ("32x32 of 4x4", LONG),
        *split("32x128", 4),
        *split("32x128", 4, **LONG),
    ),
    (1024, 1024, 1024): (
        ("64x128", LONG),
        ("64x128", DEEP),
        ("64x128", {}),
        *split("64x256", 2),
        ("32x128", DEEP),
        ("64x128 of 8x4", DEEP),
    ),
    (2048, 2048, 2048): plain("64x256 of 16x8", "128x256", "128x128", "128x256 of 8x16", "64x256", "192x128"),
    (4096, 4096, 4096): (
        ("128x256", {"group": 8}),
        ("128x256", {"group": 4}),
        *plain("128x256", "64x256 of 16x8", "192x128", "96x256"),
    ),
    (8192, 8192, 8192): (
        ("128x256", {"group": 8}),
        ("192x128", {"group": 8}),
        *plain("192x128", "96x256", "96x128", "64x256 of 16x8"),
    ),
    (1000, 1900, 2100): (
        *plain("64x256", "64x128", "64x64 of 8x8"),
        *split("128x128", 2),
        *split("256x128", 2),
        *split("128x256", 2),
    ),
    (4099, 4099, 4099): (*split("96x192", 3, 4), *split("96x128", 2, 4), *split("128x128", 3, 4)),
    (64, 8192, 8192): (*split("64x256", 4, 8), *split("64x256 of 16x8", 8, 16), *split("64x128", 4, 6)),
    (128, 8192, 8192): (
        *split("128x256", 4, 8),
        *split("128x128", 4),
        *split("128x192", 3),
        *split("128x256 of 8x16", 4),
        *split("64x256", 2),
    ),
    (8192, 64, 8192): (*split("256x64", 4, 8), *split("256x64 of 16x8", 8, 16), *split("128x64", 4, 6)),
    (8192, 128, 8192): (
        *split("256x128", 4, 8),
        *split("128x128", 4),
        *split("192x128", 3),
        *split("256x64 of 16x8", 4),
        *split("256x64", 2),
    ),
    (4096, 4096, 64): (*plain("64x128", "128x64", "32x128", "64x64 of 8x8", "64x64"), ("128x128", {"group": 8})),
    (256, 256, 65536): (
        *split("128x256", 66, 65, 64),
        *split("256x128", 66),
        *split("128x256 of 8x16", 66),
        *split("128x128 of 8x16", 66),
    ),
}


def points() -> Iterator[dict[str, object]]:
    """Every candidate of every problem."""
    for (m, n, k), candidates in CANDIDATES.items():
        for tile, more in candidates:
            extents = dict(zip(NAMES, TILES[tile], strict=True))
            tiling = extents | {"block_k": 8, "stages": 3, "pad_a": 4} | more
            yield {"m": m, "n": n, "k": k, "kernel": "async", "tiling": tiling}


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point))
