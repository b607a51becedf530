"""Loops that blocks run side by side on one multiprocessor: who goes on, who waits, on an H200; and their programs.

python -m campaigns.core_blocks              on a machine with a GPU: measures them, into campaigns/measured/
python -m campaigns.core_blocks --programs   where nvcc and its disassembler are: what their warps do, into tests/data/

Loops of `core_loop_bodies.py`, as they are and with a barrier at the end of each pass, by as many blocks as make 32
warps: when each block of one multiprocessor ends shows whom it prefers. Every sum that a thread leaves has to be right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from campaigns.core_loop_bodies import GLOBAL_VALUES, KINDS, LANES, LOOPS, MOST_THREADS, SHARED_WORDS, Loop, source
from campaigns.core_loops import DEVICE, GLOBAL_WORDS, MEASURED, PROGRAMS, ROW_BYTES, write
from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin, cache_folder, compile_kernel
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import Kernel, Launch
from gemmsim.pipeline.program import program_of
from gemmsim.pipeline.programs import rounded
from gemmsim.registers.register_files import register_file

FRAME = Path(__file__).with_name("core_blocks.cu")
BLOCKS_MEASURED = MEASURED.with_name("core_blocks_h200.jsonl")
BLOCKS_PROGRAMS = PROGRAMS.with_name("core_blocks.jsonl.gz")
NAMES = (
    "ldg +0", "ldg +4", "lds +0", "lds +1", "lds +2", "lds +4", "lds.64 +4", "lds.128 +4", "lds.128 +16",
    "lds.128.one +0", "lds.128.one +4", "lds.128.one +8", "lds.128.one +16", "sts +4", "sts.128 +8", "ldg lds +2",
    "lds lds lds sts +2", "lds lds.128.one lds.128.one lds.128.one +8", "cp +4", "cp.128 lds.128.one +8",
)  # fmt: skip
SIDE_BY_SIDE = [loop for loop in LOOPS if loop.name in NAMES]
WARPS_OF_BLOCK = (4, 8, 16)
WARPS = 32
PASSES = 400


class _Source(Kernel):
    @property
    def source(self) -> Path:
        path = cache_folder() / "core_blocks.cu"
        path.write_text(blocks_source())
        return path


def name_of(loop: Loop, barrier: bool) -> str:
    """The kernel of a loop."""
    return f"loop_{loop.number}" + "_barrier" * barrier


def blocks_source() -> str:
    """The CUDA source of all loops, without and with barriers."""
    head = source().partition('extern "C"')[0]
    kernels = [
        f'extern "C" __global__ void __launch_bounds__({MOST_THREADS}) {name_of(loop, barrier)}(GIVEN)\n{{\nBEGIN {{\n'
        + "\n".join([*loop.statements(), "__syncthreads();" * barrier])
        + "\n}\nEND\n}\n"
        for loop in SIDE_BY_SIDE
        for barrier in (False, True)
    ]
    return head + FRAME.read_text() + "".join(kernels)


def blocks_hash() -> str:
    """What tells whether a record and a program are of the loops as they are written now."""
    return sha256(blocks_source().encode()).hexdigest()[:16]


def compiled() -> Cubin:
    """The cubin of all loops. Raises MachineError where there is no compiler."""
    return compile_kernel(_Source("core_blocks", ""), Launch(1, LANES, 0, {}), device(DEVICE).capability)


def run(gpu: Gpu, function: Any, memory: Sequence[Any], loop: Loop, warps: int) -> list[int]:
    """Cycles from the first warp's start to the end of each block on multiprocessor 0, by their numbers.
    Raises MachineError where sums are not what the loop has to leave."""
    blocks, threads = WARPS // warps * gpu.facts.sms, warps * LANES
    function(
        *memory, np.int32(PASSES), np.int32(0), np.float32(1), np.float32(1),
        block=(threads, 1, 1), grid=(blocks, 1), shared=4 * SHARED_WORDS,
    )  # fmt: skip
    found = np.empty((blocks * threads, ROW_BYTES // 4), np.float32)
    gpu.driver.memcpy_dtoh(found, memory[0])
    if (found[:, 4].reshape(-1, LANES) != loop.left(PASSES)[0]).any():
        raise MachineError(f"{loop.name} by {blocks} blocks of {threads} leaves other sums than it has to")
    clocks = np.ascontiguousarray(found[:, :4]).view(np.int64).reshape(blocks, threads, 2)
    here = np.ascontiguousarray(found[:, 5]).view(np.uint32).reshape(blocks, threads)[:, 0] == 0
    return [int(end) for end in clocks[here, :, 1].max(axis=1) - clocks[here, :, 0].min()]


def measure() -> Iterator[dict[str, Any]]:
    """A record for each loop: when its blocks end, by their warps."""
    cubin, of = compiled(), blocks_hash()
    with Gpu() as gpu:
        driver, attribute = gpu.driver, gpu.driver.function_attribute
        sizes = (ROW_BYTES * WARPS * LANES * gpu.facts.sms, 4 * GLOBAL_WORDS, 4 * LANES * len(KINDS))
        memory = [driver.mem_alloc(size) for size in sizes]
        driver.memcpy_htod(memory[1], (np.arange(GLOBAL_WORDS) % GLOBAL_VALUES).astype(np.float32))
        driver.memcpy_htod(memory[2], np.concatenate([each.lane_words for each in KINDS.values()]).astype(np.int32))
        module = driver.module_from_buffer(cubin.path.read_bytes())
        first = module.get_function(name_of(SIDE_BY_SIDE[0], False))
        environment = software(gpu.facts, cubin.compiler) | under_load(
            gpu.facts, lambda: run(gpu, first, memory, SIDE_BY_SIDE[0], WARPS_OF_BLOCK[-1])
        )
        for loop in SIDE_BY_SIDE:
            for barrier in (False, True):
                function = module.get_function(name_of(loop, barrier))
                function.set_attribute(attribute.PREFERRED_SHARED_MEMORY_CARVEOUT, 100)
                for warps in WARPS_OF_BLOCK:
                    run(gpu, function, memory, loop, warps)  # brings code and data into the caches
                    ends = run(gpu, function, memory, loop, warps)
                    yield {
                        "loop": loop.name, "barrier": barrier, "warps": warps, "passes": PASSES, "source": of,
                        "ends": ends, "environment": environment,
                    }  # fmt: skip
        for each in memory:
            each.free()


def programs() -> Iterator[dict[str, Any]]:
    """The program of each loop, without and with barriers."""
    cubin, of = compiled(), blocks_hash()
    functions = {each.name: each for each in disassembled_file(cubin.path)}
    file = register_file(device(DEVICE).capability)
    for loop in SIDE_BY_SIDE:
        for barrier in (False, True):
            steps = rounded(program_of(functions[name_of(loop, barrier)], file, loop.merged))["loop"]
            yield {
                "loop": loop.name, "barrier": barrier, "source": of, "compiler": cubin.compiler, "steps": steps,
            }  # fmt: skip


def main() -> None:
    """Write the records, or the programs."""
    write("core_blocks", __doc__, (measure, BLOCKS_MEASURED), (programs, BLOCKS_PROGRAMS))


if __name__ == "__main__":
    main()
