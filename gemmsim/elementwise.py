"""NumPy's functions for numbers and arrays alike, without what they take of a plain number.

A formula stands once and goes over one configuration or a million: these let the first be as quick as the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def some_array(values: Iterable[Any]) -> bool:
    """Whether any of the values is an array; `np.ndim` takes much longer to say so of plain numbers."""
    for value in values:  # noqa: SIM110 - a generator takes as long as the rest
        if isinstance(value, np.ndarray):
            return True
    return False


def somewhere(condition: Any) -> bool:
    """As `np.any`, like `some_array`."""
    return bool(condition.any() if isinstance(condition, np.ndarray) else condition)


def larger(one: Any, other: Any) -> Any:
    """As `np.maximum`, which takes ten times as long where both are plain numbers."""
    return np.maximum(one, other) if isinstance(one, np.ndarray) or isinstance(other, np.ndarray) else max(one, other)


def smaller(one: Any, other: Any) -> Any:
    """As `np.minimum`, like `larger`."""
    return np.minimum(one, other) if isinstance(one, np.ndarray) or isinstance(other, np.ndarray) else min(one, other)


def either(condition: Any, yes: Any, no: Any) -> Any:
    """As `np.where`, like `larger`."""
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return yes if condition else no
