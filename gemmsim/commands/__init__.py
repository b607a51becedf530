"""What each command of the command line does: options in, an answer out."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, TypeVar

from gemmsim import answers, register_table
from gemmsim.caches.traffic import cache_traffic
from gemmsim.cluster import MOST_WORKERS, measure_with_workers
from gemmsim.commands.banks import add_banks, run_banks
from gemmsim.commands.calibrate import add_calibrate, run_calibrate
from gemmsim.commands.coalescing import add_coalescing, run_coalescing
from gemmsim.commands.command import Answer, Command
from gemmsim.commands.completion import add_completion, run_completion
from gemmsim.commands.occupancy import add_occupancy, run_occupancy
from gemmsim.commands.plot import add_plot, run_plot
from gemmsim.commands.rank import add_rank, run_rank
from gemmsim.commands.rearrange import add_rearrange, run_rearrange
from gemmsim.commands.record_files import only_device, read, refusing_points
from gemmsim.commands.registers import add_registers as add_register_forms
from gemmsim.commands.registers import run_registers
from gemmsim.commands.search import add_search, run_search
from gemmsim.commands.timeline import add_timeline, run_timeline
from gemmsim.commands.why import add_why, run_why
from gemmsim.compare import Comparison, compare
from gemmsim.device import Device, device, devices
from gemmsim.errors import InputError, MachineError, Warn
from gemmsim.explain import Decomposition, explain
from gemmsim.kernels import MOST_REGISTERS
from gemmsim.ladder import climb
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.measure import measure
from gemmsim.options import (
    Configuration,
    add_device,
    add_edges,
    add_folder,
    add_launch,
    add_measured,
    add_name,
    add_problem,
    add_records,
    add_registers,
    add_route,
    add_run,
    configuration,
    device_of,
    problem_of,
    registers_of,
    whole,
)
from gemmsim.pipeline.program import Program
from gemmsim.pipeline.programs import compiled_program
from gemmsim.port_shares import PortShare, port_share
from gemmsim.port_streams import simulate_loops
from gemmsim.predict import Prediction, resident_blocks
from gemmsim.problem import Problem
from gemmsim.record_files import read_points
from gemmsim.records import Point, Record
from gemmsim.registers.register_files import register_file
from gemmsim.routes import predicted_time, route_named
from gemmsim.traffic import traffic
from gemmsim.units import plural, si

MANY_RECORDS = 1000
"""So many take seconds."""

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
    _each(warnings, warn)
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
    _each(warnings, warn)
    return Answer(
        lambda: answers.prediction(asked, found, warnings),
        lambda show: show.prediction(asked, found),
    )


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


def run_ladder(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim ladder"""
    problem, on = problem_of(args.sizes, args.dtype), device_of(args.device)
    records, warnings = read(args.records)
    warnings += _too_large(problem, on)
    _each(warnings, warn)
    found = climb(problem, on, records, args.route)
    return Answer(lambda: answers.ladder(found, warnings), lambda show: show.ladder(found))


