"""What bad input gets on the command line, and what happens when something goes wrong."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from command_line import ROOT, TEXTBOOK, process
from hypothesis import given
from hypothesis import strategies as st

from gemmsim import answers, cli, commands
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS
from gemmsim.options import whole
from gemmsim.rearrange import optimise

# What bad input gets

SIZES = [
    ("", "sizes are missing; give M, or M N K"),
    ("1024 512", "2 numbers; allowed: M, or M N K"), ("1 2 3 4", "4 numbers"),
    ("0", "m 0 is out of range; allowed: whole numbers from 1 to 2147418112; nearest: 1"),
    ("-5", "m -5 is out of range"), ("2.5", "m '2.5' is not a whole number"), ("-2.5", "nearest: 1"),
    ("1e9", "m '1e9' is not a whole number"), ("-1e9", "'-1e9' is negative"), ("many", "m 'many' is not a whole"),
    ("nan", "m 'nan' is not"), ("99999999999999999999", "nearest: 2147418112"), ("9" * 5000, "nearest: 2147418112"),
    ("4 0 4", "n 0 is out of range"), ("4 4 x", "k 'x' is not"), ("2000000000", "the count 2 m n k passes 2^63 - 1"),
]  # fmt: skip


@pytest.mark.parametrize(
    "command", ["predict 512 --kernel naive", "validate 512 --kernel naive", "ladder 512", "compare"]
)
def test_routes_that_there_are_not(refusal, command):
    assert "unknown route 'x'; known: auto, both, simulated, analytic" in refusal(f"{command} --route x")


@pytest.mark.parametrize("command", ["explain", "traffic", "predict", "measure", "validate"])
@pytest.mark.parametrize(("sizes", "says"), SIZES, ids=[sizes[:20] for sizes, _ in SIZES])
def test_bad_sizes(refusal, command, sizes, says):
    message = refusal(f"{command} {sizes} --kernel naive")
    assert says in message
    assert len(message) < 300


BAD_LAUNCHES = {
    "--kernel vectorised": "unknown kernel 'vectorised'; nearest: vectorized",
    "": "--kernel is missing; known: naive, shared",
    "--kernel": "--kernel: expected one argument",
    "--kernel shared --tile 32x32": "--tile '32x32' is not of the form BMxBNxBK",
    "--kernel shared --tile 32x32x32x32": "BMxBNxBK",
    "--kernel shared --tile 32,32,32": "BMxBNxBK",
    "--kernel shared --tile 32x-32x32": "BMxBNxBK",
    "--kernel shared --tile -32x32x32": "'-32x32x32' is negative",
    "--kernel shared --tile 0x32x32": "block_m 0 is out of range; allowed: whole numbers from 1 to 4096; nearest: 1",
    "--kernel register --thread 0x8": "thread_m 0 is out of range; allowed: whole numbers from 1 to 4096; nearest: 1",
    "--kernel shared --tile 9999999x32x32": "from 1 to 4096; nearest: 4096",
    "--kernel shared --tile 64x32x32": "2048 threads a block; allowed: up to 1024",
    "--kernel shared --thread 8x8": "kernel shared has no thread_m",
    "--kernel naive --tile 8x32x8": "kernel naive has no block_k; it has: block_m, block_n",
    "--kernel naive --tile 8": "BMxBN",
    "--kernel register --tile 128x128x8 --thread 7x8": "thread_m 7 does not divide block_m 128; nearest that does: 8",
    "--kernel register --thread 8": "--thread '8' is not of the form RMxRN",
    "--kernel register --vector 4": "kernel register has no vector",
    "--kernel vectorized --vector 3": "allowed: 1, 2, 4",
    "--kernel vectorized --vector 2.5": "--vector '2.5' is not a whole number",
    "--kernel vectorized --tile 128x128x6": "block_k 6 breaks the alignment of 4-element accesses",
    "--kernel vectorized --pad-a 3": "pad_a 3 breaks the alignment",
    "--kernel vectorized --pad-b -4": "--pad-b -4 is out of range; allowed: whole numbers from 0 to 256; nearest: 0",
    "--kernel vectorized --stages 2": "stages 2: kernel vectorized holds 1",
    "--kernel double_buffer --vector 1 --tile 128x128x3": "block_k 3: kernel double_buffer alternates",
    "--kernel vectorized --warp 32x64": "kernel vectorized has no warp_m; it has: block_m",
    "--kernel vectorized --warp 32": "--warp '32' is not of the form WMxWN",
    "--kernel vectorized --split-k 4": "kernel vectorized has no split_k",
    "--kernel async --tile 128x128x8 --thread 8x8": "warp 64x64 holds 64 thread tiles of 8x8; needed: 32",
    "--kernel async --device t4": "kernel async needs compute capability 8.0; t4 has 7.5",
    "--kernel async --split-k 0": "--split-k 0 is out of range; allowed: whole numbers from 1 to 4096; nearest: 1",
    "--kernel async --split-k 133 --device h200": "allowed: up to 132",
    "--kernel vectorized --swizzle 3": "swizzle 3 is not 0 or a power of two",
    "--kernel vectorized --swizzle 32": "--swizzle 32 is out of range; allowed: whole numbers from 0 to 16;",
    "--kernel register --swizzle 4": "kernel register has no swizzle; it has: block_m",
    "--kernel naive --dtype fp16": "dtype fp16 has no kernels; allowed: fp32",
    "--kernel naive --dtype fp99": "unknown dtype 'fp99'; nearest: fp32",
    "--kernel naive --tle 8x32": "unknown option '--tle'; nearest: --tile",
    "--kernel naive --tle=8x32": "unknown option '--tle'; nearest: --tile",
    "--kernel naive --json 64": "unexpected '64'",
    "--kernel naive --json=yes": "--json",
}  # fmt: skip


@pytest.mark.parametrize("options", BAD_LAUNCHES)
def test_bad_launches(refusal, options):
    assert BAD_LAUNCHES[options] in refusal(f"predict 64 {options}")


def test_each_option_that_is_near_is_named_once(refusal):
    near = refusal("search 64 --spread 2").partition("nearest: ")[2].split(", ")
    assert "--where" in near
    assert len(near) == len(set(near))


def test_what_the_device_cannot_hold(refusal, answer):
    tile = "64 --kernel shared --tile 32x32x512"  # 4 x 512 x 64 bytes
    assert answer(f"explain {tile} --device h200")["shared_bytes"] == 131072
    message = refusal(f"explain {tile} --device rtx-3090")
    assert "take 131072 bytes of shared memory a block; allowed on rtx-3090: up to 101376 bytes" in message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("--device h201", "unknown device 'h201'; nearest: h200"),
        ("--device none.toml", "none.toml does not exist"),
        ("--device ./mine.txt", "./mine.txt: a device file ends in .toml"),
        ("--device mine.json", "mine.json: a device file ends in .toml"),
        ("--registers 0", "--registers 0 is out of range; allowed: whole numbers from 1 to 255; nearest: 1"),
        ("--registers 300", "nearest: 255"),
        ("--registers 40 --compile", "two answers"),
    ],
)
def test_bad_devices_and_registers(refusal, options, says):
    for command in ("explain", "predict"):
        assert says in refusal(f"{command} 64 --kernel naive {options}")


def test_an_empty_name_is_no_default(refusal):
    assert "unknown device ''" in refusal("predict 64 --kernel naive --device", "")
    assert "unknown device ''" in refusal("devices", "")
    assert "unknown kernel ''" in refusal("predict 64 --kernel", "")
    for line in ("compare", "report --out x", "report --out", "ladder 64 --records", "measure --points",
                 "measure 64 --kernel naive --out"):  # fmt: skip
        for text in ("", " ", "a\0b"):
            assert f"{text!r} is no path; allowed: the name of a file or folder" in refusal(line, text)


def test_a_name_of_several_lines_stays_on_one(refusal):
    assert refusal("predict 64 --kernel", "na\nive") == "unknown kernel 'na\\nive'; nearest: naive"
    assert "a b.toml does not exist" in refusal("predict 64 --kernel naive --device", "a\nb.toml")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "no command; known: ladder, explain, traffic"),
        ("predct 64", "unknown command 'predct'; nearest: predict"),
        ("--json predict 64", "--json stands before the command"),
        ("report", "the following arguments are required: --out"),
        ("devices h200 h100", "unexpected 'h100'"),
        ("compare nowhere.jsonl", "cannot read nowhere.jsonl: No such file"),
        ("compare campaigns/small.jsonl", "campaigns/small.jsonl is a file of points, not of records"),
        ("report campaigns/small.jsonl --out no", "campaigns/small.jsonl is a file of points, not of records"),
        ("ladder 64 --records campaigns/small.jsonl", "campaigns/small.jsonl is a file of points, not of records"),
        ("measure --points nowhere.jsonl", "cannot read nowhere.jsonl: No such file"),
        ("measure 64 --points nowhere.jsonl", "brings its own sizes and kernels"),
        ("measure --kernel naive --points nowhere.jsonl", "brings its own sizes and kernels"),
        ("measure --points a.jsonl --out ./a.jsonl", "records need one of their own"),
        ("measure 64 --kernel naive --resume", "resume needs a file"),
        ("measure 64 --kernel naive --counters=yes", "--counters"),
    ],
)
def test_bad_commands(refusal, monkeypatch, line, says):
    monkeypatch.chdir(ROOT)
    assert says in refusal(line)


def test_malformed_points_name_their_line(refusal, points):
    points.write_text(points.read_text() + '{"m": 64, "n": 64, "k": 6.4, "kernel": "naive"}\n')
    assert "line 3: k 6.4 is not a whole number" in refusal("measure --points", str(points))


def test_malformed_records(refusal, tmp_path):
    file = tmp_path / "records.jsonl"
    file.write_text("not a record\n")
    assert "no record in it" in refusal("compare", str(file))


def test_a_malformed_device_file(refusal, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('capability = "9.0"\nsms = -3\nclock_hz = 1e9\ndram_bytes_per_s = 1e12\nl2_bytes = 4096\n')
    assert "sms must not be -3" in refusal("predict 64 --kernel naive --device", str(file))


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_records_that_cannot_be_written(refusal, machine, points, as_json):
    nowhere = str(points / "folder")  # a file is no folder
    assert f"cannot write {nowhere}" in refusal("measure 64 --kernel naive --out", nowhere, *as_json)


WORDS = st.sampled_from(
    [*KERNELS, "--kernel", "--tile", "128x128x8", "32x32", "8x8", "--thread", "--vector", "4", "--json", "64", "0",
     "-1", "--pad-a", "--registers", "--device", "t4", "h200", "--stages", "2.5", "--help", "--", "-", "", "--split-k",
     "-x"]
)  # fmt: skip


@given(st.sampled_from(["explain", "traffic", "predict", "devices", "compare", ""]),
       st.lists(WORDS | st.text(max_size=6), max_size=8))  # fmt: skip
def test_no_words_whatever_make_more_than_one_line_of_error(command, words):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = cli.main([command, *words])
    errors = [line for line in err.getvalue().split("\n") if line.startswith("gemmsim: error: ")]
    assert (status, len(errors)) in ((0, 0), (2, 1))
    assert (status == 0) == bool(out.getvalue())


def test_whole_numbers_name_the_nearest():
    for text, nearest in (("0", 1), ("-7", 1), ("11", 10), ("2.4", 2), ("2.6", 3), ("1e99", 10), ("-inf", 1)):
        with pytest.raises(InputError, match=rf"nearest: {nearest}$"):
            whole(text, "x", 1, 10)
    assert [whole(text, "x", 0, 10) for text in ("0", "+3", "10")] == [0, 3, 10]


# What goes wrong on our side, and help


def test_an_interruption_is_one_line(refusal, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("gemmsim.commands.launches.configuration", interrupt)
    assert refusal("predict 64 --kernel naive", status=130) == "interrupted"


def test_a_bug_is_one_line_too_unless_asked_for_more(refusal, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr("gemmsim.commands.launches.configuration", broken)
    monkeypatch.delenv("GEMMSIM_DEBUG", raising=False)
    assert "this is a bug: ZeroDivisionError: division by zero" in refusal("predict 64 --kernel naive", status=70)
    monkeypatch.setenv("GEMMSIM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["predict", "64", "--kernel", "naive"])


def test_no_memory_left(refusal, monkeypatch):
    def greedy(*_):
        raise MemoryError

    monkeypatch.setattr("gemmsim.commands.launches.configuration", greedy)
    assert "out of memory" in refusal("predict 64 --kernel naive", status=3)


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_help_has_an_example_that_works(gemmsim, machine, campaign, points, drawn, monkeypatch, tmp_path, command):
    result = gemmsim(f"{command} --help")
    assert (result.status, result.err) == (0, "")
    assert "--json" in result.out
    example = result.out.split("example:\n  gemmsim ")[1].strip()
    monkeypatch.chdir(tmp_path)
    one_search = partial(optimise.rearranged, width=4, searches=optimise.trials(1))
    monkeypatch.setattr("gemmsim.commands.rearrange.rearranged", one_search)  # all of them take long
    for file in (campaign, points):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    needs = {"calibrate": 3, "rank": 2}  # a GPU; a file that is the user's own
    assert gemmsim(example).status == needs.get(command, 0)


def test_help_and_version(gemmsim):
    whole_help = gemmsim("--help")
    assert whole_help.status == 0
    assert all(f"    {command} " in whole_help.out for command in commands.COMMANDS)
    assert re.fullmatch(r"gemmsim \d+\.\d+\.\d+\n", gemmsim("--version").out)


def test_help_shows_what_there_is(gemmsim):
    shown = gemmsim("explain --help").out
    assert shown.startswith("usage: gemmsim explain M [N K] (--kernel K | --why A B) [options]\n")
    tiling = shown.split("\ntiling:\n")[1].split("\nexample")[0]
    assert re.findall(r"^  (--[\w-]+)", tiling, re.MULTILINE) == [
        "--tile", "--thread", "--vector", "--pad-a", "--pad-b", "--swizzle", "--stages", "--warp", "--split-k",
        "--group", "--traversal", "--spread",
    ]  # fmt: skip
    assert "NAME|FILE.toml" in gemmsim("devices --help").out
    assert "glossary" in gemmsim("--help").out


def test_documents_hold_plain_data_alone():
    import numpy as np

    odd = {"a": np.int64(3), "b": np.array([1.5, np.inf]), "c": float("nan"), "d": Path("x"), "e": (True, None)}
    assert json.loads(answers.to_json(odd)) == {"a": 3, "b": [1.5, None], "c": None, "d": "x", "e": [True, None]}


# In a process of its own


def test_the_command_as_a_process():
    done = process("explain", *TEXTBOOK.split(), "--json", stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["blocks"] == 256
    done = process("explain", "0", "--kernel", "naive", stdout=subprocess.PIPE)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_reader_that_leaves_gets_no_traceback(as_json):
    reading, writing = os.pipe()
    os.close(reading)
    done = process("devices", *as_json, stdout=writing)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_full_disk_is_one_line(as_json):
    with open("/dev/full", "w") as full:
        done = process("devices", *as_json, stdout=full)
    assert done.returncode == 3
    assert done.stderr == "gemmsim: error: standard output: No space left on device\n"


def test_any_encoding_will_do():
    done = process("devices", "h200", stdout=subprocess.PIPE, environment={"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_what_is_slow_to_import_is_imported_when_needed(as_json):
    words = ["explain", *TEXTBOOK.split(), *as_json]
    code = f"import sys; from gemmsim.cli import main; main({words}); print(sorted(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    loaded = {name.partition(".")[0] for name in re.findall(r"'([\w.]+)'", done.stderr)}
    assert "numpy" in loaded
    assert not loaded & {"matplotlib", "pandas", "pycuda", "jinja2"}
    assert ("rich" in loaded) == (not as_json)
