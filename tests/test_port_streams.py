"""Instructions beside the FFMA: what each costs by hand, and every measured stream."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from campaigns.register_streams import CLOSE, KEPT, PAGE, page
from gemmsim.errors import InputError
from gemmsim.machine_code.listings import parse_listing
from gemmsim.machine_code.loop_bodies import loop_body_of
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.machine_code.sass import Instruction
from gemmsim.main_loops import port_streams
from gemmsim.main_loops.port_streams import (
    OtherInstructions,
    other_instructions,
    port_instruction,
    simulate_bodies,
    simulate_loops,
    stream_of_loop,
    wavefronts,
)
from gemmsim.main_loops.stream_records import SHIPPED, judge, loop_overhead_cycles, read_streams
from gemmsim.registers.register_files import register_file

HOPPER = register_file("sm_90")
FFMA = [f"FFMA R{54 + n % 4}, R25.reuse, R{26 + 2 * (n % 4)}, R41.reuse" for n in range(16)]
"""They read one even register each: the odd bank is free, and half of it is what others can use."""


def cycles(*others, ffma=FFMA):
    """Cycles of a pass of 16 FFMA with these before them."""
    (report,) = simulate_bodies([loop_body_of({"code": [*others, *ffma]}, "x")])
    return report.cycles


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ("NOP", 1),
        ("LDS R9, [R2]", 1),
        ("STS [R6], R48", 2),  # both even, and every FFMA reads an even register
        ("STS [R6], R49", 1),
        ("STS.128 [R3], R48", 2),  # R48 and R50 of five
        ("LDG.E R9, desc[UR4][R4.64]", 1),
        ("IADD3 R16, R20, R22, R48", 3),
        ("MOV R16, R20", 1),
        ("LOP3.LUT R16, R20, R22, R49, 0x96, !PT", 2),
        ("IMAD R16, R21, R23, RZ", 2),  # its pipe, not its reads
        ("LDS.128 R8, [R2]", 2),  # one address for all: four registers come back, two a cycle
        ("LDS.128 R8, [R3]", 1),
        ("LDS.64 R8, [R2]", 1),
    ],
)
def test_what_one_instruction_costs(other, expected):
    assert cycles(other) == pytest.approx(16 + expected)


def test_what_ends_a_kept_operand():
    held = [text.replace("R25.reuse", "R24.reuse").replace("R41.reuse", "R40.reuse") for text in FFMA]
    assert cycles("NOP", ffma=held) == pytest.approx(17)
    assert cycles("LDS R9, [R2]", ffma=held) == pytest.approx(17)  # reads R2 where A would be
    assert cycles("IADD3 R16, R20, R21, RZ", ffma=held) == pytest.approx(18)  # so R24 is read again
    assert cycles("IADD3 R16, R21, RZ, RZ", ffma=held) == pytest.approx(17)  # odd


def test_the_banks_of_shared_memory_serve_four_sub_cores():
    body = loop_body_of({"code": ["LDS.128 R8, [R3]", "STS.128 [R3], R48", *FFMA[:8]]}, "x")
    (report,) = simulate_bodies([body])
    assert report.shared_cycles == 4 * (4 + 4)
    assert report.cycles == 32
    assert report.cycles_per_ffma == 4


@pytest.mark.parametrize(
    ("text", "expected"),
    [("LDS.128 R8, [R3]", 4), ("LDS.128 R8, [R2]", 2), ("LDS.64 R8, [R7]", 2), ("LDS.64 R8, [R2]", 1),
     ("LDS R8, [R6]", 1), ("STS.128 [R3], R48", 4), ("STS.128 [R2], R48", 4), ("FFMA R1, R2, R3, R4", 0),
     ("LDG.E.128 R8, desc[UR4][R4.64]", 0)],
)  # fmt: skip
def test_wavefronts_of_the_addresses_of_a_body(text, expected):
    assert wavefronts(Instruction(0, text)) == expected


def test_an_architecture_of_which_nothing_was_measured():
    rules = other_instructions(register_file("sm_75"))
    assert rules == OtherInstructions()
    multiply = Instruction(0, "IMAD R16, R21, R23, RZ")
    assert port_instruction(multiply, multiply.control, rules).stall == 1
    with pytest.raises(InputError, match="3 registers; allowed"):
        OtherInstructions(merged_load_registers=3)


LOOP = """
        code for sm_90
                Function : f
        /*0000*/                   FFMA R4, R8.reuse, R9, R4 ;     /* 0x0000000908047223 */
                                                                   /* 0x080fe20000000004 */
        /*0010*/                   FFMA R5, R8, R11, R5 ;          /* 0x0000000b08057223 */
                                                                   /* 0x000fe20000000005 */
        /*0020*/                   BRA 0x0 ;                       /* 0xfffffffc00087947 */
                                                                   /* 0x000fea000383ffff */
                ..........
