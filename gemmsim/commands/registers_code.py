"""The form of `gemmsim registers` that reads compiled code: --sass FILE or --cubin FILE."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemmsim.commands.command import Answer, Document
from gemmsim.errors import InputError, Warn
from gemmsim.machine_code.listings import function_named, read_listing
from gemmsim.machine_code.main_loop import MainLoop, main_loop
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.main_loops.port_shares import PortShare
from gemmsim.main_loops.port_streams import MixedReport, simulate_loops, stream_of_loop
from gemmsim.options import path_text
from gemmsim.registers.register_files import RegisterFile, register_file
from gemmsim.registers.tile_compare import Distance, compare_with
from gemmsim.registers.tile_order import order_text
from gemmsim.units import count, percent, plural

MOST_SHOWN = 8
"""Instructions that wait, as many as the terminal shows."""


@dataclass(frozen=True)
class Simulated:
    """A main loop with what it costs; `distance` to the best order of its thread tile, where it multiplies one."""

    loop: MainLoop
    file: RegisterFile
    report: MixedReport
    share: PortShare
    distance: Distance | None

    @property
    def best_fraction(self) -> float:
        """Share of the peak with the best order that was found, the other instructions taking their issue slots;
        without a thread tile, as if no read conflicted."""
        if self.distance is None:
            return float(self.share.ideal_fraction)
        best_cycles = self.distance.best.report.cycles_per_ffma * self.loop.ffma
        others = len(self.loop.instructions) - self.loop.ffma
        return self.loop.ffma * self.file.ffma_interval_cycles / (best_cycles + others)


def add_code(parser: argparse.ArgumentParser) -> None:
    """The file, and which function of it."""
    add = parser.add_argument_group("compiled code").add_argument
    add("--sass", type=path_text, metavar="FILE", help="text of `nvdisasm -c -hex` or `cuobjdump -sass`")
    add("--cubin", type=path_text, metavar="FILE", help="compiled kernel; needs the disassembler")
    add("--function", metavar="NAME", help="function to read, where there are several")


def run_code(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim registers --sass FILE, gemmsim registers --cubin FILE"""
    where, functions = functions_of(args)
    loop = main_loop(function_named(functions, args.function, where))
    warnings = list(doubts(loop))
    for text in warnings:
        warn(text)
    found = simulated(loop)
    return Answer(lambda: document(found, where, warnings), lambda show: show_loop(found, where))


def simulated(loop: MainLoop) -> Simulated:
    """The loop on the register file of its architecture; InputError where that is not known."""
    file = register_file(loop.function.arch)
    (report,) = simulate_loops([loop], file)
    try:
        distance = compare_with(stream_of_loop(loop, file), file)
    except InputError:
        distance = None  # its FFMA are no outer products, so there is no other order to look for
    return Simulated(loop, file, report, report.share(file), distance)


def functions_of(args: argparse.Namespace) -> tuple[str, Sequence[Function]]:
    """(file, its functions) of --sass or --cubin; InputError unless it is one of the two."""
    if (args.sass is None) == (args.cubin is None):
        raise InputError("give one file of compiled code: --sass FILE, a text, or --cubin FILE")
    if args.sass is not None:
        return args.sass, read_listing(args.sass)
    from gemmsim.gpu.disassemble import disassembled_file

    return args.cubin, disassembled_file(args.cubin)


def doubts(loop: MainLoop) -> Sequence[str]:
    """What makes the answer less certain, a sentence each."""
    found = []
    if not loop.function.encoded:
        found.append(
            "the text has no instruction words, so every instruction is taken to be issued after one cycle;"
            " `nvdisasm -c -hex` prints them"
        )
    if loop.unknown:
        names = ", ".join(f"{name} ({times})" for name, times in loop.unknown.items())
        found.append(f"registers of these instructions are not known, and not counted: {names}")
    return found


