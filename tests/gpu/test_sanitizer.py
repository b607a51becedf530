"""compute-sanitizer finds no wrong access and no race in any kernel."""

from __future__ import annotations

import json
import subprocess

import pytest

from gemmsim.errors import MachineError
from gemmsim.gpu.machine import GpuMachine
from gemmsim.gpu.supervisor import WORKER, worker_environment
from gemmsim.gpu.toolchain import Tool, compute_sanitizer
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Point

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

FOUND = 86
"""Exit status by which the checker says that it found something."""
SMALL = {"block_m": 32, "block_n": 32, "block_k": 8, "thread_m": 4, "thread_n": 4}
WARPS = {"block_m": 32, "block_n": 64, "block_k": 8, "warp_m": 32, "warp_n": 16, "thread_m": 4, "thread_n": 4}
TILINGS: dict[str, tuple[dict[str, int], ...]] = {
    "naive": ({},),
    "shared": ({"block_m": 16, "block_n": 16, "block_k": 8},),
    "register": (SMALL,),
    "vectorized": (SMALL, SMALL | {"swizzle": 8, "block_n": 64}),
    "double_buffer": (SMALL, SMALL | {"swizzle": 8, "block_n": 64}),
    "warp_tiled": (WARPS,),
    "async": (WARPS | {"stages": 4}, WARPS | {"stages": 3, "split_k": 2, "group": 2}, WARPS | {"split_k": 7}),
}
"""Each kernel by every way that it has through its source: k split into two, or into more parts than it has tiles."""
SIZES = [(67, 45, 29), (34, 68, 20), (64, 66, 46)]
"""Nothing is a multiple of a tile; in the second and third, rows are multiples of four and of two, so that vectors are
used."""
POINTS = {
    name: [
        Point(Problem(*size), name, KERNELS[name].tiling(**values)) for values in TILINGS[name] for size in SIZES
    ]
    for name in KERNELS
}  # fmt: skip


@pytest.fixture(scope="module")
def checker() -> Tool:
    """compute-sanitizer, with the kernels compiled, so that it need not watch the compiler."""
    try:
        found = compute_sanitizer()
    except MachineError as error:
        pytest.skip(str(error))
    with GpuMachine() as machine:
        refusals = machine.prepare([point for points in POINTS.values() for point in points], lambda done, of: None)
    assert not any(refusals)
    return found


@pytest.mark.parametrize("tool", ["memcheck", "racecheck"])
@pytest.mark.parametrize("name", KERNELS)
def test_the_checker_finds_nothing(checker, tmp_path, name, tool):
    points = POINTS[name]
    path = tmp_path / "points.jsonl"
    path.write_text("".join(json.dumps(point.to_dict()) + "\n" for point in points))
    answer = subprocess.run(
        [str(checker.path), "--tool", tool, "--error-exitcode", str(FOUND), *WORKER, str(path)],
        capture_output=True,
        text=True,
        env=worker_environment(),
        timeout=300,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout[-4000:] + answer.stderr[-2000:]
    assert answer.stdout.count('"launched"') == len(points)
    assert "ERROR SUMMARY: 0 errors" in answer.stdout or "0 hazards displayed (0 errors, 0 warnings)" in answer.stdout
