"""The main loops of compiled kernels, simulated: what `campaigns/registers.py` writes down of them."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from gemmsim.compare.loop_shares import residents
from gemmsim.gpu.compile import Cubin, Job, available_cores
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.machine_code.main_loop import MainLoop, main_loop
from gemmsim.main_loops.port_streams import simulate_loops
from gemmsim.main_loops.sub_core import loop_cycles_per_ffma
from gemmsim.problem import Problem
from gemmsim.register_table import Key, key_of
from gemmsim.registers.register_files import register_file
from gemmsim.tiling import Tiling

CAPABILITIES = ("7.5", "8.0", "9.0")
"""One for each kind of register file, since to disassemble takes longest."""
RUN_ON = "9.0"
"""The capability whose latencies are known, and of which there are records."""
DIGITS = 3

Loop = tuple[int, int, float]
"""FFMA, instructions and cycles of a pass."""


@dataclass(frozen=True)
class Simulated:
    """By row and capability: the main loop, and the cycles per FFMA of the warps that fit."""

    loops: Mapping[Key, Mapping[str, Loop]]
    running: Mapping[Key, Mapping[str, float]]


def simulated(jobs: Sequence[Job], cubins: Sequence[Cubin], asked: Mapping[Key, tuple[Problem, Tiling]]) -> Simulated:
    """The main loop of every cubin of these capabilities; `asked` has a problem and the tiling of each row."""
    loops: dict[Key, dict[str, Loop]] = {}
    running: dict[Key, dict[str, float]] = {}
    for name in CAPABILITIES:
        chosen = [each for each in zip(jobs, cubins, strict=True) if each[0].capability.name == name]
        with ThreadPoolExecutor(available_cores()) as pool:
            read = list(pool.map(read_loop, (cubin.path for _, cubin in chosen)))
        for (job, cubin), loop, report in zip(chosen, read, simulate_loops(read, register_file(name)), strict=True):
            key = key_of(job.kernel.name, job.launch.macros)
            loops.setdefault(key, {})[name] = (loop.ffma, report.instructions, round(report.cycles, DIGITS))
            if name == RUN_ON:
                on = residents(job.kernel, *asked[key], job.capability, cubin.registers_per_thread)
                running.setdefault(key, {})[name] = round(loop_cycles_per_ffma(loop, on), DIGITS)
        print(f"{len(read)} main loops of {name}", file=sys.stderr)
    return Simulated(loops, running)


def read_loop(path: Path) -> MainLoop:
    """The main loop of a cubin, which has one kernel."""
    (function,) = disassembled_file(path)
    return main_loop(function)
