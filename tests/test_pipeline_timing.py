"""What accesses of a kernel cost in the simulation, and the timing that a calibration gives."""

from __future__ import annotations

import pytest

from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.pipeline.costs import costs
from gemmsim.pipeline.timing import timing
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling

H200 = device("h200")
ASYNC = kernel("async")
TILING = Tiling(128, 256, 8, 16, 8, stages=3, pad_a=4, warp_m=64, warp_n=64)
"""256 threads: of a tile of k each copies 4 elements of A, which lie 8 to a row, and 8 of B."""


def written_cycles(problem: Problem, registers: int, slowest: float) -> float:
    found = costs(problem, ASYNC, TILING, slowest)["global_copy", registers]
    return sum(cost.wavefronts + cost.again for cost in found) / len(found)


@pytest.mark.parametrize("slowest", [0.0, 0.5, 1.0])
def test_copies_of_different_places_are_written_at_once(slowest: float):
    assert written_cycles(Problem(256, 512, 64), 1, slowest) == 1


@pytest.mark.parametrize("slowest", [0.0, 0.5, 1.0])
def test_copies_of_one_place_are_written_lane_after_lane(slowest: float):
    # four columns of B are one vector, which all 32 lanes of a row read
    assert written_cycles(Problem(256, 4, 64), 4, slowest) == 32
    # A is not concerned: words, each another
    assert written_cycles(Problem(256, 4, 64), 1, slowest) == 1


def test_lanes_beyond_the_last_row_read_it_again():
    # 2 interior rows of blocks and one of which a single row of A is left: a warp's 4 rows of 8 words are all that row
    problem = Problem(257, 256, 64)
    assert written_cycles(problem, 1, slowest=1) == 4
    assert written_cycles(problem, 1, slowest=0) == pytest.approx((1 + 1 + 4) / 3)
    assert written_cycles(problem, 1, slowest=1 / 4) == pytest.approx((1 + 1 + 4) / 3)  # more than a quarter anyway
    assert written_cycles(problem, 1, slowest=1 / 2) == pytest.approx((1 + 4) / 2)


def test_lanes_beyond_the_last_column_read_it_again():
    # one column of B left: the 8 copies of B of a thread have 32 lanes alike, the 4 of A none
    problem = Problem(256, 257, 64)
    edge = (8 * 32 + 4 * 1) / 12
    assert written_cycles(problem, 1, slowest=1) == pytest.approx(edge)
    assert written_cycles(problem, 1, slowest=0) == pytest.approx((1 + edge) / 2)
    assert written_cycles(problem, 1, slowest=3 / 4) == pytest.approx((1 + 3 * edge) / 4)


def test_a_row_of_naive_misses_once_a_sector():
    """Blocks of 16x8: a warp reads 4 rows of A, which miss every eighth time, and one run of B."""
    naive = kernel("naive")
    of_a, of_b = costs(Problem(1024, 1024, 1024), naive, naive.tiling(block_m=16, block_n=8))["global_load", 1]
    assert (of_a.operand, of_a.places, of_b.operand, of_b.places) == ("a", 4 / 8, "b", 1)


def test_kernels_without_copies_know_no_lanes_alike():
    of, tiling = kernel("vectorized"), Tiling(128, 128, 8, 8, 8, vector=4)
    edge = Problem(257, 257, 64)
    assert costs(edge, of, tiling, 1.0) == costs(edge, of, tiling, 0.0)


def test_latencies_are_those_of_the_calibration():
    known = calibration(H200)
    at = timing(H200, known)
    assert at.l1_cycles == known.l1_latency_cycles
    assert at.global_cycles == known.l2_latency_near_cycles  # each half of L2 keeps what it has read from the other
    assert at.fence_cycles == known.l2_latency_near_cycles + known.l2_latency_far_cycles
    assert at.code_cycles == known.code_line_cycles / 8
    # what all multiprocessors write a second, as cycles of each for a byte
    assert at.store_cycles_per_byte == H200.sms * H200.clock_hz / known.l2_write_bytes_per_s
