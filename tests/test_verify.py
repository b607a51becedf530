"""The judge of results: takes what float32 arithmetic gives in any order, and nothing else."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.gpu import verify as judge
from gemmsim.gpu.verify import GUARD, POISON, TOLERANCE, guarded, product, random_operands, verify
from gemmsim.problem import Problem

BLOCK = (16, 32)
SHAPES = [(48, 37, 129), (1, 1, 1), (5, 7, 1), (200, 3, 64), (64, 64, 5000)]


@pytest.fixture(params=["full", "sampled"])
def reference(request, monkeypatch):
    """Both ways to judge: every element, and a part of them."""
    if request.param == "sampled":
        monkeypatch.setattr(judge, "FULL_REFERENCE_FLOP", 0)
    return request.param


def operands(m: int, n: int, k: int, seed: int = 1):
    return random_operands(Problem(m, n, k), seed)


def holding(c) -> np.ndarray:
    """The buffer of a GPU that has written `c`."""
    buffer = guarded(c.size)
    buffer[GUARD:-GUARD] = np.ascontiguousarray(c, dtype=np.float32).view(np.uint32).ravel()
    return buffer


def in_order(a, b) -> np.ndarray:
    """The product in float32, one term after the other, as the kernels add them."""
    c = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for i in range(a.shape[1]):
        c += a[:, i : i + 1] * b[i]
    return c


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("multiply", [np.matmul, in_order, lambda a, b: in_order(a[:, ::-1], b[::-1])])
@pytest.mark.usefixtures("reference")
def test_float32_in_any_order_is_right(shape, multiply):
    a, b = operands(*shape)
    verdict = verify(holding(multiply(a, b)), a, b, BLOCK)
    assert verdict.failure is None
    assert 0 <= verdict.error <= TOLERANCE / 4


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**48))
def test_error_is_that_of_the_worst_element(m, n, k, seed):
    a, b = operands(m, n, k, seed)
    c = in_order(a, b)
    exact = a.astype(float) @ b.astype(float)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.abs(c - exact) / np.outer(
            np.linalg.norm(a.astype(float), axis=1), np.linalg.norm(b.astype(float), axis=0)
        )
    verdict = verify(holding(c), a, b, BLOCK)
    assert verdict.failure is None
    assert verdict.error == pytest.approx(float(np.nanmax(errors)), rel=1e-9, abs=1e-12)


@given(st.integers(0, 47), st.integers(0, 36))
def test_one_element_off_is_found_at_its_place(row, column):
    a, b = operands(48, 37, 129)
    c = a @ b
    c[row, column] += 1e-3
    expected = product(a, b)[row, column]
    failure = verify(holding(c), a, b, BLOCK).failure
    place = f"row {row}, column {column}"
    assert failure == f"wrong result at {place}: got {c[row, column]:.9g}, expected {expected:.9g}"


@given(st.integers(1, 400), st.integers(0, 2**48))
def test_a_missing_term_is_found(k, seed):
    a, b = operands(33, 35, k, seed)
    assert verify(holding(a[:, 1:] @ b[1:]), a, b, BLOCK).failure is not None


def twice(a, b):
    return 2 * (a @ b)


def transposed(a, b):
    return np.ascontiguousarray((a @ b).T).reshape(a.shape[0], b.shape[1])


def rows_shifted(a, b):
    return np.roll(a @ b, 1, axis=0)


def nan_in_the_middle(a, b):
    c = a @ b
    c[20, 20] = np.nan
    return c


def infinite(a, b):
    return np.full((a.shape[0], b.shape[1]), np.inf, np.float32)


def zeros(a, b):
    return np.zeros((a.shape[0], b.shape[1]), np.float32)


def last_column_of_tiles_missing(a, b):
    c = a @ b
    c[:, 32:] = 0
    return c


@pytest.mark.parametrize(
    "wrong", [twice, transposed, rows_shifted, nan_in_the_middle, infinite, zeros, last_column_of_tiles_missing]
)
@pytest.mark.usefixtures("reference")
def test_wrong_results_are_found(wrong):
    a, b = operands(48, 37, 129)
    failure = verify(holding(wrong(a, b)), a, b, BLOCK).failure
    assert failure is not None
    assert failure.startswith("wrong result")


@pytest.mark.usefixtures("reference")
def test_what_was_never_written_is_found():
    a, b = operands(48, 37, 129)
    buffer = holding(a @ b)
    buffer[GUARD + 37 * 5 + 3] = POISON
    buffer[-GUARD - 1] = POISON
    verdict = verify(buffer, a, b, BLOCK)
    assert verdict.failure == "wrong result: 2 of 1776 elements never written, the first at row 5, column 3"
    assert math.isnan(verdict.error)


@pytest.mark.parametrize(
    ("at", "side", "distance"), [(GUARD - 1, "before", 1), (0, "before", GUARD), (-GUARD, "after", 1)]
)
@pytest.mark.usefixtures("reference")
def test_a_write_outside_c_is_found(at, side, distance):
    a, b = operands(48, 37, 129)
    buffer = holding(a @ b)
    buffer[at] = 0
    failure = verify(buffer, a, b, BLOCK).failure
    assert failure == f"wrong result: 1 elements written {side} C, the nearest {distance} {side} it"


def test_one_wrong_element_among_many_is_found_though_few_are_compared(monkeypatch):
    """Only the check over all elements can see it."""
    monkeypatch.setattr(judge, "FULL_REFERENCE_FLOP", 0)
    monkeypatch.setattr(judge, "_picked", lambda size, block: np.array([0, size - 1]))
    a, b = operands(300, 200, 50)
    c = a @ b
    assert verify(holding(c), a, b, BLOCK).failure is None
    c[150, 100] += 0.1
    failure = verify(holding(c), a, b, BLOCK).failure
    assert failure is not None
    assert failure.startswith("wrong result in row 150, columns 100 to 103: ")


def test_a_missing_product_in_one_element_is_found_in_the_sum_of_its_part(monkeypatch):
    """The sum over a whole row would allow it: 16 eps k sqrt(n) is 1.3 mean squares, for two columns it is 0.2."""
    monkeypatch.setattr(judge, "FULL_REFERENCE_FLOP", 0)
    monkeypatch.setattr(judge, "_picked", lambda size, block: np.array([0, size - 1]))
    a, b = operands(20, 128, 60000)
    c = a @ b
    assert verify(holding(c), a, b, BLOCK).failure is None
    c[10, 77] -= 1 / 3
    failure = verify(holding(c), a, b, BLOCK).failure
    assert failure is not None
    assert failure.startswith("wrong result in row 10, columns 76 to 77: ")


@given(st.integers(1, 2000), st.integers(1, 300))
def test_the_picked_lines_are_many_and_hold_the_edges(size, block):
    picked = judge._picked(size, block)
    assert len(picked) == len(set(picked)) >= min(size, judge.SAMPLED)
    assert {0, size - 1} <= set(picked.tolist())
    assert picked.min() == 0
    assert picked.max() == size - 1
    if size > block:
        assert {block - 1, block, (size - 1) // block * block} <= set(picked.tolist())


def test_products_are_the_same_in_parts(monkeypatch):
    a, b = operands(30, 20, 1000)
    whole = product(a, b)
    monkeypatch.setattr(judge, "CHUNK", 64)
    assert np.allclose(product(a, b), whole, rtol=1e-13, atol=1e-13)
    assert verify(holding(a @ b), a, b, BLOCK).failure is None


def test_a_zero_row_must_give_zero():
    a, b = operands(4, 4, 4)
    a[2] = 0
    c = a @ b
    assert verify(holding(c), a, b, BLOCK).failure is None
    c[2, 1] = 1e-30
    failure = verify(holding(c), a, b, BLOCK).failure
    assert failure is not None
    assert "row 2, column 1" in failure


def test_operands_are_fresh_uniform_and_reproducible():
    a, b = operands(100, 200, 300, seed=7)
    assert a.shape == (100, 300)
    assert b.shape == (300, 200)
    for matrix in (a, b):
        assert matrix.dtype == np.float32
        assert -1 <= matrix.min() < -0.99
        assert 0.99 < matrix.max() < 1
        assert abs(matrix.mean()) < 0.02
    assert np.array_equal(a, operands(100, 200, 300, seed=7)[0])
    assert not np.array_equal(a, operands(100, 200, 300, seed=8)[0])
    assert len({judge.fresh_seed() for _ in range(100)}) == 100
