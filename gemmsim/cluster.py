"""A campaign handed to several processes, or machines, through Dask: each finished point is on disk at once.

Needs the optional extra `cluster` (Dask's `distributed`). Whoever starts the campaign writes the records, as they come
in; a point whose worker is lost goes to another one, and one that takes several workers along gets a failed record.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from gemmsim import errors
from gemmsim.device import Device
from gemmsim.errors import InputError, MachineError, Warn, one_line
from gemmsim.measure import Progress, kept_records, measure
from gemmsim.record_files import append_record, check_writable
from gemmsim.records import Failure, Point, Record

MOST_WORKERS = 1024
LOST_WORKERS = 1
"""Workers that may be lost with one point; with the next it counts as lost itself."""
UNKNOWN = "unknown"
"""The device of a point that no worker lived to tell of."""

Work = Callable[[Point, Mapping[str, Any]], Record]
"""Measures one point where it runs; the mapping has `counters`, `flush` and `device`."""


def measure_one(point: Point, how: Mapping[str, Any]) -> Record:
    """The record of one point, measured on the GPU of this worker, which is kept open for the next."""
    (record,) = measure([point], counters=how["counters"], flush=how["flush"], machine=_machine(how["device"]))
    return record


def measure_with_workers(
    points: Sequence[Point],
    out: str | Path | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    counters: bool = False,
    resume: bool = False,
    flush: bool = True,
    progress: Progress = lambda phase, done, of: None,
    warn: Warn = errors.warn,
    device: Device | None = None,
    work: Work = measure_one,
) -> list[Record]:
    """As `gemmsim.measure.measure`, by `workers` processes here, the i-th with the i-th GPU, or by those of a
    `scheduler`, each of which measures one point at a time.

    With `resume` the points stay that have a verified record in `out`, of `device` where it is given. Raises
    MachineError without `distributed`, where no scheduler answers, and where a worker cannot measure at all.
    """
    if out is not None:
        check_writable(out)
    elif resume:
        raise InputError("resume needs a file of records to go on from")
    kept = kept_records(out, points, counters, device, warn) if resume and out is not None else ()
    have = {record.point.key: record for record in kept}
    todo = list({point.key: point for point in points if point.key not in have}.values())
    how = {"counters": counters, "flush": flush, "device": device}
    with _client(workers, scheduler) as client:
        progress("measure", 0, len(todo))
        for done, record in enumerate(_finished(client, todo, work, how), 1):
            have[record.point.key] = record
            if out is not None:
                append_record(out, record)
            progress("measure", done, len(todo))
    return [have[point.key] for point in points]


def _finished(client: Any, points: Sequence[Point], work: Work, how: Mapping[str, Any]) -> Iterator[Record]:
    """The record of each point as soon as it is there. A lost worker has one point at work and others in wait, so
    what was lost too often is tried once more at the end, alone: only then it is known which point it was."""
    from distributed import KilledWorker, as_completed

    def submitted(point: Point, time: str) -> Any:
        return client.submit(work, point, how, key=f"gemmsim-{time}-{point.key}", pure=False)

    of = {submitted(point, "first"): point for point in points}
    lost = []
    for future in as_completed(of):
        try:
            yield future.result()
        except KilledWorker:
            lost.append(of[future])
    for point in lost:
        try:
            yield submitted(point, "again").result()
        except KilledWorker as error:
            name = how["device"].name if how["device"] else UNKNOWN
            yield Record.failed(point, name, Failure(f"workers were lost with it: {one_line(error)}"), {})


@contextmanager
def _client(workers: int | None, scheduler: str | None) -> Iterator[Any]:
    """A client of processes started here, or of a scheduler that runs somewhere."""
    try:
        import dask
        from distributed import Client, LocalCluster
    except ImportError:
        raise MachineError(
            "sharing a campaign among workers needs Dask's distributed: pip install 'gemmsim[cluster]'"
        ) from None
    with dask.config.set({"distributed.scheduler.allowed-failures": LOST_WORKERS}):
        if scheduler is None:
            local = LocalCluster(n_workers=workers or 1, threads_per_worker=1, processes=True, dashboard_address=None)
            with local, Client(local) as client:
                yield client
            return
        try:
            client = Client(scheduler, timeout=10)
        except (OSError, ValueError) as error:
            raise MachineError(
                f"no scheduler at {scheduler}: {one_line(error)}; `dask scheduler` starts one, `dask worker"
                f" {scheduler} --nthreads 1` each of its workers"
            ) from None
        with client:
            yield client


@cache
def _machine(device: Device | None) -> Any:
    """The GPU of this worker. Of the workers started here each takes the one of its own number."""
    from distributed import get_worker

    from gemmsim.gpu.machine import GpuMachine

    name = get_worker().name
    if isinstance(name, int):
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", str(name))
    return GpuMachine(device, errors.warn)
