"""The one answer of the driver that PyCUDA does not pass on: how many blocks fit on a multiprocessor."""

from __future__ import annotations

import ctypes
from typing import Any

from gemmsim.errors import MachineError

MAX_DYNAMIC_SHARED_SIZE_BYTES = 8
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of cuda.h."""


def blocks_per_sm(image: bytes, function_name: str, threads: int, shared_bytes: int) -> int:
    """Blocks of a kernel that are resident on one multiprocessor, by cuOccupancyMaxActiveBlocksPerMultiprocessor.

    `image` is a cubin; `shared_bytes` the dynamic shared memory of a block. A context must be current
    in this thread. Raises MachineError when the driver refuses.
    """
    try:
        library = ctypes.CDLL("nvcuda.dll" if hasattr(ctypes, "WinDLL") else "libcuda.so.1")
    except OSError as error:
        raise MachineError(f"the NVIDIA driver does not load: {error}") from None

    def call(name: str, *arguments: Any) -> None:
        status = getattr(library, name)(*arguments)
        if status != 0:
            raise MachineError(f"{name} failed: CUDA error {status}")

    module, function, blocks = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(image))
    try:
        call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(function_name.encode()))
        call("cuFuncSetAttribute", function, ctypes.c_int(MAX_DYNAMIC_SHARED_SIZE_BYTES), ctypes.c_int(shared_bytes))
        call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(blocks),
            function,
            ctypes.c_int(threads),
            ctypes.c_size_t(shared_bytes),
        )
    finally:
        call("cuModuleUnload", module)
    return blocks.value
