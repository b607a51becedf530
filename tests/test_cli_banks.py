"""`gemmsim banks`: counts for scripts, the map for people, the picture, and a line for whatever is unusable."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
from pathlib import Path

import matplotlib.image
import pytest
from command_line import process
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.patches import Rectangle

from gemmsim import cli, plots
from gemmsim.expressions import parse
from gemmsim.patterns import VARIABLES, Block, pattern, served
from gemmsim.plots.bank_map import bank_map

DATA = Path(__file__).parent / "data"
SHARED = DATA / "shared_memory_patterns_h200.jsonl"
COUNTS = ("wavefronts", "ideal_wavefronts", "excess", "degree")


# For scripts


PUBLISHED = {  # (wavefronts, ideal, excess, degree), of one warp or of a block
    "lane*8": (8, 1, 7, 8),
    "lane*3": (1, 1, 0, 1),  # a float of a struct of three
    "lane*32 --lanes 0-3": (4, 1, 3, 4),
    "lane*2": (2, 1, 1, 2),
    "lane --width 64": (2, 2, 0, 1),
    "lane --width 128 --store": (4, 4, 0, 1),
    "(lane%4)*16 --width 128 --unit byte": (4, 4, 0, 1),
    "((lane//2)%4)*16 --width 128 --unit byte": (2, 2, 0, 1),
    "((lane//2)%4)*16 --width 128 --unit byte --store": (4, 4, 0, 1),
    "lane*128 --width 128 --unit byte": (32, 4, 28, 8),
    "lane*256 --width 64 --unit byte": (32, 2, 30, 16),
    "lane*264 --width 64 --unit byte": (2, 2, 0, 1),
    "((lane%2)*4+3)*128+lane//2 --store": (2, 1, 1, 2),
    "tx*32+ty --block 32x32": (1024, 32, 992, 32),  # a column of a square tile, read by each of 32 warps
    "ty+tx*17 --block 16x16 --store": (16, 8, 8, 2),
    "tx+ty*17 --block 16x16": (16, 8, 8, 2),
    "tx+ty*16 --block 16x16": (8, 8, 0, 1),
    "tx*4+ty --block 8x4": (1, 1, 0, 1),
    "lane --width 8": (1, 1, 0, 1),
    "lane*2 --width 16": (1, 1, 0, 1),
}


@pytest.mark.parametrize("line", PUBLISHED)
def test_counts_of_known_patterns(answer, line):
    found = answer(f"banks {line}")
    assert tuple(found[name] for name in COUNTS) == PUBLISHED[line]


def test_the_document_lists_warps_groups_and_collisions(answer):
    found = answer("banks tx*17+ty --block 16x3 --store")
    assert {name: found[name] for name in ("expression", "unit", "direction", "width_bits", "block", "requests")} == {
        "expression": "tx*17+ty", "unit": "element", "direction": "store", "width_bits": 32, "block": [16, 3],
        "requests": 2,
    }  # fmt: skip
    assert found["lanes"] == list(range(32))
    assert found["warps"] == [
        {
            "warp": 0, "wavefronts": 2, "ideal_wavefronts": 1, "excess": 1, "degree": 2,
            "groups": [{"lanes": list(range(32)), "passes": 2,
                        "collisions": [{"bank": 0, "words": [0, 256], "lanes": [[0], [31]]}]}],
        },
        {
            "warp": 1, "wavefronts": 1, "ideal_wavefronts": 1, "excess": 0, "degree": 1,
            "groups": [{"lanes": list(range(16)), "passes": 1, "collisions": []}],
        },
    ]  # fmt: skip


def test_sums_over_warps_and_the_largest_degree(answer):
    found = answer("banks (warp%3+1)*lane --block 1024")
    per_warp = [1 if warp % 3 != 1 else 2 for warp in range(32)]
    assert [each["wavefronts"] for each in found["warps"]] == per_warp
    assert (found["wavefronts"], found["degree"], found["requests"]) == (sum(per_warp), 2, 32)
    for warp in found["warps"]:
        assert sum(group["passes"] for group in warp["groups"]) == warp["wavefronts"]


def test_a_warp_without_active_lanes_asks_for_nothing(answer):
    found = answer("banks lane --lanes 20-31 --block 40")
    assert [each["wavefronts"] for each in found["warps"]] == [1, 0]
    assert (found["requests"], found["warps"][1]["groups"], found["warps"][1]["degree"]) == (1, [], 0)


def test_batch_equals_the_hardware(answer):
    measured = [json.loads(line) for line in SHARED.read_text().splitlines()]
    assert len(measured) == 213
    assert answer("banks --batch", str(SHARED))["results"] == [
        {"wavefronts": each["wavefronts_per_instruction"], "conflicts": each["conflicts_per_instruction"]}
        for each in measured
    ]


# For people


def test_one_screen_for_one_warp(gemmsim):
    for line in ("lane", "lane*8", "lane*32", "lane*8 --width 128", "lane*16 --width 64 --store", "lane*33 --width 8"):
        shown = gemmsim(f"banks {line}")
        assert (shown.status, shown.err) == (0, "")
        assert len(shown.out.splitlines()) <= 42
        assert max(map(len, shown.out.splitlines())) <= 80


def test_the_map_and_the_reasons(gemmsim):
    shown = gemmsim("banks tx*17+ty --block 16x16 --store").out
    assert shown.startswith(
        "32-bit store of element tx*17+ty, a block of 16 x 16 threads\n"
        "8 requests, 16 wavefronts, 8 without conflicts; excess 8, degree 2\n8 warps of 2 wavefronts\n"
    )
    assert "bank 0: lanes 0, 31 want 2 words (0, 256)" in shown
    rows = shown.split("lanes 0-31\n")[1].splitlines()
    assert [row.split() for row in rows[:3]] == [
        ["bank", *map(str, range(16))],
        ["pass", "1", "0", "16", "2", "18", "4", "20", "6", "22", "8", "24", "10", "26", "12", "28", "14", "30"],
        ["pass", "2", "31", *["."] * 15],
    ]
    assert "other bank" not in shown
    assert rows[3].split() == ["bank", *map(str, range(17, 32))]  # bank 16 is not touched


def test_the_map_of_wide_accesses_and_of_many_passes(gemmsim):
    shown = gemmsim("banks (lane//2)%4 --width 128").out
    assert [row.split() for row in shown.split("lanes 0-15\n")[1].splitlines()[:2]] == [
        ["bank", "0-3", "4-7", "8-11", "12-15"],
        ["pass", "1", "0+", "2+", "4+", "6+"],
    ]
    assert "two such groups merge where every lane has the address of lane ^ 1" in " ".join(shown.split())
    shown = gemmsim("banks (1-warp)*lane+warp*lane*8 --block 64").out
    assert "Lane groups of warp 1, the first that takes most\n" in shown
    assert "; as many in 3 other banks" in " ".join(shown.split())
    assert "1 warp of 8 wavefronts; 1 warp of 1 wavefront\n" in shown
    shown = gemmsim("banks lane*32 --store").out
    assert "bank 0: lanes 0, 1, 2, 3, 4, 5, 6, 7, ... want 32 words (0, 32," in shown
    assert "pass 8    7\nand 24 more passes\n" in shown
    assert "merge" not in shown


def test_the_words_of_the_profiler(gemmsim):
    load, store = (" ".join(gemmsim(f"banks lane*8{option}").out.split()) for option in ("", " --store"))
    for shown, op in ((load, "ld"), (store, "st")):
        assert f"requests 1: smsp__sass_inst_executed_op_shared_{op}.sum" in shown
        assert f"wavefronts 8: smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum" in shown
        assert f"bank conflicts 7: l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum, if nothing else" in shown
        assert "lost arbitration" in shown


def test_a_batch_is_summed_up(gemmsim):
    shown = gemmsim("banks --batch", str(SHARED))
    assert (shown.status, shown.err) == (0, "")
    measured = [json.loads(line) for line in SHARED.read_text().splitlines()]
    some = [
        (each["conflicts_per_instruction"], -number, each["wavefronts_per_instruction"])
        for number, each in enumerate(measured, 1)
        if (each["op"], each["width_bits"]) == ("st", 64)
    ]
    row = next(line.split() for line in shown.out.splitlines() if line.startswith("st ") and " 64 " in line)
    assert row[:5] == [
        "st",
        "64",
        str(len(some)),
        str(sum(each[2] for each in some)),
        str(sum(each[0] for each in some)),
    ]
    assert row[5:] == [str(max(some)[0]), "(line", f"{-max(some)[1]})"]


def test_a_batch_says_what_is_a_conjecture(gemmsim, tmp_path):
    path = tmp_path / "some.jsonl"
    row = {"width_bits": 128, "lane_byte_address": list(range(0, 512, 16))}
    for op, told in (("cp.async.cg (past L1)", True), ("cp.async.ca (through L1)", False)):
        path.write_text(json.dumps(row | {"op": op}))
        assert ("is a conjecture" in " ".join(gemmsim("banks --batch", str(path)).out.split())) == told


# The picture


def test_the_picture_asks_for_no_window(tmp_path):
    path = tmp_path / "map.svg"
    done = process(
        "banks", "lane", "--picture", str(path), environment={"MPLBACKEND": "nonsense"}, stdout=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert path.exists()


@pytest.mark.parametrize("form", ["png", "svg"])
def test_the_picture_is_written(gemmsim, answer, tmp_path, form):
    path = tmp_path / f"map.{form.upper()}"
    assert answer("banks lane*8 --picture", str(path))["wavefronts"] == 8
    data = path.read_bytes()
    if form == "png":
        assert matplotlib.image.imread(io.BytesIO(data), format="png").shape[:2] > (800, 800)
    else:
        assert data.startswith(b"<?xml")
    assert gemmsim("banks lane*8 --picture", str(path)).status == 0
    assert path.read_bytes() == data


@pytest.mark.parametrize(
    ("text", "width", "store"), [("lane*8", 16, False), ("lane//2*2", 16, False), ("tx*17+ty", 4, True)]
)
def test_the_picture_shows_every_lane_over_its_banks(text, width, store):
    touched = pattern(parse(text, VARIABLES), Block(16, 2), range(32), width)
    groups = served(touched, 0, store)
    ax = bank_map(plots.figure().subplots(), groups, "title")
    cells = {}
    for patch in ax.patches:
        if isinstance(patch, Rectangle) and patch.get_width():
            cells[round(patch.get_y() + 0.5)] = (
                round(patch.get_x() + 0.5),
                round(patch.get_width()),
                patch.get_facecolor(),
            )
    turns = {lane: slot.turn for _, slots in groups for slot in slots for lane in slot.lanes}
    addresses = touched.byte_addresses[0].tolist()
    assert {lane: cell[:2] for lane, cell in cells.items()} == {
        lane: (address // 4 % 32, max(1, width // 4)) for lane, address in enumerate(addresses)
    }
    assert len({cells[lane][2] for lane in turns if turns[lane] == 0}) == 1
    assert {cells[lane][2] for lane in turns if turns[lane]}.isdisjoint({cells[0][2]})
    numbers = {round(each.get_position()[1]): each.get_text() for each in ax.texts}
    assert numbers == {lane: str(turn + 1) for lane, turn in turns.items()}
    assert sorted({line.get_ydata()[0] + 0.5 for line in ax.lines}) == [group.lanes[0] for group, _ in groups]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("Bank (4 bytes)", "Lane", "title")
    legend = ax.get_legend()
    assert legend is not None
    assert len(legend.get_texts()) == 2


# What bad input gets


REFUSED = {
    "": "nothing to count; give one of EXPR, --batch FILE.jsonl, --kernel K",
    "lane --batch x.jsonl": "EXPR and --batch FILE.jsonl are several questions; give one of EXPR, --batch",
    "lane --kernel naive": "EXPR and --kernel K are several questions",
    "--batch x.jsonl --width 64": "--width does not go with --batch FILE.jsonl; it goes with EXPR",
    "--batch x.jsonl --store": "--store does not go with --batch",
    "--kernel vectorized --lanes 0-7": "--lanes does not go with --kernel K; it goes with EXPR",
    "--batch nowhere.jsonl": "cannot read nowhere.jsonl: No such file",
    "lane.x": "'lane.x' is not integer arithmetic; allowed: whole numbers, lane, tid, tx, ty, warp",
    "lane/2": "'lane/2' is not integer arithmetic",
    "lane**2": "'lane**2' is not integer arithmetic",
    "l*8": "unknown variable 'l'; nearest: lane",
    "__import__('os')": "is not integer arithmetic",
    "lane*": "'lane*' is not an expression",
    "lane//(lane-5)": "'lane//(lane-5)' divides by zero at lane 5",
    "lane%tx --block 8x8": "'lane%tx' divides by zero at warp 0, lane 0, tx 0",
    "lane<<62": "'lane<<62' passes 64 bits at lane 2",
    "lane<<58": "'lane<<58' is 1441151880758558720 at lane 5, which is beyond any memory",
    "lane*9223372036854775807": "passes 64 bits at lane 2",
    "lane<<-1": "'lane<<-1' shifts by less than 0 or more than 63 at lane 0",
    "lane-4": "lane 0 has the byte address -16",
    "30-lane": "lane 31 has the byte address -4",
    "60-tid --block 64": "warp 1, lane 29 has the byte address -4",
    "lane*2000": "lane 30 runs out of the array: 4 bytes at byte address 240000; allowed: 232448 bytes in all",
    "lane --size 100": "lane 25 runs out of the array: 4 bytes at byte address 100; allowed: 100 bytes in all",
    "tid --block 96 --size 256": "warp 2, lane 0 runs out of the array",
    "lane*4 --width 128 --unit byte": "lane 1 is misaligned: a 128-bit access at byte address 0x4 (0x4 % 16 = 4)",
    "0x10a8+lane*16 --width 128 --unit byte": "lane 0 is misaligned: a 128-bit access at byte address 0x10a8",
    "lane --base 2": "lane 0 is misaligned",
    "tid*4+warp --unit byte --block 64": "warp 1, lane 0 is misaligned: a 32-bit access",
    "lane --width 48": "--width 48; allowed: 8, 16, 32, 64, 128; nearest: 32",
    "lane --width 256": "--width 256 is out of range; allowed: whole numbers from 8 to 128; nearest: 128",
    "lane --width wide": "--width 'wide' is not a whole number",
    "lane --lanes 0-32": "lanes '0-32' do not exist; allowed: 0 to 31",
    "lane --lanes 9-3": "lanes '9-3' do not exist",
    "lane --lanes x": "lanes 'x' are no list of lanes; allowed: lanes 0 to 31, such as 0-7,16",
    "lane --lanes 16-31 --block 8": "lanes 16-31: none is active in a block of 8 threads",
    "lane --block 64x32": "a block of 64 x 32 threads; allowed: 1 to 1024 in all",
    "lane --block 0x8": "a block of 0 x 8 threads",
    "lane --block 8x8x8": "--block '8x8x8' is not of the form XxY, such as 16x16",
    "lane --unit word": "--unit 'word'; allowed: element, byte",
    "lane --base -4": "--base -4 is out of range; allowed: whole numbers from 0",
    "lane --size 0": "--size 0 is out of range",
    "lane --picture map.pdf": "--picture 'map.pdf' is no picture that can be written; allowed: .png, .svg",
    "lane --picture nowhere/map.png": "cannot write nowhere/map.png: No such file",
    "lane tid": "unexpected 'tid'",
    "lane --wdith 32": "unknown option '--wdith'; nearest: --width",
}


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("line", REFUSED)
def test_what_is_refused(refusal, monkeypatch, tmp_path, line, as_json):
    monkeypatch.chdir(tmp_path)
    message = refusal(f"banks {line}", *as_json)
    assert REFUSED[line] in message
    assert len(message) < 400
    assert list(tmp_path.iterdir()) == []


def test_words_of_several_parts(refusal, answer, gemmsim):
    assert "the expression is empty" in refusal("banks", "")
    assert "the expression is empty" in refusal("banks", " \n")
    assert "is no path" in refusal("banks --batch", "")
    assert "is no path" in refusal("banks lane --picture", "a\0b")
    assert answer("banks", "(lane\n + 1) * 8")["expression"] == "(lane + 1) * 8"
    assert answer("banks", "-lane + 31")["wavefronts"] == answer("banks (-lane+31)")["wavefronts"] == 1
    assert gemmsim("banks --json --", "-lane+31").document["wavefronts"] == 1


def test_a_long_expression_is_shown_in_short(gemmsim):
    text = "+".join(["lane"] * 40)
    shown = gemmsim(f"banks {text}").out
    assert " ".join(shown.split()).startswith("32-bit load of element lane+lane+")
    assert max(map(len, shown.splitlines())) <= 80


def test_a_broken_line_of_a_batch_is_named(refusal, tmp_path):
    path = tmp_path / "some.jsonl"
    lines = SHARED.read_text().splitlines()
    for broken, says in (
        (lines[6].replace("[0,", "[1,"), "line 7: lane 0 is misaligned"),
        (lines[6][:-5], "line 7: not readable as JSON"),
        (lines[6].replace('"ld"', '"global load"'), "line 7: op global load; allowed here: ld, st"),
    ):
        path.write_text("\n".join([*lines[:6], broken, *lines[7:]]))
        assert says in refusal("banks --batch", str(path))
        assert says in refusal("banks --json --batch", str(path))


WORDS = st.sampled_from(
    ["lane", "lane*8", "(lane-3)", "tid//ty", "--width", "64", "128", "--store", "--block", "16x16", "7x9", "--lanes",
     "0-7", "8,40", "--unit", "byte", "--base", "8", "--size", "100", "--json", "--", "-", "", "--batch", "-1", "-lane",
     "--help"]
)  # fmt: skip


@given(st.sampled_from(["banks", "coalescing"]), st.lists(WORDS | st.text(max_size=6), max_size=8))
def test_no_words_whatever_make_more_than_one_line_of_error(command, words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main([command, *words])
    errors = [line for line in err.getvalue().split("\n") if line.startswith("gemmsim: error: ")]
    assert (status, len(errors)) in ((0, 0), (2, 1))
    assert (status == 0) == bool(out.getvalue())
