"""A loop run on paper with all that its timing can spoil: by this alone rearranged code is held against the original.

It takes nothing from the optimiser or the verifier. Registers hold whole numbers. Results appear some cycles after
issue, those of loads after a time that is drawn anew each time, loads of shared memory one after the other; who reads a
register while a result is on its way gets rubbish. Stores read their operands late. What is kept for reuse is the value
that was read, whatever has become of the register since. A scoreboard is set some cycles behind the access, and who
waits for it sooner does not wait.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gemmsim.errors import InputError
from gemmsim.machine_code.sass import Instruction
from gemmsim.registers.instruction_streams import RZ

MODULUS = (1 << 61) - 1
ORDER = 1_000_003
"""An addend is multiplied by this, so that sums in another order differ."""
FIXED_CYCLES = {"FFMA": 4, "IADD3": 6, "MOV": 6}
LOAD_CYCLES, READ_CYCLES = (20, 60), (2, 12)
"""The least and the most from issue until a load has its result, and until an access has read its operands."""
SET_CYCLES = 2
"""Cycles until a scoreboard is set."""
BANKS, SLOTS = 2, "ABC"
PLACES = 1 << 20
_SOURCE = re.compile(r"R(\d+|Z)(\.reuse)?")


@dataclass(frozen=True)
class Outcome:
    """Registers at the end; stores with the values that they stored, and barriers, in the order in which they were
    issued; reads of results on their way."""

    registers: Mapping[int, int]
    stores: Sequence[tuple[int, ...]]
    rubbish: int


@dataclass
class Machine:
    """One warp. `seed` decides the times of loads and stores, by pass and place alone."""

    seed: int
    registers: dict[int, int] = field(default_factory=dict)
    now: int = 0

    def __post_init__(self) -> None:
        self._coming: list[tuple[int, int, int, int]] = []  # (cycle, number, register, value)
        self._reading: list[tuple[int, int, tuple[int, ...]]] = []  # (cycle, number, registers) of stores
        self._boards: list[tuple[int, int, int]] = []  # (scoreboard, cycle from which on it is set, cycle of its end)
        self._kept: dict[tuple[int, str], tuple[int, int]] = {}
        self._issued = self._loads_done = self._reads_done = 0
        self.stores: list[tuple[int, ...]] = []
        self.rubbish = 0

    def run(self, code: Sequence[Instruction], passes: int) -> Outcome:
        """Go through the instructions so many times, the branch at their end taken each time."""
        for turn in range(passes):
            for place, each in enumerate(code):
                self._issue(each, (self.seed * PLACES + turn) * PLACES + place)
            self._kept.clear()
        self._land(self.now + 10_000)
        return Outcome(dict(self.registers), tuple(sorted(self.stores)), self.rubbish)

    def _land(self, cycle: int) -> None:
        """Let all happen that is due: first what reads, then what writes, cycle by cycle."""
        events = [(at, 0, number, registers) for at, number, registers in self._reading if at <= cycle]
        events += [(at, 1, number, (register, value)) for at, number, register, value in self._coming if at <= cycle]
        self._reading = [each for each in self._reading if each[0] > cycle]
        self._coming = [each for each in self._coming if each[0] > cycle]
        for _, kind, number, what in sorted(events):
            if kind == 0:
                self.stores.append((number, *(self._value(register) for register in what)))
            else:
                self.registers[what[0]] = what[1]

    def _value(self, register: int) -> int:
        return 0 if register == RZ else self.registers.setdefault(register, register * 7919 + 17)

    def _issue(self, each: Instruction, key: int) -> None:
        control = each.control
        self._wait(control.wait_mask)
        self._land(self.now)
        self._issued += 1
        handler = getattr(self, f"_do_{each.opcode.lower()}", None)
        if handler is None:
            raise InputError(f"{each.text} cannot be run on paper")
        done, read = handler(each, key)
        for board, end in ((control.write_barrier, done), (control.read_barrier, read)):
            self._boards.append((board, self.now + SET_CYCLES, end))
        self.now += max(control.stall, 1)

    def _wait(self, mask: int) -> None:
        """Wait until the scoreboards of a mask that are set by now are free."""
        ends = [end for board, since, end in self._boards if mask >> board & 1 and since <= self.now]
        self.now = max([self.now, *ends])
        self._boards = [each for each in self._boards if each[2] > self.now or each[1] > self.now]

    def _read(self, register: int) -> int:
        """A register as an instruction finds it now."""
        if any(at > self.now and coming == register for at, _, coming, _ in self._coming):
            self.rubbish += 1
            return 1 + 31 * self._issued * (self.rubbish + 1)
        return self._value(register)

    def _sources(self, each: Instruction, slots: str) -> list[int]:
        """The values of the operands behind the first, in these slots, through what is kept for reuse."""
        values = []
        for slot, text in zip(slots, each.operands[1:], strict=False):
            found = _SOURCE.fullmatch(text)
            if found is None:
                values.append(int(text, 16))
                continue
            register = RZ if found[1] == "Z" else int(found[1])
            if register == RZ:
                values.append(0)
                continue
            entry = (register % BANKS, slot)
            kept = self._kept.get(entry)
            value = kept[1] if kept is not None and kept[0] == register else self._read(register)
            self._kept.pop(entry, None)
            if found[2]:
                self._kept[entry] = (register, value)
            values.append(value)
        return values

    def _result(self, each: Instruction, value: int) -> tuple[int, int]:
        done = self.now + FIXED_CYCLES[each.opcode]
        if each.operands[0] != "RZ":
            self._coming.append((done, self._issued, int(each.operands[0][1:]), value % MODULUS))
        return done, self.now

    def _do_ffma(self, each: Instruction, key: int) -> tuple[int, int]:
        a, b, c = self._sources(each, SLOTS)
        return self._result(each, a * b + ORDER * c)

    def _do_iadd3(self, each: Instruction, key: int) -> tuple[int, int]:
        return self._result(each, 3 + sum(self._sources(each, SLOTS)))

    def _do_mov(self, each: Instruction, key: int) -> tuple[int, int]:
        return self._result(each, 5 + sum(self._sources(each, "B")))

    def _do_lds(self, each: Instruction, key: int) -> tuple[int, int]:
        times = random.Random(key)
        address = self._read(each.reads[0].first)
        read = self._reads_done = max(self._reads_done, self.now + times.randint(*READ_CYCLES))
        done = self._loads_done = max(self._loads_done + 1, read, self.now + times.randint(*LOAD_CYCLES))
        place = int(each.text.rpartition("+")[2].rstrip("]"), 16) if "+" in each.text else 0
        for number, register in enumerate(each.writes):
            value = (address * 31 + (place + number) * 6007) % MODULUS
            self._coming.append((done, self._issued, register, value))
        return done, read

    def _do_sts(self, each: Instruction, key: int) -> tuple[int, int]:
        read = self._reads_done = max(self._reads_done, self.now + random.Random(key).randint(*READ_CYCLES))
        registers = [read_.first + number for read_ in each.reads for number in range(read_.registers)]
        for register in registers:
            self._read(register)  # a result on its way is as bad here
        self._reading.append((read, self._issued, tuple(registers)))
        return read, read

    def _do_bar(self, each: Instruction, key: int) -> tuple[int, int]:
        self.stores.append((self._issued,))
        return self.now, self.now

    def _do_bra(self, each: Instruction, key: int) -> tuple[int, int]:
        return self.now, self.now

    _do_nop = _do_bra
