"""Numbers as people read them. Prefixes are decimal: GB is 10^9 bytes, GFLOP a count, GFLOP/s a rate."""

from __future__ import annotations

from typing import Any

LARGE = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "u"), (1e-9, "n"))


def si(value: float, unit: str) -> str:
    """The value with three digits and a decimal prefix, such as "66.9 TFLOP/s"."""
    return _scaled(value, unit, LARGE)


def duration(seconds: float) -> str:
    """Seconds as "1.23 ms"; microseconds are written us, an infinite time "never"."""
    return "never" if seconds == float("inf") else _scaled(seconds, "s", SMALL)


def percent(fraction: float, signed: bool = False) -> str:
    """The fraction in percent, one decimal."""
    return f"{100 * fraction:{'+' if signed else ''}.1f} %"


def count(value: Any) -> str:
    """A whole number with its thousands apart."""
    return f"{int(value):,}"


def plural(value: Any, noun: str) -> str:
    """The number and the noun, which gets an s unless there is one of it."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def short_percent(fraction: float) -> str:
    """The fraction in percent, three digits and no trailing zeros: "5 %", "0.0123 %"."""
    return f"{100 * fraction:.3g} %"


def tau(value: float) -> str:
    """Kendall's tau, a dash where fewer than two different times leave none."""
    return "-" if value != value else f"{value:.3f}"


def words(name: str) -> str:
    """A name of the model as prose has it: "shared memory" for "shared_memory"."""
    return name.replace("_", " ")


def _scaled(value: float, unit: str, prefixes: tuple[tuple[float, str], ...]) -> str:
    """Three significant digits, never in powers of ten, before the prefix and the unit."""
    rounded = float(f"{value:.3g}")  # first, so that 999.9 k becomes 1 M
    scale, prefix = next((step for step in prefixes if abs(rounded) >= step[0]), prefixes[-1])
    digits = f"{rounded / scale:.3g}" if rounded < 1000 * scale else f"{rounded / scale:,.0f}"
    return f"{digits} {prefix}{unit}"
