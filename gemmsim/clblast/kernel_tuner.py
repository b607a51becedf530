"""Search spaces that Kernel Tuner measured, of the kernel `clblast`: its cache files, and compact tables of them.

A cache file is JSON: device_name, kernel_name, problem_size, tune_params_keys, tune_params, objective, and cache,
{"16,32,…": {"MWG": 16, "NWG": 32, …, "time": milliseconds, "times": [milliseconds, …]}}, where the time may be the
name of a failure. The tuner appends entries while it runs, so that a file may end behind any of them. A table is CSV,
a row for each configuration: its parameters and median_ms. Either may be compressed by gzip.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from gemmsim.clblast.configurations import LARGEST_PARAMETER, PARAMETERS, Configurations
from gemmsim.compare.ranking import Times
from gemmsim.errors import InputError, at_most, short
from gemmsim.problem import Problem

TIME_COLUMN = "median_ms"
FAILURES = ("InvalidConfig", "CompilationFailedConfig", "RuntimeFailedConfig")
"""What Kernel Tuner writes instead of a time."""
FAILED_MS = 1e20
"""The time that it wrote of failures before it had names for them."""
EXPECTED = {"PRECISION": 32, "GEMMK": 0}
"""Parameters of CLBlast's other kernels and types, and what they are for this one, where a file has them."""
LARGEST_FILE_BYTES = 500_000_000
"""Of a file, decompressed; the public ones have less than 100 MB."""
GZIP_MAGIC = b"\x1f\x8b"
NUMBER = re.compile(r"[+-]?\d{1,9}(\.0+)?")


@dataclass(frozen=True)
class SearchSpace:
    """A measured search space: the configurations that ran, and the median seconds of each.

    `failed` configurations did not compile or run, `unmodelled` break a rule of the model. `device_name` and
    `problem` are the file's, None where it does not say.
    """

    path: Path
    configurations: Configurations
    measured_s: Times
    failed: int
    unmodelled: int
    device_name: str | None
    problem: Problem | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Entry:
    """One configuration of a file: where it stands, its columns, and milliseconds, or None if it failed."""

    where: str
    columns: Mapping[str, Any]
    median_ms: float | None


def read_search_space(path: str | Path) -> SearchSpace:
    """Read a file of either kind.

    A file cut in the middle of an entry gives its complete ones, and a warning. Raises InputError for a file that
    cannot be read, for one of another kernel (what is missing), for a broken entry (which), and where no
    configuration is left.
    """
    path = Path(path)
    text, whole = _text(path)
    warnings: list[str] = []
    header: Mapping[str, Any] = {}
    if text.lstrip().startswith("{"):
        header, entries = _cache_entries(text, path, whole, warnings)
    else:
        entries = _table_entries(text, path, whole, warnings)
    if not entries:
        raise InputError(f"{path}: no configuration in it" + ("" if whole and not warnings else "; it is cut off"))
    _check_kernel(entries[0], path, header.get("kernel_name"))
    ran = [entry for entry in entries if entry.median_ms is not None]
    if not ran:
        raise InputError(f"{path}: all of {len(entries)} configurations failed; needed: one with a time")
    found = Configurations.of({name: [_parameter(entry, name) for entry in ran] for name in PARAMETERS})
    broken = found.broken_rules()
    kept = [number for number, rule in enumerate(broken) if not rule]
    if len(kept) < len(ran):
        at = next(number for number, rule in enumerate(broken) if rule)
        first = f"{ran[at].where}: {broken[at]}"
        if not kept:
            raise InputError(f"no configuration that kernel clblast is modelled for; {first}")
        warnings.append(f"{len(ran) - len(kept)} configurations are not modelled and left out; {first}")
    return SearchSpace(
        path,
        found[kept],
        np.array([ran[number].median_ms for number in kept], float) / 1e3,
        len(entries) - len(ran),
        len(ran) - len(kept),
        header.get("device_name") if isinstance(header.get("device_name"), str) else None,
        _problem(header),
        tuple(at_most(warnings, path)),
    )


