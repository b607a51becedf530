"""Cubins as bytes: the instruction words of a function, and the same file with other words in their place.

A cubin is an ELF file (64 bits, little endian; machine 190, "NVIDIA CUDA architecture"); the code of function F is
its section .text.F (CUDA Binary Utilities; System V ABI, chapter 4).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmsim.errors import InputError, unknown
from gemmsim.machine_code.encoding import WORD_BYTES

CUDA_MACHINE = 190
CODE_PREFIX = ".text."
FIRST_WIDE_SM = 70
"""The first compute capability, times ten, with instructions of 128 bits."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8


@dataclass(frozen=True)
class Code:
    """One function: its name, and where its instructions are in the file."""

    name: str
    offset: int
    size_bytes: int


@dataclass(frozen=True)
class CubinFile:
    """The bytes of a cubin, its architecture such as "sm_90", and its functions."""

    image: bytes
    arch: str
    functions: tuple[Code, ...]

    def code(self, name: str | None = None) -> Code:
        """The function of that name, or the only one; InputError, with those that are there, if there is none."""
        names = {code.name: code for code in self.functions}
        if name is None:
            if len(names) == 1:
                return self.functions[0]
            raise InputError(f"the cubin has {len(names)} functions: {', '.join(names)}; choose one")
        if name not in names:
            raise unknown("function", name, names)
        return names[name]

    def words(self, name: str | None = None) -> tuple[int, ...]:
        """The instruction words of a function, the padding at its end included."""
        code = self.code(name)
        data = self.image[code.offset : code.offset + code.size_bytes]
        return tuple(
            int.from_bytes(data[start : start + WORD_BYTES], "little") for start in range(0, len(data), WORD_BYTES)
        )

    def patched(self, words: Sequence[int] | Mapping[int, int], name: str | None = None) -> CubinFile:
        """The same cubin with other instruction words: from the first one on, or {index: word}.

        Nothing but these words changes, so registers, barriers and shared memory remain what the compiler asked
        for. Raises InputError where the function is shorter.
        """
        code = self.code(name)
        given = words if isinstance(words, Mapping) else dict(enumerate(words))
        places = code.size_bytes // WORD_BYTES
        image = bytearray(self.image)
        for index, word in given.items():
            if not 0 <= index < places:
                raise InputError(f"instruction {index} of {code.name}; it has {places}, counted from 0")
            start = code.offset + index * WORD_BYTES
            image[start : start + WORD_BYTES] = word.to_bytes(WORD_BYTES, "little")
        return CubinFile(bytes(image), self.arch, self.functions)


def read_cubin(path: str | Path) -> CubinFile:
    """The cubin of a file; InputError when it cannot be read or is none, as `parse_cubin`."""
    try:
        image = Path(path).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    return parse_cubin(image, str(path))


def parse_cubin(image: bytes, name: str = "cubin") -> CubinFile:
    """The cubin in these bytes; InputError, in which it is called `name`, when they are none of sm_70 or later."""
    if image[:4] != b"\x7fELF":
        kind = "empty" if not image else "no cubin: it does not begin as an ELF file"
        raise InputError(f"{name} is {kind}; `nvcc -cubin` makes one")
    try:
        return _parsed(image, name)
    except InputError:
        raise
    except (struct.error, IndexError, ValueError, OverflowError):
        raise InputError(f"{name} is cut off or damaged: its ELF headers point beyond its {len(image)} bytes") from None


def _parsed(image: bytes, name: str) -> CubinFile:
    ident, _, machine, _, _, _, at, flags, _, _, _, each, count, names_at = _HEADER.unpack_from(image)
    if ident[4:6] != b"\x02\x01" or machine != CUDA_MACHINE:
        raise InputError(f"{name} is an ELF file of another machine ({machine}), no cubin; `nvcc -cubin` makes one")
    sections = [_SECTION.unpack_from(image, at + number * each) for number in range(count)]
    strings_at, strings_size = sections[names_at][4:6]
    strings = image[strings_at : strings_at + strings_size]
    functions = []
    for label_at, kind, _, _, offset, size, *_ in sections:
        label = strings[label_at : strings.index(b"\0", label_at)].decode() if label_at < len(strings) else ""
        if kind != _NO_BITS and offset + size > len(image):
            raise IndexError(label)
        if label.startswith(CODE_PREFIX):
            functions.append(Code(label.removeprefix(CODE_PREFIX), offset, size))
    number = architecture(flags, ident[7])
    if number < FIRST_WIDE_SM:
        raise InputError(
            f"{name} is for sm_{number}, whose instructions have 64 bits; allowed: sm_{FIRST_WIDE_SM} and later"
        )
    if not functions:
        raise InputError(f"{name} has no code in it")
    if any(code.size_bytes % WORD_BYTES for code in functions):
        raise InputError(f"{name} has code that is no whole number of {WORD_BYTES}-byte instructions")
    return CubinFile(image, f"sm_{number}", tuple(functions))


def architecture(flags: int, os_abi: int) -> int:
    """The compute capability, times ten, that an ELF header names: in the lowest byte of its flags, and in the
    byte after that with the newer ABI (65) of CUDA 13."""
    return flags >> 8 & 0xFF if os_abi >= 65 else flags & 0xFF
