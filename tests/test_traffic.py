"""The counts: closed forms and tile classes against every address of the kernels run on paper."""

from __future__ import annotations

import brute
import numpy as np
import pytest
from examples import example, tilings
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemmsim.accesses.costs import access_costs
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import ffma, formulas, reads, traffic

SIZES = st.integers(1, 40)
PRIMES = st.sampled_from([1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47])


def assert_counts_are_those_on_paper(name, m, n, k, tiling):
    notes = brute.launch(name, m, n, k, tiling)
    counted = traffic(Problem(m, n, k), kernel(name), tiling)

    assert counted.ffma == notes.ffma
    assert counted.reads.global_memory == sum(notes.lanes[kind] for kind in ("global_load", "copy", "workspace_load"))
    assert counted.reads.shared_memory == notes.lanes["shared_load"]
    assert counted.reads.register == 2 * notes.ffma
    for direction in ("load", "store"):
        in_global, in_shared = getattr(counted, f"global_{direction}"), getattr(counted, f"shared_{direction}")
        kinds = f"global_{direction}", f"workspace_{direction}"
        assert in_global.requests == sum(notes.requests[kind] for kind in kinds)
        assert in_global.sectors == sum(notes.sectors[kind] for kind in kinds)
        assert in_shared.requests == notes.requests[f"shared_{direction}"]
        assert in_shared.wavefronts == notes.wavefronts[f"shared_{direction}"]
        assert in_shared.ideal_wavefronts == notes.ideal[f"shared_{direction}"]
    assert notes.lanes["global_store"] == m * n
    if KERNELS[name].copies:
        assert counted.copies.requests == notes.requests["copy"]
        assert counted.copies.reading == notes.requests["reading_copy"]
        assert counted.copies.sectors_through_l1 == notes.sectors["copy"]
        assert counted.copies.sectors_past_l1 == notes.sectors["copy_past_l1"]
        assert counted.copies.wavefronts == notes.wavefronts["copy"]
        assert counted.copies.ideal_wavefronts == notes.ideal["copy"]


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=60)
@given(data=st.data())
def test_every_count_equals_the_kernel_run_on_paper(name, data):
    m, n, k = (data.draw(st.one_of(SIZES, PRIMES), label) for label in "mnk")
    assume(m * n * k <= 20_000)
    tiling = data.draw(tilings(name), "tiling")
    assert_counts_are_those_on_paper(name, m, n, k, tiling)


@pytest.mark.parametrize(
    ("size", "block", "warp", "thread", "more"),
    [  # stages and tiles that start in the middle of a row of banks; more blocks than tiles of k; a ring longer than k
        ((131, 192, 5), (32, 32, 12), (16, 16), (4, 2), {"split_k": 7, "pad_a": 4, "group": 3}),
        ((70, 68, 36), (64, 64, 4), (32, 32), (8, 4), {"stages": 5, "pad_b": 4}),
        ((70, 68, 36), (64, 64, 16), (32, 32), (8, 4), {"stages": 2, "spread": 3, "pad_b": 4}),
        ((45, 131, 21), (32, 64, 8), (32, 32), (8, 4), {"stages": 3, "spread": 7, "split_k": 2, "group": 2}),
    ],
)
def test_copies_past_l1_whatever_their_alignment(size, block, warp, thread, more):
    extents = (f"{of}_{axis}" for of, axes in (("block", "mnk"), ("warp", "mn"), ("thread", "mn")) for axis in axes)
    tiling = kernel("async").tiling(**dict(zip(extents, (*block, *warp, *thread), strict=True)), **more)
    assert_counts_are_those_on_paper("async", *size, tiling)


