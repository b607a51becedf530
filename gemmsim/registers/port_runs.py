"""Streams of instructions run through the register ports, as arrays over many streams at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from gemmsim.registers.instruction_streams import KEPT_SLOTS, RZ, SLOTS, Instruction, Stream
from gemmsim.registers.operand_cache import NO_READ, NOT_EMPTIED, Bools, found_kept
from gemmsim.registers.port_machine import Ints, PortMachine, Reads, port_machine
from gemmsim.registers.register_files import RegisterFile

MOST_PASSES = 64
"""Passes after which a loop that has not come back to a state is taken as it is."""
SLOT_BITS = np.arange(KEPT_SLOTS, dtype=np.int32)


@dataclass(frozen=True)
class Conflict:
    """An instruction of the stream that waits for a bank: `cycles` a pass, on average; the slots that it reads there,
    or else takes from what the operand cache keeps of it."""

    instruction: int
    bank: int
    slots: str
    cycles: float


@dataclass(frozen=True)
class Cost:
    """What a pass of a stream costs, without what limits it elsewhere."""

    cycles: float
    hits: int
    conflicts: Sequence[Conflict]


def run(streams: Sequence[Stream], file: RegisterFile, shared: bool = False) -> list[Cost]:
    """The cost of each stream; either all have a loop body of one length, or none has one and all are equally long.

    `shared`: other warps fill all stalls, and empty the operand cache whenever they do.
    """
    machine, bodies = port_machine(file), streams[0].unrolled is not None
    coder = _coder(file, shared)
    coded, index = _steps(streams, coder)
    flags = coded[:, :, FLAGS, None] >> SLOT_BITS & 1 > 0
    found = found_kept(coded[:, :, REGISTERS:], flags, coded[:, :, EMPTIES], file)
    if not bodies:  # the first pass has filled the operand cache
        half = len(coded) // 2
        coded, index, found = coded[half:], index[half:], found[half:]
    kinds = _kinds(coded[:, :, SHAPE], found, coder, machine)
    begins, passes = np.full(len(streams), machine.idle), np.ones(len(streams), np.int64)
    if not bodies:
        begins, passes = _steady(machine, begins, kinds)
    lost = _waits(machine, begins, passes, kinds, index) / passes[:, None, None]
    cycles = coded[:, :, GAP].sum(axis=0) + lost.sum(axis=(1, 2))
    conflicts: list[list[Conflict]] = [[] for _ in streams]
    where = np.nonzero(lost)
    of_kind = kinds[where[1], where[0]].tolist()
    for stream, instruction, bank, kind, waited in zip(
        *(each.tolist() for each in where), of_kind, lost[where].tolist(), strict=True
    ):
        conflicts[stream].append(Conflict(instruction, bank, machine.slots(kind, bank), waited))
    return [Cost(*each) for each in zip(cycles.tolist(), found.sum(axis=(0, 2)).tolist(), conflicts, strict=True)]


def _steps(streams: Sequence[Stream], coder: _Coder) -> tuple[NDArray[np.int32], Ints]:
    """(each step as numbers, the instruction that runs then): of the loop bodies, or of two passes."""
    steps = streams[0].unrolled or 2 * len(streams[0].instructions)
    coded = np.empty((steps, len(streams), REGISTERS + KEPT_SLOTS), np.int32)
    index = np.empty((steps, len(streams)), np.int64)
    for stream, each in enumerate(streams):
        index[:, stream] = np.arange(steps) % len(each.instructions)
        rows = np.array([coder.code(instruction) for instruction in each.instructions], np.int32)
        coded[:, stream] = rows[index[:, stream]]
    return coded, index


@dataclass(frozen=True)
class _Shape:
    """What the ports see of an instruction whatever is kept: the bank of each source (-1: reads nothing), the first
    slot that names the same register, the flags of the slots, as bits, and the cycles to the next issue."""

    banks: tuple[int, ...]
    first: tuple[int, ...]
    flags: int
    gap: int

    def reads(self, found: int, banks: int) -> Reads:
        """The reads that are left when the slots `found`, as bits, need none; a register is read once."""
        slots, flagged, hits, named = [0] * banks, [0] * banks, [], set()
        for slot, (bank, first) in enumerate(zip(self.banks, self.first, strict=True)):
            if bank >= 0 and found >> slot & 1:
                hits.append((bank, slot))
            elif bank >= 0 and first not in named:
                named.add(first)
                slots[bank] |= 1 << slot
                flagged[bank] |= self.flags & 1 << slot
        return Reads(tuple(slots), tuple(flagged), self.flags > 0, tuple(hits), self.gap)


SHAPE, GAP, FLAGS, EMPTIES, REGISTERS = range(5)
"""Columns of an instruction as numbers; those of its registers come last, one for each slot that can be flagged."""


@dataclass
class _Coder:
    """Instructions as numbers, for one register file: shape, cycles to the next issue, flags as bits, instructions for
    which it weakens the operand cache, and the registers in slots that can be flagged."""

    file: RegisterFile
    shared: bool
    shapes: dict[_Shape, int] = field(default_factory=dict)
    known: dict[tuple[object, ...], tuple[int, ...]] = field(default_factory=dict)

    def code(self, each: Instruction) -> tuple[int, ...]:
        """The numbers of an instruction."""
        key = (each.sources, each.reuse, each.stall, each.yield_bit, each.kind == "FFMA")
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self._code(each)
        return found

    def _code(self, each: Instruction) -> tuple[int, ...]:
        registers = [NO_READ if register in (None, RZ) else int(register or 0) for register in each.sources]
        yields = each.yield_bit == 0 and self.file.cache_lasts == "read"
        least = self.file.ffma_interval_cycles if each.kind == "FFMA" else 1
        gap = max(each.stall, least) + (yields and each.stall <= 1)
        empties = self.file.yield_weakens_instructions if yields else NOT_EMPTIED
        if self.shared and gap > least:
            gap, empties = least, max(empties, 0)
        flags = sum(1 << SLOTS.index(letter) for letter in set(each.reuse))
        shape = _Shape(
            tuple(register % self.file.banks if register != NO_READ else -1 for register in registers),
            tuple(registers.index(register) for register in registers),
            flags,
            gap,
        )
        kept = (*registers, *[NO_READ] * KEPT_SLOTS)[:KEPT_SLOTS]
        return (self.shapes.setdefault(shape, len(self.shapes)), gap, flags, empties, *kept)


@cache
def _coder(file: RegisterFile, shared: bool) -> _Coder:
    return _Coder(file, shared)


def _kinds(shapes: NDArray[np.int32], found: Bools, coder: _Coder, machine: PortMachine) -> Ints:
    """The number that the machine has for each step."""
    codes = (shapes << KEPT_SLOTS) + (found << SLOT_BITS).sum(axis=2, dtype=np.int32)
    known, mask = list(coder.shapes), (1 << KEPT_SLOTS) - 1
    kinds = np.zeros(len(known) << KEPT_SLOTS, np.int64)
    for code in np.flatnonzero(np.bincount(codes.ravel())).tolist():
        kinds[code] = machine.kind(known[code >> KEPT_SLOTS].reads(code & mask, machine.banks))
    numbered: Ints = kinds[codes]
    return numbered


def _steady(machine: PortMachine, begins: Ints, kinds: Ints) -> tuple[Ints, Ints]:
    """(a state from which each stream comes back to it, passes that it takes for that)."""
    history = [begins]
    passes = np.zeros_like(begins)
    while not passes.all() and len(history) <= MOST_PASSES:
        state = history[-1]
        for kind in kinds:
            state = machine.run(state, kind)[0]
        for ago, before in enumerate(reversed(history), 1):
            passes = np.where((passes == 0) & (before == state), ago, passes)
        history.append(state)
    return history[-1], np.maximum(passes, 1)


def _waits(machine: PortMachine, begins: Ints, passes: Ints, kinds: Ints, index: Ints) -> NDArray[np.float64]:
    """Cycles waited in so many passes of each stream: (streams, instructions, banks)."""
    waits = np.zeros((len(begins), int(index.max()) + 1, machine.banks))
    state, every = begins, np.arange(len(begins))
    for turn in range(int(passes.max())):
        for kind, instruction in zip(kinds, index, strict=True):
            state, waited, bank = machine.run(state, kind)
            if waited.any():
                waits[every, instruction, bank] += waited * (turn < passes)
    return waits
