"""Results as Jupyter shows them: a table of what a noun holds and computes, written with its units.

A class asks for it with `_repr_html_ = as_table` in its body. The units are those that the names of the model end in.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np

from gemmsim.units import count, duration, percent, si, words

SUFFIXES = {
    "_flop_per_s": lambda value: si(value, "FLOP/s"),
    "flop_per_s": lambda value: si(value, "FLOP/s"),
    "_bytes_per_s": lambda value: si(value, "B/s"),
    "_bytes": lambda value: si(value, "B"),
    "_hz": lambda value: si(value, "Hz"),
    "_s": duration,
    "_fraction": percent,
    "occupancy": percent,
    "mape": percent,
    "error": percent,
}
"""How a number is written, by how its name ends; the first that fits."""
BOUNDLESS = 2**31 - 1
"""The number that stands for no limit."""
MOST_LISTED = 6
"""Members of a list that are written out."""


def as_table(noun: Any) -> str:
    """HTML of a dataclass: its fields, then what its properties say; what cannot be computed is left out."""
    left = 'style="text-align: left"'
    rows = "".join(
        f"<tr><th {left}>{escape(words(name))}</th><td {left}>{escape(text)}</td></tr>" for name, text in _facts(noun)
    )
    return f"<table><caption>{escape(type(noun).__name__)}</caption><tbody>{rows}</tbody></table>"


def _facts(noun: Any) -> Iterator[tuple[str, str]]:
    """(name, text) of each field and property; the entries of a mapping each for themselves."""
    for name in [*(each.name for each in fields(noun)), *_properties(type(noun))]:
        try:
            value = getattr(noun, name)
        except (ArithmeticError, AssertionError, TypeError, ValueError):
            continue
        if isinstance(value, Mapping):
            for key, entry in value.items():
                yield f"{name}: {key}", _text(f"{key}_s" if name == "terms" else str(key), entry)
        elif value is not None:
            yield name, _text(name, value)


def _properties(of: type) -> list[str]:
    """The public properties of a class, in the order of its source, those of its bases first."""
    named = {
        name: None
        for each in reversed(of.__mro__)
        for name, value in vars(each).items()
        if isinstance(value, property | cached_property) and not name.startswith("_")
    }
    return list(named)


def _text(name: str, value: Any) -> str:
    """One value in a line."""
    if isinstance(value, np.ndarray) and value.ndim:
        return f"array of {' x '.join(map(count, value.shape))}"
    if isinstance(value, np.generic | np.ndarray):
        value = value.item()
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    if isinstance(value, int | float):
        return _number(name, value)
    if isinstance(value, tuple | list):
        listed = ", ".join(_text(name, each) for each in value[:MOST_LISTED])
        return f"{count(len(value))} in all" if len(value) > MOST_LISTED else listed or "none"
    if is_dataclass(value) and type(value).__str__ is object.__str__:
        for title in ("title", "name"):
            if isinstance(getattr(value, title, None), str):
                return str(getattr(value, title))
        return ", ".join(f"{each.name} {_text(each.name, getattr(value, each.name))}" for each in fields(value))
    return str(value)


def _number(name: str, value: float) -> str:
    if math.isnan(value):
        return "-"
    if value == BOUNDLESS:
        return "any"
    for suffix, written in SUFFIXES.items():
        if name.endswith(suffix):
            return written(value)
    return count(value) if float(value).is_integer() else f"{value:.4g}"
