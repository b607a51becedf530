"""Other names for registers: the same values under them, each kind of mistake refused, fewer cycles at the ports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from random_loops import SUMS, function
from test_rearrange_random import outcome
from test_rearrange_verify import code, words_of

from gemmsim.device import capability
from gemmsim.errors import InputError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.disassemble import disassembled
from gemmsim.kernels import kernel
from gemmsim.machine_code.cubin import parse_cubin
from gemmsim.machine_code.encoding import RA, REUSE, Control, encode, with_field
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.machine_code.sass import Function
from gemmsim.main_loops.port_streams import simulate_loops
from gemmsim.problem import Problem
from gemmsim.rearrange import interpret
from gemmsim.rearrange.decode import MENTIONED, with_words
from gemmsim.rearrange.name_search import best_names
from gemmsim.rearrange.optimise import TRIALS, Source
from gemmsim.rearrange.renaming import exchangeable, with_names
from gemmsim.rearrange.verify_names import objection_to_names

LOOPS = 300
FULL = Control()


def shuffled(of: Function, random: Random) -> dict[int, int]:
    """Names drawn at random, of all that may change places."""
    names: dict[int, int] = {}
    for group in exchangeable(of):
        names |= zip(group, random.sample(group, len(group)), strict=True)
    return names


def encoded(of: Function) -> Function:
    """The function as its texts are encoded."""
    made = []
    for each in of.instructions:
        guard = f"@{each.guard} " if each.guard else ""
        control = replace(each.control, reuse=0)
        made.append(replace(each, word=encode(guard + each.text, control, each.address)))
    return replace(of, instructions=tuple(made))


def under(names: Mapping[int, int], found: interpret.Outcome) -> interpret.Outcome:
    """What a run leaves, each register under its other name."""
    return replace(found, registers={names.get(old, old): value for old, value in found.registers.items()})


def named(of: Function, number: int, text: str) -> Function:
    """The function with another instruction in one place, as the assembler would have it."""
    made = list(of.instructions)
    made[number] = replace(made[number], text=text, word=encode(text, made[number].control, 16 * number))
    return replace(of, instructions=tuple(made))


def test_the_same_values_under_other_names():
    moved = 0
    for seed in range(LOOPS):
        before, loop = function(Random(seed), 8 + seed % 9, begins=True)
        if seed % 6 == 0:  # with flags, and another order
            source = Source.of(before)
            words = source.searched(replace(TRIALS[0], seed=seed), width=3)
            before = with_words(before, words or source.words)
        names = shuffled(before, Random(seed))
        moved += sum(names[register] % 2 != register % 2 for register in set(SUMS) & names.keys())
        after = with_names(before, names)
        assert encoded(after) == after, seed
        assert objection_to_names(before, after) is None, seed
        assert outcome(after, loop, seed) == under(names, outcome(before, loop, seed)), seed
    assert moved > 5 * LOOPS


def test_what_is_accepted_does_the_same():
    accepted = 0
    for seed in range(LOOPS):
        random = Random(seed)
        before, loop = function(random, 10, begins=True)
        names = shuffled(before, random) if seed % 2 else {}
        after = with_names(before, names)
        number = random.choice([number for number, each in enumerate(after.instructions) if "R" in each.text[4:]])
        one = after.instructions[number]
        old, new = random.choice(MENTIONED.findall(one.text) or ["0"]), random.choice(SUMS)
        text = MENTIONED.sub(lambda found, of=old, to=new: f"R{to}" if found[1] == of else found[0], one.text)
        if text != one.text and not one.guard:
            after = named(after, number, text)
        if objection_to_names(before, after) is None:
            accepted += 1
            found, expected = outcome(after, loop, seed), outcome(before, loop, seed)
            assert (found.stores, found.rubbish) == (expected.stores, expected.rubbish), seed
    assert LOOPS // 50 < accepted < LOOPS // 2


LOOP = code(
    "CS2R R20, SRZ", "CS2R R22, SRZ", ("NOP", Control(stall=9)),
    ("LDS.64 R8, [R2+0x10]", Control(stall=2, write_barrier=1)),
    ("FFMA R30, R8.reuse, R9, R20", Control(wait_mask=0b10)), ("FFMA R31, R8, R9, R22", Control(stall=9)),
    ("STS [R2+0x0], R30", Control(stall=2, read_barrier=4)), ("IADD3 R30, R31, 0x1, RZ", Control(wait_mask=0b10000)),
)  # fmt: skip
"""A loop in which R30 and R31 could have each other's names."""
OTHER = with_names(LOOP, {30: 31, 31: 30})


def test_a_renamed_loop_is_proved():
    assert objection_to_names(LOOP, LOOP) is None
    assert objection_to_names(LOOP, OTHER) is None
    assert [each.text for each in OTHER.instructions][5] == "FFMA R31, R8.reuse, R9, R20"
    assert encoded(OTHER) == OTHER


@pytest.mark.parametrize(
    ("number", "text", "why"),
    [
        (7, "STS [R2+0x0], R30", "R30 is R31 elsewhere"),
        (7, "STS [R2+0x4], R31", "is no other form of STS [R2+0x0], R30"),
        (7, "STS [R3+0x0], R31", "R2 is R2 elsewhere, and R3 in STS"),
        (4, "LDS.64 R9, [R2+0x10]", "takes 2 registers from R9 on"),
        (4, "LDS R8, [R2+0x10]", "is no other form of LDS.64"),
        (6, "FFMA R30, R9, R8, R22", "R8 is R8 elsewhere, and R9 in FFMA"),
        (8, "IADD3 R31, R30, 0x2, RZ", "is no other form of IADD3 R30, R31, 0x1, RZ"),
        (2, "CS2R R24, SRZ", "R22 is not cleared where"),
        (3, "CS2R R20, SRZ", "no other form of NOP"),
    ],
)
def test_each_mistake_is_refused(number, text, why):
    reason = objection_to_names(LOOP, named(OTHER, number, text))
    assert reason is not None
    assert why in reason
    assert "\n" not in reason


