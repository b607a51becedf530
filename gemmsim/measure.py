"""A campaign: many points compiled, counted, verified and timed, each record on disk as soon as it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from gemmsim import errors
from gemmsim.device import Device
from gemmsim.errors import InputError, MachineError, Warn
from gemmsim.record_files import append_record, check_writable, scan_records
from gemmsim.records import Failure, Point, Record

CHUNK = 64
"""Points that one profiler process counts before they are timed."""
MACHINE_FAILURES = ("out of memory",)
"""Failures that are the machine's: where every point has one, the campaign as a whole could not be run."""

Progress = Callable[[str, int, int], None]
"""Gets what is being done ("compile", "count" or "measure"), how much is done, and of how much."""


class Machine(Protocol):
    """What a campaign needs of the machine that it runs on."""

    device: Device

    def prepare(self, points: Sequence[Point], progress: Callable[[int, int], None]) -> list[Failure | None]:
        """Make all points ready; for each, why it cannot run, or None."""
        ...

    def count(self, points: Sequence[Point]) -> list[dict[str, int] | Failure]:
        """The hardware counters of one launch of each point, or why there are none."""
        ...

    def measure(self, point: Point, flush: bool) -> Record:
        """The record of one point, without counters; a failed one where there is no result."""
        ...

    def environment(self) -> dict[str, Any]:
        """What the record of a point says that does not even run."""
        ...


def measure(
    points: Sequence[Point],
    out: str | Path | None = None,
    counters: bool = False,
    resume: bool = False,
    flush: bool = True,
    progress: Progress = lambda phase, done, of: None,
    warn: Warn = errors.warn,
    device: Device | None = None,
    machine: Machine | None = None,
) -> list[Record]:
    """The record of every point, in their order, measured on the present GPU (or on `machine`); a point that
    is given twice is measured once.

    out       append each record to this file as soon as it is measured; a failed point has one too
    counters  count with the profiler as well
    resume    take what `out` has for this device from there, if it is verified, with or without `flush` as asked,
              and counted where asked; another compiler than the present one is worth a warning
    flush     write over L2 before every sample
    device    what the GPU is, where its name is not enough

    Raises MachineError where no GPU can be used, or nothing can be compiled, counted or written, or
    all points fail for want of memory; what was measured before is in `out`, also after Ctrl-C. Raises
    InputError where the GPU is no known device and none is given.
    """
    if out is not None:
        check_writable(out)
    elif resume:
        raise InputError("resume needs a file of records to go on from")
    with _present(machine, device, warn) as present:
        have = _done(out, points, present, counters, flush, warn) if resume and out is not None else {}
        todo = list({point.key: point for point in points if point.key not in have}.values())
        for record in _campaign(present, todo, counters, flush, progress, warn):
            have[record.point.key] = record
            if out is not None:
                append_record(out, record)
    records = [have[point.key] for point in points]
    reasons = [record.failure for record in records if record.failure]
    if reasons and len(reasons) == len(records) and all(reason.startswith(MACHINE_FAILURES) for reason in reasons):
        raise MachineError(reasons[0])
    return records


def _campaign(
    machine: Machine, points: Sequence[Point], counters: bool, flush: bool, progress: Progress, warn: Warn
) -> Iterator[Record]:
    """The records of the points, one by one. The failures of all that cannot run come first."""
    refusals = machine.prepare(points, lambda done, of: progress("compile", done, of))
    refused = [(point, failure) for point, failure in zip(points, refusals, strict=True) if failure is not None]
    ready = [point for point, failure in zip(points, refusals, strict=True) if failure is None]
    for point, failure in refused:
        yield Record.failed(point, machine.device.name, failure, machine.environment())
    done = len(refused)
    for start in range(0, len(ready), CHUNK if counters else 1):
        chunk = ready[start : start + (CHUNK if counters else 1)]
        counted: Sequence[dict[str, int] | Failure | None] = [None] * len(chunk)
        if counters:
            progress("count", start, len(ready))
            counted = machine.count(chunk)
        for point, of_point in zip(chunk, counted, strict=True):
            progress("measure", done, len(points))
            record = machine.measure(point, flush)
            if isinstance(of_point, Failure):
                warn(f"{point}: {of_point.reason}")
            elif of_point is not None and record.ok:
                record = replace(record, counters=of_point)
            yield record
            done += 1
    progress("measure", done, len(points))


def kept_records(
    out: str | Path, points: Sequence[Point], counters: bool, device: Device | None, warn: Warn
) -> Iterator[Record]:
    """The verified records of these points that a file has, if there is one, of a device if it is named, counted if
    that is asked for; in the order of the file."""
    if not Path(out).exists():
        return
    records, warnings = scan_records(out)
    for warning in warnings:
        warn(warning)
    keys = {point.key for point in points}
    for record in records:
        wanted = record.ok and record.point.key in keys and (record.counters is not None or not counters)
        if wanted and (device is None or record.device == device.name):
            yield record


def _done(
    out: str | Path, points: Sequence[Point], machine: Machine, counters: bool, flush: bool, warn: Warn
) -> dict[str, Record]:
    """The records of a file that spare points a new measurement, the last of each, by the keys of the points."""
    done = {
        record.point.key: record
        for record in kept_records(out, points, counters, machine.device, warn)
        if record.environment.get("l2_flushed", flush) == flush
    }
    present = machine.environment().get("compiler")
    others = {str(record.environment.get("compiler")) for record in done.values()} - {"None", str(present)}
    if present and others:
        warn(f"{out}: kept records were compiled by {', '.join(sorted(others))}, new ones are by {present}")
    return done


def _present(machine: Machine | None, device: Device | None, warn: Warn) -> AbstractContextManager[Machine]:
    if machine is not None:
        return nullcontext(machine)
    from gemmsim.gpu.machine import GpuMachine

    return GpuMachine(device, warn)
