"""The read ports of a sub-core as an automaton: what an instruction that reads registers waits for.

Each bank serves its reads one a cycle, in the order of the instructions and within one in the order of the slots. An
instruction issues at the first cycle from which all its reads are done within the window. Reads that come late, because
the bank is busy, may not always use the last cycle of the window. Kept out are

* a bank from which an operand is read that is flagged for reuse; but for a pair of reads, the flagged one the first,
  if the instruction just before read from that bank too and another operand is found kept;
* a pair of reads, until it has waited a cycle, if the instruction just before read from that bank the same pair of
  slots, or one slot alone, or nothing while a flag is set.

Two more waits are not for the window: for a flagged read of slot A that comes late when the instruction just before
read slot A from the same bank; and for an operand A or B that is still on its way into the operand cache, unless a read
of the instruction's own comes later than it.

Where the window is one cycle, an instruction stays until its own reads are done.

docs/theory.md, "Register ports", says what these rest on, and where they fail. The states are few, so each step is
worked out once, in Python, and then looked up for whole arrays of streams.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.registers.instruction_streams import SLOTS
from gemmsim.registers.register_files import RegisterFile

Ints = NDArray[np.int64]
PAIR = 2
SLOT_A, MULTIPLICANDS = 0, (0, 1)
"""Slots by number. The addend, slot C, is needed later than A and B."""


@dataclass(frozen=True)
class Reads:
    """What an instruction asks of the ports: the slots that it reads from each bank, as bits, and which of these it
    flags; whether it has any flag; the (bank, slot) entries of the operand cache that it uses; and the cycles from its
    issue to the next."""

    slots: tuple[int, ...]
    flagged: tuple[int, ...]
    any_flag: bool
    hits: tuple[tuple[int, int], ...]
    gap: int

    def slots_of(self, bank: int) -> tuple[int, ...]:
        """The slots read from a bank, or else those taken from its part of the operand cache."""
        read = tuple(slot for slot in range(self.slots[bank].bit_length()) if self.slots[bank] >> slot & 1)
        return read or tuple(slot for at, slot in self.hits if at == bank)


@dataclass(frozen=True)
class Ports:
    """The ports when the next instruction may issue: cycles for which each bank is `busy`; the slots that the
    instruction one cycle before read from it; and (bank, slot, cycle from now) of operands on their way into the
    operand cache."""

    busy: tuple[int, ...]
    last: tuple[int, ...]
    coming: tuple[tuple[int, int, int], ...] = ()

    def after(self, cycles: int, keep_last: bool = False) -> Ports:
        """The same some cycles later."""
        return Ports(
            tuple(max(each - cycles, 0) for each in self.busy),
            self.last if keep_last else (0,) * len(self.last),
            tuple((bank, slot, at - cycles) for bank, slot, at in self.coming if at >= cycles),
        )


@dataclass(frozen=True)
class Step:
    """How an instruction goes: the cycles that it waits or stays, the bank that is the first cause (-1: none), and what
    follows."""

    waits: int
    bank: int
    ports: Ports


@dataclass(frozen=True)
class Limits:
    """What ports of a kind can do: the cycles of the window, and the reads that a bank serves in one."""

    window: int = 1
    reads_per_cycle: int = 1

    def cycles(self, slots: int) -> int:
        """Cycles that a bank takes for these slots."""
        return -(-slots.bit_count() // self.reads_per_cycle)


def step(ports: Ports, reads: Reads, limits: Limits) -> Step:
    """An instruction that comes up with the ports in this state."""
    waits, first = 0, -1
    while (bank := _blocking(ports, reads, limits, waits == 0)) >= 0:
        first = bank if waits == 0 else first
        ports, waits = ports.after(1), waits + 1
    coming = {(bank, slot): at for bank, slot, at in ports.coming}
    for bank, slots in enumerate(reads.slots):
        coming |= {
            (bank, slot): ports.busy[bank] + turn // limits.reads_per_cycle
            for turn, slot in enumerate(reads.slots_of(bank) if slots else ())
            if reads.flagged[bank] >> slot & 1
        }
    busy = tuple(late + limits.cycles(slots) for late, slots in zip(ports.busy, reads.slots, strict=True))
    issued = Ports(busy, reads.slots, tuple(sorted((bank, slot, at) for (bank, slot), at in coming.items())))
    stays = max(busy) - 1 if limits.window == 1 and any(reads.slots) else 0
    if stays:
        first = busy.index(max(busy))
    return Step(waits + stays, first, issued.after(stays + reads.gap, keep_last=stays + reads.gap == 1))


def _blocking(ports: Ports, reads: Reads, limits: Limits, at_first: bool) -> int:
    """The bank for which an instruction must wait a cycle; -1 if it can issue."""
    last_read = -1
    for bank, slots in enumerate(reads.slots):
        if not slots:
            continue
        late, done = ports.busy[bank], ports.busy[bank] + limits.cycles(slots)
        last_read = max(last_read, done - 1)
        if late and (done > limits.window or _kept_out(ports, reads, bank, done == limits.window, at_first)):
            return bank
    for bank, slot, at in ports.coming:
        if slot in MULTIPLICANDS and (bank, slot) in reads.hits and 0 <= last_read <= at:
            return bank
    return -1


def _kept_out(ports: Ports, reads: Reads, bank: int, in_last_cycle: bool, at_first: bool) -> bool:
    """Whether reads of a bank that come late must wait though they would be done within the window."""
    slots, flagged, before = reads.slots[bank], reads.flagged[bank], ports.last[bank]
    pair = slots.bit_count() == PAIR
    if flagged & before & 1 << SLOT_A:
        return True
    if not in_last_cycle:
        return False
    flagged_last = flagged.bit_length() == slots.bit_length()
    if flagged and not (pair and before and reads.hits and not flagged_last):
        return True
    return pair and at_first and (before == slots or before.bit_count() == 1 or (reads.any_flag and not before))


@dataclass
class PortMachine:
    """The steps of one kind of ports as tables, which grow as states and instructions turn up."""

    banks: int
    limits: Limits
    kinds: dict[Reads, int] = field(default_factory=dict)
    states: dict[Ports, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._columns = 0
        self._letters: list[list[str]] = []
        self._next = self._waits = self._bank = np.empty(0, np.int64)
        self.idle = self._number(self.states, Ports((0,) * self.banks, (0,) * self.banks))

    def kind(self, reads: Reads) -> int:
        """The number of an instruction, as `run` takes it."""
        return self._number(self.kinds, reads)

    def slots(self, kind: int, bank: int) -> str:
        """The letters of the slots that an instruction reads from a bank, or else takes from what is kept of it."""
        if len(self._letters) < len(self.kinds):
            self._letters = [
                ["".join(SLOTS[slot] for slot in each.slots_of(at)) for at in range(self.banks)] for each in self.kinds
            ]
        return self._letters[kind][bank]

    def run(self, state: Ints, kind: Ints) -> tuple[Ints, Ints, Ints]:
        """(states after, cycles waited, banks waited for) of one instruction for each state."""
        self._grow()
        at = state * self._columns + kind
        after = self._next[at]
        if after.min() < 0:
            self._learn(set(at[after < 0].tolist()))
            return self.run(state, kind)
        return after, self._waits[at], self._bank[at]

    def _learn(self, places: set[int]) -> None:
        states, kinds = list(self.states), list(self.kinds)
        pairs = [divmod(place, self._columns) for place in places]
        found = [step(states[state], kinds[kind], self.limits) for state, kind in pairs]
        after = [self._number(self.states, each.ports) for each in found]
        self._grow()
        for (state, kind), each, following in zip(pairs, found, after, strict=True):
            place = state * self._columns + kind
            self._next[place], self._waits[place], self._bank[place] = following, each.waits, each.bank

    def _grow(self) -> None:
        """Make room for all states and kinds, with some to spare."""
        columns = self._columns
        rows = len(self._next) // columns if columns else 0
        if len(self.states) > rows or len(self.kinds) > columns:
            self._columns = max(columns, 2 * len(self.kinds))
            wider = ((0, max(rows, 2 * len(self.states)) - rows), (0, self._columns - columns))
            self._next, self._waits, self._bank = (
                np.pad(each.reshape(rows, columns), wider, constant_values=-1).ravel()
                for each in (self._next, self._waits, self._bank)
            )

    @staticmethod
    def _number(known: dict[Any, int], each: Hashable) -> int:
        return known.setdefault(each, len(known))


@cache
def port_machine(file: RegisterFile) -> PortMachine:
    """The machine of a register file, with all steps that it has learnt before."""
    return PortMachine(file.banks, Limits(file.window_cycles, file.reads_per_cycle))
