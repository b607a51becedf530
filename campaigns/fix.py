"""Print the points that show what clearing bank conflicts brings: the same tiling as it is, padded and swizzled.

python campaigns/fix.py > campaigns/fix.jsonl
"""

from __future__ import annotations

import json
from collections.abc import Iterator

SIZES = ((4096, 4096, 4096), (2048, 1920, 2304))
BLOCK = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}
LAYOUTS: tuple[dict[str, int], ...] = ({}, {"pad_a": 4}, {"swizzle": 16}, {"pad_a": 4, "swizzle": 16})


def points() -> Iterator[dict[str, object]]:
    """Both kernels that can be swizzled, in every layout."""
    for m, n, k in SIZES:
        for kernel in ("vectorized", "double_buffer"):
            for layout in LAYOUTS:
                yield {"m": m, "n": n, "k": k, "kernel": kernel, "tiling": BLOCK | layout}


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point))
