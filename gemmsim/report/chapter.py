"""What the records of one device say: the points that answer, and the ladder at one size."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from gemmsim.compare import ComparedPoint, Comparison, compare
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.ladder import Rung, ladder
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import latest
from gemmsim.records import Record


@dataclass(frozen=True)
class Chapter:
    """The records of one device. `comparison` is None where no point has a time; a rung is a kernel in its fastest
    measured tiling, or in its default one where none was measured."""

    device: Device
    comparison: Comparison | None
    failed: tuple[Record, ...]
    problem: Problem
    rungs: tuple[Rung, ...]

    @property
    def fastest(self) -> list[ComparedPoint]:
        """The fastest measured point of each size, the smallest size first."""
        return fastest(self.comparison.points) if self.comparison else []

    @property
    def tilings(self) -> str:
        """Which tilings the rungs have."""
        measured = [rung.measured_s is not None for rung in self.rungs]
        if all(measured):
            return "each kernel in its fastest measured tiling"
        if not any(measured):
            return "each kernel in its default tiling"
        return "each kernel in its fastest measured tiling, or its default one where none was measured"

    @property
    def records(self) -> list[Record]:
        """The records behind it: with a time first, then those without."""
        return (
            [*(point.record for point in self.comparison.points), *self.failed] if self.comparison else [*self.failed]
        )

    @property
    def counts(self) -> tuple[int, int]:
        """(equal, all) counts of the model that hardware counted too."""
        agreements = self.comparison.counters.values() if self.comparison else ()
        return sum(each.equal for each in agreements), sum(each.total for each in agreements)


def chapter(records: Iterable[Record], device: Device) -> Chapter:
    """What there is to say of the records of a device; of a point measured twice the later one counts.

    Raises InputError when none of them is of this device.
    """
    own = [record for record in latest(records) if record.device == device.name]
    if not own:
        raise InputError(f"no record of {device.name} among the records")
    comparison = compare(own, device) if any(record.ok for record in own) else None
    failed = tuple(record for record in own if not record.ok)
    points = comparison.points if comparison else ()
    problem = _most_telling([point.point.problem for point in fastest(points, by_kernel=True)]) or max(
        (record.point.problem for record in own), key=lambda problem: int(problem.flop)
    )
    return Chapter(device, comparison, failed, problem, tuple(_rungs(problem, points, device)))


def fastest(points: Iterable[ComparedPoint], by_kernel: bool = False) -> list[ComparedPoint]:
    """The fastest measured point of each problem, or of each problem and kernel, the smallest size first."""

    def group(point: ComparedPoint) -> tuple[Any, ...]:
        problem = point.point.problem
        return int(problem.flop), str(problem), point.point.kernel if by_kernel else ""

    grouped = groupby(sorted(points, key=group), key=group)
    return [min(of_group, key=lambda point: point.measured_s) for _, of_group in grouped]


def _most_telling(problems: Sequence[Problem]) -> Problem | None:
    """The problem that most kernels were measured at, the largest of several."""
    return max(problems, key=lambda problem: (problems.count(problem), int(problem.flop)), default=None)


def _rungs(problem: Problem, points: Iterable[ComparedPoint], device: Device) -> Iterator[Rung]:
    measured = {p.point.kernel: p for p in fastest((p for p in points if p.point.problem == problem), by_kernel=True)}
    for kernel, tiling in ladder():
        point = measured.get(kernel.name)
        try:
            if point:
                rung = Rung(kernel, point.point.tiling, point.prediction, point.measured_s)
            else:
                rung = Rung(kernel, tiling, predict(problem, kernel, tiling, device), None)
            _ = rung.traffic  # counted here, where a refusal means something
        except InputError:
            continue  # a size or device that the kernel does not take has no rung
        yield rung
