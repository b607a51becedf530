"""The file of a picture: which can be written, and writing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from gemmsim.errors import InputError, cannot_write, short
from gemmsim.record_files import check_writable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES = (".png", ".svg")


def picture_path(text: str, option: str = "--picture", forms: Sequence[str] = PICTURES) -> Path:
    """The file to draw into; InputError, before any work, for one of another kind than those that can be written, and
    for a place that cannot take it."""
    path = Path(text)
    if path.suffix.lower() not in forms:
        raise InputError(f"{option} {short(text)} is no picture that can be written; allowed: {', '.join(forms)}")
    check_whole(path)
    os.environ["MPLBACKEND"] = "agg"  # no window opens, whatever a notebook around this asks Matplotlib for
    return path


def write_picture(drawn: Figure, path: Path) -> None:
    """Write a figure in the form that the name of the file says; InputError for a path that cannot take it."""
    from gemmsim.plots.style import render  # imports Matplotlib, which takes long

    write_whole(render(drawn, path.suffix.lower().removeprefix(".")), path)


def check_whole(path: Path) -> None:
    """Raise InputError unless `write_whole` can write there: to be asked before the work, not after."""
    check_writable(path)
    check_writable(_part(path))


def write_whole(content: bytes, path: Path) -> None:
    """Write a file whole or not at all; InputError for a path that cannot take it, MachineError where the disk is
    full."""
    part = _part(path)
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        if part != path:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    """Where the file is written before it takes the place of `path`; a device takes what is written itself."""
    return path.with_name(f".{path.name}.part") if path.is_file() or not path.exists() else path
