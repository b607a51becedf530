"""Results as tables and a few lines for people, within 80 columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gemmsim.answers import DEVICE_NUMBERS, mean_error, source_of
from gemmsim.compare import Comparison
from gemmsim.console import facts, line, table
from gemmsim.device import Device
from gemmsim.edges import Coverage, Edges
from gemmsim.explain import Decomposition
from gemmsim.occupancy import UNLIMITED, Occupancy
from gemmsim.options import Configuration
from gemmsim.predict import Prediction
from gemmsim.records import Point, Record
from gemmsim.roofline import floor_s
from gemmsim.traffic import Traffic, formulas
from gemmsim.units import count as count
from gemmsim.units import duration as duration
from gemmsim.units import percent as percent
from gemmsim.units import plural
from gemmsim.units import si as si

WORST_POINTS = 5


def explanation(asked: Configuration, found: Decomposition, resident: Occupancy) -> None:
    """The decomposition as a short account, then what shared memory and the edges do."""
    _heading(asked, asked.device)
    facts("How the work is divided", _division(found))
    facts(f"What moves in one {_iteration(found)} of a block", _moves(found))
    facts("What a block takes", _resources(found, resident, asked.device))
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
    facts("Edges", _edges(found.edges))


def _division(found: Decomposition) -> Iterable[tuple[str, str]]:
    tiling, tiles = found.tiling, found.grid
    across, down = found.thread_grid
    yield (
        "grid",
        f"{count(tiles.m)} x {count(tiles.n)} blocks of {tiling.block_m} x {tiling.block_n} results:"
        f" {plural(found.blocks, 'block')} of {count(found.outputs_per_block)}",
    )
    yield (
        "block",
        f"{down} x {across} threads of {tiling.thread_m} x {tiling.thread_n} results:"
        f" {plural(tiling.threads, 'thread')} ({plural(tiling.warps, 'warp')}) of {found.outputs_per_thread}",
    )
    small = f", {found.inner_iterations} small ones in each" if found.kernel.staged else ""
    yield (
        "k",
        f"{plural(found.k_iterations, _iteration(found))}{small},"
        f" {found.ffma_per_inner_iteration} FFMA a thread in each of those",
    )


def _iteration(found: Decomposition) -> str:
    return "large iteration" if found.kernel.staged else "iteration"


def _moves(found: Decomposition) -> Iterable[tuple[str, str]]:
    widths, bits = found.widths, 8 * found.problem.element_bytes
    if found.kernel.staged:
        for name, width, how in (
            ("a", widths.global_a, ", stored transposed" if found.kernel.transposed else ""),
            ("b", widths.global_b, ""),
        ):
            rows, columns = found.tile_elements[name]
            path = f"global -> registers -> shared memory, read {bits * width}-bit{how}"
            yield f"tile of {name.upper()}", f"{rows} x {columns}, {path}"
        fragments = f"{found.tiling.thread_m} + {found.tiling.thread_n}"
        ahead = ", the next while the present one is multiplied" if found.kernel.prefetches else ""
        yield "fragments", f"{fragments} elements a thread and small iteration, shared -> registers{ahead}"
    else:
        yield "A and B", f"an element of each for every thread, global memory -> registers, {bits}-bit"
    yield "C", f"at the end, registers -> global memory, {bits * widths.global_c}-bit"


def _resources(found: Decomposition, resident: Occupancy, device: Device) -> Iterable[tuple[str, str]]:
    resources, stages = found.resources, found.tiling.stages
    parts = f" ({stages} stages of {count(found.shared_bytes_per_stage)})" if stages > 1 else ""
    yield "shared memory", f"{count(resources.shared_bytes)} bytes{parts}" if resources.shared_bytes else "none"
    yield "registers", f"{resources.registers_per_thread} a thread ({resources.source})"
    yield f"on {device.name}", _occupancy(resident)


def _occupancy(resident: Occupancy) -> str:
    if not resident.launches:
        return f"does not launch: {resident.reason}"
    limiters = " and ".join(name.replace("_", " ") for name in resident.limiters)
    limits = ", ".join(
        f"{name.replace('_', ' ')} {limit}" for name, limit in resident.limits.items() if limit != UNLIMITED
    )
    return (
        f"{plural(resident.blocks_per_sm, 'block')} an SM, {plural(resident.warps_per_sm, 'warp')}, occupancy"
        f" {percent(resident.occupancy)}, limited by {limiters} (blocks allowed: {limits})"
    )


def _edges(found: Edges) -> Iterable[tuple[str, str]]:
    if found.whole:
        yield "tiles", "all whole: m, n and k are multiples of the tile"
    else:
        partial = [f"{found.left[axis]} of {tile} along {axis}" for axis, tile in found.multiples.items() if tile > 1]
        padding = f"{percent(found.padding_fraction)} of the FFMA" if found.padding_fraction else "no FFMA"
        yield "last tile", f"covers {', '.join(partial)}; {padding} for padding"
    if found.vector_multiples:
        conditions = " and ".join(f"{axis} a multiple of {of}" for axis, of in found.vector_multiples.items())
        yield "full vectors", f"need {conditions}; the matrix whose leading dimension is not moves one by one"
    if not found.whole:
        needed = ", ".join(f"{axis} of {tile}" for axis, tile in found.multiples.items() if tile > 1)
        sizes = " x ".join(map(str, found.padded.values()))
        yield "without guards", f"a kernel needs multiples ({needed}); padded, the sizes are {sizes}"
    if found.overrun.unsafe_blocks:
        yield (
            "guards in m, n",
            f"in the last blocks alone: {plural(found.overrun.unsafe_blocks, 'block')} would read"
            f" {count(found.overrun.elements_past_b)} elements past the end of B each",
        )
    for name, coverage in (("grid rounded down", found.grid_rounded_down), ("grid swapped", found.grid_swapped)):
        if not (coverage.launches and coverage.exact):
            yield name, _coverage(coverage)


def _coverage(found: Coverage) -> str:
    if not found.launches:
        return "no block: a launch error"
    parts = (
        ("rows", found.rows_never_written, "never written"),
        ("columns", found.columns_never_written, "never written"),
        ("rows", found.rows_out_of_range, "out of range"),
        ("columns", found.columns_out_of_range, "out of range"),
    )
    return "; ".join(f"{what} {rows[0]} to {rows[-1]} {happens}" for what, rows, happens in parts if rows)


def traffic(asked: Configuration, counted: Traffic) -> None:
    """Counts of every level, the whole launch."""
    _heading(asked)
    reads, closed = counted.reads, formulas(asked.kernel)
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
                (name, count(counts.requests), "", count(counts.wavefronts), count(counts.ideal_wavefronts),
                 count(counts.excess))
                for name, counts in (("shared load", counted.shared_load), ("shared store", counted.shared_store))
            ),
        ),
    )  # fmt: skip
    notes = {
        "compulsory": "A and B read once, C written once",
        "global_issued": "what active lanes ask for",
        "l2": f"{counted.bounds['l2']} bound: 32 a sector",
        "dram": f"{counted.bounds['dram']} bound: all reuse in L2",
    }
    table(
        "Bytes",
        ("what", "bytes", "", ""),
        ((name.replace("_", " "), count(of), si(of, "B"), notes[name]) for name, of in counted.bytes.items()),
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
            ("time", f"{duration(found.time_s)} ({count(found.cycles)} cycles)"),
            (
                "rate",
                f"{si(found.flop_per_s, 'FLOP/s')}, {percent(found.flop_per_s / peak_flop_per_s)} of the"
                f" {si(peak_flop_per_s, 'FLOP/s')} peak",
            ),
            ("bound by", found.bound_by.replace("_", " ")),
            ("waves", f"{found.waves:.3g}"),
        ]
    known += [
        ("floor", f"{duration(floor_s(asked.problem, device))} at peak rate, every matrix moved once"),
        (
            "a block takes",
            f"{plural(resources.threads, 'thread')}, {resources.registers_per_thread} registers each"
            f" ({resources.source}), {count(resources.shared_bytes)} bytes of shared memory",
        ),
        ("residence", _occupancy(found.occupancy)),
        ("calibrated", "yes" if found.calibrated else "no: a lower bound from first principles"),
    ]
    facts("Prediction", known)
    longest_s = max(found.terms.values())
    table(
        "What each resource would need on its own",
        ("resource", "time", "of the longest"),
        (
            (name.replace("_", " "), duration(seconds), percent(seconds / longest_s))
            for name, seconds in sorted(found.terms.items(), key=lambda term: -term[1])
        ),
    )


def comparison(found: Comparison) -> None:
    """Errors per kernel, counters, and the points that are worst."""
    line(f"{plural(len(found.points), 'point')} measured on {found.device.title} ({found.device.name})")
    if found.points:
        table(
            "Error of the predicted time: predicted / measured - 1",
            ("kernel", "points", "mean |error|", "largest", "mean signed", "Kendall tau"),
            (
                (name, count(len(part.points)), percent(part.mape), percent(part.max_error),
                 percent(mean_error(part), signed=True), _tau(part.kendall_tau))
                for name, part in [*found.by_kernel().items(), ("all", found)]
            ),
        )  # fmt: skip
    if found.counters:
        table(
            "Counts: the model's against the hardware's",
            ("counter", "equal", "of points", "worst off by"),
            (
                (name, count(each.equal), count(each.total), f"{100 * each.worst_relative:.3g} %")
                for name, each in found.counters.items()
            ),
        )
    if found.points:
        worst = sorted(found.points, key=lambda point: -abs(point.error))[:WORST_POINTS]
        table(
            "Points predicted worst",
            ("kernel", "MxNxK", "tiling", "predicted", "measured", "error"),
            (
                (*_point(each.point), duration(each.predicted_s), duration(each.measured_s),
                 percent(each.error, signed=True))
                for each in worst
            ),
            text=(0, 1, 2),
        )  # fmt: skip
    _failures(found.failed)


def records(found: Sequence[Record]) -> None:
    """What was measured, one line a point."""
    table(
        "Measured",
        ("kernel", "MxNxK", "tiling", "median", "rate", "error of C"),
        ((*_point(record.point), *_outcome(record)) for record in found),
        text=(0, 1, 2),
    )
    _failures([record for record in found if not record.ok])


def _outcome(record: Record) -> tuple[str, str, str]:
    if record.median_s is None or not record.ok:
        return "failed", "", ""
    error = "" if record.verification_error is None else f"{record.verification_error:.1e}"
    return duration(record.median_s), si(record.point.problem.flop / record.median_s, "FLOP/s"), error


def _failures(failed: Sequence[Record]) -> None:
    if failed:
        line(f"\n{plural(len(failed), 'point')} failed")
        for record in failed:
            line(f"{record.point}: {record.failure}")


def _point(point: Point) -> tuple[str, str, str]:
    return point.kernel, f"{point.problem.m}x{point.problem.n}x{point.problem.k}", str(point.tiling)


def devices(found: Sequence[Device]) -> None:
    """All devices, one line each."""
    table(
        "",
        ("name", "cc", "SMs", "clock [MHz]", "FP32 [TFLOP/s]", "DRAM [GB/s]", "L2 [GB/s]", "L2 [MiB]"),
        (
            (
                each.name,
                each.capability.name,
                count(each.sms),
                f"{each.clock_hz / 1e6:.0f}",
                f"{each.fp32_flop_per_s / 1e12:.1f}",
                f"{each.dram_bytes_per_s / 1e9:.0f}",
                f"{'~' if each.l2_is_inherited else ''}{each.l2_bytes_per_s / 1e9:.0f}",
                f"{each.l2_bytes / 2**20:.3g}",
            )
            for each in found
        ),
    )
    line("\n~ scaled from the nearest GPU that was measured; `gemmsim devices NAME` names every source")


def device(found: Device) -> None:
    """One device: every number with its source."""
    line(f"{found.title} ({found.name})")
    rows = [("capability", found.capability.name, source_of(found, "capability"))]
    for name, unit in DEVICE_NUMBERS:
        value = getattr(found, name)
        if value is not None:
            note = f"; {found.notes[name]}" if name in found.notes else ""
            rows.append((name, _quantity(value, unit), source_of(found, name) + note))
    table("", ("", "value", "source"), rows, text=(0, 2))


def _quantity(value: float, unit: str) -> str:
    """MiB where it is whole: caches are made in powers of two, memory is sold in GB."""
    if unit == "B" and value % 2**20 == 0:
        return f"{count(value / 2**20)} MiB"
    return si(value, unit) if unit else count(value)


def files(written: Sequence[Path]) -> None:
    """The files written, one a line."""
    for path in written:
        line(str(path), wrap=False)


def _heading(asked: Configuration, on: Device | None = None) -> None:
    """What is asked about, and what was filled in."""
    line(f"{asked.kernel.name} on {on.title} ({on.name})" if on else asked.kernel.name)
    line(f"C = A B, m x n x k = {asked.problem}, {si(asked.problem.flop, 'FLOP')}")
    values = ", ".join(f"{name} {value}" for name, value in asked.kernel.tiling_dict(asked.tiling).items())
    line(f"tiling: {values}")
    if asked.defaults:
        line(f"by default: {' '.join(asked.defaults)}")


def _tau(value: float) -> str:
    return "-" if value != value else f"{value:.3f}"
