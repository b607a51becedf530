"""The counts: closed forms and tile classes against every address of the kernels run on paper."""

from __future__ import annotations

import brute
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import ffma, formulas, reads, traffic

SIZES = st.integers(1, 40)
PRIMES = st.sampled_from([1, 2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47])


@st.composite
def tilings(draw: st.DrawFn, name: str):
    """Small legal tilings of the kernel, odd shapes and partial warps among them."""
    if name == "naive":
        return kernel(name).tiling(block_m=draw(st.integers(1, 12)), block_n=draw(st.integers(1, 40)))
    if name == "shared":
        values = {"block_m": draw(st.integers(1, 12)), "block_n": draw(st.integers(1, 20))}
        values["block_k"] = draw(st.integers(1, 12))
        pads = st.integers(0, 5)
    elif name == "register":
        values = {"thread_m": draw(st.integers(1, 5)), "thread_n": draw(st.integers(1, 8))}
        values |= {f"block_{a}": values[f"thread_{a}"] * draw(st.integers(1, 7)) for a in "mn"}
        values["block_k"] = draw(st.integers(1, 9))
        pads = st.integers(0, 5)
    else:
        vector = draw(st.sampled_from([1, 2, 4]))
        small = st.integers(1, 2).map(lambda i: i * vector)
        values = {"vector": vector, "thread_m": draw(small), "thread_n": draw(small)}
        values |= {f"block_{a}": values[f"thread_{a}"] * draw(st.integers(1, 7)) for a in "mn"}
        values["block_k"] = vector * draw(st.integers(1, 3))
        assume(name != "double_buffer" or values["block_k"] % 2 == 0)
        pads = st.integers(0, 2).map(lambda i: i * vector)
    return kernel(name).tiling(**values, pad_a=draw(pads), pad_b=draw(pads))


@pytest.mark.parametrize("name", KERNELS)
@settings(max_examples=120)
@given(data=st.data())
def test_every_count_equals_the_kernel_run_on_paper(name, data):
    m, n, k = (data.draw(st.one_of(SIZES, PRIMES), label) for label in "mnk")
    assume(m * n * k <= 20_000)
    tiling = data.draw(tilings(name), "tiling")
    notes = brute.launch(name, m, n, k, tiling)
    counted = traffic(Problem(m, n, k), kernel(name), tiling)

    assert counted.ffma == notes.ffma
    assert counted.reads.global_memory == notes.lanes["global_load"]
    assert counted.reads.shared_memory == notes.lanes["shared_load"]
    assert counted.reads.register == 2 * notes.ffma
    for direction in ("load", "store"):
        in_global, in_shared = getattr(counted, f"global_{direction}"), getattr(counted, f"shared_{direction}")
        assert in_global.requests == notes.requests[f"global_{direction}"]
        assert in_global.sectors == notes.sectors[f"global_{direction}"]
        assert in_shared.requests == notes.requests[f"shared_{direction}"]
        assert in_shared.wavefronts == notes.wavefronts[f"shared_{direction}"]
        assert in_shared.ideal_wavefronts == notes.ideal[f"shared_{direction}"]
    assert notes.lanes["global_store"] == m * n


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
    assert after.reads.global_memory > before.reads.global_memory
    assert after.shared_load.wavefronts >= before.shared_load.wavefronts


@pytest.mark.parametrize("name", KERNELS)
@given(data=st.data(), times=st.integers(2, 9))
def test_whole_tiles_along_k_add_up(name, data, times):
    m, n = data.draw(SIZES), data.draw(SIZES)
    tiling = data.draw(tilings(name))
    k = tiling.block_k * 8 * max(1, tiling.vector)  # so that every tile starts at the same alignment
    one, many = (traffic(Problem(m, n, k * t), kernel(name), tiling) for t in (1, times))
    assert many.ffma == times * one.ffma
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


def test_tiled_traffic_of_5120():
    # 5120^3, 32x32x32 tiles: (M/BM)(N/BN)(K/BK)(BM BK + BK BN), 1/32 of the naive count
    shared = kernel("shared")
    counted = reads(Problem(5120, 5120, 5120), shared, shared.tiling(block_m=32, block_n=32, block_k=32))
    assert counted.global_memory == 8388608000
    assert counted.global_memory / (2 * 5120**3) == 0.03125


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
