"""The loop that does the work: found among others, and its counts."""

from __future__ import annotations

from collections import Counter
from itertools import cycle, product
from pathlib import Path

import pytest
from examples import example
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import capability
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.kernels import KERNELS, kernel
from gemmsim.machine_code.listings import function_named, read_listing
from gemmsim.machine_code.main_loop import MainLoop, main_loop
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.problem import Problem

DATA = Path(__file__).parent / "data" / "sass"
PROBLEM = Problem(1024, 1024, 1024)


def function(*texts: str) -> Function:
    """A function of these instructions; `BRA n` goes to the n-th."""
    code = []
    for number, text in enumerate(texts):
        target = 16 * int(text.split()[1]) if text.startswith("BRA") else None
        code.append(Instruction(16 * number, text, target=target))
    return Function("f", "sm_90", tuple(code))


def span(loop: MainLoop) -> tuple[int, int]:
    return loop.start // 16, loop.end // 16


FFMA, LOAD, OTHER = "FFMA R1, R2, R3, R1", "LDS.128 R4, [R8]", "IADD3 R9, R9, 0x1, RZ"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ((OTHER, FFMA, "BRA 1"), (1, 3)),
        ((FFMA, "BRA 0", FFMA, FFMA, "BRA 2"), (2, 5)),  # the one with more
        ((FFMA, "BRA 0", FFMA, "BRA 2"), (0, 2)),  # of equals the first
        ((OTHER, FFMA, FFMA, "BRA 1", OTHER, "BRA 0"), (1, 4)),  # the inner, where the FFMA are
        ((FFMA, FFMA, FFMA, LOAD, "BRA 3", OTHER, FFMA, "BRA 0"), (0, 8)),  # the outer, where they are
        ((FFMA, "BRA 4", FFMA, FFMA, FFMA, "BRA 4", "BRA 2"), (2, 7)),  # a branch forward is no loop
        ((FFMA, "BRA 1", "EXIT", FFMA, "BRA 3"), (3, 5)),  # nor is one to itself any work
    ],
    ids=range(7),
)
def test_the_loop_with_the_work_is_found(texts, expected):
    assert span(main_loop(function(*texts))) == expected


@pytest.mark.parametrize(("texts", "loops"), [((FFMA, "EXIT"), 0), ((FFMA, LOAD, "BRA 1"), 1)])
def test_without_a_loop_of_ffma_there_is_none(texts, loops):
    with pytest.raises(InputError, match=f"function f has no loop with an FFMA in it; it has {loops} loops"):
        main_loop(function(*texts))


@given(before=st.integers(0, 5), ffma=st.integers(1, 40), loads=st.integers(0, 8), after=st.integers(0, 5))
def test_counts(before, ffma, loads, after):
    texts = [OTHER] * before + [FFMA] * ffma + [LOAD] * loads + [f"BRA {before}"] + [FFMA] * after
    loop = main_loop(function(*texts))
    assert loop.ffma == ffma
    assert loop.kinds == Counter({"ffma": ffma, "shared_load": loads, "control": 1}) - Counter()
    assert loop.accesses == Counter({"LDS.128": loads}) - Counter()
    assert loop.branches == 0
    assert not loop.unknown


def test_unknown_instructions_are_named_and_counted():
    loop = main_loop(function(FFMA, "HMMA.16816.F32 R4, R8, R12, R4", "HMMA.16816.F32 R4, R8, R12, R4", "BRA 0"))
    assert loop.unknown == {"HMMA": 2}
    assert loop.kinds["unknown"] == 2


@pytest.mark.parametrize(
    "name", ["dot_sm_75.hex.txt", "dot_sm_90.txt", "dot_sm_90.cuobjdump.txt", "dot_sm_120.hex.txt"]
)
def test_a_loop_of_compiled_code(name):
    loop = main_loop(function_named(read_listing(DATA / name), "dot", name))
    assert loop.ffma == 4  # two sums of two products a pass, as dot.cu has them
    assert loop.accesses == {"LDG.32": 1, "LDS.128": 1}
    assert not loop.unknown
    assert loop.instructions[-1].opcode == "BRA"
    assert loop.branches == 0


@pytest.mark.parametrize(
    ("name", "arch"),
    [*product(KERNELS, ["9.0", "12.0"]), *zip(KERNELS, cycle(["8.0", "8.6"]))],  # the last two have one code generator
)
def test_main_loops_of_the_family(name, arch):
    """A pass multiplies whole tiles; the loop has no instruction that is not known."""
    each, tiling = kernel(name), example(name)
    try:
        cubin = compile_kernel(each, each.launch(PROBLEM, tiling), capability(arch))
        (code,) = disassembled_file(cubin.path)
    except MachineError as error:
        pytest.skip(str(error))
    loop = main_loop(code)
    a_tile = tiling.thread_m * tiling.thread_n * (tiling.block_k if each.staged else 1)
    assert loop.ffma >= a_tile
    assert loop.ffma % a_tile == 0
    assert not loop.unknown
    everything = Counter(kind for each in code.instructions if (kind := each.kind) == "ffma")
    assert loop.ffma >= everything["ffma"] / 2  # what is left are passes that the compiler took out of the loop
    assert ("shared_load" in loop.kinds) == each.staged
    assert ("global_copy" if each.copies else "global_load") in loop.kinds
