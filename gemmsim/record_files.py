"""Files of points and records, JSON Lines, one a line.

A record is never changed, only appended; a file survives a crash in the middle of a line.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from gemmsim.errors import InputError, at_most, cannot_write
from gemmsim.records import Point, Record

SHIPPED = Path(__file__).parent / "data" / "records" / "h200.jsonl"

Parsed = TypeVar("Parsed")


def latest(records: Iterable[Record]) -> list[Record]:
    """The record that counts of every point and device, in the order in which the points first appear.

    That is the last one with a result; a failed one, the last, only where there is no other: a later failure (a
    busy GPU, a timeout) takes nothing back of what was verified and timed.
    """
    chosen: dict[tuple[str, str], Record] = {}
    for record in records:
        key = (record.device, record.point.key)
        if record.ok or key not in chosen or not chosen[key].ok:
            chosen[key] = record
    return list(chosen.values())


def read_records(path: str | Path) -> tuple[list[Record], list[str]]:
    """(records, warnings) of a file: a damaged line is skipped and becomes a warning with its number.

    Raises InputError when the file cannot be read or no line of it is a record.
    """
    records, warnings = scan_records(path)
    if not records:
        raise InputError(f"{path}: no record in it" + (f"; {warnings[0]}" if warnings else ""))
    return records, warnings


def scan_records(path: str | Path) -> tuple[list[Record], list[str]]:
    """As `read_records`, but a file without a record is no error: a campaign may have died on its first."""
    records: list[Record] = []
    warnings: list[str] = []
    content = _content(path)
    numbers = [number for number, _ in _lines(content)]
    for number, line in _lines(content):
        try:
            records.append(_parse(line, Record.from_dict, f"{path}, line {number}"))
        except InputError as error:
            cut = number == numbers[-1] and not content.endswith(b"\n")
            warnings.append(f"{error}; skipped" + (" (the last line, cut off while it was written)" if cut else ""))
    return records, at_most(warnings, path)


def read_points(path: str | Path) -> list[Point]:
    """The points of a file, one JSON object a line.

    Raises InputError, with the number of the line, for a line that is no point, and for an empty file.
    """
    points = [
        _parse(line, Point.from_dict, f"{path}, line {number}") for number, line in _lines(_content(path))
    ]  # fmt: skip
    if not points:
        raise InputError(f"{path}: no point in it")
    return points


def append_record(path: str | Path, record: Record) -> None:
    """Add one line and see it onto the disk; a partial last line keeps its own, so that nothing is lost.

    Raises InputError when the record is not JSON or the path cannot be written, MachineError when the disk is full.
    """
    try:
        line = json.dumps(record.to_dict(), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        raise InputError(f"the record of {record.point} cannot be written as JSON: {error}") from None
    with writing(path), open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: str | Path) -> None:
    """Raise InputError unless records can be appended there: to be asked before the work, not after.

    Leaves no file where there was none.
    """
    with writing(path):
        try:
            open(path, "xb").close()
        except FileExistsError:
            open(path, "ab").close()
        else:
            os.unlink(path)


def shipped_records(campaign: str = "") -> Path:
    """The file of a campaign that comes with the package; InputError if this installation has none.

    Without a name that is the ladder's, which predictions are compared with. "counts" has small launches of many
    tilings, for their counters; "layouts" the same tiling as it is, padded and swizzled; "copies" small launches of
    the kernels with warp tiles, half of them fed by asynchronous copies.
    """
    path = SHIPPED.with_name(f"{SHIPPED.stem}-{campaign}.jsonl") if campaign else SHIPPED
    if not path.is_file():
        raise InputError(f"this installation has no shipped records ({path.name}); give a file of your own")
    return path


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turns the system's refusal to write into one line."""
    try:
        yield
    except OSError as error:
        raise cannot_write(path, error) from None


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes().removeprefix(codecs.BOM_UTF8)  # some editors begin a file so
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _lines(content: bytes) -> list[tuple[int, bytes]]:
    """(number from 1, text) of the lines that are not blank."""
    return [(number, line) for number, line in enumerate(content.split(b"\n"), 1) if line.strip()]


def _parse(line: bytes, form: Callable[[Any, str], Parsed], where: str) -> Parsed:
    try:
        data = json.loads(line.decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"{where}: not readable as JSON ({reason})") from None
    return form(data, where)


def _refuse(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is no number of JSON", "", 0)
