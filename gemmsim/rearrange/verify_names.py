"""Whether code is proved to be other code with other names of its registers, the same in the whole function.

It knows nothing of how the names were found: it reads them off the two forms, each as the disassembler has it, and
shares with what made them the decoder alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from gemmsim.errors import InputError
from gemmsim.machine_code import encoding
from gemmsim.machine_code.encoding import RA, RB, RC, RD, REUSE, with_field
from gemmsim.machine_code.sass import Function
from gemmsim.rearrange.decode import (
    MENTIONED,
    STACK,
    VERIFIED,
    Operation,
    basic_blocks,
    clears,
    live_at_entry,
    operations,
    unknown_reasons,
)
from gemmsim.rearrange.hazards import hazard, stale_flag


def objection_to_names(before: Function, after: Function) -> str | None:
    """Why `after` is not proved to do what `before` does, in one line; None where it is.

    Proved is that one bijection of registers takes each instruction to the one in its place: operation, guard, control
    and all other operands are the same, pairs and fours stay together and aligned, what is read before it is written
    and the pointer to the stack stay where they are, and no higher register is used. Only instructions that clear
    registers may clear others of those that their basic block clears, if nothing tells the difference, and not too
    close to others; and flags keep an operand only for a read of the same, unchanged register. Assumes that `before` is
    right.
    """
    if before.arch not in VERIFIED or after.arch != before.arch:
        return f"the rules of {after.arch} are not verified; verified: {', '.join(VERIFIED)}"
    if len(before.instructions) != len(after.instructions) or not (before.encoded and after.encoded):
        return f"{len(after.instructions)} instructions for {len(before.instructions)}"
    one, other = operations(before), operations(after)
    unknown = unknown_reasons(one) or unknown_reasons(other)
    if unknown:
        return f"the registers of {', '.join(unknown)} are not known"
    try:
        blocks = basic_blocks(before)
        names = _Names.read_off(one, other, {STACK, *live_at_entry(one, blocks)})
    except InputError as error:
        return str(error)
    renamed = [_Renamed(each.instruction, names.of_ffma(each.ffma), names.new) for each in one]
    for was, becomes in zip(renamed, other, strict=True):
        reason = names.difference(was, becomes)
        if reason:
            return reason
    for span in blocks:
        inside = slice(span.first, span.last)
        reason = _cleared_otherwise(renamed[inside], other[inside], names) or stale_flag(other, span)
        if reason:
            return reason
    return hazard(renamed, other, blocks)


@dataclass
class _Names:
    """{old number: new number}, and back."""

    new: dict[int, int] = field(default_factory=dict)
    old: dict[int, int] = field(default_factory=dict)

    @classmethod
    def read_off(cls, before: Sequence[Operation], after: Sequence[Operation], fixed: Iterable[int]) -> _Names:
        """The names that all instructions but those that clear registers agree on; InputError where they do not."""
        names = cls()
        for register in fixed:
            names._learn(register, register, "")
        for one, other in zip(before, after, strict=True):
            if not clears(one):
                for pair in _pairs(one, other):
                    names._learn(*pair, other.instruction.text)
        highest = max((register for each in before for register in (*each.reads, *each.writes)), default=0)
        if max(names.old, default=0) > highest:
            raise InputError(f"R{max(names.old)} is above R{highest}, the last one before")
        return names

    def _learn(self, old: int, new: int, where: str) -> None:
        if self.new.setdefault(old, new) != new or self.old.setdefault(new, old) != old:
            raise InputError(f"R{old} is R{self.new[old]} elsewhere, and R{new} in {where}")

    def of_ffma(self, ffma: tuple[int, int, int, int] | None) -> tuple[int, int, int, int] | None:
        """The registers of an FFMA under their new names."""
        if ffma is None:
            return None
        d, a, b, c = (self.new.get(each, each) for each in ffma)
        return d, a, b, c

    def difference(self, was: Operation, becomes: Operation) -> str | None:
        """Where two instructions differ in more than names and flags, in words."""
        one, other = was.instruction, becomes.instruction
        text = f"{other.text} at {other.address:#x} is no other form of {one.text}"
        if clears(was):
            alike = clears(becomes) and one.mnemonic == other.mnemonic
            return None if alike and _without_names(one.word) == _without_names(other.word) else text
        expected = MENTIONED.sub(lambda found: f"R{self.new.get(int(found[1]), int(found[1]))}", _unflagged(one.text))
        if (expected, one.guard, one.target) != (_unflagged(other.text), other.guard, other.target):
            return text
        if _without_names(one.word) != _without_names(other.word):
            return f"{text}, though its text is"
        for which in (RD, RA, RB, RC):
            old, new = (encoding.field(each.word or 0, which) for each in (one, other))
            if old != new and self.new.get(old) != new:
                return f"{text}: its word has {new} in place of {old}"
        return None


@dataclass(frozen=True)
class _Renamed(Operation):
    """An instruction of the code before under new names; what is only cleared has none."""

    names: Mapping[int, int]

    @cached_property
    def reads(self) -> tuple[int, ...]:
        """The registers read."""
        return tuple(self.names[each] for each in Operation(self.instruction, None).reads)

    @cached_property
    def writes(self) -> tuple[int, ...]:
        """The registers written."""
        return tuple(self.names[each] for each in Operation(self.instruction, None).writes if each in self.names)


def _pairs(one: Operation, other: Operation) -> Iterator[tuple[int, int]]:
    """The registers in the same place of two instructions; InputError where pairs or fours are taken apart."""
    named = [[int(number) for number in MENTIONED.findall(each.instruction.text)] for each in (one, other)]
    wide = [_together(each) for each in (one, other)]
    if len(named[0]) != len(named[1]) or [count for _, count in wide[0]] != [count for _, count in wide[1]]:
        raise InputError(f"{other.instruction.text} is no other form of {one.instruction.text}")
    for first, count in wide[1]:
        if count > 1 and first % count:
            raise InputError(f"{other.instruction.text} takes {count} registers from R{first} on")
    for old, new in ((named[0], named[1]), (one.reads, other.reads), (one.writes, other.writes)):
        yield from zip(old, new, strict=True)


def _together(each: Operation) -> list[tuple[int, int]]:
    """(first register, how many) of each source, and of what is written."""
    sources = [(read.first, read.registers) for read in each.instruction.reads]
    return [*sources, (min(each.writes, default=0), len(each.writes))]


def _cleared_otherwise(before: Sequence[Operation], after: Sequence[Operation], names: _Names) -> str | None:
    """Where a basic block tells apart which of two instructions clears a register, in words; None if it does not."""
    one: set[int] = set()
    other: set[int] = set()
    for was, becomes in zip(before, after, strict=True):
        if clears(becomes):
            one |= set(was.writes)
            other |= names.old.keys() & set(becomes.writes)
            continue
        early = (one ^ other) & {*becomes.reads, *becomes.writes}
        if early:
            return f"R{min(early)} is not cleared where {becomes.instruction.text} needs it to be"
        one -= set(becomes.writes)
        other -= set(becomes.writes)
    return f"R{min(one ^ other)} is cleared in another block" if one ^ other else None


def _unflagged(text: str) -> str:
    return text.replace(".reuse", "")


def _without_names(word: int | None) -> int:
    """The word without what is in the fields of registers, and without flags."""
    word = word or 0
    for which in (RD, RA, RB, RC, REUSE):
        word = with_field(word, which, 0)
    return word