@given(
    data=st.data(),
    name=st.sampled_from(["shared", "register", "vectorized", "double_buffer"]),
    factors=st.tuples(*[st.integers(1, 50)] * 3),
)
def test_textbook_formulas_hold_where_every_tile_divides(data, name, factors):
    tiling = data.draw(tilings(name))
    m, n, k = (factor * tiling_size for factor, tiling_size in
               zip(factors, (tiling.block_m, tiling.block_n, tiling.block_k), strict=True))  # fmt: skip
    counted = reads(Problem(m, n, k), kernel(name), tiling)
    # m n k (1/b_m + 1/b_n) global, m n k (1/r_m + 1/r_n) shared, 2 m n k registers
    assert counted.global_memory == m * n * k // tiling.block_m + m * n * k // tiling.block_n
    assert counted.shared_memory == m * n * k // tiling.thread_m + m * n * k // tiling.thread_n
    assert counted.register == 2 * m * n * k


@given(m=SIZES, n=SIZES, k=SIZES)
def test_naive_reads_2mnk_whatever_the_size(m, n, k):
    counted = reads(Problem(m, n, k), kernel("naive"), kernel("naive").tiling())
    assert (counted.global_memory, counted.shared_memory, counted.register) == (2 * m * n * k, 0, 2 * m * n * k)


def test_the_textbook_example():
    problem, tile = Problem(2048, 2048, 2048), {"block_m": 128, "block_n": 128, "block_k": 8}
    ladder = kernel("double_buffer")
    counted = reads(problem, ladder, ladder.tiling(**tile, thread_m=8, thread_n=8))
    assert (counted.global_memory, counted.shared_memory, counted.register) == (134217728, 2147483648, 17179869184)
    shared = kernel("shared")
    counted = reads(problem, shared, shared.tiling(block_m=32, block_n=32, block_k=32))
    assert (counted.global_memory, counted.shared_memory) == (536870912, 17179869184)
    assert reads(problem, kernel("naive"), kernel("naive").tiling()).global_memory == 17179869184


@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data())
def test_arrays_and_numbers_go_through_the_same_formulas(name, data):
    sizes = data.draw(st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=5))
    tiling = data.draw(tilings(name))
    many = Problem(*(np.array(axis) for axis in zip(*sizes, strict=True)))
    at_once = reads(many, kernel(name), tiling)
    for i, (m, n, k) in enumerate(sizes):
        alone = reads(Problem(m, n, k), kernel(name), tiling)
        assert at_once.global_memory[i] == alone.global_memory
        assert np.broadcast_to(at_once.shared_memory, len(sizes))[i] == alone.shared_memory
        assert ffma(many, kernel(name), tiling)[i] == ffma(Problem(m, n, k), kernel(name), tiling)


@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data())
def test_larger_problems_never_need_less(name, data):
    m, n, k = (data.draw(SIZES) for _ in range(3))
    tiling = data.draw(tilings(name))
    axis = data.draw(st.sampled_from("mnk"))
    small = {"m": m, "n": n, "k": k}
    large = small | {axis: small[axis] + data.draw(st.integers(1, 30))}
    before, after = (traffic(Problem(**sizes), kernel(name), tiling) for sizes in (small, large))
    assert after.ffma >= before.ffma
    assert after.reads.global_memory >= before.reads.global_memory
    assert after.reads.global_memory > before.reads.global_memory or KERNELS[name].copies  # those read whole tiles
    assert after.shared_load.wavefronts >= before.shared_load.wavefronts


@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data(), times=st.integers(2, 9))
def test_whole_tiles_along_k_add_up(name, data, times):
    m, n = data.draw(SIZES), data.draw(SIZES)
    tiling = data.draw(tilings(name))
    k = tiling.block_k * 8 * max(1, tiling.vector)  # so that every tile starts at the same alignment
    one, two, many = (traffic(Problem(m, n, k * t), kernel(name), tiling) for t in (1, 2, times))

    def grows_by_the_same(count):
        return count(many) - count(one) == (times - 1) * (count(two) - count(one))

    assert many.ffma == times * one.ffma
    assert grows_by_the_same(lambda counted: counted.reads.global_memory)
    for counts in (lambda counted: counted.shared_load, lambda counted: counted.shared_store):
        assert grows_by_the_same(lambda counted, counts=counts: counts(counted).wavefronts)
    assert grows_by_the_same(lambda counted: counted.global_load.requests)
    if KERNELS[name].copies:
        assert grows_by_the_same(lambda counted: counted.copies.requests)
    else:  # nothing but the tiles
        assert many.reads.global_memory == times * one.reads.global_memory
        assert many.shared_load.wavefronts == times * one.shared_load.wavefronts
        assert many.shared_store.wavefronts == times * one.shared_store.wavefronts
        assert many.global_load.requests == times * one.global_load.requests


