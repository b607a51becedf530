"""The process that touches the GPU, seen from the one that starts it; no GPU is near these tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from examples import example

from gemmsim.device import device
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu import machine as gpu_machine
from gemmsim.gpu import supervisor as supervising
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.environment import parse_query, under_load
from gemmsim.gpu.machine import GpuMachine
from gemmsim.gpu.run import LEAST_SAMPLES, MOST_SAMPLES, enough, time_launches
from gemmsim.gpu.session import GpuFacts
from gemmsim.gpu.supervisor import Supervisor, end, worker_environment
from gemmsim.gpu.toolchain import Tool
from gemmsim.kernels import KERNELS
from gemmsim.measure import measure
from gemmsim.problem import Problem
from gemmsim.records import Point

POINTS = [Point(Problem(16 * (i + 1), 64, 32), name, example(name)) for i, name in enumerate([*KERNELS] * 2)]
FACTS = GpuFacts("NVIDIA H200", "9.0", 132, 60 * 2**20, 141 * 10**9, "0000:00:04.0", "13.0", "2026.1")

FAKE_WORKER = """\
import json, os, sys, time
facts = {facts!r}
if os.environ.get("FAKE_START") == "no gpu":
    print(json.dumps(dict(error="no usable NVIDIA GPU: none", exit_status=3)), flush=True)
    sys.exit(3)
if os.environ.get("FAKE_START") == "crash":
    sys.exit("ImportError: broken")
if os.environ.get("FAKE_START") == "hang":
    time.sleep(60)
print("a banner of some library")
print(json.dumps(dict(gpu=facts)), flush=True)
for line in sys.stdin:
    request = json.loads(line)
    m = request["point"]["m"]
    if m == 32:
        print("CUDA error", file=sys.stderr)
        os.abort()
    if m == 48:
        time.sleep(60)
    if m == 80:
        sys.exit(0)
    if m == 96:  # killed in the middle of an answer
        print('{{"record": {{"point": {{"m": 9', end="", flush=True)
        os.abort()
    if m == 112:
        print(json.dumps(dict(error="the input\\nis unusable", exit_status=2)), flush=True)
        sys.exit(2)
    if m == 128:
        print(json.dumps(dict(usable=True)), flush=True)
        continue
    print("{{noise}}\\n[1, 2]\\n7")
    record = dict(point=request["point"], device=request["device"], status="ok", samples_s=[1e-3], median_s=1e-3)
    if m == 144:
        record["median_s"] = -1
    record["environment"] = dict(pid=os.getpid(), flush=request["flush"])
    print(json.dumps(dict(record=record, usable=m != 64)), flush=True)
