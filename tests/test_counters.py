"""The profiler's side: its CSV, what the worker says, and every way in which counting can go wrong.

The profiler here is a script that behaves as Nsight Compute 2025.3 does, without running anything.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from examples import example

from gemmsim.errors import MachineError
from gemmsim.gpu import counters as counting
from gemmsim.gpu.counters import (
    METRICS,
    Row,
    Run,
    complaint,
    count,
    parse_outcomes,
    parse_rows,
    settle,
    unknown_metrics,
)
from gemmsim.gpu.toolchain import Tool
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Failure, Point

FFMA, DRAM = METRICS["ffma"], METRICS["dram_read_bytes"]
POINTS = [Point(Problem(100 * (i + 1), 64, 32), name, example(name)) for i, name in enumerate([*KERNELS][:5])]


def csv_line(*cells: object) -> str:
    return ",".join(f'"{cell}"' for cell in cells)


PROCESS = ("4321", "python3.12", "127.0.0.1", "gemm", "1", "7")
LOG = "\n".join(
    [
        "==PROF== Connected to process 4321 (/usr/bin/python3.12)",
        '==PROF== Profiling "gemm" - 0: 0%....50%....100% - 4 passes',
        '==PROF== Profiling "gemm" - 1: 0%....50%....100% - 4 passes',
        "==PROF== Disconnected from process 4321",
        csv_line("ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size")
        + ","
        + csv_line("Grid Size", "Device", "CC", DRAM, FFMA, "smsp__other.pct"),
        csv_line(*[""] * 11, "byte", "inst", "%"),
        csv_line(
            "0", *PROCESS, "(256, 1, 1)", "(1,024, 1, 1)", "0", "9.0", "1,234,567", "9,007,199,254,740,993", "12.5"
        ),
        csv_line("1", *PROCESS, "(16, 8, 2)", "(3, 1, 1)", "0", "9.0", "n/a", "2.5e+3", "12,5"),
    ]
)


class TestParsing:
    def test_rows_of_the_csv(self):
        first, second = parse_rows(LOG)
        assert first == Row((1024, 256), {DRAM: 1234567, FFMA: 2**53 + 1, "smsp__other.pct": 12.5})
        assert second.extents == (3, 256)
        assert DRAM not in second.metrics
        assert second.metrics[FFMA] == 2500

    def test_log_lines_between_the_rows(self):
        lines = LOG.splitlines()
        mixed = "\n".join([lines[0], *lines[4:6], lines[1], lines[6], "==WARNING== slow", lines[7], lines[3]])
        assert parse_rows(mixed) == parse_rows(LOG)

    def test_no_csv_no_rows(self):
        assert parse_rows("==ERROR== nothing\n") == []
        assert parse_rows("") == []

    def test_outcomes_are_the_last_that_was_said(self):
        said = [{"started": 0}, {"launched": 0}, {"started": 1}, {"failed": 1, "reason": "too big"}, {"started": 2}]
        output = "\n".join(["Traceback?", *map(json.dumps, said), "[1, 2]", "{cut"])
        assert parse_outcomes(output) == {0: "launched", 1: "too big", 2: "started"}

    def test_a_worker_without_a_gpu_is_the_machines_error(self):
        with pytest.raises(MachineError, match="no usable NVIDIA GPU"):
            parse_outcomes('{"error": "no usable NVIDIA GPU: none", "exit_status": 3}\n')

    @pytest.mark.parametrize(
        "line",
        [
            f"==ERROR== Failed to find metric {FFMA}",
            f"==ERROR== Failed to find metric {FFMA}.",
            f"==WARNING== Metric {FFMA} is not available on this chip",
            f"==ERROR== Unknown metric '{FFMA}'",
        ],
    )
    def test_unknown_metrics(self, line):
        assert unknown_metrics(f"==PROF== x\n{line}\n{DRAM}\n") == {FFMA}

    def test_complaints(self):
        assert complaint("==PROF== a\n==ERROR== first  \n==ERROR== second") == "first"
        ended = "==ERROR== The application returned an error code (1)."
        assert complaint(ended) == "The application returned an error code (1)."
        assert complaint(f"{ended}\nTraceback\n  File\nKeyError: 'm'\nmore") == "KeyError: 'm'"
        assert complaint("==PROF== fine") is None


class TestSettling:
    def row(self, point: Point, ffma: int) -> Row:
        launch = KERNELS[point.kernel].launch(point.problem, point.tiling)
        return Row((launch.blocks, launch.threads), {FFMA: ffma})

    def test_rows_go_to_launched_points_in_order(self):
        run = Run([self.row(POINTS[0], 5), self.row(POINTS[2], 7)], {0: "launched", 1: "too big", 2: "launched"}, "")
        assert settle(POINTS[:3], run, METRICS) == [{"ffma": 5}, Failure("not counted: too big"), {"ffma": 7}]

    def test_a_row_of_another_launch_is_refused(self):
        (found,) = settle(POINTS[:1], Run([Row((1, 1), {FFMA: 5})], {0: "launched"}, ""), METRICS)
        assert isinstance(found, Failure)
        assert "1 blocks of 1 threads" in found.reason

    def test_the_point_at_which_the_process_died_fails_and_ends_it(self):
        run = Run([self.row(POINTS[0], 5)], {0: "launched", 1: "started"}, "==ERROR== lost")
        died = Failure("not counted: the profiled process ended: lost")
        assert settle(POINTS, run, METRICS) == [{"ffma": 5}, died]

    def test_a_point_that_broke_the_context_is_the_last(self):
        run = Run([], {0: "launch failed: illegal address"}, "")
        assert settle(POINTS, run, METRICS) == [Failure("not counted: launch failed: illegal address")]

    def test_something_is_always_settled(self):
        assert len(settle(POINTS, Run([], {}, ""), METRICS)) == 1


FAKE_NCU = """\
#!{python}
import json, os, sys
from gemmsim.kernels import KERNELS
from gemmsim.record_files import read_points

