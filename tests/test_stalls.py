"""What is read of the profiler's stalls, from runs that are made up."""

from __future__ import annotations

import json

import pytest

from campaigns import stalls
from campaigns.stalls import METRICS, REASONS, chosen, number, read, shares, show
from gemmsim.errors import MachineError
from gemmsim.gpu.counters import Row, Run
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.record_files import append_record
from gemmsim.records import Point, Record


def run_of(points, metrics) -> Run:
    """A run in which every metric is its place in the list, and a half."""
    row = Row((1, 1), {metric: number + 0.5 for number, metric in enumerate(metrics)})
    return Run([row] * len(points), {}, "")


def test_every_metric_is_read_by_its_name(monkeypatch):
    monkeypatch.setattr(stalls, "profile", run_of)
    first, second = read(chosen(None))
    assert first == second == {name: number + 0.5 for number, name in enumerate(METRICS)}


def test_a_metric_that_is_not_known_is_left_out(monkeypatch, capsys):
    missing = METRICS["membar"]

    def profile(points, metrics):
        return (
            Run([], {}, f"==ERROR== Failed to find metric {missing}") if missing in metrics else run_of(points, metrics)
        )

    monkeypatch.setattr(stalls, "profile", profile)
    assert set(read(chosen(None))[0]) == set(METRICS) - {"membar"}
    assert "does not know: membar" in capsys.readouterr().err


def test_where_nothing_is_counted_the_profiler_says_why(monkeypatch):
    monkeypatch.setattr(stalls, "profile", lambda *_: Run([], {}, "==ERROR== out of order"))
    with pytest.raises(MachineError, match="the profiler counted nothing: out of order"):
        read(chosen(None))


def test_shares_are_of_all_that_a_warp_does():
    found = shares({"selected": 1.0, "wait": 0.5, "barrier": 2.5, "cycles": 1e9})
    assert found == {"selected": 0.25, "wait": 0.125, "barrier": 0.625}
    assert set(found) <= set(REASONS)


def test_the_fastest_of_the_records_is_profiled(tmp_path):
    problem, facts = Problem(1024, 1024, 1024), {"median_s": 1.0, "verification_error": 0.0, "samples_s": [1.0]}
    points = [
        Point(problem, "async", KERNELS["async"].tiling(**{**stalls.TILES[8192], "stages": n})) for n in (3, 4, 5)
    ]
    for point, seconds in zip(points, (3.0, 1.0, 2.0), strict=True):
        found = Record(point, "h200", "ok", samples_s=(seconds,), median_s=seconds, environment={"cublas": facts})
        append_record(tmp_path / "records.jsonl", found)
    first, second = chosen(tmp_path / "records.jsonl")
    assert first == points[1]
    assert second == chosen(None)[1]


def test_tables_for_people(capsys):
    points = chosen(None)
    show(points, [{"selected": 1, "wait": 3, "cycles": 12345678.0}, {"selected": 2, "wait": 2, "of them ready": 1.25}])
    text = capsys.readouterr().out
    assert "1024 cubed" in text
    assert "75.0%" in text
    assert "12,345,678" in text
    assert (number(None), number(0.123456)) == ("-", "0.123")


def test_without_a_gpu_it_says_so(monkeypatch, tmp_path, capsys):
    def machine():
        raise MachineError("no GPU")

    monkeypatch.setattr(stalls, "GpuMachine", machine)
    assert stalls.main(["--out", str(tmp_path / "out.jsonl")]) == 3
    assert capsys.readouterr().err == "campaigns.stalls: no GPU\n"


def test_what_it_writes(monkeypatch, tmp_path, capsys):
    class Machine:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            pass

        def prepare(self, points, progress):
            return [None] * len(points)

    monkeypatch.setattr(stalls, "GpuMachine", Machine)
    monkeypatch.setattr(stalls, "profile", run_of)
    assert stalls.main(["--out", str(tmp_path / "out.jsonl")]) == 0
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["point"]["m"] for line in lines] == [1024, 8192]
    assert set(lines[0]["metrics"]) == set(METRICS)
