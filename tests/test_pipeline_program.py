"""Programs of warps: out of a few instructions by hand, as JSON, and those that are shipped."""

from __future__ import annotations

import dataclasses
import json
import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.accesses.global_memory import global_accesses
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.ladder import default_tiling
from gemmsim.machine_code.encoding import Control, with_control
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.pipeline import programs
from gemmsim.pipeline.program import PARTS, Program, Step, program_of
from gemmsim.pipeline.programs import (
    Row,
    code_macros,
    compiled_program,
    merged_loads,
    program_for,
    read_heads,
    read_rows,
    rounded,
    shipped_file,
    write_rows,
)
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.register_table import key_of, sources_hash
from gemmsim.registers.register_files import register_file

H200 = device("h200")
CUBE = Problem(4096, 4096, 4096)
ROWS = read_rows(shipped_file("sm_90"))


def function(*code: tuple[str, Control] | str, guards: dict[int, str] | None = None, **targets: int) -> Function:
    """A function of (text, control) or texts; `targets` has by number, as _3, where an instruction branches to."""
    made = []
    for number, each in enumerate(code):
        text, control = (each, Control()) if isinstance(each, str) else each
        target = targets.get(f"_{number}")
        word = with_control(0, control)
        made.append(Instruction(16 * number, text, (guards or {}).get(number, ""), word, target and 16 * target))
    return Function("gemm", "sm_90", tuple(made))


FFMA = ("FFMA R4, R25, R27, R4", "FFMA R5, R25, R29, R5", "FFMA R6, R25, R31, R6", "FFMA R7, R25, R33, R7")
SMALL = function(
    ("S2R R0, SR_TID.X", Control(stall=2, write_barrier=0)),
    ("IADD3 R2, R0, R1, RZ", Control(stall=5, wait_mask=1)),
    "MOV R3, RZ",
    ("LDS.128 R24, [R2]", Control(stall=2, write_barrier=1, read_barrier=2)),  # the loop begins
    (FFMA[0], Control(wait_mask=2)), *FFMA[1:],
    ("BAR.SYNC.DEFER_BLOCKING 0x0", Control(stall=6, wait_mask=4)),
    ("BRA 0x30", Control(stall=5)),
    ("STG.E.64 desc[UR4][R2.64], R4", Control(stall=1, read_barrier=3)),
    ("EXIT", Control(stall=5)),
    guards={9: "P0"}, _9=3,
)  # fmt: skip


# Out of instructions


def test_steps_end_at_what_acts_and_before_what_waits():
    program = program_of(SMALL, register_file("sm_90"))
    assert program.prologue == (
        Step(1, 2, (), "other", 1, 0, -1, instructions=1, after_cycles=2),
        Step(2, 6, (0,), instructions=2),
    )
    load, multiply, barrier, *rest = program.loop
    assert load == Step(1, 2, (), "shared_load", 4, 1, 2, instructions=1, after_cycles=2)
    assert (multiply.waits, multiply.ffma, multiply.instructions) == ((1,), 4, 4)
    assert multiply.issue_cycles >= 4
    assert (barrier.waits, barrier.action) == ((2,), "barrier")
    assert sum(step.instructions for step in rest) == 1  # the branch back
    assert program.tail == (
        Step(1, 1, (), "global_store", 2, -1, 3, instructions=1),
        Step(1, 5, instructions=1),
    )
    assert program.remainder == program.repeated == program.rest == ()


def test_what_is_never_executed_takes_a_slot_alone():
    never = function(
        *(("LDS RZ, [RZ]", Control()), *FFMA, ("BRA 0x0", Control(stall=5))), guards={0: "!PT", 5: "P0"}, _5=0
    )
    program = program_of(never, register_file("sm_90"))
    assert [step.action for step in program.loop] == [""]
    assert sum(step.instructions for step in program.loop) == 6


def test_merged_loads_hold_the_issue_longer():
    file = register_file("sm_90")
    plain, merged = (program_of(SMALL, file, share).loop[0].issue_cycles for share in (0, 1))
    assert (plain, merged) == (1, 2)  # four registers, two a cycle


def test_code_without_ffma_in_a_loop_is_refused():
    with pytest.raises(InputError):
        program_of(function("MOV R0, R1", "EXIT"), register_file("sm_90"))


# Passes


