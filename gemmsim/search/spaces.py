"""The legal configurations of a kernel for a problem on a device, enumerated table by table.

Field by field a list of configurations grows by the values of the next field, and each rule is asked as soon as
the fields that it reads are there: what breaks one is never multiplied further. A rule sees old fields as a column
and new values as a row, so that what only reads old ones is computed once for all new values. The order of blocks and
the layout of tiles come last and are not multiplied out: rows that allow the same values of these make a table
together, a product. No table is larger than its axes allow, whatever the size of the space.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.device import Device
from gemmsim.errors import unknown
from gemmsim.expressions import Expression
from gemmsim.kernels import Kernel
from gemmsim.kernels.rules import NEUTRAL
from gemmsim.occupancy import occupancy
from gemmsim.problem import Problem, numbered, whole_number
from gemmsim.rules import Rule, Symbol, legal
from gemmsim.search.constraints import constraint, rule_of
from gemmsim.search.sensible import default_values, sensible
from gemmsim.search.tables import LAYOUTS, ORDERS, Column, Rows, Table, combined, product, rows_of
from gemmsim.tiling import LARGEST_TILE, RANGES, TILING_RULES, Tiling

ENUMERATED_ROWS = 2**14
"""Rows of the first axis that are enumerated together, about."""
TABLE_ROWS = 2**11
"""Rows of a table. With nine layouts or so each, the columns that a formula reads and writes stay in the caches of a
core; where there are more, fewer of them differ in their time."""
LISTED = 2**14
"""Configurations of a list."""
LISTED_ROWS = 2**8
"""Rows of the first axis whose configurations are listed together: each can have some hundred."""

ORDER = (
    "vector", "thread_m", "traversal", "warp_m", "block_m", "thread_n", "warp_n", "block_n", "block_k", "spread",
    "split_k", "stages",
    *ORDERS, *LAYOUTS,
)  # fmt: skip
"""In which fields join: those early of which most values are illegal."""


@dataclass(frozen=True)
class Level:
    """How rows grow by one field: which of its `values` are legal at all, which with each value of another field
    (in `pairs`, by that value), and the rules that read more."""

    name: str
    values: Column
    alone: Any
    pairs: Mapping[str, NDArray[np.bool_]]
    rules: Sequence[Rule]

    def allowed(self, rows: Rows) -> Any:
        """Which values are legal beside each row, as far as rules read one field beside it."""
        ok = self.alone
        for old, of_value in self.pairs.items():
            ok = ok & of_value.take(rows[old], axis=0)
        return ok


@dataclass(frozen=True)
class Space:
    """The configurations of a kernel that are legal for a problem on a device and meet the constraints `where`.

    `values` are those that each field of the kernel is varied over, `rules` what is demanded beyond legality. A
    configuration that does not launch, by its shared memory or by its registers as estimated, is not legal.
    """

    kernel: Kernel
    problem: Problem
    device: Device
    values: Mapping[str, tuple[int, ...]]
    where: tuple[Expression, ...] = ()
    rules: tuple[Rule, ...] = ()

    def __post_init__(self) -> None:
        for name, values in self.values.items():
            if name not in self.kernel.fields:
                raise unknown(f"parameter of kernel {self.kernel.name}", name, self.kernel.fields)
            for value in values:
                whole_number(value, name, *RANGES.get(name, (1, LARGEST_TILE)))

    @cached_property
    def fixed(self) -> dict[str, int]:
        """The fields that the kernel does not have, and what they are instead."""
        return {**NEUTRAL, "stages": self.kernel.stages}

    @cached_property
    def all_rules(self) -> tuple[Rule, ...]:
        """Every rule, each after those that it relies on."""
        of, problem = self.kernel, self.problem
        return (
            *TILING_RULES, *of.rules, *of.device_rules(self.device), *of.problem_rules(problem),
            *of.launch_rules(problem), *self.rules, *(rule_of(condition, of) for condition in self.where),
        )  # fmt: skip

    def tables(self, rows: int = TABLE_ROWS) -> Iterator[Table]:
        """Every configuration once, in tables of up to so many `rows` of the first axis. Whether it launches is not
        asked: that is known with its time."""
        for first_axis in self._rows(ENUMERATED_ROWS):
            for _, table in self._tables(first_axis, rows):
                yield table

    def chunks(self, rows: int = LISTED) -> Iterator[Tiling]:
        """Every configuration once that launches, up to `rows` at a time, in an order that does not depend on `rows`.

        The fields of each Tiling are int64 arrays of one length, or whole numbers where the kernel has no such field.
        """
        for first_axis in self._rows(LISTED_ROWS):
            lists = [self._listed(number, table) for number, table in self._tables(first_axis, LISTED_ROWS)]
            if lists:
                order = np.argsort(np.concatenate([number for number, _ in lists]), kind="stable")
                whole = {name: _joined([vars(each)[name] for _, each in lists]) for name in vars(lists[0][1])}
                for start in range(0, len(order), rows):
                    yield rows_of(Tiling.unchecked(**whole), order[start : start + rows])

    def count(self) -> int:
        """How many configurations there are; takes as long as going through them."""
        return sum(
            int(np.count_nonzero(table.legal & np.broadcast_to(self._launches(table.tilings), table.shape)))
            for table in self.tables()
        )

    @cached_property
    def _plan(self) -> tuple[list[Level], list[Level], list[Rule]]:
        """(the fields of the first axis in the order in which they join, each with what can then be asked; the other
        fields, with what reads one field beside them; the rules that are left)."""
        symbols = self._tiling({name: Symbol(name) for name in self.kernel.fields})
        waiting = [(rule, _read(rule.holds(symbols))) for rule in self.all_rules]
        known: set[str] = set()
        first: list[Level] = []
        others: list[Level] = []
        for name in sorted(self.kernel.fields, key=ORDER.index):
            alone = name in ORDERS + LAYOUTS
            now = [names <= known | {name} and not (alone and len(names) > 2) for _, names in waiting]
            (others if alone else first).append(self._level(name, list(compress(waiting, now))))
            waiting = [each for each, ready in zip(waiting, now, strict=True) if not ready]
            known |= set() if alone else {name}
        return first, others, [rule for rule, _ in waiting]

    def _level(self, name: str, ready: Sequence[tuple[Rule, Set[str]]]) -> Level:
        """A field with the rules that wait for it; those that read one field beside it are asked once and for all."""
        values, pairs = np.array(self.values[name], np.int64), {}
        other = [(rule, [*(names - {name})]) for rule, names in ready]
        for old in dict.fromkeys(names[0] for _, names in other if len(names) == 1):
            rules = [rule for rule, names in other if names == [old]]
            olds = np.array(self.values[old], np.int64)
            pairs[old] = np.zeros((max(olds) + 1, len(values)), bool)
            pairs[old][olds] = legal(rules, self._tiling({old: olds[:, None], name: values}))
        alone = legal([rule for rule, names in other if not names], self._tiling({name: values}))
        return Level(name, values, alone, pairs, [rule for rule, names in other if len(names) > 1])

    def _rows(self, most: int) -> Iterator[Rows]:
        """The rows of the first axis, about so many at a time."""
        if not self.kernel.runs_on(self.device.capability.name) or self.problem.dtype != "fp32":
            return
        lists: Iterator[Rows] = iter(({},))
        for level in self._plan[0]:
            lists = self._grown(lists, level, most)
        yield from lists

    def _grown(self, lists: Iterable[Rows], level: Level, most: int) -> Iterator[Rows]:
        """Every row with every value, as far as the rules hold; about `most` rows at a time."""
        step = max(1, most // len(level.values))
        pieces: list[Rows] = []
        held = 0
        for rows in lists:
            for start in range(0, _length(rows), step):
                piece = self._multiplied({old: column[start : start + step] for old, column in rows.items()}, level)
                if len(piece[level.name]):
                    pieces.append(piece)
                    held += len(piece[level.name])
                if held > most // 2:
                    yield _all(pieces)
                    pieces, held = [], 0
        if pieces:
            yield _all(pieces)

    def _multiplied(self, rows: Rows, level: Level) -> Rows:
        """Every row with every value, as far as the rules hold."""
        ok = level.allowed(rows)
        if level.rules:
            columns = {old: column[:, None] for old, column in rows.items()}
            ok = ok & legal(level.rules, self._tiling({**columns, level.name: level.values}))
        kept = np.flatnonzero(np.broadcast_to(ok, (_length(rows), len(level.values))))
        row = kept // len(level.values)
        grown = {old: column.take(row) for old, column in rows.items()}
        return {**grown, level.name: level.values.take(kept - row * len(level.values))}

    def _tables(self, rows: Rows, most: int) -> Iterator[tuple[Column, Table]]:
        """Tables of these rows of the first axis, each with the numbers of its rows: those for which the same orders
        and layouts are legal, as far as rules read one field beside them."""
        _, others, _ = self._plan
        count = _length(rows)
        allowed = {level.name: np.broadcast_to(level.allowed(rows), (count, len(level.values))) for level in others}
        alike = numbered((column.astype(np.int64) for of_value in allowed.values() for column in of_value.T), count)
        for number in range(int(alike.max()) + 1):
            members = np.flatnonzero(alike == number)
            values = {level.name: level.values[allowed[level.name][members[0]]] for level in others}
            if all(map(len, values.values())):
                for start in range(0, len(members), most):
                    yield from self._table(rows, members[start : start + most], values)

    def _table(self, rows: Rows, members: Column, values: Rows) -> Iterator[tuple[Column, Table]]:
        """The table of some rows with every order and layout, and which rows these are; none where no rule is met."""
        orders, layouts = (
            combined({name: values[name] for name in names if name in values}) for names in (ORDERS, LAYOUTS)
        )

        def of(members: Column) -> Tiling:
            return product(self.fixed, {name: column[members] for name, column in rows.items()}, orders, layouts)

        tilings = of(members)
        ok = np.asarray(legal(self._plan[2], tilings))
        ok = np.broadcast_to(ok, np.broadcast_shapes(ok.shape, (len(members), 1, 1)))
        some = ok.any(axis=(1, 2))
        if not some.all():
            members, ok = members[some], ok[some]
            tilings = of(members)
        if len(members):
            yield members, Table(tilings, ok)

    def _listed(self, rows: Column, table: Table) -> tuple[Column, Tiling]:
        """The configurations of a table that launch, and the number of each one's row."""
        cells = np.flatnonzero(np.broadcast_to(table.legal & self._launches(table.tilings), table.shape))
        return rows[cells // math.prod(table.shape[1:])], table.flat(cells)

    def _tiling(self, values: Mapping[str, Any]) -> Tiling:
        return Tiling.unchecked(**{**self.fixed, **values})

    def _launches(self, of: Tiling) -> Any:
        """Where a block fits on a multiprocessor."""
        block = self.kernel.resources(self.problem, of)
        return occupancy(
            self.device.capability, block.threads, block.registers_per_thread, dynamic_shared_bytes=block.shared_bytes
        ).launches


def space(
    kernel: Kernel,
    problem: Problem,
    device: Device,
    where: Iterable[str] = (),
    values: Mapping[str, Iterable[int]] | None = None,
) -> Space:
    """The space of a kernel over the default values, or over `values` for the fields that these name.

    `where` are conditions such as "block_m >= 64 and stages == 2". Raises InputError for a condition that cannot be
    read, a name in it that there is not, and for values out of range.
    """
    chosen = default_values(kernel) | {name: tuple(each) for name, each in (values or {}).items()}
    return Space(
        kernel, problem, device, chosen, tuple(map(constraint, where)), tuple(sensible(kernel, problem, device))
    )


def _read(condition: Any) -> Set[str]:
    """The fields that a condition of symbols reads; none where it is decided whatever they are."""
    return condition.names if isinstance(condition, Symbol) else frozenset()


def _length(rows: Rows) -> int:
    return len(next(iter(rows.values()))) if rows else 1


def _all(pieces: Sequence[Rows]) -> Rows:
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}


def _joined(parts: Sequence[Any]) -> Any:
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else parts[0]
