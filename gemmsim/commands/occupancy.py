"""`gemmsim occupancy`: what fits on a multiprocessor, what limits it, and what a little more or less would change."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from gemmsim import answers
from gemmsim.analytic.launch_waves import SplitK, Waves, waves
from gemmsim.commands.command import Answer, Document
from gemmsim.commands.occupancy_files import run_batch
from gemmsim.commands.occupancy_options import Asked, asked_of
from gemmsim.commands.occupancy_options import add_occupancy as add_occupancy
from gemmsim.commands.pictures import picture_path, write_picture
from gemmsim.errors import Warn
from gemmsim.occupancy import UNLIMITED, Occupancy
from gemmsim.occupancy.cliffs import Cliff, Sweep, largest_dynamic_shared, sweeps
from gemmsim.units import count, percent, plural, si, words

NOUNS = {"registers": "register", "shared_bytes": "shared byte", "threads": "thread", "barriers": "barrier"}
BESIDE = 4
"""Numbers of blocks on each side of the present one that the table of shared memory shows."""


@dataclass(frozen=True)
class Found:
    """The answer to one question."""

    asked: Asked
    resident: Occupancy
    sweeps: dict[str, Sweep]
    dynamic_shared_bytes: dict[int, int]
    split: SplitK | None
    waves: Waves | None


def run_occupancy(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim occupancy"""
    if args.batch is not None:
        return run_batch(args)
    picture = None if args.picture is None else picture_path(args.picture)
    found = find(asked_of(args))
    if picture is not None:
        draw(found, picture)
    return Answer(lambda: document(found), lambda show: show_occupancy(found))


def find(asked: Asked) -> Found:
    """What fits, what is beside it, and how the launch spreads, if there is one and it launches."""
    resident = asked.block.on(asked.capability)
    split = SplitK(asked.problem, asked.slices) if asked.problem else None
    spread = None
    if resident.launches and asked.tiles is not None:
        spread = waves(asked.tiles * asked.slices, asked.sms, resident.blocks_per_sm)
    return Found(
        asked,
        resident,
        sweeps(asked.capability, asked.block),
        largest_dynamic_shared(asked.capability, asked.block),
        split,
        spread,
    )


def draw(found: Found, path: Path) -> None:
    """Write the three classic charts; InputError for a path that cannot take them."""
    from gemmsim.plots.occupancy import charts  # imports Matplotlib, which takes long
    from gemmsim.plots.style import figure

    write_picture(charts(figure(7.2, 9.0), found.sweeps, found.asked.capability, _title(found.asked)), path)


def document(found: Found) -> Document:
    """The document of one block; a cliff is null where there is none, a limit where the block uses none of that."""
    asked = found.asked
    return {
        "capability": asked.capability.name,
        "device": asked.device and asked.device.name,
        "kernel": asked.kernel,
        "block": asdict(asked.block),
        "registers_source": asked.source,
        "spill_bytes": asked.spill_bytes,
        "occupancy": found.resident.occupancy,
        **answers.occupancy_details(found.resident),
        "cliffs": {
            resource: {"fewer": cliff(sweep.fewer), "more": cliff(sweep.more)}
            for resource, sweep in found.sweeps.items()
        },
        "largest_dynamic_shared_bytes": found.dynamic_shared_bytes,
        "launch": launch(found),
    }


def cliff(found: Cliff | None) -> Document | None:
    """One cliff."""
    return None if found is None else {**asdict(found), "launches": found.blocks_per_sm > 0}


def launch(found: Found) -> Document | None:
    """How the launch spreads; null where none was asked about, or it does not launch."""
    spread, split = found.waves, found.split
    if spread is None:
        return None
    return {
        "blocks": spread.blocks,
        "sms": spread.sms,
        "slots": spread.slots,
        "waves": spread.count,
        "rounds": spread.rounds,
        "utilization": spread.utilization,
        "tail_utilization": spread.tail_utilization,
        "busy_sms": spread.busy_sms,
        "tail_busy_sms": spread.tail_busy_sms,
        "split_k": found.asked.slices,
        "partial_bytes_written": split and split.partial_bytes_written,
        "partial_bytes_read": split and split.partial_bytes_read,
    }


