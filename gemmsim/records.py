"""What was measured: points, records, and the JSON Lines files that hold them, one record a line.

A record is never changed, only appended; a file survives a crash in the middle of a line.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from gemmsim.errors import InputError, MachineError
from gemmsim.kernels import kernel as kernel_named
from gemmsim.problem import Problem
from gemmsim.tiling import FIELDS, Tiling

SCHEMA = 1
"""Version of the records' form; a reader skips records of a later one."""
TILING_KEYS = (*FIELDS, "warp_m", "warp_n", "swizzle", "split_k")
"""Keys of a tiling in JSON, whether or not a kernel has them; all others are ignored."""
SHIPPED = Path(__file__).parent / "data" / "records" / "h200.jsonl"

Parsed = TypeVar("Parsed")


class Resources(TypedDict):
    """What one block takes, as the driver reports it; `blocks_per_sm` is the driver's occupancy."""

    registers_per_thread: int
    shared_bytes: int
    local_bytes: int
    blocks_per_sm: int | None


@dataclass(frozen=True)
class Failure:
    """Why a point has no result, in one line."""

    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", " ".join(self.reason.split()) or "failed without a message")


@dataclass(frozen=True)
class Point:
    """One configuration of one problem: what can be measured. Raises InputError unless the kernel takes it."""

    problem: Problem
    kernel: str
    tiling: Tiling

    def __post_init__(self) -> None:
        if not isinstance(self.problem.m + self.problem.n + self.problem.k + self.tiling.threads, int):
            raise InputError("a point is one problem in one tiling, no array of them")
        kernel_named(self.kernel).check(self.tiling)

    @classmethod
    def from_dict(cls, data: Any, where: str = "") -> Point:
        """The point of a JSON object as `to_dict` gives it; `dtype` may be missing, unknown keys are ignored.

        Raises InputError that names the key, and `where` it stands, such as "points.jsonl, line 3".
        """
        with _located(where):
            entries = _object(data, "a point")
            for key in ("m", "n", "k", "kernel"):
                if key not in entries:
                    raise InputError(f"{key} is missing; needed: m, n, k, kernel, tiling")
            problem = Problem(entries["m"], entries["n"], entries["k"], str(entries.get("dtype") or "fp32"))
            kernel = kernel_named(str(entries["kernel"]))
            tiling = _object(entries.get("tiling") or {}, "tiling")
            values = {key: value for key, value in tiling.items() if key in TILING_KEYS}
            return cls(problem, kernel.name, kernel.tiling(**values))

    def to_dict(self) -> dict[str, Any]:
        """The point as JSON has it: the fields of its kernel, no others."""
        return {
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "kernel": self.kernel,
            "tiling": kernel_named(self.kernel).tiling_dict(self.tiling),
            "dtype": self.problem.dtype,
        }

    @property
    def key(self) -> str:
        """The same text for the same point, another for any other."""
        tiling = kernel_named(self.kernel).tiling_dict(self.tiling)
        return f"{self.kernel} {self.problem} " + " ".join(f"{name}={value}" for name, value in tiling.items())

    def __str__(self) -> str:
        return f"{self.kernel} {self.problem} {self.tiling}"


