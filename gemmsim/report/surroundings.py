"""Where, when and under which clocks the records of a chapter were made, in a few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

from gemmsim.records import Record

NAMES = {"gpu": "GPU", "driver": "Driver", "cuda": "CUDA", "compiler": "Compiler"}
READINGS = {
    "sm_clock_hz": ("SM clock", 1e-6, "MHz"),
    "power_w": ("Power", 1.0, "W"),
    "temperature_c": ("Temperature", 1.0, "°C"),
}
"""Headings of the readings, and the factor and unit in which they are written."""
LARGEST_READING = 1e12


def surroundings(records: Iterable[Record]) -> dict[str, str]:
    """{heading: text} of what the records say: every GPU and version, and the range of each reading and of dates.

    A value of another kind than expected is left out, and so is a heading without values.
    """
    environments = [record.environment for record in records]

    def values(name: str, fits: Callable[[Any], bool]) -> list[Any]:
        return [found[name] for found in environments if name in found and fits(found[name])]

    said = {heading: ", ".join(dict.fromkeys(values(name, _is_text))) for name, heading in NAMES.items()}
    for name, (heading, factor, unit) in READINGS.items():
        numbers = sorted(values(name, _is_reading))
        said[heading] = _range([f"{number * factor:.0f}" for number in numbers], f" {unit}")
    said["Measured"] = _range(sorted(filter(None, map(_date, values("time", _is_text)))))
    return {heading: text for heading, text in said.items() if text}


def _range(ordered: list[str], unit: str = "") -> str:
    """From the first to the last, one of them where they read the same, nothing of nothing."""
    return " to ".join(dict.fromkeys((ordered[0], ordered[-1]))) + unit if ordered else ""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_reading(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < LARGEST_READING


def _date(text: str) -> str | None:
    try:
        return datetime.fromisoformat(text).date().isoformat()
    except ValueError:
        return None
