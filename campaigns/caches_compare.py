"""Predicted beside counted traffic below L1, point by point and in sum.

python -m campaigns.caches_compare [RECORDS.jsonl] [--held-out] [--points]

Without --held-out the points that are held out stay out of it, so that the model can be worked on; with it there is a
row for them as well. Errors are predicted over counted, minus 1; larger and smaller are by the bytes of A, B and C.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from campaigns.caches import held_out
from gemmsim.caches.traffic import cache_traffic
from gemmsim.device import Device, device
from gemmsim.kernels import kernel
from gemmsim.predict import resident_blocks
from gemmsim.records import Point
from gemmsim.register_table import resources

SHIPPED = Path(__file__).resolve().parents[1] / "gemmsim" / "data" / "records" / "caches_h200.jsonl"
COUNTERS = ("l1_fill_sectors", "l2_read_sectors", "l2_write_sectors", "dram_read_bytes")


@dataclass(frozen=True)
class Compared:
    """One point: what the model says and what was counted, by the counters' names."""

    point: Point
    larger: bool
    held_out: bool
    predicted: dict[str, int]
    counted: dict[str, int]

    def error(self, name: str) -> float:
        """Predicted over counted, minus 1."""
        return self.predicted[name] / self.counted[name] - 1


def compared(path: Path) -> Iterator[Compared]:
    """Every line of a file of counts beside the model."""
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        point, on = Point.from_dict(entry["point"]), device(entry["device"])
        predicted = predict(point, on, entry.get("blocks_per_sm"))
        counted = entry["counters"]
        yield Compared(point, point.problem.compulsory_bytes > on.l2_bytes, held_out(point.key), predicted, counted)


def predict(point: Point, on: Device, blocks_per_sm: int | None) -> dict[str, int]:
    """The model's counts of one point, for as many blocks as fit if it is not said how many."""
    ladder = kernel(point.kernel)
    if blocks_per_sm is None:
        taken = resources(ladder, point.problem, point.tiling, on.capability, None)
        blocks_per_sm = int(resident_blocks(taken, on).blocks_per_sm)
    counters = cache_traffic(point.problem, ladder, point.tiling, on, blocks_per_sm).counters
    return {name: counters[name] for name in COUNTERS}


def table(points: list[Compared]) -> Iterator[str]:
    """Mean absolute errors, in percent, by size, kernel and whether held out."""
    yield f"{'':34s}{'points':>7s}" + "".join(f"{name:>18s}" for name in COUNTERS)
    groups = {
        f"{size}, {part}": [p for p in points if p.larger == larger and p.held_out == held]
        for size, larger in (("larger than L2", True), ("smaller", False))
        for part, held in (("open", False), ("held out", True))
    }
    kernels = dict.fromkeys(p.point.kernel for p in points)
    groups |= {f"  {name}": [p for p in points if p.point.kernel == name] for name in kernels}
    for title, group in groups.items():
        if group:
            errors = (100 * np.mean([abs(p.error(name)) for p in group]) for name in COUNTERS)
            yield f"{title:34s}{len(group):7d}" + "".join(f"{error:17.1f}%" for error in errors)


def main(arguments: list[str]) -> None:
    """Print it."""
    files = [Path(each) for each in arguments if not each.startswith("--")] or [SHIPPED]
    points = [p for p in compared(files[0]) if "--held-out" in arguments or not p.held_out]
    if "--points" in arguments:
        for p in sorted(points, key=lambda p: (p.larger, p.point.kernel)):
            print("  ".join(f"{100 * p.error(name):+7.1f}%" for name in COUNTERS), " ", p.point)
    print("\n".join(table(points)))


if __name__ == "__main__":
    main(sys.argv[1:])
