"""Every kernel in tilings of every kind at random shapes on the present GPU, and what judges them, and cuBLAS."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

from campaigns.shapes import LARGEST, SHAPES, Outcome, shapes, tilings, verified
from gemmsim.errors import MachineError
from gemmsim.gpu.cublas import Cublas, loaded
from gemmsim.gpu.reference import Judge
from gemmsim.gpu.run import Buffers
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.verify import POISON, TOLERANCE, random_operands, verify
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Point

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # PyCUDA's own warnings are not ours

SIZES = [(1, 1, 1), (33, 70, 5), (130, 67, 300), (515, 1001, 333), (1, 640, 2000)]


@pytest.fixture(scope="module")
def gpu():
    with Gpu() as found:
        yield found


@pytest.fixture(scope="module")
def judge(gpu) -> Judge:
    return Judge(gpu)


@pytest.fixture(scope="module")
def outcomes(gpu) -> dict[str, list[Outcome]]:
    """What became of every launch at every random shape, by kernel."""
    found = defaultdict(list)
    for outcome in verified(gpu, shapes()):
        found[outcome.point.kernel].append(outcome)
    return found


def buffers_of(gpu, problem, a, b) -> Buffers:
    return Buffers(gpu, Point(problem, "naive", KERNELS["naive"].tiling()), a, b)


@pytest.mark.parametrize("size", SIZES)
def test_the_reference_is_numpys_product(gpu, judge, size):
    problem = Problem(*size)
    a, b = random_operands(problem, 3)
    with buffers_of(gpu, problem, a, b) as buffers, judge.reference(problem, buffers, a, b) as reference:
        np.testing.assert_allclose(reference.product(), a.astype(float) @ b.astype(float), rtol=0, atol=1e-11)


@pytest.mark.parametrize("word", [None, POISON, 0x7FC00000, 0x7F800000, 0x3F800000])
@pytest.mark.parametrize("place", ["first", "middle", "last", "before", "after"])
def test_the_judge_sees_what_the_host_sees(gpu, judge, word, place):
    problem = Problem(130, 67, 300)
    a, b = random_operands(problem, 4)
    c = (a.astype(float) @ b.astype(float)).astype(np.float32)
    last = problem.m * problem.n - 1
    at = {"first": 0, "middle": last // 2, "last": last, "before": -1, "after": last + 1}[place]
    with buffers_of(gpu, problem, a, b) as buffers, judge.reference(problem, buffers, a, b) as reference:
        buffers.poison_c()
        gpu.driver.memcpy_htod(buffers.c, c)
        if word is not None:
            gpu.driver.memcpy_htod(buffers.c + 4 * at, np.array([word], np.uint32))
        ours, theirs = reference.verdict(), verify(buffers.downloaded_c(), a, b, (8, 32))
    assert ours.failure == theirs.failure
    assert (ours.failure is None) == (word is None or (word == POISON and place in ("before", "after")))
    assert ours.error == pytest.approx(theirs.error, rel=1e-6, nan_ok=True)


def test_the_shapes_are_many_and_all_different():
    found = shapes()
    assert len(found) == SHAPES >= 200
    sizes = [size for problem in found for size in (problem.m, problem.n, problem.k)]
    assert len(set(sizes)) == len(sizes)
    assert 1 <= min(sizes) <= 30
    assert LARGEST - 30 <= max(sizes) <= LARGEST


@pytest.mark.parametrize("name", KERNELS)
def test_every_tiling_is_right_at_every_shape(outcomes, gpu, name):
    if not KERNELS[name].runs_on(gpu.facts.capability):
        pytest.skip(f"{name} needs compute capability {KERNELS[name].least_capability}")
    found = outcomes[name]
    assert [f"{each.point}: {each.failure}" for each in found if each.failure] == []
    assert max(each.error for each in found) <= TOLERANCE / 4
    assert len({each.point.problem for each in found}) >= 200
    assert len(found) == len(tilings(KERNELS[name])) * SHAPES


@pytest.mark.parametrize("size", SIZES)
def test_cublas_is_right(gpu, judge, size):
    try:
        library = loaded()
    except MachineError as error:
        pytest.skip(str(error))
    problem = Problem(*size)
    a, b = random_operands(problem, 5)
    with (
        Cublas(gpu, library) as cublas,
        buffers_of(gpu, problem, a, b) as buffers,
        judge.reference(problem, buffers, a, b) as reference,
    ):
        buffers.poison_c()
        cublas.multiply(problem, buffers.a, buffers.b, buffers.c)
        verdict = reference.verdict()
    assert verdict.failure is None
    assert verdict.error <= TOLERANCE / 4
