"""Microbenchmarks as programs: compiled, loaded, launched, their rows read back and their results checked.

The sources lie in `data/microbenchmarks/`. Every kernel writes a row for each warp: its clocks, and a result that the
host knows beforehand, so that work which did not happen is seen. What they measure of a GPU is in `calibrate.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.coalescing import LINE_BYTES
from gemmsim.device import DATA, Capability, capability
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin, compile_kernel
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import Kernel, Launch

SOURCES = DATA / "microbenchmarks"
WARP = 32
ROW_WORDS = 4
PROGRAMS: Mapping[str, tuple[str, str]] = {
    "chase_l1": ("latency", "PPII"),
    "chase_l2": ("latency", "PPII"),
    "gather": ("latency", "PPI"),
    "chase_atomic": ("latency", "PPII"),
    "chase_shared_32": ("latency", "PII"),
    "chase_shared_64": ("latency", "PII"),
    "chase_shared_128": ("latency", "PII"),
    "copies": ("latency", "PPII"),
    "ffma_chain_32": ("latency", "PffI"),
    "ffma_chain_96": ("latency", "PffI"),
    "barriers_32": ("latency", "PI"),
    "barriers_96": ("latency", "PI"),
    "straight_512": ("latency", "Pff"),
    "straight_2048": ("latency", "Pff"),
    "ffma_128": ("throughput", "PffI"),
    "ffma_384": ("throughput", "PffI"),
    "read_shared": ("throughput", "PI"),
    "read_l1": ("throughput", "PPI"),
    "read_past_l1": ("throughput", "PPIIII"),
    "write_global": ("throughput", "PPIIII"),
    "empty": ("launch", "P"),
    "spin": ("launch", "PI"),
}
"""{kernel: (source, types of its arguments as PyCUDA writes them)}; the first argument is always the rows."""
BUSY_CYCLES = 400_000
"""A launch that is timed follows one so long, so that its events and itself are queued before it can start."""
REPEATS = 9
"""Runs of each length that a number is the median of."""

Words = NDArray[np.uint64]


@dataclass(frozen=True)
class Rows:
    """What a launch left: an array of (blocks, warps, 4) words: start and end clock, elapsed ns, result."""

    words: Words

    @property
    def starts(self) -> Words:
        """The clock at which each block's first warp began."""
        found: Words = self.words[..., 0].min(axis=1)
        return found

    @property
    def ends(self) -> Words:
        """The clock at which each block's last warp was done."""
        found: Words = self.words[..., 1].max(axis=1)
        return found

    @property
    def cycles(self) -> NDArray[np.float64]:
        """Cycles of each block, from its first warp's start to its last one's end."""
        return (self.ends - self.starts).astype(np.float64)

    @property
    def clock_hz(self) -> float:
        """The clock of the multiprocessors: cycles over seconds, the median of all warps."""
        cycles = (self.words[..., 1] - self.words[..., 0]).astype(np.float64)
        return float(np.median(cycles / self.words[..., 2]) * 1e9)

    @property
    def results(self) -> Words:
        """The result of each block's first warp."""
        found: Words = self.words[:, 0, 3]
        return found

    def check(self, kernel: str, expected: Any) -> None:
        """Raise MachineError where a clock stands still or a warp has another result than its block's is to be."""
        if not (self.words[..., 1] > self.words[..., 0]).all():
            raise MachineError(f"microbenchmark {kernel}: a clock did not go on; did the kernel run?")
        if expected is None:
            return
        wanted = np.broadcast_to(np.asarray(expected, np.uint64).reshape(-1, 1), self.words.shape[:2])
        wrong = np.argwhere(self.words[..., 3] != wanted)
        if wrong.size:
            block, warp = wrong[0]
            raise MachineError(
                f"microbenchmark {kernel}: block {block}, warp {warp} has the result {self.words[block, warp, 3]}"
                f" instead of {wanted[block, warp]}, and {len(wrong)} warps are wrong"
            )


class _Program(Kernel):
    """A source that `compile_kernel` takes."""

    @property
    def source(self) -> Path:
        return SOURCES / f"{self.name}.cu"


@cache
def compiled(source: str, of: Capability) -> Cubin:
    """The cubin of a source. Raises MachineError where there is no compiler."""
    return compile_kernel(_Program(source, "microbenchmarks"), Launch(1, WARP, 0, {}), of)