def test_words_count_and_not_texts_alone():
    made = list(OTHER.instructions)
    made[8] = replace(made[8], word=with_field(made[8].word or 0, RA, 28))
    assert "its word has 28 in place of 31" in str(objection_to_names(LOOP, replace(OTHER, instructions=tuple(made))))
    made[8] = replace(made[8], word=(OTHER.instructions[8].word or 0) ^ 1 << 80)
    assert "though its text is" in str(objection_to_names(LOOP, replace(OTHER, instructions=tuple(made))))


def test_registers_keep_their_count_and_the_stack_its_pointer():
    high = with_names(LOOP, {30: 40})
    assert objection_to_names(LOOP, high) == "R40 is above R31, the last one before"
    stack = code("MOV R1, R2", ("MOV R4, R1", Control(stall=9)), "FFMA R4, R4, R4, R4")
    assert "R1 is R1 elsewhere" in str(objection_to_names(stack, with_names(stack, {1: 4, 4: 1})))
    assert not any(2 in group for group in exchangeable(LOOP))  # it is read before it is written
    assert "R2 is R2 elsewhere, and R3 in LDS" in str(objection_to_names(LOOP, with_names(LOOP, {2: 3})))


def test_what_is_cleared_last_is_not_used_at_once():
    clear = [f"CS2R R{register}, SRZ" for register in (20, 22, 24, 26)]
    loop = code(*clear, *["NOP"] * 5, "FFMA R20, R8, R9, R20", *["NOP"] * 4, "BRA 0xb0", "FFMA R26, R8, R9, R26")
    assert objection_to_names(loop, loop) is None
    straight = code(*clear, "NOP", "NOP", "NOP", "NOP", "BRA 0xa0", "FFMA R20, R8, R9, R20")
    assert objection_to_names(straight, straight) is None
    reason = objection_to_names(straight, with_names(straight, {20: 27, 27: 20}))
    assert reason is not None
    assert "which writes R27" in reason


def test_flags_that_keep_nothing_any_more_are_lost_and_must_be():
    loop = code("MOV R20, R8", "MOV R21, R8", ("MOV R22, R8", Control(stall=9)), "FFMA R30, R20.reuse, R9, R28",
                "FFMA R31, R21, R9, R28", "FFMA R29, R20, R22, R28")  # fmt: skip
    assert loop.instructions[4].control.reuse == 1
    assert objection_to_names(loop, loop) is None
    after = with_names(loop, {21: 22, 22: 21})
    assert after.instructions[4].control.reuse == 0
    words = words_of(after)
    words[4] = with_field(words[4], REUSE, 1)
    assert "keeps R20 for nobody" in str(objection_to_names(loop, with_words(after, words)))


def compiled(name: str, **tiling: int) -> tuple[bytes, Function]:
    chosen, on = kernel(name), capability("9.0")
    launch = chosen.launch(Problem(1024, 1024, 1024), chosen.tiling(**tiling))
    image = compile_kernel(chosen, launch, on).path.read_bytes()
    (found,) = disassembled(image)
    return image, found


VECTORIZED = {"block_m": 32, "block_n": 32, "block_k": 8, "thread_m": 4, "thread_n": 4}
ASYNC = {"block_m": 64, "block_n": 64, "block_k": 8, "warp_m": 32, "warp_n": 32, "thread_m": 4, "thread_n": 8}


@pytest.mark.parametrize(("name", "tiling"), [("vectorized", VECTORIZED), ("async", ASYNC)])
def test_the_disassembler_reads_what_was_meant(name, tiling):
    image, before = compiled(name, **tiling)
    names = shuffled(before, Random(0))
    after = with_names(before, names)
    (read,) = disassembled(parse_cubin(image).patched(words_of(after), before.name).image)
    texts = [[(each.guard, each.text) for each in of.instructions] for of in (read, after)]
    assert texts[0] == texts[1]
    assert sum(new != old for old, new in names.items()) >= 5
    assert objection_to_names(before, read) is None


def test_the_names_that_are_found_spare_cycles():
    _, before = compiled("vectorized", **VECTORIZED)
    parity = next(group for group in exchangeable(before) if len({register % 2 for register in group}) == 2)
    worse = with_names(before, dict(zip(parity, parity[1:] + parity[:1], strict=True)))
    for of in (before, worse):
        found = best_names(of)
        assert found == best_names(of)
        one, other = (report.cycles for report in simulate_loops([main_loop(of), main_loop(with_names(of, found))]))
        assert other <= one
        assert (other < one) == bool(found)


def test_functions_that_are_not_fully_known_keep_their_names():
    made = list(LOOP.instructions)
    made[0] = replace(made[0], text="FROBNICATE R1, R2")
    with pytest.raises(InputError, match="registers of f keep their names: FROBNICATE is not fully known"):
        exchangeable(replace(LOOP, instructions=tuple(made)))
    assert "FROBNICATE" in str(objection_to_names(replace(LOOP, instructions=tuple(made)), LOOP))
    assert "sm_80" in str(objection_to_names(LOOP, replace(LOOP, arch="sm_80")))
