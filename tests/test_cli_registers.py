"""`gemmsim registers`: its forms, one at a time, and what compiled code and files of streams give."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

DATA = Path(__file__).parent / "data"
SASS = DATA / "sass" / "dot_sm_90.hex.txt"


def test_compiled_code(answer, gemmsim):
    found = answer(f"registers --sass {SASS} --function dot")
    assert found["ffma"] == 4
    assert found["cycles_per_ffma"] == found["cycles"] / 4 >= 13 / 4  # of 13 instructions
    assert found["peak_fraction"] == pytest.approx(1 / found["cycles_per_ffma"])
    assert found["ideal_fraction"] == pytest.approx(4 / 13)
    assert found["reuse_hits"] >= 0
    for each in found["conflicts"]:
        assert found["instructions"][each["instruction"]]["text"] == each["text"]
        assert each["cycles"] > 0
    assert found["best"]["peak_fraction"] >= found["peak_fraction"]
    text = " ".join(gemmsim(f"registers --sass {SASS} --function dot").out.split())
    assert "Register ports and issue slots of a sub-core" in text
    assert "per FFMA" in text


def test_a_loop_of_outer_products_has_a_best_order(answer, tmp_path):
    """2 x 2 a step, whose rows and accumulators all lie in even registers."""
    rows = [f"FFMA R{c}, R{a}, R{b}, R{c}" for a, b, c in ((4, 8, 12), (4, 10, 14), (6, 8, 16), (6, 10, 18))]
    listing = ["\t\tcode for sm_90", "\t\tFunction : f"]
    for number, text in enumerate([*rows, "LDS R4, [R0]", "BRA 0x0"]):
        listing += [f"        /*{16 * number:04x}*/   {text} ;  /* 0x0000000000000000 */"]
        listing += ["                                     /* 0x000fe20000000000 */"]
    path = tmp_path / "f.txt"
    path.write_text("\n".join([*listing, "\t\t.........."]) + "\n")
    found = answer(f"registers --sass {path}")
    assert found["cycles_per_ffma"] == pytest.approx(3, rel=0.1)  # three even registers each
    assert found["best"]["thread"] == "2x2"
    assert found["best"]["order"] is not None
    assert found["best"]["peak_fraction"] == pytest.approx(4 / 6)  # of six issue slots
    assert found["ideal_fraction"] == pytest.approx(4 / 6)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("registers", "nothing to count; give one of --thread RMxRN, --sass FILE, --cubin FILE, --batch FILE.jsonl"),
        ("registers --thread 4x4 --sass x", "--thread RMxRN and --sass FILE are several questions"),
        ("registers --sass x --cubin y", "--sass FILE and --cubin FILE are several questions"),
        ("registers --thread 4x4 --function f", "--function does not go with --thread RMxRN; it goes with --sass FILE"),
        ("registers --sass x --order row", "--order does not go with --sass FILE"),
        ("registers --batch nowhere.jsonl", "cannot read nowhere.jsonl"),
        ("registers --sass nowhere", "cannot read nowhere"),
    ],
)
def test_refusals(refusal, words, message):
    assert message in refusal(words)


def test_a_file_of_streams(answer, tmp_path):
    path = tmp_path / "streams.jsonl"
    lines = [{"name": "a", "ffma": [[8, 0, 2, 4, ""]], "more": 1}, {"ffma": [[8, 0, 1, 255, ""]]}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, second = answer(f"registers --batch {path}")["results"]
    assert first["cycles_per_ffma"] == pytest.approx(3, rel=0.01)
    assert second["cycles_per_ffma"] == pytest.approx(1, rel=0.01)


def test_a_batch_equals_the_hardware(answer, tmp_path):
    """500 streams measured on an H200: within 3 % for 95 of 100, 0.75 % on average."""
    text = gzip.decompress((DATA / "ffma_streams_h200.jsonl.gz").read_bytes()).decode()
    path = tmp_path / "streams.jsonl"
    path.write_text(text)
    measured = [json.loads(line)["cycles_per_ffma"] for line in text.splitlines()]
    found = [each["cycles_per_ffma"] for each in answer(f"registers --batch {path}")["results"]]
    errors = [abs(each / cycles - 1) for each, cycles in zip(found, measured, strict=True)]
    assert len(errors) == 500
    assert sum(error <= 0.03 for error in errors) >= 475
    assert sum(errors) <= 0.0075 * 500


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "line 1: not readable as JSON"),
        ("[1]", "line 1: ffma is None; needed: a list"),
        ('{"ffma": []}', "line 1: a stream without any FFMA"),
        ('{"ffma": [[1, 2, 3]]}', "[1, 2, 3]; needed"),
        ('{"ffma": [[1, 2, 3, 4, "Z"]]}', "reuse flags 'Z'; allowed"),
        ('{"ffma": [[1, 2, 3, 400, ""]]}', "register 400; allowed"),
        ('{"ffma": [[1, 2, 3, 4, ""]], "stall": [1, 2]}', "line 1: 1 FFMA, but 2 stalls"),
        ('{"ffma": [[1, 2, 3, 4, ""]], "stall": "x"}', "stall 'x'; allowed"),
        ('{"ffma": [[1, 2, 3, 4, ""]], "unrolled": 0}', "line 1: unrolled 0; allowed"),
        ("", "no stream in it"),
    ],
)
def test_lines_that_are_no_streams(refusal, tmp_path, line, message):
    path = tmp_path / "x.jsonl"
    path.write_text(line + "\n")
    assert message in refusal(f"registers --batch {path}")


def test_compiled_kernels(gemmsim):
    """With --compile, the main loop is that of this compiler, and so are its reads."""
    done = gemmsim("predict 4096 --kernel double_buffer --compile --json")
    if done.status == 3:
        pytest.skip(done.err)
    found, ports = done.document, done.document["register_ports"]
    assert ports["source"] in ("compiled", "table", "typical")  # compiled only with a disassembler
    assert 0 < ports["peak_fraction"] <= ports["ideal_fraction"] < 1
    assert found["terms"]["register_ports"] == pytest.approx(found["terms"]["ffma"] / ports["peak_fraction"])