def test_bytes_and_their_bounds():
    counted = traffic(Problem(4092, 4092, 4092), kernel("naive"), kernel("naive").tiling())
    assert counted.bytes["global_issued"] == 2 * 4092**3 * 4
    assert counted.bytes["compulsory"] == counted.bytes["dram"] == 3 * 4092**2 * 4
    assert counted.bounds == {"l2": "upper", "dram": "lower"}
    assert counted.bytes["l2"] >= counted.bytes["compulsory"]


def test_a_naive_kernel_without_any_cache():
    # 4092^3 (siboehm.com/articles/22/CUDA-MMM): each of n^2 threads reads 2n floats of A and B, and one of C, which an
    # SGEMM with beta reads too; at 30 TFLOP/s and 768 GB/s
    problem, naive = Problem(4092, 4092, 4092), kernel("naive")
    counted = traffic(problem, naive, naive.tiling())
    of_c = 4 * 4092**2
    assert (counted.bytes["global_issued"] + of_c) / 1e9 == pytest.approx(548.2, abs=0.05)
    assert counted.bytes["compulsory"] / 1e6 == pytest.approx(200.9, abs=0.05)  # A and B read, C written
    assert (counted.bytes["compulsory"] + of_c) / 768e9 == pytest.approx(0.349e-3, abs=0.5e-6)  # C read as well
    assert of_c / 1e6 == pytest.approx(67.0, abs=0.05)
    assert problem.flop / 1e9 == pytest.approx(137.05, abs=0.02)
    assert problem.flop / 30e12 == pytest.approx(4.57e-3, abs=0.005e-3)


def test_tiled_traffic_of_5120():
    # 5120^3, 32x32x32 tiles: (M/BM)(N/BN)(K/BK)(BM BK + BK BN), 1/32 of the naive count, which is (1/BM + 1/BN)/2;
    # a README (github.com/wangzyon/NVIDIA_SGEMM_PRACTICE) says 1/2 (1/BN) (1/BM), a 64th of that
    shared, problem = kernel("shared"), Problem(5120, 5120, 5120)
    counted = reads(problem, shared, shared.tiling(block_m=32, block_n=32, block_k=32))
    naive = reads(problem, kernel("naive"), kernel("naive").tiling())
    assert (counted.global_memory, naive.global_memory) == (8388608000, 268435456000)
    assert counted.global_memory / naive.global_memory == 0.03125 == (1 / 32 + 1 / 32) / 2
    assert 1 / 2 * (1 / 32) * (1 / 32) == 0.00048828125


@pytest.mark.parametrize(("weight_bytes", "flop_per_byte"), [(2, 1.0), (4, 0.5), (1, 2.0)])
def test_a_matrix_times_a_vector(weight_bytes, flop_per_byte):
    # two FLOP for each weight, which is read once; the vectors are negligible (bf16, fp32, 8 bits)
    problem = Problem(1, 8192, 8192)
    found = problem.flop / (problem.compulsory_elements * weight_bytes)
    assert found == pytest.approx(flop_per_byte, rel=3e-4)
    assert found < flop_per_byte


def test_intensity_where_every_matrix_moves_once():
    # 2 n^3 / (3 n^2 4 bytes) = n / 6
    counted = traffic(Problem(1024, 1024, 1024), kernel("register"), example("register"))
    assert counted.flop_per_byte["dram"] == pytest.approx(170.67, abs=0.005)


