"""`gemmsim calibrate registers`: microbenchmarks of register reads on the GPU here."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from gemmsim.commands.command import Answer
from gemmsim.errors import InputError, Warn
from gemmsim.machine_code.loop_bodies import LoopBody, read_loop_bodies
from gemmsim.machine_code.register_variants import variants
from gemmsim.options import path_text
from gemmsim.record_files import check_writable

PARTS = ("registers",)


def add_calibrate(parser: argparse.ArgumentParser) -> None:
    """What is measured, and where to."""
    add = parser.add_argument
    add("part", metavar="registers", help="what to measure: how registers are read")
    add("--out", required=True, type=path_text, metavar="FILE.jsonl", help="append every record to this file at once")
    add("--resume", action="store_true", help="take from that file what is done already")
    add(
        "--streams",
        type=path_text,
        metavar="FILE.jsonl",
        help="streams to measure instead of our own, as `gemmsim registers --batch` takes them",
    )
    add("--only", metavar="TEXT", help="only the streams that have this in their names")


def run_calibrate(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim calibrate"""
    if args.part not in PARTS:
        raise InputError(f"{args.part} cannot be calibrated; known: {', '.join(PARTS)}")
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
