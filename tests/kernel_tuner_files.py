"""Made-up search spaces, written as Kernel Tuner and the compact tables write them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.clblast.configurations import PARAMETERS, Configurations
from gemmsim.clblast.timing import predict_clblast
from gemmsim.device import device
from gemmsim.problem import Problem

DEFAULTS = {"KWG": 32, "KWI": 2, "STRM": 0, "STRN": 0}


def rows() -> list[dict[str, int]]:
    """Forty legal configurations in the tuner's order."""
    made: list[dict[str, int]] = []
    for mwg in (32, 64):
        for nwg in (32, 64):
            for mdimc in (8, 16):
                for sa, sb in ((0, 0), (0, 1), (1, 0), (1, 1), (1, 1)):
                    vector = 2 if len(made) % 5 == 4 else 1
                    changes = {
                        "MWG": mwg, "NWG": nwg, "MDIMC": mdimc, "NDIMC": 8, "MDIMA": 8, "NDIMB": 8, "VWM": vector,
                        "VWN": vector, "SA": sa, "SB": sb,
                    }  # fmt: skip
                    made.append({name: (DEFAULTS | changes)[name] for name in PARAMETERS})
    return made


def times_ms(on: str = "rtx-3090") -> list[float]:
    """1.1 times what the model predicts for them, in order; the model ranks them perfectly."""
    configurations = Configurations.of({name: np.array([row[name] for row in rows()]) for name in PARAMETERS})
    found = predict_clblast(Problem(4096, 4096, 4096), configurations, device(on))
    return [1100 * float(seconds) for seconds in found.time_s]


def table(times: list[Any] | None = None) -> str:
    """A table of them."""
    lines = [",".join((*PARAMETERS, "median_ms", "min_ms"))]
    for row, time in zip(rows(), times or times_ms(), strict=True):
        lines.append(",".join(map(str, (*row.values(), time, time))))
    return "\n".join(lines) + "\n"


def cache(times: list[Any] | None = None, closed: bool = True, **header: Any) -> str:
    """A cache file of them: entries end in commas while the tuner runs; closing brackets come at the end."""
    values = {name: sorted({row[name] for row in rows()}) for name in PARAMETERS}
    top = {
        "device_name": "NVIDIA GeForce RTX 3090", "kernel_name": "Xgemm", "problem_size": [4096, 4096],
        "tune_params_keys": list(PARAMETERS), "tune_params": values,
        "objective": "time", "cache": {},
    }  # fmt: skip
    text = json.dumps(top | header, indent="")[:-3]
    for row, time in zip(rows(), times or times_ms(), strict=True):
        runs = {} if isinstance(time, str) else {"times": [time, time, 3 * time]}
        entry = row | {"time": time} | runs | {"compile_time": 300.1, "GFLOP/s": 10.0}
        text += "\n" + json.dumps({",".join(map(str, row.values())): entry})[1:-1] + ","
    return text[:-1] + "}\n}" if closed else text


def write(path: Path, text: str) -> Path:
    """The file, compressed if its name says so."""
    data = text.encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