def document(found: Simulated, where: str, warnings: Sequence[str]) -> Document:
    """The JSON document."""
    loop, ports = found.loop, found.report.ports
    return {
        "source": where,
        "function": loop.function.name,
        "arch": loop.function.arch,
        "encoded": loop.function.encoded,
        "ffma": loop.ffma,
        "cycles": found.report.cycles,
        "cycles_per_ffma": found.report.cycles_per_ffma,
        "peak_fraction": found.share.fraction,
        "ideal_fraction": found.share.ideal_fraction,
        "reuse_hits": ports.reuse_hits,
        "conflicts": [
            {
                "instruction": each.instruction,
                "address": f"{loop.instructions[each.instruction].address:#x}",
                "text": loop.instructions[each.instruction].text,
                "bank": each.bank,
                "slots": each.slots,
                "cycles": each.cycles,
            }
            for each in ports.conflicts
        ],
        "best": best(found),
        "loop": {
            "start": f"{loop.start:#x}",
            "end": f"{loop.end:#x}",
            "instructions": len(loop.instructions),
            "branches": loop.branches,
            "kinds": dict(loop.kinds),
            "accesses": dict(loop.accesses),
            "unknown": dict(loop.unknown),
        },
        "instructions": [instruction_row(each) for each in loop.instructions],
        "warnings": list(warnings),
    }


def best(found: Simulated) -> Document:
    """The best order: none where the FFMA multiply no thread tile."""
    if found.distance is None:
        return {"thread": None, "order": None, "flags": None, "peak_fraction": found.best_fraction}
    tile, plan = found.distance.tile, found.distance.best.plan
    return {
        "thread": str(tile),
        "order": order_text(plan.order, tile),
        "flags": plan.flags,
        "peak_fraction": found.best_fraction,
    }


def instruction_row(each: Instruction) -> dict[str, Any]:
    """One instruction of the document."""
    control = each.control
    return {
        "address": f"{each.address:#x}",
        "text": each.text,
        "guard": each.guard,
        "kind": each.kind,
        "stall": control.stall,
        "yield_bit": control.yield_bit,
        "wait_mask": control.wait_mask,
        "reads": [
            {"slot": read.slot, "register": read.first, "registers": read.registers, "reuse": read.reuse}
            for read in each.reads
        ],
        "writes": list(each.writes),
    }


def show_loop(found: Simulated, where: str) -> None:
    """What is in the loop and what it costs, for people."""
    from gemmsim.console import facts, table

    loop = found.loop
    waits = sum(each.control.wait_mask != 0 for each in loop.instructions)
    reused = sum(read.reuse for each in loop.instructions for read in each.reads)
    named = [
        ("function", f"{loop.function.name} ({loop.function.arch}) of {where}"),
        ("loop", f"{plural(len(loop.instructions), 'instruction')} from {loop.start:#x} to {loop.end:#x}"),
        ("branches within", count(loop.branches)),
        ("operands kept", f"{count(reused)} flags .reuse"),
    ]
    if loop.function.encoded:
        named.append(("waits", f"{plural(waits, 'instruction')} for a scoreboard"))
    facts("The main loop", named)
    facts("Register ports and issue slots of a sub-core", costs(found))
    waits_of = sorted(found.report.ports.conflicts, key=lambda each: -each.cycles)[:MOST_SHOWN]
    if waits_of:
        table(
            f"What waits longest for a bank ({count(len(found.report.ports.conflicts))} do)",
            ("instruction", "bank", "slots", "cycles"),
            [
                (loop.instructions[each.instruction].text, f"{each.bank}", each.slots, f"{each.cycles:.2g}")
                for each in waits_of
            ],
            text=(0, 2),
        )
    rows = [(kind.replace("_", " "), count(times)) for kind, times in sorted(loop.kinds.items(), key=_by_count)]
    table("Instructions", ("kind", "number"), rows)
    if loop.accesses:
        rows = [(name, count(times)) for name, times in sorted(loop.accesses.items())]
        table("Loads and stores", ("opcode and bits", "number"), rows)


def costs(found: Simulated) -> list[tuple[str, str]]:
    """Cycles, share of the peak, and what another order would bring."""
    conflicts = found.report.ports.conflicts
    lost = sum(each.cycles for each in conflicts)
    named = [
        ("cycles", f"{found.report.cycles:,.0f} a pass, {found.report.cycles_per_ffma:.3f} per FFMA"),
        ("share of peak", percent(float(found.share.fraction))),
        ("conflicts", f"{plural(len(conflicts), 'instruction')}, {lost:,.0f} cycles a pass"),
        ("reuse hits", f"{count(found.report.ports.reuse_hits)} reads spared"),
        ("without conflicts", f"{percent(float(found.share.ideal_fraction))}: what issue slots alone allow"),
    ]
    if found.distance is not None:
        gain = found.best_fraction / float(found.share.fraction) - 1
        named.append(
            (f"best {found.distance.tile} order", f"{percent(found.best_fraction)}, {percent(gain, signed=True)} speed")
        )
    return named


def _by_count(item: tuple[str, int]) -> tuple[int, str]:
    return -item[1], item[0]
