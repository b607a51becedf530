"""What each command of the command line does: options in, an answer out."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from gemmsim import answers
from gemmsim.compare import Comparison, compare
from gemmsim.device import Device, device, devices
from gemmsim.errors import InputError
from gemmsim.explain import Decomposition, explain
from gemmsim.measure import measure
from gemmsim.occupancy import occupancy
from gemmsim.options import (
    MOST_REGISTERS,
    Configuration,
    add_device,
    add_launch,
    add_registers,
    add_run,
    configuration,
    registers_of,
)
from gemmsim.predict import Prediction, predict
from gemmsim.records import Point, Record, read_points, read_records, shipped_records
from gemmsim.traffic import traffic

Found = TypeVar("Found", Decomposition, Prediction)
Warn = Callable[[str], None]


@dataclass(frozen=True)
class Answer:
    """What a command has found. `show` gets the module `gemmsim.show`, which only tables need."""

    document: Callable[[], answers.Document]
    show: Callable[[Any], None]
    ok: bool = True


@dataclass(frozen=True)
class Command:
    """One command: what it does, an example, what adds its options, and the work; warnings go to `Warn`."""

    summary: str
    example: str
    options: tuple[Callable[[argparse.ArgumentParser], None], ...]
    run: Callable[[argparse.Namespace, Warn], Answer]


def run_explain(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim explain"""
    asked = configuration(args)
    registers, spills = _registers(args, asked)
    found = _marked(explain(asked.problem, asked.kernel, asked.tiling, registers), args)
    resources = found.resources
    resident = occupancy(
        asked.device.capability,
        resources.threads,
        resources.registers_per_thread,
        dynamic_shared_bytes=resources.shared_bytes,
    )
    warnings = spills or _at_the_limit(resources.registers_per_thread)
    _each(warnings, warn)
    return Answer(
        lambda: answers.explanation(asked, found, resident, warnings),
        lambda show: show.explanation(asked, found, resident),
    )


