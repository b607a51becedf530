"""Other names for the registers of a whole function: which may change places, and the code that results.

Banks go by parity. Registers that an instruction takes in pairs or fours can only move together and to an even place,
so none of them comes into another bank, and they stay where they are. What can move are registers that every
instruction names alone, and those that beside this are only cleared two at a time (CS2R), which clears the same ones
after as before if they change places with others that are cleared in the same block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import OPCODE, RB, RC, RD, SLOTS, Field, field, with_field
from gemmsim.machine_code.sass import MEMORY_KINDS, Function, Instruction
from gemmsim.rearrange.decode import (
    MENTIONED,
    STACK,
    Operation,
    basic_blocks,
    clears,
    live_at_entry,
    operations,
    unknown_reasons,
    with_words,
)
from gemmsim.rearrange.flags import useful_flags, with_flags

Names = Mapping[int, int]
"""{register: its new number}; those left out keep theirs."""
_C_IS_NO_REGISTER = (2, 3, 7)
"""Bits 9 to 11 of arithmetic instructions whose third source is an immediate, a constant or a uniform register: this
takes the place of B then, and B that of C."""


def exchangeable(function: Function) -> list[list[int]]:
    """Groups of registers within each of which all may change places.

    Raises InputError for control that cannot be followed, and instructions whose registers are not known.
    """
    code, blocks = operations(function), basic_blocks(function)
    unknown = unknown_reasons(code)
    if unknown:
        raise InputError(f"registers of {function.name} keep their names: {', '.join(unknown)} is not fully known")
    fixed = {STACK, *live_at_entry(code, blocks)}
    cleared_in: dict[int, set[int]] = defaultdict(set)
    for number, block in enumerate(blocks):
        cleared, used = set(), set()
        for each in code[block.first : block.last]:
            if clears(each):
                cleared |= set(each.writes)
            else:
                used |= {*each.reads, *each.writes}
                fixed |= _together(each)
        fixed |= cleared & used
        for register in cleared:
            cleared_in[register].add(number)
    groups: dict[frozenset[int], list[int]] = defaultdict(list)
    for register in sorted({register for each in code for register in (*each.reads, *each.writes)} - fixed):
        groups[frozenset(cleared_in[register])].append(register)
    return list(groups.values())


def _together(each: Operation) -> set[int]:
    """The registers that an instruction takes in pairs or fours, and those of one that is never executed."""
    found = set(each.writes) if len(each.writes) > 1 else set()
    for read in each.instruction.reads:
        if read.registers > 1:
            found |= set(range(read.first, read.first + read.registers))
    if not each.executed:
        found |= {int(number) for number in MENTIONED.findall(each.instruction.text)}
    return found


def with_names(function: Function, names: Names) -> Function:
    """The function with other names, without the flags that keep nothing then.

    What clears registers clears the same ones as before. Raises InputError where a register is not found in the word
    that names it.
    """
    named = replace(function, instructions=tuple(_with_names(each, names) for each in operations(function)))
    code = operations(named)
    words = [each.word or 0 for each in named.instructions]
    for block in basic_blocks(function):
        inside = slice(block.first, block.last)
        words[inside] = map(with_flags, words[inside], useful_flags(code[inside]))
    return with_words(named, words)


def _with_names(each: Operation, names: Names) -> Instruction:
    instruction, word = each.instruction, each.instruction.word or 0
    if clears(each) or all(names.get(register, register) == register for register in (*each.reads, *each.writes)):
        return instruction
    for which, register in _fields(instruction):
        if field(instruction.word or 0, which) != register:
            raise InputError(f"R{register} is not where it should stand in the word of {instruction.text}")
        word = with_field(word, which, names.get(register, register))
    text = MENTIONED.sub(lambda found: f"R{names.get(int(found[1]), int(found[1]))}", instruction.text)
    return replace(instruction, word=word, text=text)


def _fields(instruction: Instruction) -> list[tuple[Field, int]]:
    """Where in its word an instruction names registers, and which."""
    form = field(instruction.word or 0, OPCODE) >> 9
    b_moved = instruction.kind not in MEMORY_KINDS and form in _C_IS_NO_REGISTER
    places = {**SLOTS, "B": RC if b_moved else RB}
    found = [(RD, instruction.writes[0])] if instruction.writes else []
    return found + [(places[read.slot], read.first) for read in instruction.reads]
