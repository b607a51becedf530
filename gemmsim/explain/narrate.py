"""The launch in sentences: each fact with its name, for tables to print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from gemmsim.device import Device
from gemmsim.explain.decomposition import Decomposition
from gemmsim.explain.edges import Coverage, Edges
from gemmsim.kernels import Resources
from gemmsim.main_loops.port_shares import COMPILED, NONE, TYPICAL, PortShare
from gemmsim.occupancy import UNLIMITED, Occupancy
from gemmsim.pipeline.timeline import Timeline
from gemmsim.register_table import TABLE
from gemmsim.units import count, percent, plural, words

_CARRIED = "global -> registers -> shared memory"
Facts: TypeAlias = Iterable[tuple[str, str]]
LEAST_GAIN = 0.005
"""Speed that is worth a word."""


def division(found: Decomposition) -> Facts:
    """Grid, block and iterations."""
    tiling, tiles = found.tiling, found.grid
    across, down = found.thread_grid
    yield (
        "grid",
        f"{count(tiles.m)} x {count(tiles.n)}{_each(tiling.split_k)} blocks of {tiling.block_m} x {tiling.block_n}"
        f" results: {plural(found.blocks, 'block')} of {count(found.outputs_per_block)}",
    )
    if tiling.split_k > 1:
        yield "split", f"{plural(tiling.split_k, 'block')} share the k dimension of each tile of C"
    yield (
        "block",
        f"{down} x {across} threads of {tiling.thread_m} x {tiling.thread_n} results:"
        f" {plural(tiling.threads, 'thread')} ({plural(tiling.warps, 'warp')}{_warp(found)}) of"
        f" {found.outputs_per_thread}",
    )
    small = f", {found.inner_iterations} small ones in each" if found.kernel.staged else ""
    yield (
        "k",
        f"{plural(found.k_iterations, iteration(found))}{small},"
        f" {found.ffma_per_inner_iteration} FFMA a thread in each of those",
    )


def _guards(found: Decomposition) -> str:
    """Why nothing beyond the matrices takes part."""
    if found.kernel.copies:
        return "rows and columns beyond a matrix are read as its last, and never stored"
    return "every access is guarded"


def _warp(found: Decomposition) -> str:
    """The tile of a warp, where it has one."""
    return f" of {found.tiling.warp_m} x {found.tiling.warp_n} results" if found.kernel.warp_tiled else ""


def _each(split_k: int) -> str:
    """A factor of the grid, where it is one."""
    return f" x {split_k}" if split_k > 1 else ""


def iteration(found: Decomposition) -> str:
    """What a step along k is called."""
    return "large iteration" if found.kernel.staged else "iteration"


def moves(found: Decomposition) -> Facts:
    """The way of A, B and C, and how wide."""
    widths, bits = found.widths, 8 * found.problem.element_bytes
    if found.kernel.staged:
        for name, width, how in (
            ("a", widths.global_a, ", stored transposed" if found.kernel.transposed else ""),
            ("b", widths.global_b, ""),
        ):
            rows, columns = found.tile_elements[name]
            path = "global -> shared memory, past the registers" if found.kernel.copies else _CARRIED
            path += f", read {bits * width}-bit{how}"
            yield f"tile of {name.upper()}", f"{rows} x {columns}, {path}"
        fragments = f"{found.tiling.thread_m} + {found.tiling.thread_n}"
        ahead = ", the next while the present one is multiplied" if found.kernel.prefetches else ""
        yield "fragments", f"{fragments} elements a thread and small iteration, shared -> registers{ahead}"
    else:
        yield "A and B", f"an element of each for every thread, global memory -> registers, {bits}-bit"
    yield "C", f"at the end, registers -> global memory, {bits * widths.global_c}-bit"


def block(found: Decomposition, resident: Occupancy, device: Device) -> Facts:
    """What a block takes of a multiprocessor, and how many find room."""
    resources, stages = found.resources, found.tiling.stages
    parts = f" ({stages} stages of {count(found.shared_bytes_per_stage)})" if stages > 1 else ""
    yield "shared memory", f"{count(resources.shared_bytes)} bytes{parts}" if resources.shared_bytes else "none"
    yield "registers", f"{resources.registers_per_thread} a thread ({resources.source})"
    yield f"on {device.name}", residence(resident, resources)


def main_loop(ports: PortShare) -> Facts:
    """What the FFMA of the main loop reach of their peak, and what another order of theirs would bring."""
    if ports.source == NONE:
        yield "main loop", "nothing is known of its register reads: counted as if they never conflicted"
        return
    where = {
        COMPILED: "this compiled code",
        TABLE: "the compiled code, as in the table",
        TYPICAL: "usual for this kernel and thread tile",
    }[ports.source]
    gain = f"{percent(ports.gain, signed=True)} speed" if ports.gain >= LEAST_GAIN else "hardly more"
    yield (
        "main loop",
        f"{percent(ports.fraction)} of the FFMA peak by register ports and issue slots ({where});"
        f" an ideal order would reach {percent(ports.ideal_fraction)}: {gain}",
    )


def residence(resident: Occupancy, resources: Resources) -> str:
    """How many blocks find room, why no more, and whether that rests on an estimate."""
    about = doubt = ""
    if resources.source == "estimate":
        about = "about "
        doubt = (
            f"; from an estimate of {resources.registers_per_thread} registers, --compile or --registers makes it exact"
        )
    if not resident.launches:
        return f"does not launch: {resident.reason}{doubt}"
    limiters = " and ".join(words(name) for name in resident.limiters)
    limits = ", ".join(f"{words(name)} {limit}" for name, limit in resident.limits.items() if limit != UNLIMITED)
    return (
        f"{about}{plural(resident.blocks_per_sm, 'block')} an SM, {plural(resident.warps_per_sm, 'warp')}, occupancy"
        f" {percent(resident.occupancy)}, limited by {limiters} (blocks allowed: {limits}){doubt}"
    )


def edges(found: Decomposition) -> Facts:
    """What the edges cost this launch."""
    at = found.edges
    if at.whole:
        yield "tiles", "all whole: m, n and k are multiples of the tile"
    else:
        partial = [f"{at.left[axis]} of {tile} along {axis}" for axis, tile in at.multiples.items() if tile > 1]
        yield "last tile", f"covers {', '.join(partial)}"
        wasted = f"{percent(at.padding_fraction)} multiply zeros outside" if at.padding_fraction else "none wasted"
        yield "FFMA", f"{wasted}; {_guards(found)}, so the result is right"
    yield from _one_by_one(found)


def _one_by_one(found: Decomposition) -> Facts:
    """The matrices that move one element at a time, though the tiling allows wider accesses."""
    widths, problem, vector = found.widths, found.problem, found.tiling.vector
    for names, verb, width, axis, size in (
        ("A", "moves", widths.global_a, "k", problem.k),
        ("B and C", "move", widths.global_b, "n", problem.n),
    ):
        if width < vector:
            yield names, f"{verb} one element at a time, {axis} = {size} not being a multiple of {vector}"


def unguarded(found: Edges) -> Facts:
    """What the same tiling would do in kernels that guard no edge, or not all of them."""
    if found.whole:
        yield "no guards", "right as well: every tile is whole"
    else:
        needed = ", ".join(f"{axis} of {tile}" for axis, tile in found.multiples.items() if tile > 1)
        sizes = " x ".join(map(str, found.padded.values()))
        yield "no guards", f"would need multiples ({needed}); padded, the sizes are {sizes}"
    if found.vector_multiples:
        conditions = " and ".join(f"{axis} a multiple of {of}" for axis, of in found.vector_multiples.items())
        yield "full vectors", f"would need {conditions}"
    if found.overrun.unsafe_blocks:
        yield (
            "guards in m, n",
            f"in the last blocks alone: {plural(found.overrun.unsafe_blocks, 'block')} would read"
            f" {plural(found.overrun.elements_past_b, 'element')} past the end of B each",
        )
    for name, coverage in (("grid rounded down", found.grid_rounded_down), ("grid swapped", found.grid_swapped)):
        if not (coverage.launches and coverage.exact):
            yield name, _coverage(coverage)


def _coverage(found: Coverage) -> str:
    if not found.launches:
        return "no block: a launch error"
    parts = (
        ("row", found.rows_never_written, "never written"),
        ("column", found.columns_never_written, "never written"),
        ("row", found.rows_out_of_range, "out of range"),
        ("column", found.columns_out_of_range, "out of range"),
    )
    return "; ".join(f"{_numbers(what, numbers)} {happens}" for what, numbers, happens in parts if numbers)


def _numbers(what: str, numbers: range) -> str:
    """Such as "row 1000", or "rows 896 to 1000"."""
    return f"{what}s {numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"{what} {numbers[0]}"


def hiding(timelines: Sequence[Timeline]) -> str:
    """One sentence on how much of the time of its loads a warp does not stand still for them, and on what an iteration
    takes."""
    said = [
        f"{each.kernel.name} hides {percent(each.hidden)} of {count(round(each.flight_cycles / each.iterations))}"
        for each in timelines
    ]
    taken = [f"{count(round(each.cycles_per_iteration))} of {each.kernel.name}" for each in timelines]
    return (
        f"Of the cycles of an iteration for which a warp's loads are on their way, {' and '.join(said)};"
        f" an iteration of a block takes {' and '.join(taken)} from the multiprocessor."
    )