arguments = sys.argv[1:]
value = lambda name: arguments[arguments.index(name) + 1]
metrics, points = value("--metrics").split(","), read_points(arguments[-1])
plan = json.load(open({plan!r}))
with open(plan["calls"], "a") as calls:
    print(len(points), file=calls)
assert int(value("--launch-count")) == len(points) and value("--kernel-name") == "gemm"
assert os.environ["LC_ALL"] == "C"  # in other languages numbers look otherwise
log = open(value("--log-file"), "w")
print("==PROF== Connected to process 1 (python)", file=log)
for line in plan["log"]:
    print(line, file=log)
unknown = [metric for metric in metrics if metric in plan["unknown"]]
for metric in unknown[:1]:
    print("==ERROR== Failed to find metric " + metric, file=log)
rows = []
for index, point in enumerate(points):
    m = point.problem.m
    print(json.dumps(dict(started=index)), flush=True)
    if m in plan["dies"]:
        print("Segmentation fault")
        break
    if m in plan["fails"]:
        print(json.dumps(dict(failed=index, reason="launch failed: too many resources")))
        continue
    print(json.dumps(dict(launched=index)))
    if not unknown and plan["rows"] and m not in plan["unprofiled"]:
        launch = KERNELS[point.kernel].launch(point.problem, point.tiling)
        rows.append([len(rows), launch.threads, launch.blocks, *(m + i for i in range(len(metrics)))])
quoted = lambda cells: ",".join('"%s"' % cell for cell in cells)
if rows:
    print(quoted(["ID", "Kernel Name", "Block Size", "Grid Size", *metrics]), file=log)
    print(quoted(["", "", "", "", *("inst" for _ in metrics)]), file=log)
for number, threads, blocks, *counts in rows:
    extents = "(%d, 1, 1)" % threads, "(%d, 1, 1)" % blocks
    print(quoted([number, "gemm", *extents, *("{{:,}}".format(count) for count in counts)]), file=log)
