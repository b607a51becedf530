"""`gemmsim explain --why A B`."""

from __future__ import annotations

import json

import pytest
from command_line import TEXTBOOK

from gemmsim.kernels import kernel
from gemmsim.record_files import read_records, shipped_records

TEXT = "--kernel double_buffer --tile 128x128x8 --thread 8x8"
A, B = "double_buffer --tile 128x128x8 --thread 8x8", "double_buffer --tile 128x128x8 --thread 8x8 --swizzle 16"


def test_the_document(answer):
    found = answer("explain 4096 --why", A, B)
    one = answer(f"predict 4096 {TEXT} --route analytic")
    assert (found["device"], found["route"]) == ("h200", one["route"])
    assert found["a"]["tiling"] == one["tiling"]
    assert (found["a"]["time_s"], found["a"]["bound_by"]) == (one["time_s"], one["bound_by"])
    assert found["a"]["terms"] == one["terms"]
    assert found["b"]["tiling"] == one["tiling"] | {"swizzle": 16}
    other = answer(f"predict 4096 {TEXT} --swizzle 16 --route analytic")
    assert found["b"]["time_s"] == other["time_s"]
    slow, fast = sorted((one["time_s"], other["time_s"]), reverse=True)
    assert found["speedup"] == pytest.approx(slow / fast)
    assert found["faster"] in ("a", "b")
    differences = found["differences"]
    assert differences["options"] == {"--swizzle": {"a": "0", "b": "16"}}
    counted = answer(f"traffic 4096 {TEXT}")
    assert differences["counts"]["shared_load_wavefronts"]["a"] == counted["wavefronts"]["shared_load"]
    assert differences["counts"]["shared_load_excess"] == {
        "a": counted["excess"]["shared_load"], "b": 0, "ratio": None,
    }  # fmt: skip
    assert differences["counts"]["global_reads"]["a"] == counted["reads"]["global"]
    assert set(differences["conflicts"]["a"]) == {"store_a", "load_b"}
    assert differences["conflicts"]["b"] == {}
    assert differences["occupancy"]["blocks"] == {"a": 1024, "b": 1024, "ratio": 1}
    assert set(differences["terms"]) == set(one["terms"])
    assert found["decides"]["option"] == "--swizzle"
    assert found["decides"]["term"] in one["terms"]
    (swap,) = found["swaps"]
    assert (swap["option"], swap["closes"], swap["time_s"]) == ("--swizzle", 1, fast)


def test_both_were_measured(answer):
    found = answer("explain 4096 --why", A, B)
    measured = {}
    for campaign in ("", "layouts"):
        for record in read_records(shipped_records(campaign))[0]:
            if record.point.kernel == "double_buffer" and record.point.problem.m == record.point.problem.k == 4096:
                measured[kernel("double_buffer").describe(record.point.tiling)] = record.median_s
    assert found["a"]["measured_s"] == measured["128x128x8/8x8"]
    assert found["b"]["measured_s"] == measured["128x128x8/8x8 swizzle=16"]


def test_on_another_device_nothing_was_measured(answer):
    found = answer("explain 4096 --device rtx-3090 --why", A, B)
    assert (found["device"], found["a"]["measured_s"], found["b"]["measured_s"]) == ("rtx-3090", None, None)


def test_for_people(gemmsim):
    shown = gemmsim("explain 2048 --why", "shared --tile 32x32x32", "register --tile 128x128x8 --thread 8x8")
    assert shown.status == 0
    assert max(map(len, shown.out.splitlines())) <= 80
    text = " ".join(shown.out.split())
    assert "shared reads 17,179,869,184 elements in A, 8 times as many as the 2,147,483,648 in B" in text
    assert "decides" in text
    assert "times are by closed forms alone, as those of predict --route analytic" in shown.out.splitlines()
    assert "128 x 128 elements at 1 x 1 a thread need 16384 threads a block" in text


@pytest.mark.parametrize(
    "ways",
    [
        ("explain 2048 --why", A, B),
        ("explain --why", f"{A} 2048", f"double_buffer 2048 {B.removeprefix('double_buffer ')}"),
        (f"explain {TEXTBOOK} --why", "", "--swizzle 16"),
        ("explain 99 --kernel naive --why", f"2048 {TEXT}", f"2048 {TEXT} --swizzle 16"),
        ("explain 2048 --kernel double_buffer --swizzle 8 --why", f"{TEXT} --swizzle 0", f"{TEXT} --swizzle '16'"),
    ],
)
def test_ways_to_say_it(answer, ways):
    found = answer(*ways)
    assert (found["a"]["kernel"], found["b"]["kernel"]) == ("double_buffer", "double_buffer")
    assert found["a"]["problem"]["m"] == found["b"]["problem"]["k"] == 2048
    assert found["differences"]["options"] == {"--swizzle": {"a": "0", "b": "16"}}


