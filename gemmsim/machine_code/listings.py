"""The texts of disassemblers: `nvdisasm -c`, `nvdisasm -c -hex` and `cuobjdump -sass`, of sm_70 and later.

The last two print the words of the instructions too, in which stand stalls, yields and barriers. Where they are
missing, every instruction is taken to be issued after one cycle, and `Function.encoded` is False.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gemmsim.errors import InputError, short
from gemmsim.machine_code.cubin import FIRST_WIDE_SM
from gemmsim.machine_code.encoding import WORD_BYTES
from gemmsim.machine_code.sass import Function, Instruction

ALLOWED = "the text of `nvdisasm -c -hex` or `cuobjdump -sass`"


def read_listing(path: str | Path) -> tuple[Function, ...]:
    """The functions of a file of text, as `parse_listing`; InputError too where it cannot be read or is no text."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    if content.startswith(b"\x7fELF"):
        raise InputError(f"{path} is a compiled file, not the text of a disassembler; give it as --cubin {path}")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InputError(f"{path} is binary; allowed: {ALLOWED}")
    return parse_listing(text, str(path))


def parse_listing(text: str, where: str = "the listing") -> tuple[Function, ...]:
    """The functions of a disassembler's text, in its order.

    Raises InputError, in one line that names `where`, for a text that is empty or of another kind, for the machine
    code of an architecture before sm_70, and where the text is cut off.
    """
    if not text.strip():
        raise InputError(f"{where} is empty; allowed: {ALLOWED}")
    functions = tuple(part.function(where) for part in _parts(text, where))
    if not functions:
        raise InputError(f"{where} has no function in it; allowed: {ALLOWED}")
    return functions


def function_named(functions: Sequence[Function], name: str | None, where: str) -> Function:
    """The function of that name, or the only one; InputError, with those that are there, if there is none."""
    names = [function.name for function in functions]
    if name is None and len(names) == 1:
        return functions[0]
    if name is None:
        raise InputError(f"{where} has {len(names)} functions: {', '.join(names)}; choose one with --function")
    if name not in names:
        raise InputError(f"no function {short(name)} in {where}; it has: {', '.join(names)}")
    if names.count(name) > 1:
        archs = ", ".join(function.arch for function in functions if function.name == name)
        raise InputError(f"{where} has {name} for {archs}; disassemble one of them (cuobjdump -sass -arch sm_90)")
    return functions[names.index(name)]


_ARCH = re.compile(r"\bsm_(\d+)|EF_CUDA_SM(\d+)")
_START = re.compile(r"\s*(?:\.section\s+\.text\.([^\s,]+)|Function : (\S+))")
_OTHER_SECTION = re.compile(r"\s*\.section\s|\s*//-{5,} ")
_SIZE = re.compile(r"\s*\.size\s+[^,]+,\s*\((\.\w+) - ")
_LABEL = re.compile(r"\s*([.$\w][\w.$]*):\s*$")
_END = re.compile(r"\s*\.{6,}\s*$")
_CODE = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P\w+)\s+)?(?P<text>[^;/]*?)\s*(?P<end>;)?\s*"
    r"(?:/\* 0x(?P<word>[0-9a-f]{16}) \*/)?\s*$"
)
_HIGH = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_TARGET = re.compile(r"`\(([^)]+)\)$|\b(0x[0-9a-f]+)$")
_GOES = ("BRA", "BSSY", "CALL", "JMP")


@dataclass
class _Line:
    """One instruction as it is printed; `low` and `high` are the halves of its word."""

    address: int
    guard: str
    text: str
    low: int | None
    high: int | None = None

    @property
    def word(self) -> int | None:
        return None if self.low is None or self.high is None else self.high << 64 | self.low


@dataclass
class _Part:
    """What is printed of one function. `end` is the label that its size names, or "..." for a row of dots."""

    name: str
    arch: str
    end: str | None
    lines: list[_Line] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        return self.lines[-1].address + WORD_BYTES if self.lines else 0

    def function(self, where: str) -> Function:
        """The function; InputError where it is cut off, or not of instructions of 128 bits."""
        if any(line.address % WORD_BYTES for line in self.lines):
            raise InputError(f"{where} has instructions of 64 bits; allowed: code of sm_{FIRST_WIDE_SM} and later")
        for number, line in enumerate(self.lines):
            if line.address != number * WORD_BYTES:
                raise InputError(f"{where}: the instruction at {number * WORD_BYTES:#x} of {self.name} is missing")
            if line.low is not None and line.high is None:
                raise InputError(f"{where}: half of the word at {line.address:#x} of {self.name} is missing")
        if self.end is not None and self.end not in self.labels:
            raise InputError(f"{where} is cut off: function {self.name} does not end")
        if not self.lines:
            raise InputError(f"{where} has no instruction of function {self.name}")
        code = (
            Instruction(line.address, line.text, line.guard, line.word, self.target(line, where)) for line in self.lines
        )
        return Function(self.name, self.arch or "unknown", tuple(code))

    def target(self, line: _Line, where: str) -> int | None:
        """The address that an instruction branches to, where that is known."""
        found = _TARGET.search(line.text) if line.text.startswith(_GOES) else None
        if not found or found[2]:
            return int(found[2], 16) if found else None
        if found[1] not in self.labels and found[1].startswith(".L"):
            raise InputError(f"{where} is cut off: the label {found[1]} of function {self.name} is missing")
        return self.labels.get(found[1])


def _parts(text: str, where: str) -> Iterator[_Part]:
    """The functions as they are printed."""
    part: _Part | None = None
    arch = ""
    for number, line in enumerate(text.splitlines(), 1):
        start = _START.match(line)
        if start or (part and _OTHER_SECTION.match(line)):
            if part:
                yield part
            part = _Part(start[1] or start[2], arch, "..." if start[2] else None) if start else None
        elif part and _take(part, line):
            continue
        elif part and (code := _CODE.match(line)):
            if not code["end"]:
                raise InputError(f"{where} is cut off at line {number}, within an instruction of {part.name}")
            low = int(code["word"], 16) if code["word"] else None
            part.lines.append(_Line(int(code["address"], 16), code["guard"] or "", code["text"], low))
        elif found := _ARCH.search(line):
            arch = _checked(found[1] or found[2], where)
            if part:  # cuobjdump names it after the function
                part.arch = arch
    if part:
        yield part


def _take(part: _Part, line: str) -> bool:
    """Take what a line says of a function beside its instructions; False where it says nothing."""
    if high := _HIGH.match(line):
        if part.lines:
            part.lines[-1].high = int(high[1], 16)
    elif label := _LABEL.match(line):
        part.labels[label[1]] = part.size_bytes
    elif size := _SIZE.match(line):
        part.end = size[1]
    elif _END.match(line):
        part.labels["..."] = part.size_bytes
    else:
        return False
    return True


def _checked(number: str, where: str) -> str:
    """The architecture's name; InputError for one with other instructions."""
    if int(number) < FIRST_WIDE_SM:
        raise InputError(
            f"{where} is machine code of sm_{number}, whose instructions have 64 bits; allowed: sm_{FIRST_WIDE_SM} and"
            " later"
        )
    return f"sm_{number}"
