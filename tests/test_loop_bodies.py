"""Instruction streams to measure: read from files, refused where they could do harm, and those of our own."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import encode
from gemmsim.machine_code.loop_bodies import LARGEST_OFFSET, LoopBody, ffma_text, loop_body_of, read_loop_bodies
from gemmsim.machine_code.register_variants import (
    RESULTS,
    ffma_alone,
    flagged,
    places,
    streaming,
    tile,
    variants,
    with_others,
)

registers = st.integers(0, 254) | st.just(255)
flags = st.sets(st.sampled_from("ABC")).map(lambda letters: "".join(sorted(letters)))
rows = st.tuples(registers, registers, registers, registers, flags).map(list)


def body(*code: str) -> LoopBody:
    return LoopBody("x", code, (1,) * len(code), (1,) * len(code))


@given(ffma=st.lists(rows, min_size=1, max_size=8), stall=st.integers(0, 15), yield_bit=st.integers(0, 1))
def test_ffma_go_to_text_and_back(ffma, stall, yield_bit):
    made = loop_body_of({"name": "n", "ffma": ffma, "stall": stall, "yield_bit": yield_bit}, "x")
    assert made.ffma == len(ffma)
    document = json.loads(json.dumps(made.to_dict()))
    assert document["ffma"] == ffma
    assert (document["stall"], document["yield_bit"]) == (stall, yield_bit)
    assert loop_body_of(document, "x") == made
    assert made.registers == {number for row in ffma for number in row[:4]} - {255}


def test_one_stall_for_each_instruction():
    made = loop_body_of({"ffma": [[4, 5, 6, 4, "A"], [5, 5, 6, 5, ""]], "stall": [1, 3], "yield_bit": [0, 1]}, "x")
    assert [(each.stall, each.yield_bit) for each in made.controls] == [(1, 0), (3, 1)]
    assert made.code == ("FFMA R4, R5.reuse, R6, R4", "FFMA R5, R5, R6, R5")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "x: no stream; it needs `code` or `ffma`"),
        ({"ffma": 3}, "x: no stream"),
        ({"ffma": [[1, 2, 3]]}, r"x: \[1, 2, 3\] is no FFMA; it is \[Rd, Ra, Rb, Rc, flags\], registers 0 to 255"),
        ({"ffma": [[1, 2, 3, 256, ""]]}, r"is no FFMA"),
        ({"ffma": [[1, 2, 3, True, ""]]}, r"is no FFMA"),
        ({"ffma": [[1, 2, 3, 4, "AD"]]}, "x: reuse flags 'AD'; allowed: letters of ABC"),
        ({"ffma": [[1, 2, 3, 4, ""]], "stall": [1, 2]}, r"x: stall is \[1, 2\]; allowed: a whole number, or 1 of them"),
        ({"ffma": [[1, 2, 3, 4, ""]], "stall": 1.5}, r"x: stall is 1.5; allowed"),
        ({"code": ["FFMA R1, R2, R3, R4", 7]}, "x: `code` is a list of texts"),
        ({"code": ["NOP"]}, "x: .*no FFMA in it"),
        ({"code": ["FFMA R1, R2, R3, R4"] * 600}, "x: .*600 instructions; allowed: 1 to 512"),
        ({"code": ["FFMA R1, R2, R3, R4", "EXIT"]}, "x: .*'EXIT' may not be measured; allowed: FFMA, IADD3"),
        ({"code": ["FFMA R1, R2, 0.5, R4"]}, r"x: 'FFMA R1, R2, 0.5, R4' cannot be encoded"),
        ({"code": ["@P0 FFMA R1, R2, R3, R4", "FFMA R1, R2, R3, R4"]}, "x: .*may not be measured"),
        ({"ffma": [[1, 2, 3, 4, ""]], "stall": 16}, "x: stall 16; allowed: 0 to 15"),
    ],
    ids=range(15),
)
def test_what_is_no_stream_is_refused_in_one_line(data, message):
    with pytest.raises(InputError, match=message) as caught:
        loop_body_of(data, "x")
    assert "\n" not in str(caught.value)


FFMA = "FFMA R30, R31, R32, R33"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("LDS R8, [R9]", "has another address than those in R2, R3, R6, R7"),
        ("LDS R8, [R4]", "has another address"),
        ("LDG.E R8, desc[UR4][R2.64]", "has another address than those in R4"),
        ("LDG.E R8, desc[UR4][R6.64]", "has another address"),
        ("LDS.64 R8, [R2+0x4]", "is not aligned"),
        ("LDS.128 R8, [R2+0x1000]", "is not aligned, or beyond 0xff0"),
        ("LDS R8, [R2+-0x10]", "is not aligned, or beyond"),
        ("LDS.128 R10, [R2]", "names R10 for 4 registers; allowed: multiples of 4"),
        ("STS.64 [R2], R9", "names R9 for 2 registers"),
        ("LDS.128 R4, [R2]", "overwrites an address; R2, R3, R4, R5, R6, R7 hold them"),
        ("STG.E desc[UR4][R4.64], R9", "may not be measured"),
        ("BRA 0x10", "may not be measured"),
    ],
)
def test_what_could_touch_other_memory_is_refused(text, reason):
    with pytest.raises(InputError, match=f"^x: .* {reason}"):
        body(FFMA, text)


def test_an_address_is_one_wherever_it_stands():
    with pytest.raises(InputError, match="overwrites an address"):
        body("FFMA R3, R31, R32, R33", "LDS R8, [R2]")
    assert body("FFMA R3, R31, R32, R33").registers == {3, 31, 32, 33}  # no memory, no addresses
    assert body(FFMA, "LDS R8, [R2]").registers >= {2, 3, 4, 5, 6, 7, 8}


def test_files(tmp_path):
    path = tmp_path / "streams.jsonl"
    path.write_text('{"name": "a", "ffma": [[4, 5, 6, 4, ""]]}\n\n{"ffma": [[4, 5, 6, 4]], "extra": 1}\n')
    assert [each.name for each in read_loop_bodies(path)] == ["a", f"{path}, line 3"]
    for text, message in (
        ("{", "line 1: not readable as JSON"),
        ("\n", "no stream in it"),
        ('{"ffma": [[4, 5, 6, 4]]}\n{}', "line 2: no stream"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_loop_bodies(path)
    with pytest.raises(InputError, match="cannot read"):
        read_loop_bodies(tmp_path)
    assert ffma_text([1, 2, 255, 4, "B"], "x") == "FFMA R1, R2, RZ.reuse, R4"


# Our own


def test_there_are_as_many_as_promised():
    alone, others = list(ffma_alone()), list(with_others())
    assert len(alone) >= 30
    assert len(others) >= 60
    everything = variants()
    assert everything == alone + others
    assert len({each.name for each in everything}) == len(everything)
    assert len({(each.code, each.stalls, each.yield_bits) for each in everything}) == len(everything)
    kinds = Counter(each.mnemonic for made in others for each in made.instructions)
    assert {"LDS", "LDS.64", "LDS.128", "LDG.E.128", "STS", "STS.64", "STS.128", "IADD3", "IMAD", "MOV"} <= set(kinds)


def test_all_can_be_encoded_and_stay_inside():
    for made in variants():
        for text, control in zip(made.code, made.controls, strict=True):
            encode(text, control)
        assert max(made.registers) < (58 if "8x8" not in made.name else 106)
        assert made.ffma >= 16
    assert LARGEST_OFFSET < 4096


def test_streams_have_the_parities_of_their_names():
    for number, row in enumerate(streaming(["eeo", "ozo"])):
        expected = ("eeo", "ozo")[number % 2]
        assert "".join("z" if r == 255 else "eo"[r % 2] for r in row[1:]) == expected
        assert RESULTS <= row[0] < RESULTS + 4
    assert len({row[1] for row in streaming(["eee"], "A")}) == 1
    assert len({row[2] for row in streaming(["eee"], "A")}) == 5


@pytest.mark.parametrize("order", ["rows", "serpentine", "2x2"])
@pytest.mark.parametrize("accumulator", ["opposite B", "same as B", "checkered"])
def test_tiles_are_outer_products(order, accumulator):
    ffma = tile(4, 8, order, accumulator)
    assert sorted(places(4, 8, order)) == [(i, j) for i in range(4) for j in range(8)]
    assert len({row[0] for row in ffma}) == 32
    for row, (i, j) in zip(ffma, places(4, 8, order), strict=True):
        assert row[0] == row[3]
        assert (row[1], row[2]) == (24 + i, 28 + j)
        odd = {"opposite B": 1 - row[2] % 2, "same as B": row[2] % 2, "checkered": (i + j) % 2}[accumulator]
        assert row[0] % 2 == odd


@given(ffma=st.lists(st.tuples(*[st.sampled_from([4, 6, 7, 255])] * 4), min_size=2, max_size=9))
def test_flags_are_where_the_next_reads_the_same(ffma):
    for number, text in enumerate(flagged(ffma)):
        after = ffma[(number + 1) % len(ffma)]
        kept = [source.endswith(".reuse") for source in text.split(", ")[1:]]
        assert kept == [a == b != 255 for a, b in zip(ffma[number][1:], after[1:], strict=True)]
