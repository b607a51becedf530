"""measure, validate, compare and report on the command line, on a machine that is made up."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic
from command_line import SHARED
from drawings import drawn_once

from gemmsim.commands import measurements
from gemmsim.device import Device, device
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem
from gemmsim.record_files import scan_records
from gemmsim.records import Point, Record


def test_measure_one_point(gemmsim, machine):
    result = gemmsim(f"measure {SHARED} --counters --json")
    assert result.status == 0
    (record,) = result.document["records"]
    assert Record.from_dict(record).ok
    assert record["counters"]["ffma"] == 2048**3
    assert "measure: 1 of 1" in result.err
    shown = gemmsim(f"measure {SHARED}").out
    assert re.search(r"^shared +2048x2048x2048 .* TFLOP/s", shown, re.MULTILINE)


def test_measure_a_file_of_points_and_go_on_later(gemmsim, machine, points, tmp_path):
    out = tmp_path / "records.jsonl"
    machine.fails = "shared"
    result = gemmsim("measure --json --points", str(points), "--out", str(out))
    assert result.status == 1
    assert [record["status"] for record in result.document["records"]] == ["ok", "failed"]
    assert len(scan_records(out)[0]) == 2
    shown = gemmsim("measure --points", str(points))
    assert (shown.status, "1 point failed" in shown.out, "C[0, 3]" in shown.out) == (1, True, True)
    machine.fails = ""
    result = gemmsim("measure --json --resume --points", str(points), "--out", str(out))
    assert result.status == 0
    assert len(scan_records(out)[0]) == 3  # the point that had failed, once more


def test_validate_predicts_and_measures(gemmsim, machine):
    result = gemmsim(f"validate {SHARED} --counters --json")
    assert result.status == 0
    found = result.document
    assert found["points"][0]["error"] == pytest.approx(1 / 1.25 - 1)
    assert found["mape"] == pytest.approx(0.2)
    assert all(each["equal"] == each["total"] == 1 for each in found["counters"].values())
    assert "-20.0 %" in gemmsim(f"validate {SHARED}").out


def test_validate_says_no_when_the_result_is_wrong(gemmsim, machine, points):
    machine.fails = "shared"
    result = gemmsim(f"validate {SHARED} --json")
    assert result.status == 1
    assert (result.document["points"], result.document["mape"]) == ([], None)
    assert "wrong result" in result.document["failed"][0]["failure"]
    shown = gemmsim(f"validate {SHARED}")
    assert (shown.status, "wrong result" in shown.out) == (1, True)
    result = gemmsim("validate --json --points", str(points))
    assert (result.status, len(result.document["points"]), len(result.document["failed"])) == (1, 1, 1)


@pytest.mark.parametrize("command", ["measure", "validate"])
def test_without_a_gpu_the_machine_cannot(refusal, machine, command):
    machine.lacks = "running kernels needs PyCUDA"
    assert refusal(f"{command} 1024 --kernel naive", status=3) == machine.lacks


def test_without_pycuda_the_ways_to_it_are_told(refusal, monkeypatch):
    for name in ("pycuda", "pycuda.driver"):
        monkeypatch.setitem(sys.modules, name, None)
    message = refusal("measure 64 --kernel naive", status=3)
    assert all(part in message for part in ("NVIDIA GPU", "CUDA toolkit", "`make measure`", "pip install '.[gpu]'"))


def test_the_options_of_measure_reach_it(monkeypatch, gemmsim):
    seen = []

    def measure(*arguments):
        seen.append(arguments)
        return [synthetic.timed(arguments[0][0], device("h100-sxm"), 2)]

    monkeypatch.setattr(measurements, "measure", measure)
    gemmsim("measure 64 --kernel naive --no-flush --out somewhere.jsonl --resume --device h100-sxm")
    gemmsim("measure 64 --kernel naive --counters")
    (first, out, counters, resume, flush, _, _, on), second = seen
    assert [str(point) for point in first] == ["naive 64 x 64 x 64 fp32 8x32"]
    assert (out, counters, resume, flush, on.name) == ("somewhere.jsonl", False, True, False, "h100-sxm")
    assert (second[1:5], second[7]) == ((None, True, False, True), None)


# compare and report


def test_compare(answer, gemmsim, campaign):
    found = answer("compare", str(campaign))
    assert found["device"] == "h200"
    errors = [point["error"] for point in found["points"]]
    for point in found["points"]:
        assert point["error"] == pytest.approx(point["predicted_s"] / point["measured_s"] - 1)
        assert point.keys() >= {"problem", "kernel", "tiling"}
    assert found["mape"] == pytest.approx(sum(map(abs, errors)) / len(errors))
    assert found["max_error"] == pytest.approx(max(map(abs, errors)))
    assert found["mean_error"] == pytest.approx(sum(errors) / len(errors))
    assert found["by_kernel"].keys() == KERNELS.keys()
    assert sum(part["count"] for part in found["by_kernel"].values()) == len(errors)
    assert found["counters"]["global_load_sectors"]["equal"] == found["counters"]["global_load_sectors"]["total"] - 1
    assert found["counters"]["ffma"]["worst_relative"] == 0
    assert len(found["failed"]) == 2

    shown = gemmsim("compare", str(campaign)).out
    for name, part in [*found["by_kernel"].items(), ("all", found)]:
        row = next(line for line in shown.split("\n") if line.startswith(f"{name} "))
        assert re.split(r"  +", row)[2:] == [
            f"{100 * part['mape']:.1f} %",
            f"{100 * part['analytic_mape']:.1f} %",
            f"{100 * part['max_error']:.1f} %",
            f"{100 * part['mean_error']:+.1f} %",
            f"{part['kendall_tau']:.3f}",
            "-" if part["tau_within_problems"] is None else f"{part['tau_within_problems']:.3f}",
            "-" if part["inside_error_bars"] is None else f"{100 * part['inside_error_bars']:.0f} %",
        ]
    worst = max(found["points"], key=lambda point: abs(point["error"]))
    assert f"{100 * worst['error']:+.1f} %" in shown
    assert "2 points failed" in shown
    assert max(map(len, shown.split("\n")[:-5])) <= 80


def test_compare_survives_a_damaged_line_and_says_so(gemmsim, campaign, tmp_path):
    damaged = tmp_path / "records.jsonl"
    damaged.write_text(campaign.read_text() + '{"schema": 1, "poi')
    result = gemmsim("compare --json", str(damaged))
    assert result.status == 0
    assert len(result.document["warnings"]) == 1
    assert re.fullmatch(r"gemmsim: warning: .*line \d+.*\n", result.err)


def test_compare_asks_which_device(refusal, answer, campaign, tmp_path):
    mixed = tmp_path / "records.jsonl"
    synthetic.write(mixed, [*synthetic.campaign(), *synthetic.campaign(device("rtx-3090"))])
    assert "h200, rtx-3090; choose one with --device" in refusal("compare", str(mixed))
    assert answer("compare --device RTX3090", str(mixed))["device"] == "rtx-3090"
    assert "no measured point of t4" in refusal("compare --device t4", str(mixed))


def test_a_single_point_has_no_order(answer, gemmsim, tmp_path):
    one = synthetic.write(tmp_path / "one.jsonl", synthetic.campaign()[:1])
    assert answer("compare", str(one))["kendall_tau"] is None
    assert re.search(r"^all .* - +- +\d+ %$", gemmsim("compare", str(one)).out, re.MULTILINE)


def test_report_writes_what_it_says(answer, tmp_path, tmp_path_factory):
    records = synthetic.write(tmp_path / "records.jsonl", synthetic.campaign())
    with drawn_once(tmp_path_factory):
        found = answer("report", str(records), "--out", str(tmp_path / "new" / "folder"))
    assert found["files"]
    assert all(Path(name).stat().st_size for name in found["files"])


def test_report_says_in_its_document_what_it_left_out(gemmsim, monkeypatch):
    def write_report(records: Path | None, out: Path, on: Device | None, warn: Callable[[str], None]) -> list[Path]:
        warn("line 2: damaged")
        return []

    monkeypatch.setattr("gemmsim.report.write_report", write_report)
    result = gemmsim("report --out pages --json")
    assert result.document == {"files": [], "warnings": ["line 2: damaged"]}
    assert result.err == "gemmsim: warning: line 2: damaged\n"


def test_compare_says_what_the_model_picks_and_what_it_leaves_out(answer, gemmsim, tmp_path):
    small = {"block_m": 16, "block_n": 16, "block_k": 16}
    points = [Point(Problem(512, 512, 512), "shared", kernel("shared").tiling(**{**small, "block_k": deep}))
              for deep in (16, 32, 64)]  # fmt: skip
    wide = Point(points[0].problem, "shared", kernel("shared").tiling(block_m=32, block_n=32, block_k=512))
    t4 = device("t4")
    records = [synthetic.timed(point, t4, times) for point, times in zip(points, (3, 2, 1.5), strict=True)]
    file = synthetic.write(
        tmp_path / "records.jsonl", [*records, replace(synthetic.timed(wide, device("h200"), 1), device="t4")]
    )
    found = answer("compare", str(file))
    (pick,) = found["picks"]
    predicted = {str(each["tiling"]): each["predicted_s"] for each in found["points"]}
    assert predicted[str(pick["tiling"])] == min(predicted.values())
    measured = [record.median_s for record in records]
    assert (pick["m"], pick["n"], pick["k"], pick["kernel"], pick["of"]) == (512, 512, 512, "shared", 3)
    assert pick["regret"] == pytest.approx(pick["measured_s"] / min(measured) - 1)
    assert found["tau_within_problems"] == pytest.approx(found["kendall_tau"])
    (skipped,) = found["skipped"]
    assert "32x32x512" in skipped
    shown = gemmsim("compare", str(file)).out
    assert re.search(rf"^512x512x512 +shared .* {100 * pick['regret']:.1f} %$", shown, re.MULTILINE)
    assert "1 point without a prediction" in shown


def test_report_names_its_files(answer, gemmsim, drawn):
    expected = [str(Path("pages") / name) for name in ("index.html", "reads.svg")]
    assert answer("report --out pages") == {"files": expected, "warnings": []}
    assert gemmsim("report some.jsonl --out pages --device t4").out.split("\n") == [*expected, ""]
    assert drawn == [(None, Path("pages"), None), (Path("some.jsonl"), Path("pages"), "t4")]
