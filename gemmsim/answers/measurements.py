"""Documents of what was measured, alone and beside what was predicted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from gemmsim.answers.document import Document, launch
from gemmsim.answers.launches import bar
from gemmsim.compare import ComparedPoint, Comparison, Pick
from gemmsim.records import Record


def comparison(found: Comparison, warnings: Sequence[str] = ()) -> Document:
    """The document of `compare` and `validate`."""
    return {
        "device": found.device.name,
        "points": [compared(point) for point in found.points],
        **summary(found),
        "held_out": summary(found.held_out()),
        "impossible": found.impossible(),
        "counters": {name: asdict(agreement) for name, agreement in found.counters.items()},
        "by_kernel": {name: summary(part) for name, part in found.by_kernel().items()},
        "picks": [pick(each) for each in found.picks().values()],
        "failed": [record.to_dict() for record in found.failed],
        "skipped": found.skipped,
        "warnings": warnings,
    }


def compared(point: ComparedPoint) -> Document:
    """One point: predicted and measured."""
    problem, tiling = point.point.problem, point.point.tiling
    return launch(problem, point.prediction.kernel, tiling) | {
        "predicted_s": point.predicted_s,
        "measured_s": point.measured_s,
        "error": point.error,
        "route": point.route,
        "analytic_s": point.analytic_s,
        "error_bar": bar(point.error_bar),
        "inside": point.inside,
        "held_out": point.held_out,
        "bound_by": point.prediction.bound_by,
    }


def pick(found: Pick) -> Document:
    """What the model picks at one problem, and how much longer that takes than the best."""
    problem, prediction = found.picked.point.problem, found.picked.prediction
    return {
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "dtype": problem.dtype,
        "kernel": prediction.kernel.name,
        "tiling": prediction.kernel.tiling_dict(found.picked.point.tiling),
        "of": found.of,
        "measured_s": found.picked.measured_s,
        "best_measured_s": found.best.measured_s,
        "regret": found.regret,
    }


def summary(found: Comparison) -> Document:
    """The errors of a set of points as a few numbers; null where there is no point."""
    if not found.points:
        names = (
            "mape", "percentile_95", "max_error", "mean_error", "kendall_tau", "tau_within_problems",
            "inside_error_bars", "analytic_mape",
        )  # fmt: skip
        return {"count": 0, **dict.fromkeys(names)}
    return {
        "count": len(found.points),
        "mape": found.mape,
        "percentile_95": found.percentile_95,
        "max_error": found.max_error,
        "mean_error": found.mean_error,
        "kendall_tau": found.kendall_tau,
        "tau_within_problems": found.tau_within_problems,
        "inside_error_bars": found.covered,
        "analytic_mape": found.analytic_mape,
    }


def records(found: Sequence[Record]) -> Document:
    """The document of `measure`."""
    return {"records": [record.to_dict() for record in found]}
