"""The verifier of rearranged code: what it accepts runs the same on paper, and each kind of mistake is refused."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_loops import function
from test_rearrange_random import outcome

from gemmsim.machine_code.encoding import (
    REUSE,
    STALL,
    WAIT_MASK,
    YIELD,
    Control,
    encode,
    field,
    with_field,
)
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.rearrange.beam import Style
from gemmsim.rearrange.decode import ffma_word, plain_ffma, with_words
from gemmsim.rearrange.optimise import Source, Trial
from gemmsim.rearrange.verify import objection

FULL = Control()


def code(*lines: str | tuple[str, Control]) -> Function:
    """A loop of these instructions between a NOP that waits and an exit; the last line branches back."""
    rows = [(each, FULL) if isinstance(each, str) else each for each in lines]
    rows = [("NOP", Control(stall=15)), *rows, ("BRA 0x10", Control(stall=10)), ("EXIT", Control(stall=5))]
    made = []
    for number, (text, control) in enumerate(rows):
        branch = text.startswith("BRA")
        word = encode(f"@P0 {text}" if branch else text, control, 16 * number)
        made.append(Instruction(16 * number, text, "P0" if branch else "", word, 16 if branch else None))
    return Function("f", "sm_90", tuple(made))


def with_copy(of: Function, text: str) -> Function:
    """The code with an asynchronous copy in place of its first line, encoded as what it is to no matter."""
    made = list(of.instructions)
    made[1] = Instruction(made[1].address, text, "", made[1].word, None)
    return Function(of.name, of.arch, tuple(made))


def words_of(of: Function) -> list[int]:
    return [each.word or 0 for each in of.instructions]


def swapped(of: Function, one: int, other: int) -> list[int]:
    """The words with the FFMA of two lines in each other's place, waits and flags where they were."""
    words = words_of(of)
    first, second = plain_ffma(words[one]), plain_ffma(words[other])
    assert first is not None
    assert second is not None
    words[one], words[other] = ffma_word(words[one], second), ffma_word(words[other], first)
    return words


def refused(of: Function, words: list[int], why: str) -> None:
    assert objection(of, words_of(of)) is None, "the code itself is refused"
    reason = objection(of, words)
    assert reason is not None
    assert why in reason
    assert "\n" not in reason


LOAD = ("LDS.128 R8, [R2+0x10]", Control(stall=2, write_barrier=1))
WAITING = ("FFMA R20, R8, R9, R20", Control(wait_mask=0b10))


def test_independent_ffma_may_change_places_and_factors():
    loop = code("FFMA R20, R8, R9, R20", "FFMA R21, R8, R10, R21")
    assert objection(loop, swapped(loop, 1, 2)) is None
    words = words_of(loop)
    words[1] = ffma_word(words[1], (20, 9, 8, 20))
    assert objection(loop, words) is None


@pytest.mark.parametrize("control", [Control(yield_bit=0), Control(stall=12), Control(stall=0)])
def test_flags_beside_a_yield_mean_something_else(control):
    loop = code(("FFMA R20, R8, R9, R20", control), "FFMA R21, R8, R10, R21")
    words = words_of(loop)
    words[1] = with_field(words[1], REUSE, 0b001)
    refused(loop, words, "has a flag beside a yield")


def test_copies_read_their_registers_in_order():
    copy = "LDGSTS.E [R40], desc[UR4][R2.64+0x0]"
    overwriting = ("FFMA R2, R8, R9, R21", Control(wait_mask=0b10))
    later = ("LDS R30, [R41+0x10]", Control(stall=2, read_barrier=1))
    loop = with_copy(code("NOP", later, *["NOP"] * 3, overwriting, ("NOP", Control(wait_mask=0b10))), copy)
    words = words_of(loop)
    words[6] = with_field(words[6], WAIT_MASK, 0)
    refused(loop, words, "does not wait until LDGSTS.E [R40], desc[UR4][R2.64+0x0] at 0x10 reads R2")


def test_the_order_of_accumulation_is_kept():
    loop = code("FFMA R20, R8, R9, R20", "NOP", "NOP", "NOP", "FFMA R20, R10, R11, R20")
    refused(loop, swapped(loop, 1, 5), "R20 holds another value")


def test_a_factor_is_no_addend():
    loop = code("FFMA R20, R8, R9, R21", "FFMA R22, R8, R9, R23")
    words = words_of(loop)
    words[1] = ffma_word(words[1], (20, 8, 21, 9))
    refused(loop, words, "R20 holds another value")


def test_what_is_overwritten_is_read_before():
    loop = code("FFMA R20, R8, R9, R20", "FFMA R8, R10, R11, R8")
    refused(loop, swapped(loop, 1, 2), "holds another value")


