"""Occupancy of the cases in a CSV file, however long: read, computed and handed on a piece at a time."""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.device import Capability, capabilities, capability
from gemmsim.errors import InputError, short
from gemmsim.occupancy.limits import LARGEST_DEMAND, Occupancy, occupancies

COLUMNS = ("cc", "threads_per_block", "regs_per_thread", "static_smem", "dynamic_smem", "carveout")
"""What a file must have, in any order; `barriers` it may have, others are not looked at."""
BARRIERS = "barriers"
DEFAULT = "default"
"""A carve-out that is not given: the most shared memory there is."""
PIECE_ROWS = 2**12
END = "end"
GZIP = b"\x1f\x8b"
UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)

Cells = list[str]
Columns = list[np.ndarray[Any, np.dtype[np.int64]]]
"""The number of each row's capability among those supported, then its block as `occupancies` takes it."""


@dataclass(frozen=True)
class Piece:
    """Some rows of a file, in its order: their cells as they stand there, and what fits on an SM, as arrays."""

    header: Cells
    rows: list[Cells]
    occupancy: Occupancy


def occupancy_pieces(path: str | Path, piece_rows: int = PIECE_ROWS) -> Iterator[Piece]:
    """What fits on an SM for each row of a CSV file, plain or compressed by gzip, so many rows at a time.

    What is held in memory does not grow with the file. Raises InputError, naming row and column, at the first row that
    cannot be used; all rows before it have been handed out by then.
    """
    with _opened(path) as file:
        reader = csv.reader(file, strict=True, skipinitialspace=True)
        header, damage, before = *_header(reader), 0
        places = {} if damage else _places(header, path)
        while damage is None:
            read, damage = _read(reader, piece_rows)
            rows = read if all(read) else [cells for cells in read if cells]
            columns, bad = _columns(rows, places)
            used = len(columns[0])
            if used or not (before or bad):  # a file without cases has its names
                yield Piece(header, rows[:used], occupancies(_supported(), *columns))
            if bad:
                line = reader.line_num - _lines_after(rows[used], read)
                raise InputError(f"{path}, row {before + used + 1} (line {line}): {bad}")
            before += used
        if damage != END:
            raise InputError(f"{path}, after line {reader.line_num}: {damage}")


def amount(text: str, name: str) -> int:
    """The whole number, 0 or more, that `text` writes; InputError with the nearest if it is none."""
    if re.fullmatch(r"\+?[0-9]{1,100}", text.strip(), re.ASCII):
        return int(text)
    try:
        near = f"; nearest: {max(0, round(float(text)))}"
    except (ValueError, OverflowError):
        near = ""
    raise InputError(f"{name} {short(text)} is not a whole number of 0 or more{near}")


def carveout_percent(text: str, name: str) -> int | None:
    """The carve-out that `text` writes, `default` being None; InputError unless it is from 0 to 100."""
    if text.strip().lower() == DEFAULT:
        return None
    try:
        percent = amount(text, name)
    except InputError as error:
        raise InputError(f"{error}; allowed: {DEFAULT}, and 0 to 100") from None
    if percent > 100:
        raise InputError(f"{name} {percent} is out of range; allowed: {DEFAULT}, and 0 to 100; nearest: 100")
    return percent


@contextmanager
def _opened(path: str | Path) -> Iterator[io.TextIOWrapper]:
    """The text of a file. Bytes that are not UTF-8 become characters that no cell of ours takes."""
    try:
        with open(path, "rb") as raw:
            start = raw.peek(2)[:2]
            if start in UTF_16:
                raise InputError(f"{path} is text in UTF-16; allowed: UTF-8")
            plain: Any = gzip.GzipFile(fileobj=raw) if start == GZIP else raw
            with io.TextIOWrapper(plain, encoding="utf-8-sig", errors="surrogateescape", newline="") as text:
                yield text
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None


