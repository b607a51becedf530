"""What a compiler made of a thread tile, against the best that is found for that tile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from gemmsim.errors import InputError, require
from gemmsim.registers.reads import Instruction, PortReport, Stream, simulate
from gemmsim.registers.register_files import RegisterFile, register_file
from gemmsim.registers.tile_allocation import ACCUMULATORS, Runs, ThreadTile, allocate, placement
from gemmsim.registers.tile_order import FLAGS, Order, Plan
from gemmsim.registers.tile_search import Found, best_plan

NO_PRODUCT = "the FFMA of the stream are no outer products: {why}"


@dataclass(frozen=True)
class Distance:
    """An emitted stream beside the best plan of its tile.

    `emitted` is the whole stream, whatever else stands between its FFMA; `same_order` its orders, step by step, in
    registers and with flags of their own choice. Each gain is by how much faster that is than the stream, for
    its FFMA alone.
    """

    tile: ThreadTile
    orders: tuple[Order, ...]
    emitted: PortReport
    same_order: PortReport
    best: Found

    @property
    def gain(self) -> float:
        """Cycles per FFMA of the stream over those of the best plan, minus 1."""
        return self.emitted.cycles_per_ffma / self.best.report.cycles_per_ffma - 1

    @property
    def gain_of_registers(self) -> float:
        """The same of the emitted order with better registers and flags."""
        return self.emitted.cycles_per_ffma / self.same_order.cycles_per_ffma - 1


def compare_with(stream: Stream, file: RegisterFile | None = None, warps: int = 1, seed: int = 0) -> Distance:
    """How far a main loop is from the best plan of its thread tile; what is no FFMA is left out.

    Raises InputError for a stream that does not multiply fragments of a thread tile, step by step.
    """
    file = file or register_file()
    ffma = Stream(tuple(each for each in stream.instructions if each.kind == "FFMA"))
    tile, orders = outer_products(ffma)
    (emitted,) = simulate([ffma], file, warps)
    return Distance(
        tile, orders, emitted, _best_registers(tile, orders, file, warps), best_plan(tile, file, warps=warps, seed=seed)
    )


def _best_registers(tile: ThreadTile, orders: tuple[Order, ...], file: RegisterFile, warps: int) -> PortReport:
    """The fastest of the named places of accumulators and flags, every k step in its own order."""
    runs = Runs.widest(tile)
    streams = []
    for name, flags in product(ACCUMULATORS, FLAGS):
        registers = allocate(placement(tile, name, runs, file.banks), runs, file.banks)
        steps = (Plan(registers, order, flags).stream(file).instructions for order in orders)
        streams.append(Stream(tuple(each for step in steps for each in step)))
    return min(simulate(streams, file, warps), key=lambda report: report.cycles)


def outer_products(stream: Stream) -> tuple[ThreadTile, tuple[Order, ...]]:
    """The thread tile that a loop of FFMA multiplies, and the order in which each k step does.

    An accumulator is followed from register to register: an FFMA reads it in slot C and leaves it in its
    destination. The n-th FFMA of every accumulator makes the n-th k step. Rows are what slot A holds more often.
    Raises InputError where the FFMA are no whole outer products.
    """
    steps = _steps(stream)
    rows, columns = _sides([pair for _, pair in steps[0]])
    tile = ThreadTile(len(rows), len(columns))
    cells = {}
    for accumulator, pair in steps[0]:
        first, second = pair if pair[0] in rows else pair[::-1]
        cells[accumulator] = rows.index(first), columns.index(second)
    require(len(set(cells.values())) == tile.ffma == len(steps[0]), NO_PRODUCT, why=f"some of {tile} are missing")
    for number, step in enumerate(steps):
        have = {accumulator for accumulator, _ in step}
        require(have == set(cells), NO_PRODUCT, why=f"k step {number} has {len(have)} of {tile.ffma} accumulators")
    return tile, tuple(tuple(cells[accumulator] for accumulator, _ in step) for step in steps)


Use = tuple[int, tuple[int, int]]
"""Number of an accumulator, registers in slots A and B."""


def _steps(stream: Stream) -> list[list[Use]]:
    """The FFMA of each k step, in order."""
    steps: dict[int, list[Use]] = defaultdict(list)
    holds: dict[int, int] = {}
    done: dict[int, int] = defaultdict(int)
    for first, second, read, written in _operands(stream.instructions):
        accumulator = holds.pop(read, len(done))
        steps[done[accumulator]].append((accumulator, (first, second)))
        done[accumulator] += 1
        holds[written] = accumulator
    return [steps[number] for number in sorted(steps)]


def _operands(instructions: tuple[Instruction, ...]) -> Iterator[tuple[int, int, int, int]]:
    """Registers in slots A, B and C, and the destination, of every FFMA."""
    for each in instructions:
        registers = (*each.sources, each.destination)
        if len(registers) != 4 or None in registers:
            raise InputError(NO_PRODUCT.format(why=f"sources {each.sources} and destination {each.destination}"))
        yield registers  # type: ignore[misc]


def _sides(pairs: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    """The registers on either side of a product, each side ascending; first the one that slot A holds more often."""
    partners: dict[int, set[int]] = defaultdict(set)
    for first, second in pairs:
        partners[first].add(second)
        partners[second].add(first)
    one, other = sorted(partners[pairs[0][1]]), sorted(partners[pairs[0][0]])
    apart = not set(one) & set(other) and len(one) + len(other) == len(partners)
    require(apart, NO_PRODUCT, why=f"{len(partners)} registers are multiplied in its first k step")
    in_slot_a = sum(first in one for first, _ in pairs)
    return (one, other) if 2 * in_slot_a >= len(pairs) else (other, one)
