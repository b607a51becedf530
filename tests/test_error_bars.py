"""Error bars: the quantile by hand and by simulation, the group that is chosen, the file, and what they hold."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.compare import error_bars
from gemmsim.compare.error_bars import (
    AIMED,
    ANY,
    FEWEST_OF_REGIME,
    FEWEST_POINTS,
    PROMISED,
    REGIMES,
    Factor,
    as_toml,
    chosen,
    conformal,
    error_bar,
    fitted,
    read_factors,
    regime,
)
from gemmsim.device import device
from gemmsim.ladder import ladder
from gemmsim.predict import predict
from gemmsim.problem import Problem

H200 = device("h200")
MISSES = st.lists(st.floats(0, 3), min_size=1, max_size=60)


def test_the_quantile_by_hand():
    # (19 + 1) x 0.9 = 18: the 18th of 19; of 9, (9 + 1) x 0.9 = 9: the largest
    assert conformal(range(1, 20), 0.9) == 18
    assert conformal(range(1, 10), 0.9) == 9
    assert conformal([3.0, 1.0], 0.9) == 3  # too few: the largest of them


@given(misses=MISSES, share=st.floats(0.5, 0.99))
def test_the_quantile_is_a_miss_that_enough_stay_below(misses, share):
    found = conformal(misses, share)
    assert found in misses
    assert sum(miss <= found for miss in misses) >= min(len(misses), share * (len(misses) + 1) - 1e-6)
    assert sum(miss < found for miss in misses) < share * (len(misses) + 1)


def test_new_points_lie_inside_as_often_as_promised():
    random = np.random.default_rng(5)
    inside = []
    for _ in range(400):
        ratios = np.exp(random.normal(0.05, 0.2, 60))  # biased, so that the bars must cover that too
        bars = fitted(("naive", "small", ratio) for ratio in ratios)
        inside.append(abs(math.log(np.exp(random.normal(0.05, 0.2)))) <= math.log(bars["naive"]["small"].factor))
    assert np.mean(inside) >= PROMISED
    assert np.mean(inside) <= AIMED + 0.06


def test_groups_with_too_few_points_have_no_factor_of_their_own():
    many = [("async", "small", 1.1)] * FEWEST_POINTS + [("shared", "many waves", 1.2)] * FEWEST_POINTS
    few = [("async", "few waves", 2.0)] * 3 + [("naive", "part of a wave", 3.0)] * 2
    found = fitted(many + few)
    assert set(found) == {"async", "shared", ANY}
    assert set(found["async"]) == {"small", ANY}
    assert chosen(found, "async", "small") == (Factor(1.1, FEWEST_POINTS), "async, small")
    assert chosen(found, "async", "few waves")[1] == "async"
    assert chosen(found, "async", "many waves")[1] == "async"  # wider than what that regime has
    assert chosen(found, "shared", "small")[1] == "shared"
    assert chosen(found, "naive", "many waves")[1] == "all kernels, many waves"
    assert chosen(found, "naive", "part of a wave")[1] == "all kernels"
    assert found[ANY][ANY].points == 2 * FEWEST_POINTS + 5


def test_one_point_decides_no_bar_of_a_kernel():
    misses = range(FEWEST_POINTS)
    assert conformal(misses, AIMED) < max(misses)
    assert conformal(misses[1:], AIMED) == max(misses)


def test_a_regime_needs_as_many_points_as_the_promise_takes():
    """Small launches that miss by more than the rest get a bar that is not hidden in that of their kernel."""
    assert FEWEST_OF_REGIME / (FEWEST_OF_REGIME + 1) >= PROMISED > (FEWEST_OF_REGIME - 1) / FEWEST_OF_REGIME
    many = [("async", "many waves", 1.1)] * 200
    for few, expected in ((8, (Factor(1.1, 208), "async")), (9, (Factor(2.0, 9), "all kernels, small"))):
        found = fitted(many + [("async", "small", 2.0)] * few)
        assert chosen(found, "async", "small") == expected


def test_too_slow_and_too_fast_by_the_same_factor_count_alike():
    slow, fast = (fitted([("naive", "small", ratio)] * FEWEST_POINTS) for ratio in (1.25, 0.8))
    assert slow == fast


def test_regimes_by_hand():
    assert regime(19e-6, 0.1) == "small"
    assert regime(21e-6, 1.0) == "part of a wave"
    assert regime(21e-6, 1.01) == regime(21e-6, 4.0) == "few waves"
    assert regime(1.0, 4.01) == "many waves"
    assert {regime(t, w) for t in (1e-6, 1.0) for w in (0.5, 2, 9)} == set(REGIMES)


def test_the_file_reads_back(tmp_path):
    sets = {"simulated_calibrated": fitted([("async", "few waves", 1.1)] * 30 + [("naive", "small", 0.7)] * 21)}
    file = tmp_path / "bars.toml"
    file.write_text(as_toml(sets, "made here\n\nof nothing"), encoding="utf-8")
    assert read_factors(file) == sets
    assert read_factors(tmp_path / "none.toml") == {}


@pytest.mark.parametrize(
    "content", [b"[a.b]\n'all' = {", b"\xff", b"[a.b]\nall = 1.1\n", b"[a.b]\nall = { factor = 1.1 }\n"]
)
def test_a_damaged_file_is_named(tmp_path, monkeypatch, gemmsim, content):
    file = tmp_path / "bars.toml"
    file.write_bytes(content)
    monkeypatch.setattr(error_bars, "_shipped", lambda: read_factors(file))
    result = gemmsim("predict 512 --kernel naive --json")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"gemmsim: error: {file} is damaged: ")
    assert result.err.count("\n") == 1


@pytest.fixture
def bars(monkeypatch):
    """Factors that are told apart: 1.1 with own numbers, 1.5 without."""
    sets = {
        "analytic_calibrated": {ANY: {ANY: Factor(1.1, 50)}},
        "analytic_inherited": {ANY: {ANY: Factor(1.5, 40)}},
    }
    monkeypatch.setattr(error_bars, "_shipped", lambda: sets)
    return sets


def test_a_gpu_that_was_not_calibrated_has_the_wider_bar(bars):
    kernel, tiling = ladder()[0]
    for name, factor, points in (("h200", 1.1, 50), ("rtx-3090", 1.5, 40)):
        found = predict(Problem(512, 512, 512), kernel, tiling, device(name))
        bar = error_bar(found)
        assert (bar.low_s, bar.high_s) == pytest.approx((found.time_s / factor, found.time_s * factor))
        assert bar.basis == f"{points} points, all kernels"
        assert bar.holds(float(found.time_s))
        assert not bar.holds(float(found.time_s) * factor * 1.001)
        assert not bar.holds(float(found.time_s) / factor / 1.001)


def test_what_does_not_launch_has_none(bars):
    kernel, tiling = next((kernel, tiling) for kernel, tiling in ladder() if kernel.name == "register")
    large = kernel.tiling(block_m=128, block_n=128, block_k=8, thread_m=4, thread_n=4)  # 1024 threads
    assert error_bar(predict(Problem(512, 512, 512), kernel, large, H200, 200)) is None
    assert error_bar(predict(Problem(512, 512, 512), kernel, tiling, H200)) is not None


def test_the_shipped_factors_are_sane():
    sets = read_factors()
    if not sets:
        pytest.skip("no error bars are shipped")
    routes = ("both", "simulated", "analytic")
    assert set(sets) == {f"{route}_{own}" for route in routes for own in ("calibrated", "inherited")}
    for kernels in sets.values():
        assert set(kernels[ANY]) == {*REGIMES, ANY}  # so that every launch has a bar
        for name, kinds in kernels.items():
            assert ANY in kinds
            for factor, points in kinds.values():
                assert 1 <= factor < 50
                assert points >= (FEWEST_OF_REGIME if name == ANY else FEWEST_POINTS)
    for route in routes:
        assert sets[f"{route}_inherited"][ANY][ANY].factor >= sets[f"{route}_calibrated"][ANY][ANY].factor
