"""`gemmsim plot`: one picture of the model or of records, as a file for a paper, a talk or a notebook."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gemmsim.commands.command import Answer
from gemmsim.commands.pictures import picture_path, write_picture
from gemmsim.commands.record_files import only_device, read
from gemmsim.commands.timeline import add_beside, beside
from gemmsim.compare import compare
from gemmsim.device import Device, device
from gemmsim.errors import InputError, Warn, unknown
from gemmsim.held_out import held_out
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.ladder import Rung
from gemmsim.occupancy.cliffs import Block, sweeps
from gemmsim.options import add_launch, device_of, kernel_of, path_text, problem_of, tiling_of
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.records import Point, Record
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import ThreadTile
from gemmsim.scenes import around, tile_orders, timeline_of, worst_access
from gemmsim.tiling import Tiling, parse_extents
from gemmsim.units import plural

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gemmsim.plots import Theme

STYLES = ("light", "dark", "paper")
FORMS = (".png", ".svg", ".pdf")
SIZES = ("sizes",)
TILING = (
    "tile", "thread", "vector", "pad_a", "pad_b", "swizzle", "stages", "warp", "split_k", "group", "traversal",
    "spread",
)  # fmt: skip
LAUNCH = (*SIZES, "kernel", *TILING)
RECORDS = ("records",)


def add_plot(parser: argparse.ArgumentParser) -> None:
    """The picture, what it is of, and how it is to look."""
    parser.add_argument(
        "picture", metavar="NAME", help="; ".join(f"{name}: {of.what}" for name, of in PICTURES.items())
    )
    add_launch(parser)
    add = parser.add_argument
    add("--device", metavar="NAME|FILE.toml", help="GPU (default: that of the records where it has some, else h200)")
    add(
        "--records",
        type=path_text,
        metavar="RECORDS.jsonl",
        help="where measured times are from (default: the shipped)",
    )
    add("--order", metavar="O", help="registers: the order of the FFMA, as `gemmsim registers` takes it (default: row)")
    add_beside(parser)
    add = parser.add_argument_group("look").add_argument
    add("--out", required=True, type=path_text, metavar="FILE", help=f"the file, {', '.join(FORMS)}")
    add("--style", metavar="S", help=f"{', '.join(STYLES)} (default: light)")
    add("--narrow", action="store_true", help="for one column of a paper, or a phone")


def run_plot(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim plot"""
    if args.picture not in PICTURES:
        raise unknown("picture", args.picture, PICTURES)
    asked = PICTURES[args.picture]
    _refuse_others(args, asked)
    path = picture_path(args.out, "--out", FORMS)
    style = "light" if args.style is None else args.style.lower()
    if style not in STYLES:
        raise unknown("style", args.style, STYLES)
    from gemmsim.plots import STYLES as THEMES  # imports Matplotlib, which takes long

    write_picture(asked.draw(args, warn, THEMES[style], args.narrow), path)
    return Answer(lambda: {"picture": args.picture, "style": style, "file": path}, lambda show: show.files([path]))


@dataclass(frozen=True)
class Asked:
    """One picture: what it shows, the options that it takes beside those of its look, and how it is drawn."""

    what: str
    takes: Sequence[str]
    draw: Callable[[argparse.Namespace, Warn, Theme, bool], Figure]


def _refuse_others(args: argparse.Namespace, asked: Asked) -> None:
    """InputError for an option that another picture takes and this one does not."""
    for name in (*LAUNCH, *RECORDS, "order", "beside"):
        if getattr(args, name) not in (None, []) and name not in asked.takes:
            takers = ", ".join(other for other, of in PICTURES.items() if name in of.takes)
            option = "sizes go" if name == "sizes" else f"--{name.replace('_', '-')} goes"
            raise InputError(f"{option} with {takers}, not with {args.picture}")


