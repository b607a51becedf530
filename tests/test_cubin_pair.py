"""Two cubins on the same operands: on a GPU that is made up, and with processes that break."""

from __future__ import annotations

import json
import math
import sys

import pytest
from examples import example
from test_gpu_run import FACTS, FakeGpu

from gemmsim.errors import MachineError
from gemmsim.gpu import cubin_pair, run
from gemmsim.gpu.cubin_pair import Compared, Request, compared, require_gpu, run_pair
from gemmsim.gpu.run import PointError
from gemmsim.problem import Problem
from gemmsim.records import Point

POINT = Point(Problem(40, 24, 30), "naive", example("naive"))

WORKER = """\
import json, os, sys, time
start = os.environ.get("FAKE_START")
print("a banner of some library")
if start == "no gpu":
    print(json.dumps(dict(error="no usable NVIDIA GPU: none")), flush=True)
    sys.exit(3)
print(json.dumps(dict(ready="NVIDIA H200")), flush=True)
for line in sys.stdin:
    m = json.loads(line)["point"]["m"]
    if m == 32:
        os.abort()
    if m == 48:
        time.sleep(60)
    if m == 64:
        print(json.dumps(dict(failure="launch failed: illegal instruction", broken=True)), flush=True)
        sys.exit(1)
    print(json.dumps(dict(different=m % 2, before_s=[2.0, 2.2, 2.1], after_s=[1.0, 1.1, 1.05])), flush=True)
"""


@pytest.fixture
def cubins(monkeypatch, tmp_path):
    """Two files in place of cubins; nobody is asked for clocks."""
    for name in ("before", "after"):
        (tmp_path / name).write_bytes(b"cubin")
    monkeypatch.setattr(run, "blocks_per_sm", lambda *_: 8)
    monkeypatch.setattr(cubin_pair, "under_load", lambda facts, keep_busy: keep_busy() and {})
    return str(tmp_path / "before"), str(tmp_path / "after")


@pytest.fixture
def worker(monkeypatch, tmp_path):
    """A process that answers by m."""
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    monkeypatch.setattr(cubin_pair, "WORKER", (sys.executable, str(path)))
    monkeypatch.setattr(cubin_pair, "TIMEOUT_S", 3)


def requests(*sizes: int) -> list[Request]:
    return [Request(Point(Problem(m, 64, 32), "naive", example("naive")), "before", "after") for m in sizes]


def test_a_request_survives_its_line():
    request = Request(POINT, "a", "b", timed=True, cublas=True)
    assert Request.from_json(request.to_json()) == request
    assert "\n" not in request.to_json()


def test_the_same_results_are_identical(cubins):
    answer = run_pair(FakeGpu(), Request(POINT, *cubins))
    assert answer == {"different": 0}


def test_another_bit_is_seen(cubins):
    def spoil(launch, c):
        if launch == 2:
            c[3, 4] = -c[3, 4]

    with pytest.raises(PointError, match="wrong result"):  # held against float64 too
        run_pair(FakeGpu(spoil), Request(POINT, *cubins))

    def nudge(launch, c):
        if launch == 2:
            c.view("uint32")[3, 4] ^= 1

    assert run_pair(FakeGpu(nudge), Request(POINT, *cubins))["different"] == 1


def test_times_are_taken_in_turn(cubins):
    gpu = FakeGpu(each_s=0.5)
    answer = run_pair(gpu, Request(POINT, *cubins, timed=True))
    assert answer["before_s"] == answer["after_s"]
    assert set(answer["after_s"]) == {0.5}
    assert answer["environment"]["gpu"] == FACTS.title
    json.dumps(answer)
    late = FakeGpu(lambda launch, c: c.fill(0) if launch == gpu.launches else None)
    assert run_pair(late, Request(POINT, *cubins, timed=True))["different"] > 0


def test_a_launch_that_fails_is_a_line(cubins):
    def spoil(launch, c):
        raise FakeGpu.Error("illegal instruction")

    with pytest.raises(PointError, match="launch failed: illegal instruction"):
        run_pair(FakeGpu(spoil), Request(POINT, *cubins))


def test_answers_come_in_order_and_what_breaks_costs_itself_alone(worker):
    told: list[int] = []
    found = compared(requests(16, 32, 17, 48, 64, 18), told.append)
    assert told == [1, 2, 3, 4, 5, 6]
    assert [each.failure for each in found] == [
        None, cubin_pair.DIED, None, "no answer within 3 s", "launch failed: illegal instruction", None,
    ]  # fmt: skip
    assert [each.identical for each in found] == [True, False, False, False, False, True]
    assert found[0].speedup == pytest.approx(2)
    assert math.isnan(found[1].speedup)


def test_after_many_breaks_the_rest_is_not_run(worker):
    found = compared(requests(*[32] * 8))
    assert [each.failure for each in found[:6]] == [cubin_pair.DIED] * 6
    assert all("not run" in str(each.failure) for each in found[6:])
    assert len(found) == 8


def test_without_a_gpu_there_is_one_line(worker, monkeypatch):
    monkeypatch.setenv("FAKE_START", "no gpu")
    for ask in (require_gpu, lambda: compared(requests(16))):
        with pytest.raises(MachineError, match="no usable NVIDIA GPU"):
            ask()


def test_nothing_is_the_same_that_did_not_run():
    assert not Compared(requests(16)[0], failure="died").identical
