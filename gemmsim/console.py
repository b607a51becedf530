"""Tables, lines and progress for people: as wide as the terminal, and plain where nobody watches."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Literal

from rich.console import Console
from rich.table import Table

from gemmsim.errors import visible
from gemmsim.streams import say

GAP = 2
"""Blanks between columns."""
NARROWEST = 40
"""Columns that are used at least, whatever a terminal says that it has."""


class _Console(Console):
    """Rich's, except that a reader who has gone is an error like all others, not an exit."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def facts(title: str, named: Iterable[tuple[str, str]]) -> None:
    """Named sentences, wrapped beside their names."""
    table(title, ("", ""), named, text=(0, 1), header=False)


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int] = (0,), header: bool = True
) -> None:
    """Print a table: columns of numbers right-aligned, those of text not.

    Text wraps, but for that of a first column; numbers and words stay whole, if need be beyond the width of
    the terminal.
    """
    console, body = _console(), [tuple(map(visible, row)) for row in rows]
    wrapping = [number for number in text if number > 0 or len(columns) == 1]
    widths, least = [], []
    for number, (head, *cells) in enumerate(zip(columns if header else [""] * len(columns), *body, strict=True)):
        words = " ".join(cells).split() if number in wrapping else cells
        widths.append(max(map(len, (head, *cells))))
        least.append(max(map(len, (*head.split(), *words)), default=0))
    spare = max(0, console.width - sum(least) - GAP * (len(columns) - 1))
    grid = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), show_header=header)
    for number, name in enumerate(columns):
        more = min(spare, widths[number] - least[number])
        spare -= more
        justify: Literal["left", "right"] = "left" if number in text else "right"
        grid.add_column(name, justify=justify, width=least[number] + more, overflow="fold")
    for row in body:
        grid.add_row(*row)
    console.width = max(console.width, sum(least) + GAP * (len(columns) - 1))
    console.print()
    if title:
        console.print(visible(title), style="bold")
    _print(console, grid)


def line(text: str, wrap: bool = True, indent: str = "") -> None:
    """Print a line, wrapped between words to the width of the terminal unless told otherwise.

    `indent` goes before its second and later lines.
    """
    console, text = _console(), visible(text)
    if wrap:
        text = "\n".join(
            textwrap.fill(part, console.width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
            for part in text.split("\n")
        )
    console.out(text, highlight=False)


def _print(console: Console, what: Table) -> None:
    """Print without the blanks that fill up lines."""
    with console.capture() as captured:
        console.print(what)
    console.out("\n".join(text.rstrip() for text in captured.get().rstrip().split("\n")), highlight=False)


def _console() -> Console:
    """Where tables go: the standard output of the moment, at its width, or 80 columns where it has none."""
    console = _Console(file=sys.stdout, markup=False, highlight=False, emoji=False)
    console.width = max(console.width, NARROWEST)
    return console


@contextmanager
def working(text: str) -> Iterator[None]:
    """Says on standard error that long work is going on, for as long as it does, if anybody watches."""
    console = Console(stderr=True, markup=False, highlight=False)
    with console.status(text) if console.is_terminal else nullcontext():
        yield


@contextmanager
def progress(lines: bool = True) -> Iterator[Callable[[str, int, int], None]]:
    """What to tell of long work (phase, done, of how many): a bar on standard error, or `lines` if nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        yield lambda phase, done, of: say(f"{phase}: {done} of {of}") if lines else None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def advance(phase: str, done: int, of: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase)
            bars.update(tasks[phase], completed=done, total=of)

        yield advance
