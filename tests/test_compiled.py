"""The compiled truth: the machine code has the instructions that the model counts, of those widths."""

from __future__ import annotations

from collections import Counter
from itertools import cycle

import pytest
from examples import TILE, example

from gemmsim.accesses.global_memory import global_accesses
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.device import capability
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.kernels import KERNELS, kernel
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.problem import Problem

ALIGNED, RAGGED, EVEN = Problem(1024, 1024, 1024), Problem(1001, 1903, 2107), Problem(1000, 1902, 2106)
ODD = {"block_m": 96, "block_n": 48, "block_k": 6, "thread_m": 6, "thread_n": 3, "pad_a": 1}
WIDE = {"block_m": 128, "block_n": 256, "block_k": 8, "warp_m": 64, "warp_n": 64, "thread_m": 16, "thread_n": 8}
SMALL = {"block_m": 32, "block_n": 32, "block_k": 12, "warp_m": 16, "warp_n": 16, "thread_m": 4, "thread_n": 2}
ORDINARY = [(name, example(name), problem) for name in KERNELS for problem in (ALIGNED, RAGGED)]
SWIZZLED = [
    (name, kernel(name).tiling(**TILE, swizzle=swizzle), problem)
    for name in ("vectorized", "double_buffer")
    for swizzle, problem in ((16, ALIGNED), (4, RAGGED))
]
OTHERS = [
    ("register", kernel("register").tiling(**ODD), RAGGED),
    ("register", kernel("register").tiling(**{**ODD, "pad_a": 0, "thread_n": 4}), RAGGED),
    ("shared", kernel("shared").tiling(block_m=16, block_n=32, block_k=12, pad_a=2), RAGGED),
    ("vectorized", kernel("vectorized").tiling(**{**TILE, "thread_n": 4, "vector": 2, "pad_a": 2}), ALIGNED),
    ("vectorized", kernel("vectorized").tiling(**TILE, vector=2, swizzle=8, pad_b=2), ALIGNED),
    ("vectorized", kernel("vectorized").tiling(**TILE, vector=1, swizzle=4), ALIGNED),
    ("double_buffer", kernel("double_buffer").tiling(**{**TILE, "block_k": 16, "thread_n": 4, "pad_a": 4}), ALIGNED),
    ("double_buffer", kernel("double_buffer").tiling(**{**TILE, "block_k": 16, "thread_n": 16}, swizzle=8), ALIGNED),
]
OF_WARPS = [
    ("warp_tiled", kernel("warp_tiled").tiling(**WIDE, pad_a=4), ALIGNED),
    ("warp_tiled", kernel("warp_tiled").tiling(**SMALL), EVEN),
    ("async", kernel("async").tiling(**WIDE, pad_a=4, group=8), ALIGNED),
    ("async", kernel("async").tiling(**WIDE, pad_a=4, stages=2), RAGGED),
    ("async", kernel("async").tiling(**SMALL, stages=5), EVEN),
    ("async", kernel("async").tiling(**SMALL, split_k=3), ALIGNED),
    ("async", kernel("async").tiling(**TILE, warp_m=32, warp_n=64, split_k=20), RAGGED),
]
CASES = [
    *((*case, "9.0") for case in (*ORDINARY, *SWIZZLED, *OTHERS, *OF_WARPS)),
    *((*case, "12.0") for case in (*ORDINARY[::2], *SWIZZLED[::2], *OF_WARPS[::2])),
    *((*case, sm) for case, sm in zip((*ORDINARY[::2], *SWIZZLED[::2], *OF_WARPS[::2]), cycle(("8.0", "8.6")))),
]


@pytest.fixture(scope="session", autouse=True)
def _tools():
    try:
        nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))


def counted(instructions) -> Counter[str]:
    """How often each load, store and FFMA is among them, by opcode and bits."""
    names = ("LDS", "STS", "LDG", "STG", "LDGSTS", "FFMA")
    executed = (each for each in instructions if each.guard != NEVER)
    return Counter(each.access or each.opcode for each in executed if each.opcode in names)


NEVER = "!PT"
"""The guard of what is never executed, and never counted: such loads stand where copies follow a barrier."""
OPCODES = {"load": "LDS", "store": "STS", "copy": "LDGSTS"}


def of_one_tile(of, tiling, widths) -> Counter[str]:
    """What a thread executes for one tile of k."""
    expected = Counter(FFMA=tiling.thread_m * tiling.thread_n * tiling.block_k)
    for access in shared_accesses(of, tiling, widths):
        expected[f"{OPCODES[access.direction]}.{32 * access.width}"] += access.instructions
    for each in global_accesses(of, tiling, widths):
        if not each.once_per_block and each.direction != "copy":
            expected[f"LDG.{32 * each.width}"] += each.instructions
    return expected


