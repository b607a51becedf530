"""`gemmsim calibrate`: microbenchmarks on the GPU here, of the whole machine or of how registers are read."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmsim.calibration.files import CalibrationFile
from gemmsim.commands.command import Answer
from gemmsim.errors import InputError, Warn
from gemmsim.gpu.calibrate import PARTS
from gemmsim.machine_code.loop_bodies import LoopBody, read_loop_bodies
from gemmsim.machine_code.register_variants import variants
from gemmsim.options import path_text
from gemmsim.record_files import check_writable

REGISTERS = "registers"


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    """What is measured, and where to."""
    add = parser.add_argument
    add(
        "part",
        nargs="*",
        metavar="PART",
        help=f"what to measure: {', '.join(PARTS)} (all of these, where none is named), or {REGISTERS} alone: how"
        " registers are read",
    )
    add(
        "--out",
        required=True,
        type=path_text,
        metavar="FILE.toml",
        help="write each part to this file as soon as it is measured; of registers, append every record (FILE.jsonl)",
    )
    add("--resume", action="store_true", help="take from that file what is done already")
    add(
        "--streams",
        type=path_text,
        metavar="FILE.jsonl",
        help="registers: streams to measure instead of our own, as `gemmsim registers --batch` takes them",
    )
    add("--only", metavar="TEXT", help="registers: only the streams that have this in their names")


def run_calibrate(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim calibrate"""
    for part in args.part:
        if part not in (*PARTS, REGISTERS):
            raise InputError(f"{part} cannot be calibrated; known: {', '.join((*PARTS, REGISTERS))}")
    if REGISTERS in args.part:
        return _registers(args, warn)
    for option in ("streams", "only"):
        if getattr(args, option) is not None:
            raise InputError(f"--{option} belongs to {REGISTERS}; name that part alone")
    check_writable(args.out)
    from gemmsim.console import progress
    from gemmsim.gpu.calibration_campaign import calibrate

    parts = list(dict.fromkeys(args.part)) or list(PARTS)
    with progress() as tell:
        found, failures = calibrate(parts, args.out, args.resume, tell, warn)
    return Answer(
        lambda: _document(found, failures, args.out), lambda show: _show(found, failures, args.out), not failures
    )


def _registers(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim calibrate registers"""
    if len(args.part) > 1:
        raise InputError(f"{REGISTERS} has a file of its own; calibrate {' '.join(args.part)} in two runs")
    bodies = chosen(variants() if args.streams is None else read_loop_bodies(args.streams), args.only)
    check_writable(args.out)
    from gemmsim.console import progress
    from gemmsim.gpu.register_campaign import measure_bodies, read_done

    done = read_done(args.out) if args.resume else []
    with progress() as tell:
        records = measure_bodies(bodies, args.out, done, tell, warn)
    failed = [record for record in records if "failure" in record]
    return Answer(lambda: {"records": records}, lambda show: show_records(records), not failed)


def chosen(bodies: Sequence[LoopBody], only: str | None) -> list[LoopBody]:
    """The bodies with that text in their names; InputError where none has it."""
    found = [body for body in bodies if only is None or only in body.name]
    if not found:
        raise InputError(f"no stream has {only!r} in its name; the first is {bodies[0].name!r}")
    return found


def _document(found: CalibrationFile, failures: Mapping[str, str], out: str) -> dict[str, Any]:
    """The file's numbers, and the parts that it has, as JSON."""
    return {
        "device": found.device,
        "file": str(Path(out)),
        "calibration": {
            name: {"value": entry.value, "source": entry.source, "samples": list(entry.samples)}
            for name, entry in found.entries.items()
        },
        "parts": list(found.parts),
        "failures": dict(failures),
    }


def _show(found: CalibrationFile, failures: Mapping[str, str], out: str) -> None:
    """A line for each number: its value, and the least and the most of its samples."""
    from gemmsim.console import line, table

    rows = [
        (name, *(f"{value:.6g}" for value in (entry.value, *_extremes(entry.samples, entry.value))))
        for name, entry in found.entries.items()
    ]
    table(f"Calibration of {found.device}", ("", "median", "least", "most"), rows)
    for part, reason in failures.items():
        line(f"{part} failed: {reason}")
    line(f"Written to {out}. A GPU that gemmsim ships takes it from gemmsim/data/calibration/{found.device}.toml.")


def _extremes(samples: Sequence[float], value: float) -> tuple[float, float]:
    return min(samples, default=value), max(samples, default=value)


def show_records(records: Sequence[Mapping[str, Any]]) -> None:
    """A line for each stream: cycles per FFMA with 1, 2, 4 and 8 warps a sub-core."""
    from gemmsim.console import table

    warps = ("1", "2", "4", "8")
    rows = []
    for record in records:
        steady = record.get("steady_cycles_per_ffma_by_warps", {})
        numbers = [f"{steady[each]:.3f}" if each in steady else "-" for each in warps]
        rows.append((record["name"], *numbers, record.get("failure", "")))
    columns = ("stream", "1 warp", "2 warps", "4 warps", "8 warps", "")
    table("Cycles per FFMA, the loop's own instructions taken off", columns, rows, text=(0, 5))
