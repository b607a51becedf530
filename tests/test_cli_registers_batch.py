"""`gemmsim registers --batch`: the measured streams through the command, and lines that are none."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

SHIPPED = Path(__file__).parent / "data" / "ffma_streams_h200.jsonl.gz"
LINE = {"ffma": [[8, 0, 2, 4, ""], [9, 0, 2, 5, "AB"]], "unrolled": 2, "stall": 1, "yield_bit": 1}


@pytest.fixture
def file(tmp_path):
    def write(*lines):
        path = tmp_path / "streams.jsonl"
        path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
        return path

    return write


def test_the_measured_streams(answer, tmp_path):
    text = gzip.decompress(SHIPPED.read_bytes()).decode()
    path = tmp_path / "streams.jsonl"
    path.write_text(text)
    measured = [json.loads(line)["cycles_per_ffma"] for line in text.splitlines()]
    results = answer(f"registers --batch {path}")["results"]
    errors = [abs(each["cycles_per_ffma"] / cycles - 1) for each, cycles in zip(results, measured, strict=True)]
    assert sum(error <= 0.03 for error in errors) >= 0.97 * len(errors)
    assert sum(errors) / len(errors) <= 0.0037
    shutil.copy(SHIPPED, tmp_path / "packed.jsonl.gz")
    assert answer(f"registers --batch {tmp_path / 'packed.jsonl.gz'}")["results"] == results


def test_results_are_in_order_whatever_the_lengths(answer, file):
    lines = [
        {**LINE, "unrolled": unrolled, "ffma": LINE["ffma"] * periods} for unrolled in (7, 2, 30) for periods in (3, 1)
    ]
    together = answer(f"registers --batch {file(*lines)}")["results"]
    alone = [answer(f"registers --batch {file(line)}")["results"][0] for line in lines]
    assert together == alone


def test_stall_and_yield_bit_are_numbers_or_lists(answer, file):
    lists = {**LINE, "stall": [1, 3], "yield_bit": [0, 1]}
    plain = {"ffma": [[8, 255, 255, 255, ""]], "stall": 4}
    first, second = answer(f"registers --batch {file(lists, plain)}")["results"]
    assert first["cycles_per_ffma"] == (2 + 1 + 3) / 2  # the yield takes a cycle, and the second waits one for its bank
    assert second["cycles_per_ffma"] == 4


def test_for_people(gemmsim, file):
    shown = gemmsim(f"registers --batch {file({**LINE, 'name': 'a pair'})}")
    assert shown.status == 0
    assert "a pair" in shown.out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not readable as JSON"),
        ("[]", "ffma is None"),
        ({"ffma": []}, "a stream without any FFMA"),
        (
            {**LINE, "ffma": [[8, 0, 2, 4, ""], [9, 0, 2]]},
            "FFMA [9, 0, 2]; needed: [Rd, Ra, Rb, Rc, reuse flags] (row 1)",
        ),
        ({**LINE, "ffma": [[8, 0, 256, 4, ""]]}, "register 256; allowed: 0 to 254, and 255 for none (row 0)"),
        ({**LINE, "ffma": [[8, 0, 2, 4, "AX"]]}, "reuse flags 'AX'; allowed: letters of ABC"),
        ({**LINE, "unrolled": 0}, "unrolled 0; allowed: 1 to"),
        ({**LINE, "unrolled": "256"}, "unrolled '256'"),
        ({**LINE, "stall": [1]}, "2 FFMA, but 1 stalls and 2 yield bits"),
        ({**LINE, "stall": 1.5}, "stall 1.5; allowed: 0 to 15"),
        ({**LINE, "yield_bit": True}, "yield bit True; allowed: 0 and 1"),
    ],
)
def test_bad_lines(refusal, file, line, message):
    path = file(LINE, line)
    refused = refusal(f"registers --batch {path}")
    assert f"{path}, line 2: " in refused
    assert message in refused


def test_what_is_no_file_of_streams(refusal, file, tmp_path):
    assert "no stream in it" in refusal(f"registers --batch {file()}")
    (tmp_path / "broken.jsonl.gz").write_bytes(SHIPPED.read_bytes()[:100])
    assert "cannot read" in refusal(f"registers --batch {tmp_path / 'broken.jsonl.gz'}")
