"""Predictions and counts that a refactoring must leave as they are, to the last digit.

`make golden` writes them anew; what has changed shows in the diff, to be judged there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from gemmsim.device import device
from gemmsim.ladder import ladder
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.traffic import traffic

FILE = Path(__file__).parent / "data" / "golden.jsonl"
PROBLEMS = (Problem(256, 256, 256), Problem(4096, 4096, 4096), Problem(1001, 1903, 2107), Problem(33, 2050, 1))
DEVICES = ("h200", "a100-80gb-sxm", "rtx-3090", "v100-sxm2")


def lines() -> Iterator[str]:
    """One JSON object for each problem, kernel and device."""
    for problem in PROBLEMS:
        for kernel, tiling in ladder():
            counted = traffic(problem, kernel, tiling)
            start = {"problem": str(problem), "kernel": kernel.name, "tiling": kernel.describe(tiling)}
            yield json.dumps(start | counted.counters | counted.bytes)
            for name in DEVICES:
                if not kernel.runs_on(device(name).capability.name):
                    continue
                found = predict(problem, kernel, tiling, device(name))
                terms = {term: float(time_s) for term, time_s in found.terms.items()}
                yield json.dumps(
                    start | {"device": name, "waves": float(found.waves), "time": float(found.time_s), **terms}
                )


if __name__ == "__main__":
    FILE.write_text("".join(f"{line}\n" for line in lines()), encoding="utf-8")
