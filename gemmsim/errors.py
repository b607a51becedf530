"""The two ways to fail, each one clear line, and the exit status of each; and warnings."""

from __future__ import annotations

import difflib
import errno
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.streams import say

Warn = Callable[[str], None]
"""What gets warnings, one at a time."""
LONGEST_VALUE, LONGEST_LINE = 60, 1000
"""Characters of a quoted value, and of a whole message."""
MOST_WARNINGS = 20
"""Warnings of one file; a file of another kind would have one a line."""
DISK_FAILS = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""Refusals to write that another path on this disk would meet too."""


class GemmsimError(Exception):
    """Anything that the command line reports as one line instead of a traceback."""

    exit_status = 2


class InputError(GemmsimError, ValueError):
    """The input is unusable. The message names the value and what is allowed."""


class MachineError(GemmsimError, RuntimeError):
    """This machine cannot do it. The message names what is missing and how to get it."""

    exit_status = 3


def require(ok: Any, message: str | Callable[..., str], **values: Any) -> None:
    """Raise InputError unless `ok` holds, everywhere if it is an array.

    `message` is a format string over `values`, or a function of them; where `ok` is an array the
    values are those at its first failure.
    """
    if ok is True or np.all(ok):  # the first alone is quick, and the rule for a single configuration
        return
    if np.ndim(ok):
        shape = np.shape(ok)
        at = np.unravel_index(int(np.argmin(ok)), shape)
        values = {name: np.broadcast_to(value, shape)[at].item() for name, value in values.items()}
    raise InputError(message(**values) if callable(message) else message.format(**values))


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among `known`: the nearest ones, or all when few are near."""
    names = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name[:LONGEST_VALUE].lower(), names, n=3, cutoff=0.4)
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {short(name)}; {hint}")


def cannot_write(what: str | Path, error: OSError) -> GemmsimError:
    """The error for a path that cannot be written: another path will do, unless the disk is full."""
    kind = MachineError if error.errno in DISK_FAILS else InputError
    return kind(f"cannot write {what}: {error.strerror or error}")


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """While a file of ours is read: one that does not hold what it should ends as one InputError that names it."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def short(value: Any) -> str:
    """A value of the user's as messages quote it: as Python writes it, cut where it is long, ASCII alone where
    characters cannot be seen."""
    try:
        text = _SHORT.repr(value)
    except ValueError:  # Python does not write out whole numbers of thousands of digits
        text = "of thousands of digits"
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = LONGEST_VALUE


def visible(text: str) -> str:
    """The text with what would steer a terminal, or what no encoding takes, written as escapes; line ends stay."""
    return "".join(
        character if character.isprintable() or character == "\n" else ascii(character)[1:-1] for character in text
    )


def one_line(text: str | BaseException) -> str:
    """The text, or the message of an exception, in one visible line; the name of an exception without a message."""
    line = " ".join(str(text).split())
    return visible(line) if line or isinstance(text, str) else type(text).__name__


def report_line(text: str) -> str:
    """The text in one line that is no longer than a message may be."""
    line = one_line(text)
    return line if len(line) <= LONGEST_LINE else line[: LONGEST_LINE - 3] + "..."


def at_most(warnings: Sequence[str], what: str | Path) -> list[str]:
    """The first of many warnings of one file, and how many more there are."""
    more = len(warnings) - MOST_WARNINGS
    return list(warnings) if more <= 0 else [*warnings[:MOST_WARNINGS], f"{what}: and {more} more"]


def warn(message: str) -> None:
    """A warning on standard error."""
    say(f"gemmsim: warning: {report_line(message)}")
