"""Registers of a thread tile: which ones hold the fragments of A and B and the accumulators, and in which banks.

A fragment that a vector load fills lies in neighbouring registers, the first of them aligned to the vector; so do
accumulators that a vector store takes. Where a run begins is free beyond that, and decides the banks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, tee, zip_longest

from gemmsim.errors import InputError, require
from gemmsim.kernels import MOST_REGISTERS
from gemmsim.problem import whole_number

VECTORS = (4, 2, 1)
"""Registers that one load or store moves."""
MOST_SETS = 32


@dataclass(frozen=True)
class ThreadTile:
    """A thread's thread_m x thread_n accumulators. Raises InputError for a tile that its registers do not hold."""

    thread_m: int
    thread_n: int

    def __post_init__(self) -> None:
        for name, size in vars(self).items():
            whole_number(size, name, 1, MOST_REGISTERS)
        self.check()

    def __str__(self) -> str:
        return f"{self.thread_m}x{self.thread_n}"

    @property
    def ffma(self) -> int:
        """FFMA of a k step, and accumulators."""
        return self.thread_m * self.thread_n

    def registers(self, sets: int = 1) -> int:
        """Registers of the accumulators and of `sets` of fragments, without those of addresses and loops."""
        return self.ffma + sets * (self.thread_m + self.thread_n)

    def check(self, sets: int = 1) -> None:
        """Raise InputError where a thread has too few registers for so many sets of fragments."""
        whole_number(sets, "sets of fragments", 1, MOST_SETS)
        require(self.registers(sets) <= MOST_REGISTERS, lambda: self._too_large(sets))

    def _too_large(self, sets: int) -> str:
        columns = (MOST_REGISTERS - sets * self.thread_m) // (self.thread_m + sets)
        fits = f"; {self.thread_m}x{columns} fits" if columns >= 1 else ""
        return (
            f"thread tile {self} needs {self.registers(sets):,} registers, {self.ffma:,} for accumulators and"
            f" {self.registers(sets) - self.ffma:,} for fragments; a thread has {MOST_REGISTERS}{fits}"
        )


@dataclass(frozen=True)
class Runs:
    """Neighbouring registers that one access moves: loads of A and of B, stores of C along a row."""

    a: int = 1
    b: int = 1
    c: int = 1

    def __post_init__(self) -> None:
        for name, length in vars(self).items():
            require(length in VECTORS, "runs of {n} registers for {of}; allowed: 1, 2, 4", n=length, of=name.upper())

    @classmethod
    def widest(cls, tile: ThreadTile, vector: int = VECTORS[0], c: int = 1) -> Runs:
        """The widest loads up to `vector` that the fragments divide into, as the kernels read them; C by `c`."""
        require(vector in VECTORS, "vectors of {v} registers; allowed: 1, 2, 4", v=vector)
        allowed = VECTORS[VECTORS.index(vector) :]
        a, b = (next(v for v in allowed if size % v == 0) for size in (tile.thread_m, tile.thread_n))
        return cls(a, b, c)

    def check(self, tile: ThreadTile) -> None:
        """Raise InputError where the tile does not divide into these runs."""
        for name, size in (("a", tile.thread_m), ("b", tile.thread_n), ("c", tile.thread_n)):
            length = getattr(self, name)
            require(
                size % length == 0,
                "runs of {length} registers for {of} do not divide the {size} of thread tile {tile}",
                length=length, of=name.upper(), size=size, tile=tile,
            )  # fmt: skip


