"""Agreement of orders, against counting pair by pair; regrets and errors by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.compare.ranking import Ranking, kendall_tau
from gemmsim.errors import InputError

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=0, max_size=40)


def pair_by_pair(first: list[float], second: list[float]) -> float:
    agree = disagree = tied_first = tied_second = 0
    for (a, b), (c, d) in combinations(zip(first, second, strict=True), 2):
        sign = (a > c) - (a < c), (b > d) - (b < d)
        agree += sign[0] * sign[1] > 0
        disagree += sign[0] * sign[1] < 0
        tied_first += sign[0] == 0
        tied_second += sign[1] == 0
    pairs = len(first) * (len(first) - 1) // 2
    untied = (pairs - tied_first) * (pairs - tied_second)
    return (agree - disagree) / math.sqrt(untied) if untied else math.nan


@given(PAIRS)
def test_tau_is_that_of_counting_pairs(pairs):
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    expected = pair_by_pair(first, second)
    assert kendall_tau(first, second) == pytest.approx(expected, nan_ok=True)


def test_tau_by_hand():
    assert kendall_tau([1, 2, 3], [1, 2, 3]) == 1
    assert kendall_tau([1, 2, 3], [3, 2, 1]) == -1
    assert kendall_tau([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx((5 - 1) / 6)
    assert math.isnan(kendall_tau([1, 1], [1, 2]))
    assert kendall_tau([1, np.inf, np.inf], [1, 2, 2]) == 1


def test_tau_of_many_is_quick_and_right():
    random = np.random.default_rng(0)
    measured = random.permutation(50_000)
    noisy = measured + random.normal(0, 5000, 50_000)
    assert kendall_tau(noisy, measured) == pytest.approx(kendall_tau(measured, noisy))
    assert 0.75 < kendall_tau(noisy, measured) < 0.85
    assert kendall_tau(measured, measured) == 1


def test_regrets_take_the_slowest_of_equal_predictions_first():
    found = Ranking([1.0, 1.0, 2.0, 3.0], [5.0, 6.0, 4.0, 8.0])
    assert found.order.tolist() == [1, 0, 2, 3]
    assert found.regret(1) == pytest.approx(6 / 4 - 1)
    assert found.regret(2) == pytest.approx(5 / 4 - 1)
    assert found.regret(10) == 0


def test_errors_after_one_factor():
    found = Ranking([1.0, 2.0, 4.0, np.inf], [10.0, 20.0, 20.0, 50.0])
    assert found.scale == 10  # of 10, 10 and 5
    assert found.scaled_errors[:3].tolist() == [0, 0, 1]
    assert found.scaled_mape == pytest.approx(1 / 3)
    assert found.worst[0] == 3  # what never ends, and did
    assert found.worst[1] == 2


@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1), st.floats(0.01, 100))
def test_a_common_factor_changes_nothing(times, factor):
    predicted, measured = np.array(times).T
    one, other = Ranking(predicted, measured), Ranking(factor * predicted, measured)
    assert one.scaled_mape == pytest.approx(other.scaled_mape)


@pytest.mark.parametrize(
    ("predicted", "measured", "words"),
    [([1.0], [1.0, 2.0], "do not go together"), ([], [], "one at least"), ([1.0], [0.0], "positive"),
     ([-1.0], [1.0], "positive"), ([1.0], [math.inf], "finite"), ([math.nan], [1.0], "positive")],
)  # fmt: skip
def test_times_that_are_none_are_refused(predicted, measured, words):
    with pytest.raises(InputError, match=words):
        Ranking(predicted, measured)
