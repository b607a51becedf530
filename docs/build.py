"""Builds docs/walk.md and its pictures from docs/walk/: `make docs`, or `python -m docs.build`.

The template is Markdown with Jinja's placeholders. What a placeholder asks is a command of gemmsim, so that every
number of the page is one that the reader can have printed:

    ask("traffic 2048 --kernel naive")    the JSON document of the command
    show("explain 2048 ...", "How", 4)    lines of what it prints, from that which begins so
    picture("reads", "alternative text")  a picture of docs/walk/pictures.py
    holds(gain > 1, "it pays")            the words, but only where they are true: else nothing is built
"""

from __future__ import annotations

import io
import json
import os
import shlex
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from docs.walk.pictures import PICTURES
from gemmsim import cli, units
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.plots.style import render
from gemmsim.registers.register_files import register_file
from gemmsim.roofline import bandwidths

DOCS = Path(__file__).parent
PAGE, FOLDER = DOCS / "walk.md", DOCS / "pictures" / "walk"
WIDTH = 120
"""Characters of a line of prose."""
COLUMNS = "80"
"""Those of what commands print."""


@dataclass(frozen=True)
class Built:
    """The page, and the pictures that it shows, by name."""

    page: str
    pictures: dict[str, bytes]


def build() -> Built:
    """The page and its pictures, made anew."""
    shown: list[str] = []

    def picture(name: str, text: str) -> str:
        shown.append(name)
        return f"![{text}]({(FOLDER / name).relative_to(DOCS).as_posix()}.svg)"

    templates = Environment(
        loader=FileSystemLoader(DOCS / "walk"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True, autoescape=False,
    )  # fmt: skip
    templates.filters |= FILTERS
    h200 = device("h200")
    names = {
        "ask": ask, "show": show, "picture": picture, "holds": holds, "kernels": KERNELS,
        "h200": h200, "rates": bandwidths(h200), "register_file": register_file(h200.capability),
    }  # fmt: skip
    page = wrapped(templates.get_template("walk.md.j2").render(names))
    return Built(page, {name: render(PICTURES[name](), "svg") for name in shown})


@cache
def ask(line: str) -> Any:
    """The JSON document of a command, given as its words after `gemmsim`."""
    return json.loads(_printed(line, "--json"))


def show(line: str, start: str = "", lines: int | None = None) -> str:
    """The command and what it prints, as a block of code: so many lines from that which begins with `start`."""
    printed = _printed(line).splitlines()
    first = next(number for number, text in enumerate(printed) if text.startswith(start))
    chosen = printed[first:] if lines is None else printed[first : first + lines]
    return "\n".join(f"    {text}".rstrip() for text in [f"$ gemmsim {line}", "", *chosen])


@cache
def _printed(line: str, *more: str) -> str:
    """Standard output of a command that succeeds."""
    out, err = io.StringIO(), io.StringIO()
    with _columns(), redirect_stdout(out), redirect_stderr(err):
        status = cli.main([*shlex.split(line), *more])
    if status:
        raise RuntimeError(f"gemmsim {line} exited {status}: {err.getvalue().strip()}")
    return out.getvalue()


def holds(condition: Any, words: str) -> str:
    """The words of a claim; RuntimeError where it is not so."""
    if not condition:
        raise RuntimeError(f'no longer true, so to be said otherwise in the template: "{words}"')
    return words


@contextmanager
def _columns() -> Iterator[None]:
    """Terminals as wide as the page takes."""
    before = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = COLUMNS
    try:
        yield
    finally:
        if before is None:
            del os.environ["COLUMNS"]
        else:
            os.environ["COLUMNS"] = before


def wrapped(text: str) -> str:
    """The text with its paragraphs filled anew; headings, lists, tables, code and pictures stay as they are."""
    parts = text.strip().split("\n\n")
    return "\n\n".join(_filled(part) for part in parts if part.strip()) + "\n"


def _filled(part: str) -> str:
    part = part.strip("\n").rstrip()
    if part.startswith(("#", "|", "    ", "* ", "![", "```", "<")):
        return part
    return textwrap.fill(" ".join(part.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else units.duration(seconds)


FILTERS: dict[str, Callable[..., str]] = {
    "count": units.count,
    "si": units.si,
    "time": _time,
    "percent": units.percent,
    "words": units.words,
    "three": lambda value: f"{value:.3g}",
    "four": lambda value: f"{value:.4g}",
    "kib": lambda value: f"{value / 1024:.3g} KiB",
    "mib": lambda value: f"{value / 2**20:.3g} MiB",
}


def write(built: Built) -> None:
    """Write page and pictures, and remove pictures that the page no longer shows."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(built.page, encoding="utf-8")
    for name, content in built.pictures.items():
        (FOLDER / f"{name}.svg").write_bytes(content)
    for path in FOLDER.glob("*.svg"):
        if path.stem not in built.pictures:
            path.unlink()


if __name__ == "__main__":
    write(build())
