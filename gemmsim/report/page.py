"""Writes the report: one self-contained page, and its pictures and tables as files beside it."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FunctionLoader, StrictUndefined

from gemmsim import __version__, plots
from gemmsim.device import Device, devices
from gemmsim.device import device as device_named
from gemmsim.errors import InputError
from gemmsim.records import Record, read_records, shipped_records
from gemmsim.report.chapter import Chapter, chapter
from gemmsim.report.pictures import PICTURES, Picture
from gemmsim.report.tables import Table, tables, tau, tiling_text
from gemmsim.units import duration, percent, si

FEW_VALUES = 3
"""Values of one entry of the environment that the page lists; of more it says how many."""


def write_report(records_path: Path | None, out: Path, device: Device | None = None) -> list[Path]:
    """Write the report of a file of records (None: the shipped ones) into the folder `out`, and return
    the files written, the page first. With a device given, only its records count.

    Raises InputError when the file has no record of a known device, or the folder cannot be written.
    """
    source = Path(records_path) if records_path is not None else shipped_records()
    records, warnings = read_records(source)
    sections = [section(each) for each in _chapters(records, device, source, warnings)]
    contents = {name: content for each in sections for name, content in each.files.items()}
    page = _page(sections, source.name, [text.replace(str(source), source.name) for text in warnings], records)
    *others, index = _write(Path(out), {**contents, "index.html": page.encode()})
    return [index, *others]


def _chapters(records: Sequence[Record], device: Device | None, source: Path, warnings: list[str]) -> list[Chapter]:
    """One chapter a device, in the order of the file; devices that nobody described become warnings."""
    names = list(dict.fromkeys(record.device for record in records))
    if device is not None:
        if device.name not in names:
            raise InputError(f"{source}: no record of {device.name}; it has: {', '.join(names)}")
        return [chapter(records, device)]
    known = [name for name in names if name in devices()]
    for name in names:
        if name not in known:
            warnings.append(f"{source}: device {name!r} is not known; give its file to have its records in")
    if not known:
        raise InputError(warnings[-1])
    return [chapter(records, device_named(name)) for name in known]


@dataclass(frozen=True)
class Drawn:
    """A picture as files, and as the page embeds it: for light and for dark surroundings."""

    picture: Picture
    alt: str
    svg_name: str
    png_name: str
    light_uri: str
    dark_uri: str


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
            light, dark = picture.draw(of, plots.LIGHT), picture.draw(of, plots.DARK)
            name = f"{slug}-{picture.name}"
            contents |= {f"{name}.{form}": plots.render(light, form) for form in ("svg", "png")}
            uris = _uri(contents[f"{name}.svg"]), _uri(plots.render(dark, "svg"))
            drawn.append(Drawn(picture, picture.alt(of), f"{name}.svg", f"{name}.png", *uris))
    listed = tuple((table, f"{slug}-{table.name}.csv") for table in tables(of))
    contents |= {name: _csv(table) for table, name in listed}
    return Section(of, slug, tuple(drawn), listed, contents)


def _uri(svg: bytes) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(svg).decode()


def _csv(table: Table) -> bytes:
    frame = pd.DataFrame(list(table.rows), columns=[column.name for column in table.columns])
    return frame.to_csv(index=False, lineterminator="\n").encode()


def _page(sections: Sequence[Section], source: str, warnings: Sequence[str], records: Iterable[Record]) -> str:
    templates = files("gemmsim") / "data" / "report"
    environment = Environment(
        loader=FunctionLoader(lambda name: (templates / name).read_text(encoding="utf-8")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"duration": duration, "percent": percent, "si": si, "tau": tau}
    environment.globals |= {"tiling_text": tiling_text}
    shown = {each.chapter.device.name for each in sections}
    return environment.get_template("index.html.j2").render(
        sections=sections,
        source=source,
        warnings=warnings,
        surroundings=_surroundings(record for record in records if record.device in shown),
        version=__version__,
    )


def _surroundings(records: Iterable[Record]) -> dict[str, str]:
    """What the records say of drivers, clocks and versions: each entry with its few values."""
    values: dict[str, dict[str, None]] = {}
    for record in records:
        for name, value in record.environment.items():
            if isinstance(value, str | int | float):
                values.setdefault(name, {})[str(value)] = None
    return {
        name: ", ".join(of_name) if len(of_name) <= FEW_VALUES else f"{len(of_name)} values"
        for name, of_name in values.items()
    }


def _write(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Every file whole or not at all, in order: so the page, which comes last, has its pictures.

    Raises InputError when the folder cannot be made or written.
    """
    written: list[Path] = []
    part: Path | None = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            part = folder / f".{name}.part"
            part.write_bytes(content)
            written.append(part.replace(folder / name))
    except OSError as error:
        raise InputError(f"cannot write the report into {folder}: {error.strerror or error}") from None
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
