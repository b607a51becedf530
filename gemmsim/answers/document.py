"""A result as plain data: what it may hold, its text, and how each document of one launch begins."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.kernels import Kernel
from gemmsim.problem import Problem

Document = dict[str, Any]


def to_json(document: Document) -> str:
    """The document as text; numbers that JSON does not have become null."""
    return json.dumps(plain(document), allow_nan=False, indent=2)


def plain(value: Any) -> Any:
    """The same with Python's own types alone, and None for NaN and infinities."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value


def launch(problem: Problem, kernel: Kernel, tiling: Any) -> Document:
    """What is asked about: every document of one launch begins so."""
    return {"problem": asdict(problem), "kernel": kernel.name, "tiling": kernel.tiling_dict(tiling)}
