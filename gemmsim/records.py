"""What was measured: points and records, as nouns that refuse nonsense and as JSON. `record_files` keeps them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict

from gemmsim.errors import InputError, one_line, short
from gemmsim.kernels import kernel as kernel_named
from gemmsim.problem import Problem
from gemmsim.tiling import FIELDS, Tiling

SCHEMA = 1
"""Version of the records' form; a reader skips records of a later one."""
TILING_KEYS = FIELDS
"""Keys of a tiling in JSON, whether or not a kernel has them; all others are ignored."""
MOST = {"registers_per_thread": 255, "shared_bytes": 2**20, "local_bytes": 2**19, "blocks_per_sm": 64}
"""What no GPU exceeds (CUDA Programming Guide, Technical Specifications: 255 registers and 512 KB of local memory a
thread; at most 228 KB of shared memory and 32 blocks a multiprocessor, here with room for coming ones)."""
MOST_COUNTED = 2**64 - 1
SHORTEST_S, LONGEST_S = 1e-9, 1e6
"""Seconds that a launch can take: more than a cycle or two, less than a fortnight."""
DEEPEST = 16
"""Levels of objects and lists in an environment."""


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
        object.__setattr__(self, "reason", one_line(self.reason) or "failed without a message")


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
        return f"{self.kernel} {self.problem} {kernel_named(self.kernel).describe(self.tiling)}"


class Compiled(TypedDict, total=False):
    """Registers and bytes of local memory of a thread."""

    registers_per_thread: int
    local_bytes: int


@dataclass(frozen=True)
class Record:
    """One point on one GPU: its times, or why there are none.

    samples_s           every timed launch, seconds, in order; median_s their median
    resources           as the driver reports them
    verification_error  largest |C - reference| over the norms of its row of A and column of B
    counters            the profiler's, whole numbers for the whole launch, by the names of the model
    environment         where, when and under which clocks and versions it ran

    Raises InputError where these contradict each other, or a number is none that a measurement gives.
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
            raise InputError(f"status {short(self.status)}; allowed: ok, failed")
        if not isinstance(self.device, str) or not self.device:
            raise InputError("device is missing")
        object.__setattr__(self, "samples_s", tuple(_seconds(sample, "samples_s") for sample in self.samples_s))
        if self.status == "failed" and not (isinstance(self.failure, str) and self.failure):
            raise InputError("status failed needs a failure that says why")
        if _deeper(self.environment, DEEPEST):
            raise InputError(f"environment is nested too deep; allowed: up to {DEEPEST} levels")
        if self.status == "ok":
            if self.failure:
                raise InputError(f"status ok contradicts the failure {short(self.failure)}")
            median = _seconds(self.median_s, "median_s")
            if not self.samples_s or not min(self.samples_s) <= median <= max(self.samples_s):
                raise InputError(f"median_s {median} does not lie among the samples_s")
        elif self.median_s is not None:
            _seconds(self.median_s, "median_s")
        if self.verification_error is not None and not 0 <= _number(self.verification_error) < math.inf:
            raise InputError(f"verification_error {short(self.verification_error)} is not a number from 0")
        object.__setattr__(self, "resources", _resources(self.resources))
        for name, count in (self.counters or {}).items():
            _count(count, f"counter {name}", MOST_COUNTED)

    @property
    def compiled(self) -> Compiled:
        """What the compiler said of a thread, by the names that `predict` takes; empty where nobody knows."""
        if self.resources is None:
            return {}
        taken = self.resources
        return {"registers_per_thread": taken["registers_per_thread"], "local_bytes": taken["local_bytes"]}

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
                raise InputError(f"schema {short(schema)} is not known; known: up to {SCHEMA}, so update gemmsim")
            if "point" not in entries:
                raise InputError("point is missing; needed: a record, as `gemmsim measure` writes it")
            samples = entries.get("samples_s") or ()
            if not isinstance(samples, list | tuple):
                raise InputError(f"samples_s {short(samples)} is not a list of seconds")
            return cls(
                Point.from_dict(entries["point"]),
                entries.get("device", ""),
                entries.get("status", ""),
                entries.get("failure"),
                entries.get("resources"),
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


@contextmanager
def _located(where: str) -> Iterator[None]:
    """Puts the place before the message of an InputError."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{where}: {error}" if where else str(error)) from None


def _object(data: Any, what: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"{what} must be an object with keys, not {short(data)}")
    return data


def _resources(data: Any) -> Resources | None:
    if data is None:
        return None
    entries = _object(data, "resources")
    blocks = entries.get("blocks_per_sm")
    return Resources(
        registers_per_thread=_limited(entries, "registers_per_thread"),
        shared_bytes=_limited(entries, "shared_bytes"),
        local_bytes=_limited(entries, "local_bytes"),
        blocks_per_sm=None if blocks is None else _limited(entries, "blocks_per_sm"),
    )


def _limited(entries: Mapping[str, Any], name: str) -> int:
    return _count(entries.get(name), name, MOST[name])


def _count(value: Any, name: str, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise InputError(f"{name} {short(value)} is not a whole number from 0 to {most}")
    return value


def _seconds(value: Any, name: str) -> float:
    number = _number(value)
    if not SHORTEST_S <= number <= LONGEST_S:
        raise InputError(
            f"{name} {short(value)} is not a number of seconds that a launch takes;"
            f" allowed: from {SHORTEST_S:g} to {LONGEST_S:g}"
        )
    return number


def _number(value: Any) -> float:
    """The value as a float; NaN for what is no number, infinity for a whole number that no float holds."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _deeper(data: Any, levels: int) -> bool:
    """Whether objects and lists are nested deeper than so many levels."""
    if not isinstance(data, Mapping | list | tuple):
        return False
    inside = data.values() if isinstance(data, Mapping) else data
    return levels == 0 or any(_deeper(each, levels - 1) for each in inside)
