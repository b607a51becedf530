"""Where the compiler, the disassembler, the profiler and the memory checker are on this machine."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gemmsim.errors import MachineError

COMPILE_EXTRA = "pip install 'gemmsim[compile]'"
LOCAL = Path("/usr/local")
NSIGHT = Path("/opt/nvidia/nsight-compute")
TOOLKIT_PARTS = ("bin/nvcc", "bin/ptxas", "nvvm/bin/cicc", "include/cuda_runtime.h")
"""What nvcc of the wheels needs beside itself; other packages bring some of these, never all."""


@dataclass(frozen=True)
class Tool:
    """A program and its version, such as "13.0.88"."""

    path: Path
    version: str

    def __str__(self) -> str:
        return f"{self.path.name} {self.version}"


def nvcc() -> Tool:
    """The CUDA compiler: of the extra `compile`, else on PATH, else of an installed toolkit.

    Raises MachineError when there is none.
    """
    return _tool("nvcc", "compile kernels", f"{COMPILE_EXTRA}, or install the CUDA toolkit")


def nvdisasm() -> Tool:
    """The disassembler, looked for as nvcc is. Raises MachineError when there is none."""
    return _tool("nvdisasm", "read machine code", f"{COMPILE_EXTRA}, or install the CUDA toolkit")


def ncu() -> Tool:
    """The profiler Nsight Compute, on PATH or where it installs itself. Raises MachineError when there is none."""
    return _tool("ncu", "read hardware counters", "install NVIDIA Nsight Compute, or the CUDA toolkit")


def compute_sanitizer() -> Tool:
    """The memory and race checker. Raises MachineError when there is none."""
    return _tool("compute-sanitizer", "check memory accesses", "install the CUDA toolkit")


def _tool(name: str, purpose: str, remedy: str) -> Tool:
    for path in _candidates(name):
        if path.is_file() and os.access(path, os.X_OK):
            return Tool(path, version_of(path))
    raise MachineError(f"{name}, needed to {purpose}, is not on this machine; to get it: {remedy}")


def _candidates(name: str) -> Iterator[Path]:
    """Where `name` may be, the best place first."""
    for toolkit in _wheel_toolkits():
        if name != "nvcc" or all((toolkit / part).is_file() for part in TOOLKIT_PARTS):
            yield toolkit / "bin" / name
    on_path = shutil.which(name)
    if on_path:
        yield Path(on_path)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if os.environ.get(variable):
            yield Path(os.environ[variable]) / "bin" / name
    for toolkit in (LOCAL / "cuda", *_newest_first(LOCAL, "cuda-*")):
        yield toolkit / "bin" / name
        yield toolkit / "compute-sanitizer" / name
    for profiler in (*_newest_first(NSIGHT, "*"), *_newest_first(LOCAL, "NVIDIA-Nsight-Compute*")):
        yield profiler / name


def _wheel_toolkits() -> Iterator[Path]:
    """Folders of the CUDA wheels, the newest CUDA first."""
    namespace = importlib.util.find_spec("nvidia")
    for folder in (namespace.submodule_search_locations or ()) if namespace else ():
        yield from _newest_first(Path(folder), "cu[0-9]*")


def _newest_first(folder: Path, pattern: str) -> list[Path]:
    def numbers(path: Path) -> list[int]:
        return [int(number) for number in re.findall(r"\d+", path.name)]

    return sorted(folder.glob(pattern), key=numbers, reverse=True)


@cache
def version_of(path: Path) -> str:
    """The number that `--version` says, else "unknown". Raises MachineError when the program does not run."""
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, errors="replace", timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MachineError(f"{path} does not run: {getattr(error, 'strerror', None) or error}") from None
    text = answer.stdout + answer.stderr
    found = re.search(r"\bV(\d+(?:\.\d+)+)", text) or re.search(r"[Vv]ersion (\d+(?:\.\d+)+)", text)
    if answer.returncode != 0:
        lines = text.strip().splitlines() or [f"exit status {answer.returncode}"]
        raise MachineError(f"{path} does not run: {lines[-1].strip()}")
    return found[1] if found else "unknown"
