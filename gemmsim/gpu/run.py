"""Runs one point on the GPU: loads the kernel, verifies its result, times it, and says where and how."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.device import capability
from gemmsim.errors import GemmsimError, MachineError, one_line
from gemmsim.gpu.compile import Cubin, compile_kernel
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.libcuda import blocks_per_sm
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.verify import GUARD_BYTES, POISON, Matrix, fresh_seed, guarded, random_operands, verify
from gemmsim.kernels import Launch
from gemmsim.kernels import kernel as kernel_named
from gemmsim.records import Failure, Point, Record, Resources

WARM_UP_LAUNCHES, WARM_UP_S = 3, 0.05
LEAST_SAMPLES, MOST_SAMPLES, SAMPLING_S = 20, 200, 0.25
SLOW_LEAST_SAMPLES, SLOW_S = 5, 10.0
"""Kernels so slow that 20 samples take longer than SLOW_S get fewer."""
FLUSH_FACTOR = 2
"""The flushing buffer's size in L2 caches."""

Launcher = Callable[[], Callable[[], float]]
"""Starts the kernel between two events; what it returns waits for the end and gives the seconds."""


class PointError(Exception):
    """A point that has no result, and why; the campaign goes on."""


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel in the GPU's memory, ready for one launch configuration."""

    function: Any
    launch: Launch
    resources: Resources


def measure_point(gpu: Gpu, point: Point, device_name: str, flush: bool = True) -> Record:
    """The record of one point, without counters: verified against float64, timed, and verified once more.

    With `flush`, zeros are written over twice as many bytes as L2 has before every sample: L2 then holds
    nothing of the operands, but up to its whole size of lines that are not in memory yet. A kernel that
    brings lines in drives as many of these out, so a sample includes writing back at most what it brings in,
    and at most one L2. On an H200 that costs little: with a kernel that reads as many other bytes after the
    zeros, medians at 256 to 4096 cubed were within 1%. Without `flush` the same kernel runs before each,
    so that L2 holds what it leaves.

    The second verification is of what the last sample left, because a race need not show in the first launch.
    Whatever goes wrong becomes a failed record of one line; when it breaks the context (`gpu.alive()` is
    False then), a new Gpu is needed for the next point.
    """
    environment = {**software(gpu.facts), "l2_flushed": flush}
    try:
        with point_failures(gpu, point):
            return _measured(gpu, point, device_name, flush, environment)
    except PointError as failure:
        return Record.failed(point, device_name, Failure(str(failure)), environment)


def launch_once(gpu: Gpu, point: Point) -> None:
    """Run the kernel of a point exactly once over random operands, for a profiler or checker that watches.

    Raises PointError when it cannot run or its launch fails.
    """
    with point_failures(gpu, point):
        cubin, launch = _compiled(gpu, point)
        loaded = load(gpu, cubin, launch)
        with Buffers(gpu, point, *random_operands(point.problem, fresh_seed())) as buffers:
            buffers.poison_c()
            buffers.launcher(loaded)()()


@contextmanager
def point_failures(gpu: Gpu, point: Point) -> Iterator[None]:
    """Turns every way in which a point can fail into PointError with one line."""
    driver = gpu.driver
    try:
        yield
    except driver.MemoryError as error:
        raise PointError(f"out of memory on the GPU: {one_line(error)}; {_demand(point)}") from None
    except driver.Error as error:
        raise PointError(f"launch failed: {one_line(error)}") from None
    except MemoryError:
        raise PointError(f"out of memory on the host; {_demand(point)}") from None
    except GemmsimError as error:
        raise PointError(str(error)) from None


def _demand(point: Point) -> str:
    return f"A, B and C take {point.problem.compulsory_bytes / 1e9:.3g} GB"


def _compiled(gpu: Gpu, point: Point) -> tuple[Cubin, Launch]:
    kernel = kernel_named(point.kernel)
    kernel.check_gpu(point.tiling, gpu.facts.title, gpu.facts.capability, gpu.facts.sms)
    launch = kernel.launch(point.problem, point.tiling)
    return compile_kernel(kernel, launch, capability(gpu.facts.capability)), launch


def load(gpu: Gpu, cubin: Cubin, launch: Launch) -> LoadedKernel:
    """Load a cubin and allow its launch the shared memory it needs; resources as the driver reports them."""
    driver = gpu.driver
    image = cubin.path.read_bytes()
    function = driver.module_from_buffer(image).get_function("gemm")
    attribute = driver.function_attribute
    if launch.shared_bytes:
        function.set_attribute(attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, launch.shared_bytes)
    function.prepare("PPPiii")
    resources = Resources(
        registers_per_thread=int(function.get_attribute(attribute.NUM_REGS)),
        shared_bytes=int(function.get_attribute(attribute.SHARED_SIZE_BYTES)) + launch.shared_bytes,
        local_bytes=int(function.get_attribute(attribute.LOCAL_SIZE_BYTES)),
        blocks_per_sm=_occupancy(image, launch),
    )
    return LoadedKernel(function, launch, resources)


def _occupancy(image: bytes, launch: Launch) -> int | None:
    """The driver's blocks per multiprocessor, or None where it does not say: no reason not to measure."""
    try:
        return blocks_per_sm(image, "gemm", launch.threads, launch.shared_bytes)
    except MachineError:
        return None