def run_traffic(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim traffic"""
    asked = configuration(args)
    counted = traffic(asked.problem, asked.kernel, asked.tiling)
    return Answer(lambda: answers.traffic(asked, counted), lambda show: show.traffic(asked, counted))


def run_predict(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim predict"""
    asked = configuration(args)
    registers, spills = _registers(args, asked)
    found = _marked(predict(asked.problem, asked.kernel, asked.tiling, asked.device, registers), args)
    warnings = spills or _at_the_limit(found.resources.registers_per_thread)
    _each(warnings, warn)
    return Answer(
        lambda: answers.prediction(asked, found, warnings),
        lambda show: show.prediction(asked, found),
    )


def run_measure(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim measure"""
    records = _measured(args, warn)
    return Answer(lambda: answers.records(records), lambda show: show.records(records), _all_ok(records))


def run_validate(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim validate"""
    records = _measured(args, warn)
    on = _device(args) or device(records[0].device)
    some = any(record.ok for record in records)
    found = compare(records, on) if some else Comparison(on, (), {}, tuple(records))
    return Answer(lambda: answers.comparison(found), lambda show: show.comparison(found), _all_ok(records))


def run_compare(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim compare"""
    records, warnings = read_records(Path(args.records) if args.records is not None else shipped_records())
    _each(warnings, warn)
    found = compare(records, device(_only_device(records) if args.device is None else args.device))
    return Answer(lambda: answers.comparison(found, warnings), lambda show: show.comparison(found))


def run_report(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim report"""
    from gemmsim.report import write_report  # imports Matplotlib, which takes long

    records = None if args.records is None else Path(args.records)
    files = write_report(records, Path(args.out), _device(args))
    return Answer(lambda: {"files": files}, lambda show: show.files(files))


def run_devices(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim devices"""
    if args.name is not None:
        one = device(args.name)
        return Answer(lambda: answers.devices([one]), lambda show: show.device(one))
    found = [device(name) for name in devices()]
    return Answer(lambda: answers.devices(found), lambda show: show.devices(found))


def _registers(args: argparse.Namespace, asked: Configuration) -> tuple[int | None, list[str]]:
    """(registers a thread where --registers or --compile tell them, warnings of spills)."""
    given = registers_of(args)
    if not args.compile:
        return given, []
    from gemmsim.gpu.compile import compile_kernel

    cubin = compile_kernel(asked.kernel, asked.kernel.launch(asked.problem, asked.tiling), asked.device.capability)
    spilled = f"the compiler spills {cubin.spill_bytes} bytes a thread to local memory; the time of that is not counted"
    return cubin.registers_per_thread, [spilled] if cubin.spill_bytes else []


def _at_the_limit(registers_per_thread: int) -> list[str]:
    """A warning where registers run out. Such kernels can be the fastest all the same: none is excluded."""
    if registers_per_thread < MOST_REGISTERS:
        return []
    return [
        f"{registers_per_thread} registers are the most that a thread has; what exceeds them spills to local memory,"
        " the time of which is not counted"
    ]


def _marked(found: Found, args: argparse.Namespace) -> Found:
    """The same, saying that its registers are those of --registers if they are."""
    return replace(found, resources=replace(found.resources, source="given")) if args.registers is not None else found


def _measured(args: argparse.Namespace, warn: Warn) -> list[Record]:
    """The records of the points that are asked for, measured on the GPU here."""
    from gemmsim.console import progress

    points = _points(args)
    with progress() as tell:
        return measure(points, args.out, args.counters, args.resume, not args.no_flush, tell, warn, _device(args))


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
    return None if args.device is None else device(args.device)


def _all_ok(records: Sequence[Record]) -> bool:
    return all(record.ok for record in records)


def _only_device(records: Sequence[Record]) -> str:
    """The device that all records are of; InputError where there are several to choose from."""
    names = list(dict.fromkeys(record.device for record in records))
    if len(names) > 1:
        raise InputError(f"records of {len(names)} devices: {', '.join(names)}; choose one with --device")
    return names[0]


def _each(warnings: Sequence[str], warn: Warn) -> None:
    for warning in warnings:
        warn(warning)


def _add_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "records", nargs="?", metavar="RECORDS.jsonl", help="records to read (default: the shipped ones)"
    )
    parser.add_argument("--device", metavar="NAME|FILE.toml", help="the GPU whose records count, if there are several")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", required=True, metavar="DIR", help="folder to write into; made if it is not there")


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="one GPU, each of its numbers with its source")


_TEXTBOOK = "2048 --kernel double_buffer --tile 128x128x8 --thread 8x8"

COMMANDS = {
    "explain": Command(
        "how a launch divides the work, step by step, and what it takes",
        _TEXTBOOK,
        (add_launch, add_device, add_registers),
        run_explain,
    ),
    "traffic": Command(
        "reads, requests and bytes at every level of the memory", _TEXTBOOK, (add_launch, add_device), run_traffic
    ),
    "predict": Command(
        "time of a launch, and what bounds it",
        "4096 --kernel vectorized --device h200",
        (add_launch, add_device, add_registers),
        run_predict,
    ),
    "measure": Command(
        "run kernels on the GPU here: verified, timed, recorded",
        "--points points.jsonl --out records.jsonl --resume",
        (add_launch, add_run),
        run_measure,
    ),
    "validate": Command(
        "predict, run on the GPU here, compare",
        "4096 --kernel vectorized --counters",
        (add_launch, add_run),
        run_validate,
    ),
    "compare": Command(
        "predictions against measured records", "records.jsonl --device h200", (_add_records,), run_compare
    ),
    "report": Command("a page with pictures of records", "--out reports", (_add_records, _add_folder), run_report),
    "devices": Command("the GPUs known, each number with its source", "h200", (_add_name,), run_devices),
}
