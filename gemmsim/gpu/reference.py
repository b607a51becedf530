"""Many results of one problem judged where they are: the float64 product and the comparison both run on the GPU.

`gemmsim.gpu.verify` does the same on the host, with the same bound and the same words; it takes a result and
needs no GPU. The product here (`data/reference.cu`) shares nothing with the kernels that it judges, and its tests hold
it against NumPy's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.device import DATA, Capability, capability
from gemmsim.gpu.compile import Job, compile_kernel
from gemmsim.gpu.run import Buffers
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.verify import GUARD_BYTES, TOLERANCE, Matrix, Verdict, norms_along, written_outside
from gemmsim.kernels import Kernel, Launch
from gemmsim.problem import Problem, ceil_div

SIDE, ROWS = 32, 8
"""A block of `multiply` computes SIDE x SIDE elements with ROWS x SIDE threads, as in `data/reference.cu`."""
JUDGES = 256
"""Threads of a block of `judge`; each goes through many elements."""
JUDGING_BLOCKS_PER_SM = 4
NONE = 2**64 - 1
"""The place of the first of what was not found."""


class _Program(Kernel):
    """A source that `compile_kernel` takes."""

    @property
    def source(self) -> Path:
        return DATA / f"{self.name}.cu"


def job(of: Capability) -> Job:
    """The compilation that judging takes on GPUs of a compute capability."""
    return Job(_Program("reference", "the product in float64"), Launch(1, SIDE * ROWS, 0, {}), of)


@dataclass(frozen=True)
class Findings:
    """What `judge` finds, as in `data/reference.cu`: the largest error, and of elements that are wrong or were never
    written the first, counted along rows; NONE where there is none."""

    worst: float
    first_wrong: int
    unwritten: int
    first_unwritten: int

    def verdict(self, problem: Problem, value_at: Callable[[int], tuple[float, float]]) -> Verdict:
        """What they mean; `value_at` gives what was got and what was expected at an element."""
        if self.unwritten:
            row, column = divmod(self.first_unwritten, problem.n)
            return Verdict(
                math.nan,
                f"wrong result: {self.unwritten} of {problem.m * problem.n} elements never written,"
                f" the first at row {row}, column {column}",
            )
        if self.first_wrong != NONE:
            row, column = divmod(self.first_wrong, problem.n)
            got, expected = value_at(self.first_wrong)
            return Verdict(
                math.nan, f"wrong result at row {row}, column {column}: got {got:.9g}, expected {expected:.9g}"
            )
        return Verdict(self.worst)


class Judge:
    """Judges results; made once for a GPU whose context is current. Raises MachineError where there is no compiler."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        of = job(capability(gpu.facts.capability))
        cubin = compile_kernel(of.kernel, of.launch, of.capability)
        module = gpu.driver.module_from_buffer(cubin.path.read_bytes())
        self._multiply, self._judge = module.get_function("multiply"), module.get_function("judge")
        self._multiply.prepare("PPPiii")
        self._judge.prepare("PPPPdiiP")

    def reference(self, problem: Problem, buffers: Buffers, a: Matrix, b: Matrix) -> Reference:
        """The float64 product of the operands, which `buffers` holds on the GPU and `a` and `b` here."""
        return Reference(self, problem, buffers, (norms_along(a, 1), norms_along(b, 0)))

    def multiply(self, problem: Problem, buffers: Buffers, c: int) -> None:
        """Starts the product, to be left at the address `c`."""
        grid = (ceil_div(problem.n, SIDE), ceil_div(problem.m, SIDE))
        self._multiply.prepared_call(grid, (SIDE, ROWS, 1), buffers.a, buffers.b, c, problem.m, problem.n, problem.k)

    def compare(self, problem: Problem, c: int, expected: int, norms: tuple[int, int], findings: int) -> None:
        """Starts the comparison of two products at these addresses, to leave its findings at the last."""
        blocks = min(ceil_div(problem.m * problem.n, JUDGES), JUDGING_BLOCKS_PER_SM * self.gpu.facts.sms)
        self._judge.prepared_call(
            (blocks, 1), (JUDGES, 1, 1), c, expected, *norms, TOLERANCE, problem.m, problem.n, findings
        )


class Reference:
    """The float64 product of one problem on the GPU; freed at the end of `with`."""

    def __init__(self, judge: Judge, problem: Problem, buffers: Buffers, norms: tuple[Matrix, Matrix]) -> None:
        self._judge, self._driver, self._problem, self._buffers = judge, judge.gpu.driver, problem, buffers
        self._held: list[Any] = []
        self._norms = (self._uploaded(norms[0]), self._uploaded(norms[1]))
        self._start = np.array([0, NONE, 0, NONE], np.uint64)
        self._findings = self._uploaded(self._start)
        self._expected = self._allocated(8 * problem.m * problem.n)
        judge.multiply(problem, buffers, self._expected)

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *_: object) -> None:
        while self._held:
            self._held.pop().free()

    def product(self) -> Matrix:
        """The float64 product, m x n."""
        words = np.empty((self._problem.m, self._problem.n))
        self._driver.memcpy_dtoh(words, self._expected)
        return words

    def verdict(self) -> Verdict:
        """Whether C, with its guard bands, is right: as `gemmsim.gpu.verify.verify`, every element of any size."""
        outside = written_outside(self._guards())
        if outside:
            return Verdict(math.nan, outside)
        self._driver.memcpy_htod(self._findings, self._start)
        self._judge.compare(self._problem, self._buffers.c, self._expected, self._norms, self._findings)
        words = np.empty_like(self._start)
        self._driver.memcpy_dtoh(words, self._findings)
        worst, *rest = words
        return Findings(float(worst.view(np.float64)), *map(int, rest)).verdict(self._problem, self._value_at)

    def _value_at(self, element: int) -> tuple[float, float]:
        got, expected = np.empty(1, np.float32), np.empty(1)
        self._driver.memcpy_dtoh(got, self._buffers.c + 4 * element)
        self._driver.memcpy_dtoh(expected, self._expected + 8 * element)
        return float(got[0]), float(expected[0])

    def _guards(self) -> Matrix:
        """The guard bands before and after C, one behind the other."""
        bands = np.empty((2, GUARD_BYTES // 4), np.uint32)
        after = self._buffers.c + 4 * self._problem.m * self._problem.n
        for band, start in zip(bands, (self._buffers.c - GUARD_BYTES, after), strict=True):
            self._driver.memcpy_dtoh(band, start)
        return bands.reshape(-1)

    def _uploaded(self, array: Matrix) -> int:
        address = self._allocated(array.nbytes)
        self._driver.memcpy_htod(address, array)
        return address

    def _allocated(self, size_bytes: int) -> int:
        self._held.append(self._driver.mem_alloc(size_bytes))
        return int(self._held[-1])
