"""calibrate on the command line, without a GPU or with one that is made up."""

from __future__ import annotations

import json

import pytest

from gemmsim.gpu import register_campaign
from gemmsim.gpu.calibrate import PARTS
from gemmsim.machine_code.loop_bodies import LoopBody
from gemmsim.machine_code.register_variants import variants


@pytest.mark.parametrize("parts", ["registers", "", "l1 dram"])
def test_without_a_gpu_the_machine_cannot(refusal, monkeypatch, tmp_path, parts):
    monkeypatch.setitem(__import__("sys").modules, "pycuda", None)
    monkeypatch.setitem(__import__("sys").modules, "pycuda.driver", None)
    out = tmp_path / "out.jsonl"
    message = refusal(f"calibrate {parts} --out {out}", status=3)
    assert message.startswith("running kernels needs an NVIDIA GPU")
    assert not out.exists()


def test_a_file_that_is_no_calibration_is_refused_before_the_gpu_is_asked(refusal, tmp_path):
    out = tmp_path / "out.toml"
    out.write_text('{"name": "eee"}')
    assert refusal(f"calibrate --out {out}", status=2).startswith(f"calibration file {out} is not readable as TOML")
    assert out.read_text() == '{"name": "eee"}'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "calibrate banks --out x.jsonl",
            f"banks cannot be calibrated; known: {', '.join(PARTS)}, registers",
        ),
        ("calibrate l1 registers --out x.jsonl", "registers has a file of its own; calibrate l1 registers in two runs"),
        ("calibrate l1 --out x.toml --only eee", "--only belongs to registers; name that part alone"),
        ("calibrate --out x.toml --streams s.jsonl", "--streams belongs to registers; name that part alone"),
        ("calibrate --out no/such/folder.toml", "cannot write no/such/folder.toml"),
        ("calibrate registers --out x.jsonl --only nothing", "no stream has 'nothing' in its name; the first is 'eee'"),
        ("calibrate registers --out no/such/folder.jsonl", "cannot write no/such/folder.jsonl"),
        ("calibrate registers --out x.jsonl --streams none.jsonl", "cannot read none.jsonl"),
        ("calibrate registers", "the following arguments are required: --out"),
    ],
)
def test_what_is_unusable_is_refused(refusal, monkeypatch, tmp_path, words, message):
    monkeypatch.chdir(tmp_path)
    assert refusal(words, status=2).startswith(message)


def test_records_are_shown_and_written(gemmsim, monkeypatch, tmp_path):
    asked: list[list[str]] = []

    def measure(bodies: list[LoopBody], out, done, tell, warn) -> list[dict]:
        asked.append([each["name"] for each in done])
        found = [
            bodies[0].to_dict() | {"steady_cycles_per_ffma_by_warps": {"1": 2.99, "2": 3.0, "4": 3.001}},
            bodies[1].to_dict() | {"failure": "launch failed"},
        ]
        register_campaign.append(out, found[0])
        tell("measured", 1, 2)
        return found

    monkeypatch.setattr(register_campaign, "measure_bodies", measure)
    out = tmp_path / "out.jsonl"
    shown = gemmsim(f"calibrate registers --out {out} --only ee")
    assert shown.status == 1
    assert "eee      2.990    3.000    3.001        -" in shown.out
    assert "launch failed" in shown.out
    result = gemmsim(f"calibrate registers --out {out} --only ee --json --resume")
    assert [each["name"] for each in result.document["records"]] == ["eee", "eeo"]
    assert asked == [[], ["eee"]]
    assert json.loads(out.read_text().splitlines()[0])["code"] == list(variants()[0].code)
