"""Writes the report: one self-contained page, and its pictures and tables as files beside it."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from gemmsim import __version__, answers, plots
from gemmsim.device import Device, devices
from gemmsim.device import device as device_named
from gemmsim.errors import InputError, Warn, at_most, short, warn
from gemmsim.record_files import read_records, shipped_records
from gemmsim.records import Record
from gemmsim.report.chapters import ANSWER, CHAPTERS, Chapter
from gemmsim.report.data import document
from gemmsim.report.files import check, make, write
from gemmsim.report.findings import Findings, findings
from gemmsim.report.inline import inline, variables
from gemmsim.report.pictures import Picture
from gemmsim.report.surroundings import surroundings
from gemmsim.report.table import Table
from gemmsim.units import count, duration, percent, si, tau, words

NARROW_PX = 700
"""Up to this width of a window its pictures are the narrow ones."""


def write_report(records_path: Path | None, out: Path, device: Device | None = None, warn: Warn = warn) -> list[Path]:
    """Write the report of a file of records (None: the shipped ones) into the folder `out`, and return
    the files written, the page first. With a device given, only its records count. Records left out are
    named on the page, and to `warn`.

    Raises InputError when the file has no record of a known device, or the folder cannot be written.
    """
    check(Path(out))
    source = Path(records_path) if records_path is not None else shipped_records()
    records, warnings = read_records(source)
    found = _findings(records, device, source, warnings)
    for text in warnings:
        warn(text)
    make(Path(out))
    sections = [section(each) for each in found]
    contents = {name: content for each in sections for name, content in each.files.items()}
    page = _page(sections, source.name, [text.replace(str(source), source.name) for text in warnings])
    *others, index = write(Path(out), {**contents, "index.html": _encoded(page)})
    return [index, *others]


def _findings(records: Sequence[Record], device: Device | None, source: Path, warnings: list[str]) -> list[Findings]:
    """What there is to say of each device, in the order of the file; records without a prediction, of devices that
    nobody described or of points that the model cannot place, become warnings.
    """
    names = list(dict.fromkeys(record.device for record in records))
    if device is not None:
        if device.name not in names:
            raise InputError(f"{source}: no record of {device.name}; it has: {', '.join(names)}")
        shown = [device]
    else:
        shown = [device_named(name) for name in names if name in devices()]
        unknown = [
            f"{source}: device {short(name)} is not known; give its file to have its records in"
            for name in names
            if name not in devices()
        ]
        if not shown:
            raise InputError(unknown[-1])
        warnings += at_most(unknown, source)
    found = [findings(records, each) for each in shown]
    skipped = [text for each in found if each.comparison for text in each.comparison.skipped]
    warnings += at_most([f"{source}: no prediction for {text}" for text in skipped], source)
    return found


@dataclass(frozen=True)
class Listed:
    """A table, and the name of its CSV file."""

    table: Table
    file: str


@dataclass(frozen=True)
class Drawn:
    """A picture as the page has it, by the class of each of its versions, and the names of its files."""

    alt: str
    versions: tuple[tuple[str, Markup], ...]
    svg_name: str
    png_name: str


@dataclass(frozen=True)
class Part:
    """A chapter of one device as the page shows it."""

    chapter: Chapter
    id: str
    drawn: Drawn | None
    tables: tuple[Listed, ...]


@dataclass(frozen=True)
class Section:
    """What the page shows of a device, and the files beside the page."""

    findings: Findings
    slug: str
    answer: tuple[Listed, ...]
    parts: tuple[Part, ...]
    files: Mapping[str, bytes]


def section(of: Findings) -> Section:
    """Draws the pictures and writes the tables of a device."""
    slug = re.sub(r"[^a-z0-9]+", "-", of.device.name.lower()).strip("-") or "device"
    contents: dict[str, bytes] = {}

    def listed(table: Table) -> Listed:
        contents[f"{slug}-{table.name}.csv"] = _csv(table)
        return Listed(table, f"{slug}-{table.name}.csv")

    def parts() -> Iterator[Part]:
        for chapter in CHAPTERS:
            drawn = None
            if chapter.picture is not None and chapter.picture.has_data(of):
                drawn, own = _drawn(chapter.picture, of, f"{slug}-{chapter.picture.name}")
                contents.update(own)
            having_rows = [table for made in chapter.tables if (table := made(of)).rows]
            if drawn or having_rows:
                yield Part(chapter, f"{slug}-{chapter.name}", drawn, tuple(map(listed, having_rows)))

    answer = tuple(listed(table) for made in ANSWER if (table := made(of)).rows)
    return Section(of, slug, answer, tuple(parts()), contents)


def _drawn(picture: Picture, of: Findings, name: str) -> tuple[Drawn, dict[str, bytes]]:
    """(the picture as the page has it, its files)."""
    alt, first = picture.alt(of), picture.draw(of, plots.LIGHT, False)
    svg = plots.render(first, "svg")
    first.set_layout_engine("none")  # all is in its place now
    svgs = {"wide light": svg, "narrow light": plots.render(picture.draw(of, plots.LIGHT, True), "svg")}
    if picture.is_field:
        for shape in ("wide", "narrow"):
            svgs[f"{shape} dark"] = plots.render(picture.draw(of, plots.DARK, shape == "narrow"), "svg")

    def version(kind: str, svg: bytes) -> tuple[str, Markup]:
        shape, style = kind.split()
        text = inline(svg, plots.STYLES[style], f"{name}-{shape}-{style}", alt, not picture.is_field)
        return kind if picture.is_field else shape, Markup(text)  # escaped where it is made

    versions = tuple(version(kind, each) for kind, each in svgs.items())
    files = {f"{name}.svg": svg, f"{name}.png": plots.render(first, "png")}
    return Drawn(alt, versions, f"{name}.svg", f"{name}.png"), files


def _csv(table: Table) -> bytes:
    frame = pd.DataFrame(list(table.rows), columns=[column.name for column in table.columns])
    return _encoded(frame.to_csv(index=False, lineterminator="\n"))


def _encoded(text: str) -> bytes:
    """UTF-8; what it lacks, halves of characters in a record's text, as escapes."""
    return text.encode(errors="backslashreplace")


def _page(sections: Sequence[Section], source: str, warnings: Sequence[str]) -> str:
    templates = files("gemmsim") / "data" / "report"
    environment = Environment(
        loader=FunctionLoader(lambda name: (templates / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": count, "duration": duration, "percent": percent, "si": si, "tau": tau, "words": words
    }  # fmt: skip
    script = (templates / "page.js").read_text(encoding="utf-8").strip()
    themes = {
        name: {variable: color for color, variable in variables(theme).items()}
        for name, theme in (("light", plots.LIGHT), ("dark", plots.DARK))
    }
    return environment.get_template("index.html.j2").render(
        sections=sections,
        source=source,
        warnings=warnings,
        surroundings={each.slug: surroundings(each.findings.records) for each in sections},
        data=_as_script({each.slug: document(each.findings) for each in sections}),
        script=Markup(script),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        themes=themes,
        narrow_px=NARROW_PX,
        version=__version__,
    )


def _as_script(document: answers.Document) -> Markup:
    """The document as JSON that can stand within a page: nothing in it ends a script, or begins a comment."""
    return Markup(json.dumps(answers.plain(document), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))
