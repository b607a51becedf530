"""Loops of memory accesses that judge the simulated multiprocessor: what an H200 takes for them, and their programs.

python -m campaigns.core_loops              on a machine with a GPU: measures them, into campaigns/measured/
python -m campaigns.core_loops --programs   where nvcc and its disassembler are: what their warps do, into tests/data/

A pass of a loop has sixteen accesses, each with some FFMA behind it. All they read is in L1 or in shared memory, so that
what is measured is what a multiprocessor's warps, sub-cores and queues do, and nothing below. One block runs it with
1, 2, 4 and 8 warps on each sub-core, for few and for many passes; the difference is the cycles of a pass. The sums that
a loop leaves in every thread, and what it wrote to shared memory, have to be right to the last bit.
"""

from __future__ import annotations

import gzip
import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import async_copy_passes, passes
from gemmsim.coalescing import l1_wavefronts
from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin, cache_folder, compile_kernel
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import Kernel, Launch
from gemmsim.pipeline.program import Action, program_of
from gemmsim.pipeline.programs import rounded
from gemmsim.pipeline.timing import Cost
from gemmsim.registers.register_files import register_file

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "campaigns" / "measured" / "core_loops_h200.jsonl"
PROGRAMS = ROOT / "tests" / "data" / "core_loops.jsonl.gz"
DEVICE = "h200"
ACCESSES = 16
WARPS_PER_SUB_CORE = (1, 2, 4, 8)
SUB_CORES, LANES = 4, 32
PASSES = (50, 250)
REPEATS = 7
SUMS = 8
ROW_WORDS = 2048
"""From one place to the next of a copy that reads several."""
AREA_WORDS = ACCESSES * LANES * 4
LOADED, STORED, COPIED = 0, AREA_WORDS, 2 * AREA_WORDS
"""Where in shared memory loads read, stores write, and copies."""
SHARED_WORDS = 3 * AREA_WORDS
GLOBAL_WORDS = 2**20
MOST_THREADS, ROW_BYTES = 1024, 24
WORDS_BACK = MOST_THREADS * ROW_BYTES // 4 + SHARED_WORDS
GLOBAL_VALUES, SHARED_VALUES = 7, 5
"""Word i holds i modulo these: small whole numbers, whose sums are exact."""
STORED_VALUE = 1.0