def staged(ffma: int, *, prologue: int = 0, remainder: int = 0) -> Program:
    behind = (Step(1, 1, ffma=remainder),) if remainder else ()
    return Program((Step(1, 1, ffma=prologue),), (Step(1, 1, ffma=ffma),), behind, (Step(2, 2),))


def test_passes_and_what_they_leave():
    assert staged(512).passes(512 * 10) == (10, False)
    assert staged(16, remainder=13).passes(100) == (6, True)
    assert staged(16, remainder=13).passes(96) == (6, False)
    assert staged(16, prologue=4).passes(100) == (6, False)


def test_what_comes_after():
    program = dataclasses.replace(
        staged(16, remainder=13), repeated=(Step(3, 3),), rest=(Step(4, 4),)
    )  # fmt: skip
    assert program.after(False) == (Step(2, 2), Step(4, 4))
    assert program.after(True) == (Step(1, 1, ffma=13), Step(2, 2), Step(4, 4))
    assert program.after(False, 2) == (Step(2, 2), Step(3, 3), Step(3, 3), Step(4, 4))


def test_what_is_stored_before_partial_sums_are_added_up_are_these():
    store = Step(1, 1, action="global_store", registers=4, read=1)
    program = Program((), (Step(1, 1, ffma=16),), (), (store, Step(2, 2)), (store,), (store,))
    assert program.after(False) == (store, Step(2, 2), store)
    partial = store._replace(action="partial_store")
    assert program.after(False, 2) == (partial, Step(2, 2), store, store, store)


# As JSON

STEPS = st.lists(
    st.builds(
        Step,
        st.floats(0.5, 1e4),
        st.floats(0.5, 1e4),
        st.lists(st.integers(0, 5), max_size=3).map(tuple),
        st.sampled_from(["", "shared_load", "barrier", "atomic"]),
        st.sampled_from([1, 2, 4]),
        st.integers(-1, 5),
        st.integers(-1, 5),
        st.integers(0, 256),
        st.integers(0, 999),
        st.floats(0.5, 1e4),
    ),
    max_size=4,
).map(tuple)
PROGRAMS = st.builds(Program, *[STEPS] * len(PARTS), st.sampled_from(["compiled", "described"]))


@given(PROGRAMS)
def test_a_program_comes_back_from_json(program):
    assert Program.from_dict(json.loads(json.dumps(program.to_dict()))) == program


@given(PROGRAMS)
def test_rounding_changes_cycles_by_less_than_a_thousandth(program):
    back = Program.from_dict(json.loads(json.dumps(rounded(program))))
    for name in PARTS:
        for one, two in zip(getattr(program, name), getattr(back, name), strict=True):
            assert one[2:-1] == two[2:-1]
            assert (*one[:2], one[-1]) == pytest.approx((*two[:2], two[-1]), abs=0.0005001)


@pytest.mark.parametrize("damage", [{}, {"loop": 3}, {"loop": [[1]]}, {"loop": [3]}, {"source": None}])
def test_nonsense_is_refused(damage):
    data = staged(16).to_dict() | damage if damage else damage
    if "source" in damage:
        del data["source"]
    with pytest.raises(InputError, match="not a program"):
        Program.from_dict(data)


# The shipped ones


def test_every_shipped_record_that_ran_has_its_program():
    missing = set()
    for campaign in ("", "layouts", "copies", "counts", "times"):
        for record in read_records(shipped_records(campaign))[0]:
            if record.ok:
                of = kernel(record.point.kernel)
                if program_for(of, record.point.problem, record.point.tiling, H200) is None:
                    missing.add((of.name, of.describe(record.point.tiling)))
    assert not missing


def test_shipped_programs_are_fresh():
    present = {name: sources_hash(of) for name, of in KERNELS.items()}
    assert [row.kernel for row in ROWS if row.sources != present[row.kernel]] == []


def test_the_file_is_small_and_written_in_one_way(tmp_path):
    shipped = shipped_file("sm_90")
    assert shipped.stat().st_size < 1_000_000
    again = tmp_path / shipped.name
    write_rows(again, reversed(ROWS))
    assert lzma.decompress(again.read_bytes()) == lzma.decompress(shipped.read_bytes())
    for name, some in (("once.xz", ROWS[:40]), ("twice.xz", ROWS[39::-1])):
        write_rows(tmp_path / name, some)
    assert (tmp_path / "once.xz").read_bytes() == (tmp_path / "twice.xz").read_bytes()


