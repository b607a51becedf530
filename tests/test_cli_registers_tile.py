"""`gemmsim registers --thread`: what scripts and people get, and what is refused."""

from __future__ import annotations

import json

import pytest


def test_keys(answer):
    found = answer("registers --thread 8x8")
    assert found["ffma"] == 64
    assert found["cycles_per_ffma"] == found["cycles"] / 64
    assert found["peak_fraction"] == pytest.approx(1 / found["cycles_per_ffma"])
    assert (found["order"], found["flags"], found["accumulators"], found["arch"]) == (
        "row", "next", "consecutive", "sm_90",
    )  # fmt: skip
    assert found["reuse_hits"] == 56
    assert found["reads"] == 3 * 64 - 56
    assert found["registers"] == 64 + 16
    assert found["best"]["peak_fraction"] >= 0.98
    assert found["best"]["proven"]
    assert found["gain"] == pytest.approx(found["cycles_per_ffma"] / found["best"]["cycles_per_ffma"] - 1)
    assert found["orders"]["row"] == found["peak_fraction"]
    assert {"order", "flags", "allocation", "registers", "swapped", "stream"} <= set(found["best"])


def test_the_stream_of_the_best_is_a_line_of_a_batch(answer, tmp_path):
    best = answer("registers --thread 4x4 --double-buffer")["best"]
    assert len(best["stream"]) == best["ffma"] == 32
    path = tmp_path / "best.jsonl"
    path.write_text(json.dumps({"ffma": best["stream"], "unrolled": 512, "stall": 1, "yield_bit": 1}) + "\n")
    (again,) = answer("registers --batch", str(path))["results"]
    assert again["cycles_per_ffma"] == pytest.approx(best["cycles_per_ffma"], rel=0.01)


def test_conflicts_name_bank_slots_and_place(answer):
    found = answer("registers --thread 4x4 --order column --accumulators opposite_b")
    assert found["conflicting_ffma"] == len({(each["row"], each["column"]) for each in found["conflicts"]}) > 0
    for each in found["conflicts"]:
        cell = [each["row"], each["column"]]
        assert cell == [each["instruction"] % 4, each["instruction"] // 4]
        a, b = found["allocation"]["a"][0][cell[0]], found["allocation"]["b"][0][cell[1]]
        named = {"A": a, "B": b, "C": found["allocation"]["c"][cell[0]][cell[1]]}
        assert all(named[slot] % 2 == each["bank"] for slot in each["slots"])


@pytest.mark.parametrize("arch", ["sm_52", "5.2", "52"])
def test_ways_to_write_an_architecture(answer, arch):
    found = answer(f"registers --thread 4x4 --arch {arch}")
    assert (found["arch"], found["register_file"]) == ("sm_52", "maxwell")


def test_a_permutation(answer):
    named = answer("registers --thread 2x2 --order serpentine")
    assert answer("registers --thread 2x2 --order 0,1,3,2") == named
    assert answer("registers --thread 2x2 --order 3,1,2,0")["order"] == "3,1,2,0"


def test_double_buffers_and_vectors(answer):
    found = answer("registers --thread 8x4 --double-buffer --vector 2 --vector-c 4")
    assert (found["ffma"], found["sets"], found["registers"]) == (64, 2, 32 + 2 * 12)
    assert all(row[0] % 4 == 0 for row in found["allocation"]["c"])
    assert len(found["allocation"]["a"]) == 2


def test_what_people_see(gemmsim):
    shown = gemmsim("registers --thread 4x4 --order column --flags none")
    assert (shown.status, shown.err) == (0, "")
    for text in ("Thread tile 4x4 on sm_90", "serpentine_column", "best found", "R0e", "15o", "least"):
        assert text in shown.out


@pytest.mark.parametrize("form", ["png", "svg"])
def test_a_picture(gemmsim, tmp_path, form):
    path = tmp_path / f"tile.{form}"
    assert gemmsim("registers --thread 4x2 --picture", str(path)).status == 0
    assert path.read_bytes()[:4] == {"png": b"\x89PNG", "svg": b"<?xm"}[form]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--thread 0x8", "thread_m 0 is out of range; allowed: whole numbers from 1"),
        ("--thread 8", "--thread '8' is not of the form RMxRN, such as 8x8"),
        ("--thread 32x32", "thread tile 32x32 needs 1,088 registers"),
        ("--thread 15x14 --double-buffer", "thread tile 15x14 needs 268 registers"),
        ("--thread 4x4 --order zigzag", "unknown order 'zigzag'; known: row, column, serpentine"),
        ("--thread 4x4 --order 0,1", "no permutation of 0 to 15"),
        ("--thread 4x4 --flags some", "--flags 'some'; allowed: next, held, all, none"),
        ("--thread 4x4 --accumulators odd", "--accumulators 'odd'; allowed: consecutive"),
        ("--thread 4x4 --arch sm_13", "compute capability 'sm_13' is not supported; supported: 5.0 to"),
        ("--thread 4x4 --warps 0", "--warps 0 is out of range"),
        ("--thread 4x4 --vector 3", "vectors of 3 registers; allowed: 1, 2, 4"),
        ("--thread 4x6 --vector-c 4", "runs of 4 registers for C do not divide the 6"),
        ("--thread 4x4 --seed x", "--seed 'x' is not a whole number"),
        (
            "--thread 2x2 --picture tile.pdf",
            "--picture 'tile.pdf' is no picture that can be written; allowed: .png, .svg",
        ),
        ("--thread 2x2 --picture nowhere/tile.png", "cannot write nowhere/tile.png"),
        ("--order row", "--thread"),
    ],
)
def test_refusals(refusal, words, says):
    assert says in refusal(f"registers {words}")
