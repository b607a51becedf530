"""What a command is made of: its words and options, the work, and the answer that it leaves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from gemmsim.errors import Warn

Document = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a command has found. `show` gets the module `gemmsim.show`, which only tables need.

    `pieces` is the text of the document piece by piece, where the whole would be too long to hold.
    """

    document: Callable[[], Document]
    show: Callable[[Any], None]
    ok: bool = True
    pieces: Callable[[], Iterable[str]] | None = None


@dataclass(frozen=True)
class Command:
    """One command: what it does, its words, an example, what adds its options, and the work."""

    summary: str
    usage: str
    example: str
    options: tuple[Callable[[argparse.ArgumentParser], None], ...]
    run: Callable[[argparse.Namespace, Warn], Answer]


def warn_each(warnings: Iterable[str], warn: Warn) -> None:
    """Give all warnings, one at a time."""
    for warning in warnings:
        warn(warning)