"""


def test_a_stall_lets_other_warps_come_between():
    loop = main_loop(parse_listing(LOOP)[0])
    first, *_ = stream_of_loop(loop, HOPPER).instructions
    assert loop.instructions[0].control.yield_bit == 1
    assert (first.reuse, first.stall) == ("A", 1)
    text = LOOP.replace("080fe2", "080fe4")  # a stall of 2
    (function,) = parse_listing(text)
    leaves = stream_of_loop(main_loop(function), HOPPER).instructions[0]
    assert (leaves.reuse, leaves.stall, leaves.yield_bit) == ("", 1, 1)
    (report,) = simulate_loops([loop])
    assert (report.instructions, report.ports.ffma, report.cycles) == (3, 2, 3)


# Every stream that was measured


@pytest.fixture(scope="module")
def judged():
    return judge(read_streams())


@pytest.mark.parametrize("half", [None, False, True])
def test_nine_of_ten_streams_with_others_are_predicted(judged, half):
    mixed = [each for each in judged if each.record.mixed and half in (None, each.record.held_out)]
    assert len(mixed) >= (60 if half is None else 25)
    for warps in (1, 2, 4, 8):
        errors = [abs(each.errors[warps]) for each in mixed if warps in each.errors]
        assert sum(error <= CLOSE for error in errors) >= 0.9 * len(errors)


def test_half_of_the_streams_choose_the_same_numbers(monkeypatch, judged):
    """Of all values that the data could have, those in it explain the half best that is not held out."""
    records = [each.record for each in judged if each.record.mixed and not each.record.held_out]
    alone = next(each for each in judged if each.record.body.name == "oeo holding AC").record
    records.append(alone)

    def error(rules):
        monkeypatch.setattr(port_streams, "other_instructions", lambda file: rules)
        return sum(abs(each.errors[1]) for each in judge_alone(records))

    shipped = other_instructions(HOPPER)
    tried = [
        replace(shipped, multiply_cycles=pipe, memory_ends_kept=ends, merged_load_registers=merged)
        for pipe, ends, merged in product((1, 2, 3), (False, True), (1, 2, 4))
    ]
    assert min(tried, key=error) == shipped


def judge_alone(records):
    """With one warp alone."""
    return judge([replace(record, samples={1: record.samples[1]}) for record in records])


def test_the_loop_itself_takes_the_same_in_every_stream_without_conflicts(judged):
    records = [each.record for each in judged]
    overhead = loop_overhead_cycles(records, 1)
    assert 10 < overhead < 20
    with pytest.raises(InputError, match="no stream of FFMA alone was measured with 1 warp,"):
        loop_overhead_cycles([record for record in records if record.mixed], 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [("", "no stream in it"), ("{}\n", "line 1: not the record of a stream"),
     ("[1]\n", "line 1: not the record of a stream"),
     ('{"code": ["FFMA R4, R8, R9, R4"]}\n', "line 1: not the record of a stream"),
     ("nonsense\n", "line 1: not the record of a stream")],
)  # fmt: skip
def test_files_that_are_no_records(tmp_path, content, message):
    path = tmp_path / "x.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_streams(path)
    with pytest.raises(InputError, match="cannot read"):
        read_streams(tmp_path / "none.jsonl")


def test_the_page_is_of_these_records():
    assert PAGE.read_text(encoding="utf-8") == page(), "`python -m campaigns.register_streams` writes it anew"


def test_the_shipped_records_are_short():
    assert SHIPPED.stat().st_size < 600_000
    assert set(KEPT) >= {"code", "samples"}
