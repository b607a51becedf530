"""Which `.reuse` flags keep an operand that somebody reads: the others are taken away."""

from __future__ import annotations

from collections.abc import Sequence

from gemmsim.machine_code.encoding import REUSE, field, with_field
from gemmsim.rearrange.decode import IN_QUEUE, Operation

BANKS = 2


def useful_flags(block: Sequence[Operation]) -> list[int]:
    """The flags of each instruction of a basic block that keep a register for the next read of its slot and bank, found
    from the end on. Only FFMA lose some of their flags and not all: what others are said to keep stands in their text.
    """
    next_read: dict[tuple[int, str], int] = {}
    found: list[int] = []
    for each in reversed(block):
        flags, useful = field(each.instruction.word or 0, REUSE), 0
        for slot, register in each.slots:
            if next_read.get((register % BANKS, slot)) == register and register not in each.writes:
                useful |= 1 << "ABCD".index(slot)
        found.append(flags & useful if each.ffma is not None else flags * (flags & useful == flags))
        next_read = {key: register for key, register in next_read.items() if register not in each.writes}
        if each.kind not in IN_QUEUE:
            next_read |= {(register % BANKS, slot): register for slot, register in reversed(each.slots)}
    return found[::-1]


def with_flags(word: int, flags: int) -> int:
    """The word with these flags."""
    return with_field(word, REUSE, flags)
