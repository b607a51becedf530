"""Predictions held against measurements: errors of time, agreement of order, equality of counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np

from gemmsim.compare.error_bars import ErrorBar, error_bar
from gemmsim.compare.ranking import kendall_tau
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.held_out import held_out
from gemmsim.kernels import kernel as kernel_named
from gemmsim.notebook import as_table
from gemmsim.predict import Prediction
from gemmsim.problem import Problem
from gemmsim.record_files import latest
from gemmsim.records import Point, Record
from gemmsim.roofline import floor_s
from gemmsim.routes import analytic_s, predicted_time, route_named, route_of
from gemmsim.traffic import traffic
from gemmsim.units import duration

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
    def route(self) -> str:
        """Which route the predicted time is from."""
        return route_of(self.prediction)

    @property
    def analytic_s(self) -> float:
        """Seconds that the analytic route predicts."""
        return float(analytic_s(self.prediction))

    @cached_property
    def error_bar(self) -> ErrorBar | None:
        """Where the measured time should lie, if that is known."""
        return error_bar(self.prediction)

    @property
    def inside(self) -> bool | None:
        """Whether the measured time lies there."""
        return None if self.error_bar is None else self.error_bar.holds(self.measured_s)

    @cached_property
    def held_out(self) -> bool:
        """Whether the point took no part in anything that the model was made from."""
        return held_out(self.point)

    @property
    def impossible(self) -> bool:
        """Whether it was measured faster than any kernel can be: at peak rate, every matrix moved once."""
        return self.measured_s < float(floor_s(self.point.problem, self.prediction.device))

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
    def analytic_error(self) -> float:
        """The same of the analytic route."""
        return self.analytic_s / self.measured_s - 1

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
    def percentile_95(self) -> float:
        """What 95 % of the absolute relative errors stay below."""
        return float(np.quantile(np.abs(self.errors), 0.95))

    @property
    def analytic_mape(self) -> float:
        """Mean absolute relative error of the analytic route alone."""
        return float(np.mean([abs(point.analytic_error) for point in self.points]))

    @property
    def covered(self) -> float:
        """Share of the points that have an error bar whose measured time lies inside; NaN where none has one."""
        inside = [point.inside for point in self.points if point.inside is not None]
        return float(np.mean(inside)) if inside else math.nan

    def held_out(self) -> Comparison:
        """The points that judge the model: they took no part in anything."""
        return self._of(point for point in self.points if point.held_out)

    def impossible(self) -> list[str]:
        """A line for each point that was measured faster than any kernel can be."""
        return [
            f"{point.point}: measured {duration(point.measured_s)}, less than the"
            f" {duration(float(floor_s(point.point.problem, self.device)))} that any kernel needs on {self.device.name}"
            " at its peak rates: impossible, unless its clock or memory ran faster than its data say"
            for point in self.points
            if point.impossible
        ]

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
        return {of: self._of(points) for of, points in groups.items()}

    def _of(self, points: Iterable[ComparedPoint]) -> Comparison:
        return Comparison(self.device, tuple(points), {}, ())


def compare(records: Iterable[Record], device: Device, route: str = "auto") -> Comparison:
    """Predict every record of `device`, by a route of `gemmsim.routes`, and hold the predictions against it; of a point
    measured twice the last record with a result counts. What the compiler said of registers is taken from the records.

    Raises InputError when no record of that device has a time, and for an unknown route.
    """
    route_named(route)
    of_device = [record for record in latest(records) if record.device == device.name]
    done = [record for record in of_device if record.ok]
    if not done:
        raise InputError(f"no measured point of {device.name} among the records")
    points, skipped = [], []
    for record in done:
        point = record.point
        try:
            kernel = kernel_named(point.kernel)
            prediction = predicted_time(point.problem, kernel, point.tiling, device, route, **record.compiled)
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
