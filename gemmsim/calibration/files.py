"""Files of calibrated numbers: TOML, a table for each number, read whole and written part by part.

A number stands as `[clock_hz]` with `value`, `source` and perhaps `note` and `samples`. What a run of microbenchmarks
read from the hardware stands in `[parts.NAME]`, with the environment; it takes part in nothing.
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gemmsim.errors import InputError, cannot_write, short, unknown, visible

LARGEST_FILE_BYTES = 4_000_000
ENTRY_KEYS = ("value", "source", "note", "samples")


@dataclass(frozen=True)
class Entry:
    """One number, where it is from, what to know about it, and the samples that it is the median of."""

    value: float
    source: str = "not given"
    note: str = ""
    samples: tuple[float, ...] = ()

    @classmethod
    def from_toml(cls, key: str, table: Any) -> Entry:
        """The entry under a key, written as a table or as a bare number. Raises InputError that names the key."""
        table = table if isinstance(table, dict) else {"value": table}
        for name in table:
            if name not in ENTRY_KEYS:
                raise unknown("key", f"{key}.{name}", (f"{key}.{each}" for each in ENTRY_KEYS))
        if "value" not in table:
            raise InputError(f"{key} has no value; needed: {key} = ..., or value = ... in [{key}]")
        samples = table.get("samples", [])
        if not isinstance(samples, list):
            raise InputError(f"{key}.samples must be a list of numbers, not {short(samples)}")
        texts = {name: _text(table[name], f"{key}.{name}") for name in ("source", "note") if name in table}
        numbers = tuple(_number(each, f"{key}.samples") for each in samples)
        return cls(_number(table["value"], key), samples=numbers, **texts)


@dataclass(frozen=True)
class CalibrationFile:
    """What a file holds: the GPU's name, its numbers, and what is kept of the parts that measured them."""

    device: str
    entries: Mapping[str, Entry] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def with_part(self, name: str, entries: Mapping[str, Entry], record: Mapping[str, Any]) -> CalibrationFile:
        """The same with one more part, in place of what it measured before."""
        return CalibrationFile(self.device, {**self.entries, **entries}, {**self.parts, name: record})


def read_calibration_file(path: str | Path) -> CalibrationFile:
    """What a file holds; the GPU's name defaults to the file's. Raises InputError, naming file and key."""
    table = read_tables(path)
    try:
        name = _text(table.pop("device", Path(path).stem), "device")
        parts = table.pop("parts", {})
        if not isinstance(parts, dict) or not all(isinstance(each, dict) for each in parts.values()):
            raise InputError(f"parts must be tables, [parts.NAME], not {short(parts)}")
        return CalibrationFile(name, {key: Entry.from_toml(key, value) for key, value in table.items()}, parts)
    except InputError as error:
        raise InputError(f"calibration file {path}: {error}") from None


def read_tables(path: str | Path) -> dict[str, Any]:
    """The tables of a TOML file. Raises InputError, naming the file, if it is none or too large."""
    path = Path(path)
    try:
        if not path.is_file():
            raise InputError(f"calibration file {path} {'is not a file' if path.exists() else 'does not exist'}")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"calibration file {path} is larger than {LARGEST_FILE_BYTES} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"calibration file {path} is not readable as TOML: {' '.join(reason.split())}") from None


def write_calibration_file(path: str | Path, content: CalibrationFile) -> None:
    """Write the file, in one step, so that it is never half there. Raises InputError or MachineError if it cannot."""
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            beside.write_text(toml_text(content), encoding="utf-8")
            os.replace(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise cannot_write(path, error) from None


def toml_text(content: CalibrationFile) -> str:
    """The file as text: numbers first, then the parts."""
    lines = [f"device = {_toml(content.device)}"]
    for key, entry in content.entries.items():
        lines += ["", f"[{key}]", f"value = {_toml(entry.value)}", f"source = {_toml(entry.source)}"]
        lines += [f"note = {_toml(entry.note)}"] if entry.note else []
        lines += [f"samples = {_toml(list(entry.samples))}"] if entry.samples else []
    for name, record in content.parts.items():
        lines += ["", *_table(f"parts.{name}", record)]
    return "\n".join(lines) + "\n"


def _table(path: str, table: Mapping[str, Any]) -> Iterator[str]:
    """The lines of a table: its values first, then the tables in it. What is None is left out."""
    yield f"[{path}]"
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    yield from (
        f"{_key(key)} = {_toml(value)}" for key, value in table.items() if key not in inner and value is not None
    )
    for key, value in inner.items():
        yield ""
        yield from _table(f"{path}.{_key(key)}", value)


def _key(text: str) -> str:
    bare = text.isascii() and text.replace("_", "a").replace("-", "a").isalnum()
    return text if bare else json.dumps(text, ensure_ascii=False)


def _toml(value: Any) -> str:
    """A value as TOML writes it; numbers that are whole stay so, others have twelve digits."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, int) or (math.isfinite(value) and value == int(value) and abs(value) < 2**53):
        return str(int(value))
    return repr(float(f"{value:.12g}"))


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{key} must be a number, not {short(value)}")
    return float(value)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{key} must be a text that is not empty, not {short(value)}")
    return visible(value)
