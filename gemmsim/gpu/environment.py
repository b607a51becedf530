"""What a record says of where and when it was made: versions, and the GPU's clocks under load."""

from __future__ import annotations

import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import numpy as np

import gemmsim
from gemmsim.gpu.session import GpuFacts

QUERIES: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "driver": ("driver_version", str),
    "sm_clock_hz": ("clocks.sm", lambda text: float(text) * 1e6),
    "max_sm_clock_hz": ("clocks.max.sm", lambda text: float(text) * 1e6),
    "power_w": ("power.draw", float),
    "temperature_c": ("temperature.gpu", float),
}
"""Our names, those of nvidia-smi (which answers in MHz, W and degrees Celsius), and the reading."""
QUERY_TIMEOUT_S = 20


def software(facts: GpuFacts, compiler: str | None = None) -> dict[str, Any]:
    """The GPU's name, the versions of all that took part, and the time, UTC."""
    return {
        "gpu": facts.title,
        "cuda": facts.cuda,
        "compiler": compiler,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "pycuda": facts.pycuda,
        "gemmsim": gemmsim.__version__,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def under_load(facts: GpuFacts, keep_busy: Callable[[], object]) -> dict[str, Any]:
    """Driver, clocks, power and temperature while `keep_busy` is called again and again.

    What nvidia-smi does not say is None; so is everything where there is no nvidia-smi.
    """
    program = shutil.which("nvidia-smi")
    if program is None:
        return dict.fromkeys(QUERIES)
    names = ",".join(name for name, _ in QUERIES.values())
    command = [program, f"--id={facts.pci_bus_id}", f"--query-gpu={names}", "--format=csv,noheader,nounits"]
    try:
        query = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    except OSError:
        return dict.fromkeys(QUERIES)
    deadline = time.monotonic() + QUERY_TIMEOUT_S
    with query:
        try:
            while query.poll() is None and time.monotonic() < deadline:
                keep_busy()
        finally:
            query.kill()
        answer = query.stdout.read() if query.stdout else ""
    return parse_query(answer)


def parse_query(answer: str) -> dict[str, Any]:
    """nvidia-smi's line of values by our names; None for what is not a value, such as [N/A]."""
    lines = answer.strip().splitlines()
    texts = [text.strip() for text in lines[0].split(",")] if lines else []
    if len(texts) != len(QUERIES):
        return dict.fromkeys(QUERIES)
    return {name: _reading(read, text) for (name, (_, read)), text in zip(QUERIES.items(), texts, strict=True)}


def _reading(read: Callable[[str], Any], text: str) -> Any:
    if text.startswith("["):
        return None
    try:
        return read(text)
    except ValueError:
        return None