def outside(of, tiling, widths) -> Counter[str]:
    """What it executes once: the results, and where it prefetches the first tiles and the first fragments."""
    expected: Counter[str] = Counter()
    for each in global_accesses(of, tiling, widths):
        if each.once_per_block:
            expected[f"STG.{32 * each.width}"] += 0 if tiling.split_k > 1 else each.instructions
        elif of.prefetches and not of.copies:
            expected[f"LDG.{32 * each.width}"] += each.instructions
    for access in shared_accesses(of, tiling, widths) if of.prefetches else ():
        name = f"{OPCODES[access.direction]}.{32 * access.width}"
        if access.direction == "load":
            expected[name] += access.instructions // tiling.block_k
        else:
            expected[name] += access.instructions * (tiling.stages if of.copies else 1)
    if tiling.split_k > 1:  # its number; its partial sums; and in a loop, those of all for a piece of the results
        piece = widths.shared_b
        expected += Counter({"STS.32": 1, "LDS.32": 1})
        expected[f"STG.{32 * piece}"] += tiling.thread_m * tiling.thread_n // piece
        expected[f"LDG.{32 * piece}"] += tiling.split_k
        expected[f"STG.{32 * widths.global_c}"] += piece // widths.global_c
    return expected


def times(some: Counter[str], factor: int) -> Counter[str]:
    """So many of each."""
    return Counter({name: factor * number for name, number in some.items()})


@pytest.mark.parametrize(
    ("name", "tiling", "problem", "compute_capability"), CASES, ids=lambda value: str(value).replace(" ", "")
)
def test_instructions_are_as_written(name, tiling, problem, compute_capability):
    of = kernel(name)
    cubin = compile_kernel(of, of.launch(problem, tiling), capability(compute_capability))
    (code,) = disassembled_file(cubin.path)
    widths = of.widths(problem, tiling)
    one = of_one_tile(of, tiling, widths)
    whole, loop = counted(code.instructions), counted(main_loop(code).instructions)
    # the compiler unrolls the large iterations of small tiles: everything in them is there so many times
    for found, elsewhere in ((whole, outside(of, tiling, widths)), (loop, Counter())):
        copies, rest = divmod(found["FFMA"], one["FFMA"])
        assert copies >= 1
        assert rest == 0
        assert found == times(one, copies) + elsewhere


SPLIT = {
    "64x64": {"block_m": 64, "block_n": 64, "warp_m": 32, "warp_n": 32, "thread_m": 8, "thread_n": 4},
    "32x32": {"block_m": 32, "block_n": 32, "warp_m": 16, "warp_n": 16, "thread_m": 4, "thread_n": 2},
    "32x64": {"block_m": 32, "block_n": 64, "warp_m": 8, "warp_n": 16, "thread_m": 4, "thread_n": 1},
}


def conditions(code, first: int, last: int) -> int:
    """Branches and exits from one instruction to another that do not always happen."""
    return sum(each.opcode in ("BRA", "EXIT") and each.guard != "" for each in code.instructions[first:last])


@pytest.mark.parametrize(
    ("tile", "n", "split_k", "compute_capability"),
    [
        *(("64x64", 140, split_k, "9.0") for split_k in (2, 3, 4)),
        *(("32x32", n, 2, "9.0") for n in (140, 141, 142)),
        ("32x32", 140, 16, "9.0"), ("32x64", 140, 3, "9.0"), ("64x64", 140, 2, "8.0"), ("64x64", 140, 2, "12.0"),
    ],
)  # fmt: skip
def test_partial_sums_are_loaded_whether_or_not_they_are_stored(tile, n, split_k, compute_capability):
    """The model counts the partial sums of lanes outside C too, so nothing but the loop may stand before the loads."""
    of = kernel("async")
    tiling = of.tiling(**SPLIT[tile], block_k=8, stages=3, split_k=split_k)
    cubin = compile_kernel(of, of.launch(Problem(130, n, 400), tiling), capability(compute_capability))
    (code,) = disassembled_file(cubin.path)
    loads = [number for number, each in enumerate(code.instructions) if each.opcode == "LDG"]
    assert len(loads) == split_k
    assert all(code.instructions[number].guard == "" for number in loads)
    barrier = max(number for number in range(loads[0]) if code.instructions[number].opcode == "BAR")
    loops = [
        (each.target // 16, number)
        for number, each in enumerate(code.instructions)
        if each.opcode == "BRA" and each.target is not None and barrier < each.target // 16 < number
    ]
    around = [start for start, end in loops if start <= loads[0] and loads[-1] <= end]
    if around:
        assert conditions(code, max(around), loads[-1]) == 0
    else:  # every warp has one piece: its condition alone
        assert conditions(code, barrier, loads[-1]) <= 1