def test_other_instructions_get_the_same_inputs():
    loop = code(("FFMA R20, R8, R9, R20", Control(stall=10)), ("STS [R2+0x0], R20", Control(read_barrier=4)),
                ("FFMA R20, R10, R11, R20", Control(wait_mask=0b10000)))  # fmt: skip
    refused(loop, swapped(loop, 1, 3), "STS [R2+0x0], R20 at 0x20 gets other values")


def test_a_load_is_waited_for():
    loop = code(LOAD, WAITING, "FFMA R21, R12, R13, R21")
    words = words_of(loop)
    words[2] = with_field(words[2], WAIT_MASK, 0)
    refused(loop, words, "does not wait until LDS.128 R8, [R2+0x10] at 0x10 writes R8")
    late = code(LOAD, ("FFMA R21, R12, R13, R21", Control(wait_mask=0b10)), "FFMA R20, R8, R9, R20")
    assert objection(late, swapped(late, 2, 3)) is None


@pytest.mark.parametrize("load", [Control(write_barrier=1), Control(write_barrier=1, read_barrier=3)])
def test_a_scoreboard_is_set_two_cycles_behind_the_load(load):
    others = [f"FFMA R{21 + number}, R30, R31, R{21 + number}" for number in range(3)]
    loop = code(("LDS.128 R8, [R2+0x10]", load), *others, WAITING)
    for cycles in (1, 2, 3):
        words = swapped(loop, 1 + cycles, len(others) + 2)
        words[1 + cycles] = with_field(words[1 + cycles], WAIT_MASK, 0b10)
        reason = objection(loop, words)
        assert (reason is None) == (cycles >= 2)
        assert reason is None or "does not wait until LDS.128 R8, [R2+0x10] at 0x10 writes R8" in reason


def test_a_load_without_a_scoreboard_is_covered_by_the_next():
    loop = code("LDS R8, [R2+0x10]", ("LDS R9, [R2+0x20]", Control(stall=2, write_barrier=1)), WAITING)
    assert objection(loop, words_of(loop)) is None
    words = words_of(loop)
    words[3] = with_field(words[3], WAIT_MASK, 0b100)
    refused(loop, words, "does not wait until LDS R8")


def test_what_is_under_way_at_the_end_of_the_loop_is_waited_for_at_its_beginning():
    loop = code(WAITING, "FFMA R21, R12, R13, R21", LOAD)
    assert objection(loop, words_of(loop)) is None
    refused(loop, swapped(loop, 1, 2)[:1] + [with_field(w, WAIT_MASK, 0) for w in swapped(loop, 1, 2)[1:]], "writes R8")


def test_a_barrier_waits_for_what_it_did():
    loop = code(LOAD, WAITING, "BAR.SYNC.DEFER_BLOCKING 0x0", "FFMA R21, R12, R13, R21")
    words = swapped(loop, 2, 4)
    words[2], words[4] = with_field(words[2], WAIT_MASK, 0), with_field(words[4], WAIT_MASK, 0b10)
    refused(loop, words, "BAR.SYNC.DEFER_BLOCKING 0x0 at 0x30 no longer waits for LDS.128")
    words[3] = with_field(words[3], WAIT_MASK, 0b10)
    assert objection(loop, words) is None


def test_a_store_has_read_what_is_overwritten():
    loop = code(("STS [R2+0x0], R20", Control(stall=2, read_barrier=4)),
                ("FFMA R20, R8, R9, R21", Control(wait_mask=0b10000)))  # fmt: skip
    words = words_of(loop)
    words[2] = with_field(words[2], WAIT_MASK, 0)
    refused(loop, words, "no longer waits for STS [R2+0x0], R20")  # itself, in the next pass
    waiting = Control(wait_mask=0b10000)
    straight = code(
        ("STS [R2+0x0], R20", Control(stall=2, read_barrier=4)), ("FFMA R20, R8, R9, R21", waiting), ("NOP", waiting)
    )
    words = words_of(straight)
    words[2] = with_field(words[2], WAIT_MASK, 0)
    refused(straight, words, "does not wait until STS [R2+0x0], R20 at 0x10 reads R20")


def test_results_take_four_cycles():
    loop = code("FFMA R20, R8, R9, R20", "FFMA R24, R8, R9, R24", "NOP", "NOP", "FFMA R20, R10, R11, R20")
    refused(loop, swapped(loop, 1, 2), "comes 3 cycles after FFMA R20")


