"""Instructions of sm_70 and later, by their text: which registers each reads and writes, and how it is issued."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gemmsim.machine_code.encoding import Control, control_of
from gemmsim.machine_code.opcodes import OPCODES, Opcode

ASSUMED = Control()
"""How an instruction is issued where the text has no words: stall 1, bit 109 set, as in the inner part of loops."""


MEMORY_KINDS = ("shared_load", "shared_store", "global_load", "global_store", "global_copy", "local")


@dataclass(frozen=True)
class Read:
    """A source that the register file gives: `registers` of them from number `first` on, in slot A, B or C.

    With `reuse` it is kept for a later read in the same slot.
    """

    slot: str
    first: int
    registers: int = 1
    reuse: bool = False


@dataclass(frozen=True)
class Instruction:
    """One instruction. `text` is without its guard, such as "P0" or "!P2"; `target` the address that it branches to."""

    address: int
    text: str
    guard: str = ""
    word: int | None = None
    target: int | None = None

    @cached_property
    def mnemonic(self) -> str:
        """The opcode with its modifiers, LDS.U.128."""
        return self.text.partition(" ")[0]

    @property
    def opcode(self) -> str:
        """The opcode without modifiers, LDS."""
        return self.mnemonic.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The modifiers, ("U", "128")."""
        return tuple(self.mnemonic.split(".")[1:])

    @cached_property
    def operands(self) -> tuple[str, ...]:
        """The operands as texts, R4.reuse or [R2+UR4+0x40]."""
        return tuple(part for part in (text.strip() for text in self.text.partition(" ")[2].split(",")) if part)

    @property
    def row(self) -> Opcode | None:
        """What is known of the opcode; None where nothing is."""
        return OPCODES.get(self.opcode)

    @property
    def known(self) -> bool:
        """Whether reads and writes are known; else they are empty."""
        return self.row is not None

    @property
    def kind(self) -> str:
        """The kind of the opcode, "unknown" where it has none."""
        row = self.row
        return row.kind if row else "unknown"

    @cached_property
    def control(self) -> Control:
        """Stall, yield and barriers; ASSUMED, with the text's reuse flags, where there is no word."""
        return ASSUMED if self.word is None else control_of(self.word)

    @property
    def data_registers(self) -> int:
        """Registers of the data that a load or store moves."""
        return next((int(name) // 32 for name in self.modifiers if name in ("64", "128")), 1)

    @property
    def access(self) -> str | None:
        """Opcode and bits of a load or store, "LDS.128"; None for all else."""
        return f"{self.opcode}.{32 * self.data_registers}" if self.kind in MEMORY_KINDS else None

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The sources that the register file gives; none for RZ, constants, immediates and uniform registers."""
        return tuple(_reads(self)) if self.row else ()

    @cached_property
    def writes(self) -> tuple[int, ...]:
        """The registers written."""
        count = _written(self)
        found = _REGISTER.match(self.values[0]) if count and self.values else None
        return tuple(range(int(found[1]), int(found[1]) + count)) if found else ()

    @cached_property
    def values(self) -> tuple[str, ...]:
        """The operands that are no predicates; two halves of one immediate, "1, 1", count once."""
        found: list[str] = []
        for text in self.operands:
            second_half = self.opcode.startswith("H") and _NUMBER.match(text) and _NUMBER.match(found[-1])
            if not second_half and not _PREDICATE.fullmatch(text):
                found.append(text)
        return tuple(found)


_REGISTER = re.compile(r"\bR(\d+)\b")
_NUMBER = re.compile(r"[-+]?[\d.]")
_PREDICATE = re.compile(r"!?U?P(?:\d+|T|R)")
_ADDRESS = re.compile(r"\[[^\[\]]*\]$")


def _written(instruction: Instruction) -> int:
    """How many registers an instruction writes."""
    row, modifiers = instruction.row, instruction.modifiers
    if row is None or not row.destination:
        return 0
    if row.destination == "m":
        return instruction.data_registers
    if row.kind == "convert":
        return 1 + _converts(instruction)[0]
    if "32" in modifiers:
        return 1
    return 2 if row.destination == "D" or {"WIDE", "64"} & set(modifiers) else 1


def _reads(instruction: Instruction) -> Iterator[Read]:
    row = instruction.row
    assert row is not None
    sources = instruction.values[1 if row.destination else 0 :]
    for source, text in zip(row.sources, sources, strict=False):
        address = _ADDRESS.search(text)
        found = _REGISTER.search(address[0] if address else text)
        if found:
            slot = "B" if source == "m" else source.upper()
            yield Read(slot, int(found[1]), _width(instruction, source, text), ".reuse" in text)


def _width(instruction: Instruction, source: str, text: str) -> int:
    """How many registers a source has."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if text.endswith("]"):  # addresses of 64 bits are written R2.64, before sm_80 they were not
        return 2 if ".64" in text or ("E" in modifiers and source != "d" and "desc" not in text) else 1
    if source == "m" or instruction.kind == "atomic":
        return instruction.data_registers
    if source == "c" and opcode == "IMAD" and {"WIDE", "HI"} & set(modifiers):
        return 2
    if instruction.kind == "convert":
        return 1 + _converts(instruction)[1]
    return 2 if source.isupper() or (opcode == "IADD" and "64" in modifiers) else 1


def _converts(instruction: Instruction) -> tuple[bool, bool]:
    """Whether (the result, the source) of a conversion has 64 bits: F2F.F64.F32, F2I.S64, I2F.F64, FRND.F64."""
    modifiers = instruction.modifiers
    floating, whole = "F64" in modifiers, bool({"S64", "U64"} & set(modifiers))
    match instruction.opcode:
        case "F2F":
            return modifiers[:1] == ("F64",), "F64" in modifiers[1:]
        case "F2I":
            return whole, floating
        case "I2F":
            return floating, whole
    return floating, floating


@dataclass(frozen=True)
class Function:
    """The instructions of one function, in the order of their addresses; `arch` such as "sm_90"."""

    name: str
    arch: str
    instructions: tuple[Instruction, ...]

    @property
    def encoded(self) -> bool:
        """Whether stalls, yields and barriers are known."""
        return all(instruction.word is not None for instruction in self.instructions)
