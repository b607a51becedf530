"""Made-up records for tests of pictures and pages. No GPU was near them; the package ships none of this."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gemmsim.device import Device, device
from gemmsim.kernels import KERNELS
from gemmsim.ladder import ladder
from gemmsim.problem import Problem
from gemmsim.records import Point, Record
from gemmsim.routes import predicted_time
from gemmsim.traffic import traffic

SIZES = ((256, 256, 256), (512, 512, 512), (1024, 1024, 1024), (2048, 2048, 2048), (4096, 4096, 4096), (3000, 70, 513))
SLOWER = {"naive": 1.1, "shared": 1.4, "register": 1.35, "vectorized": 1.3, "double_buffer": 1.2,
          "warp_tiled": 1.25, "async": 1.4}  # fmt: skip
"""Made up: the measured time over the predicted one."""


def timed(point: Point, device: Device, times: float, counted: bool = True, off_by: int = 0) -> Record:
    """A record that took `times` as long as predicted; its sectors differ from the model's by `off_by`."""
    median = float(predicted_time(point.problem, KERNELS[point.kernel], point.tiling, device).time_s) * times
    counters = dict(traffic(point.problem, KERNELS[point.kernel], point.tiling).counters)
    counters["global_load_sectors"] += off_by
    return Record(
        point,
        device.name,
        "ok",
        samples_s=(median * 0.99, median, median * 1.02),
        median_s=median,
        verification_error=1e-6,
        counters=counters if counted else None,
        environment={
            "gpu": device.title,
            "driver": "synthetic",
            "cuda": "13.0",
            "compiler": "nvcc 13.0.88",
            "time": "2001-02-03T04:05:06+00:00",
            "seed": 250,
            "l2_flushed": True,
            "sm_clock_hz": 1.98e9,
            "power_w": 400 + times,
            "temperature_c": 41.0,
        },
    )


def failed(point: Point, device: Device, reason: str) -> Record:
    """A record of a point without a time."""
    return Record(point, device.name, "failed", reason, environment={"driver": "synthetic"})


def campaign(on: Device | None = None) -> list[Record]:
    """Forty-odd records: every kernel at six sizes, two more tilings, some failures."""
    on = on or device("h200")
    random = np.random.default_rng(7)
    wide = {"block_m": 64, "block_n": 128, "block_k": 16, "thread_m": 4, "thread_n": 8}
    rungs = [(kernel, tiling) for kernel, tiling in ladder() if kernel.runs_on(on.capability.name)]
    tilings = [*rungs, *((KERNELS[name], KERNELS[name].tiling(**wide)) for name in ("register", "double_buffer"))]
    records = [
        timed(
            Point(Problem(*size), kernel.name, tiling),
            on,
            SLOWER[kernel.name] * float(random.uniform(0.97, 1.15)) * (1 + 2e6 / size[0] ** 3),
            counted=size not in ((2048, 2048, 2048), (4096, 4096, 4096)),
            off_by=12 if (kernel.name, size) == ("naive", (3000, 70, 513)) else 0,
        )
        for size in SIZES
        for kernel, tiling in tilings
    ]
    large = KERNELS["shared"].tiling(block_m=32, block_n=32, block_k=512)
    failures = [
        failed(Point(Problem(512, 512, 512), "shared", large), on, "131072 bytes: launch <refused> & lost"),
        failed(Point(Problem(8192, 8192, 8192), "naive", ladder()[0][1]), on, "out of memory"),
    ]
    return records + failures


def write(path: Path, records: Iterable[Record]) -> Path:
    """The records as a file."""
    path.write_text("".join(json.dumps(record.to_dict()) + "\n" for record in records), encoding="utf-8")
    return path
