"""Loop bodies to measure: FFMA alone, and FFMA with other instructions between them.

A body is one period of an instruction stream as text, each instruction with its stall and yield bit; the texts go
through `sass.py` where they are read and through `encoding.py` where they are run. Memory instructions use
the registers that a program has set for them, so that every address is valid:

    R2           the same shared address in every lane
    R6, R7, R3   shared addresses 4, 8 and 16 bytes on from lane to lane
    R4, R5       a global address, 16 bytes on from lane to lane, with the descriptor in UR4
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gemmsim.errors import InputError, short
from gemmsim.machine_code.encoding import Control, encode
from gemmsim.machine_code.sass import Instruction
from gemmsim.registers.instruction_streams import RZ

SHARED_UNIFORM, GLOBAL = 2, 4
SHARED_SPREAD: Mapping[int, int] = {32: 6, 64: 7, 128: 3}
"""{bits of an access: the register with an address so wide a lane}."""
ADDRESS_REGISTERS = frozenset((SHARED_UNIFORM, *SHARED_SPREAD.values(), GLOBAL, GLOBAL + 1))
LARGEST_OFFSET = 0xFF0
"""Bytes beyond its base that a memory instruction may reach."""
ALLOWED = ("FFMA", "IADD3", "IMAD", "LOP3", "MOV", "LDS", "STS", "LDG", "NOP")
MEMORY = ("LDS", "STS", "LDG")
LARGEST_PERIOD = 512


@dataclass(frozen=True)
class LoopBody:
    """One period of a loop: the instructions as text, and how each is issued.

    Raises InputError for an instruction that may not be measured: of another opcode or form, with a guard, at an
    address that is not one of the program's, or one that overwrites these.
    """

    name: str
    code: tuple[str, ...]
    stalls: tuple[int, ...]
    yield_bits: tuple[int, ...]

    def __post_init__(self) -> None:
        if not 1 <= len(self.code) <= LARGEST_PERIOD:
            raise InputError(f"{self.name}: {len(self.code)} instructions; allowed: 1 to {LARGEST_PERIOD}")
        if not len(self.code) == len(self.stalls) == len(self.yield_bits):
            raise InputError(f"{self.name}: each of its {len(self.code)} instructions needs a stall and a yield bit")
        if not self.ffma:
            raise InputError(f"{self.name}: no FFMA in it")
        for instruction, control in zip(self.instructions, self.controls, strict=True):
            reason = _refusal(instruction, self.touches_memory)
            if reason:
                raise InputError(f"{self.name}: {short(instruction.text)} {reason}")
            encode(instruction.text, control)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """The period, read."""
        return tuple(Instruction(16 * number, text) for number, text in enumerate(self.code))

    @cached_property
    def controls(self) -> tuple[Control, ...]:
        """How each instruction is issued; reuse flags are in its text."""
        return tuple(Control(stall, bit) for stall, bit in zip(self.stalls, self.yield_bits, strict=True))

    @property
    def ffma(self) -> int:
        """FFMA in a period."""
        return sum(instruction.opcode == "FFMA" for instruction in self.instructions)

    @property
    def touches_memory(self) -> bool:
        """Whether the address registers are needed."""
        return any(instruction.opcode in MEMORY for instruction in self.instructions)

    @cached_property
    def registers(self) -> frozenset[int]:
        """The registers that it reads or writes, and the address registers where it needs them."""
        used = set(ADDRESS_REGISTERS) if self.touches_memory else set()
        for instruction in self.instructions:
            used.update(instruction.writes)
            for read in instruction.reads:
                used.update(range(read.first, read.first + read.registers))
        return frozenset(used)

    def to_dict(self) -> dict[str, Any]:
        """The stream as files hold it; of FFMA alone, with `ffma` as `gemmsim registers --batch` takes it."""
        document: dict[str, Any] = {"name": self.name, "code": list(self.code)}
        if self.ffma == len(self.code):
            document["ffma"] = [_as_row(instruction) for instruction in self.instructions]
        return document | {"stall": _one_or_all(self.stalls), "yield_bit": _one_or_all(self.yield_bits)}


def loop_body_of(data: Any, where: str) -> LoopBody:
    """The stream of a JSON object: `code` (texts) or `ffma` ([Rd, Ra, Rb, Rc, flags such as "AB"]), then `stall` and
    `yield_bit`, each a number or a list. Raises InputError, which begins with `where`, for all else.
    """
    if not isinstance(data, Mapping) or not any(isinstance(data.get(key), list) for key in ("code", "ffma")):
        raise InputError(f"{where}: no stream; it needs `code` or `ffma`, each a list")
    rows = data.get("code") or [ffma_text(row, where) for row in data["ffma"]]
    if not all(isinstance(row, str) for row in rows):
        raise InputError(f"{where}: `code` is a list of texts such as FFMA R4, R8, R9, R4")
    stalls = _spread(data.get("stall", 1), len(rows), f"{where}: stall")
    bits = _spread(data.get("yield_bit", 1), len(rows), f"{where}: yield_bit")
    try:
        return LoopBody(str(data.get("name", where)), tuple(rows), stalls, bits)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def read_loop_bodies(path: str | Path) -> list[LoopBody]:
    """The streams of a file, a JSON object a line; InputError with the number of the line that is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                data = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{path}, line {number}: not readable as JSON") from None
            found.append(loop_body_of(data, f"{path}, line {number}"))
    if not found:
        raise InputError(f"{path}: no stream in it")
    return found


