"""Instructions of sm_90 as the optimiser and the verifier both read them: registers, and where control can go.

A plain FFMA is read from its word, all others from the disassembler's text by the table of `opcodes.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import (
    NO_BARRIER,
    RA,
    RB,
    RC,
    RD,
    REUSE,
    STALL,
    WAIT_MASK,
    WORD_BYTES,
    YIELD,
    Control,
    encode,
    field,
    mask_of,
    with_field,
)
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.registers.instruction_streams import RZ

VERIFIED = ("sm_90",)
"""Architectures whose rules have been held against hardware."""
NEVER = "!PT"
"""The guard of what is never executed."""
PLAIN = "ABC"
"""The slots of the sources of a plain FFMA, in the order of its text."""
CONTROL = frozenset(["BRA", "EXIT", "BSSY", "BSYNC", "NOP", "YIELD", "WARPSYNC", "NANOSLEEP"])
"""Control instructions whose successors are known."""
IN_QUEUE = ("shared_load", "shared_store", "global_copy", "global_load", "global_store", "local", "atomic")
"""Kinds that wait in the queue of the memory pipe, which reads their operands in order."""
VARIABLE = frozenset(["S2R", "SHFL", "MUFU", "B2R"])
_VARIABLE_KINDS = frozenset([*IN_QUEUE, "constant", "convert"])
_CHANGING = mask_of(STALL, YIELD, WAIT_MASK, REUSE)
STACK = 1
"""The register that points to the stack, by convention."""
MENTIONED = re.compile(r"(?<![A-Z])R(\d+)\b")
"""A register in a text."""


@dataclass(frozen=True)
class Operation:
    """One instruction: `ffma` are the registers (d, a, b, c) of d = a b + c where it is plain and can move, None of
    all others."""

    instruction: Instruction
    ffma: tuple[int, int, int, int] | None

    @property
    def control(self) -> Control:
        """Stall, yield, barriers and flags."""
        return self.instruction.control

    @property
    def kind(self) -> str:
        """The kind of its opcode."""
        return self.instruction.kind

    @property
    def executed(self) -> bool:
        """False where the guard keeps every thread from it."""
        return self.instruction.guard != NEVER

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """The registers read, those of wide operands too."""
        if self.ffma is not None:
            return tuple(each for each in self.ffma[1:] if each != RZ)
        return tuple(
            number for read in self.instruction.reads for number in range(read.first, read.first + read.registers)
        )

    @cached_property
    def writes(self) -> tuple[int, ...]:
        """The registers written, perhaps: a guard may keep threads from it."""
        if self.ffma is not None:
            return tuple(each for each in self.ffma[:1] if each != RZ)
        return self.instruction.writes if self.executed else ()

    @cached_property
    def variable(self) -> bool:
        """Whether its results come, or its operands are read, after a time that only a scoreboard tells."""
        control = self.control
        barriers = control.write_barrier != NO_BARRIER or control.read_barrier != NO_BARRIER
        return barriers or self.kind in _VARIABLE_KINDS or self.instruction.opcode in VARIABLE

    @cached_property
    def slots(self) -> tuple[tuple[str, int], ...]:
        """(slot, first register) of each source."""
        if self.ffma is not None:
            return tuple((slot, each) for slot, each in zip(PLAIN, self.ffma[1:], strict=True) if each != RZ)
        return tuple((read.slot, read.first) for read in self.instruction.reads)


def clears(each: Operation) -> bool:
    """Whether an instruction does nothing but set its registers to zero."""
    instruction = each.instruction
    return instruction.opcode == "CS2R" and instruction.operands[1:] == ("SRZ",) and not instruction.guard


def bare(word: int) -> int:
    """The word without stall, yield, wait mask and flags."""
    return word & ~_CHANGING


_FFMA_CHANGING = _CHANGING | mask_of(RD, RA, RB, RC)
_PLAIN_FFMA = encode("FFMA RZ, RZ, RZ, RZ") & ~_FFMA_CHANGING
"""What makes a plain FFMA: its word without its registers either."""


def plain_ffma(word: int | None) -> tuple[int, int, int, int] | None:
    """The registers (d, a, b, c) of an FFMA without guard, modifiers, constants and barriers; None of all else."""
    if word is None or word & ~_FFMA_CHANGING != _PLAIN_FFMA:
        return None
    return field(word, RD), field(word, RA), field(word, RB), field(word, RC)


def ffma_word(word: int, registers: tuple[int, int, int, int], reuse: int = 0) -> int:
    """The word of a plain FFMA with other registers (d, a, b, c) and flags."""
    for which, number in zip((RD, RA, RB, RC), registers, strict=True):
        word = with_field(word, which, number)
    return with_field(word, REUSE, reuse)


def operation(instruction: Instruction) -> Operation:
    """One instruction, decoded."""
    return Operation(instruction, plain_ffma(instruction.word))


def operations(function: Function) -> tuple[Operation, ...]:
    """All instructions of a function, decoded."""
    return tuple(operation(each) for each in function.instructions)


def unknown_reasons(operations: Sequence[Operation]) -> list[str]:
    """The instructions whose registers are not fully known, each once."""
    found: dict[str, None] = {}
    for each in operations:
        text = each.instruction.text
        named = {int(number) for number in MENTIONED.findall(text)}
        if not each.instruction.known or (each.executed and not named <= {*each.reads, *each.writes}):
            found[each.instruction.mnemonic] = None
    return list(found)


@dataclass(frozen=True)
class Span:
    """A basic block, instructions `first` to `last` - 1, and the numbers of the blocks that can come next."""

    first: int
    last: int
    following: tuple[int, ...] = ()


def basic_blocks(function: Function) -> tuple[Span, ...]:
    """The basic blocks in the order of their addresses.

    Raises InputError for control that cannot be followed: calls, indirect branches, branches to nowhere.
    """
    code = function.instructions
    starts = {0}
    for number, each in enumerate(code):
        if each.kind == "control" or not each.known:
            if each.kind == "control" and each.opcode not in CONTROL:
                raise InputError(f"{each.opcode} at {each.address:#x} of {function.name}: where it goes is not known")
            if each.opcode in ("BRA", "BSSY"):
                starts.add(_target(function, each))
            if each.opcode in ("BRA", "EXIT", "BSYNC", "BSSY"):
                starts.add(number + 1)
    firsts = sorted(start for start in starts if start < len(code))
    number_of = {first: number for number, first in enumerate(firsts)}
    spans = []
    for number, first in enumerate(firsts):
        last = firsts[number + 1] if number + 1 < len(firsts) else len(code)
        end = code[last - 1]
        following = []
        goes_on = not (end.opcode in ("BRA", "EXIT") and not end.guard and end.mnemonic in ("BRA", "EXIT"))
        if (goes_on or len(end.operands) > 1) and last < len(code):
            following.append(number + 1)
        if end.opcode == "BRA":
            following.append(number_of[_target(function, end)])
        spans.append(Span(first, last, tuple(following)))
    return tuple(spans)


def live_at_entry(code: Sequence[Operation], blocks: Sequence[Span]) -> frozenset[int]:
    """The registers that may be read before the function has written them, on some path."""
    live: list[frozenset[int]] = [frozenset()] * len(blocks)
    changed = True
    while changed:
        changed = False
        for at in reversed(range(len(blocks))):
            alive = set().union(*(live[after] for after in blocks[at].following))
            for each in reversed(code[blocks[at].first : blocks[at].last]):
                if not each.instruction.guard:
                    alive -= set(each.writes)
                alive |= set(each.reads)
            changed |= alive != live[at]
            live[at] = frozenset(alive)
    return live[0] if live else frozenset()


def _target(function: Function, each: Instruction) -> int:
    if each.target is None or not 0 <= each.target // WORD_BYTES < len(function.instructions):
        raise InputError(f"{each.opcode} at {each.address:#x} of {function.name}: where it goes is not known")
    return each.target // WORD_BYTES


def with_words(function: Function, words: Sequence[int]) -> Function:
    """The function with other words, in which only plain FFMA, wait masks and flags differ from its own.

    Raises InputError where anything else does.
    """
    return replace(
        function,
        instructions=tuple(_with_word(each, word) for each, word in zip(function.instructions, words, strict=True)),
    )


def _with_word(each: Instruction, word: int) -> Instruction:
    if word == each.word:
        return each
    registers = plain_ffma(word)
    if registers is not None and plain_ffma(each.word) is not None:
        return replace(each, word=word, text=_ffma_text(registers, field(word, REUSE)))
    if each.word is None or bare(word) != bare(each.word):
        raise InputError(f"the word at {each.address:#x} is no other form of {each.text}")
    if field(word, REUSE) and field(word, REUSE) != field(each.word, REUSE):
        raise InputError(f"other flags at {each.address:#x} of {each.text}")
    return replace(each, word=word, text=each.text if field(word, REUSE) else each.text.replace(".reuse", ""))


def _ffma_text(registers: tuple[int, int, int, int], reuse: int) -> str:
    names = ["RZ" if number == RZ else f"R{number}" for number in registers]
    flagged = [name + ".reuse" * (reuse >> slot & 1) for slot, name in enumerate(names[1:])]
    return f"FFMA {', '.join([names[0], *flagged])}"
