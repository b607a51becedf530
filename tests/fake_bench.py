"""A GPU that is made up, as far as microbenchmarks use one: its latencies and rates are numbers that we choose.

Chains are really followed, and what is read was written; clocks are overhead + steps x cost, and a little noise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from gemmsim.gpu.microbenchmarks import PROGRAMS
from gemmsim.gpu.session import GpuFacts

FACTS = GpuFacts("NVIDIA H200", "9.0", 4, 2**20, 2**33, "0000:00:04.0", "13.0", "2026.1")
OVERHEAD_CYCLES = 700
LAUNCH_S = 2.5e-6
LOOP_CYCLES = 3 / 4


@dataclass
class Machine:
    """What the made-up GPU can do."""

    clock_hz: float = 1.5e9
    cycles: dict[str, float] = field(
        default_factory=lambda: {
            "chase_l1": 33.0,
            "chase_atomic": 600.0,
            "chase_shared_32": 23.0,
            "chase_shared_64": 25.0,
            "chase_shared_128": 29.0,
            "copies": 400.0,
            "ffma_chain": 4.0,
            "barriers": 2.0,  # for each warp
            "ffma": 1 / 4.0,  # for each warp: 128 FFMA a cycle and SM
            "read_shared": 4096 / 128.0,
            "read_l1": 4096 / 120.0,
        }
    )
    near_cycles: float = 250.0
    far_cycles: float = 400.0
    memory_cycles: float = 800.0
    code_line_cycles: float = 50.0
    line_cycles: float = 2.0
    line_alone_cycles: float = 1.5
    l2_bytes_per_s: float = 2e12
    far_bytes_per_s: float = 1.5e12
    dram_bytes_per_s: float = 4e11
    bytes_per_cycle_per_sm: float = 60.0
    block_start_cycles: float = 90.0
    turnover_cycles: float = 800.0


class Allocation(int):
    def free(self) -> None:
        pass


class FakeGpu:
    """PyCUDA's driver and a Gpu in one. `spoil(kernel, rows)` may change what a launch leaves."""

    class Error(Exception):
        pass

    function_attribute = SimpleNamespace(MAX_DYNAMIC_SHARED_SIZE_BYTES=8)

    def __init__(
        self,
        machine: Machine | None = None,
        spoil: Callable[[str, Any], None] = lambda kernel, rows: None,
        facts: GpuFacts = FACTS,
    ) -> None:
        self.driver, self.facts, self.machine, self.spoil = self, facts, machine or Machine(), spoil
        self.Context = SimpleNamespace(synchronize=lambda: None)
        self.at = 2**40
        self.arrays: dict[int, Any] = {}
        self.launches: list[tuple[str, int, int]] = []
        self.random = np.random.default_rng(7)
        self.now = 10**6

    def __enter__(self) -> FakeGpu:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def mem_get_info(self) -> tuple[int, int]:
        return 2**30, 2**33

    def mem_alloc(self, size: int) -> Allocation:
        found = Allocation(self.at)
        self.at += -(-size // 512) * 512
        return found

    def memset_d32(self, address: int, value: int, count: int) -> None:
        assert value == 1  # what sums of reads are expected to be

    def memset_d32_async(self, address: int, value: int, count: int) -> None:
        assert 4 * count > self.facts.l2_bytes

    def memcpy_htod(self, address: int, array: Any) -> None:
        assert array.flags.c_contiguous
        self.arrays[int(address)] = array.copy().view(np.uint8).view(np.uint64)

    def memcpy_dtoh(self, words: Any, address: int) -> None:
        words[:] = self.rows.reshape(words.shape)

    def module_from_buffer(self, image: bytes) -> Any:
        return SimpleNamespace(get_function=lambda name: FakeFunction(self, name))

    def follow(self, at: Any, steps: int) -> Any:
        for _ in range(steps):
            (base,) = {max(base for base in self.arrays if base <= each) for each in at.tolist()}
            at = self.arrays[base][(at - np.uint64(base)) // np.uint64(8)]
        return at

    def execute(self, name: str, blocks: int, threads: int, arguments: tuple[Any, ...], shared_size: int) -> float:
        """Leave the rows of a launch; returns its seconds."""
        self.launches.append((name, blocks, threads))
        machine, warps = self.machine, threads // 32
        if name == "empty":
            return LAUNCH_S + blocks / self.facts.sms * machine.block_start_cycles / machine.clock_hz
        rows = np.zeros((blocks, warps, 4), np.uint64)
        cycles, results = self.work(name, blocks, warps, arguments)
        cycles = np.broadcast_to(cycles, blocks) + OVERHEAD_CYCLES
        cycles = cycles * (1 + 1e-4 * self.random.standard_normal(blocks))
        start = self.now + np.arange(blocks) // self.facts.sms * (cycles + machine.turnover_cycles)
        rows[..., 0] = start[:, None]
        rows[..., 1] = (start + cycles)[:, None]
        rows[..., 2] = (cycles / machine.clock_hz * 1e9)[:, None]
        rows[..., 3] = np.broadcast_to(results, blocks)[:, None]
        self.spoil(name, rows)
        self.rows = rows
        seconds = LAUNCH_S + float(cycles.max()) / machine.clock_hz
        if name in ("read_past_l1", "write_global") and blocks > self.facts.sms:
            rate, steps = self.rate(name, arguments), arguments[-1]
            seconds = LAUNCH_S + blocks * threads * 128 * steps / rate
        return seconds

    def work(self, name: str, blocks: int, warps: int, arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        """(cycles, results) of the blocks."""
        machine, steps = self.machine, arguments[-1]
        if name.startswith("straight"):
            return int(name.rpartition("_")[2]) / 8 * machine.code_line_cycles, 0x41800000
        if name == "gather":
            starts = self.arrays[arguments[-2]]
            beyond = (32 * warps - 64) * (
                machine.line_cycles if blocks == self.facts.sms else machine.line_alone_cycles
            )
            return steps * (self.latency(starts[:blocks]) + beyond), self.follow(starts[:: warps * 32], steps)
        if name == "spin":
            return steps - OVERHEAD_CYCLES, np.arange(blocks) % self.facts.sms
        if name.startswith("chase_shared"):
            bits = int(name.rpartition("_")[2])
            return steps * machine.cycles[name], 32 * bits // 8 * (steps % 15)
        if name.startswith("chase"):
            starts, warm = arguments[-3], arguments[-2]
            at = self.arrays[starts][:blocks]
            each = machine.cycles.get(name) or self.latency(at)
            return steps * each, self.follow(at, warm + steps)
        if name == "copies":
            numbers, lines = self.arrays[arguments[0]].view(np.uint32), arguments[1]
            return steps * machine.cycles[name], int(numbers[(steps - 1) % lines * 32])
        if name.startswith(("ffma", "barriers")):
            what, _, length = name.rpartition("_")
            together = warps if what == "ffma" else 1
            cycles = (warps if what == "barriers" else 1) * machine.cycles[what]
            result = {"ffma": 0x41800000, "ffma_chain": 0x40000000, "barriers": steps}[what]
            return steps * together * (int(length) * cycles + LOOP_CYCLES), result
        if name in ("read_past_l1", "write_global"):
            cycles = steps * warps * 4096 / machine.bytes_per_cycle_per_sm
            return cycles, steps if name == "write_global" else 32 * steps
        return steps * machine.cycles[name] * warps, 32 * steps

    def latency(self, at: Any) -> float:
        """The latency of a chase, by the size of the array that it is in."""
        (base,) = {max(base for base in self.arrays if base <= each) for each in at.tolist()}
        size, machine = self.arrays[base].nbytes, self.machine
        if size > self.facts.l2_bytes:
            return machine.memory_cycles
        return machine.far_cycles if size > self.facts.l2_bytes / 2 else machine.near_cycles

    def rate(self, name: str, arguments: tuple[Any, ...]) -> float:
        """Bytes a second of a stream, by the size of its working set."""
        size, machine = arguments[1] * 256 * 128, self.machine
        if size > self.facts.l2_bytes:
            return machine.dram_bytes_per_s
        return machine.far_bytes_per_s if size > self.facts.l2_bytes / 2 else machine.l2_bytes_per_s


class FakeFunction:
    """A kernel of the made-up GPU; arguments are packed as PyCUDA packs them."""

    def __init__(self, gpu: FakeGpu, name: str) -> None:
        self.gpu, self.name = gpu, name

    def prepare(self, types: str) -> None:
        assert types == PROGRAMS[self.name][1]
        self.types = types

    def set_attribute(self, attribute: int, value: int) -> None:
        assert (attribute, value) == (8, 232448)

    def prepared_call(self, grid: Any, block: Any, *arguments: Any, shared_size: int) -> None:
        self.launch(grid, block, arguments, shared_size)

    def prepared_timed_call(self, grid: Any, block: Any, *arguments: Any, shared_size: int) -> Callable[[], float]:
        seconds = self.launch(grid, block, arguments, shared_size)
        return lambda: seconds

    def launch(self, grid: Any, block: Any, arguments: tuple[Any, ...], shared_size: int) -> float:
        packed = struct.pack(self.types, *arguments)
        assert struct.unpack(self.types, packed) == arguments
        assert grid[1:] == (1,)
        assert block[1:] == (1, 1)
        assert block[0] % 32 == 0
        return self.gpu.execute(self.name, grid[0], block[0], arguments[1:], shared_size)
