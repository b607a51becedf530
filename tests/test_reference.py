"""Results judged on a GPU, here a made-up one: the same verdicts, in the same words, as on the host."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fake_gpu import FakeGpu
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.gpu import reference
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.reference import NONE, Findings, Judge
from gemmsim.gpu.run import Buffers
from gemmsim.gpu.verify import GUARD_BYTES, POISON, random_operands, verify
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Point

TILING = KERNELS["naive"].tiling()


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_compiled(tmp_path_factory):
    path = tmp_path_factory.mktemp("cubins") / "reference.cubin"
    path.write_bytes(b"cubin")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "compile_kernel", lambda *_: Cubin(path, 32, 0, 0, 0, "nvcc 13.0"))
        yield


class Bench:
    """One problem on a made-up GPU, with the right result in C."""

    def __init__(self, m, n, k, seed=1):
        self.gpu, self.problem = FakeGpu(), Problem(m, n, k)
        self.a, self.b = random_operands(self.problem, seed)
        self.buffers = Buffers(self.gpu, Point(self.problem, "naive", TILING), self.a, self.b)
        self.reference = Judge(self.gpu).reference(self.problem, self.buffers, self.a, self.b)
        self.buffers.poison_c()
        self.gpu.gemm(self.buffers.a, self.buffers.b, self.buffers.c, m, n, k)

    def write(self, element: int, word: int) -> None:
        """Puts a word where an element of C, or of what surrounds it, is."""
        self.gpu.words(self.buffers.c + 4 * element, 1)[:] = word


def bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))


def test_a_right_result_has_its_error():
    bench = Bench(20, 30, 7)
    verdict = bench.reference.verdict()
    assert verdict.failure is None
    assert 0 < verdict.error < 1e-7
    np.testing.assert_allclose(bench.reference.product(), bench.a.astype(float) @ bench.b.astype(float))


@given(
    m=st.integers(1, 9), n=st.integers(1, 9), k=st.integers(1, 5), seed=st.integers(0, 99),
    place=st.floats(0, 1, exclude_max=True), kind=st.sampled_from(["right", "wrong", "nan", "infinite", "unwritten"]),
)  # fmt: skip
@pytest.mark.property
def test_the_verdict_is_that_of_the_host(m, n, k, seed, place, kind):
    bench = Bench(m, n, k, seed)
    element = int(place * m * n)
    old = float(bench.gpu.floats(bench.buffers.c, m * n)[element])
    words = {"wrong": bits(old + 1e-3), "nan": 0x7FC00000, "infinite": bits(math.inf), "unwritten": POISON}
    if kind in words:
        bench.write(element, words[kind])
    ours = bench.reference.verdict()
    theirs = verify(bench.buffers.downloaded_c(), bench.a, bench.b, (8, 32))
    assert ours.failure == theirs.failure
    assert (ours.failure is None) == (kind == "right")
    assert ours.error == pytest.approx(theirs.error, nan_ok=True)


@pytest.mark.parametrize(
    ("at", "words"),
    [
        (-1, "wrong result: 1 elements written before C, the nearest 1 before it"),
        (-(GUARD_BYTES // 4), "wrong result: 1 elements written before C, the nearest 1024 before it"),
        (600, "wrong result: 1 elements written after C, the nearest 1 after it"),
        (600 + GUARD_BYTES // 4 - 1, "wrong result: 1 elements written after C, the nearest 1024 after it"),
    ],
)
def test_what_is_written_outside_c_is_found(at, words):
    bench = Bench(20, 30, 7)
    bench.write(at, 0)
    assert bench.reference.verdict().failure == words


def test_a_verdict_leaves_nothing_behind_for_the_next():
    bench = Bench(20, 30, 7)
    right = bench.reference.verdict()
    old = int(bench.gpu.words(bench.buffers.c, 1)[0])
    bench.write(0, POISON)
    assert bench.reference.verdict().failure is not None
    bench.write(0, old)
    assert bench.reference.verdict() == right


def test_memory_is_given_back():
    bench = Bench(3, 4, 5)
    with bench.buffers, bench.reference:
        assert bench.gpu.live == 7
    assert bench.gpu.live == 0


def test_an_element_never_written_is_said_before_one_that_is_wrong():
    found = Findings(0.0, 3, 2, 7)
    assert found.verdict(Problem(4, 5, 6), lambda element: (0.0, 0.0)).failure == (
        "wrong result: 2 of 20 elements never written, the first at row 1, column 2"
    )
    assert Findings(0.5, NONE, 0, NONE).verdict(Problem(4, 5, 6), lambda element: (0.0, 0.0)).error == 0.5
