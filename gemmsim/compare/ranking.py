"""How well predicted times order measured ones: Kendall's tau, regrets, and the error after one common factor."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.errors import InputError

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Ranking:
    """Predicted seconds beside measured ones, arrays of one length; predictions may be infinite.

    Raises InputError for arrays that do not go together, are empty, or hold a time that is none.
    """

    predicted_s: Times
    measured_s: Times

    def __post_init__(self) -> None:
        for name in ("predicted_s", "measured_s"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), float))
        if self.predicted_s.shape != self.measured_s.shape or self.predicted_s.ndim != 1 or not self.predicted_s.size:
            raise InputError(
                f"predictions of the shape {self.predicted_s.shape} and measurements of {self.measured_s.shape} do not"
                " go together; allowed: as many of both, one at least"
            )
        if not ((self.predicted_s > 0).all() and (self.measured_s > 0).all() and np.isfinite(self.measured_s).all()):
            raise InputError("times must be positive, and measured ones finite")

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """The configurations from the one predicted fastest on; of equal predictions the slowest measured first."""
        return np.lexsort((-self.measured_s, self.predicted_s))

    @property
    def kendall_tau(self) -> float:
        """Agreement of the order: tau-b, NaN where all predictions or all measurements are the same."""
        return kendall_tau(self.predicted_s, self.measured_s)

    def regret(self, picks: int) -> float:
        """The best measured time of the first so many picks over the best measured of all, minus 1."""
        return float(self.measured_s[self.order[:picks]].min() / self.measured_s.min()) - 1

    @property
    def scale(self) -> float:
        """The factor that predictions are multiplied with so that half of them come out too long; the error does not
        depend on clocks then, which nobody recorded."""
        finite = np.isfinite(self.predicted_s)
        return float(np.median(self.measured_s[finite] / self.predicted_s[finite])) if finite.any() else math.nan

    @cached_property
    def scaled_errors(self) -> Times:
        """Scaled prediction over measurement, minus 1."""
        return self.scale * self.predicted_s / self.measured_s - 1

    @property
    def scaled_mape(self) -> float:
        """Mean absolute error after the one common factor, of configurations whose prediction is finite."""
        finite = self.scaled_errors[np.isfinite(self.scaled_errors)]
        return float(np.abs(finite).mean()) if finite.size else math.nan

    @cached_property
    def worst(self) -> NDArray[np.int64]:
        """The configurations from the worst miss on, too fast or too slow by the same factor alike."""
        with np.errstate(divide="ignore"):
            return np.argsort(-np.abs(np.log(1 + self.scaled_errors)), kind="stable")


def kendall_tau(first: Any, second: Any) -> float:
    """Kendall's tau-b of two sequences of the same length, NaN where one of them is constant; n log n steps.

    Pairs that agree in order, less those that disagree, over the geometric mean of the pairs untied in each
    (Kendall, "The treatment of ties in ranking problems", Biometrika 33, 1945). In the order of the first, ties in
    that of the second, those that disagree are the inversions of the second (Knight, JASA 61, 1966).
    """
    x, y = (np.unique(np.asarray(values, float), return_inverse=True)[1] for values in (first, second))
    pairs = len(x) * (len(x) - 1) // 2
    tied_x, tied_y, tied_both = (_pairs_alike(keys) for keys in (x, y, x * (len(y) + 1) + y))
    disagreeing = _inversions(y[np.lexsort((y, x))])
    untied_x, untied_y = pairs - tied_x, pairs - tied_y
    if not (untied_x and untied_y):
        return math.nan
    agreeing = pairs - tied_x - tied_y + tied_both - disagreeing
    return (agreeing - disagreeing) / math.sqrt(untied_x * untied_y)


def _pairs_alike(keys: NDArray[np.int64]) -> int:
    """Pairs that have the same key."""
    _, counts = np.unique(keys, return_counts=True)
    return int((counts * (counts - 1) // 2).sum())


def _inversions(values: NDArray[np.int64]) -> int:
    """Pairs of which the earlier is the larger. Two numbers differ first in some bit: bit by bit from the highest,
    among numbers with the same higher bits, ones before zeros are counted."""
    total = 0
    for bit in reversed(range(int(values.max(initial=0)).bit_length())):
        ones = values >> bit & 1
        higher = values >> bit + 1
        new_group = np.flatnonzero(np.diff(higher, prepend=-1))  # groups lie together, ascending
        before = np.cumsum(ones) - ones
        in_group = before - np.repeat(before[new_group], np.diff(new_group, append=len(values)))
        total += int(in_group[ones == 0].sum())
        values = values[np.argsort(values >> bit, kind="stable")]
    return total