def test_lines_of_files(answer, points, tmp_path):
    line = {"m": 64, "n": 64, "k": 64, "kernel": "shared", "tiling": {"block_m": 16, "block_n": 16, "block_k": 16}}
    found = answer("explain --why", f"{points}:2", "shared 64 --tile 16x16x8")
    assert found["a"]["tiling"].items() >= line["tiling"].items()
    assert found["differences"]["options"] == {"--tile": {"a": "16x16x16", "b": "16x16x8"}}
    records, _ = read_records(shipped_records())
    copied = tmp_path / "some.jsonl"
    copied.write_text("\n".join(json.dumps(record.to_dict()) for record in records[:2]))
    found = answer("explain --why", f"{copied}:1", f"{copied}:2")
    assert [found[name]["measured_s"] for name in "ab"] == [record.median_s for record in records[:2]]


def test_registers_of_each(gemmsim):
    result = gemmsim("explain 2048 --why", f"{A} --registers 96", f"{A} --registers 255", "--json")
    found = result.document
    assert found["differences"]["options"] == {"--registers": {"a": "96", "b": "255"}}
    assert found["a"]["registers_per_thread"] == {"value": 96, "source": "given"}
    (warning,) = found["warnings"]
    assert warning.startswith("B: 255 registers are the most that a thread has")
    assert result.err == f"gemmsim: warning: {warning}\n"


def test_one_does_not_launch(answer):
    found = answer("explain 2048 --why", A, "double_buffer --tile 128x128x8 --thread 4x8 --registers 250")
    assert (found["b"]["launches"], found["b"]["time_s"], found["b"]["bound_by"]) == (False, None, None)
    assert (found["faster"], found["speedup"], found["decides"]["term"]) == ("a", None, None)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("explain 2048 --why", A), "argument --why: expected 2 arguments; `gemmsim explain --help` says more"),
        (("explain --why", A, B), "A: sizes are missing; give M, or M N K"),
        (("explain 2048 --why", "--tile 8x8", B), "A: --kernel is missing"),
        (("explain 2048 --why", A, "dubble_buffer"), "B: unknown kernel 'dubble_buffer'; nearest: double_buffer"),
        (("explain 2048 --why", A, "naive shared"), "B: 'naive' and 'shared': a configuration has one kernel"),
        (("explain 2048 --why", A, "naive 1 2"), "B: sizes '1' '2': 2 numbers"),
        (("explain 2048 --why", A, "naive --tyle 8x8"), "B: unknown option '--tyle'; nearest: --tile"),
        (("explain 2048 --why", A, "naive --tile"), "B: argument --tile: expected one argument"),
        (("explain 2048 --why", A, "naive --tile 8y8"), "B: --tile '8y8' is not of the form"),
        (("explain 2048 --why", A, "naive '"), 'B: "naive \'" cannot be read: No closing quotation'),
        (("explain 2048 --why", A, "naive -5"), "B: m -5 is out of range"),
        (("explain 2048 --edges --why", A, B), "--edges speaks of one configuration; leave it out with --why"),
        (("explain --why", "no/such.jsonl:1", "naive 64"), "A: cannot read no/such.jsonl: No such file or directory"),
        (("explain 2048 --device h20o --why", A, B), "unknown device 'h20o'; nearest: h200"),
    ],
)
def test_refusals(refusal, words, says):
    assert says in refusal(*words)


def test_lines_that_are_none(refusal, points, tmp_path):
    assert "line 9: there is none; lines are numbered from 1 to" in refusal("explain --why", f"{points}:9", "naive 64")
    assert "line 0: there is none" in refusal("explain --why", f"{points}:0", "naive 64")
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"m": 3\n[1]\n{"m": 3}\n' + "[" * 100_000 + "\n")
    for number, says in ((1, "not readable as JSON"), (2, "a point must be an object"), (3, "n is missing")):
        assert f"line {number}: {says}" in refusal("explain --why", f"{broken}:{number}", "naive 64")
    assert "line 4: not readable as JSON" in refusal("explain --why", f"{broken}:4", "naive 64")
