"""Tables, lines and progress for people: as wide as the terminal, and plain where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table


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
    """Print a table: columns of numbers right-aligned, those of text not; a last one of text wraps."""
    grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=header)
    for number, name in enumerate(columns):
        wraps = number in text and number == len(columns) - 1
        grid.add_column(
            name, justify="left" if number in text else "right", overflow="fold", no_wrap=number == 0 and not wraps
        )
    for row in rows:
        grid.add_row(*row)
    console = _console()
    console.print()
    if title:
        console.print(title, style="bold")
    _print(console, grid)


def line(text: str, wrap: bool = True) -> None:
    """Print a line, wrapped to the width of the terminal unless told otherwise."""
    _print(_console(), text, soft_wrap=not wrap)


def _print(console: Console, what: Table | str, soft_wrap: bool = False) -> None:
    """Print without the blanks that fill up lines."""
    with console.capture() as captured:
        console.print(what, soft_wrap=soft_wrap)
    console.out("\n".join(text.rstrip() for text in captured.get().rstrip().split("\n")), highlight=False)


def _console() -> Console:
    """Where tables go: the standard output of the moment, at its width, or 80 columns where it has none."""
    return _Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


@contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """What to tell of long work (phase, done, of how many): a bar on standard error, or lines if nobody watches."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True, markup=False, highlight=False)
    if not console.is_terminal:
        yield lambda phase, done, of: print(f"{phase}: {done} of {of}", file=sys.stderr)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bars:
        tasks = {}

        def advance(phase: str, done: int, of: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(phase)
            bars.update(tasks[phase], completed=done, total=of)

        yield advance
