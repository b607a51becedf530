"""The legal configurations of a kernel for a problem on a device, enumerated chunk by chunk.

Field by field a table of configurations grows by the values of the next field, and each rule is asked as soon as
the fields that it reads are there: what breaks one is never multiplied further. A rule sees old fields as a column
and new values as a row, so that what only reads old ones is computed once for all new values. No table is
larger than a chunk, whatever the size of the space.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.device import Device
from gemmsim.errors import InputError, unknown
from gemmsim.expressions import Expression, parse_condition
from gemmsim.kernel_rules import NEUTRAL
from gemmsim.kernels import Kernel
from gemmsim.occupancy import occupancy
from gemmsim.problem import Problem, ceil_div, whole_number
from gemmsim.rules import Rule, Symbol, legal
from gemmsim.tiling import FIELDS, LARGEST_TILE, RANGES, TILING_RULES, WARP_SIZE, Tiling, grid

CHUNK_ROWS = 2**15
"""Configurations of a chunk, about: the columns that a formula reads and writes stay in the caches of a core."""
LARGEST_THREAD_TILE = 128
"""Elements of a thread, 16 x 8, beyond which accumulators and fragments no longer fit into 255 registers."""
MOST_SPLIT_BLOCKS = 4
"""Blocks for each multiprocessor that a launch with a split k dimension has at most."""

BLOCKS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
WARPS = (4, 8, 16, 24, 32, 48, 64, 96, 128)
THREADS = (1, 2, 4, 6, 8, 12, 16)
VALUES: Mapping[str, tuple[int, ...]] = {
    "block_m": BLOCKS,
    "block_n": BLOCKS,
    "block_k": (4, 8, 12, 16, 24, 32, 48, 64),
    "thread_m": THREADS,
    "thread_n": THREADS,
    "warp_m": WARPS,
    "warp_n": WARPS,
    "stages": (2, 3, 4, 6),
    "vector": (1, 2, 4),
    "pad_a": (0, 1, 2, 4, 8),
    "pad_b": (0, 1, 2, 4, 8),
    "swizzle": (0, 1, 2, 4, 8, 16),
    "split_k": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
    "group": (1, 2, 4, 8, 16),
}
"""What each field is varied over where nothing else is said: powers of two and one and a half times these, paddings up
to the eight elements that move a row by a quarter of the banks, every swizzle."""
UNSTAGED_VALUES = {"block_m": (1, 2, 4, 8, 16, 32), "block_n": (8, 16, 32, 64, 128, 256)}
"""The same where a thread computes one element, so that a block is as many threads."""

ORDER = (
    "vector", "thread_m", "warp_m", "block_m", "thread_n", "warp_n", "block_n", "block_k", "split_k", "stages", "pad_a",
    "pad_b", "swizzle", "group",
)  # fmt: skip
"""In which fields join: those early of which most values are illegal, those last that no rule minds."""
TAKES_NOTHING = ("swizzle", "split_k", "group")
"""Fields on which the resources of a block do not depend."""


def sensible(kernel: Kernel, problem: Problem, device: Device) -> Iterator[Rule]:
    """What the default values leave out although the kernel takes it: it is slow for sure, or the same as another."""
    if kernel.thread_tiled:
        yield Rule(
            lambda of: of.thread_m * of.thread_n <= LARGEST_THREAD_TILE,
            f"thread tiles of up to {LARGEST_THREAD_TILE} elements",
            vars,
        )
    yield Rule(lambda of: of.threads >= WARP_SIZE, "blocks of a whole warp at least", vars)
    if "split_k" in kernel.fields:
        most = MOST_SPLIT_BLOCKS * device.sms
        yield Rule(
            lambda of: (of.split_k == 1) | (grid(problem, of).blocks <= most),
            f"k is split in launches of up to {most} blocks",
            vars,
        )
        yield Rule(
            lambda of: (of.split_k == 1) | (ceil_div(problem.k, of.block_k) >= of.split_k),
            "every part of k has a tile",
            vars,
        )
    if "group" in kernel.fields:
        yield Rule(
            lambda of: (of.group == 1) | (ceil_div(problem.m, of.block_m) >= of.group),
            "groups of as many rows as there are",
            vars,
        )


DERIVED: Mapping[str, Callable[[Kernel, Any], Any]] = {
    "threads": lambda kernel, of: of.threads,
    "shared_bytes": lambda kernel, of: kernel.shared_bytes(of),
}
"""What a constraint can speak of beside the fields of a tiling."""
NAMES = (*FIELDS, *DERIVED)

Column = NDArray[np.int64]
Table = dict[str, Column]
"""Columns of one length, one for each field that is settled already."""


@dataclass(frozen=True)
class Level:
    """How tables grow by one field: which of its `values` are legal at all, which with each value of another field
    (in `pairs`, by that value), and the rules that read more."""

    name: str
    values: Column
    alone: Any
    pairs: Mapping[str, NDArray[np.bool_]]
    rules: Sequence[Rule]


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
            *of.launch_rules(problem), *self.rules, *(self._constraint(condition) for condition in self.where),
        )  # fmt: skip

    def chunks(self, rows: int = CHUNK_ROWS) -> Iterator[Tiling]:
        """Every configuration once, about `rows` at a time, in an order that does not depend on `rows`.

        The fields of each Tiling are int64 arrays of one length, or whole numbers where all are alike.
        """
        if not self.kernel.runs_on(self.device.capability.name) or self.problem.dtype != "fp32":
            return
        tables: Iterator[Table] = iter(({},))
        for level in self._levels():
            tables = self._grown(tables, level, rows)
        for table in tables:
            yield self._tiling(table)

    def count(self) -> int:
        """How many configurations there are; takes as long as going through them."""
        return sum(map(size_of, self.chunks()))

    def _levels(self) -> Iterator[Level]:
        """The fields in the order in which they join, each with what can then be asked."""
        symbols = self._tiling({name: Symbol(name) for name in self.kernel.fields})
        waiting = [(rule, _read(rule.holds(symbols))) for rule in self.all_rules]
        waiting.append((Rule(self._launches, "launches", vars), {*self.kernel.fields}.difference(TAKES_NOTHING)))
        known: set[str] = set()
        for name in sorted(self.kernel.fields, key=ORDER.index):
            known.add(name)
            ready = [(rule, names) for rule, names in waiting if names <= known]
            waiting = [(rule, names) for rule, names in waiting if not names <= known]
            yield self._level(name, ready)

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

    def _grown(self, tables: Iterable[Table], level: Level, rows: int) -> Iterator[Table]:
        """Every row of the tables with every value, as far as the rules hold; in tables of about `rows` rows."""
        step = max(1, rows // len(level.values))
        pieces: list[Table] = []
        held = 0
        for table in tables:
            for start in range(0, _rows(table), step):
                piece = self._product({old: column[start : start + step] for old, column in table.items()}, level)
                if len(piece[level.name]):
                    pieces.append(piece)
                    held += len(piece[level.name])
                if held > rows // 2:
                    yield _joined(pieces)
                    pieces, held = [], 0
        if pieces:
            yield _joined(pieces)

    def _product(self, table: Table, level: Level) -> Table:
        """Every row with every value, as far as the rules hold."""
        ok = level.alone
        for old, of_value in level.pairs.items():
            ok = ok & of_value.take(table[old], axis=0)
        if level.rules:
            columns = {old: column[:, None] for old, column in table.items()}
            ok = ok & legal(level.rules, self._tiling({**columns, level.name: level.values}))
        if np.all(ok):
            grown = {old: np.repeat(column, len(level.values)) for old, column in table.items()}
            return {**grown, level.name: np.tile(level.values, _rows(table))}
        kept = np.flatnonzero(np.broadcast_to(ok, (_rows(table), len(level.values))))
        row = kept // len(level.values)
        grown = {old: column.take(row) for old, column in table.items()}
        return {**grown, level.name: level.values.take(kept - row * len(level.values))}

    def _tiling(self, table: Mapping[str, Any]) -> Tiling:
        return Tiling.unchecked(**{**self.fixed, **table})

    def _launches(self, of: Tiling) -> Any:
        """Where a block fits on a multiprocessor."""
        block = self.kernel.resources(self.problem, of)
        return occupancy(
            self.device.capability, block.threads, block.registers_per_thread, dynamic_shared_bytes=block.shared_bytes
        ).launches

    def _constraint(self, condition: Expression) -> Rule:
        """A constraint as a rule."""

        def variables(of: Any) -> dict[str, Any]:
            return {name: _variable(self.kernel, name, of) for name in condition.names}

        def holds(of: Any) -> Any:
            found = variables(of)
            read = [value for value in found.values() if isinstance(value, Symbol)]
            if not found:
                return bool(condition.evaluate({}))
            if read:  # which fields it reads is all that symbols can tell
                text = re.sub(r"[a-z]\w*", lambda word: _text(found, word[0]), condition.text)
                return Symbol(f"({text})", frozenset().union(*(value.names for value in read)), decides=True)
            return condition.evaluate(found)

        return Rule(holds, f"not {condition.text}", variables)


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
    defaults = VALUES if kernel.thread_tiled else {**VALUES, **UNSTAGED_VALUES}
    chosen = {name: defaults[name] for name in kernel.fields}
    chosen |= {name: tuple(each) for name, each in (values or {}).items()}
    rules = tuple(sensible(kernel, problem, device))
    return Space(kernel, problem, device, chosen, tuple(map(constraint, where)), rules)


def constraint(text: str) -> Expression:
    """The condition on configurations that a text writes, over NAMES.

    Raises InputError that names what is allowed.
    """
    try:
        return parse_condition(text, NAMES)
    except InputError as error:
        if str(error).startswith("unknown variable"):
            raise InputError(f"{error}; allowed: {', '.join(NAMES)}") from None
        raise


def size_of(tilings: Tiling) -> int:
    """How many configurations there are in a chunk."""
    return max((len(value) for value in vars(tilings).values() if isinstance(value, np.ndarray)), default=1)


def rows_of(tilings: Tiling, which: Any) -> Tiling:
    """The configurations of a chunk at these places: one of whole numbers for a number, many for an array."""

    def at(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return value[which] if isinstance(which, np.ndarray) else int(value[which])

    return Tiling.unchecked(**{name: at(value) for name, value in vars(tilings).items()})


def _variable(kernel: Kernel, name: str, of: Any) -> Any:
    return DERIVED[name](kernel, of) if name in DERIVED else attrgetter(name)(of)


def _text(variables: Mapping[str, Any], word: str) -> str:
    """A word of a condition with what it stands for, if it is a variable."""
    value = variables.get(word, word)
    return value.text if isinstance(value, Symbol) else str(value)


def _read(condition: Any) -> Set[str]:
    """The fields that a condition of symbols reads; none where it is decided whatever they are."""
    return condition.names if isinstance(condition, Symbol) else frozenset()


def _rows(table: Table) -> int:
    return len(next(iter(table.values()))) if table else 1


def _joined(pieces: Sequence[Table]) -> Table:
    if len(pieces) == 1:
        return pieces[0]
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
