"""Campaigns without a GPU: nothing lost, nothing repeated, whatever breaks in between."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from examples import example

from gemmsim.device import device
from gemmsim.errors import InputError, MachineError
from gemmsim.kernels import KERNELS
from gemmsim.measure import measure
from gemmsim.problem import Problem
from gemmsim.record_files import read_records
from gemmsim.records import Failure, Point, Record

H200 = device("h200")
POINTS = [Point(Problem(16 * (i + 1), 64, 32), name, example(name)) for i, name in enumerate([*KERNELS][:5] * 2)]


def ok(point: Point, **environment: object) -> Record:
    return Record(
        point, "h200", "ok", samples_s=(1e-3,), median_s=1e-3, environment={"time": time.time(), **environment}
    )


class FakeMachine:
    """Measures at once; remembers what it was asked, and does as `behaviour` says of a point."""

    device = H200
    compiler: str | None = "nvcc 13.0"

    def __init__(self, behaviour: Callable[[Point], Record] = ok, refused: Sequence[Point] = ()) -> None:
        self.behaviour, self.refused = behaviour, refused
        self.prepared: list[Point] = []
        self.measured: list[Point] = []
        self.counted: list[list[Point]] = []
        self.flushed: list[bool] = []

    def prepare(self, points, progress):
        self.prepared += points
        progress(len(points), len(points))
        return [Failure("not legal here") if point in self.refused else None for point in points]

    def count(self, points):
        self.counted.append(list(points))
        return [{"ffma": point.problem.m} for point in points]

    def measure(self, point, flush):
        self.measured.append(point)
        self.flushed.append(flush)
        return self.behaviour(point)

    def environment(self):
        return {"gpu": "fake", "compiler": self.compiler}


@pytest.fixture
def out(tmp_path):
    return tmp_path / "records.jsonl"


class TestCampaign:
    def test_every_point_has_its_record_in_order_and_on_disk(self, out):
        records = measure(POINTS, out, machine=FakeMachine())
        assert [record.point for record in records] == POINTS
        assert read_records(out) == (records, [])

    def test_a_point_given_twice_is_measured_once(self, out):
        machine = FakeMachine()
        records = measure([POINTS[0], POINTS[1], POINTS[0]], out, machine=machine)
        assert machine.measured == POINTS[:2]
        assert records[0] is records[2]
        assert len(read_records(out)[0]) == 2

    def test_failures_are_records_and_the_rest_goes_on(self, out):
        def behaviour(point: Point) -> Record:
            return Record.failed(point, "h200", Failure("timeout"), {}) if point == POINTS[3] else ok(point)

        machine = FakeMachine(behaviour, refused=[POINTS[0], POINTS[5]])
        records = measure(POINTS, out, machine=machine)
        assert [record.failure for record in records if not record.ok] == [
            "not legal here",
            "timeout",
            "not legal here",
        ]
        assert POINTS[0] not in machine.measured
        assert records[0].environment["gpu"] == "fake"
        assert len(read_records(out)[0]) == len(POINTS)

    def test_counters_come_into_the_record(self):
        machine = FakeMachine(refused=[POINTS[1]])
        records = measure(POINTS[:4], counters=True, machine=machine)
        assert [record.counters for record in records] == [{"ffma": 16}, None, {"ffma": 48}, {"ffma": 64}]
        assert machine.counted == [[POINTS[0], POINTS[2], POINTS[3]]]

    def test_a_point_that_is_not_counted_is_timed_with_a_warning(self, monkeypatch):
        machine = FakeMachine()
        warnings: list[str] = []
        monkeypatch.setattr(machine, "count", lambda points: [Failure("not counted: died")] * len(points))
        (record,) = measure(POINTS[:1], counters=True, machine=machine, warn=warnings.append)
        assert record.ok
        assert record.counters is None
        assert warnings == [f"{POINTS[0]}: not counted: died"]

    def test_counting_goes_in_chunks_each_timed_before_the_next(self, monkeypatch, out):
        monkeypatch.setattr("gemmsim.measure.CHUNK", 4)
        machine = FakeMachine()
        written = []
        count = machine.count

        def counting(points):
            written.append(len(read_records(out)[0]) if out.exists() else 0)
            return count(points)

        monkeypatch.setattr(machine, "count", counting)
        measure(POINTS, out, counters=True, machine=machine)
        assert [len(chunk) for chunk in machine.counted] == [4, 4, 2]
        assert written == [0, 4, 8]

    @pytest.mark.parametrize("flush", [True, False])
    def test_flushing_is_passed_on(self, flush):
        machine = FakeMachine()
        measure(POINTS[:2], flush=flush, machine=machine)
        assert machine.flushed == [flush, flush]

    def test_progress_reaches_the_end_of_every_phase(self):
        said = []
        measure(POINTS, counters=True, machine=FakeMachine(), progress=lambda *step: said.append(step))
        assert ("compile", 10, 10) in said
        assert ("count", 0, 10) in said
        assert said[-1] == ("measure", 10, 10)
        assert [done for phase, done, _ in said if phase == "measure"] == list(range(11))

    def test_out_of_memory_everywhere_is_the_machines_error(self, out):
        machine = FakeMachine(lambda point: Record.failed(point, "h200", Failure("out of memory on the GPU"), {}))
        with pytest.raises(MachineError, match="out of memory on the GPU"):
            measure(POINTS[:3], out, machine=machine)
        assert len(read_records(out)[0]) == 3

    def test_nothing_to_measure(self):
        assert measure([], machine=FakeMachine()) == []

    def test_a_file_that_cannot_be_written_is_refused_before_the_work(self, tmp_path):
        machine = FakeMachine()
        with pytest.raises(InputError, match="cannot write"):
            measure(POINTS, tmp_path / "no" / "records.jsonl", machine=machine)
        assert machine.prepared == []

    def test_without_a_gpu_no_file_is_left(self, monkeypatch, out):
        def no_gpu(*_):
            raise MachineError("no GPU")

        monkeypatch.setattr("gemmsim.gpu.machine.GpuMachine", no_gpu)
        with pytest.raises(MachineError, match="no GPU"):
            measure(POINTS, out)
        assert not out.exists()

    def test_warnings_go_to_standard_error_in_one_line(self, monkeypatch, capsys):
        machine = FakeMachine()
        monkeypatch.setattr(machine, "count", lambda points: [Failure("not counted")] * len(points))
        measure(POINTS[:1], counters=True, machine=machine)
        assert capsys.readouterr() == ("", f"gemmsim: warning: {POINTS[0]}: not counted\n")

    def test_resuming_needs_a_file(self):
        with pytest.raises(InputError, match="resume"):
            measure(POINTS, resume=True, machine=FakeMachine())


class TestResuming:
    @pytest.mark.parametrize("after", range(len(POINTS)))
    def test_an_interrupted_campaign_loses_and_repeats_nothing(self, out, after):
        def behaviour(point: Point) -> Record:
            if point == POINTS[after]:
                raise KeyboardInterrupt
            return ok(point)

        first, second = FakeMachine(behaviour), FakeMachine()
        with pytest.raises(KeyboardInterrupt):
            measure(POINTS, out, machine=first)
        assert out.exists() == (after > 0)
        assert not out.exists() or out.read_bytes().endswith(b"\n")
        records = measure(POINTS, out, resume=True, machine=second)
        assert first.measured[:-1] + second.measured == POINTS
        assert [record.point for record in records] == POINTS
        assert read_records(out) == (records, [])

    def test_a_record_that_was_cut_off_is_measured_again(self, out):
        measure(POINTS, out, machine=FakeMachine())
        out.write_bytes(out.read_bytes()[:-20])
        machine = FakeMachine()
        warnings: list[str] = []
        records = measure(POINTS, out, resume=True, machine=machine, warn=warnings.append)
        assert machine.measured == [POINTS[-1]]
        assert len(warnings) == 1
        assert [record.point for record in read_records(out)[0]] == POINTS
        assert [record.point for record in records] == POINTS

    def test_a_first_record_that_was_cut_off_is_survived(self, out):
        out.write_bytes(b'{"schema":1,"po')
        measure(POINTS[:2], out, resume=True, machine=FakeMachine(), warn=lambda message: None)
        assert [record.point for record in read_records(out)[0]] == POINTS[:2]

    def test_failed_points_and_other_devices_are_measured_again(self, out):
        failing = FakeMachine(lambda point: Record.failed(point, "h200", Failure("timeout"), {}))
        measure(POINTS[:1], out, machine=failing)
        elsewhere = FakeMachine(lambda point: Record(point, "h100-sxm", "ok", samples_s=(1.0,), median_s=1.0))
        measure(POINTS[1:2], out, machine=elsewhere)
        again = FakeMachine()
        measure(POINTS[:2], out, resume=True, machine=again)
        assert again.measured == POINTS[:2]
        done = FakeMachine()
        measure(POINTS[:2], out, resume=True, machine=done)
        assert done.measured == []

    def test_with_counters_the_uncounted_are_measured_again(self, out):
        measure(POINTS[:2], out, machine=FakeMachine())
        measure(POINTS[2:3], out, counters=True, machine=FakeMachine())
        machine = FakeMachine()
        measure(POINTS[:3], out, counters=True, resume=True, machine=machine)
        assert machine.measured == POINTS[:2]

    def test_a_later_failure_repeats_nothing(self, out):
        measure(POINTS[:1], out, machine=FakeMachine())
        measure(POINTS[:1], out, machine=FakeMachine(lambda point: Record.failed(point, "h200", Failure("died"), {})))
        machine = FakeMachine()
        (record,) = measure(POINTS[:1], out, resume=True, machine=machine)
        assert record.ok
        assert machine.measured == []

    def test_what_was_measured_with_another_l2_is_measured_again(self, out):
        for flushed, point in ((True, POINTS[0]), (False, POINTS[1]), (True, POINTS[2]), (False, POINTS[2])):
            measure([point], out, machine=FakeMachine(lambda point, flushed=flushed: ok(point, l2_flushed=flushed)))
        machine = FakeMachine(lambda point: ok(point, l2_flushed=True))
        records = measure(POINTS[:3], out, resume=True, flush=True, machine=machine)
        assert machine.measured == POINTS[1:2]
        assert [record.environment["l2_flushed"] for record in records] == [True] * 3
        machine = FakeMachine(lambda point: ok(point, l2_flushed=False))
        measure(POINTS[:3], out, resume=True, flush=False, machine=machine)
        assert machine.measured == POINTS[:1]

    @pytest.mark.parametrize(
        ("kept", "present", "warned"),
        [("nvcc 12.9", "nvcc 13.0", True), ("nvcc 13.0", "nvcc 13.0", False), (None, "nvcc 13.0", False)],
    )
    def test_records_of_another_compiler_are_kept_with_one_warning(self, out, kept, present, warned):
        measure(POINTS[:3], out, machine=FakeMachine(lambda point: ok(point, compiler=kept)))
        machine, warnings = FakeMachine(), []
        machine.compiler = present
        measure(POINTS[:4], out, resume=True, machine=machine, warn=warnings.append)
        assert machine.measured == POINTS[3:4]
        assert len(warnings) == warned
        assert all("nvcc 12.9" in warning and "nvcc 13.0" in warning for warning in warnings)
        measure(POINTS[3:4], out, resume=True, machine=machine, warn=pytest.fail)  # the others are not asked for

    def test_without_resuming_everything_is_measured_and_appended(self, out):
        measure(POINTS[:2], out, machine=FakeMachine())
        measure(POINTS[:2], out, machine=FakeMachine())
        assert len(read_records(out)[0]) == 4