@dataclass(frozen=True)
class Record:
    """One point on one GPU: its times, or why there are none.

    samples_s           every timed launch, seconds, in order; median_s their median
    resources           as the driver reports them
    verification_error  largest |C - reference| over the norms of its row of A and column of B
    counters            the profiler's, whole numbers for the whole launch, by the names of the model
    environment         where, when and under which clocks and versions it ran

    Raises InputError where these contradict each other.
    """

    point: Point
    device: str
    status: str
    failure: str | None = None
    resources: Resources | None = None
    samples_s: tuple[float, ...] = ()
    median_s: float | None = None
    verification_error: float | None = None
    counters: Mapping[str, int] | None = None
    environment: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.status not in ("ok", "failed"):
            raise InputError(f"status {self.status!r}; allowed: ok, failed")
        if not isinstance(self.device, str) or not self.device:
            raise InputError("device is missing")
        object.__setattr__(self, "samples_s", tuple(_positive(sample, "samples_s") for sample in self.samples_s))
        if self.status == "failed" and not (isinstance(self.failure, str) and self.failure):
            raise InputError("status failed needs a failure that says why")
        if self.status == "ok":
            if self.failure:
                raise InputError(f"status ok contradicts the failure {self.failure!r}")
            median = _positive(self.median_s, "median_s")
            if not self.samples_s or not min(self.samples_s) <= median <= max(self.samples_s):
                raise InputError(f"median_s {median} does not lie among the samples_s")
        for name, count in (self.counters or {}).items():
            _count(count, f"counter {name}")

    @property
    def ok(self) -> bool:
        """Whether it was verified and timed."""
        return self.status == "ok"

    @classmethod
    def failed(cls, point: Point, device: str, failure: Failure, environment: Mapping[str, Any]) -> Record:
        """The record of a point that has no result."""
        return cls(point, device, "failed", failure.reason, environment=environment)

    @classmethod
    def from_dict(cls, data: Any, where: str = "") -> Record:
        """The record of a JSON object as `to_dict` gives it; unknown keys are ignored.

        Raises InputError that names the key, and `where` it stands.
        """
        with _located(where):
            entries = _object(data, "a record")
            schema = entries.get("schema", SCHEMA)
            if not isinstance(schema, int) or schema > SCHEMA:
                raise InputError(f"schema {schema} is not known; known: up to {SCHEMA}, so update gemmsim")
            samples = entries.get("samples_s") or ()
            if not isinstance(samples, list | tuple):
                raise InputError(f"samples_s {samples!r} is not a list of seconds")
            return cls(
                Point.from_dict(entries.get("point")),
                entries.get("device", ""),
                entries.get("status", ""),
                entries.get("failure"),
                _resources(entries.get("resources")),
                tuple(samples),
                entries.get("median_s"),
                entries.get("verification_error"),
                _object(entries["counters"], "counters") if entries.get("counters") is not None else None,
                _object(entries.get("environment") or {}, "environment"),
            )

    def to_dict(self) -> dict[str, Any]:
        """The record as JSON has it."""
        return {
            "schema": SCHEMA,
            "point": self.point.to_dict(),
            "device": self.device,
            "status": self.status,
            "failure": self.failure,
            "resources": dict(self.resources) if self.resources is not None else None,
            "samples_s": list(self.samples_s),
            "median_s": self.median_s,
            "verification_error": self.verification_error,
            "counters": dict(self.counters) if self.counters is not None else None,
            "environment": dict(self.environment),
        }


def latest(records: Iterable[Record]) -> list[Record]:
    """The last record of every point and device, in the order in which the points first appear."""
    return list({(record.device, record.point.key): record for record in records}.values())


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
    return records, warnings


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

    Raises MachineError when it cannot be written.
    """
    line = json.dumps(record.to_dict(), allow_nan=False, separators=(",", ":")).encode() + b"\n"
    with _writing(path), open(path, "ab+") as file:
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


def check_writable(path: str | Path) -> None:
    """Raise MachineError unless records can be appended there: to be asked before the work, not after."""
    with _writing(path), open(path, "ab"):
        pass


def shipped_records() -> Path:
    """The file of the campaign that comes with the package; InputError if this installation has none."""
    if not SHIPPED.is_file():
        raise InputError(f"this installation has no shipped records ({SHIPPED.name}); give a file of your own")
    return SHIPPED


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Puts the place before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None


@contextmanager
def _writing(path: str | Path) -> Iterator[None]:
    """Turns the system's refusal to write into one line."""
    try:
        yield
    except OSError as error:
        raise MachineError(f"cannot write {path}: {error.strerror or error}") from None


def _content(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
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
    raise ValueError(f"{constant} is not JSON")


def _object(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"{what} must be an object with keys, not {_short(data)}")
    return data


def _resources(data: Any) -> Resources | None:
    if data is None:
        return None
    entries = _object(data, "resources")
    blocks = entries.get("blocks_per_sm")
    return Resources(
        registers_per_thread=_count(entries.get("registers_per_thread"), "registers_per_thread"),
        shared_bytes=_count(entries.get("shared_bytes"), "shared_bytes"),
        local_bytes=_count(entries.get("local_bytes"), "local_bytes"),
        blocks_per_sm=None if blocks is None else _count(blocks, "blocks_per_sm"),
    )


def _count(value: Any, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} {_short(value)} is not a whole number from 0")
    return value


def _positive(value: Any, name: str) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0 < value < float("inf"):
        raise InputError(f"{name} {_short(value)} is not a positive number of seconds")
    return float(value)


def _short(data: Any) -> str:
    text = json.dumps(data, default=repr)
    return text if len(text) <= 40 else text[:37] + "..."