@dataclass(frozen=True)
class Access:
    """One access of a warp: what it does, the registers it moves, and where its lanes read: `together` at one address,
    else lane beside lane, in so many places."""

    action: Action
    registers: int = 1
    together: bool = False
    places: int = 1

    @property
    def lane_words(self) -> NDArray[np.int64]:
        """The first word of each lane, from where the access begins."""
        place, lane = np.divmod(np.arange(LANES), LANES // self.places)
        return np.zeros(LANES, np.int64) if self.together else place * ROW_WORDS + lane * self.registers

    @property
    def step_words(self) -> int:
        """From one access of a pass to the next."""
        return self.registers * (1 if self.together else LANES)

    @property
    def costs(self) -> dict[tuple[str, int], Cost]:
        """What the simulation is told of it, by the rules of banks, of L1's tags and of copies."""
        width, lanes, addresses = 4 * self.registers, np.ones(LANES, bool), 4 * self.lane_words
        of = self.action, self.registers
        if self.action in ("shared_load", "shared_store"):
            return {of: Cost(1, float(passes(addresses, lanes, width, self.action == "shared_store").wavefronts))}
        found = l1_wavefronts(addresses, lanes, width)
        asked = Cost(float(found.tag), float(found.data), 4.0 * LANES * self.registers, self.places)
        if self.action == "global_load":
            return {of: asked}
        written = async_copy_passes(4 * self.registers * np.arange(LANES), lanes, width, self.registers < 4)
        return {of: Cost(1, float(written.wavefronts)), ("global_copy_source", self.registers): asked}

    @property
    def merged(self) -> bool:
        """Whether it is a shared load whose lanes merge: served in fewer wavefronts than it has registers."""
        return self.action == "shared_load" and self.costs[self.action, self.registers].wavefronts < self.registers


KINDS = {
    "ldg": Access("global_load"), "ldg.64": Access("global_load", 2), "ldg.128": Access("global_load", 4),
    "ldg.one": Access("global_load", 1, True),
    "lds": Access("shared_load"), "lds.64": Access("shared_load", 2), "lds.128": Access("shared_load", 4),
    "lds.one": Access("shared_load", 1, True), "lds.64.one": Access("shared_load", 2, True),
    "lds.128.one": Access("shared_load", 4, True),
    "sts": Access("shared_store"), "sts.64": Access("shared_store", 2), "sts.128": Access("shared_store", 4),
    "cp": Access("global_copy"), "cp.2_places": Access("global_copy", 1, False, 2),
    "cp.4_places": Access("global_copy", 1, False, 4), "cp.64": Access("global_copy", 2),
    "cp.128": Access("global_copy", 4),
}  # fmt: skip
PATTERNS: Mapping[str, tuple[int, ...]] = {
    "ldg": (0, 1, 2, 4), "ldg.one": (0, 1, 2, 4), "ldg.64": (0, 4), "ldg.128": (0, 8), "lds": (0, 1, 2, 4),
    "lds.one": (0, 1, 2, 4), "lds.64": (0, 1, 2, 4), "lds.64.one": (0, 4), "lds.128": (0, 4, 8, 16),
    "lds.128.one": (0, 2, 4, 8, 16), "sts": (1, 2, 4), "sts.64": (1, 4), "sts.128": (1, 8), "ldg lds": (0, 1, 2, 4),
    "ldg ldg.one": (0, 2, 4), "ldg lds lds lds": (0, 1, 2, 4), "lds lds lds sts": (0, 1, 2, 4),
    "lds lds.128.one": (0, 2, 4, 8), "lds lds.128.one lds.128.one lds.128.one": (0, 4, 8),
    "lds.64 lds.64 lds.128.one": (0, 1, 2, 4), "ldg ldg sts": (0, 1, 2, 4), "ldg.128 lds.128.one": (0, 8),
    "lds.128 lds.64.one sts": (0, 4), "cp": (1, 4), "cp.2_places": (1, 4), "cp.4_places": (1, 4), "cp.64": (1, 4),
    "cp.128": (1, 8), "cp lds": (1, 4), "cp.128 lds.128.one": (1, 8),
    "cp cp lds lds": (1,), "cp cp cp cp lds lds lds lds": (1,), "cp lds lds lds": (1,), "cp lds.128": (1,),
    "cp lds.128.one": (1,), "cp.2_places lds": (1,), "cp.64 lds": (1,), "cp.128 lds": (1,), "cp ldg": (1,),
    "cp sts": (1,),
}  # fmt: skip
"""Kinds of access, round and round, and the numbers of FFMA behind each. Some FFMA make a loop the main one."""


@dataclass(frozen=True)
class Loop:
    """A loop: its pattern, and the FFMA behind each access beside those that add up what was loaded."""

    number: int
    pattern: str
    ffma: int

    @property
    def name(self) -> str:
        """The pattern and the FFMA, such as "ldg lds +2"."""
        return f"{self.pattern} +{self.ffma}"

    @cached_property
    def accesses(self) -> list[Access]:
        """The accesses of a pass, one after the other."""
        kinds = self.pattern.split()
        return [KINDS[kinds[number % len(kinds)]] for number in range(ACCESSES)]

    @property
    def costs(self) -> dict[tuple[str, int], Cost]:
        """What its accesses cost; none has two of one action and width that differ in it."""
        return {of: cost for each in self.accesses for of, cost in each.costs.items()}

    @property
    def merged(self) -> float:
        """Share of its shared loads whose lanes merge."""
        loads = [each.merged for each in self.accesses if each.action == "shared_load"]
        return sum(loads) / len(loads) if loads else 0.0

    def left(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(sums of a warp's lanes, words of shared memory) after so many passes."""
        sums = np.full(LANES, SUMS * (SUMS - 1) // 2 + count * ACCESSES * self.ffma)
        shared = np.where(np.arange(SHARED_WORDS) < AREA_WORDS, np.arange(SHARED_WORDS) % SHARED_VALUES, 0)
        for number, each in enumerate(self.accesses):
            words = (number * each.step_words + each.lane_words)[:, None] + np.arange(each.registers)
            written = number * each.step_words + np.arange(each.registers * LANES)
            if each.action == "shared_store":
                shared[STORED + written] = STORED_VALUE
            elif each.action == "global_copy":
                shared[COPIED + written] = words.reshape(-1) % GLOBAL_VALUES
            else:
                sums += count * (words % (GLOBAL_VALUES if each.action == "global_load" else SHARED_VALUES)).sum(axis=1)
        return sums.astype(np.float32), shared.astype(np.float32)

    def statements(self) -> Iterator[str]:
        """A pass in CUDA, with what `core_loops.cu` defines; what was loaded is added up at its end."""
        added = []
        for number, each in enumerate(self.accesses):
            of, step = f"{each.action}<{each.registers}>", number * each.step_words
            lanes = f"at[{LANES * list(KINDS.values()).index(each)} + lane]"
            to = f"shared + 4 * {each.registers} * lane + {4 * step}"
            match each.action:
                case "global_copy":
                    yield f"{of}({to} + {4 * COPIED}, memory + {lanes} + {step});"
                case "shared_store":
                    yield f"{of}({to} + {4 * STORED}, one);"
                case "global_load":
                    yield f"{of}(v[{number}], memory + {lanes} + {step});"
                case _:
                    yield f"{of}(v[{number}], shared + 4 * {lanes} + {4 * step});"
            if "load" in each.action:
                added += [(f"v[{number}][{value}]", (number + value) % SUMS) for value in range(each.registers)]
            for turn in range(self.ffma):
                yield f"ffma(z[{(number * self.ffma + turn) % SUMS}], one, also_one);"
        if any(each.action == "global_copy" for each in self.accesses):
            yield "copies_of_the_last_pass();"
        yield from (f"z[{to}] = fmaf({value}, also_one, z[{to}]);" for value, to in added)


LOOPS = [
    Loop(number, pattern, ffma)
    for number, (pattern, ffma) in enumerate((pattern, each) for pattern, of in PATTERNS.items() for each in of)
]


def source() -> str:
    """The CUDA source of all loops."""
    names = "ACCESSES", "AREA_WORDS", "SHARED_VALUES", "SHARED_WORDS", "SUMS"
    defined = [f"#define {name} {globals()[name]}" for name in names]
    kernels = []
    for loop in LOOPS:
        kernel = (
            f'extern "C" __global__ void __launch_bounds__({MOST_THREADS}) loop_{loop.number}(GIVEN) // {loop.name}'
        )
        kernels += [kernel, "{", "BEGIN {", *loop.statements(), "}", "END", "}"]
    return "\n".join([*defined, Path(__file__).with_suffix(".cu").read_text(), *kernels])


class _Source(Kernel):
    """What is compiled: written beside the cubins that the compiler makes."""

    @property
    def source(self) -> Path:
        path = cache_folder() / "core_loops.cu"
        path.write_text(source())
        return path


def compiled() -> tuple[Cubin, str]:
    """(the cubin of all loops, a hash of their source). Raises MachineError where there is no compiler."""
    cubin = compile_kernel(_Source("core_loops", ""), Launch(1, LANES, 0, {}), device(DEVICE).capability)
    return cubin, source_hash()


def source_hash() -> str:
    """What tells whether a record and a program are of the loops as they are written now."""
    return sha256(source().encode()).hexdigest()[:16]


def run(gpu: Gpu, function: Any, memory: Sequence[Any], loop: Loop, warps: int, count: int) -> int:
    """Cycles of so many passes from the first warp's start to the last one's end. Raises MachineError where sums or
    shared memory are not what the loop has to leave."""
    threads = warps * SUB_CORES * LANES
    rows, *given = memory
    gpu.driver.memset_d32(rows, 0xFFFFFFFF, WORDS_BACK)
    function(
        rows, *given, np.int32(count), np.int32(0), np.float32(1), np.float32(1),
        block=(threads, 1, 1), grid=(1, 1), shared=4 * SHARED_WORDS,
    )  # fmt: skip
    words = np.empty(WORDS_BACK, np.float32)
    gpu.driver.memcpy_dtoh(words, rows)
    found = words[: threads * ROW_BYTES // 4].reshape(threads, -1)
    sums, shared = loop.left(count)
    if (found[:, 4] != np.tile(sums, threads // LANES)).any() or (words[-SHARED_WORDS:] != shared).any():
        raise MachineError(f"{loop.name} with {threads} threads leaves other sums or other words than it has to")
    clocks = np.ascontiguousarray(found[:, :4]).view(np.int64)
    return int(clocks[:, 1].max() - clocks[:, 0].min())


def measure() -> Iterator[dict[str, Any]]:
    """A record for each loop: the cycles of each run, by warps a sub-core and passes."""
    cubin, of = compiled()
    with Gpu() as gpu:
        driver, sizes = gpu.driver, (4 * WORDS_BACK, 4 * GLOBAL_WORDS, 4 * LANES * len(KINDS))
        memory = [driver.mem_alloc(size) for size in sizes]
        driver.memcpy_htod(memory[1], (np.arange(GLOBAL_WORDS) % GLOBAL_VALUES).astype(np.float32))
        driver.memcpy_htod(memory[2], np.concatenate([each.lane_words for each in KINDS.values()]).astype(np.int32))
        module = driver.module_from_buffer(cubin.path.read_bytes())
        functions = [module.get_function(f"loop_{loop.number}") for loop in LOOPS]
        environment = software(gpu.facts, cubin.compiler) | under_load(
            gpu.facts, lambda: run(gpu, functions[0], memory, LOOPS[0], WARPS_PER_SUB_CORE[-1], PASSES[-1])
        )
        for loop, function in zip(LOOPS, functions, strict=True):
            samples: dict[int, dict[int, list[int]]] = {}
            for warps in WARPS_PER_SUB_CORE:
                run(gpu, function, memory, loop, warps, PASSES[0])  # brings code and data into the caches
                samples[warps] = {
                    count: [run(gpu, function, memory, loop, warps, count) for _ in range(REPEATS)] for count in PASSES
                }
            yield {"loop": loop.name, "source": of, "cycles": samples, "environment": environment}
        for each in memory:
            each.free()


def cycles_of_pass(samples: Mapping[str, Sequence[int]]) -> float:
    """Cycles of a pass, starting and ending taken off: the difference of the medians of few and many passes."""
    few, many = sorted(map(int, samples))
    more = statistics.median(samples[str(many)]) - statistics.median(samples[str(few)])
    return more / (many - few)


def programs() -> Iterator[dict[str, Any]]:
    """The program of each loop."""
    cubin, of = compiled()
    functions, file = (
        {each.name: each for each in disassembled_file(cubin.path)},
        register_file(device(DEVICE).capability),
    )
    for loop in LOOPS:
        program = rounded(program_of(functions[f"loop_{loop.number}"], file, loop.merged))
        kept = {"loop": program["loop"], "source": program["source"]}
        yield {"loop": loop.name, "source": of, "compiler": cubin.compiler, "program": kept}


def main() -> None:
    """Write the records, or the programs."""
    lines = (json.dumps(each, separators=(",", ":")) + "\n" for each in (programs() if sys.argv[1:] else measure()))
    text = "".join(lines).encode()
    if sys.argv[1:] == ["--programs"]:
        PROGRAMS.write_bytes(gzip.compress(text, mtime=0))
    else:
        MEASURED.write_bytes(text)


if __name__ == "__main__":
    main()
