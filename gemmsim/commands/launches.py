"""`gemmsim explain`, `traffic`, `predict` and `ladder`: what the model says of launches."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from gemmsim import answers, register_table
from gemmsim.caches.traffic import cache_traffic
from gemmsim.commands.command import Answer, warn_each
from gemmsim.commands.record_files import read
from gemmsim.commands.why import run_why
from gemmsim.device import Device
from gemmsim.errors import InputError, MachineError, Warn
from gemmsim.explain import Decomposition, explain
from gemmsim.kernels import MOST_REGISTERS
from gemmsim.ladder import climb
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.main_loops.port_shares import PortShare, port_share
from gemmsim.main_loops.port_streams import simulate_loops
from gemmsim.options import Configuration, configuration, device_of, problem_of, registers_of
from gemmsim.pipeline.program import Program
from gemmsim.pipeline.programs import compiled_program
from gemmsim.predict import Prediction, resident_blocks
from gemmsim.problem import Problem
from gemmsim.registers.register_files import register_file
from gemmsim.routes import predicted_time
from gemmsim.traffic import traffic
from gemmsim.units import si

Found = TypeVar("Found", Decomposition, Prediction)


def run_explain(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim explain"""
    if args.why is not None:
        return run_why(args, warn, _predicted)
    asked = configuration(args)
    code = _code(args, asked)
    found = _marked(explain(asked.problem, asked.kernel, asked.tiling, code.registers_per_thread), args)
    resident = resident_blocks(found.resources, asked.device)
    ports = code.ports or port_share(asked.kernel, asked.problem, asked.tiling, asked.device.capability)
    warnings = code.spills or _at_the_limit(found.resources.registers_per_thread)
    warn_each(warnings, warn)
    return Answer(
        lambda: answers.explanation(asked, found, resident, ports, warnings),
        lambda show: show.explanation(asked, found, resident, ports, args.edges),
    )


def run_traffic(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim traffic"""
    asked = configuration(args)
    counted = traffic(asked.problem, asked.kernel, asked.tiling)
    taken = register_table.resources(asked.kernel, asked.problem, asked.tiling, asked.device.capability)
    resident = int(resident_blocks(taken, asked.device).blocks_per_sm)
    caches = cache_traffic(asked.problem, asked.kernel, asked.tiling, asked.device, resident) if resident else None
    return Answer(lambda: answers.traffic(asked, counted, caches), lambda show: show.traffic(asked, counted, caches))


def run_predict(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim predict"""
    asked = configuration(args)
    found, warnings = _predicted(args, asked, args.route)
    warn_each(warnings, warn)
    return Answer(
        lambda: answers.prediction(asked, found, warnings),
        lambda show: show.prediction(asked, found),
    )


def run_ladder(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim ladder"""
    problem, on = problem_of(args.sizes, args.dtype), device_of(args.device)
    records, warnings = read(args.records)
    warnings += _too_large(problem, on)
    warn_each(warnings, warn)
    found = climb(problem, on, records, args.route)
    return Answer(lambda: answers.ladder(found, warnings), lambda show: show.ladder(found))


def _predicted(args: argparse.Namespace, asked: Configuration, route: str = "analytic") -> tuple[Prediction, list[str]]:
    """(prediction, warnings), its registers and its program from where the options say."""
    code = _code(args, asked)
    found = predicted_time(
        asked.problem,
        asked.kernel,
        asked.tiling,
        asked.device,
        route,
        code.registers_per_thread,
        code.ports,
        code.program,
        code.local_bytes,
    )
    found = _marked(found, args)
    warnings = code.spills or _at_the_limit(found.resources.registers_per_thread)
    return found, warnings + _too_large(asked.problem, asked.device)


class Code(NamedTuple):
    """What is known of the machine code of a launch: registers a thread, warnings of spills; and where it is compiled,
    what register ports leave in its main loop, and the program of its warps."""

    registers_per_thread: int | None
    spills: list[str]
    ports: PortShare | None = None
    program: Program | None = None
    local_bytes: int = 0


def _code(args: argparse.Namespace, asked: Configuration) -> Code:
    """What --registers, --compile or the table tell of the machine code."""
    given = registers_of(args)
    if given is not None or not args.compile:
        known = register_table.compiled(asked.kernel, asked.problem, asked.tiling, asked.device.capability)
        if known is None or given not in (None, known.registers_per_thread):
            return Code(given, [])
        return Code(known.registers_per_thread, [], local_bytes=known.local_bytes)
    from gemmsim.gpu.compile import compile_kernel

    cubin = compile_kernel(asked.kernel, asked.kernel.launch(asked.problem, asked.tiling), asked.device.capability)
    spills = [f"the compiler spills {cubin.spill_bytes} bytes a thread to local memory"] if cubin.spill_bytes else []
    return Code(cubin.registers_per_thread, spills, *_main_loop(cubin.path, asked), cubin.local_bytes)


def _main_loop(cubin: Path, asked: Configuration) -> tuple[PortShare | None, Program | None]:
    """(what register ports leave in the main loop of a cubin, its program); None where that cannot be read."""
    from gemmsim.gpu.disassemble import disassembled_file

    try:
        (function,) = disassembled_file(cubin)
        file = register_file(asked.device.capability)
        (report,) = simulate_loops([main_loop(function)], file)
        program = compiled_program(function, asked.kernel, asked.problem, asked.tiling, asked.device)
    except (InputError, MachineError):  # no disassembler, no loop, an unknown register file
        return None, None
    return report.share(file), program


def _at_the_limit(registers_per_thread: int) -> list[str]:
    """A warning where registers run out. Such kernels can be the fastest all the same: none is excluded."""
    if registers_per_thread < MOST_REGISTERS:
        return []
    return [
        f"{registers_per_thread} registers are the most that a thread has; what exceeds them spills to local memory,"
        " the time of which is a guess"
    ]


def _too_large(problem: Problem, on: Device) -> list[str]:
    """A warning where the matrices do not fit into the memory of the device."""
    if on.dram_bytes is None or problem.compulsory_bytes <= on.dram_bytes:
        return []
    return [
        f"A, B and C take {si(problem.compulsory_bytes, 'B')}, and {on.name} has {si(on.dram_bytes, 'B')} of memory:"
        " this cannot run there"
    ]


def _marked(found: Found, args: argparse.Namespace) -> Found:
    """The same, saying where its registers are from: the model takes all that it is told for the compiler's."""
    if args.compile or found.resources.source == "estimate":
        return found
    source = register_table.TABLE if args.registers is None else "given"
    return replace(found, resources=replace(found.resources, source=source))
