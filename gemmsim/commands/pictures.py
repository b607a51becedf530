"""The file of a picture: which can be written, and writing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gemmsim.errors import InputError, short
from gemmsim.whole_files import check_whole, write_whole

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
