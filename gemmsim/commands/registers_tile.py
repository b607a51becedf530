"""The form of `gemmsim registers` that lays out a thread tile: --thread RMxRN."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmsim.commands.command import Answer, Document
from gemmsim.commands.pictures import picture_path, write_picture
from gemmsim.device import Capability, capability
from gemmsim.errors import InputError, Warn, short
from gemmsim.options import path_text, whole
from gemmsim.registers.reads import PortReport, Stream, simulate
from gemmsim.registers.register_files import RegisterFile, register_file
from gemmsim.registers.tile_allocation import ACCUMULATORS, Allocation, Runs, ThreadTile, allocate, placement
from gemmsim.registers.tile_order import FLAGS, ORDERS, Plan, drawing, order_of, order_text, waits
from gemmsim.registers.tile_search import Found, best_plan, reads
from gemmsim.scenes import TileOrders
from gemmsim.tiling import parse_extents
from gemmsim.units import count, percent, plural

TILE = ("order", "flags", "accumulators", "double_buffer", "vector", "vector_c", "seed", "picture")
"""The options that go with --thread alone."""
MOST_WARPS = 16
"""Warps that one sub-core holds, on any GPU."""
LARGEST_SEED = 2**31 - 1


def add_tile(parser: argparse.ArgumentParser) -> None:
    """The tile, how it is laid out, and a picture of it."""
    add = parser.add_argument_group("thread tile").add_argument
    add("--thread", metavar="RMxRN", help="accumulators of a thread, such as 8x8")
    add("--order", metavar="O", help=f"{', '.join(ORDERS)} (default: row), or a permutation such as 0,1,3,2")
    add("--flags", metavar="F", help=f"which operands are kept: {', '.join(FLAGS)} (default: next)")
    add("--accumulators", metavar="P", help=f"banks of the accumulators: {', '.join(ACCUMULATORS)} (the default first)")
    add("--double-buffer", action="store_true", help="two sets of fragments that take turns")
    add("--vector", metavar="V", help="widest load of fragments, in registers: 1, 2 or 4 (default: 4)")
    add("--vector-c", metavar="V", help="registers that one store of C takes: 1, 2 or 4 (default: 1)")
    add("--seed", metavar="S", help="seed of the search for the best (default: 0)")
    add("--picture", type=path_text, metavar="FILE", help="draw the tile, and the best one beside it; .png or .svg")


@dataclass(frozen=True)
class Tiled(TileOrders):
    """The same as it was asked for, and every named order of it."""

    on: Capability
    warps: int
    accumulators: str
    named: Mapping[str, PortReport]


def run_tile(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim registers --thread RMxRN"""
    from gemmsim.console import working

    path = None if args.picture is None else picture_path(args.picture)
    with working("searching"):
        found = tiled(args)
    if path is not None:
        draw(found, path)
    return Answer(lambda: document(found), lambda show: show_tile(found))


def tiled(args: argparse.Namespace) -> Tiled:
    """The tile that the options describe; InputError where one is unusable."""
    extents = parse_extents(args.thread.lower(), ("rm", "rn"), "--thread")
    tile = ThreadTile(extents["rm"], extents["rn"])
    on = capability("9.0" if args.arch is None else args.arch)
    file = register_file(on)
    warps = 1 if args.warps is None else whole(args.warps, "--warps", 1, MOST_WARPS)
    seed = 0 if args.seed is None else whole(args.seed, "--seed", 0, LARGEST_SEED)
    runs = Runs.widest(tile, _vector(args.vector, "--vector", 4), _vector(args.vector_c, "--vector-c", 1))
    sets = 2 if args.double_buffer else 1
    accumulators = _one_of(args.accumulators, "accumulators", ACCUMULATORS)
    flags = _one_of(args.flags, "flags", FLAGS)
    order = order_of(args.order or "row", tile)
    registers = allocate(placement(tile, accumulators, runs, file.banks), runs, file.banks, sets)
    plan = Plan(registers, order, flags)
    named = {name: Plan(registers, made(tile.thread_m, tile.thread_n), flags) for name, made in ORDERS.items()}
    report, *reports = simulate([each.stream(file) for each in (plan, *named.values())], file, warps)
    best = best_plan(tile, file, runs, sets, warps, seed)
    return Tiled(file, plan, report, best, on, warps, accumulators, dict(zip(named, reports, strict=True)))


def _vector(text: str | None, option: str, default: int) -> int:
    return default if text is None else whole(text, option, 1, 4)


def _one_of(text: str | None, what: str, known: Mapping[str, Any]) -> str:
    """The name, or the first where there is none."""
    name = next(iter(known)) if text is None else text.strip().lower().replace("-", "_")
    if name not in known:
        raise InputError(f"--{what} {short(text)}; allowed: {', '.join(known)}")
    return name


def document(found: Tiled) -> Document:
    """The JSON document."""
    return {
        "thread_m": found.tile.thread_m,
        "thread_n": found.tile.thread_n,
        "arch": f"sm_{found.on.name.replace('.', '')}",
        "register_file": found.file.name,
        "warps": found.warps,
        "accumulators": found.accumulators,
        **_plan(found.plan, found.report),
        "conflicting_ffma": len(waits(found.plan, found.report)),
        "conflicts": _conflicts(found.plan, found.report),
        "orders": {name: report.peak_fraction for name, report in found.named.items()},
        "gain": found.gain,
        "best": {
            **_plan(found.best.plan, found.best.report),
            "swapped": found.best.plan.swapped,
            "least_cycles": found.best.least_cycles,
            "proven": found.best.proven,
            "simulated": found.best.simulated,
            "stream": _rows(found.best.plan.stream(found.file)),
        },
    }


