"""The compiled truth: the machine code has the instructions that the model counts, of those widths."""

from __future__ import annotations

import re
import subprocess
from collections import Counter

import pytest
from examples import TILE, example

from gemmsim.access import global_accesses, shared_accesses
from gemmsim.device import capability
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem

ALIGNED, RAGGED = Problem(1024, 1024, 1024), Problem(1001, 1903, 2107)
ODD = {"block_m": 96, "block_n": 48, "block_k": 6, "thread_m": 6, "thread_n": 3, "pad_a": 1}
CASES = [
    *((name, example(name), problem) for name in KERNELS for problem in (ALIGNED, RAGGED)),
    ("register", kernel("register").tiling(**ODD), RAGGED),
    ("register", kernel("register").tiling(**{**ODD, "pad_a": 0, "thread_n": 4}), RAGGED),
    ("shared", kernel("shared").tiling(block_m=16, block_n=32, block_k=12, pad_a=2), RAGGED),
    ("vectorized", kernel("vectorized").tiling(**{**TILE, "thread_n": 4, "vector": 2, "pad_a": 2}), ALIGNED),
    ("double_buffer", kernel("double_buffer").tiling(**{**TILE, "block_k": 16, "thread_n": 4, "pad_a": 4}), ALIGNED),
]


@pytest.fixture(scope="session", autouse=True)
def _tools():
    try:
        nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))


def instructions(cubin) -> Counter[str]:
    """How often each load, store and FFMA stands in the code, by opcode and bits."""
    text = subprocess.run([nvdisasm().path, "-c", cubin.path], capture_output=True, text=True, check=True).stdout
    found: Counter[str] = Counter()
    for opcode, rest in re.findall(r"\*/\s+(?:@!?U?P\w+\s+)?(LDS|STS|LDG|STG|FFMA)((?:\.\w+)*)", text):
        width = re.search(r"\.(64|128)\b", rest)
        found[opcode if opcode == "FFMA" else f"{opcode}.{width[1] if width else 32}"] += 1
    return found


ELSEWHERE = [(*case, sm) for case in CASES[: 2 * len(KERNELS) : 2] for sm in ("8.0", "8.6", "12.0")]


@pytest.mark.parametrize(
    ("name", "tiling", "problem", "compute_capability"),
    [*((*case, "9.0") for case in CASES), *ELSEWHERE],
    ids=lambda value: str(value).replace(" ", ""),
)
def test_instructions_are_as_written(name, tiling, problem, compute_capability):
    each = kernel(name)
    found = instructions(compile_kernel(each, each.launch(problem, tiling), capability(compute_capability)))
    expected: Counter[str] = Counter()
    widths = each.widths(problem, tiling)
    steps = tiling.block_k if each.staged else 1
    # the compiler unrolls the large iterations of small tiles: everything in them is there so many times
    copies, rest = divmod(found["FFMA"], tiling.thread_m * tiling.thread_n * steps)
    assert copies >= 1
    assert rest == 0
    expected["FFMA"] = found["FFMA"]
    for access in shared_accesses(each, tiling, widths):
        opcode = f"{'LDS' if access.direction == 'load' else 'STS'}.{32 * access.width}"
        times = access.elements.shape[0] * access.repeats
        # prefetching kernels have the first tile and the first fragment before the loop
        before_loop = 0 if not each.prefetches else times if access.direction == "store" else times // steps
        expected[opcode] += copies * times + before_loop
    for access in global_accesses(each, tiling, widths):
        times = access.exists.shape[0] * (copies + each.prefetches)
        if access.direction == "load":
            expected[f"LDG.{32 * access.width}"] += times
        else:
            expected[f"STG.{32 * access.width}"] += tiling.thread_m * tiling.thread_n // access.width
    assert found == +expected
