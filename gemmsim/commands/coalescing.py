"""`gemmsim coalescing`: the sectors and lines of global memory that a warp touches."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from gemmsim.coalescing import LINE_BYTES, SECTOR_BYTES, Transactions, transactions
from gemmsim.commands.banks import show_batch
from gemmsim.commands.command import Answer, Document
from gemmsim.commands.pattern_options import PATTERN, Asked, add_pattern, chosen, pattern_of
from gemmsim.errors import Warn
from gemmsim.options import whole
from gemmsim.pattern_files import count_file
from gemmsim.patterns import FARTHEST_BYTES, lanes_of_sectors, ranges, useful_bytes
from gemmsim.units import count, percent, plural

SECTORS_OF_LINE = LINE_BYTES // SECTOR_BYTES
MOST_LINES = 12
"""Lines of memory that the terminal shows."""


def add_coalescing(parser: argparse.ArgumentParser) -> None:
    """The two forms: an expression, a file."""
    add_pattern(parser, "global memory")
    parser.add_argument(
        "--size", metavar="BYTES", help="bytes of memory from address 0; what lies past them is refused"
    )


def run_coalescing(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim coalescing"""
    form = chosen(args, {"index": ("EXPR", (*PATTERN, "size")), "batch": ("--batch FILE.jsonl", ())})
    if form == "batch":
        counted = count_file(args.batch, "coalescing")
        return Answer(lambda: {"results": counted.results}, lambda show: show_batch(counted, "sectors"))
    asked = pattern_of(args, None if args.size is None else whole(args.size, "--size", 1, FARTHEST_BYTES))
    touched = asked.pattern
    cost = transactions(touched.byte_addresses, touched.active, touched.width_bytes)
    return Answer(lambda: document(asked, cost), lambda show: show_transactions(asked, cost))


def document(asked: Asked, cost: Transactions) -> Document:
    """The JSON document of an expression."""
    warps = [{"warp": warp, **_counts(asked, cost, slice(warp, warp + 1))} for warp in range(asked.pattern.warps)]
    return {**asked.document(), **_counts(asked, cost, slice(None)), "warps": warps}


def _counts(asked: Asked, cost: Transactions, warps: slice) -> Document:
    """Counts summed over warps; the efficiency is the share of what moves that is of use, if anything moves."""
    counts = {name: int(getattr(cost, name)[warps].sum()) for name in ("requests", "sectors", "lines")}
    useful = int(useful_bytes(asked.pattern)[warps].sum())
    moved = SECTOR_BYTES * counts["sectors"]
    return {**counts, "bytes": useful, "efficiency": useful / moved if moved else None}


def show_transactions(asked: Asked, cost: Transactions) -> None:
    """The totals, which lanes touch which sectors in the worst warp, and what a profiler says."""
    from gemmsim.console import facts, line, table

    counts = _counts(asked, cost, slice(None))
    warp = int(cost.sectors.argmax())
    line(str(asked))
    line(
        f"{plural(counts['requests'], 'request')}, {plural(counts['sectors'], 'sector')} of {SECTOR_BYTES} bytes in"
        f" {plural(counts['lines'], 'line')}; {count(counts['bytes'])} bytes of use, {percent(counts['efficiency'])} of"
        " what moves"
    )
    rows = list(sector_rows(asked, warp))
    table(
        f"Lanes by sector{f', warp {warp}, the first that takes most' if asked.pattern.warps > 1 else ''}",
        (f"{LINE_BYTES} bytes at", *(f"+{SECTOR_BYTES * place}" for place in range(SECTORS_OF_LINE))),
        rows[:MOST_LINES],
        text=range(1 + SECTORS_OF_LINE),
    )
    if len(rows) > MOST_LINES:
        line(f"and {len(rows) - MOST_LINES} more lines")
    facts("In Nsight Compute, an execution by one block", profiler(asked, counts))


def sector_rows(asked: Asked, warp: int) -> Iterator[tuple[str, ...]]:
    """The lines of memory that a warp touches: the address of each, and the lanes at each of its sectors."""
    sectors = lanes_of_sectors(asked.pattern, warp)
    for line_number in sorted({sector // SECTORS_OF_LINE for sector in sectors}):
        lanes = (sectors.get(SECTORS_OF_LINE * line_number + place, ()) for place in range(SECTORS_OF_LINE))
        yield (f"{LINE_BYTES * line_number:#x}", *(ranges(some) or "." for some in lanes))


def profiler(asked: Asked, counts: Document) -> list[tuple[str, str]]:
    """What its counters show, by their names."""
    from gemmsim.gpu.counters import METRICS

    return [
        (name, f"{count(counts[name])}: {METRICS[f'global_{asked.direction}_{name}']}")
        for name in ("requests", "sectors")
    ]