def test_results_of_others_take_eight():
    loop = code("MOV R8, R30", *["NOP"] * 7, "FFMA R20, R8, R9, R20")
    moved = code("MOV R8, R30", *["NOP"] * 6, "FFMA R21, R12, R9, R21", "FFMA R20, R8, R9, R20")
    assert objection(loop, words_of(loop)) is None
    refused(moved, swapped(moved, 8, 9), "comes 7 cycles after MOV R8, R30")


@pytest.mark.parametrize(
    "lines",
    [
        ("FFMA R20, R8, R9, R20", "FFMA R21, R10, R11, R21"),  # read by nobody
        ("FFMA R20, R8, R9, R20", "FFMA R21, R9, R8, R21"),  # in another slot
        ("FFMA R20, R8, R9, R20", "FFMA R21, R10, R11, R21", "FFMA R22, R8, R12, R22"),  # lost before
        ("FFMA R8, R8, R9, R20", *["NOP"] * 3, "FFMA R21, R8, R11, R21"),  # overwritten by itself
        ("FFMA R20, R8, R9, R20", "FFMA R8, R7, R11, R22", *["NOP"] * 3, "FFMA R21, R8, R11, R21"),  # by another
    ],
)
def test_flags_keep_what_the_next_reads_unchanged(lines):
    loop = code(*lines)
    words = words_of(loop)
    words[1] = with_field(words[1], REUSE, 0b001)
    refused(loop, words, "keeps R8 for nobody who reads it so")


def test_flags_may_last_over_reads_of_the_other_bank_and_over_loads():
    loop = code("FFMA R20, R8, R9, R20", "LDS R12, [R2+0x0]", "FFMA R21, R11, R13, R21", "FFMA R22, R8, R9, R22")
    words = words_of(loop)
    words[1] = with_field(words[1], REUSE, 0b001)
    assert objection(loop, words) is None


def test_nothing_else_changes():
    loop = code("FFMA R20, R8, R9, R20", LOAD, "IADD3 R30, R31, 0x1, RZ")
    for number, change in (
        (1, lambda word: with_field(word, STALL, 0)),
        (1, lambda word: with_field(word, YIELD, 0)),
        (2, lambda word: word ^ 1 << 40),
        (3, lambda word: with_field(word, (32, 32), 2)),
    ):
        words = words_of(loop)
        words[number] = change(words[number])
        assert objection(loop, words) is not None
        assert objection(loop, words[:-1]) is not None


def test_unknown_architectures_and_instructions_are_refused():
    loop = code("FFMA R20, R8, R9, R20", "FFMA R21, R8, R10, R21")
    assert "sm_80" in str(objection(replace(loop, arch="sm_80"), swapped(loop, 1, 2)))
    strange = list(loop.instructions)
    strange[0] = replace(strange[0], text="FROBNICATE R1, R2")
    assert objection(replace(loop, instructions=tuple(strange)), swapped(loop, 1, 2)) is None  # in another block
    strange[0], strange[2] = loop.instructions[0], replace(strange[2], text="FROBNICATE R1, R2", word=0x123)
    words = words_of(loop)
    words[1] = ffma_word(words[1], (20, 9, 8, 20))
    words[2] = 0x123
    assert "FROBNICATE" in str(objection(replace(loop, instructions=tuple(strange)), words))


@given(seed=st.integers(0, 10**6), data=st.data())
def test_what_is_accepted_runs_the_same(seed, data):
    before, loop = function(Random(seed), 14)
    words = list(Source.of(before).searched(Trial(Style(swaps=True), 48, seed), width=3) or Source.of(before).words)
    random = Random(data.draw(st.integers(0, 10**6)))
    ffma = [number for number in loop if plain_ffma(words[number]) is not None]
    for _ in range(random.randrange(1, 3)):
        one, other = random.choice(ffma), random.choice(ffma)
        match random.randrange(5):
            case 0:  # change places, with flags and masks or without
                first, second = plain_ffma(words[one]), plain_ffma(words[other])
                assert first is not None
                assert second is not None
                words[one], words[other] = ffma_word(words[one], second), ffma_word(words[other], first)
            case 1:
                words[one], words[other] = words[other], words[one]
            case 2:
                place = random.choice(list(loop))
                words[place] = with_field(words[place], WAIT_MASK, random.randrange(64))
            case 3:
                words[one] = with_field(words[one], REUSE, random.randrange(8))
            case 4:
                d, a, b, c = plain_ffma(words[one]) or (0, 0, 0, 0)
                words[one] = ffma_word(words[one], (d, a, c, b), field(words[one], REUSE))
    if objection(before, words) is None:
        for times in range(3):
            assert outcome(with_words(before, words), loop, times) == outcome(before, loop, times)
