"""Standard output and standard error, whatever they are: closed, full, or of an encoding that lacks characters.

Imports nothing of weight: it serves before the rest is there.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from typing import TextIO

INTERRUPTED, NOBODY_READS = 130, 141
"""Exit statuses: what a shell gives for SIGINT and SIGPIPE."""


def prepare() -> bool:
    """Make both streams take any text, and let a closed one go nowhere; returns whether anybody reads the output.

    A closed stream must not stay so: the next file to be opened would get its number, and its text.
    """
    readable = sys.stdout is not None
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it lives as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return readable


def say(text: str) -> None:
    """A line on standard error, and never elsewhere: lost where that is closed or full."""
    if sys.stderr is None:
        return  # print would turn to standard output
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        abandon(sys.stderr)


def abandon(stream: TextIO) -> None:
    """Let the interpreter's last flush of the stream go nowhere, so that it cannot fail once more."""
    with contextlib.suppress(OSError, ValueError):  # the stream may be no file
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
