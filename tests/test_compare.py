"""Comparisons by their own arithmetic, and Kendall's tau against its definition."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.compare import Comparison, compare, counter_differences, error_bars
from gemmsim.compare.error_bars import Factor
from gemmsim.compare.ranking import kendall_tau
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.held_out import held_out
from gemmsim.kernels import kernel
from gemmsim.record_files import read_records, shipped_records
from gemmsim.roofline import floor_s

H200 = device("h200")
VALUES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), min_size=2, max_size=30)


def tau_by_definition(x, y):
    """Concordant pairs less discordant ones over the geometric mean of the untied."""
    pairs = list(combinations(range(len(x)), 2))
    balance = sum(np.sign(x[i] - x[j]) * np.sign(y[i] - y[j]) for i, j in pairs)
    untied = [sum(v[i] != v[j] for i, j in pairs) for v in (x, y)]
    return balance / (untied[0] * untied[1]) ** 0.5 if untied[0] and untied[1] else float("nan")


@given(pairs=VALUES)
def test_tau_is_tau_b(pairs):
    x, y = zip(*pairs, strict=True)
    assert kendall_tau(x, y) == pytest.approx(tau_by_definition(x, y), nan_ok=True)


@given(pairs=VALUES)
def test_tau_is_symmetric_and_sees_only_order(pairs):
    x, y = (np.array(values, float) for values in zip(*pairs, strict=True))
    tau = kendall_tau(x, y)
    assert kendall_tau(y, x) == pytest.approx(tau, nan_ok=True)
    assert kendall_tau(x**3 + 5, np.exp(y)) == pytest.approx(tau, nan_ok=True)
    assert kendall_tau(-x, y) == pytest.approx(-tau, nan_ok=True)


@pytest.fixture(scope="module")
def shipped():
    records, _ = read_records(shipped_records())
    return records, compare(records, H200)


def test_errors_by_hand(shipped):
    _, comparison = shipped
    errors = [p.predicted_s / p.measured_s - 1 for p in comparison.points]
    assert comparison.mape == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert comparison.max_error == max(map(abs, errors))
    assert comparison.mean_error == pytest.approx(sum(errors) / len(errors))


def test_groups_hold_every_point_once(shipped):
    _, comparison = shipped
    for groups in (comparison.by_kernel(), comparison.by_problem()):
        assert sum(len(one.points) for one in groups.values()) == len(comparison.points)
    assert list(comparison.by_kernel()) == ["naive", "shared", "register", "vectorized", "double_buffer"]


def test_the_pick_of_each_problem(shipped):
    _, comparison = shipped
    assert len(comparison.picks()) == 10
    for problem, pick in comparison.picks().items():
        points = [p for p in comparison.points if p.point.problem == problem]
        best = min(p.measured_s for p in points)
        fastest = min(points, key=lambda p: p.predicted_s)
        assert pick.picked.predicted_s == pytest.approx(fastest.predicted_s)
        assert pick.regret >= fastest.measured_s / best - 1 >= 0
        assert (pick.best.measured_s, pick.of) == (best, len(points))
    assert -1 <= comparison.tau_within_problems <= comparison.kendall_tau <= 1


def test_rates(shipped):
    _, comparison = shipped
    point = comparison.points[0]
    assert point.flop_per_s * point.measured_s == pytest.approx(point.point.problem.flop)
    assert point.peak_fraction == pytest.approx(point.flop_per_s / H200.fp32_flop_per_s)


def test_a_counter_that_differs_shows(shipped):
    records, _ = shipped
    record = next(r for r in records if r.counters)
    assert all(model == hardware for model, hardware in counter_differences(record).values())
    wrong = replace(record, counters={**record.counters, "ffma": record.counters["ffma"] + 7})
    agreement = compare([wrong], H200).counters["ffma"]
    assert (agreement.equal, agreement.total) == (0, 1)
    assert agreement.worst_relative == pytest.approx(7 / (record.counters["ffma"] + 7))


def test_records_of_another_gpu_are_left_out(shipped):
    records, _ = shipped
    with pytest.raises(InputError, match="no measured point of t4 among the records"):
        compare(records, device("t4"))


def test_a_record_without_a_prediction_does_not_hide_the_others(shipped):
    records, _ = shipped
    other = next(r for r in records if r.point.kernel == "vectorized")
    impossible = replace(other, resources={**other.resources, "registers_per_thread": 255})
    large = kernel("vectorized").tiling(block_m=1024, block_n=64, block_k=8, thread_m=8, thread_n=8)
    impossible = replace(impossible, point=replace(other.point, tiling=large))
    comparison = compare([records[0], impossible], H200)
    assert [point.record for point in comparison.points] == [records[0]]
    assert "vectorized" in comparison.skipped[0]
    with pytest.raises(InputError, match="no prediction for any record: vectorized"):
        compare([impossible], H200)


def test_a_problem_whose_points_are_all_predicted_alike_has_no_order(shipped):
    _records, comparison = shipped
    small = [p for p in comparison.points if p.point.kernel == "naive" and p.point.problem.m == 129]
    assert len(small) == 3
    alike = tuple(replace(point, prediction=small[0].prediction) for point in small)
    ordered = tuple(p for p in comparison.points if p.point.problem.m == 4096)

    def tau(points):
        return Comparison(H200, points, {}, ()).tau_within_problems

    assert np.isnan(tau(alike))
    assert tau(alike + ordered) == tau(ordered)


# Error bars, held-out points, routes, impossible times


@pytest.fixture(scope="module")
def closed(shipped):
    return compare(shipped[0], H200, "analytic")


def test_the_analytic_route_stands_beside(shipped, closed):
    _, comparison = shipped
    assert comparison.analytic_mape == pytest.approx(closed.mape)
    assert [point.analytic_s for point in comparison.points] == [point.predicted_s for point in closed.points]
    assert {point.route for point in closed.points} == {"analytic"}


def test_the_points_held_out_are_those_of_the_rule(closed):
    apart = closed.held_out()
    assert [point.point for point in apart.points] == [p.point for p in closed.points if held_out(p.point)]
    assert 0 < len(apart.points) < len(closed.points) / 2


def test_the_percentile_is_that_of_the_sorted_errors(closed):
    errors = sorted(map(abs, closed.errors))
    below = sum(error <= closed.percentile_95 for error in errors) / len(errors)
    assert below == pytest.approx(0.95, abs=1 / len(errors))


def test_coverage_counts_the_times_inside(closed, monkeypatch):
    monkeypatch.setattr(error_bars, "_shipped", lambda: {"analytic_calibrated": {"all": {"all": Factor(1.1, 99)}}})
    some = compare([point.record for point in closed.points[:60]], H200, "analytic")
    inside = [1 / 1.1 <= point.predicted_s / point.measured_s <= 1.1 for point in some.points]
    assert 0 < sum(inside) < len(inside)
    assert [point.inside for point in some.points] == inside
    assert some.covered == pytest.approx(sum(inside) / len(inside))
    monkeypatch.setattr(error_bars, "_shipped", dict)
    assert np.isnan(compare([some.points[0].record], H200, "analytic").covered)


def test_a_time_below_the_floor_is_impossible_and_named(shipped):
    records, comparison = shipped
    assert comparison.impossible() == []
    record = next(r for r in records if r.point.problem.m == 4096)
    fast = float(floor_s(record.point.problem, H200)) * 0.99
    (line,) = compare([replace(record, samples_s=(fast,), median_s=fast)], H200, "analytic").impossible()
    assert str(record.point) in line
    assert "impossible" in line
    assert "2.05 ms that any kernel needs on h200" in line
    assert "\n" not in line


def test_an_unknown_route_is_refused_before_anything_is_predicted(shipped):
    with pytest.raises(InputError, match="unknown route 'analytical'; nearest: analytic"):
        compare(shipped[0], H200, "analytical")
