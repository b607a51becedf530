"""Instruction words of 128 bits, sm_70 and later: their fields, and the encoding of the few forms that a
microbenchmark is made of.

Fields: facts that NVIDIA does not document, from the disassembler's own output over compiled kernels; the same as
in CuAssembler (github.com/cloudcores/CuAssembler) and TuringAs (github.com/daadaada/turingas). The tests take every
form back through the disassembler.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gemmsim.errors import InputError, short
from gemmsim.registers.instruction_streams import RZ

WORD_BYTES = 16
NO_BARRIER = 7
ALL_BARRIERS = 0b111111

Field = tuple[int, int]
"""(lowest bit, bits)."""

OPCODE: Field = (0, 12)
GUARD: Field = (12, 4)
RD: Field = (16, 8)
RA: Field = (24, 8)
RB: Field = (32, 8)
RC: Field = (64, 8)
STALL: Field = (105, 4)
YIELD: Field = (109, 1)
WRITE_BARRIER: Field = (110, 3)
READ_BARRIER: Field = (113, 3)
WAIT_MASK: Field = (116, 6)
REUSE: Field = (122, 4)
SLOTS: Mapping[str, Field] = {"A": RA, "B": RB, "C": RC, "D": RD}


def field(word: int, which: Field) -> int:
    """The value of a field of an instruction word."""
    low, bits = which
    return word >> low & (1 << bits) - 1


def mask_of(*fields: Field) -> int:
    """The bits of these fields."""
    return sum(((1 << bits) - 1) << low for low, bits in fields)


def with_field(word: int, which: Field, value: int) -> int:
    """The word with another value in a field; InputError when it does not fit."""
    low, bits = which
    if not 0 <= value < 1 << bits:
        raise InputError(
            f"{value} does not fit into the {bits} bits from bit {low} on; allowed: 0 to {(1 << bits) - 1}"
        )
    return word & ~(((1 << bits) - 1) << low) | value << low


@dataclass(frozen=True)
class Control:
    """How an instruction is issued, as the compiler says it.

    stall          cycles to the next issue of this warp, 0 to 15
    yield_bit      bit 109: 1 keeps to this warp, 0 lets another come first
    write_barrier  scoreboard that is released when the result is written, 0 to 5, or NO_BARRIER
    read_barrier   the same when the sources have been read
    wait_mask      scoreboards to wait for, a bit each
    reuse          bits of the slots A, B and C (1, 2, 4) whose register is kept; 8 has no known effect
    """

    stall: int = 1
    yield_bit: int = 1
    write_barrier: int = NO_BARRIER
    read_barrier: int = NO_BARRIER
    wait_mask: int = 0
    reuse: int = 0

    def __post_init__(self) -> None:
        for name, which in _CONTROL.items():
            value = getattr(self, name)
            if not 0 <= value < 1 << which[1]:
                raise InputError(f"{name} {value}; allowed: 0 to {(1 << which[1]) - 1}")


_CONTROL: Mapping[str, Field] = {
    "stall": STALL,
    "yield_bit": YIELD,
    "write_barrier": WRITE_BARRIER,
    "read_barrier": READ_BARRIER,
    "wait_mask": WAIT_MASK,
    "reuse": REUSE,
}


def control_of(word: int) -> Control:
    """The control fields of an instruction word."""
    return Control(**{name: field(word, which) for name, which in _CONTROL.items()})


def with_control(word: int, control: Control) -> int:
    """The word issued in another way."""
    for name, which in _CONTROL.items():
        word = with_field(word, which, getattr(control, name))
    return word


@dataclass(frozen=True)
class Form:
    """One form of instruction: its word with nothing in it, and where its operands go, in the order of the text."""

    high: int
    low: int
    registers: tuple[Field, ...] = ()
    uniform: tuple[Field, ...] = ()
    immediates: tuple[Field, ...] = ()


_IMMEDIATE, _LUT = ((32, 32),), (72, 8)
_OFFSET, _CONSTANT = ((40, 24),), ((38, 16),)
FORMS: Mapping[str, Form] = {
    "FFMA R, R, R, R": Form(0, 0x7223, (RD, RA, RB, RC)),
    "IADD3 R, R, R, R": Form(0x07FFE000, 0x7210, (RD, RA, RB, RC)),
    "IADD3 R, R, I, R": Form(0x07FFE000, 0x7810, (RD, RA, RC), (), _IMMEDIATE),
    "IMAD R, R, R, R": Form(0x078E0200, 0x7224, (RD, RA, RB, RC)),
    "IMAD R, R, I, R": Form(0x078E0200, 0x7824, (RD, RA, RC), (), _IMMEDIATE),
    "IMAD.WIDE.U32 R, R, I, R": Form(0x078E0000, 0x7825, (RD, RA, RC), (), _IMMEDIATE),
    "LOP3.LUT R, R, R, R, I, !PT": Form(0x078E0000, 0x7212, (RD, RA, RB, RC), (), (_LUT,)),
    "LOP3.LUT R, R, I, R, I, !PT": Form(0x078E0000, 0x7812, (RD, RA, RC), (), (*_IMMEDIATE, _LUT)),
    "MOV R, R": Form(0xF00, 0x7202, (RD, RB)),
    "MOV R, I": Form(0xF00, 0x7802, (RD,), (), _IMMEDIATE),
    "ISETP.NE.AND P0, PT, R, R, PT": Form(0x03F05270, 0x720C, (RA, RB)),
    "LDS R, [R+I]": Form(0x800, 0x7984, (RD, RA), (), _OFFSET),
    "LDS.64 R, [R+I]": Form(0xA00, 0x7984, (RD, RA), (), _OFFSET),
    "LDS.128 R, [R+I]": Form(0xC00, 0x7984, (RD, RA), (), _OFFSET),
    "STS [R+I], R": Form(0x800, 0x7388, (RA, RB), (), _OFFSET),
    "STS.64 [R+I], R": Form(0xA00, 0x7388, (RA, RB), (), _OFFSET),
    "STS.128 [R+I], R": Form(0xC00, 0x7388, (RA, RB), (), _OFFSET),
    "LDG.E R, desc[U][R.64+I]": Form(0x0C1E1900, 0x7981, (RD, RA), ((32, 6),), _OFFSET),
    "LDG.E.64 R, desc[U][R.64+I]": Form(0x0C1E1B00, 0x7981, (RD, RA), ((32, 6),), _OFFSET),
    "LDG.E.128 R, desc[U][R.64+I]": Form(0x0C1E1D00, 0x7981, (RD, RA), ((32, 6),), _OFFSET),
    "STG.E desc[U][R.64+I], R": Form(0x0C101900, 0x7986, (RA, RB), ((64, 6),), _OFFSET),
    "LDC R, c[0x0][I]": Form(0x800, 0xFF007B82, (RD,), (), _CONSTANT),
    "LDC.64 R, c[0x0][I]": Form(0xA00, 0xFF007B82, (RD,), (), _CONSTANT),
    "ULDC.64 U, c[0x0][I]": Form(0xA00, 0x7AB9, (), ((16, 6),), _CONSTANT),
    "S2R R, SR_TID.X": Form(0x2100, 0x7919, (RD,)),
    "CS2R.32 R, SR_CLOCKLO": Form(0x5000, 0x7805, (RD,)),
    "CS2R R, SRZ": Form(0x1FF00, 0x7805, (RD,)),
    "BAR.SYNC.DEFER_BLOCKING I": Form(0x10000, 0x7B1D, immediates=((54, 4),)),
    "BRA I": Form(0x03800000, 0x7947),
    "EXIT": Form(0x03800000, 0x794D),
    "NOP": Form(0, 0x7918),
}
"""{text of a form, with R for a register, U for a uniform one, I for a number: its encoding on sm_90}."""

_REGISTER = re.compile(r"\b(?:R(\d+)|RZ)(\.reuse)?")
_UNIFORM = re.compile(r"\bUR(\d+)")
_NUMBER = re.compile(r"(?<!c\[)-?\b0x[0-9a-f]+")


@lru_cache(maxsize=2**14)
def encode(text: str, control: Control | None = None, address: int = 0) -> int:
    """The word of an instruction such as "FFMA R4, R8.reuse, R9, R4", as sm_90 has it.

    Numbers are hexadecimal, 0x10; a branch names the address that it goes to, and needs its own. Flags `.reuse`
    are added to those of the control. Raises InputError for a form that is not in FORMS and for what does not fit.
    """
    guard, plain = _guard(" ".join(text.split()))
    registers, uniform = list(_REGISTER.finditer(plain)), _UNIFORM.findall(plain)
    numbers = [int(number, 16) for number in _NUMBER.findall(plain)]
    shape = _NUMBER.sub("I", _UNIFORM.sub("U", _REGISTER.sub("R", plain)))
    if re.search(r"\bR(\.64)?\]", shape):  # an address without an offset
        shape, numbers = re.sub(r"\bR(\.64)?\]", r"R\1+I]", shape), [*numbers, 0]
    form = FORMS.get(shape)
    if form is None:
        raise InputError(f"{short(text)} cannot be encoded; known: {', '.join(FORMS)}")
    word = with_control(form.high << 64 | form.low, control or Control())
    word = with_field(word, GUARD, guard)
    for found, which in zip(registers, form.registers, strict=True):
        word = with_field(word, which, RZ if found[1] is None else int(found[1]))
        if found[2]:
            word |= 1 << REUSE[0] + list(SLOTS.values()).index(which)
    for text_, which in zip(uniform, form.uniform, strict=True):
        word = with_field(word, which, int(text_))
    if shape == "BRA I":
        return _with_distance(word, numbers[0] - (address + WORD_BYTES))
    for number, which in zip(numbers, form.immediates, strict=True):
        word = with_field(word, which, number + (1 << which[1]) if number < 0 else number)
    return word


def _guard(text: str) -> tuple[int, str]:
    """(the field of the guard, the instruction without it)."""
    found = re.match(r"@(!?)P(\d|T) +", text)
    if not found:
        return 7, text
    number = 7 if found[2] == "T" else int(found[2])
    return number + 8 * bool(found[1]), text[found.end() :]


def _with_distance(word: int, distance_bytes: int) -> int:
    """The branch that goes so far from its end; the distance stands in two parts."""
    units = distance_bytes // 4 % (1 << 56)
    return with_field(with_field(word, (16, 8), units & 0xFF), (34, 48), units >> 8)
