"""Kernels beside cuBLAS on one problem: all verified on the same operands, then timed in turn."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.cublas import Cublas
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.reference import Judge, Reference
from gemmsim.gpu.run import Buffers, Launcher, LoadedKernel, flusher, load
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.verify import Verdict, fresh_seed, random_operands
from gemmsim.kernels import kernel as kernel_named
from gemmsim.problem import Problem
from gemmsim.records import Failure, Point, Record

WARM_UP_ROUNDS = 3
LEAST_ROUNDS, MOST_ROUNDS, ROUNDS_S = 15, 100, 2.5
"""Rounds of a problem: 100, or fewer, down to 15, once they have taken 2.5 s."""


class Versus:
    """Measures on a GPU whose context is current, as the device of this name."""

    def __init__(self, gpu: Gpu, cublas: Cublas, device_name: str) -> None:
        self._gpu, self._cublas, self._device_name, self._judge = gpu, cublas, device_name, Judge(gpu)

    def records(self, problem: Problem, cubins: Mapping[Point, Cubin]) -> list[Record]:
        """The records of the points, which are all of this problem.

        Each has the samples of its turns, and under "cublas" in its environment those of cuBLAS in the same rounds.
        L2 is flushed before every sample. Before and after, every result is verified; those that are wrong have
        failed, and where that shows at once they are not timed. Raises MachineError where cuBLAS itself is wrong.
        """
        seed = fresh_seed()
        a, b = random_operands(problem, seed)
        with (
            Buffers(self._gpu, next(iter(cubins)), a, b) as buffers,
            self._judge.reference(problem, buffers, a, b) as reference,
        ):
            library = self._launcher(problem, buffers)
            of_library = verdict(library, buffers, reference)
            if of_library.failure:
                raise MachineError(f"cuBLAS {self._cublas.version}, {problem}: {of_library.failure}")
            kernels = {point: self._loaded(point, cubin) for point, cubin in cubins.items()}
            starts = {point: buffers.launcher(kernel) for point, kernel in kernels.items()}
            verdicts = {point: verdict(start, buffers, reference) for point, start in starts.items()}
            right = [point for point in starts if not verdicts[point].failure]
            with flusher(self._gpu, library, True) as before:
                of_library_s, *samples_s = in_turn([library, *(starts[point] for point in right)], before)
            clocks = under_load(self._gpu.facts, lambda: library()())
            for point in right:
                verdicts[point] = worse(verdicts[point], verdict(starts[point], buffers, reference))
        common = software(self._gpu.facts) | clocks | {"seed": seed, "l2_flushed": True}
        common["cublas"] = cublas_facts(self._cublas.version, of_library_s, of_library.error)
        timed = dict(zip(right, samples_s, strict=True))
        return [
            self._record(
                point, kernels[point], verdicts[point], timed.get(point, []), common | {"compiler": cubin.compiler}
            )
            for point, cubin in cubins.items()
        ]

    def _loaded(self, point: Point, cubin: Cubin) -> LoadedKernel:
        return load(self._gpu, cubin, kernel_named(point.kernel).launch(point.problem, point.tiling))

    def _launcher(self, problem: Problem, buffers: Buffers) -> Launcher:
        """What launches cuBLAS between two events, as `Buffers.launcher` does a kernel."""
        event = self._gpu.driver.Event

        def launch() -> Callable[[], float]:
            start, end = event(), event()
            start.record()
            self._cublas.multiply(problem, buffers.a, buffers.b, buffers.c)
            end.record()

            def wait() -> float:
                end.synchronize()
                return float(start.time_till(end)) * 1e-3

            return wait

        return launch

    def _record(
        self, point: Point, kernel: LoadedKernel, found: Verdict, samples_s: list[float], environment: dict[str, Any]
    ) -> Record:
        if found.failure:
            return Record.failed(point, self._device_name, Failure(found.failure), environment)
        return Record(
            point,
            self._device_name,
            "ok",
            resources=kernel.resources,
            samples_s=tuple(samples_s),
            median_s=round(statistics.median(samples_s), 10),
            verification_error=found.error,
            environment=environment,
        )


def verdict(start: Launcher, buffers: Buffers, reference: Reference) -> Verdict:
    """What is to be said of what a launch leaves in poisoned memory."""
    buffers.poison_c()
    start()()
    return reference.verdict()


def worse(one: Verdict, other: Verdict) -> Verdict:
    """The one that failed, or else has the larger error."""
    return one if one.failure or (not other.failure and one.error > other.error) else other


def enough(rounds: int, taken_s: float) -> bool:
    """Whether so many rounds that took so long together will do."""
    return rounds >= MOST_ROUNDS or (rounds >= LEAST_ROUNDS and taken_s >= ROUNDS_S)


def in_turn(
    starts: Sequence[Launcher], before: Callable[[], object], now_s: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """The samples of each, in seconds: rounds in which all have their turn, after `before`, in an order drawn anew."""
    order = list(range(len(starts)))
    samples_s: list[list[float]] = [[] for _ in starts]
    shuffle = random.Random(0).shuffle
    for _ in range(WARM_UP_ROUNDS):
        for start in starts:
            before()
            start()()
    began_s = now_s()
    while not enough(len(samples_s[0]), now_s() - began_s):
        shuffle(order)
        for number in order:
            before()
            samples_s[number].append(round(float(starts[number]()()), 9))
    return samples_s


def cublas_facts(version: str, samples_s: Sequence[float], error: float) -> dict[str, Any]:
    """What a record says of cuBLAS."""
    return {
        "version": version,
        "function": "cublasSgemm in its default math mode: no TF32, no emulation",
        "samples_s": list(samples_s),
        "median_s": round(statistics.median(samples_s), 10),
        "verification_error": error,
    }
