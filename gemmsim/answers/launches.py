"""Documents of launches: how they divide the work, what they count, how long they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from gemmsim.accesses.costs import AccessCost
from gemmsim.answers.document import Document, launch
from gemmsim.caches.traffic import CacheTraffic
from gemmsim.calibration import calibration
from gemmsim.compare.error_bars import ErrorBar, error_bar
from gemmsim.explain import Decomposition
from gemmsim.explain.edges import Coverage, Edges
from gemmsim.kernels import Resources
from gemmsim.ladder import Rung
from gemmsim.main_loops.port_shares import PortShare
from gemmsim.occupancy import UNLIMITED, Occupancy
from gemmsim.options import Configuration
from gemmsim.pipeline.timeline import Timeline
from gemmsim.predict import Prediction
from gemmsim.roofline import floor_s
from gemmsim.routes import analytic_s, route_of
from gemmsim.traffic import Traffic, formulas


def timeline(of: Timeline) -> Document:
    """The document of one timeline, without its intervals."""
    return launch(of.problem, of.kernel, of.tiling) | {
        "device": of.device.name,
        "program": of.program,
        "iterations": of.iterations,
        "cycles": of.cycles,
        "cycles_per_iteration": of.cycles_per_iteration,
        "clock_hz": of.clock_hz,
        "blocks": of.blocks,
        "warps": len(of.warps),
        "cycles_by_kind": of.cycles_by_kind,
        "waiting": of.waiting,
        "issuing": of.issuing,
        "flight_cycles": of.flight_cycles,
        "hidden": of.hidden,
    }


def registers(resources: Resources) -> Document:
    """Registers a thread, and who says so."""
    return {"value": resources.registers_per_thread, "source": resources.source}


def explanation(
    asked: Configuration, found: Decomposition, resident: Occupancy, ports: PortShare, warnings: Sequence[str]
) -> Document:
    """The document of `explain`."""
    return launch(found.problem, found.kernel, found.tiling) | {
        "defaults": asked.defaults,
        "device": asked.device.name,
        "blocks": found.blocks,
        "block_grid": found.block_grid,
        "thread_grid": found.thread_grid,
        "threads_per_block": found.tiling.threads,
        "warps_per_block": found.tiling.warps,
        "outputs_per_block": found.outputs_per_block,
        "outputs_per_thread": found.outputs_per_thread,
        "k_iterations": found.k_iterations,
        "inner_iterations": found.inner_iterations,
        "ffma_per_inner_iteration": found.ffma_per_inner_iteration,
        "tile_elements": found.tile_elements,
        "stages": found.tiling.stages if found.kernel.staged else 0,
        "elements_per_access": asdict(found.widths),
        "shared_bytes": found.resources.shared_bytes,
        "shared_bytes_per_stage": found.shared_bytes_per_stage,
        "registers_per_thread": registers(found.resources),
        "register_ports": register_ports(ports),
        "occupancy": resident.occupancy,
        "occupancy_details": occupancy_details(resident),
        "accesses": [access(cost) | {"reason": found.conflicts.get(cost.name)} for cost in found.accesses],
        "edges": edges(found.edges),
        "warnings": warnings,
    }


def access(cost: AccessCost) -> Document:
    """One access to shared memory, counted for one block and large iteration."""
    return asdict(cost) | {"excess": cost.excess}


def edges(found: Edges) -> Document:
    """Partial tiles, and what they would do to kernels with fewer guards."""
    return {
        "last_tile": found.left,
        "padding_fraction": found.padding_fraction,
        "vector_multiples": found.vector_multiples,
        "unguarded": {
            "multiples": found.multiples,
            "padded_sizes": found.padded,
            "right": found.whole,
            "unsafe_blocks": found.overrun.unsafe_blocks,
            "elements_past_b_per_block": found.overrun.elements_past_b,
            "grid_rounded_down": coverage(found.grid_rounded_down),
            "grid_swapped": coverage(found.grid_swapped),
        },
    }


def coverage(found: Coverage) -> Document:
    """Rows and columns as [first, last], or null where there are none."""
    return {
        "launches": found.launches,
        **{
            name: [rows[0], rows[-1]] if rows else None for name, rows in vars(found).items() if isinstance(rows, range)
        },
    }


def occupancy_details(resident: Occupancy) -> Document:
    """What fits on a multiprocessor; a limit is null where the block uses none of that."""
    return {
        "blocks_per_sm": resident.blocks_per_sm,
        "warps_per_sm": resident.warps_per_sm,
        "limits": {name: None if limit == UNLIMITED else limit for name, limit in resident.limits.items()},
        "limiters": resident.limiters,
        "launches": resident.launches,
        "reason": resident.reason,
    }


def traffic(asked: Configuration, counted: Traffic, caches: CacheTraffic | None = None) -> Document:
    """The document of `traffic`; without `caches`, of a launch that does not fit, bytes below L1 are bounds."""
    by_direction = {"shared_load": counted.shared_load, "shared_store": counted.shared_store}

    def shared(name: str) -> Document:
        return {direction: getattr(counts, name) for direction, counts in by_direction.items()}

    return launch(asked.problem, asked.kernel, asked.tiling) | {
        "defaults": asked.defaults,
        "flop": asked.problem.flop,
        "ffma": counted.ffma,
        "reads": {
            "global": counted.reads.global_memory,
            "shared": counted.reads.shared_memory,
            "register": counted.reads.register,
        },
        "bytes": counted.bytes | (caches.bytes if caches else {}),
        "bounds": {} if caches else counted.bounds,
        "caches": caches.counters if caches else None,
        "requests": {
            "global_load": counted.global_load.requests + (counted.copies.requests if counted.copies else 0),
            "global_store": counted.global_store.requests,
            **shared("requests"),
        },
        "sectors": {"global_load": counted.loaded_sectors, "global_store": counted.global_store.sectors},
        "wavefronts": shared("wavefronts"),
        "ideal_wavefronts": shared("ideal_wavefronts"),
        "excess": {direction: counts.excess for direction, counts in by_direction.items()},
        "copies": asdict(counted.copies) if counted.copies else None,
        "formulas": formulas(asked.kernel),
    }


def prediction(asked: Configuration, found: Prediction, warnings: Sequence[str]) -> Document:
    """The document of `predict`; times are null where the kernel does not launch."""
    return launch(asked.problem, asked.kernel, asked.tiling) | {
        "defaults": asked.defaults,
        "device": found.device.name,
        "launches": found.occupancy.launches,
        "route": route_of(found),
        "time_s": found.time_s,
        "error_bar": bar(error_bar(found)),
        "analytic_s": analytic_s(found),
        "cycles": round(found.cycles, 6),  # whole ones come out whole, whatever seconds times hertz leave
        "flop_per_s": found.flop_per_s,
        "bound_by": found.bound_by if found.occupancy.launches else None,
        "terms": found.terms,
        "register_ports": register_ports(found.ports),
        "floor_s": floor_s(asked.problem, found.device),
        "waves": found.waves,
        "occupancy": found.occupancy.occupancy,
        "occupancy_details": occupancy_details(found.occupancy),
        "resources": {
            "threads": found.resources.threads,
            "shared_bytes": found.resources.shared_bytes,
            "registers_per_thread": registers(found.resources),
        },
        "calibrated": calibration(found.device).own,
        "warnings": warnings,
    }


def bar(found: ErrorBar | None) -> Document | None:
    """Where a measured time shall lie, and how often it does; null where nothing is known of that."""
    return None if found is None else asdict(found)


def register_ports(found: PortShare) -> Document:
    """Shares of the FFMA peak in the main loop, and by how much faster it were without conflicts."""
    return {
        "peak_fraction": found.fraction,
        "ideal_fraction": found.ideal_fraction,
        "gain": found.gain,
        "source": found.source,
    }


def ladder(found: Sequence[Rung], warnings: Sequence[str]) -> Document:
    """The document of `ladder`; times are null where a kernel does not launch or was not measured."""
    first = found[0].prediction
    return {
        "problem": asdict(first.problem),
        "device": first.device.name,
        "rungs": [rung(each) for each in found],
        "warnings": warnings,
    }


def rung(of: Rung) -> Document:
    """One kernel of the ladder."""
    found = of.prediction
    launches = found.occupancy.launches
    return {
        "kernel": of.kernel.name,
        "tiling": of.kernel.tiling_dict(of.tiling),
        "launches": launches,
        "route": route_of(found),
        "time_s": found.time_s,
        "flop_per_s": found.flop_per_s,
        "peak_fraction": found.flop_per_s / found.device.fp32_flop_per_s,
        "bound_by": found.bound_by if launches else None,
        "occupancy": found.occupancy.occupancy,
        "registers_per_thread": registers(found.resources),
        "measured_s": of.measured_s,
    }
