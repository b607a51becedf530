"""The nouns refuse nonsense, and say which number and what is allowed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.options import whole
from gemmsim.problem import LARGEST_SIZE, Problem, ceil_div, common_power, numbered, whole_number
from gemmsim.tiling import Tiling, nearest_divisor, parse_extents


@pytest.mark.parametrize("bad", [0, -1, 2.5, "4", None, True, LARGEST_SIZE + 1, float("nan")])
@pytest.mark.parametrize("axis", ["m", "n", "k"])
def test_sizes_that_are_no_sizes(axis, bad):
    with pytest.raises(InputError, match=rf"{axis} .*allowed: whole numbers from 1 to {LARGEST_SIZE}"):
        Problem(**{"m": 8, "n": 8, "k": 8, axis: bad})


def test_arrays_name_their_first_bad_size():
    with pytest.raises(InputError, match="n -3 is out of range"):
        Problem(8, np.array([1, -3, -4]), 8)
    with pytest.raises(InputError, match="whole numbers, not of float64"):
        Problem(8, np.array([1.0]), 8)


def test_unknown_dtype():
    with pytest.raises(InputError, match="unknown dtype 'fp31'; nearest: fp32"):
        Problem(1, 1, 1, "fp31")


@given(
    m=st.integers(1, 10**4), n=st.integers(1, 10**4), k=st.integers(1, 10**4), dtype=st.sampled_from(["fp32", "fp16"])
)
def test_counts_of_a_problem(m, n, k, dtype):
    problem = Problem(m, n, k, dtype)
    assert problem.flop == 2 * m * n * k
    assert problem.compulsory_bytes == (m * k + k * n + m * n) * {"fp32": 4, "fp16": 2}[dtype]
    assert Problem(n, m, k, dtype).flop_per_byte == problem.flop_per_byte  # C' = B' A'


def test_published_arithmetic():
    assert Problem(1024, 1024, 1024).flop_per_byte == pytest.approx(170.67, abs=0.005)  # n / 6
    big = Problem(4092, 4092, 4092)
    assert big.flop == pytest.approx(137.05e9, rel=1e-4)
    read, written = 3 * 4092**2 * 4, 4092**2 * 4  # C is read too in that account
    assert (read, written) == (pytest.approx(200.9e6, rel=1e-3), pytest.approx(67.0e6, rel=1e-3))
    # a matrix-vector product of a d x d weight: 2 FLOP for each weight over its bytes
    for dtype, expected in (("bf16", 1.0), ("fp32", 0.5)):
        assert Problem(1, 65536, 65536, dtype).flop_per_byte == pytest.approx(expected, rel=1e-3)


@given(a=st.integers(1, 10**9), b=st.integers(1, 10**9))
def test_ceil_div(a, b):
    assert (ceil_div(a, b) - 1) * b < a <= ceil_div(a, b) * b


def test_a_thread_tile_that_does_not_divide_names_the_nearest():
    with pytest.raises(InputError, match="thread_m 7 does not divide block_m 128; nearest that does: 8"):
        Tiling(128, 128, 8, 7, 8)


def test_too_many_threads():
    with pytest.raises(InputError, match="need 4096 threads a block; allowed: up to 1024"):
        Tiling(64, 64)


@pytest.mark.parametrize(
    ("field", "bad"),
    [("block_m", 0), ("block_k", -8), ("thread_n", 1.5), ("pad_a", -1), ("pad_b", 257), ("block_n", 4097)],
)
def test_fields_out_of_range(field, bad):
    with pytest.raises(InputError, match=f"{field} .*allowed: whole numbers from"):
        Tiling(**{"block_m": 32, "block_n": 32, field: bad})


@pytest.mark.parametrize(
    ("number", "nearest"),
    [(0, 1), (-7, 1), (11, 10), (2.4, 2), (2.6, 3), (1e99, 10), (np.array([3, 99, 0]), 10)],
    ids=str,
)
def test_a_number_that_is_none_names_the_nearest(number, nearest):
    with pytest.raises(
        InputError, match=rf"^x .*; allowed: whole numbers from 1 to 10; nearest: {nearest}$"
    ) as refused:
        whole_number(number, "x", 1, 10)
    if not isinstance(number, np.ndarray):
        with pytest.raises(InputError) as refused_text:
            whole(str(number), "x", 1, 10)
        assert str(refused_text.value) == str(refused.value).replace(f"{number!r} is not", f"'{number}' is not")


def test_a_number_that_is_none_is_told_in_short():
    for odd in (10**9999, "x" * 9999, [[["x" * 99] * 99] * 99] * 99, float("nan"), True):
        with pytest.raises(InputError) as refused:
            whole_number(odd, "x")
        assert len(str(refused.value)) < 200


@given(number=st.integers(1, 3000), wanted=st.integers(1, 3000))
def test_nearest_divisor(number, wanted):
    nearest = nearest_divisor(number, wanted)
    assert number % nearest == 0
    assert all(abs(nearest - wanted) <= abs(d - wanted) for d in range(1, number + 1) if number % d == 0)


def test_geometry():
    tiling = Tiling(128, 64, 8, 8, 4)
    assert (tiling.thread_rows, tiling.thread_columns, tiling.threads, tiling.warps) == (16, 16, 256, 8)
    assert Tiling(3, 33).warps == 4  # 99 threads
    many = Tiling(np.array([128, 64]), 64, 8, 8, 4)
    assert many.threads.tolist() == [256, 128]


@pytest.mark.parametrize(
    "text", ["128x128", "128x128x8x1", "axbxc", "128x-8x8", "", "12.5x8x8", "9999999999x8x8", "128 x 8 x 8"]
)
def test_extents_of_another_form(text):
    with pytest.raises(InputError, match=r"--tile .* is not of the form BM.BN.BK"):
        parse_extents(text, ("bm", "bn", "bk"), "--tile")


def test_extents():
    assert parse_extents("128x64x8", ("block_m", "block_n", "block_k"), "--tile") == {
        "block_m": 128, "block_n": 64, "block_k": 8,
    }  # fmt: skip


@given(st.integers(0, 5), st.lists(st.integers(1, 5000), min_size=1, max_size=4))
def test_the_common_power_of_two_is_the_greatest_common_divisor(exponent, multiples):
    assert common_power(2**exponent, *multiples) == math.gcd(2**exponent, *multiples)
    assert common_power(2**exponent, np.array(multiples)).tolist() == [math.gcd(2**exponent, one) for one in multiples]


@given(st.lists(st.tuples(*[st.sampled_from([-1, 0, 7, 2**40])] * 4), max_size=12))
def test_rows_have_the_same_number_if_they_are_the_same(rows):
    """Though four columns that reach so far span more than 64 bits."""
    numbers = numbered(np.array(rows, np.int64).reshape(-1, 4).T, len(rows)).tolist()
    assert sorted(set(numbers)) == [*range(len(set(rows)))]
    assert len(set(zip(numbers, rows, strict=True))) == len(set(rows))
