"""Instruction words: fields, the few forms that are encoded here, and the table of opcodes against compiled code."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.machine_code.encoding import (
    ALL_BARRIERS,
    FORMS,
    OPCODE,
    RA,
    RB,
    RC,
    RD,
    REUSE,
    SLOTS,
    STALL,
    WAIT_MASK,
    YIELD,
    Control,
    control_of,
    encode,
    field,
    with_control,
    with_field,
)
from gemmsim.machine_code.opcodes import OPCODES
from gemmsim.machine_code.sass import Instruction

ZOO = Path(__file__).parent / "data" / "sass" / "zoo.cu"
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FIELDS = (OPCODE, RD, RA, RB, RC, STALL, YIELD, WAIT_MASK, REUSE)

words = st.integers(0, 2**128 - 1)
controls = st.builds(
    Control,
    stall=st.integers(0, 15),
    yield_bit=st.integers(0, 1),
    write_barrier=st.integers(0, 7),
    read_barrier=st.integers(0, 7),
    wait_mask=st.integers(0, ALL_BARRIERS),
    reuse=st.integers(0, 15),
)


@given(word=words, which=st.sampled_from(FIELDS), data=st.data())
def test_a_field_changes_alone(word, which, data):
    low, bits = which
    value = data.draw(st.integers(0, 2**bits - 1))
    changed = with_field(word, which, value)
    text = f"{changed:0128b}"
    assert int(text[128 - low - bits : 128 - low], 2) == value == field(changed, which)
    assert text[: 128 - low - bits] + text[128 - low :] == (
        f"{word:0128b}"[: 128 - low - bits] + f"{word:0128b}"[128 - low :]
    )


@given(word=words, control=controls)
def test_control_goes_in_and_comes_out(word, control):
    changed = with_control(word, control)
    assert control_of(changed) == control
    assert (changed ^ word) & ((1 << 105) - 1 | 0b11 << 126) == 0


@pytest.mark.parametrize("values", [{"stall": 16}, {"yield_bit": 2}, {"wait_mask": 64}, {"write_barrier": -1}])
def test_control_that_does_not_fit_is_refused(values):
    with pytest.raises(InputError, match=r"allowed: 0 to \d+$"):
        Control(**values)


def test_a_value_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="300 does not fit into the 8 bits from bit 16 on; allowed: 0 to 255"):
        with_field(0, RD, 300)
    with pytest.raises(InputError, match="does not fit"):
        encode("MOV R4, 0x1ffffffff")


# As nvdisasm -hex and cuobjdump -sass print them of kernels that nvcc 13.0 compiled for sm_90
COMPILED = [
    ("IMAD.WIDE.U32 R28, R64, 0x4, R48", 0x00000004401C7825, 0x001FCA00078E0030, 0x40),
    ("LDG.E R63, desc[UR4][R28.64]", 0x000000041C3F7981, 0x000F68000C1E1900, 0x50),
    ("LDG.E.128 R8, desc[UR4][R4.64+0x30]", 0x0000300404087981, 0x001EA2000C1E1D00, 0x3710),
    ("CS2R.32 R80, SR_CLOCKLO", 0x0000000000507805, 0x000FC40000005000, 0x2600),
    ("STG.E desc[UR4][R2.64+0xb800], R7", 0x00B8000702007986, 0x0001E2000C101904, 0x32C0),
    ("STS.128 [R52+0x90], R24", 0x0000901834007388, 0x000FE20000000C00, 0x25C0),
    ("MOV R66, 0x400", 0x0000040000427802, 0x000FE40000000F00, 0x4C0),
    ("IMAD R31, R64.reuse, 0x28, R66.reuse", 0x00000028401F7824, 0x140FE200078E0242, 0x510),
    ("BRA 0x3770", 0xFFFFFFFC00FC7947, 0x000FC0000383FFFF, 0x3770),
    ("BAR.SYNC.DEFER_BLOCKING 0x0", 0x0000000000007B1D, 0x000FE20000010000, 0x4A0),
    ("S2R R64, SR_TID.X", 0x0000000000407919, 0x000E2E0000002100, 0x10),
    ("LDC.64 R48, c[0x0][0x218]", 0x00008600FF307B82, 0x000E220000000A00, 0x20),
    ("ULDC.64 UR4, c[0x0][0x208]", 0x0000820000047AB9, 0x000FE20000000A00, 0x30),
    ("EXIT", 0x000000000000794D, 0x000FEA0003800000, 0x3760),
]


@pytest.mark.parametrize(("text", "low", "high", "address"), COMPILED, ids=[row[0] for row in COMPILED])
def test_words_of_compiled_code(text, low, high, address):
    word = high << 64 | low
    assert encode(text, control_of(word), address) == word


def test_what_has_no_encoding_is_refused():
    with pytest.raises(InputError, match=r"'HMMA R1, R2, R3, R4' cannot be encoded; known: FFMA R, R, R, R"):
        encode("HMMA R1, R2, R3, R4")


def test_flags_are_bits_of_slots():
    assert field(encode("FFMA R1, R2.reuse, R3, R4.reuse"), REUSE) == 0b101
    assert field(encode("MOV R1, R2.reuse"), REUSE) == 0b010
    assert field(encode("FFMA R1, R2, R3.reuse, RZ", Control(reuse=1)), REUSE) == 0b011


# Against the disassembler


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, list[Instruction]]:
    """{architecture: all instructions that the compiler makes of a bit of everything}."""
    try:
        compiler, _ = nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))
    folder = tmp_path_factory.mktemp("zoo")
    found = {}
    for arch in ARCHS:
        path = folder / f"{arch}.cubin"
        command = [str(compiler.path), "-cubin", "-std=c++17", f"-arch={arch}", str(ZOO), "-o", str(path)]
        subprocess.run(command, check=True, capture_output=True)
        (function,) = disassembled_file(path)
        found[arch] = list(function.instructions)
    return found


@pytest.mark.parametrize("arch", ARCHS)
def test_no_instruction_is_unknown(compiled, arch):
    assert len(compiled[arch]) > 300
    assert {each.opcode for each in compiled[arch] if not each.known} == set()


def test_the_zoo_has_most_of_the_table(compiled):
    seen = {each.opcode for code in compiled.values() for each in code}
    assert len(seen & set(OPCODES)) >= 60


@pytest.mark.parametrize("arch", ARCHS)
def test_registers_are_those_of_the_words(compiled, arch):
    for each in compiled[arch]:
        assert each.word is not None
        if each.writes:
            assert field(each.word, RD) == each.writes[0], each.text
        for read in each.reads:
            # where a constant takes the place of B, B stands in that of C
            places = [SLOTS[read.slot], *([RC] if read.slot == "B" else [])]
            assert read.first in [field(each.word, place) for place in places], each.text
            if read.slot != "D":
                assert field(each.word, REUSE) >> "ABC".index(read.slot) & 1 == read.reuse, each.text


@pytest.mark.parametrize("arch", ARCHS)
def test_every_register_of_the_text_is_read_or_written(compiled, arch):
    for each in compiled[arch]:
        named = {int(number) for number in re.findall(r"\bR(\d+)", " ".join(each.operands))}
        assert named == {read.first for read in each.reads} | set(each.writes[:1]), each.text


@pytest.mark.parametrize("arch", ARCHS)
def test_pairs_and_fours_are_aligned(compiled, arch):
    """The hardware takes pairs from even registers on; a width that is wrong would soon show here."""
    for each in compiled[arch]:
        for read in each.reads:
            assert read.first % read.registers == 0, each.text
        if each.writes:
            assert each.writes[0] % len(each.writes) == 0, each.text


def test_encoding_is_that_of_the_compiler(compiled):
    seen = set()
    for each in compiled["sm_90"]:
        guard = f"@{each.guard} " if each.guard else ""
        text = f"BRA {each.target:#x}" if each.text.startswith("BRA `") else each.text
        try:
            word = encode(guard + text, each.control, each.address)
        except InputError:
            continue
        assert word == each.word, each.text
        seen.add(each.mnemonic)
    assert len(seen) >= 12


def test_every_form_is_printed_as_it_was_written(compiled, tmp_path):
    nvdisasm()
    registers = iter([12, 8, 20, 16] * 40)
    texts = []
    for shape in FORMS:
        text = re.sub(r"\bR\b", lambda _: f"R{next(registers)}", shape)
        number = "0xf" if shape.startswith("BAR") else "0x10"
        texts.append(re.sub(r"\bI\b", number, re.sub(r"\bU\b", "UR4", text)))
    image = b"".join(encode(text, Control(2), 16 * at).to_bytes(16, "little") for at, text in enumerate(texts))
    path = tmp_path / "raw.bin"
    path.write_bytes(image)
    command = [str(nvdisasm().path), "--binary", "SM90", "-ndf", str(path)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    code = re.findall(r"\*/\s+([^;]*?)\s*;", printed)
    assert [re.sub(r"`\(\S+\)", "0x10", line) for line in code] == texts
