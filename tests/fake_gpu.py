"""A GPU that is made up, as far as products are run and judged on it: memory is an array, programs are NumPy's."""

from __future__ import annotations

from collections.abc import Callable, Container
from types import SimpleNamespace
from typing import Any

import numpy as np

from gemmsim.gpu.session import GpuFacts

POISON = 0xFFFFFFFF
NONE = 2**64 - 1


class Error(Exception):
    """The driver's."""


class FakeGpu:
    """PyCUDA's driver with the kernels `gemm`, `multiply` and `judge`.

    `spoil(launch, words)` may change the 32-bit words that a launch of `gemm` leaves in C; launches are counted from 1,
    those in `idle` do nothing, and `blocks` has how many blocks each had.
    """

    facts = GpuFacts("NVIDIA H200", "9.0", 132, 4096, 10**9, "0000:00:04.0", "13.0", "2026.1")
    function_attribute = SimpleNamespace(
        MAX_DYNAMIC_SHARED_SIZE_BYTES=0, NUM_REGS=1, SHARED_SIZE_BYTES=2, LOCAL_SIZE_BYTES=3
    )
    Error, MemoryError = Error, Error

    def __init__(
        self,
        spoil: Callable[[int, Any], None] = lambda launch, words: None,
        idle: Container[int] = (),
    ) -> None:
        self.driver = self
        self.memory = np.zeros(2**18, np.uint32)
        self.taken = self.live = 0
        self.launches, self.blocks = 0, list[int]()
        self.spoil, self.idle = spoil, idle

    def words(self, address: int, count: int) -> Any:
        """So many words of memory."""
        assert address % 4 == 0
        assert address >= 0
        assert address + 4 * count <= self.memory.nbytes
        return self.memory[int(address) // 4 : int(address) // 4 + count]

    def floats(self, address: int, *shape: int, dtype: Any = np.float32) -> Any:
        """A matrix in memory."""
        count = int(np.prod(shape)) * np.dtype(dtype).itemsize // 4
        return self.words(address, count).view(dtype).reshape(shape)

    def mem_alloc(self, size: int) -> Any:
        self.taken += -(-size // 256) * 256
        self.live += 1

        class Allocation(int):
            def free(_) -> None:  # noqa: N805
                self.live -= 1

        return Allocation(self.taken - -(-size // 256) * 256)

    def memset_d32(self, address: int, value: int, count: int) -> None:
        self.words(address, count)[:] = value

    memset_d32_async = memset_d32

    def memcpy_htod(self, address: int, array: Any) -> None:
        self.words(address, array.nbytes // 4)[:] = np.ascontiguousarray(array).view(np.uint32).ravel()

    def memcpy_dtoh(self, array: Any, address: int) -> None:
        array.reshape(-1).view(np.uint32)[:] = self.words(address, array.nbytes // 4)

    def module_from_buffer(self, image: bytes) -> Any:
        return SimpleNamespace(get_function=lambda name: Function(self, name))

    def Event(self) -> Any:  # noqa: N802
        return SimpleNamespace(record=lambda: None, synchronize=lambda: None, time_till=lambda end: 2.0)

    def product(self, a: int, b: int, m: int, n: int, k: int) -> Any:
        """A B of what lies in memory, in float64."""
        return self.floats(a, m, k).astype(np.float64) @ self.floats(b, k, n).astype(np.float64)

    def gemm(self, a: int, b: int, c: int, m: int, n: int, k: int) -> None:
        self.floats(c, m, n)[:] = self.product(a, b, m, n, k)

    def multiply(self, a: int, b: int, c: int, m: int, n: int, k: int) -> None:
        self.floats(c, m, n, dtype=np.float64)[:] = self.product(a, b, m, n, k)

    def judge(
        self, c: int, expected: int, norms_a: int, norms_b: int, tolerance: float, m: int, n: int, findings: int
    ) -> None:
        got, wanted = self.floats(c, m, n), self.floats(expected, m, n, dtype=np.float64)
        scale = np.outer(self.floats(norms_a, m, dtype=np.float64), self.floats(norms_b, n, dtype=np.float64))
        with np.errstate(all="ignore"):
            off = np.abs(got - wanted)
            right = off <= tolerance * scale
            worst = np.max(np.where(right & (scale > 0), off / scale, 0))
        unwritten = self.words(c, m * n) == POISON
        found = self.floats(findings, 4, dtype=np.uint64)
        found[0] = max(found[0], np.float64(worst).view(np.uint64))
        found[1] = min(int(found[1]), NONE if right.all() else int(np.argmin(right)))
        found[2] += np.count_nonzero(unwritten)
        found[3] = min(int(found[3]), int(np.argmax(unwritten)) if unwritten.any() else NONE)


class Function:
    """A kernel of the made-up GPU."""

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self.gpu, self.name = gpu, name
        self.signature = ""

    def prepare(self, signature: str) -> None:
        self.signature = signature

    def get_attribute(self, attribute: int) -> int:
        return (0, 32, 0, 0)[attribute]

    def set_attribute(self, attribute: int, value: int) -> None:
        pass

    def prepared_call(self, grid: tuple[int, int], block: tuple[int, int, int], *arguments: Any) -> None:
        assert len(self.signature) == len(arguments)
        assert all(extent >= 1 for extent in (*grid, *block))
        getattr(self.gpu, self.name)(*arguments)

    def prepared_timed_call(self, grid: Any, block: Any, *arguments: Any, shared_size: int) -> Callable[[], float]:
        self.gpu.launches += 1
        self.gpu.blocks.append(grid[0])
        if self.gpu.launches not in self.gpu.idle:
            self.prepared_call(grid, block, *arguments)
        c, m, n = arguments[2:5]
        self.gpu.spoil(self.gpu.launches, self.gpu.words(c, m * n))
        return lambda: 1e-3
