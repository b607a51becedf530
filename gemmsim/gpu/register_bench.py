"""Loop bodies run and timed on the GPU, by the clock register of its multiprocessors.

One block runs on one multiprocessor with 1, 2, 4 or 8 warps on each of its four sub-cores. A body is run in loops of
three lengths and for two numbers of passes; the difference of the differences is its own time, without that of the
loop, of starting and of ending.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.device import capability
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.disassemble import disassembled
from gemmsim.gpu.register_program import DUMP_BYTES, END_CLOCKS, KERNEL, patched, run_on_paper, same_code, spare
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import Kernel, Launch
from gemmsim.machine_code.cubin import CubinFile, read_cubin
from gemmsim.machine_code.loop_bodies import LARGEST_OFFSET, LoopBody

CAPABILITY = "9.0"
WARPS_PER_SUB_CORE = (1, 2, 4, 8)
SUB_CORES, LANES = 4, 32
SHARED_BYTES = 32 * 1024
"""Of 1024 threads, 16 bytes each, and what offsets add."""
MOST_THREADS = 1024
RESERVED_REGISTERS = 2
"""Of the registers that a compiler reports, the last two cannot be named: an H200 takes that for an illegal
instruction, and no compiled kernel does (every one of 414 for sm_75 to sm_120 reports two more than it names)."""
BUFFER_BYTES = 16 * MOST_THREADS + LARGEST_OFFSET + 16
SHORTEST_LOOP = 128
"""Instructions of the shortest loop, at least; the others have twice and four times as many."""
TRIPS = (16, 144)
REPEATS = 5
CHECK_TRIPS, CHECK_COPIES = 3, 2

Samples = dict[tuple[int, int], list[int]]
"""{(copies of the body in the loop, passes of the loop): cycles of each run}."""


@dataclass(frozen=True)
class Room:
    """A compiled container: what programs may be put into it. `live` values make the compiler take the registers."""

    threads: int
    live: int


ROOMS = (Room(1024, 54), Room(512, 110), Room(256, 240))
"""The most warps first: 64, 128 and about 250 registers a thread."""


class _Container(Kernel):
    """The source that is compiled for its resources alone."""

    @property
    def source(self) -> Path:
        return Path(__file__).with_name("register_bench.cu")


@cache
def container(room: Room) -> tuple[CubinFile, int]:
    """(the compiled container, its registers a thread). Raises MachineError where there is no compiler."""
    macros = {"THREADS": room.threads, "LIVE": room.live, "LENGTH": 2048}
    launch = Launch(1, room.threads, SHARED_BYTES, macros)
    compiled = compile_kernel(_Container("register_bench", "microbenchmarks"), launch, capability(CAPABILITY))
    return read_cubin(compiled.path), compiled.registers_per_thread - RESERVED_REGISTERS


def room_for(body: LoopBody, warps: int) -> Room | None:
    """The smallest container that has the registers for a body and for so many warps a sub-core; None if none has."""
    for room in ROOMS:
        if warps * SUB_CORES * LANES <= room.threads:
            try:
                spare(body, container(room)[1])
            except InputError:
                continue
            return room
    return None


def copies_of(body: LoopBody) -> tuple[int, ...]:
    """How often the body stands in each of the loops, the shortest first; two loops for bodies of great length."""
    shortest = -(-SHORTEST_LOOP // len(body.code))
    return tuple(
        times * shortest for times in (1, 2, 4) if times < 4 or 4 * shortest * len(body.code) <= 8 * SHORTEST_LOOP
    )


class Bench:
    """Runs bodies on a GPU whose context is current; its memory is freed at the end of `with`."""

    def __init__(self, gpu: Gpu) -> None:
        if gpu.facts.capability != CAPABILITY:
            raise MachineError(
                f"{gpu.facts.title} has compute capability {gpu.facts.capability}; these microbenchmarks are written in"
                f" the machine code of {CAPABILITY} (H100, H200)"
            )
        self._driver = gpu.driver
        self._out = self._driver.mem_alloc(MOST_THREADS * DUMP_BYTES)
        self._buffer = self._driver.mem_alloc(BUFFER_BYTES)
        self._driver.memset_d32(int(self._buffer), 0x3F800000, BUFFER_BYTES // 4)

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        for allocation in (self._out, self._buffer):
            try:
                allocation.free()
            except self._driver.Error:  # a broken context has freed it
                return

    def load(self, image: bytes) -> Any:
        """The kernel of a patched container, ready to be run."""
        module = self._driver.module_from_buffer(image)
        function = module.get_function(KERNEL)
        function.prepare("PPI")
        return function

    def run(self, function: Any, warps: int, trips: int, words: int) -> NDArray[np.uint32]:
        """What a launch leaves in the first words of its output."""
        threads = warps * SUB_CORES * LANES
        self._driver.memset_d32(int(self._out), 0, words)
        function.prepared_call(
            (1, 1), (threads, 1, 1), int(self._out), int(self._buffer), trips, shared_size=SHARED_BYTES
        )
        self._driver.Context.synchronize()
        found = np.empty(words, np.uint32)
        self._driver.memcpy_dtoh(found, int(self._out))
        return found

    def cycles(self, function: Any, warps: int, trips: int) -> int:
        """Cycles from the first warp's start to the last one's end."""
        return span_cycles(self.run(function, warps, trips, 2 * END_CLOCKS // 4), warps * SUB_CORES * LANES)

    def time(self, body: LoopBody, warps: int) -> Samples | None:
        """The samples of a body with so many warps a sub-core; None where their registers do not suffice."""
        room = room_for(body, warps)
        if room is None:
            return None
        template, registers = container(room)
        samples: Samples = {}
        for copies in copies_of(body):
            function = self.load(patched(body, copies, template, registers).image)
            self.cycles(function, warps, TRIPS[0])  # brings the code into the caches
            for trips in TRIPS:
                samples[copies, trips] = [self.cycles(function, warps, trips) for _ in range(REPEATS)]
        return samples

    def registers(self, body: LoopBody, trips: int, copies: int) -> Mapping[int, NDArray[np.uint32]]:
        """{register: its bits in each of 128 threads} after the loop."""
        room = room_for(body, 1)
        if room is None:
            raise InputError(f"{body.name} takes more registers than a thread has")
        template, registers = container(room)
        function = self.load(patched(body, copies, template, registers, dump=True).image)
        threads = SUB_CORES * LANES
        found = self.run(function, 1, trips, threads * DUMP_BYTES // 4).reshape(threads, DUMP_BYTES // 4)
        return {register: found[:, register] for register in sorted(body.registers)}


def span_cycles(clocks: NDArray[np.uint32], threads: int) -> int:
    """Cycles from the first start to the last end of so many threads; the clock may pass zero in between.

    Raises MachineError where they are no clocks: the program did not end as it should.
    """
    first = clocks[0]
    starts = (clocks[:threads] - first).astype(np.uint32).view(np.int32)
    ends = (clocks[END_CLOCKS // 4 :][:threads] - first).astype(np.uint32).view(np.int32)
    if not (ends > starts).all() or not clocks[END_CLOCKS // 4 :][:threads].all():
        raise MachineError(
            f"the clocks make no sense: starts {clocks[:2].tolist()}, ends {clocks[END_CLOCKS // 4 :][:2].tolist()}"
        )
    return int(ends.max() - starts.min())


def steady_cycles(samples: Samples, instructions: int, warps: int) -> float:
    """Cycles that each of `instructions` of a body takes, loop, start and end taken off, divided by the warps.

    One warp is judged by the two shortest loops, more by the two longest: one alone begins to wait for its
    instructions somewhere between 320 and 512 of them in a loop (9 to 18 cycles a pass at 512 on an H200), while two
    hide that, and several warps out of step do less harm to long loops.
    """
    lengths = sorted({copies for copies, _ in samples})
    few, many = lengths[:2] if warps == 1 else lengths[-2:]
    more = _per_pass(samples, many) - _per_pass(samples, few)
    return more / ((many - few) * instructions * warps)


def looped_cycles(samples: Samples, instructions: int, warps: int) -> float:
    """The same of a loop of about 256 instructions, with the time of the loop's own instructions in it."""
    copies = sorted({copies for copies, _ in samples})[1]
    return _per_pass(samples, copies) / (copies * instructions * warps)


