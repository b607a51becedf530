"""`gemmsim banks`: how often a warp passes through the banks of shared memory, and which lanes are the reason."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from gemmsim.banks import BANK_BYTES, BANKS, PASS_BYTES, LaneGroup, Passes, passes
from gemmsim.commands.command import Answer, Document
from gemmsim.commands.kernel_banks import KERNEL_OPTIONS, add_kernel_banks, run_kernel_banks
from gemmsim.commands.pattern_options import PATTERN, Asked, add_pattern, chosen, pattern_of
from gemmsim.commands.pictures import picture_path, write_picture
from gemmsim.device import capabilities, capability
from gemmsim.errors import Warn
from gemmsim.options import path_text, whole
from gemmsim.pattern_files import Counted, count_file
from gemmsim.patterns import FARTHEST_BYTES, Served, ranges, served
from gemmsim.tiling import WARP_SIZE
from gemmsim.units import count, plural

MOST_SHOWN = 8
"""Passes of a lane group, or names in a list, that the terminal shows."""
NOTES = {
    "cp.async.cg (past L1)": "cp.async.cg: as if lanes copied neighbouring vectors of global memory; its rule is a"
    " conjecture that explains what was measured on an H200"
}
"""What else there is to say of an operation."""
BANKS_IN_A_ROW = {1: 16, 2: 8, 4: 8}
"""Columns of the map, by how many banks the element of a lane covers."""


def add_banks(parser: argparse.ArgumentParser) -> None:
    """The three forms: an expression, a file, a kernel."""
    add_pattern(parser, "shared memory")
    parser.add_argument(
        "--size",
        metavar="BYTES",
        help="bytes of memory; what lies past them is refused (default: the most that any GPU gives a block)",
    )
    parser.add_argument("--picture", type=path_text, metavar="FILE", help="draw the lanes over the banks; .png or .svg")
    add_kernel_banks(parser)


def run_banks(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim banks"""
    form = chosen(
        args,
        {
            "index": ("EXPR", (*PATTERN, "size", "picture")),
            "batch": ("--batch FILE.jsonl", ()),
            "kernel": ("--kernel K", KERNEL_OPTIONS),
        },
    )
    if form == "kernel":
        return run_kernel_banks(args, warn)
    if form == "batch":
        counted = count_file(args.batch, "banks")
        return Answer(lambda: {"results": counted.results}, lambda show: show_batch(counted, "conflicts"))
    picture = None if args.picture is None else picture_path(args.picture)
    size_bytes = largest_shared_bytes() if args.size is None else whole(args.size, "--size", 1, FARTHEST_BYTES)
    asked = pattern_of(args, size_bytes)
    touched = asked.pattern
    cost = passes(touched.byte_addresses, touched.active, touched.width_bytes, asked.store)
    if picture is not None:
        draw(asked, cost, picture)
    return Answer(lambda: document(asked, cost), lambda show: show_passes(asked, cost))


def largest_shared_bytes() -> int:
    """The most shared memory that a block can have on any GPU that is known."""
    return max(capability(name).shared_bytes_per_block_optin for name in capabilities())


def draw(asked: Asked, cost: Passes, path: Path) -> None:
    """Write the picture of the warp that takes longest; InputError for a path that cannot take it."""
    from gemmsim.plots.bank_map import bank_map  # imports Matplotlib, which takes long
    from gemmsim.plots.style import figure

    drawn, warp = figure(8.2, 7.0), worst(cost)
    title = f"{asked}\n{_of_warp(asked, warp)}{_summary(cost, warp)}"
    bank_map(drawn.subplots(), served(asked.pattern, warp, asked.store), title)
    write_picture(drawn, path)


def document(asked: Asked, cost: Passes) -> Document:
    """The JSON document of an expression."""
    warps = [
        {
            "warp": warp,
            **_counts(cost, warp),
            "groups": [asdict(group) for group, _ in served(asked.pattern, warp, asked.store)],
        }
        for warp in range(asked.pattern.warps)
    ]
    return {**asked.document(), "requests": requests(cost), **_counts(cost, slice(None)), "warps": warps}


def requests(cost: Passes) -> int:
    """Warps that make the access at all."""
    return int((cost.wavefronts > 0).sum())


def worst(cost: Passes) -> int:
    """The first of the warps that take most wavefronts."""
    return int(cost.wavefronts.argmax())


def _counts(cost: Passes, warps: int | slice) -> Document:
    """The counts of one warp, or summed over several; the degree is their largest."""
    sums = {name: int(getattr(cost, name)[warps].sum()) for name in ("wavefronts", "ideal_wavefronts", "excess")}
    return {**sums, "degree": int(cost.degree[warps].max())}


def _summary(cost: Passes, warps: int | slice) -> str:
    counts = _counts(cost, warps)
    return (
        f"{plural(counts['wavefronts'], 'wavefront')}, {count(counts['ideal_wavefronts'])} without conflicts;"
        f" excess {count(counts['excess'])}, degree {count(counts['degree'])}"
    )


def _of_warp(asked: Asked, warp: int) -> str:
    return f"warp {warp}: " if asked.pattern.warps > 1 else ""


