"""Whether a result is right: fresh random matrices, poisoned surroundings, a float64 reference.

Nothing here needs a GPU. A buffer is a matrix with a guard band before and after it; everything but
the operands' elements is poison, the bits 0xFFFFFFFF, which as a number is NaN: an element that was never
written, a write outside C, and a read outside A or B that enters a sum all show.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gemmsim.problem import Problem

POISON = 0xFFFFFFFF
GUARD_BYTES = 4096
GUARD = GUARD_BYTES // 4
TOLERANCE = 16 * float(np.finfo(np.float32).eps)
FULL_REFERENCE_FLOP = 3e11
"""Up to here every element is compared with float64; beyond, a part of them, and all of them in sum."""
SAMPLED = 64
"""Rows, and columns, compared with float64 where not all are; and parts of a row summed."""
CHUNK = 2**24
"""Elements converted to float64 at once."""

Matrix: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Verdict:
    """`error` is the largest |C - reference| / (|row of A| |column of B|), Euclidean norms; `failure` says
    what is wrong, in one line, or is None."""

    error: float
    failure: str | None = None


def fresh_seed() -> int:
    """A seed from the operating system."""
    return int.from_bytes(os.urandom(6), "little")


def random_operands(problem: Problem, seed: int) -> tuple[Matrix, Matrix]:
    """A (m x k) and B (k x n), float32, uniform in [-1, 1)."""
    generator = np.random.default_rng(seed)
    a = generator.random((problem.m, problem.k), dtype=np.float32)
    b = generator.random((problem.k, problem.n), dtype=np.float32)
    for matrix in (a, b):
        matrix *= 2
        matrix -= 1
    return a, b


def guarded(elements: int) -> Matrix:
    """A host buffer for so many floats and their guard bands, as 32-bit words, all poison."""
    return np.full(elements + 2 * GUARD, POISON, dtype=np.uint32)


def verify(buffer: Matrix, a: Matrix, b: Matrix, block: tuple[int, int]) -> Verdict:
    """Judge the buffer that held C = A B; `block` is (block_m, block_n), whose edges are looked at closely.

    An element is right when |C - reference| <= 16 eps |row of A| |column of B|, eps = 2^-23, with the
    reference in float64. Why: a float32 sum of k products, each step rounded by at most eps/2 of the
    partial sum, is off by at most k eps/2 |row| |column|, but for operands with random signs the partial
    sums grow like sqrt(j) and the roundings cancel: the standard deviation of the error is
    eps/2 * k s^2 / sqrt(6), with s^2 the mean square of an element, and |row| |column| is about k s^2. So
    it is about 0.2 eps |row| |column| whatever k is (compare Higham and Mary, "A new approach to
    probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019), and 16 eps is 78 standard
    deviations. For k = 1 one rounding of at most eps/2 is left. A missing term is about s^2, more than
    16 eps k s^2 for every k below 500,000.

    Beyond FULL_REFERENCE_FLOP the same is asked of 64 rows and 64 columns, edges among them, and of all other
    elements in sums: with the columns cut into 64 parts, |C' x - A (B' x)| <= 16 eps |row of A| |B'| for
    every part, a random x of signs, and |B'| the Frobenius norm of the part (Freivalds' check, with the error
    of a part's sum in place of an element's). A sum of w elements allows sqrt(w) times the error of one:
    what is a few times that is seen, such as a missing product of average size in one element as long as
    16 eps k sqrt(w) < 1 (k = 16384 and n = 16384: 0.5); a smaller error in one element alone is not, unless it
    is in one of the 64 rows or columns. Two errors of one size in the same part of a row escape where their
    signs happen to cancel, which is every second time.
    """
    m, n = a.shape[0], b.shape[1]
    outside = written_outside(buffer)
    if outside:
        return Verdict(math.nan, outside)
    words = buffer[GUARD:-GUARD].reshape(m, n)
    unwritten = _unwritten(words)
    if unwritten:
        return Verdict(math.nan, unwritten)
    c = words.view(np.float32)
    norms = (norms_along(a, 1), norms_along(b, 0))
    if 2 * m * n * a.shape[1] <= FULL_REFERENCE_FLOP:
        return _compare(c, a, b, norms, np.arange(m), np.arange(n))
    rows, columns = _picked(m, block[0]), _picked(n, block[1])
    for verdict in (
        by_rows := _compare(c, a, b, norms, rows, np.arange(n)),
        by_columns := _compare(c, a, b, norms, np.arange(m), columns),
    ):
        if verdict.failure:
            return verdict
    return Verdict(max(by_rows.error, by_columns.error), _freivalds(c, a, b, norms))


def written_outside(buffer: Matrix) -> str | None:
    """What is wrong with the guard bands of a buffer, in one line; None if nothing."""
    for name, band in (("before", buffer[:GUARD]), ("after", buffer[-GUARD:])):
        touched = np.flatnonzero(band != POISON)
        if touched.size:
            distance = GUARD - touched[-1] if name == "before" else touched[0] + 1
            return f"wrong result: {touched.size} elements written {name} C, the nearest {distance} {name} it"
    return None


def _unwritten(words: Matrix) -> str | None:
    rows, columns = _first_where(words == POISON)
    if rows is None:
        return None
    missing = int(np.count_nonzero(words == POISON))
    return f"wrong result: {missing} of {words.size} elements never written, the first at row {rows}, column {columns}"


def _compare(c: Matrix, a: Matrix, b: Matrix, norms: tuple[Matrix, Matrix], rows: Matrix, columns: Matrix) -> Verdict:
    """The verdict over the given rows and columns, a few rows at a time."""
    worst = 0.0
    part_of_b = b if len(columns) == b.shape[1] else b[:, columns]
    for some in _slices(len(rows), len(columns)):
        picked = rows[some]
        expected = product(a[picked], part_of_b)
        got = c[picked] if len(columns) == c.shape[1] else c[np.ix_(picked, columns)]
        difference = np.abs(got - expected)
        scale = np.outer(norms[0][picked], norms[1][columns])
        row, column = _first_where(~(difference <= TOLERANCE * scale))
        if row is not None:
            place = f"row {picked[row]}, column {columns[column]}"
            values = f"got {got[row, column]:.9g}, expected {expected[row, column]:.9g}"
            return Verdict(math.nan, f"wrong result at {place}: {values}")
        worst = max(worst, float(np.max(difference / np.where(scale > 0, scale, 1))))
    return Verdict(worst)


def _freivalds(c: Matrix, a: Matrix, b: Matrix, norms: tuple[Matrix, Matrix]) -> str | None:
    """What is wrong with the sums of parts of rows, under random signs; None if nothing."""
    n = b.shape[1]
    signs = np.random.default_rng().choice((-1.0, 1.0), size=n)
    width = -(-n // SAMPLED)
    starts = np.arange(0, n, width)
    got, expected = _signed_sums(c, signs, starts), product(a, _signed_sums(b, signs, starts))
    allowed = TOLERANCE * np.outer(norms[0], np.sqrt(np.add.reduceat(norms[1] ** 2, starts)))
    row, part = _first_where(~(np.abs(got - expected) <= allowed))
    if row is None:
        return None
    place = f"row {row}, columns {starts[part]} to {min(starts[part] + width, n) - 1}"
    values = f"their signed sum is {got[row, part]:.9g}, expected {expected[row, part]:.9g}"
    return f"wrong result in {place}: {values}"


def _signed_sums(matrix: Matrix, signs: Matrix, starts: Matrix) -> Matrix:
    """The sums of each row's parts, which begin at `starts`, in float64, a few rows at a time."""
    with np.errstate(invalid="ignore"):  # infinities may meet; the sum is NaN then, and so not right
        parts = [np.add.reduceat(matrix[some] * signs, starts, axis=1) for some in _slices(*matrix.shape)]
    return np.concatenate(parts)


