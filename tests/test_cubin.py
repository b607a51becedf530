"""Cubins as bytes: found, changed, and refused where they are none."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gemmsim.device import capability
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.disassemble import disassembled
from gemmsim.kernels import kernel
from gemmsim.machine_code.cubin import CubinFile, parse_cubin, read_cubin
from gemmsim.machine_code.encoding import RD, REUSE, STALL, Control, control_of, field, with_control, with_field
from gemmsim.problem import Problem


def made(sections: dict[str, bytes], flags: int = 0x5A00, machine: int = 190, abi: int = 65) -> bytes:
    """An ELF file with these sections, and nothing else of a cubin."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in sections) + b".shstrtab\0"
    contents = [*sections.values(), names]
    headers, at = [struct.pack("<IIQQQQIIQQ", *[0] * 10)], 64
    body = b""
    for name, content in zip([*sections, ".shstrtab"], contents, strict=True):
        label = names.index(b"\0" + name.encode() + b"\0") + 1
        headers.append(struct.pack("<IIQQQQIIQQ", label, 1, 0, 0, at + len(body), len(content), 0, 0, 1, 0))
        body += content
    ident = b"\x7fELF\x02\x01\x01" + bytes([abi]) + bytes(8)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        ident,
        2,
        machine,
        1,
        0,
        0,
        at + len(body),
        flags,
        64,
        0,
        0,
        64,
        len(headers),
        len(headers) - 1,
    )
    return header + body + b"".join(headers)


CODE = bytes(range(16)) + bytes(range(100, 116))


@pytest.fixture(scope="module")
def compiled() -> CubinFile:
    """A kernel of the family for sm_90."""
    each = kernel("register")
    tiling = each.tiling(**dict(each.default_tile))
    try:
        cubin = compile_kernel(each, each.launch(Problem(512, 512, 512), tiling), capability("9.0"))
    except MachineError as error:
        pytest.skip(str(error))
    return read_cubin(cubin.path)


def test_functions_and_words():
    cubin = parse_cubin(made({".text.one": CODE, ".data": b"abc", ".text.two": CODE[::-1] * 2}))
    assert cubin.arch == "sm_90"
    assert [(code.name, code.size_bytes) for code in cubin.functions] == [("one", 32), ("two", 64)]
    assert cubin.words("one") == (int.from_bytes(CODE[:16], "little"), int.from_bytes(CODE[16:], "little"))
    assert len(cubin.words("two")) == 4


@pytest.mark.parametrize(
    ("flags", "abi", "arch"), [(0x6005A04, 65, "sm_90"), (0x6007802, 65, "sm_120"), (0x5A055A, 51, "sm_90")]
)
def test_the_architecture_stands_in_the_flags(flags, abi, arch):
    assert parse_cubin(made({".text.one": CODE}, flags, abi=abi)).arch == arch


@given(words=st.dictionaries(st.integers(0, 1), st.integers(0, 2**128 - 1)))
def test_only_the_words_given_change(words):
    cubin = parse_cubin(made({".text.one": CODE, ".text.two": CODE}))
    changed = cubin.patched(words, "two")
    assert changed.words("one") == cubin.words("one")
    assert changed.words("two") == tuple(words.get(at, word) for at, word in enumerate(cubin.words("two")))
    back = changed.patched(cubin.words("two"), "two")
    assert back == cubin


def test_a_function_that_is_not_there_and_a_word_too_many():
    cubin = parse_cubin(made({".text.one": CODE, ".text.two": CODE}))
    with pytest.raises(InputError, match="unknown function 'three'"):
        cubin.code("three")
    with pytest.raises(InputError, match="the cubin has 2 functions: one, two; choose one"):
        cubin.code()
    with pytest.raises(InputError, match="instruction 2 of one; it has 2, counted from 0"):
        cubin.patched([1, 2, 3], "one")


GOOD = made({".text.one": CODE})


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (b"", "x is empty; `nvcc -cubin` makes one"),
        (b"hello", "x is no cubin: it does not begin as an ELF file"),
        (GOOD[:30], "x is cut off or damaged: its ELF headers point beyond its 30 bytes"),
        (GOOD[:-10], "x is cut off or damaged"),
        (made({".text.one": CODE}, machine=62), r"x is an ELF file of another machine \(62\), no cubin"),
        (made({".text.one": CODE}, flags=0x3D00), "x is for sm_61, whose instructions have 64 bits; allowed: sm_70"),
        (made({".data": CODE}), "x has no code in it"),
        (made({".text.one": CODE[:20]}), "x has code that is no whole number of 16-byte instructions"),
    ],
    ids=range(8),
)
def test_what_is_no_cubin_is_refused_in_one_line(image, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_cubin(image, "x")
    assert "\n" not in str(caught.value)


@given(cut=st.integers(0, len(GOOD) - 1))
def test_a_cubin_cut_off_anywhere_is_refused(cut):
    with pytest.raises(InputError):
        parse_cubin(GOOD[:cut])


def test_code_beyond_the_end_is_refused():
    size_at = GOOD.index(struct.pack("<QQ", 64, len(CODE))) + 8
    with pytest.raises(InputError, match="x is cut off or damaged"):
        parse_cubin(GOOD[:size_at] + struct.pack("<Q", 16 * 1000) + GOOD[size_at + 8 :], "x")


@example(at=47, byte=128)
@given(at=st.integers(0, len(GOOD) - 1), byte=st.integers(0, 255))
def test_a_damaged_cubin_is_read_or_refused(at, byte):
    with suppress(InputError):
        assert parse_cubin(GOOD[:at] + bytes([byte]) + GOOD[at + 1 :]).functions


def test_a_file_that_is_not_there(tmp_path: Path):
    with pytest.raises(InputError, match=r"cannot read .*none\.cubin: No such file"):
        read_cubin(tmp_path / "none.cubin")


def test_the_words_are_those_that_the_disassembler_prints(compiled):
    (function,) = disassembled(compiled.image)
    assert compiled.words("gemm") == tuple(each.word for each in function.instructions)


def test_what_is_patched_is_what_the_disassembler_prints(compiled):
    """Registers, flags and control of one FFMA changed: that instruction prints as changed, all others as before."""
    (before,) = disassembled(compiled.image)
    at = next(number for number, each in enumerate(before.instructions) if each.opcode == "FFMA")
    word = with_field(before.instructions[at].word, RD, 77)
    word = with_control(word, Control(stall=7, yield_bit=1, wait_mask=3, reuse=0b110))
    (after,) = disassembled(compiled.patched({at: word}).image)
    changed = after.instructions[at]
    sources = [text.removesuffix(".reuse") for text in before.instructions[at].operands[1:]]
    assert changed.text == f"FFMA R77, {sources[0]}, {sources[1]}.reuse, {sources[2]}.reuse"
    assert (changed.control.stall, changed.control.wait_mask) == (7, 3)
    assert [each for each in after.instructions if each is not changed] == [
        each for number, each in enumerate(before.instructions) if number != at
    ]


def test_flags_cleared_everywhere(compiled):
    cleared = [with_field(word, REUSE, 0) for word in compiled.words()]
    (function,) = disassembled(compiled.patched(cleared).image)
    assert not any(read.reuse for each in function.instructions for read in each.reads)
    assert all(field(each.word, STALL) == control_of(each.word).stall for each in function.instructions)