def show_passes(asked: Asked, cost: Passes) -> None:
    """What the warps take, the lanes and banks of the worst one, and what a profiler says."""
    from gemmsim.console import facts, line, table

    warp = worst(cost)
    groups = served(asked.pattern, warp, asked.store)
    line(str(asked))
    line(f"{plural(requests(cost), 'request')}, {_summary(cost, slice(None))}")
    if asked.pattern.warps > 1:
        times = sorted(Counter(cost.wavefronts.tolist()).items(), reverse=True)
        line("; ".join(f"{plural(warps, 'warp')} of {plural(each, 'wavefront')}" for each, warps in times))
    table(
        f"Lane groups{f' of warp {warp}, the first that takes most' if asked.pattern.warps > 1 else ''}",
        ("lanes", "passes", "why"),
        ((ranges(group.lanes), count(group.passes), reason(group)) for group, _ in groups),
        text=(0, 2),
    )
    group, slots = max(groups, key=lambda each: each[0].passes)
    line(f"\nThe lane that each bank serves (+: others that touch the same word), lanes {ranges(group.lanes)}")
    for text in map_lines(slots):
        line(text, wrap=False)
    line(f"\n{rule(asked.pattern.width_bytes, asked.store)}")
    facts("In Nsight Compute, an execution by one block", profiler(asked, cost))


def reason(group: LaneGroup) -> str:
    """Why a lane group takes its passes, in a sentence."""
    if not group.collisions:
        return "every bank is asked for one word at most"
    worst = max(group.collisions, key=lambda each: len(each.words))
    alike = sum(len(each.words) == len(worst.words) for each in group.collisions) - 1
    lanes = sorted(lane for askers in worst.lanes for lane in askers)
    also = f"; as many in {plural(alike, 'other bank')}" if alike else ""
    return f"bank {worst.bank}: lanes {_few(lanes)} want {len(worst.words)} words ({_few(worst.words)}){also}"


def rule(width_bytes: int, store: bool) -> str:
    """How passes come about, for accesses of this width."""
    together = min(WARP_SIZE, PASS_BYTES // width_bytes)
    lanes = f"All {WARP_SIZE} lanes go" if together == WARP_SIZE else f"{together} lanes go"
    merging = (
        ""
        if together == WARP_SIZE or store
        else "; two such groups merge where every lane has the address of lane ^ 1, or every one that of lane ^ 2"
    )
    return (
        f"{lanes} together{merging}. A pass serves one word of {BANK_BYTES} bytes from each of the {BANKS} banks,"
        f" to any number of lanes; words lie in one bank if their numbers differ by a multiple of {BANKS}."
    )


def _few(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:MOST_SHOWN]))
    return f"{shown}, ..." if len(numbers) > MOST_SHOWN else shown


def map_lines(slots: Sequence[Served]) -> list[str]:
    """The map of a lane group: banks across, those that are touched alone, and a pass each line."""
    covered = sorted({(each.banks.start, each.banks.stop) for each in slots})
    at = {(each.banks.start, each.turn): each for each in slots}
    turns = 1 + max(each.turn for each in slots)
    lines = []
    in_a_row = BANKS_IN_A_ROW[len(slots[0].banks)]
    for first in range(0, len(covered), in_a_row):
        columns = covered[first : first + in_a_row]
        heads = [f"{start}-{stop - 1}" if stop > start + 1 else f"{start}" for start, stop in columns]
        rows = [
            [f"{each.lanes[0]}{'+' if len(each.lanes) > 1 else ''}" if (each := at.get((start, turn))) else "."
             for start, _ in columns]
            for turn in range(min(turns, MOST_SHOWN))
        ]  # fmt: skip
        for name, cells in [("bank", heads), *((f"pass {turn + 1}", row) for turn, row in enumerate(rows))]:
            lines.append(f"{name:<7}" + "".join(f"{cell:>{4 if in_a_row == 16 else 8}}" for cell in cells))
    if turns > MOST_SHOWN:
        lines.append(f"and {turns - MOST_SHOWN} more passes")
    return lines


def profiler(asked: Asked, cost: Passes) -> list[tuple[str, str]]:
    """What its counters show, by their names."""
    from gemmsim.gpu.counters import METRICS

    raw = f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{'st' if asked.store else 'ld'}.sum"
    counts = _counts(cost, slice(None))
    return [
        ("requests", f"{count(requests(cost))}: {METRICS[f'shared_{asked.direction}_requests']}"),
        ("wavefronts", f"{count(counts['wavefronts'])}: {METRICS[f'shared_{asked.direction}_wavefronts']}"),
        (
            "bank conflicts",
            f"{count(counts['excess'])}: {raw}, if nothing else runs on the multiprocessor. On a busy one it can count"
            " lost arbitration too, which no address explains, so compare the wavefronts.",
        ),
    ]


def show_batch(counted: Counted, worst_by: str) -> None:
    """The totals of each operation and width of a file, and the line that is worst by one of the counts."""
    from gemmsim.console import line, table

    rows: dict[tuple[str, int], list[int]] = {}
    for place, key in enumerate(zip(counted.operations, counted.widths_bits, strict=True)):
        rows.setdefault(key, []).append(place)

    def row(name: str, width_bits: int, places: list[int]) -> tuple[str, ...]:
        totals = (count(column[places].sum()) for column in counted.counts.values())
        highest = counted.counts[worst_by][places]
        return (
            name, count(width_bits), count(len(places)), *totals,
            f"{count(highest.max())} (line {counted.lines[places[int(highest.argmax())]]})",
        )  # fmt: skip

    table(
        "",
        ("op", "width [bit]", "accesses", *counted.counts, f"most {worst_by}"),
        (row(*key, places) for key, places in rows.items()),
    )
    line("\n--json gives the counts of every line")
    for note in (NOTES[name] for name in dict.fromkeys(counted.operations) if name in NOTES):
        line(note)
