"""The form of `gemmsim registers` that reads a file of FFMA streams: --batch FILE.jsonl."""

from __future__ import annotations

import argparse
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmsim.commands.command import Answer, Document
from gemmsim.errors import InputError, Warn, short
from gemmsim.options import path_text, whole
from gemmsim.registers.reads import PortReport, Stream, simulate
from gemmsim.registers.register_files import register_file

MOST_WARPS = 16
MOST_SHOWN = 40
"""Streams that the terminal shows."""


def add_batch(parser: argparse.ArgumentParser) -> None:
    """The file."""
    parser.add_argument_group("many streams").add_argument(
        "--batch",
        type=path_text,
        metavar="FILE.jsonl",
        help="a stream a line: ffma ([Rd, Ra, Rb, Rc, reuse flags] over one period), stall, yield_bit, and unrolled"
        " (FFMA of the loop body; endless if left out); may be .gz",
    )


def run_batch(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim registers --batch FILE.jsonl"""
    file = register_file("sm_90" if args.arch is None else args.arch)
    warps = 1 if args.warps is None else whole(args.warps, "--warps", 1, MOST_WARPS)
    names, streams = read_batch(args.batch)
    reports = simulate(streams, file, warps)
    return Answer(lambda: document(reports), lambda show: show_batch(names, reports))


def read_batch(path: str | Path) -> tuple[list[str], list[Stream]]:
    """(name, stream) of each line, as two lists; InputError, with its number, for a line that is none."""
    try:
        content = Path(path).read_bytes()
        lines = (gzip.decompress(content) if str(path).endswith(".gz") else content).decode("utf-8-sig").split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:  # gzip raises any of them for what is none
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    found = [_stream(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise InputError(f"{path}: no stream in it")
    return [name for name, _ in found], [stream for _, stream in found]


def _stream(line: str, where: str) -> tuple[str, Stream]:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{where}: not readable as JSON") from None
    ffma = data.get("ffma") if isinstance(data, Mapping) else None
    if not isinstance(ffma, list):
        raise InputError(f"{where}: ffma is {short(ffma)}; needed: a list of [Rd, Ra, Rb, Rc, reuse flags]")
    try:
        stream = Stream.of(ffma, data.get("stall", 1), data.get("yield_bit", 1), data.get("unrolled"))
        return str(data.get("name", where)), stream
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def document(reports: Sequence[PortReport]) -> Document:
    """The JSON document."""
    results: list[dict[str, Any]] = [
        {
            "ffma": each.ffma,
            "cycles_per_ffma": each.cycles_per_ffma,
            "peak_fraction": each.peak_fraction,
            "reuse_hits": each.reuse_hits,
        }
        for each in reports
    ]
    return {"results": results}


def show_batch(names: Sequence[str], reports: Sequence[PortReport]) -> None:
    """The first streams, a row each."""
    from gemmsim.console import line, table
    from gemmsim.units import count, percent

    rows = [
        (name, count(each.ffma), f"{each.cycles_per_ffma:.3f}", percent(each.peak_fraction), count(each.reuse_hits))
        for name, each in list(zip(names, reports, strict=True))[:MOST_SHOWN]
    ]
    table("Streams", ("stream", "FFMA", "cycles per FFMA", "of peak", "reuse hits"), rows)
    if len(reports) > MOST_SHOWN:
        line(f"and {len(reports) - MOST_SHOWN} more; --json has all")
