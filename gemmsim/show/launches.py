"""Launches: how they divide the work, what they count, how long they take."""

from __future__ import annotations

from collections.abc import Sequence

from gemmsim.caches.traffic import CacheTraffic
from gemmsim.calibration import calibration
from gemmsim.compare.error_bars import error_bar
from gemmsim.console import facts, line, table
from gemmsim.device import Device
from gemmsim.explain import Decomposition, narrate
from gemmsim.ladder import Rung
from gemmsim.main_loops.port_shares import PortShare
from gemmsim.occupancy import Occupancy
from gemmsim.options import Configuration
from gemmsim.predict import Prediction
from gemmsim.roofline import floor_s
from gemmsim.routes import SimulatedPrediction, analytic_s, route_of
from gemmsim.traffic import Traffic, formulas
from gemmsim.units import count, duration, percent, plural, si, words


def explanation(
    asked: Configuration, found: Decomposition, resident: Occupancy, ports: PortShare, unguarded: bool
) -> None:
    """The decomposition as a short account, then what shared memory and the edges do; `unguarded`: what they
    would do to other kernels too."""
    _heading(asked, asked.device)
    facts("How the work is divided", narrate.division(found))
    facts(f"What moves in one {narrate.iteration(found)} of a block", narrate.moves(found))
    facts("What a block takes", narrate.block(found, resident, asked.device))
    facts("How fast its main loop can be", narrate.main_loop(ports))
    if found.accesses:
        table(
            "Shared memory: one block, one large iteration (excess: bank conflicts)",
            ("access", "op", "width [bit]", "requests", "wavefronts", "ideal", "excess"),
            (
                (cost.name, cost.op, *map(count, (cost.width_bits, cost.requests, cost.wavefronts)),
                 *map(count, (cost.ideal_wavefronts, cost.excess)))
                for cost in found.accesses
            ),
            text=(0, 1),
        )  # fmt: skip
    if found.conflicts:
        facts("Where the bank conflicts are from", found.conflicts.items())
    facts("Edges", narrate.edges(found))
    if unguarded:
        facts("The same tiling in kernels that guard less (those of gemmsim guard all)", narrate.unguarded(found.edges))


def traffic(asked: Configuration, counted: Traffic, caches: CacheTraffic | None = None) -> None:
    """Counts of every level, the whole launch; without `caches` bounds of what passes below L1."""
    _heading(asked)
    reads, copies, closed = counted.reads, counted.copies, formulas(asked.kernel)
    table(
        "Reads: elements, the whole launch",
        ("level", "reads", "where all tiles are whole"),
        (
            ("global memory", count(reads.global_memory), closed["global"]),
            ("shared memory", count(reads.shared_memory), closed["shared"]),
            ("registers", count(reads.register), closed["register"]),
            ("(FFMA)", count(counted.ffma), "m n k"),
        ),
        text=(0, 2),
    )
    table(
        "Warp instructions, and what they cost (excess: bank conflicts)",
        ("access", "requests", "sectors [32 B]", "wavefronts", "ideal", "excess"),
        (
            *(
                (name, count(counts.requests), count(counts.sectors), "", "", "")
                for name, counts in (("global load", counted.global_load), ("global store", counted.global_store))
            ),
            *(
                (name, count(counts.requests), sectors, count(counts.wavefronts), count(counts.ideal_wavefronts),
                 count(counts.excess))
                for name, counts, sectors in (
                    ("shared load", counted.shared_load, ""),
                    ("shared store", counted.shared_store, ""),
                    *([("copy, global to shared", copies, count(copies.sectors))] if copies else ()),
                )
            ),
        ),
    )  # fmt: skip
    notes = {
        "compulsory": "A and B read once, C written once",
        "global_issued": "what active lanes ask for",
        "l2": "modelled" if caches else f"{counted.bounds['l2']} bound: 32 a sector",
        "dram": "modelled, caches empty before" if caches else f"{counted.bounds['dram']} bound: all reuse in L2",
    }
    moved = counted.bytes | (caches.bytes if caches else {})
    table(
        "Bytes",
        ("what", "bytes", "", ""),
        ((words(name), count(of), si(of, "B"), notes[name]) for name, of in moved.items()),
        text=(0, 3),
    )


