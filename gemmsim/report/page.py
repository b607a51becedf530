"""Writes the report: one self-contained page, and its pictures and tables as files beside it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryFile

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined

from gemmsim import __version__, plots
from gemmsim.device import Device, devices
from gemmsim.device import device as device_named
from gemmsim.errors import InputError, Warn, at_most, cannot_write, short, warn
from gemmsim.record_files import read_records, shipped_records
from gemmsim.records import Record
from gemmsim.report.chapter import Chapter, chapter
from gemmsim.report.pictures import PICTURES, Picture
from gemmsim.report.surroundings import surroundings
from gemmsim.report.tables import Table, tables
from gemmsim.units import duration, percent, si, tau, words

NARROW_PX = 700
"""Up to this width of a window its pictures have their panels stacked."""


def write_report(records_path: Path | None, out: Path, device: Device | None = None, warn: Warn = warn) -> list[Path]:
    """Write the report of a file of records (None: the shipped ones) into the folder `out`, and return
    the files written, the page first. With a device given, only its records count. Records left out are
    named on the page, and to `warn`.

    Raises InputError when the file has no record of a known device, or the folder cannot be written.
    """
    source = Path(records_path) if records_path is not None else shipped_records()
    records, warnings = read_records(source)
    chapters = _chapters(records, device, source, warnings)
    for text in warnings:
        warn(text)
    _make(Path(out))
    sections = [section(each) for each in chapters]
    contents = {name: content for each in sections for name, content in each.files.items()}
    page = _page(sections, source.name, [text.replace(str(source), source.name) for text in warnings])
    *others, index = _write(Path(out), {**contents, "index.html": _encoded(page)})
    return [index, *others]


def _chapters(records: Sequence[Record], device: Device | None, source: Path, warnings: list[str]) -> list[Chapter]:
    """One chapter a device, in the order of the file; records without a prediction, of devices that nobody
    described or of points that the model cannot place, become warnings.
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
    chapters = [chapter(records, each) for each in shown]
    skipped = [text for each in chapters if each.comparison for text in each.comparison.skipped]
    warnings += at_most([f"{source}: no prediction for {text}" for text in skipped], source)
    return chapters


@dataclass(frozen=True)
class Drawn:
    """A picture as files, and as the page embeds it: by (narrow, dark) what a window of that kind shows."""

    picture: Picture
    alt: str
    svg_name: str
    png_name: str
    uris: Mapping[tuple[bool, bool], str]


@dataclass(frozen=True)
class Section:
    """A chapter as the page shows it, and the files beside the page."""

    chapter: Chapter
    slug: str
    pictures: tuple[Drawn, ...]
    tables: tuple[tuple[Table, str], ...]
    files: Mapping[str, bytes]


def section(of: Chapter) -> Section:
    """Draws the pictures and writes the tables of a chapter."""
    slug = re.sub(r"[^a-z0-9]+", "-", of.device.name.lower()).strip("-") or "device"
    contents: dict[str, bytes] = {}
    drawn = []
    for picture in PICTURES:
        if picture.has_data(of):
            name = f"{slug}-{picture.name}"
            light = picture.draw(of, plots.LIGHT)
            contents |= {f"{name}.{form}": plots.render(light, form) for form in ("svg", "png")}
            uris = {(False, False): _uri(contents[f"{name}.svg"])}
            uris[False, True] = _uri(plots.render(picture.draw(of, plots.DARK), "svg"))
            if picture.draw_narrow:
                for dark, theme in enumerate((plots.LIGHT, plots.DARK)):
                    uris[True, bool(dark)] = _uri(plots.render(picture.draw_narrow(of, theme), "svg"))
            drawn.append(Drawn(picture, picture.alt(of), f"{name}.svg", f"{name}.png", uris))
    listed = tuple((table, f"{slug}-{table.name}.csv") for table in tables(of))
    contents |= {name: _csv(table) for table, name in listed}
    return Section(of, slug, tuple(drawn), listed, contents)


def _uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


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
    environment.filters |= {"duration": duration, "percent": percent, "si": si, "tau": tau, "words": words}
    return environment.get_template("index.html.j2").render(
        sections=sections,
        source=source,
        warnings=warnings,
        surroundings={each.slug: surroundings(each.chapter.records) for each in sections},
        narrow_px=NARROW_PX,
        version=__version__,
    )


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turns the system's refusal to write into one line."""
    try:
        yield
    except OSError as error:
        raise cannot_write(f"the report into {folder}", error) from None


def _make(folder: Path) -> None:
    """Makes the folder and sees that files can be written there: to be known before all is drawn."""
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        TemporaryFile(dir=folder).close()


def _write(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Every file whole or not at all, in order: so the page, which comes last, has its pictures."""
    written: list[Path] = []
    part: Path | None = None
    try:
        with _writing(folder):
            for name, content in contents.items():
                part = folder / f".{name}.part"
                part.write_bytes(content)
                written.append(part.replace(folder / name))
    finally:
        if part is not None:
            _forget(part)
    return written


def _forget(part: Path) -> None:
    """Removes what an interrupted write leaves."""
    try:
        part.unlink(missing_ok=True)
    except OSError:
        return