class Buffers:
    """A, B and C on the GPU, each between guard bands of poison; freed at the end of `with`."""

    def __init__(self, gpu: Gpu, point: Point, a: Matrix, b: Matrix) -> None:
        self._driver = gpu.driver
        self._problem = point.problem
        self._elements = point.problem.m * point.problem.n
        self._held: list[Any] = []
        self.a, self.b = self._uploaded(a), self._uploaded(b)
        self.c = self._poisoned(self._elements)

    def __enter__(self) -> Buffers:
        return self

    def __exit__(self, *_: object) -> None:
        while self._held:
            self._held.pop().free()

    def _poisoned(self, elements: int) -> int:
        """The address of so many floats of poison, with the guard bands around them."""
        words = elements + 2 * GUARD_BYTES // 4
        self._held.append(self._driver.mem_alloc(4 * words))
        base = int(self._held[-1])
        self._driver.memset_d32(base, POISON, words)
        return base + GUARD_BYTES

    def _uploaded(self, matrix: Matrix) -> int:
        address = self._poisoned(matrix.size)
        self._driver.memcpy_htod(address, matrix)
        return address

    def poison_c(self) -> None:
        """Make C and its guard bands poison again."""
        self._driver.memset_d32(self.c - GUARD_BYTES, POISON, self._elements + 2 * GUARD_BYTES // 4)

    def downloaded_c(self) -> Matrix:
        """C and its guard bands."""
        words = guarded(self._elements)
        self._driver.memcpy_dtoh(words, self.c - GUARD_BYTES)
        return words

    def launcher(self, kernel: LoadedKernel) -> Launcher:
        """What launches the kernel on these operands, timed by events."""
        size = self._problem
        grid, block = (kernel.launch.blocks, 1), (kernel.launch.threads, 1, 1)
        arguments = (self.a, self.b, self.c, size.m, size.n, size.k)

        def launch() -> Callable[[], float]:
            wait: Callable[[], float] = kernel.function.prepared_timed_call(
                grid, block, *arguments, shared_size=kernel.launch.shared_bytes
            )
            return wait

        return launch


def _measured(gpu: Gpu, point: Point, device_name: str, flush: bool, environment: dict[str, Any]) -> Record:
    cubin, launch = _compiled(gpu, point)
    environment["compiler"] = cubin.compiler
    loaded = load(gpu, cubin, launch)
    _check_memory(gpu, point)
    seed = fresh_seed()
    environment["seed"] = seed
    a, b = random_operands(point.problem, seed)
    with Buffers(gpu, point, a, b) as buffers:
        buffers.poison_c()
        start = buffers.launcher(loaded)
        start()()
        first = buffers.downloaded_c()
        error = _verified(first, a, b, point)
        buffers.poison_c()
        environment |= under_load(gpu.facts, lambda: start()())  # before the samples: it brings the clocks up too
        with flusher(gpu, start, flush) as before:
            samples_s = time_launches(start, before)
        last = buffers.downloaded_c()
        if not np.array_equal(first, last):
            error = max(error, _verified(last, a, b, point))
    return Record(
        point,
        device_name,
        "ok",
        resources=loaded.resources,
        samples_s=tuple(samples_s),
        median_s=round(statistics.median(samples_s), 10),
        verification_error=error,
        environment=environment,
    )


def _verified(buffer: Matrix, a: Matrix, b: Matrix, point: Point) -> float:
    """The largest relative error of C and its guard bands; PointError where they are wrong."""
    verdict = verify(buffer, a, b, (point.tiling.block_m, point.tiling.block_n))
    if verdict.failure:
        raise PointError(verdict.failure)
    return verdict.error


def _check_memory(gpu: Gpu, point: Point) -> None:
    """Fail before any matrix is made, on the host either, when they do not fit on the GPU."""
    free, _ = gpu.driver.mem_get_info()
    needed = point.problem.compulsory_bytes + 6 * GUARD_BYTES + FLUSH_FACTOR * gpu.facts.l2_bytes
    if needed > free:
        raise PointError(f"out of memory on the GPU: {needed / 1e9:.3g} GB are needed, {free / 1e9:.3g} GB are free")


@contextmanager
def flusher(gpu: Gpu, start: Launcher, flush: bool) -> Iterator[Callable[[], object]]:
    """What brings L2 into the same state before every sample, and keeps the GPU busy while the sample's
    events and launch are queued, so that the events enclose no waiting for the host."""
    if not flush:
        yield start
        return
    words = FLUSH_FACTOR * gpu.facts.l2_bytes // 4
    buffer = gpu.driver.mem_alloc(4 * words)
    try:
        yield lambda: gpu.driver.memset_d32_async(int(buffer), 0, words)
    finally:
        buffer.free()


def time_launches(start: Launcher, before: Callable[[], object]) -> list[float]:
    """Seconds of each launch after a warm-up, every launch preceded by `before`."""
    launches, warm_at = 0, time.perf_counter() + WARM_UP_S
    while launches < WARM_UP_LAUNCHES or time.perf_counter() < warm_at:
        before()
        start()()
        launches += 1
    samples_s: list[float] = []
    while not enough(samples_s):
        before()
        samples_s.append(round(float(start()()), 9))  # the events' resolution is about half a microsecond
    return samples_s


def enough(samples_s: Sequence[float]) -> bool:
    """Whether the samples will do: 20 that take 0.25 s together, or 200; 5 where these take 10 s."""
    taken_s = sum(samples_s)
    return (
        len(samples_s) >= MOST_SAMPLES
        or (len(samples_s) >= LEAST_SAMPLES and taken_s >= SAMPLING_S)
        or (len(samples_s) >= SLOW_LEAST_SAMPLES and taken_s >= SLOW_S)
    )
