"""Print points that say what the order of the source is worth: traversals of the thread tile, and spread copies.

python -m campaigns.traversal > points.jsonl
python -m benchmarks.cublas --points points.jsonl --out campaigns/measured/traversal.jsonl --all        on a GPU
python -m campaigns.traversal --table                                                     what was measured, in a table

All of one problem are verified against float64 and timed in turn.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gemmsim.kernels import kernel
from gemmsim.record_files import read_records
from gemmsim.records import Point

MEASURED = Path(__file__).parent / "measured" / "traversal.jsonl"
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
VALUES = tuple(sorted({*TRAVERSALS, *SPREAD} - {0}))


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


def option_of(point: Point) -> str:
    """The option that is varied for its kernel."""
    return "spread" if point.kernel == "async" else "traversal"


def table(path: Path = MEASURED) -> list[str]:
    """Records in the lines of a table: of each kernel what every value of the option gains over 0."""
    records, _ = read_records(path)
    times_s: dict[Point, dict[int, float]] = {}
    for point, median_s in ((record.point, record.median_s) for record in records):
        option = option_of(point)
        base = replace(point, tiling=replace(point.tiling, **{option: 0}))
        times_s.setdefault(base, {})[getattr(point.tiling, option)] = median_s or math.nan
    lines = [
        "| kernel | size | its own order | option | " + " | ".join(map(str, VALUES)) + " |",
        "| --- | ---: | ---: | --- |" + " ---: |" * len(VALUES),
    ]
    for base, of_value_s in times_s.items():
        gains = [f"{of_value_s[0] / of_value_s[each] - 1:+.1%}" if each in of_value_s else "" for each in VALUES]
        name = f"{base.kernel} {kernel(base.kernel).describe(base.tiling)}"
        cells = [name, str(base.problem.m), f"{of_value_s[0] * 1e3:.3f} ms", option_of(base), *gains]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _extents(name: str, text: str) -> dict[str, int]:
    names = [each for each in NAMES if each in kernel(name).fields]
    return dict(zip(names, map(int, text.split("x")), strict=True))


def _point(size: int, name: str, extents: str, more: dict[str, int]) -> dict[str, object]:
    return {"m": size, "n": size, "k": size, "kernel": name, "tiling": _extents(name, extents) | more}


if __name__ == "__main__":
    print("\n".join(table() if "--table" in sys.argv else map(json.dumps, points())))