def product(a: Matrix, b: Matrix) -> Matrix:
    """A B in float64, converting only a part of the operands at a time."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for some in _slices(a.shape[1], max(a.shape[0], b.shape[1])):
        total += a[:, some].astype(np.float64) @ b[some].astype(np.float64)
    return total


def _picked(size: int, block: int) -> Matrix:
    """SAMPLED indices: the first, the last, those at edges of blocks, and random ones."""
    last_block = (size - 1) // block * block
    edges = [0, block - 1, block, last_block - 1, last_block, size - 1]
    picked = {edge for edge in edges if 0 <= edge < size}
    generator = np.random.default_rng()
    while len(picked) < min(SAMPLED, size):
        picked.add(int(generator.integers(size)))
    return np.array(sorted(picked))


def norms_along(matrix: Matrix, axis: int) -> Matrix:
    """The Euclidean norm of each row (axis 1) or column (axis 0), float64."""
    squares: Matrix = np.einsum("ij,ij->i" if axis == 1 else "ij,ij->j", matrix, matrix, dtype=np.float64)
    return np.sqrt(squares)


def _slices(count: int, width: int) -> Iterator[slice]:
    """Cuts `count` lines of `width` elements into parts of at most CHUNK elements, at least a line each."""
    step = max(1, CHUNK // max(1, width))
    return (slice(start, start + step) for start in range(0, count, step))


def _first_where(condition: Matrix) -> tuple[int, int] | tuple[None, None]:
    at = int(np.argmax(condition))
    row, column = divmod(at, condition.shape[1])
    return (row, column) if condition[row, column] else (None, None)