class Bench:
    """Runs microbenchmarks on a GPU whose context is current; its memory is freed at the end of `with`."""

    def __init__(self, gpu: Gpu, repeats: int | None = None) -> None:
        self.repeats = repeats or REPEATS
        self.facts, self._driver = gpu.facts, gpu.driver
        self.capability = capability(gpu.facts.capability)
        self._functions: dict[str, Any] = {}
        self._modules: dict[str, Any] = {}
        self._held: list[Any] = []
        self._rows_bytes = 0
        self._rows: Any = None
        self._zeros = 0
        self.raw: dict[str, list[float]] = {}

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        while self._held:
            try:
                self._held.pop().free()
            except self._driver.Error:  # a broken context has freed it
                return

    @property
    def sms(self) -> int:
        """Multiprocessors of the GPU."""
        return self.facts.sms

    @property
    def free_bytes(self) -> int:
        """Memory of the GPU that is free."""
        return int(self._driver.mem_get_info()[0])

    def keep(self, what: str, values: Any) -> None:
        """Keep what was read from the hardware, under a name: one number, or the median of many."""
        self.raw.setdefault(what, []).append(float(np.median(values)))

    def memory(self, size_bytes: int, word: int = 1) -> int:
        """The address of so many bytes, every 32-bit word of them `word`."""
        address = self._allocated(size_bytes)
        self._driver.memset_d32(address, word, size_bytes // 4)
        return address

    def uploaded(self, array: NDArray[Any]) -> int:
        """The address of a copy of the array."""
        address = self._allocated(array.nbytes)
        self._driver.memcpy_htod(address, array)
        return address

    def chain(self, lines: int, order: NDArray[np.int64]) -> tuple[int, Words]:
        """(address of so many lines of 128 bytes, the addresses of those in `order`), each of which holds the next."""
        address = self._allocated(lines * LINE_BYTES)
        places = np.uint64(address) + order.astype(np.uint64) * np.uint64(LINE_BYTES)
        words = np.zeros(lines * LINE_BYTES // 8, np.uint64)
        words[order * (LINE_BYTES // 8)] = np.roll(places, -1)
        self._driver.memcpy_htod(address, words)
        return address, places

    def run(
        self, kernel: str, blocks: int, threads: int, *arguments: Any, expected: Any = None, shared_bytes: int = 0
    ) -> Rows:
        """The rows of a launch. Raises MachineError where a result is not the one expected."""
        self._launch(kernel, blocks, threads, arguments, shared_bytes)
        self._driver.Context.synchronize()
        return self._read_rows(kernel, blocks, threads, expected)

    def seconds(
        self,
        kernel: str,
        blocks: int,
        threads: int,
        *arguments: Any,
        expected: Any = None,
    ) -> tuple[float, Rows]:
        """(seconds by events, rows) of a launch that follows right upon other work, so that nothing waits for the host.

        Raises MachineError where a result is not the one expected.
        """
        self._launch("spin", self.sms, WARP, (BUSY_CYCLES,), 0)
        function, arguments = self._prepared(kernel, blocks, threads, arguments)
        wait = function.prepared_timed_call((blocks, 1), (threads, 1, 1), *arguments, shared_size=0)
        taken_s = float(wait())
        return taken_s, self._read_rows(kernel, blocks, threads, expected)

    def queue(self, kernel: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Launch a kernel and do not wait for it."""
        self._launch(kernel, blocks, threads, arguments, 0)

    def write_over_l2(self) -> None:
        """Queue zeros over twice as many bytes as L2 has, as measurements do: it then holds nothing else."""
        size = 2 * self.facts.l2_bytes
        if not self._zeros:
            self._zeros = self._allocated(size)
        self._driver.memset_d32_async(self._zeros, 0, size // 4)

    def _launch(self, kernel: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared_bytes: int) -> None:
        function, arguments = self._prepared(kernel, blocks, threads, arguments)
        if shared_bytes:
            attribute = self._driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(attribute, shared_bytes)
        function.prepared_call((blocks, 1), (threads, 1, 1), *arguments, shared_size=shared_bytes)

    def _prepared(
        self, kernel: str, blocks: int, threads: int, arguments: tuple[Any, ...]
    ) -> tuple[Any, tuple[Any, ...]]:
        """(function, all its arguments): the rows come first, and there is room for them."""
        needed = 8 * ROW_WORDS * blocks * (threads // WARP)
        if kernel != "empty" and needed > self._rows_bytes:
            self._driver.Context.synchronize()
            self._rows_bytes = max(needed, 2**20)
            self._rows = self._allocated(self._rows_bytes)
        return self._function(kernel), (self._rows or 0, *arguments)

    def _read_rows(self, kernel: str, blocks: int, threads: int, expected: Any) -> Rows:
        if kernel == "empty":
            return Rows(np.empty((0, 1, ROW_WORDS), np.uint64))
        words = np.empty((blocks, threads // WARP, ROW_WORDS), np.uint64)
        self._driver.memcpy_dtoh(words, self._rows)
        rows = Rows(words)
        rows.check(kernel, expected)
        return rows

    def _function(self, kernel: str) -> Any:
        """A kernel, loaded when it is first asked for."""
        if kernel not in self._functions:
            source, types = PROGRAMS[kernel]
            if source not in self._modules:
                image = compiled(source, self.capability).path.read_bytes()
                self._modules[source] = self._driver.module_from_buffer(image)
            function = self._modules[source].get_function(kernel)
            function.prepare(types)
            self._functions[kernel] = function
        return self._functions[kernel]

    def _allocated(self, size_bytes: int) -> int:
        self._held.append(self._driver.mem_alloc(size_bytes))
        return int(self._held[-1])