def show_occupancy(found: Found) -> None:
    """What fits and why, the cliffs, and the launch."""
    from gemmsim.console import facts, line, table

    asked, resident = found.asked, found.resident
    chip = asked.capability
    line(_title(asked))
    if not resident.launches:
        line(f"\ndoes not launch: {resident.reason}")
    if asked.spill_bytes:
        line(f"the compiler spills {plural(asked.spill_bytes, 'byte')} a thread to local memory")
    facts(
        "What fits on a multiprocessor",
        [
            ("blocks", f"{count(resident.blocks_per_sm)}, limited by {' and '.join(map(words, resident.limiters))}"),
            ("warps", f"{count(resident.warps_per_sm)} of {chip.max_warps_per_sm}"),
            ("occupancy", percent(resident.occupancy)),
        ],
    )
    table(
        "Blocks that each resource alone allows",
        ("resource", "blocks", ""),
        (
            (words(name), "any" if limit == UNLIMITED else count(limit), "limits" if name in resident.limiters else "")
            for name, limit in resident.limits.items()
        ),
        text=(0, 2),
    )
    table(
        "Nearest cliffs: what would change the number of blocks or warps",
        ("change", "then", "blocks", "warps", "occupancy"),
        [
            (_change(sweep.resource, cliff), *_there(cliff, resident))
            for sweep in found.sweeps.values()
            for cliff in (sweep.fewer, sweep.more)
            if cliff
        ],
    )
    near = [n for n in found.dynamic_shared_bytes if abs(n - resident.blocks_per_sm) <= BESIDE]
    if near:
        table(
            "Most dynamic shared memory of a block",
            ("blocks on a multiprocessor", "bytes"),
            ((count(n), count(found.dynamic_shared_bytes[n])) for n in near),
        )
    if found.waves:
        facts("The launch", _launch(found.waves, found.split, asked.slices))


def _title(asked: Asked) -> str:
    block = asked.block
    registers = f"{plural(block.registers, 'register')}{'' if asked.source == 'given' else f' ({asked.source})'} each"
    kernel = f"{asked.kernel}: " if asked.kernel else ""
    return (
        f"{asked.where}, {kernel}{plural(block.threads, 'thread')} a block, {registers},"
        f" {plural(block.shared_bytes, 'byte')} of shared memory"
    )


def _change(resource: str, cliff: Cliff) -> str:
    return f"{plural(abs(cliff.change), NOUNS[resource])} {'fewer' if cliff.change < 0 else 'more'}"


def _there(cliff: Cliff, now: Occupancy) -> tuple[str, str, str, str]:
    if not cliff.blocks_per_sm:
        return count(cliff.value), "does not launch", "0", percent(0)
    blocks = count(cliff.blocks_per_sm)
    if cliff.blocks_per_sm != now.blocks_per_sm:
        blocks += f" instead of {count(now.blocks_per_sm)}"
    return count(cliff.value), blocks, count(cliff.warps_per_sm), percent(cliff.occupancy)


def _launch(spread: Waves, split: SplitK | None, slices: int) -> Iterator[tuple[str, str]]:
    """How the launch spreads over the GPU, and what cutting k costs."""
    cut = f", {slices} for each tile of C" if slices > 1 else ""
    yield "blocks", f"{count(spread.blocks)}{cut}; the GPU holds {count(spread.slots)} at once"
    yield (
        "waves",
        f"{spread.count:.3g}, so {plural(spread.rounds, 'round')} with {percent(spread.utilization)} of the places"
        f" taken; the last with {percent(spread.tail_utilization)}",
    )
    yield "busy", f"{count(spread.busy_sms)} of {plural(spread.sms, 'multiprocessor')}"
    if split and slices > 1:
        yield (
            "reduction",
            f"{si(split.partial_bytes_written, 'B')} of FP32 partial results written, and read again to be added",
        )