def _text(path: Path) -> tuple[str, bool]:
    """The text of a file, decompressed where it is compressed, and whether all of that was there."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    whole = True
    if data.startswith(GZIP_MAGIC):
        stream = zlib.decompressobj(wbits=31)
        try:
            data = stream.decompress(data, LARGEST_FILE_BYTES + 1)
        except zlib.error as error:
            raise InputError(f"{path} is not readable as gzip: {error}") from None
        whole = stream.eof
    if len(data) > LARGEST_FILE_BYTES:
        raise InputError(f"{path} holds more than {LARGEST_FILE_BYTES} bytes; is it a search space?")
    try:
        return data.decode("utf-8-sig", errors="strict" if whole else "ignore"), whole
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text; needed: CSV or JSON, perhaps compressed by gzip") from None


def _table_entries(text: str, path: Path, whole: bool, warnings: list[str]) -> list[_Entry]:
    """The rows of a table."""
    lines = [line for line in csv.reader(io.StringIO(text)) if line]
    if not lines or not (whole or "\n" in text):
        return []
    names = [name.strip() for name in lines[0]]
    missing = [name for name in (*PARAMETERS, TIME_COLUMN) if name not in names]
    if missing:
        raise InputError(f"{path} is not of kernel clblast: column {', '.join(missing)} is missing")
    rows = lines[1:]
    if rows and (not whole or len(rows[-1]) < len(names)) and not text.endswith("\n"):
        rows.pop()
        warnings.append(f"{path}: cut off in row {len(rows) + 1}; the {len(rows)} before it are taken")
    entries = []
    for number, row in enumerate(rows, 1):
        where = f"{path}, row {number}"
        if len(row) != len(names):
            raise InputError(f"{where}: {len(row)} columns; the header has {len(names)}")
        columns = dict(zip(names, (cell.strip() for cell in row), strict=True))
        entries.append(_Entry(where, columns, _milliseconds(columns[TIME_COLUMN], where)))
    return entries


def _cache_entries(text: str, path: Path, whole: bool, warnings: list[str]) -> tuple[Mapping[str, Any], list[_Entry]]:
    """The header and the entries of a cache file."""
    opening = re.search(r'"cache"\s*:\s*\{', text)
    if opening is None and not whole:
        return {}, []
    if opening is None:
        raise InputError(f"{path} is no cache file of Kernel Tuner: cache is missing")
    try:
        # what stands behind the entries, if anything, is not needed
        header = json.loads(text[: opening.end()] + "}}")
    except (ValueError, RecursionError):
        raise InputError(f"{path} is no cache file of Kernel Tuner: what stands before cache is not JSON") from None
    entries = []
    for key, value in _members(text, opening.end(), path, warnings):
        where = f"{path}, entry {short(key)}"
        if not isinstance(value, dict):
            raise InputError(f"{where}: {short(value)} is no JSON object")
        entries.append(_Entry(where, value, _measured_ms(value, where)))
    if not whole and not warnings:
        warnings.append(f"{path}: the compressed file is cut off; the {len(entries)} entries in it are taken")
    return header, entries


def _members(text: str, at: int, path: Path, warnings: list[str]) -> Iterator[tuple[str, Any]]:
    """The members of the JSON object whose inside begins at `at`, as far as they are complete."""
    decoder, separators, count = json.JSONDecoder(), re.compile(r"[\s,]*"), 0
    colon = re.compile(r"\s*:\s*")
    while True:
        at = separators.match(text, at).end()  # type: ignore[union-attr]  # matches everywhere
        if at == len(text) or text[at] == "}":
            return
        try:
            key, end = decoder.raw_decode(text, at)
            between = colon.match(text, end)
            if between is None or not isinstance(key, str):
                raise ValueError
            value, at = decoder.raw_decode(text, between.end())
        except (ValueError, RecursionError):
            rest = text.find("\n", at)
            if rest >= 0 and text[rest:].strip(" \r\n\t,}"):  # more entries: this is no end
                raise InputError(f"{path}, entry {count + 1}: not readable as JSON") from None
            warnings.append(f"{path}: cut off in entry {count + 1}; the {count} before it are taken")
            return
        count += 1
        yield key, value


def _measured_ms(entry: Mapping[str, Any], where: str) -> float | None:
    """The median of the runs where they are recorded, else the time, in milliseconds; None of a failure."""
    if "time" not in entry:
        raise InputError(f"{where}: time is missing")
    time, runs = entry["time"], entry.get("times")
    if not isinstance(time, str) and isinstance(runs, Sequence) and runs and not isinstance(runs, str):
        return median(_positive(run, where) for run in runs)
    return _milliseconds(time, where)


def _milliseconds(value: Any, where: str) -> float | None:
    """A time in milliseconds, None where a failure or nothing stands in its place."""
    if isinstance(value, str):
        if value in (*FAILURES, ""):
            return None
        try:
            value = float(value)
        except ValueError:
            raise InputError(
                f"{where}: time {short(value)}; allowed: milliseconds, or one of {', '.join(FAILURES)}"
            ) from None
    if value is None or value == FAILED_MS or value != value:
        return None
    return _positive(value, where)


def _positive(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < FAILED_MS:
        raise InputError(f"{where}: time {short(value)}; allowed: positive milliseconds")
    return float(value)


def _check_kernel(first: _Entry, path: Path, kernel: Any) -> None:
    """InputError unless the first entry has the parameters of the kernel that is modelled."""
    missing = [name for name in PARAMETERS if name not in first.columns]
    if missing:
        of = f" of {kernel}" if isinstance(kernel, str) else ""
        raise InputError(
            f"{path}: a search space{of}, not of kernel clblast: parameter {', '.join(missing)} is missing"
        )
    for name, expected in EXPECTED.items():
        if name in first.columns and (value := _parameter(first, name)) != expected:
            raise InputError(f"{path}: {name} {value} is another kernel than clblast, where it is {expected}")


def _parameter(entry: _Entry, name: str) -> int:
    value = entry.columns.get(name)
    number = str(value)
    if isinstance(value, bool) or NUMBER.fullmatch(number) is None or not 0 <= float(number) <= LARGEST_PARAMETER:
        raise InputError(f"{entry.where}: {name} {short(value)}; allowed: whole numbers from 0 to {LARGEST_PARAMETER}")
    return int(float(number))


def _problem(header: Mapping[str, Any]) -> Problem | None:
    """The problem of a cache file, which says m and n alone: k is taken for the same where they are."""
    size = header.get("problem_size")
    numbers = size if isinstance(size, list) else [size]
    if len(numbers) not in (1, 2, 3) or not all(type(number) is int and number > 0 for number in numbers):
        return None
    m, n = numbers[0], numbers[min(1, len(numbers) - 1)]
    return Problem(m, n, m) if m == n else None
