"""Compile the kernels in their common tilings, and write down how many registers each takes, and how many cycles
the ports of the register file and the issue slots give its main loop.

python -m campaigns.registers

Needs nvcc and its disassembler, no GPU, and some minutes. Run it whenever the sources in `kernels/` have changed:
until then the rows of what has changed are not used.
"""

from __future__ import annotations

import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from campaigns.main_loops import Simulated, simulated
from gemmsim.device import capability
from gemmsim.gpu.compile import Cubin, Job, compile_many
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.ladder import default_tiling
from gemmsim.problem import Problem
from gemmsim.record_files import read_points
from gemmsim.records import Failure
from gemmsim.register_table import SHIPPED, Key, Row, key_of, sources_hash, write_table
from gemmsim.tiling import Tiling

CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "12.0")
PROBLEMS = (Problem(4096, 4096, 4096), Problem(1001, 1903, 2107))
"""Whose rows all start at multiples of four elements, and whose do not: what the widths of accesses hang on."""
HALF_ALIGNED = (Problem(1000, 700, 77), Problem(1000, 77, 700))
"""Where only those of B and C do, and only those of A: for the default tiles."""
CAMPAIGNS = ("ladder.jsonl", "small.jsonl")

BLOCKS = {
    "naive": ("16x16", "32x32", "4x64", "1x256"),
    "shared": ("8x8x8", "16x16x16", "16x16x32", "32x32x16", "16x32x16"),
}
THREAD_TILES = (
    ("64x64x8", "8x8"),
    ("64x64x16", "4x4"),
    ("128x64x8", "8x8"),
    ("64x128x8", "8x8"),
    ("128x64x16", "8x4"),
    ("128x128x16", "8x8"),
    ("128x256x8", "8x16"),
    ("256x128x8", "16x8"),
    ("128x128x8", "8x4"),
)
WARP_NAMES = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")
WARP_TILES = (
    "128x128x8x64x64x16x8",
    "128x128x8x32x64x8x8",
    "192x128x8x48x64x12x8",
    "96x256x8x48x64x12x8",
    "64x256x8x64x64x16x8",
    "64x256x8x32x64x8x8",
    "64x128x8x32x64x8x8",
    "64x128x8x32x32x8x4",
    "64x64x8x32x32x8x4",
    "32x128x8x32x32x8x4",
    "32x64x8x32x16x4x4",
    "32x32x16x16x16x4x2",
)


def common(kernel: Kernel) -> Iterator[Tiling]:
    """Tilings that people try first, beside those of the campaigns."""
    yield default_tiling(kernel)
    names = ("block_m", "block_n", "block_k")
    if not kernel.thread_tiled:
        for text in BLOCKS[kernel.name]:
            yield kernel.tiling(**dict(zip(names, map(int, text.split("x")), strict=False)))
        return
    if kernel.warp_tiled:
        for text in WARP_TILES:
            yield kernel.tiling(**dict(zip(WARP_NAMES, map(int, text.split("x")), strict=True)), pad_a=4)
        return
    for block, thread in THREAD_TILES:
        extents = [int(extent) for extent in f"{block}x{thread}".split("x")]
        yield kernel.tiling(**dict(zip((*names, "thread_m", "thread_n"), extents, strict=True)))


def launches() -> Iterator[tuple[Kernel, Problem, Tiling]]:
    """Every kernel and tiling, for both kinds of problem."""
    campaigns = [point for name in CAMPAIGNS for point in read_points(Path(__file__).parent / name)]
    for kernel in KERNELS.values():
        measured = [point.tiling for point in campaigns if point.kernel == kernel.name]
        for problem in HALF_ALIGNED:
            yield kernel, problem, default_tiling(kernel)
        for tiling, problem in itertools.product((*common(kernel), *measured), PROBLEMS):
            yield kernel, problem, tiling


def asked() -> dict[Key, tuple[Problem, Tiling]]:
    """The first problem and tiling of each row."""
    found: dict[Key, tuple[Problem, Tiling]] = {}
    for kernel, problem, tiling in launches():
        found.setdefault(key_of(kernel.name, kernel.launch(problem, tiling).macros), (problem, tiling))
    return found


def jobs() -> Iterator[Job]:
    """What to compile: every launch for every capability, none twice."""
    seen = set()
    for kernel, problem, tiling in launches():
        launch = kernel.launch(problem, tiling)
        if (key := key_of(kernel.name, launch.macros)) not in seen:
            seen.add(key)
            yield from (Job(kernel, launch, capability(name)) for name in CAPABILITIES if kernel.runs_on(name))


def hashes() -> dict[str, str]:
    """The hash of the sources of each kernel."""
    return {name: sources_hash(kernel) for name, kernel in KERNELS.items()}


def rows(of: list[Job], cubins: list[Cubin], loops: Simulated) -> list[Row]:
    """One row for each kernel and macros."""
    registers: dict[Key, dict[str, int]] = defaultdict(dict)
    spills: dict[Key, dict[str, int]] = defaultdict(dict)
    found: dict[Key, Row] = {}
    for job, cubin in zip(of, cubins, strict=True):
        name, macros = job.kernel.name, dict(job.launch.macros)
        key = key_of(name, macros)
        registers[key][job.capability.name] = cubin.registers_per_thread
        if cubin.spill_bytes:
            spills[key][job.capability.name] = cubin.spill_bytes
        parts = loops.loops.get(key, {}), loops.running.get(key, {})
        found[key] = Row(name, macros, registers[key], spills[key], sources_hash(job.kernel), cubin.compiler, *parts)
    return list(found.values())


def compiled_all(of: list[Job]) -> list[Cubin]:
    """The cubin of each job; an exit with the compiler's error where one does not compile."""
    results = compile_many(of, progress=lambda done, of: print(f"\r{done} of {of}", end="", file=sys.stderr))
    print(file=sys.stderr)
    for job, cubin in zip(of, results, strict=True):
        if isinstance(cubin, Failure):
            sys.exit(f"{job.kernel.name} for {job.capability.sm}: {cubin}")
    return [cubin for cubin in results if isinstance(cubin, Cubin)]


def main() -> None:
    """Compile all, one a core, and write the table that is shipped."""
    every, before = list(jobs()), hashes()
    cubins = compiled_all(every)
    if hashes() != before:
        sys.exit("the sources changed while they were compiled; once more, please")
    table = rows(every, cubins, simulated(every, cubins, asked()))
    write_table(SHIPPED, table)
    print(f"{len(table)} rows of {len(CAPABILITIES)} capabilities: {SHIPPED}")


if __name__ == "__main__":
    main()