def _plan(plan: Plan, report: PortReport) -> Document:
    """What a plan is and costs; a pass has a k step for each set of fragments."""
    return {
        "order": order_text(plan.order, plan.allocation.tile),
        "flags": plan.flags,
        "sets": len(plan.allocation.a),
        "registers": len(plan.allocation.registers),
        "allocation": vars(plan.allocation),
        "ffma": report.ffma,
        "cycles": report.cycles,
        "cycles_per_ffma": report.cycles_per_ffma,
        "peak_fraction": report.peak_fraction,
        "reuse_hits": report.reuse_hits,
        "reads": reads(report),
    }


def _conflicts(plan: Plan, report: PortReport) -> list[Document]:
    """Which FFMA of a pass waits for which bank, which it reads for these slots, and how long."""
    return [
        {
            "instruction": each.instruction,
            **dict(zip(("row", "column"), plan.order[each.instruction % len(plan.order)], strict=True)),
            "bank": each.bank,
            "slots": each.slots,
            "cycles": each.cycles,
        }
        for each in report.conflicts
    ]


def _rows(stream: Stream) -> list[list[Any]]:
    """The stream as a batch file has it: [Rd, Ra, Rb, Rc, reuse flags]."""
    return [[each.destination, *each.sources, each.reuse] for each in stream.instructions]


def show_tile(found: Tiled) -> None:
    """The orders, the tile as it was asked for, and the best."""
    from gemmsim.console import facts, line, table

    file, best = found.file, found.best
    line(
        f"Thread tile {found.tile} on sm_{found.on.name.replace('.', '')} ({file.title}): {file.banks} register banks,"
        f" an FFMA every {plural(file.ffma_interval_cycles, 'cycle')} at best"
    )
    rows = [(name, *_figures(report)) for name, report in found.named.items()]
    rows += [("best found", *_figures(best.report))]
    table(
        f"Orders, accumulators {found.accumulators}, flags {found.plan.flags}",
        ("order", "cycles per FFMA", "of peak", "reuse hits", "reads", "waiting FFMA"),
        rows,
    )
    _show_plan("Asked", found.plan, found.report, file)
    if found.gain > 0:
        _show_plan("Best found", best.plan, best.report, file)
    facts(
        "",
        (
            ("flags", f"{best.plan.flags}: {FLAGS[best.plan.flags]}"),
            ("order", order_text(best.plan.order, found.tile)),
            ("registers", registers_text(best.plan.allocation)),
            ("against what was asked", f"{percent(found.gain, signed=True)} speed"),
            ("can it be better", _proof(best)),
        ),
    )


def _figures(report: PortReport) -> tuple[str, ...]:
    waiting = {each.instruction for each in report.conflicts}
    return (
        f"{report.cycles_per_ffma:.3f}", percent(report.peak_fraction), count(report.reuse_hits), count(reads(report)),
        count(len(waiting)),
    )  # fmt: skip


def _show_plan(title: str, plan: Plan, report: PortReport, file: RegisterFile) -> None:
    """The drawing of a plan, and what its marks mean."""
    from gemmsim.console import line

    line(f"\n{title}: {order_name(plan)}, flags {plan.flags}, {report.cycles_per_ffma:.3f} cycles per FFMA")
    for text in drawing(plan, report, file.banks):
        line(text, wrap=False)
    letters = (
        "e and o are even and odd registers" if file.banks == 2 else f"w to z are register numbers modulo {file.banks}"
    )
    line(f"Numbers are the turn of each FFMA; {letters}; ! waits for a bank.")


def registers_text(allocation: Allocation) -> str:
    """Where the tile lies, "A R0 to R7; B R8 to R15; 64 accumulators in R16 to R79"."""
    fragments = [
        f"{name} {' and '.join(_range(row) for row in rows)}"
        for name, rows in (("A", allocation.a), ("B", allocation.b))
    ]
    results = [register for row in allocation.c for register in row]
    return f"{'; '.join(fragments)}; {plural(len(results), 'accumulator')} in {_range(results)}"


def _range(registers: Any) -> str:
    low, high = min(registers), max(registers)
    return f"R{low}" if low == high else f"R{low} to R{high}"


def _proof(best: Found) -> str:
    if best.meets_bound:
        return f"no: arithmetic and reads take {best.least_cycles:g} cycles at least"
    return "no: all plans were tried" if best.proven else "perhaps: this is the best of those that were simulated"


def draw(found: Tiled, path: Path) -> None:
    """Write the picture of what was asked for, and of the best beside it where that is faster."""
    from gemmsim.plots.style import figure  # imports Matplotlib, which takes long
    from gemmsim.plots.tile_order import tile_order

    plans = [("", found.plan, found.report)]
    if found.gain > 0:
        plans.append(("best found: ", found.best.plan, found.best.report))
    tile, banks = found.tile, found.file.banks
    drawn = figure(len(plans) * max(1.4 + 0.62 * tile.thread_n, 4.8), 2.4 + 0.62 * tile.thread_m)
    for ax, (which, plan, report) in zip(drawn.subplots(1, len(plans), squeeze=False)[0], plans, strict=True):
        title = f"{which}{order_name(plan)}, flags {plan.flags}\n{report.cycles_per_ffma:.3f} cycles per FFMA"
        tile_order(ax, plan, plan.stream(found.file), report, banks, title)
    write_picture(drawn, path)


def order_name(plan: Plan) -> str:
    """The name of its order, if it has one."""
    name = order_text(plan.order, plan.allocation.tile)
    return name if name in ORDERS else "an order of its own"
