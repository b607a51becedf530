"""Disassembled text: instructions, their registers, functions; and every text that is none in one clear line."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import Control
from gemmsim.machine_code.listings import function_named, parse_listing, read_listing
from gemmsim.machine_code.sass import Function, Instruction, Read

DATA = Path(__file__).parent / "data" / "sass"
LISTINGS = ("dot_sm_75.hex.txt", "dot_sm_90.hex.txt", "dot_sm_90.cuobjdump.txt", "dot_sm_90.txt", "dot_sm_120.hex.txt")


def listing(name: str) -> str:
    return (DATA / name).read_text()


def reads(text: str) -> dict[str, tuple[int, int, bool]]:
    """{slot: (first register, registers, kept)} of an instruction."""
    return {read.slot: (read.first, read.registers, read.reuse) for read in Instruction(0, text).reads}


@pytest.mark.parametrize(
    ("text", "expected", "writes"),
    [
        ("FFMA R34, R4.reuse, R14, R26.reuse", {"A": (4, 1, True), "B": (14, 1, False), "C": (26, 1, True)}, 1),
        ("FFMA R0, RZ, R2, -R3", {"B": (2, 1, False), "C": (3, 1, False)}, 1),
        ("FFMA R0, R1, 2, R3", {"A": (1, 1, False), "C": (3, 1, False)}, 1),
        ("FFMA R0, R1, c[0x0][0x168], R3", {"A": (1, 1, False), "C": (3, 1, False)}, 1),
        ("FFMA.FTZ R0, |R1|, UR4, R3", {"A": (1, 1, False), "C": (3, 1, False)}, 1),
        ("MOV R2, R9.reuse", {"B": (9, 1, True)}, 1),
        ("IMAD.MOV.U32 R1, RZ, RZ, R7", {"C": (7, 1, False)}, 1),
        ("IMAD.WIDE.U32 R2, R6, 0x80, R4", {"A": (6, 1, False), "C": (4, 2, False)}, 2),
        ("IADD3 R3, P0, P1, -R0, R3.reuse, RZ", {"A": (0, 1, False), "B": (3, 1, True)}, 1),
        ("IADD3.X R3, PT, PT, R0, UR4, ~R5, P0, !PT", {"A": (0, 1, False), "C": (5, 1, False)}, 1),
        ("LOP3.LUT R6, RZ, R0, RZ, 0x33, !PT", {"B": (0, 1, False)}, 1),
        ("ISETP.GE.U32.AND P0, PT, R3, R0, PT", {"A": (3, 1, False), "B": (0, 1, False)}, 0),
        ("LEA.HI.X R3, R0.reuse, R7, R4, 0x2, P1", {"A": (0, 1, True), "B": (7, 1, False), "C": (4, 1, False)}, 1),
        ("LDS R1, [R2]", {"A": (2, 1, False)}, 1),
        ("LDS.64 R4, [R2.X4+0x10]", {"A": (2, 1, False)}, 2),
        ("LDS.U.128 R4, [R1+UR4+0x40]", {"A": (1, 1, False)}, 4),
        ("LDS.128 R4, [UR4+0x40]", {}, 4),
        ("STS.128 [R3.X16+UR4+0x40], R8", {"A": (3, 1, False), "B": (8, 4, False)}, 0),
        ("STS [R3], RZ", {"A": (3, 1, False)}, 0),
        ("LDG.E.128.CONSTANT R8, desc[UR6][R2.64+0x10]", {"A": (2, 2, False)}, 4),
        ("LDG.E.CONSTANT.SYS R8, [R2+0x10]", {"A": (2, 2, False)}, 1),
        ("STG.E.64 desc[UR6][R2.64], R10", {"A": (2, 2, False), "B": (10, 2, False)}, 0),
        ("STG.E [R2.64+0x4], R10", {"A": (2, 2, False), "B": (10, 1, False)}, 0),
        ("LDGSTS.E.BYPASS.128 [R17+0x40], desc[UR10][R8.64]", {"D": (17, 1, False), "A": (8, 2, False)}, 0),
        ("STL.64 [R1+0x20], R4", {"A": (1, 1, False), "B": (4, 2, False)}, 0),
        ("LDC.64 R2, c[0x0][0x210]", {}, 2),
        ("LDC R2, c[0x0][R4+0x210]", {"A": (4, 1, False)}, 1),
        ("CS2R R2, SRZ", {}, 2),
        ("CS2R.32 R2, SR_CLOCKLO", {}, 1),
        ("F2F.F64.F32 R2, R5", {"B": (5, 1, False)}, 2),
        ("F2I.S64.F64.TRUNC R2, R4", {"B": (4, 2, False)}, 2),
        ("I2F.S64 R2, R4", {"B": (4, 2, False)}, 1),
        ("HFMA2 R8, R11, 1, 1, R6", {"A": (11, 1, False), "C": (6, 1, False)}, 1),
        ("HFMA2.MMA R8, -RZ, RZ, 0, 0", {}, 1),
        ("BRA `(.L_x_2)", {}, 0),
        ("R2UR UR4, R7", {"A": (7, 1, False)}, 0),
        ("UIADD3 UR4, UR5, 0x1, URZ", {}, 0),
    ],
)
def test_registers_of_an_instruction(text, expected, writes):
    each = Instruction(0, text)
    assert reads(text) == expected
    assert len(each.writes) == writes
    assert each.known


def test_what_is_not_known_is_named_and_reads_nothing():
    each = Instruction(0, "HMMA.16816.F32 R4, R8, R12, R4")
    assert (each.opcode, each.kind, each.known) == ("HMMA", "unknown", False)
    assert (each.reads, each.writes) == ((), ())


def test_parts_of_an_instruction():
    each = Instruction(16, "LDS.U.128 R4, [R1+UR4+0x40]", "!P2")
    assert (each.opcode, each.modifiers, each.kind) == ("LDS", ("U", "128"), "shared_load")
    assert each.operands == ("R4", "[R1+UR4+0x40]")
    assert each.writes == (4, 5, 6, 7)


# Texts


def test_two_functions_with_words():
    fill, dot = read_listing(DATA / "dot_sm_90.hex.txt")
    assert (fill.name, fill.arch, dot.name, dot.arch) == ("fill", "sm_90", "dot", "sm_90")
    assert (len(fill.instructions), len(dot.instructions)) == (24, 56)
    assert dot.encoded
    ffma = dot.instructions[0x1E0 // 16]
    assert ffma.text == "FFMA R5, R5, R9.reuse, R12"
    assert ffma.reads == (Read("A", 5), Read("B", 9, reuse=True), Read("C", 12))
    assert ffma.word == 0x084FE2000000000C_0000000905057223  # as it is printed, the low half first
    assert ffma.control == Control(stall=1, yield_bit=1, wait_mask=0b000100, reuse=0b010)
    branch = dot.instructions[0x220 // 16]
    assert (branch.guard, branch.target) == ("!P0", 0x160)


def as_facts(function: Function, words: bool = True) -> list[object]:
    """What two texts of the same code must agree on."""
    return [
        (each.address, each.guard, each.reads, each.writes, each.target, each.word if words else None)
        for each in function.instructions
    ]


def test_both_disassemblers_say_the_same():
    one = {function.name: as_facts(function) for function in read_listing(DATA / "dot_sm_90.hex.txt")}
    two = {function.name: as_facts(function) for function in read_listing(DATA / "dot_sm_90.cuobjdump.txt")}
    for name, facts in one.items():  # cuobjdump resolves only branches, so their targets are those to compare
        assert [row[:4] + row[5:] for row in facts] == [row[:4] + row[5:] for row in two[name]]
    branches = [each.target for function in read_listing(DATA / "dot_sm_90.cuobjdump.txt")
                for each in function.instructions if each.opcode == "BRA"]  # fmt: skip
    assert sorted(branches) == [0x80, 0x160, 0x230, 0x290]


def test_without_words_control_is_assumed_and_said():
    _, dot = read_listing(DATA / "dot_sm_90.txt")
    _, with_words = read_listing(DATA / "dot_sm_90.hex.txt")
    assert not dot.encoded
    assert {each.control for each in dot.instructions} == {Control(stall=1, yield_bit=1)}
    assert as_facts(dot, words=False) == as_facts(with_words, words=False)


@pytest.mark.parametrize(("name", "arch"), [("dot_sm_75.hex.txt", "sm_75"), ("dot_sm_120.hex.txt", "sm_120")])
def test_other_architectures(name, arch):
    for function in read_listing(DATA / name):
        assert function.arch == arch
        assert function.encoded
        assert all(each.known for each in function.instructions)


@pytest.mark.parametrize("name", LISTINGS)
def test_line_ends_and_marks_of_other_systems(name, tmp_path):
    path = tmp_path / "listing.txt"
    path.write_bytes(b"\xef\xbb\xbf" + listing(name).replace("\n", "\r\n").encode())
    assert read_listing(path) == read_listing(DATA / name)


def test_a_function_that_is_not_there():
    functions = read_listing(DATA / "dot_sm_90.txt")
    assert function_named(functions, "dot", "x").name == "dot"
    assert function_named(functions[:1], None, "x").name == "fill"
    with pytest.raises(InputError, match=r"no function 'gemm' in x; it has: fill, dot"):
        function_named(functions, "gemm", "x")
    with pytest.raises(InputError, match=r"x has 2 functions: fill, dot; choose one with --function"):
        function_named(functions, None, "x")
    both = (*functions, *read_listing(DATA / "dot_sm_120.hex.txt"))
    with pytest.raises(InputError, match=r"x has dot for sm_90, sm_120; disassemble one of them"):
        function_named(both, "dot", "x")


MAXWELL = """
	code for sm_52
		Function : saxpy
	.headerflags    @"EF_CUDA_SM52 EF_CUDA_PTX_SM(EF_CUDA_SM52)"
                                                                  /* 0x001c4400fe0007f6 */
        /*0008*/                   MOV R1, c[0x0][0x20];          /* 0x4c98078000870001 */
        /*0010*/                   S2R R0, SR_CTAID.X;            /* 0xf0c8000002570000 */
		..........
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "x is empty; allowed: the text of"),
        (" \n\t\n", "x is empty"),
        ("int main() { return 0; }", "x has no function in it; allowed: the text of"),
        (MAXWELL, "x is machine code of sm_52, whose instructions have 64 bits; allowed: sm_70 and later"),
        (MAXWELL.replace("52", ""), "x has instructions of 64 bits; allowed: code of sm_70 and later"),
        ("\t\tFunction : f\n\t\t..........\n", "x has no instruction of function f"),
    ],
    ids=range(6),
)
def test_what_is_no_listing_is_refused_in_one_line(text, message):
    with pytest.raises(InputError, match=message) as caught:
        parse_listing(text, "x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x7fELF\x02\x01\x01A", "is a compiled file, not the text of a disassembler; give it as --cubin"),
        (b"abc\0def", "is binary; allowed: the text of"),
        (b"\xff\xfe\x00\x01", "is binary"),
    ],
    ids=range(3),
)
def test_a_binary_file_is_refused(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_listing(path)
    with pytest.raises(InputError, match="cannot read"):
        read_listing(tmp_path)


def code_spans(text: str) -> list[tuple[int, int]]:
    """Where the code of each function begins, and where its last instruction does."""
    starts = [found.start() for found in re.finditer(r"/\*0000\*/", text)]
    lines = [found.start() for found in re.finditer(r"/\*[0-9a-f]{4}\*/", text)]
    return [
        (start, max(line for line in lines if line < stop))
        for start, stop in zip(starts, [*starts[1:], len(text)], strict=True)
    ]


@pytest.mark.parametrize("name", LISTINGS)
@given(data=st.data())
def test_a_text_cut_off_within_its_code_is_refused(name, data):
    text = listing(name)
    start, last = data.draw(st.sampled_from(code_spans(text)))
    cut = data.draw(st.integers(start, last))
    with pytest.raises(InputError, match=r"^x.*(cut off|missing|no instruction)") as caught:
        parse_listing(text[:cut], "x")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("line", ["/*0260*/", "/*01e0*/"])
def test_a_missing_instruction_is_noticed(line):
    text = "\n".join(row for row in listing("dot_sm_90.txt").split("\n") if line not in row)
    with pytest.raises(InputError, match=f"x: the instruction at 0x{line[3:6]} of dot is missing"):
        parse_listing(text, "x")


def test_half_a_word_is_noticed():
    lines = listing("dot_sm_90.hex.txt").split("\n")
    at = next(number for number, line in enumerate(lines) if "/*01e0*/" in line)
    with pytest.raises(InputError, match=r"x: half of the word at 0x1e0 of dot is missing"):
        parse_listing("\n".join(lines[: at + 1] + lines[at + 2 :]), "x")


@given(text=st.text(alphabet=st.sampled_from("/*0x1fF; \n.Lab:RZ@P[]`()_,"), max_size=200))
def test_any_text_is_read_or_refused(text):
    start = "\t\tFunction : f\n"
    with suppress(InputError):
        assert parse_listing(start + text, "x")[0].instructions