def run_measure(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim measure"""
    records = _measured(args, warn)
    return Answer(lambda: answers.records(records), lambda show: show.records(records), _all_ok(records))


def run_validate(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim validate"""
    route_named(args.route)
    records = _measured(args, warn)
    on = _device(args) or device(records[0].device)
    some = any(record.ok for record in records)
    found = compare(records, on, args.route) if some else Comparison(on, (), {}, tuple(records))
    return Answer(lambda: answers.comparison(found), lambda show: show.comparison(found), _all_ok(records))


def run_compare(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim compare"""
    records, warnings = read(args.records)
    _each(warnings, warn)
    on = _device(args) or device(only_device(records))
    with _telling(f"comparing {plural(len(records), 'record')}", len(records)):
        found = compare(records, on, args.route)
    return Answer(lambda: answers.comparison(found, warnings), lambda show: show.comparison(found))


def run_report(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim report"""
    os.environ["MPLBACKEND"] = "agg"  # no window opens, whatever a notebook around this asks Matplotlib for
    from gemmsim.report import write_report  # imports Matplotlib, which takes long

    records = None if args.records is None else Path(args.records)
    warnings: list[str] = []

    def tell(text: str) -> None:
        warnings.append(text)
        warn(text)

    with refusing_points(args.records):
        files = write_report(records, Path(args.out), _device(args), tell)
    return Answer(lambda: {"files": files, "warnings": warnings}, lambda show: show.files(files))


def run_devices(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim devices"""
    if args.name is not None:
        one = device_of(args.name)
        return Answer(lambda: answers.devices([one]), lambda show: show.device(one))
    found = [device(name) for name in devices()]
    return Answer(lambda: answers.devices(found), lambda show: show.devices(found))


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


def _measured(args: argparse.Namespace, warn: Warn) -> list[Record]:
    """The records of the points that are asked for, measured on the GPU here."""
    from gemmsim.console import progress

    points = _points(args)
    common = (args.counters, args.resume, not args.no_flush)
    if args.workers is not None and args.scheduler is not None:
        raise InputError("--workers starts workers here and --scheduler has its own; give one")
    with progress() as tell:
        if args.workers is not None or args.scheduler is not None:
            workers = None if args.workers is None else whole(args.workers, "--workers", 1, MOST_WORKERS)
            return measure_with_workers(points, args.out, workers, args.scheduler, *common, tell, warn, _device(args))
        return measure(points, args.out, *common, tell, warn, _device(args))


def _points(args: argparse.Namespace) -> list[Point]:
    """The points of --points, or the one that the other options describe."""
    if args.points is None:
        asked = configuration(args)
        return [Point(asked.problem, asked.kernel.name, asked.tiling)]
    if args.sizes or args.kernel is not None:
        raise InputError(f"--points {args.points} brings its own sizes and kernels; give either those or sizes")
    if args.out is not None and Path(args.out).resolve() == Path(args.points).resolve():
        raise InputError(f"--out {args.out} is the file of the points; records need one of their own")
    return read_points(args.points)


def _device(args: argparse.Namespace) -> Device | None:
    """The GPU that --device names, if it is given."""
    return None if args.device is None else device_of(args.device)


def _all_ok(records: Sequence[Record]) -> bool:
    return all(record.ok for record in records)


def _telling(text: str, records: int) -> AbstractContextManager[None]:
    """Tells that work goes on, where there are so many records that somebody would wonder."""
    if records <= MANY_RECORDS:
        return nullcontext()
    from gemmsim.console import working

    return working(text)


def _each(warnings: Sequence[str], warn: Warn) -> None:
    for warning in warnings:
        warn(warning)


_TEXTBOOK = "2048 --kernel double_buffer --tile 128x128x8 --thread 8x8"
_ONE = "M [N K] --kernel K [options]"
_ONE_OR_MANY = "(M [N K] --kernel K | --points FILE.jsonl) [options]"

COMMANDS: dict[str, Command] = {
    "ladder": Command(
        "all kernels at one problem, predicted and where known measured",
        "M [N K] [options]",
        "4096 --device h200",
        (add_problem, add_device, add_measured, add_route),
        run_ladder,
    ),
    "explain": Command(
        "how a launch divides the work, step by step, and what it takes",
        "M [N K] (--kernel K | --why A B) [options]",
        _TEXTBOOK,
        (add_launch, add_device, add_registers, add_edges, add_why),
        run_explain,
    ),
    "traffic": Command(
        "reads, requests and bytes at every level of the memory", _ONE, _TEXTBOOK, (add_launch, add_device), run_traffic
    ),
    "predict": Command(
        "time of a launch, and what bounds it",
        _ONE,
        "4096 --kernel vectorized --device h200",
        (add_launch, add_device, add_registers, add_route),
        run_predict,
    ),
    "search": Command(
        "every legal configuration ranked by predicted time, and why the first is first",
        "M [N K] [options]",
        "4096 --kernel warp_tiled --where block_k==8 --where thread_m==16 --top 5",
        (add_search,),
        run_search,
    ),
    "timeline": Command(
        "what the warps of a multiprocessor do over two large iterations",
        "M [N K] --kernel K [options]",
        "2048 --kernel vectorized --tile 128x128x8 --beside double_buffer --picture timeline.svg",
        (add_launch, add_device, add_timeline),
        run_timeline,
    ),
    "measure": Command(
        "run kernels on the GPU here: verified, timed, recorded",
        _ONE_OR_MANY,
        "--points points.jsonl --out records.jsonl --resume",
        (add_launch, add_run),
        run_measure,
    ),
    "validate": Command(
        "predict, run on the GPU here, compare",
        _ONE_OR_MANY,
        "4096 --kernel vectorized --counters",
        (add_launch, add_run, add_route),
        run_validate,
    ),
    "compare": Command(
        "predictions against measured records",
        "[RECORDS.jsonl] [options]",
        "records.jsonl --device h200",
        (add_records, add_route),
        run_compare,
    ),
    "report": Command(
        "a page with pictures of records",
        "[RECORDS.jsonl] --out DIR [options]",
        "--out reports",
        (add_records, add_folder),
        run_report,
    ),
    "plot": Command(
        "one picture of the model or of records, as a file",
        "NAME [M [N K]] --out FILE [options]",
        "roofline 4096 --out roofline.pdf --style paper",
        (add_plot,),
        run_plot,
    ),
    "occupancy": Command(
        "what fits on a multiprocessor, what limits it, and the nearest cliffs",
        "(--threads T --registers R | M [N K] --kernel K | --batch FILE.csv) [options]",
        "--cc 9.0 --threads 256 --registers 122 --dynamic-shared 16384",
        (add_occupancy,),
        run_occupancy,
    ),
    "banks": Command(
        "passes of a warp through the banks of shared memory, and why",
        "(EXPR [options] | --batch FILE.jsonl | --kernel K [options])",
        "lane//2%4 --width 128",
        (add_banks,),
        run_banks,
    ),
    "coalescing": Command(
        "sectors and lines of global memory that a warp touches",
        "(EXPR [options] | --batch FILE.jsonl)",
        "tx+ty*100 --block 16x16",
        (add_coalescing,),
        run_coalescing,
    ),
    "registers": Command(
        "register ports of an FFMA stream: a thread tile, compiled code, a file of streams",
        "(--thread RMxRN | --sass FILE | --cubin FILE | --batch FILE.jsonl) [options]",
        "--thread 8x8 --order serpentine",
        (add_register_forms,),
        run_registers,
    ),
    "rearrange": Command(
        "the FFMA of a compiled main loop in a better order, proved, as a cubin",
        "(KERNEL [M [N K]] | CUBIN) (--out CUBIN | --dry-run) [options]",
        "async --dry-run",
        (add_rearrange,),
        run_rearrange,
    ),
    "rank": Command(
        "a search space that others measured, ranked without measuring",
        "[M [N K]] --kernel-tuner FILE [options]",
        "--kernel-tuner RTX_3090.csv.gz --device rtx-3090",
        (add_rank,),
        run_rank,
    ),
    "calibrate": Command(
        "microbenchmarks on the GPU here: what it does, where nobody says",
        "([PART…] --out FILE.toml | registers --out FILE.jsonl) [options]",
        "--out my-gpu.toml",
        (add_calibrate,),
        run_calibrate,
    ),
    "devices": Command(
        "the GPUs known, each number with its source", "[NAME|FILE.toml] [options]", "h200", (add_name,), run_devices
    ),
    "completion": Command(
        "a script that lets a shell complete commands, options and names",
        "bash|zsh|fish",
        "bash",
        (add_completion,),
        lambda args, _: run_completion(args, COMMANDS),
    ),
}
