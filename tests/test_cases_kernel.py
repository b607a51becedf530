"""Mistakes that others have published, of kernels and of tools: what this project says of each, or does instead.

Each test names where the mistake was reported; its numbers are the right ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gemmsim import cli
from gemmsim.device import capability, device
from gemmsim.errors import MachineError
from gemmsim.explain import explain
from gemmsim.explain.edges import aligned_multiples, coverage, edges, unguarded_overrun
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import KERNELS, kernel
from gemmsim.occupancy import occupancy
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_points
from gemmsim.tiling import Tiling

ROOT = Path(__file__).resolve().parent.parent
TILE_128 = Tiling(128, 128, 8, 8, 8)


def answer(capsys, line: str) -> Any:
    """The JSON document of a command."""
    assert cli.main([*line.split(), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# Kernels


@pytest.mark.parametrize(("size", "grid", "unsafe", "past"), [(100, [2, 2], 1, 1792), (1000, [11, 16], 150, 1536)])
def test_a_tail_of_k_that_only_the_last_blocks_check(capsys, size, grid, unsafe, past):
    # github.com/Cjkkkk/CUDA_gemm/issues/6: tiles of 96x64x32; 1000 seemed to work, zeros lying behind B.
    # 100: k ends 28 rows early, 28 x 64 elements; 1000: 24 x 64, in (11 - 1) x (16 - 1) blocks.
    found = answer(capsys, f"explain {size} --kernel register --tile 96x64x32 --thread 6x4")
    unguarded = found["edges"]["unguarded"]
    assert found["block_grid"][:2] == grid  # along m, then along n
    assert (unguarded["unsafe_blocks"], unguarded["elements_past_b_per_block"]) == (unsafe, past)


def test_that_tail_is_unsafe_whenever_a_tile_does_not_divide_k():
    tiling = Tiling(96, 64, 32, 6, 4)
    for k in range(1, 130):
        assert bool(unguarded_overrun(Problem(1000, 1000, k), tiling).unsafe_blocks) == (k % 32 != 0)


@pytest.mark.parametrize("name", KERNELS)
def test_the_sizes_measured_would_show_swapped_dimensions(name):
    # github.com/tpoisonooo/how-to-optimize-gemm/issues/19: squares cannot show that m and n were exchanged;
    # sizes can that all differ, none a power of two. Every kernel is verified at one, and no tile fits it.
    campaigns = (ROOT / "campaigns" / file for file in ("ladder.jsonl", "fast.jsonl"))
    points = [point for file in campaigns for point in read_points(file) if point.kernel == name]
    telling = 0
    for point in points:
        sizes = (point.problem.m, point.problem.n, point.problem.k)
        found = edges(point.problem, kernel(name), point.tiling)
        differ = len(set(sizes)) == 3 and all(size & (size - 1) for size in sizes)
        fits = any(found.left[axis] == tile for axis, tile in found.multiples.items() if tile > 1)
        telling += differ and not fits and not found.grid_swapped.exact
    assert telling
    square = Problem(2048, 2048, 2048)
    assert coverage(square, TILE_128, 16, 16).exact


@pytest.mark.parametrize(
    ("sizes", "multiples", "padded"),
    [("35 79 19", {"m": 64, "n": 32, "k": 8}, {"m": 64, "n": 96, "k": 24}),
     ("3 3 431", {"m": 64, "n": 32, "k": 8}, {"m": 64, "n": 32, "k": 432})],
)  # fmt: skip
def test_sizes_that_unguarded_kernels_cannot_take(capsys, sizes, multiples, padded):
    # github.com/yzhaiustc/Optimizing-SGEMM-on-NVIDIA-Turing-GPUs/issues/2 and /10. The kernels here guard every
    # edge and take such sizes; `explain --edges` says what others need, and the sizes to pad to.
    found = answer(capsys, f"explain {sizes} --kernel vectorized --tile 64x32x8 --thread 4x4")
    unguarded = found["edges"]["unguarded"]
    assert (unguarded["right"], unguarded["multiples"], unguarded["padded_sizes"]) == (False, multiples, padded)
    line = f"explain {sizes} --kernel vectorized --tile 64x32x8 --thread 4x4"
    assert cli.main(line.split()) == 0
    assert "would need multiples" not in capsys.readouterr().out  # nothing is wrong with this launch
    assert cli.main([*line.split(), "--edges"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "would need multiples (m of 64, n of 32, k of 8)" in shown
    assert f"padded, the sizes are {' x '.join(map(str, padded.values()))}" in shown


def test_a_grid_with_its_axes_exchanged(capsys):
    # github.com/wangzyon/NVIDIA_SGEMM_PRACTICE: grid(m / 128, n / 128), while blockIdx.x counts columns.
    # m = 256, n = 512: 2 blocks across cover 256 of 512 columns, 4 down 512 of 256 rows.
    found = answer(capsys, "explain 256 512 64 --kernel register --tile 128x128x8 --thread 8x8")
    swapped = found["edges"]["unguarded"]["grid_swapped"]
    assert swapped["columns_never_written"] == [256, 511]
    assert swapped["rows_out_of_range"] == [256, 511]
    assert swapped["rows_never_written"] is swapped["columns_out_of_range"] is None
    assert edges(Problem(512, 512, 64), kernel("register"), TILE_128).grid_swapped.exact


def test_a_grid_rounded_down(capsys):
    # kernels that are launched with grid(n / 128, m / 128) in whole numbers
    found = answer(capsys, "explain 4096 4100 64 --kernel register --tile 128x128x8 --thread 8x8")
    rounded_down = found["edges"]["unguarded"]["grid_rounded_down"]
    assert rounded_down["columns_never_written"] == [4096, 4099]
    assert rounded_down["rows_never_written"] is None
    found = answer(capsys, "explain 128 100 64 --kernel register --tile 128x128x8 --thread 8x8")
    assert found["edges"]["unguarded"]["grid_rounded_down"]["launches"] is False
    assert found["blocks"] == 1


def test_vectors_need_even_leading_dimensions(capsys):
    # github.com/NVIDIA/cutlass/issues/49: m = 2, k = 3, n = 4, halves in column-major order, two at a time.
    # The leading dimensions are m of A and of C, and k of B: both must be even, n is free.
    assert aligned_multiples(4 // 2, column_major=True) == {"m": 2, "k": 2}
    # The matrices here are row-major, and a kernel reads one by one where the leading dimension is odd.
    found = answer(capsys, "explain 7 9 8 --kernel vectorized")
    assert found["edges"]["vector_multiples"] == aligned_multiples(4) == {"n": 4, "k": 4}
    for n, k in ((8, 8), (8, 9), (9, 8), (9, 9)):
        widths = explain(Problem(7, n, k), kernel("vectorized"), TILE_VECTOR).widths
        assert (widths.global_a, widths.global_b) == (1 if k % 4 else 4, 1 if n % 4 else 4)


TILE_VECTOR = kernel("vectorized").tiling(block_m=64, block_n=64, block_k=8, thread_m=4, thread_n=4)


@pytest.mark.parametrize("registers", [36, 37])
def test_registers_depend_on_the_compiler_and_are_taken_as_they_are(capsys, registers):
    # A 32x32 tile for sm_86: nvcc 13.0 gives 36 registers, an article says 37. Both round to 40: one block of 32
    # warps, of 48.
    found = answer(capsys, f"predict 4096 --kernel shared --tile 32x32x32 --device rtx-3090 --registers {registers}")
    assert found["occupancy"] == pytest.approx(2 / 3)
    assert found["resources"]["registers_per_thread"]["value"] == registers


# Tools


def test_occupancy_of_small_blocks_on_a100():
    # pycuda.tools.OccupancyRecord allows 8 blocks an SM on every GPU since 3.0, and says 50 %.
    found = occupancy(capability("8.0"), 128, 32)
    assert (found.blocks_per_sm, found.occupancy) == (16, 1)


@pytest.mark.parametrize(("threads", "share"), [(32, 0.5), (256, 1)])
def test_occupancy_from_the_right_resource(threads, share):
    # github.com/Cjkkkk/CUDA_gemm, scripts/occupancy.py divides registers by bytes: 100 % and 200 %.
    assert occupancy(capability("7.0"), threads, 16, dynamic_shared_bytes=1024).occupancy == share
    assert occupancy(capability("7.0"), threads, 16, dynamic_shared_bytes=0).launches  # divided by zero there
    assert occupancy(capability("8.0"), threads, 16, dynamic_shared_bytes=1024).launches  # unknown there


@pytest.mark.parametrize("text", ["120", "12.0", "sm_120"])
def test_capabilities_of_three_digits(text):
    # github.com/KernelTuner/kernel_tuner/pull/299: "120" cut to two digits became sm_12.
    assert (capability(text).name, capability(text).sm) == ("12.0", "sm_120")


def test_all_but_the_gpu_side_works_without_a_gpu(tmp_path):
    # github.com/NervanaSystems/neon/issues/186: a driver that is initialised on import breaks builds and CI.
    lines = [
        "explain 64 --kernel naive", "traffic 64 --kernel naive", "predict 64 --kernel naive", "devices",
        "measure 64 --kernel naive", "validate 64 --kernel naive",
    ]  # fmt: skip
    code = f"from gemmsim.cli import main; print([main(line.split() + ['--json']) for line in {lines}])"
    hidden = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **hidden}, cwd=tmp_path
    )
    assert done.stdout.rstrip().split("\n")[-1] == "[0, 0, 0, 0, 3, 3]"
    errors = done.stderr.rstrip().split("\n")
    assert len(errors) == 2
    assert all(error.startswith("gemmsim: error: ") for error in errors)


class Driver(ModuleType):
    """A stand-in for `pycuda.driver`: a stack of contexts for each thread."""

    def __init__(self) -> None:
        super().__init__("pycuda.driver")
        self.stacks: dict[int, list[Any]] = {}
        self.detached: list[Any] = []
        stack = self.stack
        self.Error = type("Error", (Exception,), {})
        self.Context = SimpleNamespace(
            get_current=lambda: stack()[-1] if stack() else None, pop=lambda: stack().pop(), synchronize=lambda: None
        )
        self.Device = type("Device", (), {"__init__": lambda self, ordinal: None, "make_context": self.make_context})
        self.Device.count = staticmethod(lambda: 1)  # type: ignore[attr-defined]

    def stack(self) -> list[Any]:
        return self.stacks.setdefault(threading.get_ident(), [])

    def make_context(self, *_: Any) -> Any:
        context: Any = SimpleNamespace(detach=lambda: self.detached.append(context))
        self.stack().append(context)
        return context

    def init(self) -> None:
        pass


@pytest.fixture
def driver(monkeypatch) -> Driver:
    """PyCUDA as if this machine had it."""
    found, package = Driver(), ModuleType("pycuda")
    package.driver = found  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", found)
    monkeypatch.setattr("gemmsim.gpu.session._facts", lambda *_: SimpleNamespace())
    return found


def test_contexts_are_pushed_and_popped_where_they_are_used(driver):
    # github.com/inducer/pycuda/issues/251 and /242, github.com/NVIDIA/TensorRT/issues/2357: "invalid device
    # context" in a thread that has none, "context stack was not empty" at exit.
    with pytest.raises(MachineError, match="inside `with Gpu"):
        _ = Gpu().driver
    heard = []

    def elsewhere(gpu: Gpu) -> None:
        with pytest.raises(MachineError, match="entered in another thread") as caught:
            gpu.alive()
        heard.append(str(caught.value))
        with Gpu() as own:
            assert own.alive()

    with Gpu() as gpu:
        assert gpu.alive()
        thread = threading.Thread(target=elsewhere, args=(gpu,))
        thread.start()
        thread.join()
    with pytest.raises(ZeroDivisionError), Gpu():
        raise ZeroDivisionError
    assert len(heard) == 1
    assert "\n" not in heard[0]
    assert all(stack == [] for stack in driver.stacks.values())
    assert len(driver.detached) == 3


def test_spills_are_warned_of_and_exclude_nothing(capsys, monkeypatch):
    # github.com/pytorch/pytorch/pull/119634: of a posted sweep the fastest kernel had 255 registers and 26 spills.
    def compiled(*_: Any) -> Cubin:
        return Cubin(Path("some.cubin"), 255, 0, 32, 26, "nvcc 13.0")

    monkeypatch.setattr("gemmsim.gpu.compile.compile_kernel", compiled)
    line = "predict 4096 --kernel register --tile 128x128x8 --thread 16x16 --route analytic"
    for options, warning in (("--compile", "the compiler spills 26 bytes"), ("--registers 255", "255 registers are")):
        assert cli.main([*line.split(), *options.split(), "--json"]) == 0
        captured = capsys.readouterr()
        found = json.loads(captured.out)
        assert warning in captured.err
        assert [warning in text for text in found["warnings"]] == [True]
        assert found["time_s"] > 0
        assert found["launches"] is True
    tiling = Tiling(128, 128, 8, 16, 16)
    assert predict(Problem(4096, 4096, 4096), kernel("register"), tiling, device("h200"), 255).time_s == found["time_s"]
