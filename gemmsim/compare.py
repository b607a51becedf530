"""Predictions held against measurements: errors of time, agreement of order, equality of counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import kernel as kernel_named
from gemmsim.notebook import as_table
from gemmsim.predict import Prediction, predict
from gemmsim.problem import Problem
from gemmsim.record_files import latest
from gemmsim.records import Point, Record
from gemmsim.traffic import traffic

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True)
class ComparedPoint:
    """One measured point and what the model says of it. `error` is predicted over measured, minus 1."""

    record: Record
    prediction: Prediction

    @property
    def point(self) -> Point:
        """What was measured."""
        return self.record.point

    @cached_property
    def predicted_s(self) -> float:
        """Predicted seconds."""
        return float(self.prediction.time_s)

    @property
    def measured_s(self) -> float:
        """Median of the measured seconds."""
        assert self.record.median_s is not None, "only records with a time are compared"
        return self.record.median_s

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1: negative where the prediction is too fast."""
        return self.predicted_s / self.measured_s - 1

    @property
    def flop_per_s(self) -> float:
        """Useful FLOP, 2mnk, a second, as measured."""
        return float(self.point.problem.flop_per_s(self.measured_s))

    @property
    def peak_fraction(self) -> float:
        """The measured rate over the FP32 peak of the device."""
        return self.flop_per_s / self.prediction.device.fp32_flop_per_s


@dataclass(frozen=True)
class Pick:
    """The point of one problem that is predicted fastest, and the one measured fastest, `of` so many."""

    picked: ComparedPoint
    best: ComparedPoint
    of: int

    @property
    def regret(self) -> float:
        """Measured time of the pick over the best measured, minus 1."""
        return self.picked.measured_s / self.best.measured_s - 1


@dataclass(frozen=True)
class CounterAgreement:
    """How often a count of the model equals the hardware's, and how far off the worst is."""

    equal: int
    total: int
    worst_relative: float


@dataclass(frozen=True)
class Comparison:
    """All measured points of one device beside their predictions. `failed` have no time; `skipped` says of
    which records there is no prediction, and why."""

    device: Device
    points: tuple[ComparedPoint, ...]
    counters: Mapping[str, CounterAgreement]
    failed: tuple[Record, ...]
    skipped: tuple[str, ...] = ()

    _repr_html_ = as_table

    @property
    def errors(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Signed relative errors, one a point."""
        return np.array([point.error for point in self.points])

    @property
    def mape(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.errors).mean())

    @property
    def max_error(self) -> float:
        """The largest absolute relative error."""
        return float(np.abs(self.errors).max())

    @property
    def mean_error(self) -> float:
        """Mean of the signed errors: negative where predictions are too fast."""
        return float(self.errors.mean())

    @property
    def kendall_tau(self) -> float:
        """Agreement of the order of predicted and of measured times, over all points."""
        return kendall_tau([p.predicted_s for p in self.points], [p.measured_s for p in self.points])

    @property
    def tau_within_problems(self) -> float:
        """Mean of Kendall's tau among the points of one problem, over problems with three points or more
        that are not all predicted or all measured alike: how well configurations are ordered when the size
        is given. NaN where there is no such problem."""
        taus = [one.kendall_tau for one in self.by_problem().values() if len(one.points) >= 3]
        defined = [tau for tau in taus if not math.isnan(tau)]
        return float(np.mean(defined)) if defined else math.nan

    def picks(self) -> dict[Problem, Pick]:
        """What the model picks for each problem. Of several points predicted alike the slowest counts."""
        found = {}
        for problem, one in self.by_problem().items():
            shortest_s = min(point.predicted_s for point in one.points)
            alike = [point for point in one.points if point.predicted_s <= shortest_s * (1 + 1e-9)]
            picked = max(alike, key=lambda point: point.measured_s)
            found[problem] = Pick(picked, min(one.points, key=lambda point: point.measured_s), len(one.points))
        return found

    def by_kernel(self) -> dict[str, Comparison]:
        """The same, for each kernel that has a point, in the order of first appearance."""
        return self._grouped(lambda point: point.point.kernel)

    def by_problem(self) -> dict[Problem, Comparison]:
        """The same, for each problem that has a point, in the order of first appearance."""
        return self._grouped(lambda point: point.point.problem)

    def _grouped(self, key: Callable[[ComparedPoint], Key]) -> dict[Key, Comparison]:
        groups: dict[Key, list[ComparedPoint]] = {}
        for point in self.points:
            groups.setdefault(key(point), []).append(point)
        return {of: Comparison(self.device, tuple(points), {}, ()) for of, points in groups.items()}


def compare(records: Iterable[Record], device: Device) -> Comparison:
    """Predict every record of `device` and hold the predictions against it; of a point measured twice
    the last record with a result counts. The compiler's register counts are taken from the records.

    Raises InputError when no record of that device has a time.
    """
    of_device = [record for record in latest(records) if record.device == device.name]
    done = [record for record in of_device if record.ok]
    if not done:
        raise InputError(f"no measured point of {device.name} among the records")
    points, skipped = [], []
    for record in done:
        point = record.point
        registers = record.resources["registers_per_thread"] if record.resources else None
        try:
            prediction = predict(point.problem, kernel_named(point.kernel), point.tiling, device, registers)
            if not prediction.occupancy.launches:
                raise InputError(str(prediction.occupancy.reason))
            points.append(ComparedPoint(record, prediction))
        except InputError as error:
            skipped.append(f"{point}: {error}")
    if not points:
        raise InputError(f"no prediction for any record: {skipped[0]}")
    failed = tuple(record for record in of_device if not record.ok)
    counters = _counter_agreement(point.record for point in points)
    return Comparison(device, tuple(points), counters, failed, tuple(skipped))


def counter_differences(record: Record) -> dict[str, tuple[int, int]]:
    """{name: (model, hardware)} for every counter of the record that the model predicts."""
    point = record.point
    model = traffic(point.problem, kernel_named(point.kernel), point.tiling).counters
    counted = record.counters or {}
    return {name: (expected, counted[name]) for name, expected in model.items() if name in counted}


def _counter_agreement(records: Iterable[Record]) -> dict[str, CounterAgreement]:
    pairs: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        if record.counters:
            for name, pair in counter_differences(record).items():
                pairs.setdefault(name, []).append(pair)
    return {
        name: CounterAgreement(
            sum(model == hardware for model, hardware in of_name),
            len(of_name),
            max(abs(model - hardware) / max(hardware, 1) for model, hardware in of_name),
        )
        for name, of_name in pairs.items()
    }


def kendall_tau(first: Any, second: Any) -> float:
    """Kendall's tau-b of two sequences of the same length; NaN where one of them is constant.

    Pairs that agree in order, less those that disagree, over the geometric mean of the pairs untied in
    each (Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945). Takes n^2 steps.
    """
    x, y = np.asarray(first, float), np.asarray(second, float)
    balance = untied_x = untied_y = 0
    for i in range(len(x) - 1):
        sign_x, sign_y = np.sign(x[i + 1 :] - x[i]), np.sign(y[i + 1 :] - y[i])
        balance += int((sign_x * sign_y).sum())
        untied_x += int(np.count_nonzero(sign_x))
        untied_y += int(np.count_nonzero(sign_y))
    return balance / float(np.sqrt(float(untied_x) * untied_y)) if untied_x and untied_y else math.nan
