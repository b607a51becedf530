"""NVIDIA's own matrix product in FP32, from cuBLAS: what the kernels are held against.

FP32 throughout: the handle's math mode is the default one, which for SGEMM uses neither TF32 nor sums of BF16
products, and what could switch these on from outside is switched off (`TRUE_FP32`) before the library is loaded. The
default rather than CUBLAS_PEDANTIC_MATH, because that may only take away algorithms, and the opponent is to be strong.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gemmsim.errors import MachineError
from gemmsim.gpu.session import Gpu
from gemmsim.problem import Problem

REMEDY = "pip install 'gemmsim[cublas]', or install the CUDA toolkit"
NAMES = ("libcublas.so.13", "libcublas.so.12")
"""The libraries as the loader knows them, the newest first."""
TRUE_FP32 = {"NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_EMULATE_SINGLE_PRECISION": "0"}
"""Variables that cuBLAS reads (cuBLAS documentation, "Floating Point Emulation"; CUDA, NVIDIA_TF32_OVERRIDE)."""
DEFAULT_MATH = 0
NOT_TRANSPOSED = 0
STATUS = {
    1: "not initialized (is the driver old for this cuBLAS?)",
    3: "no memory",
    7: "an invalid value",
    8: "this GPU is not supported",
    13: "the launch failed",
    14: "an internal error",
    15: "not supported",
}
"""What cublasStatus_t says, of cublas_api.h."""


def candidates() -> Iterator[str]:
    """Where the library may be: in CUDA's wheels, where the loader looks, in a toolkit."""
    namespace = importlib.util.find_spec("nvidia")
    folders = [Path(entry) for entry in (namespace.submodule_search_locations or ())] if namespace else []
    for name in NAMES:
        for folder in folders:
            yield from (str(path) for path in sorted(folder.glob(f"c*/lib/{name}"), reverse=True))
        yield name
        for variable in ("CUDA_HOME", "CUDA_PATH"):
            if os.environ.get(variable):
                yield str(Path(os.environ[variable]) / "lib64" / name)
        yield from (str(path) for path in sorted(Path("/usr/local").glob(f"cuda*/lib64/{name}"), reverse=True))


def loaded() -> Any:
    """The library. Raises MachineError, which says how to get it, where there is none that loads."""
    os.environ.update(TRUE_FP32)
    refusal = ""
    for path in candidates():
        if os.sep in path and not Path(path).is_file():
            continue
        try:
            if os.sep in path:  # the part that it depends on, of the same version, which the loader may not find
                ctypes.CDLL(path.replace("libcublas.", "libcublasLt."), mode=ctypes.RTLD_GLOBAL)
            return ctypes.CDLL(path)
        except OSError as error:
            refusal = refusal or (f" ({error})" if os.sep in path else "")
    raise MachineError(f"cuBLAS, to compare with, is not here or does not load{refusal}; to get it: {REMEDY}")


class Cublas:
    """`with Cublas(gpu) as cublas:` makes a handle in the context of `gpu`, which is current.

    Raises MachineError where there is no library, or it cannot be used.
    """

    def __init__(self, gpu: Gpu, library: Any = None) -> None:
        self._driver = gpu.driver
        self._library = library if library is not None else loaded()
        self._handle = ctypes.c_void_p()
        self._one, self._zero = ctypes.c_float(1), ctypes.c_float(0)

    def __enter__(self) -> Cublas:
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetMathMode", self._handle, ctypes.c_int(DEFAULT_MATH))
        return self

    def __exit__(self, *_: object) -> None:
        self._library.cublasDestroy_v2(self._handle)

    @property
    def version(self) -> str:
        """The version of the library, such as "13.0.2"."""
        parts = [ctypes.c_int() for _ in range(3)]
        for number, part in enumerate(parts):
            self._call("cublasGetProperty", ctypes.c_int(number), ctypes.byref(part))
        return ".".join(str(part.value) for part in parts)

    def multiply(self, problem: Problem, a: int, b: int, c: int) -> None:
        """Start C = A B for row-major matrices at these addresses.

        The library knows columns first, and so sees the transposed matrices: it is asked for C' = B' A'.
        """
        m, n, k = (ctypes.c_int(size) for size in (problem.m, problem.n, problem.k))
        matrices = (ctypes.c_void_p(b), n, ctypes.c_void_p(a), k)
        one, zero, plain = ctypes.byref(self._one), ctypes.byref(self._zero), ctypes.c_int(NOT_TRANSPOSED)
        self._call(
            "cublasSgemm_v2", self._handle, plain, plain, n, m, k, one, *matrices, zero, ctypes.c_void_p(c), n
        )  # fmt: skip

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise MachineError(f"{name} failed: {STATUS.get(status, f'status {status}')}")
