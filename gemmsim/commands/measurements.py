"""`gemmsim measure`, `validate`, `compare` and `report`: what was measured, and predictions beside it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from gemmsim import answers
from gemmsim.cluster import MOST_WORKERS, measure_with_workers
from gemmsim.commands.command import Answer, warn_each
from gemmsim.commands.record_files import only_device, read, refusing_points
from gemmsim.compare import Comparison, compare
from gemmsim.device import Device, device
from gemmsim.errors import InputError, Warn
from gemmsim.measure import measure
from gemmsim.options import configuration, device_of, whole
from gemmsim.record_files import read_points
from gemmsim.records import Point, Record
from gemmsim.routes import route_named
from gemmsim.units import plural

MANY_RECORDS = 1000
"""So many take seconds."""


def run_measure(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim measure"""
    records = _measured(args, warn)
    return Answer(lambda: answers.records(records), lambda show: show.records(records), _all_ok(records))


def run_validate(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim validate"""
    route_named(args.route)
    records = _measured(args, warn)
    on = _device(args) or device(records[0].device)
    some = any(record.ok for record in records)
    found = compare(records, on, args.route) if some else Comparison(on, (), {}, tuple(records))
    return Answer(lambda: answers.comparison(found), lambda show: show.comparison(found), _all_ok(records))


def run_compare(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim compare"""
    records, warnings = read(args.records)
    warn_each(warnings, warn)
    on = _device(args) or device(only_device(records))
    with _telling(f"comparing {plural(len(records), 'record')}", len(records)):
        found = compare(records, on, args.route)
    return Answer(lambda: answers.comparison(found, warnings), lambda show: show.comparison(found))


def run_report(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim report"""
    os.environ["MPLBACKEND"] = "agg"  # no window opens, whatever a notebook around this asks Matplotlib for
    from gemmsim.report import write_report  # imports Matplotlib, which takes long

    records = None if args.records is None else Path(args.records)
    warnings: list[str] = []

    def tell(text: str) -> None:
        warnings.append(text)
        warn(text)

    with refusing_points(args.records):
        files = write_report(records, Path(args.out), _device(args), tell)
    return Answer(lambda: {"files": files, "warnings": warnings}, lambda show: show.files(files))


def _measured(args: argparse.Namespace, warn: Warn) -> list[Record]:
    """The records of the points that are asked for, measured on the GPU here."""
    from gemmsim.console import progress

    points = _points(args)
    common = (args.counters, args.resume, not args.no_flush)
    if args.workers is not None and args.scheduler is not None:
        raise InputError("--workers starts workers here and --scheduler has its own; give one")
    with progress() as tell:
        if args.workers is not None or args.scheduler is not None:
            workers = None if args.workers is None else whole(args.workers, "--workers", 1, MOST_WORKERS)
            return measure_with_workers(points, args.out, workers, args.scheduler, *common, tell, warn, _device(args))
        return measure(points, args.out, *common, tell, warn, _device(args))


def _points(args: argparse.Namespace) -> list[Point]:
    """The points of --points, or the one that the other options describe."""
    if args.points is None:
        asked = configuration(args)
        return [Point(asked.problem, asked.kernel.name, asked.tiling)]
    if args.sizes or args.kernel is not None:
        raise InputError(f"--points {args.points} brings its own sizes and kernels; give either those or sizes")
    if args.out is not None and Path(args.out).resolve() == Path(args.points).resolve():
        raise InputError(f"--out {args.out} is the file of the points; records need one of their own")
    return read_points(args.points)


def _device(args: argparse.Namespace) -> Device | None:
    """The GPU that --device names, if it is given."""
    return None if args.device is None else device_of(args.device)


def _all_ok(records: Sequence[Record]) -> bool:
    return all(record.ok for record in records)


def _telling(text: str, records: int) -> AbstractContextManager[None]:
    """Tells that work goes on, where there are so many records that somebody would wonder."""
    if records <= MANY_RECORDS:
        return nullcontext()
    from gemmsim.console import working

    return working(text)
