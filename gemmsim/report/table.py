"""What a table of the page is: raw values, which its CSV file has, and the same written out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from gemmsim.units import si, words

MOST_ROWS = 1000
"""Rows that the page shows of a table; its CSV file has all."""

as_rate = partial(si, unit="FLOP/s")


def as_difference(value: int) -> str:
    """Such as +1,024."""
    return f"{value:+,}"


@dataclass(frozen=True)
class Column:
    """One column: its name in the CSV file, its heading on the page, and how the page writes a value."""

    name: str
    heading: str
    show: Callable[[Any], str] = str

    @property
    def is_text(self) -> bool:
        """Whether it reads from the left."""
        return self.show in (str, words)

    def shown(self, value: Any) -> str:
        """The value as the page writes it, a dash where there is none."""
        return "-" if value is None else self.show(value)


@dataclass(frozen=True)
class Cell:
    """One cell of the page: what it says, and what it is sorted by, a number's own value."""

    column: Column
    text: str
    value: Any


@dataclass(frozen=True)
class Table:
    """Rows of raw values; `shown_rows` are those for the page, all of them unless given."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Any, ...], ...]
    shown_rows: tuple[tuple[Any, ...], ...] | None = None

    @property
    def shown(self) -> list[list[Cell]]:
        """The cells of the page, at most MOST_ROWS rows of them."""
        rows = self.rows if self.shown_rows is None else self.shown_rows
        return [
            [Cell(column, column.shown(value), value) for column, value in zip(self.columns, row, strict=True)]
            for row in rows[:MOST_ROWS]
        ]

    @property
    def left_out(self) -> int:
        """Rows for the page that are too many for it."""
        return max(0, len(self.rows if self.shown_rows is None else self.shown_rows) - MOST_ROWS)