"""


class Profiler:
    """The fake profiler: what it will do, by the m of the points, and how it was called."""

    def __init__(self, folder: Path) -> None:
        self.path, self.plan, self.calls = folder / "ncu", folder / "plan.json", folder / "calls"
        self.path.write_text(FAKE_NCU.format(python=sys.executable, plan=str(self.plan)))
        self.path.chmod(0o755)
        self.does()

    def does(self, *, log=(), unknown=(), dies=(), fails=(), unprofiled=(), rows=True) -> None:
        plan = {"log": log, "unknown": unknown, "dies": dies, "fails": fails, "unprofiled": unprofiled, "rows": rows}
        self.plan.write_text(json.dumps({**plan, "calls": str(self.calls)}))

    def called(self) -> list[int]:
        """The number of points of each call."""
        return [int(line) for line in self.calls.read_text().split()]


@pytest.fixture
def profiler(monkeypatch, tmp_path):
    fake = Profiler(tmp_path)
    monkeypatch.setattr(counting, "ncu", lambda: Tool(fake.path, "2025.3"))
    return fake


def expected(point: Point, left_out: str = "") -> dict[str, int]:
    names = [name for name in METRICS if name != left_out]
    return {name: point.problem.m + i for i, name in enumerate(names)}


class TestCounting:
    @pytest.fixture
    def warnings(self):
        return []

    def test_all_points_in_one_process(self, profiler, warnings):
        assert count(POINTS, warnings.append) == [expected(point) for point in POINTS]
        assert profiler.called() == [5]
        assert warnings == []

    def test_no_points_no_process(self, profiler, warnings):
        assert count([], warnings.append) == []
        assert not profiler.calls.exists()

    def test_an_unknown_metric_is_left_out_with_a_warning(self, profiler, warnings):
        profiler.does(unknown=[METRICS["ffma"], METRICS["dram_read_bytes"]])
        found = count(POINTS[:1], warnings.append)
        assert isinstance(found[0], dict)
        assert list(found[0]) == [name for name in METRICS if name not in ("ffma", "dram_read_bytes")]
        assert len(warnings) == 2
        assert "ffma is left out" in warnings[0]

    def test_a_failing_launch_takes_no_row(self, profiler, warnings):
        profiler.does(fails=[200])
        found = count(POINTS, warnings.append)
        assert found[1] == Failure("not counted: launch failed: too many resources")
        assert [found[i] for i in (0, 2, 3, 4)] == [expected(POINTS[i]) for i in (0, 2, 3, 4)]
        assert profiler.called() == [5]

    def test_a_process_that_dies_fails_one_point_and_the_rest_is_counted(self, profiler, warnings):
        profiler.does(dies=[200, 500])
        found = count(POINTS, warnings.append)
        assert [isinstance(counted, Failure) for counted in found] == [False, True, False, False, True]
        assert found[3] == expected(POINTS[3])
        assert profiler.called() == [5, 3]

    def test_a_launch_without_a_row_is_found_and_the_rest_is_right(self, profiler, warnings):
        profiler.does(unprofiled=[300])
        found = count(POINTS, warnings.append)
        assert [isinstance(counted, Failure) for counted in found] == [False, False, True, False, False]
        assert [found[i] for i in (0, 1, 3, 4)] == [expected(POINTS[i]) for i in (0, 1, 3, 4)]

    def test_a_profiler_that_has_counted_fails_points_not_the_campaign(self, profiler, warnings):
        profiler.does(dies=[200], unprofiled=[300, 400, 500])
        found = count(POINTS, warnings.append)
        assert found[0] == expected(POINTS[0])
        assert all(isinstance(counted, Failure) for counted in found[1:])

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            (
                "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance"
                " Counters on the target device 0.",
                "NVreg_RestrictProfilingToAdminUsers=0",
            ),
            ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "LibraryNotLoaded"),
            ("==WARNING== No kernels were profiled.", "it gave no reason"),
        ],
    )
    def test_a_profiler_that_cannot_count_is_the_machines_error(self, profiler, warnings, line, said):
        profiler.does(log=[line], rows=False)
        with pytest.raises(MachineError, match=said) as caught:
            count(POINTS, warnings.append)
        assert "\n" not in str(caught.value)
        assert profiler.called() == [5]

    def test_a_profiler_that_takes_too_long_is_ended(self, profiler, warnings, monkeypatch):
        monkeypatch.setattr(counting, "START_TIMEOUT_S", 0.2)
        monkeypatch.setattr(counting, "COUNTED_POINT_TIMEOUT_S", 0)
        profiler.path.write_text("#!/bin/sh\nsleep 60 & wait\n")
        with pytest.raises(MachineError, match="took too long"):
            count(POINTS[:1], warnings.append)

    def test_no_profiler_is_the_machines_error(self, monkeypatch, warnings):
        monkeypatch.setattr("gemmsim.gpu.toolchain._candidates", lambda name: iter(()))
        with pytest.raises(MachineError, match="ncu, needed to read hardware counters, is not on this machine"):
            count(POINTS, warnings.append)


def test_the_command_leaves_the_clocks_alone(profiler):
    command = counting.command(Path("points"), Path("log"), 7, ["a__b", "c__d"])
    assert command[command.index("--clock-control") + 1] == "none"
    assert command[command.index("--launch-count") + 1] == "7"
    assert command[command.index("--metrics") + 1] == "a__b,c__d"
    assert command[-4:] == [sys.executable, "-m", "gemmsim.gpu.worker", "points"]


def test_names_are_those_of_the_contract():
    named = "ffma shared_load_requests shared_store_requests shared_load_wavefronts shared_store_wavefronts"
    named += " global_load_requests global_load_sectors l2_read_sectors dram_read_bytes"
    assert set(named.split()) <= set(METRICS)
    assert len(set(METRICS.values())) == len(METRICS)
