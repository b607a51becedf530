"""Compiles the configurations that lead a ranking, one a core, and reads their programs; no GPU is needed."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.gpu.compile import available_cores, compile_kernel
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.kernels import kernel
from gemmsim.pipeline.programs import compiled_program
from gemmsim.problem import Problem
from gemmsim.search.known_code import Compiled
from gemmsim.search.refinement import Tell
from gemmsim.search.scoring import Result
from gemmsim.search.spaces import Space
from gemmsim.tiling import Tiling


def compiled_launches(results: Sequence[Result], spaces: Sequence[Space], tell: Tell) -> list[Compiled | None]:
    """What the compiler makes of each configuration of some spaces of one problem and device; None where it refuses, or
    where the code has no main loop that is understood. Raises MachineError where a tool is missing or does not work."""
    of, found = spaces[0], dict[int, Compiled | None]()
    with ProcessPoolExecutor(min(available_cores(), max(1, len(results)))) as pool:
        started = {
            pool.submit(_compiled, each.kernel.name, of.problem, each.tiling, of.device): at
            for at, each in enumerate(results)
        }
        for done, future in enumerate(as_completed(started), 1):
            found[started[future]] = future.result()
            tell("compiled", done, len(results))
    return [found[at] for at in range(len(results))]


def _compiled(name: str, problem: Problem, tiling: Tiling, on: Device) -> Compiled | None:
    of = kernel(name)
    try:
        cubin = compile_kernel(of, of.launch(problem, tiling), on.capability)
        (function,) = disassembled_file(cubin.path)
        program = compiled_program(function, of, problem, tiling, on)
    except InputError:
        return None
    return Compiled(cubin.registers_per_thread, cubin.local_bytes, program)