def _read(reader: Iterator[Cells], rows: int) -> tuple[list[Cells], str | None]:
    """(so many rows, those of blank lines empty; why there are no more after them, if there are none)."""
    read: list[Cells] = []
    try:
        for cells in islice(reader, rows):
            read.append(cells)
    except (csv.Error, OSError, EOFError, zlib.error) as error:
        return read, f"the file is damaged ({error})"
    return read, None if len(read) == rows else END


def _header(reader: Iterator[Cells]) -> tuple[Cells, str | None]:
    """(the first row that is not blank, none if there is none; what is wrong with the file, if anything is)."""
    read, damage = _read(reader, 1)
    while damage is None and not read[0]:
        read, damage = _read(reader, 1)
    return (read or [[]])[0], None if damage == END else damage


def _lines_after(row: Cells, read: Sequence[Cells]) -> int:
    """Lines of a file that the rows after this one take; quoted cells can hold line ends."""
    place = next(place for place, cells in enumerate(read) if cells is row)
    return sum(1 + sum(cell.count("\n") for cell in cells) for cells in read[place + 1 :])


def _places(header: Cells, path: str | Path) -> dict[str, int]:
    """Where in a row each column stands; InputError where one is missing, or there twice."""
    names = [name.strip().lower() for name in header]
    if not names:
        raise InputError(f"{path} is empty; needed: a first row with the columns {', '.join(COLUMNS)}")
    known = [name for name in (*COLUMNS, BARRIERS) if name in names]
    for name in COLUMNS:
        if name not in names:
            raise InputError(
                f"{path}, row of names: column {name} is missing; needed: {','.join(COLUMNS)};"
                f" there: {short(','.join(names))}"
            )
    for name in known:
        if names.count(name) > 1:
            raise InputError(f"{path}, row of names: column {name} is there {names.count(name)} times")
    return {name: names.index(name) for name in known}


def _columns(rows: Sequence[Cells], places: Mapping[str, int]) -> tuple[Columns, str | None]:
    """(a column of numbers for each place, what is wrong with the row after their last, if anything is)."""
    try:
        return _usual(rows, places), None
    except (ValueError, LookupError, OverflowError):  # some cell is not as usual, so each is looked at
        cases, bad = [], None
        for cells in rows:
            try:
                cases.append([_number(cells, name, place) for name, place in places.items()])
            except InputError as error:
                bad = str(error)
                break
        return list(np.array(cases, np.int64).reshape(-1, len(places)).T), bad


def _usual(rows: Sequence[Cells], places: Mapping[str, int]) -> Columns:
    """The columns of rows as programs write them; some exception where a cell is anything else."""
    texts = {name: list(map(itemgetter(place), rows)) for name, place in places.items()}
    which = np.array(list(map(_capability_number, texts.pop("cc"))), np.int64)
    texts["carveout"] = ["100" if text == DEFAULT else text for text in texts["carveout"]]
    joined = " ".join(chain.from_iterable(texts.values()))
    if not (joined.isascii() and joined.replace(" ", "0").isdecimal()):
        raise ValueError("more than digits, or nothing")
    # what an array cannot hold becomes the largest number that it can: too much for any GPU as well
    numbers = dict(zip(texts, np.fromstring(joined, np.int64, sep=" ").reshape(len(texts), len(rows)), strict=True))
    if numbers["carveout"].max() > 100:
        raise ValueError("more than 100 percent")
    return [which, *numbers.values()]


def _number(cells: Cells, name: str, place: int) -> int:
    """The number that one cell of a row stands for."""
    if place >= len(cells):
        raise InputError(f"{name} is missing: the row has {len(cells)} cells")
    text = cells[place]
    if name == "cc":
        return _capability_number(text)
    if name == "carveout":
        percent = carveout_percent(text, name)
        return 100 if percent is None else percent
    return min(amount(text, name), LARGEST_DEMAND)


@lru_cache(maxsize=2**8)
def _capability_number(text: str) -> int:
    try:
        return capabilities().index(capability(text).name)
    except InputError as error:
        raise InputError(f"cc: {error}") from None


@cache
def _supported() -> tuple[Capability, ...]:
    return tuple(map(capability, capabilities()))
