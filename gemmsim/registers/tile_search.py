"""The best order, registers and reuse flags of a thread tile, for the register file of an architecture.

Candidates are simulated, never scored by another rule. First come the named orders with the named places of the
accumulators; they are the best possible where one of them needs no more cycles than its reads take at least. Where
none does, tiny tiles are gone through choice by choice, and others improved by seeded local search.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, permutations, product, zip_longest
from math import factorial, prod

from gemmsim.registers.reads import PortReport, simulate
from gemmsim.registers.register_files import RegisterFile, register_file
from gemmsim.registers.tile_allocation import (
    ACCUMULATORS,
    Allocation,
    Placement,
    Runs,
    ThreadTile,
    allocate,
    placement,
    with_run,
)
from gemmsim.registers.tile_order import ORDERS, Order, Plan

FLAGS_TRIED = ("next", "held", "all")
"""Those that can be best: an operand that nothing keeps is read once more than it need be."""
LARGEST_EXHAUSTIVE = 20_000
"""Plans of a tile that is gone through one by one."""
BATCH, PATIENCE, MOST_BATCHES = 64, 16, 60
"""Neighbours that are simulated together; batches in vain after which the search ends; batches at most."""
EXACT = 1e-6
"""Cycles a pass that are no difference."""
SOURCES = 3
"""Registers that an FFMA names."""


@dataclass(frozen=True)
class Found:
    """The best plan found, and what it costs; `least_cycles` a pass cannot be bettered. `simulated` are the plans that
    were compared, `tried_all` whether there are no others."""

    plan: Plan
    report: PortReport
    least_cycles: float
    tried_all: bool
    simulated: int

    @property
    def meets_bound(self) -> bool:
        """Whether it takes the least cycles that there can be."""
        return self.report.cycles <= self.least_cycles + EXACT

    @property
    def proven(self) -> bool:
        """Whether no plan is faster."""
        return self.tried_all or self.meets_bound

    @property
    def reads(self) -> int:
        """Registers that a pass reads from the banks; what ports are left serves other instructions."""
        return reads(self.report)


def reads(report: PortReport) -> int:
    """Registers that a pass through FFMA alone reads from the banks."""
    return SOURCES * report.ffma - report.reuse_hits


def least_cycles(allocation: Allocation, file: RegisterFile) -> float:
    """Cycles a pass that no order and no flags can better: each fragment and accumulator is read once a k step, and
    a bank serves no more than its reads a cycle; nor does an FFMA start before the lanes are free."""
    sets = len(allocation.a)
    of_bank = Counter(register % file.banks for register in chain(*allocation.a, *allocation.b, *allocation.c * sets))
    return max(max(of_bank.values()) / file.reads_per_cycle, _arithmetic_cycles(allocation.tile, sets, file))


def least_cycles_anywhere(tile: ThreadTile, file: RegisterFile, sets: int = 1) -> float:
    """The same whatever registers the tile is put into, all sets of fragments alike: the banks share the reads as
    evenly as they can."""
    fullest = -(-tile.registers() // file.banks)
    return max(sets * fullest / file.reads_per_cycle, _arithmetic_cycles(tile, sets, file))


def _arithmetic_cycles(tile: ThreadTile, sets: int, file: RegisterFile) -> float:
    return float(sets * tile.ffma * file.ffma_interval_cycles)


def best_plan(
    tile: ThreadTile,
    file: RegisterFile | None = None,
    runs: Runs | None = None,
    sets: int = 1,
    warps: int = 1,
    seed: int = 0,
) -> Found:
    """The fastest plan that is found for a tile, free to choose its registers within `runs`, order and flags.

    Of equally fast ones it is the one that leans least on conflicts averaging out, then the one that reads fewest
    registers, which leaves the ports to other instructions.

    `runs` are the widest loads of fragments and single stores of C where they are not given. The same arguments
    give the same plan. Raises InputError for a tile that the registers of a thread do not hold.
    """
    file, runs = file or register_file(), runs or Runs.widest(tile)
    tile.check(sets)
    places = [placement(tile, name, runs, file.banks) for name in ACCUMULATORS]
    space = _Space(tile, file, warps, least_cycles_anywhere(tile, file, sets), runs, sets)
    return _search(space, tuple(dict.fromkeys(places)), seed)


def best_order(allocation: Allocation, file: RegisterFile | None = None, warps: int = 1, seed: int = 0) -> Found:
    """The fastest plan that is found for registers that are given, as a compiler chose them."""
    file = file or register_file()
    space = _Space(allocation.tile, file, warps, least_cycles(allocation, file), fixed=allocation)
    return _search(space, (allocation.placement(file.banks),), seed)


@dataclass(frozen=True)
class _Choice:
    """A plan before it has register numbers."""

    places: Placement
    order: Order
    flags: str
    swapped: bool = False


@dataclass(frozen=True)
class _Scored:
    """A choice and what it costs. Smaller keys are better: cycles, FFMA that read a bank twice, reads."""

    key: tuple[float, int, int]
    choice: _Choice
    plan: Plan
    report: PortReport


@dataclass
class _Space:
    """What may be chosen, and how a choice is judged. Registers are `fixed`, or free within `runs`."""

    tile: ThreadTile
    file: RegisterFile
    warps: int
    least_cycles: float
    runs: Runs = field(default_factory=Runs)
    sets: int = 1
    fixed: Allocation | None = None
    simulated: int = 0

    def plan(self, choice: _Choice) -> Plan:
        """The choice with register numbers."""
        registers = self.fixed or allocate(choice.places, self.runs, self.file.banks, self.sets)
        return Plan(registers, choice.order, choice.flags, choice.swapped)

    def best(self, choices: Iterable[_Choice]) -> _Scored:
        """The best of some choices; of equal ones the first."""
        chosen = list(choices)
        plans = [self.plan(choice) for choice in chosen]
        reports = simulate([plan.stream(self.file) for plan in plans], self.file, self.warps)
        self.simulated += len(plans)
        fewest = min(round(report.cycles, 6) for report in reports)
        fastest = (
            _Scored((fewest, plan.crowded(self.file), reads(report)), choice, plan, report)
            for choice, plan, report in zip(chosen, plans, reports, strict=True)
            if round(report.cycles, 6) == fewest
        )
        return min(fastest, key=_key)

    def done(self, best: _Scored) -> bool:
        """Whether nothing can be faster."""
        return best.report.cycles <= self.least_cycles + EXACT

    def free_runs(self) -> list[_Run]:
        """Every run that can begin in more banks than one."""
        if self.fixed:
            return []
        m, n, banks = self.tile.thread_m, self.tile.thread_n, self.file.banks
        found = []
        for name, row, size in [("a", 0, m), ("b", 0, n), *(("c", row, n) for row in range(m))]:
            length = getattr(self.runs, name)
            starts = range(0, banks, min(length, banks))
            found += [_Run(name, row, column, length, starts) for column in range(0, size, length) if len(starts) > 1]
        return found

    def with_start(self, places: Placement, run: _Run, start: int) -> Placement:
        """The same with a run that begins in another bank."""
        banks = tuple((start + offset) % self.file.banks for offset in range(run.length))
        return with_run(places, run.name, run.row, run.column, banks)


@dataclass(frozen=True)
class _Run:
    """Neighbouring registers of "a", "b", or of a row of "c", and the banks that their first may lie in."""

    name: str
    row: int
    column: int
    length: int
    starts: range


def _key(scored: _Scored) -> tuple[float, int, int]:
    return scored.key


def _search(space: _Space, places: Sequence[Placement], seed: int) -> Found:
    best, tried_all = space.best(_named(space.tile, places)), False
    if not space.done(best):
        best = min(best, space.best(_rearranged(space.tile, places)), key=_key)
    if not space.done(best):
        tried_all = _plans(space) <= LARGEST_EXHAUSTIVE
        best = min(best, space.best(_every(space, places[0])), key=_key) if tried_all else _improved(space, best, seed)
    return Found(best.plan, best.report, space.least_cycles, tried_all, space.simulated)


def _named(tile: ThreadTile, places: Iterable[Placement]) -> Iterator[_Choice]:
    """The named orders, in their natural numbering."""
    for where, order, flags in product(places, ORDERS.values(), FLAGS_TRIED):
        yield _Choice(where, order(tile.thread_m, tile.thread_n), flags)


def _rearranged(tile: ThreadTile, places: Iterable[Placement]) -> Iterator[_Choice]:
    """The named orders over rows and columns that are taken in another turn, so that banks alternate, or do not."""
    for where in places:
        for rows, columns in product(_turns(where.a), _turns(where.b)):
            for choice in _named(tile, [where]):
                yield replace(choice, order=tuple((rows[i], columns[j]) for i, j in choice.order))


def _turns(banks: Sequence[int]) -> list[tuple[int, ...]]:
    """Orders of rows or columns: as they come, bank by bank, and so that neighbours differ in bank where they can."""
    of_bank = [[index for index, each in enumerate(banks) if each == bank] for bank in sorted(set(banks))]
    alternating = (index for turn in zip_longest(*of_bank) for index in turn if index is not None)
    return list(dict.fromkeys((tuple(range(len(banks))), tuple(chain(*of_bank)), tuple(alternating))))


def _plans(space: _Space) -> int:
    """How many plans `_every` makes."""
    places = prod(len(run.starts) for run in space.free_runs())
    return places * factorial(space.tile.ffma) * len(FLAGS_TRIED) * 2


def _every(space: _Space, places: Placement) -> Iterator[_Choice]:
    """All plans there are."""
    runs, cells = space.free_runs(), ORDERS["row"](space.tile.thread_m, space.tile.thread_n)
    for starts in product(*(run.starts for run in runs)):
        where = places
        for run, start in zip(runs, starts, strict=True):
            where = space.with_start(where, run, start)
        for order, flags, swapped in product(permutations(cells), FLAGS_TRIED, (False, True)):
            yield _Choice(where, order, flags, swapped)


def _improved(space: _Space, best: _Scored, seed: int) -> _Scored:
    """The end of a walk that goes on to the best of some neighbours as long as it is no worse."""
    runs, in_vain, chance = space.free_runs(), 0, random.Random(seed)
    for _ in range(MOST_BATCHES):
        if in_vain == PATIENCE or space.done(best):
            break
        near = space.best(_neighbour(space, best.choice, runs, chance) for _ in range(BATCH))
        in_vain = 0 if near.key < best.key else in_vain + 1
        best = min(near, best, key=_key)
    return best


def _neighbour(space: _Space, choice: _Choice, runs: Sequence[_Run], chance: random.Random) -> _Choice:
    """A choice that differs in the turn of a few FFMA, the place of a run, the flags or the slots."""
    kind = chance.choices(("reverse", "move", "place", "flags", "swap"), (6, 4, 4 if runs else 0, 1, 1))[0]
    if kind == "flags":
        return replace(choice, flags=chance.choice(FLAGS_TRIED))
    if kind == "swap":
        return replace(choice, swapped=not choice.swapped)
    if kind == "place":
        run = chance.choice(runs)
        return replace(choice, places=space.with_start(choice.places, run, chance.choice(run.starts)))
    order = list(choice.order)
    first, last = sorted(chance.choices(range(len(order) + 1), k=2))
    part = order[first:last]
    del order[first:last]
    at = first if kind == "reverse" else chance.randint(0, len(order))
    order[at:at] = reversed(part) if kind == "reverse" else part
    return replace(choice, order=tuple(order))