def ffma_text(row: Any, where: str) -> str:
    """ "FFMA R4, R8.reuse, R9, R4" for [4, 8, 9, 4, "A"]."""
    if (
        not isinstance(row, list)
        or len(row) not in (4, 5)
        or not all(isinstance(number, int) and not isinstance(number, bool) and 0 <= number <= RZ for number in row[:4])
    ):
        raise InputError(f"{where}: {short(row)} is no FFMA; it is [Rd, Ra, Rb, Rc, flags], registers 0 to {RZ}")
    flags = row[4] if len(row) == 5 else ""
    if not isinstance(flags, str) or set(flags) - set("ABC"):
        raise InputError(f"{where}: reuse flags {short(flags)}; allowed: letters of ABC")
    sources = [register_name(number) + ".reuse" * (slot in flags) for number, slot in zip(row[1:4], "ABC", strict=True)]
    return f"FFMA {', '.join([register_name(row[0]), *sources])}"


def register_name(register: int) -> str:
    """How the disassembler writes a register."""
    return "RZ" if register == RZ else f"R{register}"


def _as_row(instruction: Instruction) -> list[int | str]:
    """[Rd, Ra, Rb, Rc, flags] of an FFMA."""
    numbers = [RZ if text.startswith("RZ") else int(text.removesuffix(".reuse")[1:]) for text in instruction.operands]
    flags = "".join(slot for slot, text in zip("ABC", instruction.operands[1:], strict=True) if text.endswith(".reuse"))
    return [*numbers, flags]


def _refusal(instruction: Instruction, touches_memory: bool) -> str | None:
    """Why an instruction may not be measured; None where it may."""
    if instruction.opcode not in ALLOWED:
        return f"may not be measured; allowed: {', '.join(ALLOWED)}"
    if touches_memory and ADDRESS_REGISTERS & set(instruction.writes):
        return f"overwrites an address; {_names(ADDRESS_REGISTERS)} hold them"
    width = instruction.data_registers
    data = [*instruction.writes[:1], *(read.first for read in instruction.reads[1:])]
    if instruction.opcode in MEMORY:
        base, offset = _address(instruction)
        allowed = {GLOBAL} if instruction.opcode == "LDG" else ADDRESS_REGISTERS - {GLOBAL, GLOBAL + 1}
        if base not in allowed:
            return f"has another address than those in {_names(allowed)}"
        if offset % (4 * width) or not 0 <= offset <= LARGEST_OFFSET:
            return f"is not aligned, or beyond {LARGEST_OFFSET:#x}"
        if data and data[0] % width:
            return f"names R{data[0]} for {width} registers; allowed: multiples of {width}"
    return None


def _names(registers: Iterable[int]) -> str:
    return ", ".join(f"R{register}" for register in sorted(registers))


def _address(instruction: Instruction) -> tuple[int | None, int]:
    """(register, bytes) of a memory instruction's address."""
    base = next((read.first for read in instruction.reads if read.slot == "A"), None)
    text = instruction.text.rpartition("[")[2].partition("]")[0]
    return base, int(text.rpartition("+")[2], 16) if "+" in text else 0


def _spread(value: Any, count: int, what: str) -> tuple[int, ...]:
    """The number of each instruction, of one number for all or a list."""
    values = value if isinstance(value, list) else [value] * count
    if len(values) != count or not all(isinstance(each, int) and not isinstance(each, bool) for each in values):
        raise InputError(f"{what} is {short(value)}; allowed: a whole number, or {count} of them")
    return tuple(values)


def _one_or_all(values: Sequence[int]) -> int | list[int]:
    return values[0] if len(set(values)) == 1 else list(values)