def _per_pass(samples: Samples, copies: int) -> float:
    """Cycles of a pass of the loop, starting and ending taken off; medians of the samples."""
    few, many = sorted({trips for _, trips in samples})
    return (statistics.median(samples[copies, many]) - statistics.median(samples[copies, few])) / (many - few)


def self_check(bench: Bench, bodies: Sequence[LoopBody]) -> list[str]:
    """What shows that programs do what they are taken to do, a sentence each; MachineError where they do not.

    Every body is disassembled as it is to be run and compared, instruction for instruction; those given are run, and
    their registers compared with what the same instructions leave on paper.
    """
    said = []
    for body in bodies:
        room = room_for(body, 1)
        if room is None:
            continue
        template, registers = container(room)
        copies = copies_of(body)[0]
        (function,) = disassembled(patched(body, copies, template, registers).image, body.name)
        difference = same_code(body, copies, function.instructions)
        if difference:
            raise MachineError(f"{body.name} is not what was to be patched in: {difference}")
        expected = run_on_paper(body, CHECK_TRIPS, CHECK_COPIES)
        found = bench.registers(body, CHECK_TRIPS, CHECK_COPIES)
        wrong = [number for number, bits in expected.items() if not (found[number] == bits).all()]
        if wrong:
            first = wrong[0]
            raise MachineError(
                f"{body.name} leaves {found[first][0]:#010x} in R{first} instead of {expected[first]:#010x}, and"
                f" {len(wrong)} of {len(expected)} registers are wrong"
            )
        said.append(f"{body.name}: {len(body.code)} instructions as written, {len(expected)} registers as on paper")
    return said
