"""`gemmsim coalescing`: sectors and lines of global accesses, for scripts and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

MEMORY = Path(__file__).parent / "data" / "memory_patterns_h200.jsonl"


def of_global_memory() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in MEMORY.read_text().splitlines()]
    return [each for each in lines if each["op"].startswith("global")]


PATTERNS = {  # (requests, sectors, lines, bytes of use)
    "lane": (1, 4, 1, 128),
    "lane --base 4": (1, 5, 2, 128),  # one element past the boundary takes a fifth sector, of a second line
    "lane --width 64": (1, 8, 2, 256),
    "lane --width 128 --store": (1, 16, 4, 512),
    "lane --width 8": (1, 1, 1, 32),
    "0": (1, 1, 1, 4),
    "lane*8": (1, 32, 8, 128),
    "lane*64": (1, 32, 32, 128),
    "31-lane": (1, 4, 1, 128),
    "lane//4 --width 64": (1, 2, 1, 64),
    "lane --lanes 3": (1, 1, 1, 4),
    "lane --lanes 0,31": (1, 2, 1, 8),
    # rows of 64 bytes, 400 apart: 16 bytes into a sector every other time, across two lines three times of eight
    "ty*100+tx --block 16x16": (8, 8 * (2 + 3), 2 * (5 + 3 * 2), 1024),
    "ty*96+tx --block 32x8": (8, 32, 8, 1024),
    "ty*97+tx --block 32x8": (8, 7 * 5 + 4, 15, 1024),
    "lane*36 --unit byte": (1, 32, 9, 128),
}


@pytest.mark.parametrize("line", PATTERNS)
def test_counts(answer, line):
    found = answer(f"coalescing {line}")
    requests, sectors, _, of_use = PATTERNS[line]
    assert (found["requests"], found["bytes"]) == (requests, of_use)
    assert found["sectors"] == sectors
    assert found["lines"] == PATTERNS[line][2]
    assert found["efficiency"] == of_use / (32 * sectors)
    for name in ("requests", "sectors", "lines", "bytes"):
        assert sum(warp[name] for warp in found["warps"]) == found[name]


def test_an_idle_warp_has_no_efficiency(answer):
    found = answer("coalescing lane --lanes 20-31 --block 40")
    assert [warp["requests"] for warp in found["warps"]] == [1, 0]
    assert found["warps"][1] == {"warp": 1, "requests": 0, "sectors": 0, "lines": 0, "bytes": 0, "efficiency": None}


def test_batch_equals_the_hardware(answer, tmp_path):
    measured = of_global_memory()
    path = tmp_path / "some.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in measured))
    results = answer("coalescing --batch", str(path))["results"]
    assert len(results) == len(measured) >= 100
    assert [(each["requests"], each["sectors"]) for each in results] == [
        (each["requests"], each["sectors"]) for each in measured
    ]


def test_the_lanes_of_every_sector(gemmsim):
    shown = gemmsim("coalescing lane*3+1").out
    assert "1 request, 12 sectors of 32 bytes in 3 lines; 128 bytes of use, 33.3 % of what moves" in " ".join(
        shown.split()
    )
    table = shown.split("Lanes by sector\n")[1].splitlines()
    assert [row.split() for row in table[1:4]] == [
        ["0x0", "0-2", "3-4", "5-7", "8-10"],
        ["0x80", "11-12", "13-15", "16-18", "19-20"],
        ["0x100", "21-23", "24-26", "27-28", "29-31"],
    ]
    assert "requests  1: l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum" in shown
    assert "sectors   12: smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum" in shown


def test_the_worst_warp_and_many_lines(gemmsim):
    shown = gemmsim("coalescing warp*tx*64 --block 64 --store").out
    assert "Lanes by sector, warp 1, the first that takes most" in shown
    assert "and 20 more lines" in shown
    assert "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_batch_is_summed_up(gemmsim, tmp_path):
    path = tmp_path / "some.jsonl"
    some = [each for each in of_global_memory() if (each["op"], each["width_bits"]) == ("global load", 64)]
    path.write_text("".join(json.dumps(each) + "\n" for each in some))
    shown = gemmsim("coalescing --batch", str(path)).out
    (row,) = (line.split() for line in shown.splitlines() if line.startswith("global load"))
    assert row[2:6] == ["64", str(len(some)), str(len(some)), str(sum(each["sectors"] for each in some))]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "nothing to count; give one of EXPR, --batch FILE.jsonl"),
        ("lane --batch x", "EXPR and --batch FILE.jsonl are several questions"),
        ("--batch x --store", "--store does not go with --batch FILE.jsonl; it goes with EXPR"),
        ("lane.x", "'lane.x' is not integer arithmetic"),
        ("lane//0", "'lane//0' divides by zero at lane 0"),
        ("lane-1", "lane 0 has the byte address -4"),
        ("lane<<63", "passes 64 bits at lane 1"),
        ("lane --width 128 --base 8", "lane 0 is misaligned: a 128-bit access at byte address 0x8 (0x8 % 16 = 8)"),
        (
            "tid --block 64 --size 128",
            "warp 1, lane 0 runs out of the array: 4 bytes at byte address 128; allowed: 128",
        ),
        ("lane --lanes 30-33", "lanes '30-33' do not exist"),
        ("lane --picture x.png", "unknown option '--picture'"),
        ("lane --width 24", "allowed: 8, 16, 32, 64, 128; nearest: 16"),
        ("--batch nowhere.jsonl", "cannot read nowhere.jsonl: No such file"),
    ],
)
def test_what_is_refused(refusal, monkeypatch, tmp_path, line, says):
    monkeypatch.chdir(tmp_path)
    for as_json in ([], ["--json"]):
        assert says in refusal(f"coalescing {line}", *as_json)


def test_a_file_of_shared_accesses_belongs_elsewhere(refusal, tmp_path):
    lanes = list(range(0, 128, 4))
    path = tmp_path / "some.jsonl"
    path.write_text(json.dumps({"op": "ld", "width_bits": 32, "lane_byte_address": lanes}))
    says = "line 1: op ld; allowed here: global load, global store; `gemmsim banks` takes ld"
    assert says in refusal("coalescing --batch", str(path))
