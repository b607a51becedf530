"""What the page holds for programs: the documents that the commands print of the same things."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from gemmsim import answers, register_table
from gemmsim.accesses.costs import access_costs
from gemmsim.caches.traffic import cache_traffic
from gemmsim.ladder import Rung
from gemmsim.occupancy.cliffs import Cliff
from gemmsim.options import Configuration
from gemmsim.predict import resident_blocks
from gemmsim.report.findings import Banked, Findings
from gemmsim.report.table import MOST_ROWS

Document = dict[str, Any]


def document(of: Findings) -> Document:
    """The documents of one device; of many points the first MOST_ROWS, as on the page."""
    return {
        "device": answers.device(of.device),
        "compare": _compared(of),
        "rungs": [_rung(rung, of) for rung in of.rungs],
        "banks": {name: _banked(each) for name, each in of.banked.items()},
        "registers": _registers(of),
        "occupancy": _occupancy(of),
        "timelines": [answers.timeline(each) for each in of.timelines],
    }


def _compared(of: Findings) -> Document | None:
    """As `gemmsim compare` has it."""
    if of.comparison is None:
        return None
    found = answers.comparison(of.comparison)
    return found | {"points": found["points"][:MOST_ROWS]}


def _rung(rung: Rung, of: Findings) -> Document:
    """As `gemmsim predict` and `gemmsim traffic` have it."""
    launch = rung.prediction.problem, rung.kernel, rung.tiling
    asked = Configuration(*launch, of.device, ())
    taken = register_table.resources(rung.kernel, asked.problem, rung.tiling, of.device.capability)
    resident = int(resident_blocks(taken, of.device).blocks_per_sm)
    caches = cache_traffic(*launch, of.device, resident) if resident else None
    return {
        "predict": answers.prediction(asked, rung.prediction, []),
        "traffic": answers.traffic(asked, rung.traffic, caches),
        "measured_s": rung.measured_s,
    }


def _banked(of: Banked) -> Document:
    """As `gemmsim banks --kernel` has it."""
    costs = access_costs(of.kernel, of.tiling, of.kernel.widths(of.problem, of.tiling), of.problem.element_bytes)
    return answers.launch(of.problem, of.kernel, of.tiling) | {"accesses": [answers.access(cost) for cost in costs]}


def _registers(of: Findings) -> Document | None:
    """As `gemmsim registers --thread` has it."""
    found = of.orders
    if found is None:
        return None
    reports = {"asked": found.report, "best": found.best.report}
    costs = {
        name: {
            "cycles_per_ffma": report.cycles_per_ffma,
            "peak_fraction": report.peak_fraction,
            "reuse_hits": report.reuse_hits,
        }
        for name, report in reports.items()
    }
    tile = {"thread_m": found.tile.thread_m, "thread_n": found.tile.thread_n}
    return tile | costs["asked"] | {"best": costs["best"], "gain": found.gain}


def _occupancy(of: Findings) -> Document | None:
    """As `gemmsim occupancy` has it."""
    if of.block is None:
        return None
    resident = of.block.on(of.device.capability)
    return {
        "block": asdict(of.block),
        "occupancy": resident.occupancy,
        **answers.occupancy_details(resident),
        "cliffs": {
            name: {"fewer": _cliff(sweep.fewer), "more": _cliff(sweep.more)} for name, sweep in of.sweeps.items()
        },
    }


def _cliff(of: Cliff | None) -> Document | None:
    return None if of is None else {**asdict(of), "launches": of.blocks_per_sm > 0}