"""


class TestSupervisor:
    @pytest.fixture(autouse=True)
    def fake_worker(self, monkeypatch, tmp_path):
        script = tmp_path / "worker.py"
        script.write_text(FAKE_WORKER.format(facts=vars(FACTS)))
        monkeypatch.setattr(supervising, "WORKER", (sys.executable, str(script)))

    def test_deaths_and_hangs_are_failed_records_and_the_next_point_is_measured(self):
        with Supervisor(timeout_s=1) as workers:
            assert workers.facts() == FACTS
            records = [workers.measure(point, "h200", True, {"gpu": "x"}) for point in (*POINTS[:5], POINTS[0])]
        assert [record.failure for record in records] == [
            None,
            "launch failed: the process on the GPU died: CUDA error",
            "timeout: no result within 1 s",
            None,
            "launch failed: the process on the GPU died: exit status 0",
            None,
        ]
        assert records[1].environment == {"gpu": "x"}

    def test_answers_without_a_record_are_failed_records_and_the_next_point_is_measured(self):
        with Supervisor() as workers:
            records = [workers.measure(POINTS[i], "h200", True, {"gpu": "x"}) for i in (5, 0, 6, 0, 7, 0, 8, 0)]
        assert [record.ok for record in records] == [False, True] * 4
        cut, error, empty, unusable = (str(record.failure) for record in records[::2])
        assert cut.startswith("launch failed: the process on the GPU died: ")
        assert error == "the input is unusable"
        assert empty == "the process on the GPU gave no record"
        assert unusable.startswith("the process on the GPU gave no usable record: median_s -1")
        assert records[2].environment == {"gpu": "x"}

    def test_after_a_broken_context_another_process_goes_on(self):
        with Supervisor() as workers:
            pids = [workers.measure(POINTS[i], "h200", True, {}).environment["pid"] for i in (0, 3, 0, 0)]
        assert pids[0] == pids[1] != pids[2] == pids[3]

    def test_one_process_measures_many(self):
        with Supervisor() as workers:
            pids = {workers.measure(POINTS[0], "h200", flush, {}).environment["pid"] for flush in (True, False, True)}
        assert len(pids) == 1
        with pytest.raises(ProcessLookupError):
            os.kill(pids.pop(), 0)

    @pytest.mark.parametrize(
        ("start", "said"), [("no gpu", "no usable NVIDIA GPU: none"), ("crash", "does not start: ImportError: broken")]
    )
    def test_no_gpu_is_the_machines_error(self, monkeypatch, start, said):
        monkeypatch.setenv("FAKE_START", start)
        with Supervisor() as workers, pytest.raises(MachineError, match=said):
            workers.facts()

    def test_a_gpu_that_does_not_answer_is_the_machines_error(self, monkeypatch):
        monkeypatch.setenv("FAKE_START", "hang")
        monkeypatch.setattr(supervising, "START_TIMEOUT_S", 0.3)
        with Supervisor() as workers, pytest.raises(MachineError, match="did not answer"):
            workers.facts()

    def test_a_process_that_cannot_be_started_again_ends_the_campaign(self, monkeypatch):
        with Supervisor() as workers:
            workers.measure(POINTS[1], "h200", True, {})
            monkeypatch.setenv("FAKE_START", "no gpu")
            with pytest.raises(MachineError):
                workers.measure(POINTS[0], "h200", True, {})

    def test_an_interrupt_takes_the_process_along(self, monkeypatch):
        with Supervisor() as workers:
            pid = workers.measure(POINTS[0], "h200", True, {}).environment["pid"]

            def interrupted(timeout_s):
                raise KeyboardInterrupt

            monkeypatch.setattr(workers, "_answer", interrupted)
            with pytest.raises(KeyboardInterrupt):
                workers.measure(POINTS[2], "h200", True, {})
            with pytest.raises(ProcessLookupError):
                os.kill(pid, 0)

    def test_the_whole_campaign_through_the_present_machine(self, monkeypatch, tmp_path):
        cubin = Cubin(tmp_path, 255, 0, 8, 16, "nvcc")
        monkeypatch.setattr(gpu_machine, "compile_many", lambda jobs, progress: [cubin] * len(jobs))
        monkeypatch.setattr(gpu_machine, "nvcc", lambda: Tool(tmp_path / "nvcc", "13.0"))
        too_large = Point(Problem(16, 16, 16), "shared", KERNELS["shared"].tiling(block_m=32, block_n=32, block_k=1024))
        warnings: list[str] = []
        larger = Point(Problem(256, 64, 32), POINTS[3].kernel, POINTS[3].tiling)
        records = measure([POINTS[0], too_large, POINTS[3], larger], warn=warnings.append)
        assert [record.ok for record in records] == [True, False, True, True]
        assert "allowed on h200: up to 232448 bytes" in str(records[1].failure)
        assert records[1].environment["gpu"] == "NVIDIA H200"
        assert records[1].environment["compiler"] == "nvcc 13.0"
        spill = "its 255 registers a thread spill 16 bytes; measured all the same"
        assert warnings == [f"naive 8x32: {spill}", f"vectorized 128x128x8/8x8: {spill}"]


class TestEnding:
    def test_a_process_and_what_it_started_are_killed(self):
        process = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
        end(process)
        assert process.returncode == -signal.SIGKILL

    def test_a_process_that_does_not_even_die_is_left_behind(self, monkeypatch):
        """As one that waits for a broken driver: killed, and waited for so long, but not for ever."""
        killed: list[int] = []

        class Undying:
            pid = -1

            def wait(self, timeout=None):
                assert timeout is not None, "this would never return"
                raise subprocess.TimeoutExpired("worker", timeout)

        monkeypatch.setattr(os, "killpg", lambda pid, number: killed.append(pid))
        end(Undying())
        assert killed == [-1]


class TestWhichDevice:
    @pytest.fixture
    def on(self, monkeypatch):
        """A machine with the GPU of these facts."""

        def present(as_device=None, **facts):
            monkeypatch.setattr(Supervisor, "facts", lambda self: GpuFacts(**{**vars(FACTS), **facts}))
            with GpuMachine(as_device) as machine:
                return machine.device

        return present

    def test_the_title_tells(self, on):
        assert on() == device("h200")
        assert on(title="NVIDIA GeForce RTX 3090", capability="8.6") == device("rtx-3090")

    def test_an_unknown_gpu_says_what_a_device_file_needs(self, on):
        with pytest.raises(InputError) as caught:
            on(title="NVIDIA X1")
        for part in ("NVIDIA X1 is no known device", "sms = 132", "--device FILE.toml"):
            assert part in str(caught.value)

    def test_a_given_device_wins_if_it_can_be_this_gpu(self, on):
        assert on(device("h100-sxm"), title="NVIDIA X1") == device("h100-sxm")
        with pytest.raises(InputError, match=r"rtx-3090 is of compute capability 8\.6"):
            on(device("rtx-3090"))


class TestTiming:
    @pytest.mark.parametrize(
        ("each_s", "count"),
        [(1e-6, MOST_SAMPLES), (1e-3, MOST_SAMPLES), (0.25 / 100, 100), (0.1, LEAST_SAMPLES), (1.0, 10), (60.0, 5)],
    )
    def test_how_many_samples(self, each_s, count):
        samples: list[float] = []
        while not enough(samples):
            samples.append(each_s)
        assert abs(len(samples) - count) <= 1  # sums of floats may need one more

    def test_every_sample_is_prepared_for(self):
        events = []

        def start():
            events.append("launch")
            return lambda: 0.05

        samples = time_launches(start, lambda: events.append("before"))
        assert samples == [0.05] * LEAST_SAMPLES
        assert events == ["before", "launch"] * (len(events) // 2)
        assert len(events) // 2 >= LEAST_SAMPLES + 3


class TestEnvironment:
    def test_what_nvidia_smi_says(self):
        assert parse_query("580.159.04, 1980, 1980, 287.62, 45\n") == {
            "driver": "580.159.04",
            "sm_clock_hz": 1.98e9,
            "max_sm_clock_hz": 1.98e9,
            "power_w": 287.62,
            "temperature_c": 45.0,
        }

    @pytest.mark.parametrize("answer", ["", "No devices were found\n", "1, 2\n"])
    def test_what_it_does_not_say_is_none(self, answer):
        assert set(parse_query(answer).values()) == {None}
        assert parse_query("580, [N/A], 1980, [Not Supported], x")["power_w"] is None

    def test_the_gpu_is_kept_busy_meanwhile(self, monkeypatch, tmp_path):
        smi = tmp_path / "nvidia-smi"
        smi.write_text('#!/bin/sh\nsleep 0.3\necho "580, 1980, 1980, 300, 50"\n')
        smi.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        launches = []

        def launch():
            launches.append(time.monotonic())
            time.sleep(0.01)

        found = under_load(FACTS, launch)
        assert found["sm_clock_hz"] == 1.98e9
        assert len(launches) > 5
        monkeypatch.setenv("PATH", str(tmp_path / "empty"))
        assert set(under_load(FACTS, lambda: None).values()) == {None}


def test_the_worker_finds_the_package_wherever_it_lies(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    paths = worker_environment()["PYTHONPATH"].split(os.pathsep)
    assert paths[0] == "/elsewhere"
    assert any((Path(path) / "gemmsim").is_dir() for path in paths[1:])


def test_the_worker_finds_the_cubins(monkeypatch, tmp_path):
    monkeypatch.setattr(supervising, "cache_folder", lambda: tmp_path)
    assert worker_environment()["GEMMSIM_CACHE"] == str(tmp_path)


def test_facts_travel_as_json():
    assert GpuFacts(**json.loads(json.dumps(vars(FACTS)))) == FACTS
