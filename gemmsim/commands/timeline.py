"""`gemmsim timeline`: what the warps of a multiprocessor do over two large iterations."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gemmsim.answers import timeline
from gemmsim.commands.command import Answer, Document
from gemmsim.commands.pictures import PICTURES, picture_path, write_picture
from gemmsim.errors import InputError, Warn, short
from gemmsim.explain.narrate import hiding
from gemmsim.kernels import Kernel
from gemmsim.options import configuration, kernel_of, path_text
from gemmsim.pipeline.timeline import MEANINGS, Timeline
from gemmsim.pipeline.trace import chrome_trace
from gemmsim.scenes import same_tiling, timeline_of
from gemmsim.tiling import Tiling
from gemmsim.units import count, percent, plural, words
from gemmsim.whole_files import check_whole, write_whole


def add_timeline(parser: argparse.ArgumentParser) -> None:
    """What to lay beside it, and the files."""
    add_beside(parser)
    add = parser.add_argument
    add("--picture", type=path_text, metavar="FILE", help=f"draw one sub-core into this file, {', '.join(PICTURES)}")
    add(
        "--trace",
        type=path_text,
        metavar="FILE.json",
        help="write every warp as a Chrome trace, for chrome://tracing and Perfetto",
    )


def add_beside(parser: argparse.ArgumentParser) -> None:
    """Another kernel."""
    parser.add_argument(
        "--beside", metavar="K", help="another kernel beside it in a timeline, with as much of its tiling as that has"
    )


def run_timeline(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim timeline"""
    asked = configuration(args)
    picture = None if args.picture is None else picture_path(args.picture)
    trace = None if args.trace is None else _trace_path(args.trace)
    launches = [(asked.kernel, asked.tiling)]
    if args.beside is not None:
        launches.append(beside(args.beside, asked.tiling))
    found = [timeline_of(asked.problem, kernel, tiling, asked.device) for kernel, tiling in launches]
    files = [path for path in (picture, trace) if path is not None]
    if trace is not None:
        write_whole(json.dumps(chrome_trace(found), separators=(",", ":")).encode(), trace)
    if picture is not None:
        from gemmsim.plots import figures  # imports Matplotlib, which takes long

        write_picture(figures.timeline(found), picture)
    return Answer(lambda: _document(found, files), lambda show: _show(found, files, show))


def beside(name: str, tiling: Tiling) -> tuple[Kernel, Tiling]:
    """The kernel of that name, and what it has of a tiling."""
    other = kernel_of(name)
    try:
        return other, same_tiling(other, tiling)
    except InputError as error:
        raise InputError(f"--beside {name} does not take this tiling: {error}") from None


def _trace_path(text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() != ".json":
        raise InputError(f"--trace {short(text)} is no trace that can be written; allowed: a file that ends in .json")
    check_whole(path)
    return path


def _document(found: Sequence[Timeline], files: Sequence[Path]) -> Document:
    first, *rest = map(_timeline, found)
    return first | {"beside": rest[0] if rest else None, "hides": hiding(found), "files": files}


def _timeline(of: Timeline) -> Document:
    return timeline(of) | {
        "intervals": [
            {
                "block": each.block, "warp": each.warp, "sub_core": each.sub_core, "kind": each.kind,
                "start_cycles": each.start_cycles, "end_cycles": each.end_cycles, "pass": each.lap,
            }
            for each in of.intervals
        ],
    }  # fmt: skip


def _show(found: Sequence[Timeline], files: Sequence[Path], show: Any) -> None:
    from gemmsim.console import line, table

    first = found[0]
    line(f"{first.problem} on {first.device.title} ({first.device.name})")
    for each in found:
        line(
            f"{each.kernel.name} {each.kernel.describe(each.tiling)}, {each.program} code:"
            f" {plural(each.blocks, 'block')} on the multiprocessor, {plural(len(each.warps), 'warp')}",
            indent="   ",
        )
    names = [each.kernel.name for each in found]
    rows = [
        (words(kind), *_numbers(found, [each.cycles_by_kind[kind] for each in found]), meaning)
        for kind, meaning in MEANINGS.items()
        if any(each.cycles_by_kind[kind] for each in found)
    ]
    total = ("together", *_numbers(found, [each.cycles for each in found]), "two large iterations")
    columns = ("", *(head for name in names for head in (name, "")), "a warp")
    table("Cycles of a warp, on average", columns, [*rows, total], text=(0, len(columns) - 1))
    line("")
    line(hiding(found))
    if files:
        show.files(files)


def _numbers(found: Sequence[Timeline], cycles: Sequence[float]) -> list[str]:
    return [
        text
        for of, spent in zip(found, cycles, strict=True)
        for text in (count(round(spent)), percent(spent / of.cycles))
    ]
