"""What others reported of times and roofs, and what the model says of it."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.roofline import ridge

CUBE = Problem(4096, 4096, 4096)
UNCOALESCED, COALESCED = {"block_m": 32, "block_n": 1}, {"block_m": 8, "block_n": 32}
TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}
STRIP = {"block_m": 64, "block_n": 64, "block_k": 8, "thread_m": 8, "thread_n": 1}
WARPED = {**TILE, "warp_m": 64, "warp_n": 32}


def time_s(on, name, tiling, problem=CUBE):
    """The analytic prediction."""
    of = kernel(name)
    return float(predict(problem, of, of.tiling(**tiling), device(on)).time_s)


def falls(times_s):
    """Whether each is less than the one before."""
    return all(one > next_one for one, next_one in pairwise(times_s))


def test_the_ladder_on_an_a6000():
    # github.com/siboehm/SGEMM_CUDA: GFLOP/s at 4096 cubed, and milliseconds that follow from 2 n^3
    measured = {309.0: 444.79, 1986.5: 69.19, 2980.3: 46.12, 8474.7: 16.22, 15971.7: 8.61, 21779.3: 6.31, 23249.6: 5.91}
    for gflop_per_s, milliseconds in measured.items():
        assert CUBE.flop / (gflop_per_s * 1e9) * 1e3 == pytest.approx(milliseconds, abs=0.006)
    ladder = [
        ("naive", UNCOALESCED), ("naive", COALESCED), ("shared", {"block_m": 32, "block_n": 32, "block_k": 32}),
        ("register", STRIP), ("register", TILE), ("warp_tiled", WARPED),
    ]  # fmt: skip
    assert falls([time_s("rtx-a6000", *each) for each in ladder])


def test_steps_of_another_ladder_on_an_rtx_3090():
    # github.com/leimao/CUDA-GEMM-Optimization: 0.278, 1.72, 2.66, 13.0, 20.2 TFLOP/s; cuBLAS 24.6
    assert pytest.approx(82.0, abs=0.2) == 100 * 20.2 / 24.6
    ladder = [
        ("naive", UNCOALESCED), ("naive", COALESCED), ("shared", {"block_m": 32, "block_n": 32, "block_k": 32}),
        ("register", TILE), ("warp_tiled", WARPED),
    ]  # fmt: skip
    times_s = [time_s("rtx-3090", *each) for each in ladder]
    assert falls(times_s)
    assert times_s[2] / times_s[3] > 2  # the register tile is the step that matters, not the shared one
    assert times_s[1] / times_s[2] < 2


def test_shared_tiles_gain_little_where_l1_serves_the_reuse():
    # On an RTX 5060 coalescing brought 4.09x at 2048, and a plain shared tile nothing until its loop was unrolled.
    cube = Problem(2048, 2048, 2048)
    naive, plain = (time_s("rtx-5080", "naive", tiling, cube) for tiling in (COALESCED, UNCOALESCED))
    assert plain / naive > 2
    shared = time_s("rtx-5080", "shared", {"block_m": 16, "block_n": 16, "block_k": 16}, cube)
    assert naive / shared < 2  # 16 times fewer reads of global memory


@pytest.mark.parametrize(
    ("name", "tflop_per_s", "expected"),
    [
        ("h100-sxm", 989.0, 295.2),
        ("h100-sxm", 1979.0, 590.7),  # with 2:4 sparsity: another roof
        ("a100-80gb-sxm", 312.0, 153.0),
        ("a100-40gb-sxm", 312.0, 200.6),
        ("rtx-4090", 165.2, 163.9),
    ],
)
def test_ridges_are_of_a_peak_and_a_memory(name, tflop_per_s, expected):
    assert ridge(tflop_per_s * 1e12, device(name).dram_bytes_per_s) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize(("dtype", "expected"), [("fp32", 0.5), ("fp16", 1.0), ("bf16", 1.0)])
def test_intensity_of_a_matrix_times_a_vector(dtype, expected):
    # 2 FLOP for each weight, over the bytes of a weight
    assert Problem(8192, 1, 8192, dtype).flop_per_byte == pytest.approx(expected, rel=1e-3)


def test_rates_and_counts_have_their_own_units(gemmsim):
    shown = gemmsim("predict 4096 --kernel register --route analytic").out
    assert "137 GFLOP\n" in shown  # 2 m n k
    assert " TFLOP/s" in shown
    assert "FLOPs" not in shown
    assert "FLOPS" not in shown
