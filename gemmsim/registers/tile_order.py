"""The FFMA of a thread tile in some order: which registers they name, in which slots, and which of them are kept.

Every k step of a thread is an outer product: each FFMA multiplies one A fragment by one B fragment and adds to an
accumulator of its own, so that any order within a step gives the same bits.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain

from gemmsim.errors import InputError, require, short
from gemmsim.registers.reads import Instruction, PortReport, Stream
from gemmsim.registers.register_files import RegisterFile
from gemmsim.registers.tile_allocation import Allocation, ThreadTile

Cell = tuple[int, int]
"""Row and column of an accumulator within the tile."""
Order = tuple[Cell, ...]
"""Every cell of a tile once, first the one that is multiplied first."""

BLOCK = ((0, 0), (0, 1), (1, 1), (1, 0))
"""The order within a block of 2x2: each FFMA shares an operand with the one before."""


def _row(m: int, n: int) -> Order:
    return tuple((i, j) for i in range(m) for j in range(n))


def _serpentine(m: int, n: int) -> Order:
    return tuple((i, j) for i in range(m) for j in _to_and_fro(i, n))


def _pairs(m: int, n: int) -> Order:
    """Two rows at a time, column by column to and fro: both A fragments are held, and each B serves two FFMA."""
    return tuple(
        (i, j)
        for pair in range(-(-m // 2))
        for step, j in enumerate(_to_and_fro(pair, n))
        for i in sorted(range(2 * pair, min(2 * pair + 2, m)), reverse=step % 2 == 1)
    )


def _blocks(m: int, n: int) -> Order:
    """Blocks of 2x2, row by row of blocks to and fro; at odd edges what there is of them."""
    return tuple(
        (2 * y + i, 2 * x + j)
        for y in range(-(-m // 2))
        for x in _to_and_fro(y, -(-n // 2))
        for i, j in BLOCK
        if 2 * y + i < m and 2 * x + j < n
    )


def _to_and_fro(turn: int, size: int) -> range:
    return range(size) if turn % 2 == 0 else range(size - 1, -1, -1)


def _transposed(order: Callable[[int, int], Order]) -> Callable[[int, int], Order]:
    return lambda m, n: tuple((i, j) for j, i in order(n, m))


ORDERS: Mapping[str, Callable[[int, int], Order]] = {
    "row": _row,
    "column": _transposed(_row),
    "serpentine": _serpentine,
    "serpentine_column": _transposed(_serpentine),
    "blocks2x2": _blocks,
    "pairs": _pairs,
    "pairs_column": _transposed(_pairs),
}
"""{name: the order of an m x n tile}. "row" goes along rows, which holds an A fragment; "serpentine" too, and back."""

FLAGS = {
    "next": "an operand is kept where the next FFMA takes it in the same slot",
    "held": "an operand is kept wherever its slot takes it again before another read ends it: renewed at every use",
    "all": "an operand is kept at every use but the last of the k step",
    "none": "nothing is kept",
}
"""When operands get a reuse flag. After its last use in a k step none does: its register is loaded anew."""


def order_of(text: str, tile: ThreadTile) -> Order:
    """The order of that name, or the one that is written out as row * thread_n + column of each FFMA, "0,1,3,2".

    Raises InputError for an unknown name, and for numbers that are no permutation.
    """
    name = text.strip().lower().replace("-", "_")
    if name in ORDERS:
        return ORDERS[name](tile.thread_m, tile.thread_n)
    if not re.fullmatch(r"[0-9]{1,5}(,[0-9]{1,5})*", name):
        raise InputError(f"unknown order {short(text)}; known: {', '.join(ORDERS)}, and permutations such as 0,1,3,2")
    numbers = list(map(int, name.split(",")))
    require(
        sorted(numbers) == list(range(tile.ffma)),
        lambda: f"order {short(text)} is no permutation of 0 to {tile.ffma - 1}, the FFMA of thread tile {tile}",
    )
    return tuple(divmod(number, tile.thread_n) for number in numbers)


def name_of(order: Order, tile: ThreadTile) -> str | None:
    """The name that an order has, if it has one."""
    return next((name for name, made in ORDERS.items() if made(tile.thread_m, tile.thread_n) == order), None)


def order_text(order: Order, tile: ThreadTile) -> str:
    """What `order_of` reads: the name of the order, or the order written out."""
    return name_of(order, tile) or ",".join(str(i * tile.thread_n + j) for i, j in order)


@dataclass(frozen=True)
class Plan:
    """A thread tile as machine code has it: registers, order, reuse flags, and which operand stands in which slot.

    A stands in slot A unless `swapped`; the accumulator in slot C. Raises InputError for an order that is none of
    the tile, and for unknown flags.
    """

    allocation: Allocation
    order: Order
    flags: str = "next"
    swapped: bool = False

    def __post_init__(self) -> None:
        m, n = len(self.allocation.c), len(self.allocation.c[0])
        if sorted(self.order) != [(i, j) for i in range(m) for j in range(n)]:
            raise InputError(f"the order is no permutation of the {m * n} FFMA of thread tile {m}x{n}")
        if self.flags not in FLAGS:
            raise InputError(f"unknown flags {short(self.flags)}; known: {', '.join(FLAGS)}")

    def stream(self, file: RegisterFile) -> Stream:
        """Its FFMA, one k step for each set of fragments."""
        steps = zip(self.allocation.a, self.allocation.b, strict=True)
        return Stream(tuple(chain.from_iterable(self._step(a, b, file) for a, b in steps)))

    def crowded(self, file: RegisterFile) -> int:
        """FFMA of a k step that read one bank more often than it serves in a cycle, and so lean on their neighbours."""
        slots = self._slots(self.allocation.a[0], self.allocation.b[0])
        spared = (found_kept(each, keeps(each, self.flags, file), file) for each in slots)
        results = [self.allocation.c[i][j] for i, j in self.order]
        reads = zip(*slots, results, *spared, strict=True)
        return sum(
            max(Counter(register % file.banks for register in (result, *own)).values()) > file.reads_per_cycle
            for first, second, result, has_first, has_second in reads
            for own in [[first] * (not has_first) + [second] * (not has_second)]
        )

    def _step(self, a: Sequence[int], b: Sequence[int], file: RegisterFile) -> list[Instruction]:
        first, second = self._slots(a, b)
        kept = zip(*(keeps(each, self.flags, file) for each in (first, second)), strict=True)
        flags = ("A" * in_a + "B" * in_b for in_a, in_b in kept)
        results = (self.allocation.c[i][j] for i, j in self.order)
        return list(map(_ffma, first, second, results, flags))

    def _slots(self, a: Sequence[int], b: Sequence[int]) -> tuple[list[int], list[int]]:
        """What stands in slots A and B of each FFMA, for these fragments."""
        of_a, of_b = [a[i] for i, _ in self.order], [b[j] for _, j in self.order]
        return (of_b, of_a) if self.swapped else (of_a, of_b)


@lru_cache(maxsize=2**16)
def _ffma(first: int, second: int, result: int, reuse: str) -> Instruction:
    return Instruction((first, second, result), reuse, result)


def keeps(operands: Sequence[int], flags: str, file: RegisterFile) -> list[bool]:
    """Whether each FFMA of a k step keeps what it takes in a slot; `operands` are the registers of that slot.

    A flag on an accumulator would never help: the FFMA that reads it also overwrites it.
    """
    again: dict[int, int] = {}
    kept = [False] * len(operands)
    for place in range(len(operands) - 1, -1, -1):
        register = operands[place]
        if register in again:
            between = operands[place + 1 : again[register]]
            kept[place] = flags == "all" or (flags == "held" and _lasts(between, register, file))
            kept[place] |= flags == "next" and not between
        again[register] = place
    return kept


def found_kept(operands: Sequence[int], kept: Sequence[bool], file: RegisterFile) -> list[bool]:
    """Whether each FFMA of a k step finds its operand of a slot kept, so that it need not read it."""
    last: dict[int, int] = {}
    found = [False] * len(operands)
    for place, register in enumerate(operands):
        if register in last:
            before = last[register]
            found[place] = kept[before] and _lasts(operands[before + 1 : place], register, file)
        last[register] = place
    return found


def _lasts(between: Sequence[int], register: int, file: RegisterFile) -> bool:
    """Whether a kept operand is still there after the reads of its slot in `between`."""
    if file.cache_lasts == "instruction" or file.operand_cache == "slot":
        return not between
    return all(other % file.banks != register % file.banks for other in between)


def bank_names(banks: int) -> str:
    """A letter for each bank: e(ven) and o(dd) where there are two."""
    return "eo" if banks == 2 else "wxyzstuv"[:banks]


def waits(plan: Plan, report: PortReport) -> dict[Cell, float]:
    """{cell: cycles a pass that its FFMA wait for banks, over all sets of fragments}."""
    lost: dict[Cell, float] = defaultdict(float)
    for conflict in report.conflicts:
        lost[plan.order[conflict.instruction % len(plan.order)]] += conflict.cycles
    return dict(lost)


def drawing(plan: Plan, report: PortReport, banks: int) -> list[str]:
    """The tile as lines of text: the number of each FFMA, the bank of its accumulator, and ! where it waits;
    above and to the left the fragments, each with its bank."""
    names, waiting, registers = bank_names(banks), waits(plan, report), plan.allocation
    number = {cell: str(at) for at, cell in enumerate(plan.order)}
    wide = len(str(len(plan.order) - 1)) + 2
    wide = max(wide, *(len(f"R{register}") + 2 for register in registers.b[0]))

    def named(register: int) -> str:
        return f"R{register}{names[register % banks]}"

    left = max(map(len, map(named, registers.a[0])))
    lines = [" " * left + "".join(f"{named(register) + ' ':>{wide + 1}}" for register in registers.b[0])]
    for i, row in enumerate(registers.c):
        cells = (
            f"{number[i, j]}{names[register % banks]}{'!' if (i, j) in waiting else ' '}"
            for j, register in enumerate(row)
        )
        lines.append(f"{named(registers.a[0][i]):>{left}}" + "".join(f"{cell:>{wide + 1}}" for cell in cells))
    return [line.rstrip() for line in lines]
