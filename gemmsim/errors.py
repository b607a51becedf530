"""The two ways to fail, each one clear line, and the exit status of each; and warnings."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Warn = Callable[[str], None]
"""What gets warnings, one at a time."""


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
    if np.all(ok):
        return
    if np.ndim(ok):
        shape = np.shape(ok)
        at = np.unravel_index(int(np.argmin(ok)), shape)
        values = {name: np.broadcast_to(value, shape)[at].item() for name, value in values.items()}
    raise InputError(message(**values) if callable(message) else message.format(**values))


def unknown(kind: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among `known`: the nearest ones, or all when few are near."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.4)
    hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names)}"
    return InputError(f"unknown {kind} {name!r}; {hint}")


def one_line(text: str | BaseException) -> str:
    """The text, or the message of an exception, in one line; the name of an exception without a message."""
    line = " ".join(str(text).split())
    return line if line or isinstance(text, str) else type(text).__name__


def warn(message: str) -> None:
    """A warning on standard error."""
    print(f"gemmsim: warning: {one_line(message)}", file=sys.stderr)