def _reads(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    return figures.reads(_rungs(args, warn), theme, narrow)


def _roofline(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    return figures.roofline(_rungs(args, warn), theme, narrow)


def _terms(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    return figures.terms(_rungs(args, warn), theme, narrow)


def _compare(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    records, on = _records(args, warn)
    return figures.compare(compare(records, on or device(only_device(records))), theme, narrow, held_out)


def _banks(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    kernel, tiling, problem = _launch(args)
    access = worst_access(problem, kernel, tiling)
    if access is None:
        raise InputError(f"kernel {kernel.name} makes no access to shared memory that the rule of banks covers")
    return figures.banks({f"{kernel.name} {kernel.describe(tiling)}": access}, theme, narrow)


def _registers(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    extents = parse_extents((args.thread or "8x8").lower(), ("rm", "rn"), "--thread")
    file = register_file(_device(args).capability)
    return figures.registers(tile_orders(ThreadTile(*extents.values()), file, args.order or "row"), theme, narrow)


def _occupancy(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    (kernel, tiling, problem), on = _launch(args), _device(args)
    taken = predict(problem, kernel, tiling, on).resources
    block = Block(taken.threads, taken.registers_per_thread, 0, taken.shared_bytes)
    title = (
        f"{on.title}, {kernel.name} {kernel.describe(tiling)}: {plural(block.threads, 'thread')},"
        f" {plural(block.registers, 'register')} each ({taken.source}), {plural(block.shared_bytes, 'byte')} of shared"
        " memory"
    )
    return figures.occupancy(sweeps(on.capability, block), on.capability, title, theme, narrow)


def _landscape(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    problem, on = problem_of(args.sizes, args.dtype), _device(args)
    kernel = kernel_of(args.kernel)
    tiling, _, _ = tiling_of(kernel, args)
    found, maps = around(problem, kernel, tiling, on)
    title = f"Best predicted time, {kernel.name}, {problem} on {on.title}"
    return figures.landscape(maps, found.pick, title, theme, narrow)


def _timeline(args: argparse.Namespace, warn: Warn, theme: Theme, narrow: bool) -> Figure:
    from gemmsim.plots import figures

    problem, on = problem_of(args.sizes, args.dtype), _device(args)
    kernel = kernel_of(args.kernel)
    tiling, _, _ = tiling_of(kernel, args)
    launches = [(kernel, tiling)]
    if args.beside is not None:
        launches.append(beside(args.beside, tiling))
    return figures.timeline([timeline_of(problem, *each, on) for each in launches], theme, narrow)


def _rungs(args: argparse.Namespace, warn: Warn) -> Sequence[Rung]:
    """The kernels side by side, as the page has them; with --kernel that one alone, in the tiling asked for."""
    from gemmsim.report.findings import findings, rungs_at

    if args.kernel is None:
        given = [f"--{name.replace('_', '-')}" for name in TILING if getattr(args, name) is not None]
        if given:
            raise InputError(f"{given[0]} is of a kernel; give --kernel too, or leave it out")
    records, on = _records(args, warn)
    own = [record for record in records if on is None or record.device == on.name]
    on = on or device(only_device(records))
    if args.kernel is not None:
        kernel, tiling, problem = _launch(args)
        return [_rung(problem, kernel, tiling, on, own)]
    if not args.sizes:
        if not own:
            raise InputError(f"sizes are missing, and there is no record of {on.name} to take them from; give M [N K]")
        return findings(own, on).rungs
    problem = problem_of(args.sizes, args.dtype)
    points = compare(own, on).points if any(record.ok for record in own) else ()
    found = rungs_at(problem, points, on)
    if not found:
        raise InputError(f"no kernel takes {problem} on {on.name}; known: {', '.join(KERNELS)}")
    return found


def _rung(problem: Problem, kernel: Kernel, tiling: Tiling, on: Device, records: Sequence[Record]) -> Rung:
    """One launch, with its time where one of the records has it."""
    key = Point(problem, kernel.name, tiling).key
    measured = [record for record in records if record.ok and record.point.key == key]
    registers = measured[-1].resources["registers_per_thread"] if measured and measured[-1].resources else None
    prediction = predict(problem, kernel, tiling, on, registers)
    return Rung(kernel, tiling, prediction, measured[-1].median_s if measured else None)


def _records(args: argparse.Namespace, warn: Warn) -> tuple[list[Record], Device | None]:
    """(records, the device of --device)."""
    records, warnings = read(args.records)
    for text in warnings:
        warn(text)
    return records, None if args.device is None else device_of(args.device)


def _launch(args: argparse.Namespace) -> tuple[Kernel, Tiling, Problem]:
    """The kernel, its tiling, and the problem, one whole tile where no sizes are given."""
    kernel = kernel_of(args.kernel)
    tiling, _, _ = tiling_of(kernel, args)
    whole = Problem(tiling.block_m, tiling.block_n, tiling.block_k)
    return kernel, tiling, problem_of(args.sizes, args.dtype) if args.sizes else whole


def _device(args: argparse.Namespace) -> Device:
    return device_of("h200" if args.device is None else args.device)


PICTURES = {
    "reads": Asked("reads at every level of the ladder", (*LAUNCH, *RECORDS), _reads),
    "roofline": Asked("rooflines of every level", (*LAUNCH, *RECORDS), _roofline),
    "terms": Asked("what each resource needs, and the measured time", (*LAUNCH, *RECORDS), _terms),
    "compare": Asked("predicted against measured times", RECORDS, _compare),
    "banks": Asked("lanes over banks, of a --kernel", LAUNCH, _banks),
    "registers": Asked("the order of a --thread tile", ("thread", "order"), _registers),
    "occupancy": Asked("occupancy and its cliffs, of a --kernel", LAUNCH, _occupancy),
    "landscape": Asked("the best time over the blocks of a --kernel", LAUNCH, _landscape),
    "timeline": Asked("warps over two large iterations, of a --kernel", (*LAUNCH, "beside"), _timeline),
}  # fmt: skip
