"""Loops of memory accesses that judge the simulated multiprocessor: what an H200 takes for them, and their programs.

python -m campaigns.core_loops              on a machine with a GPU: measures them, into campaigns/measured/
python -m campaigns.core_loops --programs   where nvcc and its disassembler are: what their warps do, into tests/data/

The loops are those of `core_loop_bodies.py`. All they read is in L1 or in shared memory, so that what is measured is
what a multiprocessor's warps, sub-cores and queues do, and nothing below. One block runs each with 1, 2, 4 and 8 warps
on every sub-core, for few and for many passes; the difference is the cycles of a pass. The sums that a loop leaves in
every thread, and what it wrote to shared memory, have to be right to the last bit in every run.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.core_loop_bodies import (
    GLOBAL_VALUES,
    KINDS,
    LANES,
    LOOPS,
    MOST_THREADS,
    SHARED_WORDS,
    Loop,
    source,
    source_hash,
)
from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin, cache_folder, compile_kernel
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import Kernel, Launch
from gemmsim.pipeline.program import Step, Steps, program_of
from gemmsim.pipeline.programs import rounded
from gemmsim.registers.register_files import register_file

ROOT = Path(__file__).parent.parent
MEASURED = ROOT / "campaigns" / "measured" / "core_loops_h200.jsonl"
PROGRAMS = ROOT / "tests" / "data" / "core_loops.jsonl.gz"
DEVICE = "h200"
WARPS_PER_SUB_CORE = (1, 2, 4, 8)
SUB_CORES = 4
PASSES = (50, 250)
REPEATS = 7
GLOBAL_WORDS = 2**20
ROW_BYTES = 24
WORDS_BACK = MOST_THREADS * ROW_BYTES // 4 + SHARED_WORDS


Made = tuple[Callable[[], Iterator[dict[str, Any]]], Path]
"""What makes lines of a file, and the file."""


class _Source(Kernel):
    """What is compiled: written beside the cubins that the compiler makes."""

    @property
    def source(self) -> Path:
        path = cache_folder() / "core_loops.cu"
        path.write_text(source())
        return path


def compiled() -> Cubin:
    """The cubin of all loops. Raises MachineError where there is no compiler."""
    return compile_kernel(_Source("core_loops", ""), Launch(1, LANES, 0, {}), device(DEVICE).capability)


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
    cubin, of = compiled(), source_hash()
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
    cubin, of = compiled(), source_hash()
    functions = {each.name: each for each in disassembled_file(cubin.path)}
    file = register_file(device(DEVICE).capability)
    for loop in LOOPS:
        program = rounded(program_of(functions[f"loop_{loop.number}"], file, loop.merged))
        kept = {"loop": program["loop"], "source": program["source"]}
        yield {"loop": loop.name, "source": of, "compiler": cubin.compiler, "program": kept}


def steps_of(rows: Sequence[Sequence[Any]]) -> Steps:
    """The steps of a loop as its file has them."""
    return tuple(Step(issue, ready, tuple(waits), *rest) for issue, ready, waits, *rest in rows)


def main() -> None:
    """Write the records, or the programs."""
    write("core_loops", __doc__, (measure, MEASURED), (programs, PROGRAMS))


def write(name: str, about: str | None, measured: Made, of_programs: Made) -> None:
    """What a campaign does from its command line: its records to their file, or its programs, compressed, to theirs."""
    parser = argparse.ArgumentParser(prog=f"campaigns.{name}", description=(about or "").split("\n", 1)[0])
    parser.add_argument("--programs", action="store_true", help="the programs of the loops, without a GPU")
    make, path = of_programs if parser.parse_args().programs else measured
    text = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in make()).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


if __name__ == "__main__":
    main()
