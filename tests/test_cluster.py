"""Campaigns among workers: every record on disk as it comes, and nothing lost with a worker."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest
from examples import example

from gemmsim.cluster import measure_with_workers
from gemmsim.device import device
from gemmsim.errors import InputError, MachineError
from gemmsim.problem import Problem
from gemmsim.record_files import append_record, read_records
from gemmsim.records import Point, Record

POINTS = [Point(Problem(16 * (i + 1), 64, 32), "naive", example("naive")) for i in range(8)]


def done(point: Point, **environment: object) -> Record:
    return Record(
        point, "h200", "ok", samples_s=(1e-3,), median_s=1e-3, environment={"pid": os.getpid(), **environment}
    )


def test_without_distributed_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(MachineError, match=r"needs Dask's distributed: pip install 'gemmsim\[cluster\]'"):
        measure_with_workers(POINTS, workers=2)


def test_resume_without_a_file_is_refused():
    with pytest.raises(InputError, match="resume needs a file of records"):
        measure_with_workers(POINTS, workers=2, resume=True)


def test_the_command_line_takes_workers_or_a_scheduler(refusal, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    line = "measure 64 --kernel naive"
    assert "give one" in refusal(line, "--workers", "2", "--scheduler", "tcp://here:1")
    assert "--workers 0 is out of range; allowed: whole numbers from 1" in refusal(line, "--workers", "0")
    assert "needs Dask's distributed" in refusal(line, "--workers", "2", status=3)
    assert "needs Dask's distributed" in refusal(line, "--scheduler", "tcp://here:1", status=3)


def test_the_command_line_hands_over_what_was_asked(gemmsim, monkeypatch, points):
    seen = []

    def with_workers(points, out, workers, scheduler, *rest):
        seen.append((len(points), out, workers, scheduler, *rest[:3]))
        return [done(point) for point in points]

    monkeypatch.setattr("gemmsim.commands.measurements.measure_with_workers", with_workers)
    assert gemmsim("measure --workers 3 --resume --no-flush --json", "--points", str(points), "--out", "x").status == 0
    assert seen == [(2, "x", 3, None, False, True, False)]


@pytest.mark.filterwarnings("default")
class TestWorkers:
    """With processes of their own, where distributed is installed."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("distributed")

    def test_each_point_is_measured_once_and_written(self, tmp_path):
        told: list[tuple[str, int, int]] = []
        out = tmp_path / "records.jsonl"
        records = measure_with_workers(
            [*POINTS, POINTS[0]],
            out,
            workers=2,
            progress=lambda *each: told.append(each),
            work=lambda point, how: done(point),
        )
        assert [record.point for record in records] == [*POINTS, POINTS[0]]
        written, _ = read_records(out)
        assert sorted(record.point.key for record in written) == sorted(point.key for point in POINTS)
        assert os.getpid() not in {record.environment["pid"] for record in written}
        assert told[-1] == ("measure", 8, 8)

    def test_a_worker_killed_in_mid_campaign_loses_no_finished_point(self, tmp_path):
        mark, out = tmp_path / "killed", tmp_path / "records.jsonl"
        victim = POINTS[3].key

        def work(point: Point, how: object) -> Record:
            if point.key == victim and not mark.exists():
                mark.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(0.05)
            return done(point)

        records = measure_with_workers(POINTS, out, workers=2, work=work)
        assert mark.exists()
        assert all(record.ok for record in records)
        written, _ = read_records(out)
        assert sorted(record.point.key for record in written) == sorted(point.key for point in POINTS)
        (again,) = [record for record in written if record.point.key == victim]
        assert str(again.environment["pid"]) != mark.read_text()

    def test_a_point_that_takes_workers_along_gets_a_failed_record(self, tmp_path):
        out = tmp_path / "records.jsonl"

        def work(point: Point, how: object) -> Record:
            if point.key == POINTS[1].key:
                os.kill(os.getpid(), signal.SIGKILL)
            return done(point)

        records = measure_with_workers(POINTS[:4], out, workers=2, device=device("h200"), work=work)
        assert [record.ok for record in records] == [True, False, True, True]
        assert "workers were lost with it" in str(records[1].failure)
        assert len(read_records(out)[0]) == 4

    def test_what_was_written_before_an_error_stays(self, tmp_path):
        out = tmp_path / "records.jsonl"

        def work(point: Point, how: object) -> Record:
            if point.key == POINTS[2].key:
                time.sleep(0.5)
                raise MachineError("no GPU here")
            return done(point)

        with pytest.raises(MachineError, match="no GPU here"):
            measure_with_workers(POINTS[:3], out, workers=1, work=work)
        assert len(read_records(out)[0]) == 2

    def test_resume_measures_what_is_missing(self, tmp_path):
        out = tmp_path / "records.jsonl"
        for point in POINTS[:5]:
            append_record(out, done(point, before=True))
        records = measure_with_workers(POINTS, out, workers=1, resume=True, work=lambda point, how: done(point))
        assert ["before" in record.environment for record in records] == [True] * 5 + [False] * 3
        assert len(read_records(out)[0]) == 8

    def test_a_scheduler_by_address(self, tmp_path):
        from distributed import LocalCluster

        with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
            records = measure_with_workers(
                POINTS[:2], scheduler=cluster.scheduler_address, work=lambda point, how: done(point)
            )
        assert all(record.ok for record in records)

    def test_a_scheduler_that_is_not_there_is_one_line(self, monkeypatch):
        import distributed

        def refuse(*_: object, **__: object) -> None:
            raise OSError("Timed out trying to connect")

        monkeypatch.setattr(distributed, "Client", refuse)
        with pytest.raises(
            MachineError, match=r"no scheduler at tcp://nowhere:1: Timed out .*`dask scheduler` starts one"
        ):
            measure_with_workers(POINTS[:1], scheduler="tcp://nowhere:1", work=lambda point, how: done(point))