def prediction(asked: Configuration, found: Prediction) -> None:
    """Predicted time, and the terms that it comes from."""
    device, resources = found.device, found.resources
    _heading(asked, device)
    known = [("time", "none: it does not launch")]
    if found.occupancy.launches:
        peak_flop_per_s = device.fp32_flop_per_s
        known = [
            ("time", f"{duration(found.time_s)} ({count(found.cycles)} cycles){_by_route(found)}"),
            *_error_bar(found),
            (
                "rate",
                f"{si(found.flop_per_s, 'FLOP/s')}, {percent(found.flop_per_s / peak_flop_per_s)} of the"
                f" {si(peak_flop_per_s, 'FLOP/s')} peak",
            ),
            ("bound by", words(found.bound_by)),
            ("waves", f"{found.waves:.3g}" if found.waves < 1000 else count(found.waves)),
        ]
    known += [
        ("floor", f"{duration(floor_s(asked.problem, device))} at peak rate, every matrix moved once"),
        (
            "a block takes",
            f"{plural(resources.threads, 'thread')}, {resources.registers_per_thread} registers each"
            f" ({resources.source}), {count(resources.shared_bytes)} bytes of shared memory",
        ),
        ("residence", narrate.residence(found.occupancy, resources)),
        *narrate.main_loop(found.ports),
        ("calibrated", _calibrated(device)),
    ]
    facts("Prediction", known)
    table(
        "What each resource would need on its own (one stage does shared memory and l1)",
        ("resource", "time", "of the time"),
        (
            (words(name), duration(seconds), percent(seconds / found.time_s))
            for name, seconds in sorted(found.terms.items(), key=lambda term: -term[1])
        ),
    )


def _calibrated(on: Device) -> str:
    known = calibration(on)
    if known.own:
        return "yes: what this GPU was measured to do"
    return "no: what other GPUs were measured to do, scaled, or the datasheet's; error bars are wider"


def _by_route(found: Prediction) -> str:
    """Which route says so, and what the others do, where they are known."""
    if not isinstance(found, SimulatedPrediction):
        return ", by closed forms"
    closed = f"by closed forms {duration(analytic_s(found))}"
    if route_of(found) == "simulated":
        return f", simulated; {closed}"
    return f"; simulated {duration(found.simulated_s)}, {closed}"


def _error_bar(found: Prediction) -> list[tuple[str, str]]:
    bar = error_bar(found)
    if bar is None:
        return []
    return [
        ("error bar", f"{duration(bar.low_s)} to {duration(bar.high_s)} in {percent(bar.promised)} of such launches"
         f" ({bar.basis})")
    ]  # fmt: skip


def ladder(found: Sequence[Rung]) -> None:
    """All kernels at one problem, a row each."""
    first = found[0].prediction
    line(f"C = A B, m x n x k = {first.problem}, {si(first.problem.flop, 'FLOP')}, on {first.device.title}")
    table(
        "",
        ("kernel", "tiling", "time", "timed", "TFLOP/s", "peak", "bound by", "occ."),
        (_rung(each) for each in found),
        text=(0, 1, 6),
    )
    estimates = " (~ from an estimate of its registers)" if any(_estimated(each) for each in found) else ""
    line(
        "\ntime, TFLOP/s, peak (share of what the GPU can) and bound by are predicted, timed is measured; occ."
        f" is the share of a multiprocessor's warps that are resident{estimates}"
    )


def _rung(of: Rung) -> tuple[str, ...]:
    found = of.prediction
    measured = "-" if of.measured_s is None else duration(of.measured_s)
    occupancy = f"{'~' if _estimated(of) else ''}{100 * found.occupancy.occupancy:.0f} %"
    if not found.occupancy.launches:
        return of.kernel.name, of.described, "never", measured, "-", "-", "does not launch", occupancy
    return (
        of.kernel.name,
        of.described,
        duration(found.time_s),
        measured,
        f"{found.flop_per_s / 1e12:.3g}",
        percent(found.flop_per_s / found.device.fp32_flop_per_s),
        words(found.bound_by.removeprefix("register_")),  # 80 columns have no room for more than "ports"
        occupancy,
    )


def _estimated(of: Rung) -> bool:
    return of.prediction.resources.source == "estimate"


def _heading(asked: Configuration, on: Device | None = None) -> None:
    """What is asked about, and what was filled in."""
    line(f"{asked.kernel.name} on {on.title} ({on.name})" if on else asked.kernel.name)
    line(f"C = A B, m x n x k = {asked.problem}, {si(asked.problem.flop, 'FLOP')}")
    values = ", ".join(f"{name} {value}" for name, value in asked.kernel.tiling_dict(asked.tiling).items())
    line(f"tiling: {values}")
    if asked.defaults:
        line(f"by default: {' '.join(asked.defaults)}")
    for name, elements in asked.unpadded.items():
        line(f"{name} 0; the default tile has {elements}")
