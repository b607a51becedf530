"""One point through `measure_point`, on a GPU that is made up: memory is an array, and the kernel is NumPy's."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from examples import example

from gemmsim.gpu import run
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.run import LEAST_SAMPLES, measure_point
from gemmsim.gpu.session import GpuFacts
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Point

POINT = Point(Problem(40, 24, 30), "naive", example("naive"))
FACTS = GpuFacts("NVIDIA H200", "9.0", 132, 4096, 10**9, "0000:00:04.0", "13.0", "2026.1")


class Allocation(int):
    def free(self) -> None:
        pass


class FakeGpu:
    """PyCUDA's driver as far as a measurement calls it. `spoil(launch, c)` may change what a launch leaves in C."""

    facts = FACTS
    stops_writing_after = 10**9

    class Error(Exception):
        pass

    class MemoryError(Error):
        pass

    function_attribute = SimpleNamespace(
        MAX_DYNAMIC_SHARED_SIZE_BYTES=0, NUM_REGS=1, SHARED_SIZE_BYTES=2, LOCAL_SIZE_BYTES=3
    )

    def __init__(self, spoil: Callable[[int, Any], None] = lambda launch, c: None, each_s: float = 0.1) -> None:
        self.driver = self
        self.memory = np.zeros(2**16, np.uint32)
        self.taken = 0
        self.launches = 0
        self.spoil, self.each_s = spoil, each_s

    def words(self, address: int, count: int) -> Any:
        return self.memory[int(address) // 4 : int(address) // 4 + count]

    def mem_get_info(self) -> tuple[int, int]:
        return 10**9, 10**9

    def mem_alloc(self, size: int) -> Allocation:
        self.taken += size
        assert self.taken <= self.memory.nbytes
        return Allocation(self.taken - size)

    def memset_d32(self, address: int, value: int, count: int) -> None:
        self.words(address, count)[:] = value

    memset_d32_async = memset_d32

    def memcpy_htod(self, address: int, matrix: Any) -> None:
        self.words(address, matrix.size)[:] = matrix.view(np.uint32).ravel()

    def memcpy_dtoh(self, words: Any, address: int) -> None:
        words[:] = self.words(address, words.size)

    def module_from_buffer(self, image: bytes) -> Any:
        return SimpleNamespace(get_function=lambda name: self)

    def get_attribute(self, attribute: int) -> int:
        return (0, 32, 0, 0)[attribute]

    def prepare(self, signature: str) -> None:
        assert signature == "PPPiii"

    def prepared_timed_call(self, grid, block, a, b, c, m, n, k, shared_size):
        def matrix(address: int, rows: int, columns: int) -> Any:
            return self.words(address, rows * columns).view(np.float32).reshape(rows, columns)

        self.launches += 1
        result = matrix(c, m, n)
        if self.launches > self.stops_writing_after:
            return lambda: self.each_s
        result[:] = matrix(a, m, k) @ matrix(b, k, n)
        self.spoil(self.launches, result)
        return lambda: self.each_s


@pytest.fixture(autouse=True)
def compiled(monkeypatch, tmp_path):
    """Nothing is compiled, and nobody is asked for clocks."""
    (tmp_path / "cubin").write_bytes(b"cubin")
    cubin = Cubin(tmp_path / "cubin", 32, 0, 0, 0, "nvcc 13.0")
    monkeypatch.setattr(run, "compile_kernel", lambda *_: cubin)
    monkeypatch.setattr(run, "blocks_per_sm", lambda *_: 8)
    monkeypatch.setattr(run, "under_load", lambda facts, keep_busy: {})
    monkeypatch.setattr(run, "WARM_UP_S", 0)


@pytest.fixture
def verified(monkeypatch):
    """Counts the verifications."""
    calls = []
    verify = run.verify
    monkeypatch.setattr(run, "verify", lambda *arguments: calls.append(1) or verify(*arguments))
    return calls


@pytest.mark.parametrize("flush", [True, False])
def test_a_kernel_that_is_right_is_verified_once_and_timed(verified, flush):
    record = measure_point(FakeGpu(), POINT, "h200", flush)
    assert record.failure is None
    assert record.samples_s == (0.1,) * LEAST_SAMPLES
    assert record.median_s == 0.1
    assert record.resources == {
        "registers_per_thread": 32, "shared_bytes": 0, "local_bytes": 0, "blocks_per_sm": 8
    }  # fmt: skip
    assert record.environment["l2_flushed"] is flush
    assert KERNELS["naive"].launch(POINT.problem, POINT.tiling).threads == 256
    assert len(verified) == 1  # the last C is the first to the bit


def test_a_kernel_that_is_wrong_from_the_first_launch_is_not_timed():
    def spoil(launch, c):
        c[3, 4] += 1

    gpu = FakeGpu(spoil)
    record = measure_point(gpu, POINT, "h200")
    assert str(record.failure).startswith("wrong result at row 3, column 4: ")
    assert gpu.launches == 1


def test_a_kernel_that_writes_nothing_while_it_is_timed_fails_the_point():
    gpu = FakeGpu()
    gpu.stops_writing_after = 1
    record = measure_point(gpu, POINT, "h200")
    assert "elements never written" in str(record.failure)


def test_a_race_that_shows_in_a_later_launch_fails_the_point():
    def spoil(launch, c):
        if launch > 1:
            c[3, 4] += 1

    record = measure_point(FakeGpu(spoil), POINT, "h200")
    assert str(record.failure).startswith("wrong result at row 3, column 4: ")
    assert record.samples_s == ()


def test_a_result_that_is_right_but_summed_in_another_order_is_verified_again(verified):
    def spoil(launch, c):
        if launch > 1:
            c[3, 4] = np.nextafter(c[3, 4], np.float32(np.inf))

    assert measure_point(FakeGpu(spoil), POINT, "h200").ok
    assert len(verified) == 2