def test_shared_store_requests_of_a_tiled_kernel():
    # 32x32 tiles at 8192^3: two stores a warp and tile, none in conflict
    shared = kernel("shared")
    counted = traffic(Problem(8192, 8192, 8192), shared, shared.tiling(block_m=32, block_n=32, block_k=32))
    assert counted.shared_store.requests == 1073741824
    assert counted.shared_store.wavefronts == counted.shared_store.ideal_wavefronts
    assert counted.shared_load.wavefronts == counted.shared_load.ideal_wavefronts


def test_double_buffering_changes_no_read():
    tile = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}
    problem = Problem(1000, 1900, 2100)
    single, double = kernel("vectorized"), kernel("double_buffer")
    assert reads(problem, single, single.tiling(**tile)) == reads(problem, double, double.tiling(**tile))
    assert single.shared_bytes(single.tiling(**tile)) == 8192
    assert double.shared_bytes(double.tiling(**tile)) == 16384


@pytest.mark.parametrize(
    ("tile", "thread", "in_global", "in_shared"),
    [((64, 64, 8), (8, 1), 0.03125, 1.125), ((128, 128, 8), (8, 8), 0.015625, 0.25)],
)
def test_reads_for_each_result_in_units_of_k(tile, thread, in_global, in_shared):
    register = kernel("register")
    names = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
    counted = reads(Problem(1024, 1024, 512), register, register.tiling(**dict(zip(names, tile + thread, strict=True))))
    results = 1024 * 1024
    assert counted.global_memory / results / 512 == in_global
    assert counted.shared_memory / results / 512 == in_shared


def test_counts_past_63_bits_are_refused():
    with pytest.raises(InputError, match="2 m n k passes 2\\^63"):
        Problem(2**31 - 2**16, 2**31 - 2**16, 3)
    shared = kernel("shared")
    tall = shared.tiling(block_m=1024, block_n=1, block_k=1)
    fits, padded = Problem(1, 2**27, 2**31 - 2**16), "the padded problem 1024 x 134217728 x 2147418112"
    with pytest.raises(InputError, match=padded):
        ffma(fits, shared, tall)
    assert ffma(fits, kernel("naive"), kernel("naive").tiling()) == 2**27 * (2**31 - 2**16)


def test_bytes_past_63_bits_are_refused_too():
    with pytest.raises(InputError, match="bytes of the three matrices pass 2\\^63"):
        Problem(2**31 - 2**16, 2**31 - 2**16, 1)
    with pytest.raises(InputError, match="the count global_issued passes 2\\^63 - 1"):
        traffic(Problem(2**15, 2**15, 2**31 - 2**16), kernel("naive"), kernel("naive").tiling())


def test_tilings_of_another_kernel_are_refused():
    with pytest.raises(InputError, match="kernel naive has no thread_m, not 8"):
        traffic(Problem(64, 64, 64), kernel("naive"), Tiling(64, 64, 1, 8, 8))


def test_formulas_name_every_level():
    for each in KERNELS.values():
        assert formulas(each).keys() == {"global", "shared", "register"}
    assert grid(Problem(100, 50, 9), kernel("shared").tiling(block_m=32, block_n=32, block_k=8)).blocks == 8


@settings(max_examples=60)
@given(st.sampled_from([name for name in KERNELS if KERNELS[name].staged]), st.data())
def test_what_is_left_out_of_a_tiling_makes_no_difference_to_its_passes(name, data):
    kernel, problem = KERNELS[name], Problem(*data.draw(st.tuples(*[st.sampled_from([1, 64, 66, 100])] * 3)))
    tiling = data.draw(tilings(name))
    widths = kernel.widths(problem, tiling)
    costs = access_costs(kernel, tiling, widths)
    accesses = [*shared_accesses(kernel, tiling, widths)]
    assert [each.name for each in costs] == [each.name for each in accesses]
    for cost, access in zip(costs, accesses, strict=True):
        passes = access.passes(4)
        assert cost.wavefronts == (access.times * passes.wavefronts).sum()
        assert cost.ideal_wavefronts == (access.times * passes.ideal_wavefronts).sum()
        assert cost.requests == (access.times * access.active.any(axis=-1)).sum()