@pytest.mark.parametrize("content", [b"", b"no archive", lzma.compress(b"junk"), lzma.compress(b'{"kernel": "naive"}')])
@pytest.mark.parametrize("read", [read_rows, read_heads])
def test_a_damaged_file_is_named(tmp_path, read, content: bytes):
    path = tmp_path / "sm_90.jsonl.xz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=" is damaged"):
        read(path)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_pass_has_the_accesses_that_the_model_counts(name):
    """Of the default tiling: FFMA, and memory instructions by kind and width, as compiled and as counted."""
    of = kernel(name)
    tiling = default_tiling(of)
    program = program_for(of, CUBE, tiling, H200)
    assert program is not None
    assert program.source == "compiled"
    depth = tiling.block_k if of.staged else 1
    tiles = program.loop_ffma / (tiling.thread_m * tiling.thread_n * depth)
    widths = of.widths(CUBE, tiling)
    copied = {"load": "shared_load", "store": "shared_store", "copy": "global_copy"}
    expected: dict[tuple[str, int], float] = {}
    for each in shared_accesses(of, tiling, widths):
        key = copied[each.direction], int(each.width)
        expected[key] = expected.get(key, 0) + each.instructions * tiles
    for each in global_accesses(of, tiling, widths):
        if each.direction == "load":
            key = "global_load", int(each.width)
            expected[key] = expected.get(key, 0) + each.instructions * tiles
    found: dict[tuple[str, int], float] = {}
    for step in program.loop:
        if step.action in {action for action, _ in expected}:
            found[step.action, step.registers] = found.get((step.action, step.registers), 0) + 1
    assert found == expected


def test_no_program_for_other_sources_or_gpus(tmp_path, monkeypatch):
    of, tiling = kernel("vectorized"), default_tiling(kernel("vectorized"))
    known = program_for(of, CUBE, tiling, H200)
    assert known is not None
    assert program_for(of, CUBE, tiling, device("a10")) is None  # none are shipped
    row = Row(of.name, code_macros(of, CUBE, tiling), "of other sources", "nvcc", rounded(known))
    write_rows(tmp_path / "sm_90.jsonl.xz", [row])
    monkeypatch.setattr(programs, "SHIPPED", tmp_path)
    assert program_for(of, CUBE, tiling, H200) is None
    write_rows(tmp_path / "sm_90.jsonl.xz", [dataclasses.replace(row, sources=sources_hash(of))])
    assert program_for(of, CUBE, tiling, H200) == known


def test_only_what_the_code_depends_on_tells_programs_apart():
    of = kernel("async")
    tiling = of.tiling(**{**vars(default_tiling(of)), "split_k": 2})
    small, large = (code_macros(of, Problem(size, 4096, 4096), tiling) for size in (256, 4096))
    assert small == large
    assert key_of(of.name, small) != key_of(of.name, code_macros(of, Problem(256, 4096, 4095), default_tiling(of)))


def test_the_share_of_loads_that_merge():
    assert merged_loads(kernel("naive"), CUBE, default_tiling(kernel("naive"))) == 0
    shared = kernel("shared")
    # lanes of a warp read one address of A in four registers, or few; those of B lie side by side
    assert 0 < merged_loads(shared, CUBE, default_tiling(shared)) < 1


def test_a_compiled_function_with_its_launch():
    of = kernel("vectorized")
    tiling = default_tiling(of)
    plain = program_of(SMALL, register_file("sm_90"), merged_loads(of, CUBE, tiling))
    assert compiled_program(SMALL, of, CUBE, tiling, H200) == plain


def test_a_step_tells_what_follows_the_issue_of_its_last_instruction():
    chain = function(
        ("IADD3 R2, R0, R1, RZ", Control(stall=5)), ("LDG.E R8, [R2]", Control(stall=2, write_barrier=1)), *FFMA,
        ("BRA 0x0", Control(stall=5)), guards={6: "P0"}, _6=0,
    )  # fmt: skip
    load = next(step for step in program_of(chain, register_file("sm_90")).loop if step.action)
    assert (load.instructions, load.ready_cycles, load.after_cycles) == (2, 7, 2)