@dataclass(frozen=True)
class Placement:
    """The bank of every A fragment, B fragment and accumulator; all sets of fragments lie alike."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    c: tuple[tuple[int, ...], ...]

    @property
    def tile(self) -> ThreadTile:
        """The tile that is placed."""
        return ThreadTile(len(self.a), len(self.b))


@dataclass(frozen=True)
class Allocation:
    """Register numbers: `a` and `b` hold a row for each set of fragments, `c` one for each row of the tile.

    The sets take turns, one for each k step. Raises InputError for shapes that do not go together, a register that
    holds two values in one step, or one that is none of a thread's.
    """

    a: tuple[tuple[int, ...], ...]
    b: tuple[tuple[int, ...], ...]
    c: tuple[tuple[int, ...], ...]

    def __post_init__(self) -> None:
        shapes = {(len(a), len(b)) for a, b in zip_longest(self.a, self.b, fillvalue=())}
        require(
            shapes == {(len(self.c), len(row)) for row in self.c},
            lambda: f"fragments of A and B of lengths {sorted(shapes)} for accumulators {list(map(len, self.c))}",
        )
        results = tuple(chain(*self.c))
        for a, b in zip(self.a, self.b, strict=True):
            live = Counter((*a, *b, *results))
            bad = sorted(r for r, values in live.items() if values > 1 or not 0 <= r < MOST_REGISTERS)
            require(
                not bad,
                lambda bad=bad: f"registers {bad} hold two values, or are none of 0 to {MOST_REGISTERS - 1}",
            )

    @property
    def tile(self) -> ThreadTile:
        """The tile that it holds."""
        return ThreadTile(len(self.c), len(self.c[0]))

    @property
    def registers(self) -> tuple[int, ...]:
        """Every register that it uses, ascending."""
        return tuple(sorted({*chain(*self.a, *self.b, *self.c)}))

    def placement(self, banks: int) -> Placement:
        """The banks of the first set of fragments and of the accumulators."""
        a, b, *c = (tuple(number % banks for number in row) for row in (self.a[0], self.b[0], *self.c))
        return Placement(a, b, tuple(c))


def _apart(a: int, b: int, banks: int, cell: tuple[int, int], n: int) -> int:
    """A bank that neither operand lies in, those in turn; with two banks that of the A fragment if it must be one."""
    rest = [bank for bank in range(banks) if bank not in (a, b)] or [a]
    return rest[sum(cell) % len(rest)]


ACCUMULATORS: Mapping[str, Callable[[int, int, int, tuple[int, int], int], int]] = {
    "consecutive": lambda a, b, banks, cell, n: (cell[0] * n + cell[1]) % banks,
    "opposite_b": lambda a, b, banks, cell, n: (b + banks // 2) % banks,
    "opposite_a": lambda a, b, banks, cell, n: (a + banks // 2) % banks,
    "checkered": lambda a, b, banks, cell, n: sum(cell) % banks,
    "apart": _apart,
}
"""Where accumulators lie: {name: the bank, from those of A and B fragment, the banks, (row, column), columns}."""


def placement(tile: ThreadTile, accumulators: str, runs: Runs, banks: int) -> Placement:
    """Fragments in neighbouring registers, accumulators by a name of `ACCUMULATORS`, as far as runs leave these free.

    Raises InputError for a name that is not known, and for runs that do not divide the tile.
    """
    runs.check(tile)
    if accumulators not in ACCUMULATORS:
        raise InputError(f"unknown accumulators {accumulators!r}; known: {', '.join(ACCUMULATORS)}")
    bank_of = ACCUMULATORS[accumulators]
    a, b = (tuple(index % banks for index in range(size)) for size in (tile.thread_m, tile.thread_n))
    c = (tuple(bank_of(a[i], b[j], banks, (i, j), tile.thread_n) for j in range(tile.thread_n)) for i in range(len(a)))
    return Placement(a, b, tuple(in_runs(row, runs.c, banks) for row in c))


def in_runs(row: tuple[int, ...], length: int, banks: int) -> tuple[int, ...]:
    """The banks nearest to `row` that runs of `length` can have: the first of each decides, rounded down."""
    starts = (row[first] // min(length, banks) * min(length, banks) for first in range(0, len(row), length))
    return tuple((start + offset) % banks for start in starts for offset in range(length))


@lru_cache(maxsize=2**10)
def allocate(places: Placement, runs: Runs, banks: int, sets: int = 1) -> Allocation:
    """The lowest registers with these banks, for `sets` of fragments, that keep runs together and aligned.

    Longer runs come first; of equal ones the accumulators, then A, then B. A run whose bank is full goes to another.
    Raises InputError for runs that do not divide the tile, and for a tile that the registers of a thread do not hold.
    """
    tile = places.tile
    tile.check(sets)
    runs.check(tile)
    wanted = [("c", row, runs.c) for row in places.c]
    wanted += [("a", places.a, runs.a), ("b", places.b, runs.b)] * sets
    taken: set[int] = set()
    rows: dict[str, list[tuple[int, ...]]] = {"a": [], "b": [], "c": []}
    for name, row, length in sorted(wanted, key=lambda each: -each[2]):
        starts = row[::length]
        rows[name].append(tuple(chain(*(_take(length, start, banks, taken) for start in starts))))
    return Allocation(*map(tuple, rows.values()))


def _take(length: int, bank: int, banks: int, taken: set[int]) -> range:
    """The lowest free run that is aligned, in this bank if there is one. Since longer runs come first, one is free."""
    runs = (range(first, first + length) for first in range(0, MOST_REGISTERS - length + 1, length))
    free = (run for run in runs if taken.isdisjoint(run))
    any_bank, others = tee(free)
    run = next((run for run in others if run.start % banks == bank), None) or next(any_bank)
    taken.update(run)
    return run


def with_run(places: Placement, name: str, row: int, column: int, banks_of_run: tuple[int, ...]) -> Placement:
    """The same with another place for one run: of "a" or "b", or of "c" in this row, from `column` on."""
    old = getattr(places, name)
    line = old[row] if name == "c" else old
    line = (*line[:column], *banks_of_run, *line[column + len(banks_of_run) :])
    return replace(places, **{name: (*old[:row], line, *old[row + 1 :]) if name == "c" else line})
