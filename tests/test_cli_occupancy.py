"""`gemmsim occupancy` as users and their scripts see it."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT, process

from gemmsim.device import capabilities, capability, device
from gemmsim.kernels import kernel
from gemmsim.ladder import default_tiling
from gemmsim.occupancy.batch import PIECE_ROWS
from gemmsim.occupancy.cliffs import Block, largest_dynamic_shared

REFERENCE = Path(__file__).parent / "data" / "occupancy_reference.csv.gz"
BLOCK = "--cc 9.0 --threads 256 --registers 122 --dynamic-shared 16384"
NAMES = "cc,threads_per_block,regs_per_thread,static_smem,dynamic_smem,carveout"
GOOD = "9.0,256,122,0,16384,default"


@pytest.fixture
def batch(tmp_path):
    def write(*rows, names=NAMES):
        path = tmp_path / "cases.csv"
        path.write_text("".join(f"{row}\n" for row in (names, *rows)))
        return path

    return write


# One block


def test_every_key_of_one_block(answer):
    found = answer(f"occupancy {BLOCK}")
    assert found["blocks_per_sm"] == 2  # 122 -> 128 registers, 4096 a warp, 16 warps
    assert found["warps_per_sm"] == 16
    assert found["occupancy"] == 0.25
    assert found["limiters"] == ["registers"]
    assert found["limits"] == {"warps": 8, "registers": 2, "shared_memory": 13, "blocks": 32, "barriers": 64}
    assert (found["launches"], found["reason"], found["launch"]) == (True, None, None)
    assert (found["capability"], found["device"], found["kernel"]) == ("9.0", None, None)
    cliffs = found["cliffs"]
    assert cliffs.keys() == {"registers", "shared_bytes", "threads", "barriers"}
    assert all(sides.keys() == {"fewer", "more"} for sides in cliffs.values())
    assert cliffs["registers"]["more"] == {
        "value": 129, "change": 7, "blocks_per_sm": 1, "warps_per_sm": 8, "occupancy": 0.125, "launches": True,
    }  # fmt: skip
    assert cliffs["shared_bytes"]["fewer"] is None
    assert found["largest_dynamic_shared_bytes"] == {"1": 232448, "2": 115712}


def test_what_is_not_used_has_no_limit(answer):
    found = answer("occupancy --cc 7.0 --threads 32 --registers 0 --barriers 0")
    assert found["limits"] == {"warps": 64, "registers": None, "shared_memory": None, "blocks": 32, "barriers": None}


@pytest.mark.parametrize("name", capabilities())
def test_capabilities_however_they_are_written(answer, name):
    major, minor = name.split(".")
    for text in (name, f"{major}{minor}", f"sm_{major}{minor}", f"compute_{major}{minor}"):
        assert answer(f"occupancy --cc {text} --threads 32 --registers 32")["capability"] == name


def test_the_gpu_is_a_device_where_no_capability_is_given(answer):
    block = "--threads 256 --registers 40"
    assert answer(f"occupancy {block}")["device"] == "h200"
    found = answer(f"occupancy {block} --device a100-80gb-sxm")
    assert (found["capability"], found["blocks_per_sm"], found["occupancy"]) == ("8.0", 6, 0.75)


@pytest.mark.parametrize(
    ("options", "limiter", "says"),
    [
        ("--threads 0 --registers 32", "warps", "cannot have 0 threads; it launches with 1 to 1024"),
        ("--threads 2000 --registers 32", "warps", "cannot have 2000 threads; it launches with 1 to 1024"),
        ("--threads 128 --registers 300", "registers", "255 a thread; it launches with up to 255 registers a thread"),
        ("--threads 512 --registers 162", "registers", "up to 128 registers a thread or up to 384 threads"),
        ("--threads 128 --registers 32 --barriers 17", "barriers", "it launches with up to 16"),
        ("--threads 128 --registers 32 --dynamic-shared 232449", "shared_memory", "with up to 232448 bytes"),
        (
            "--threads 128 --registers 32 --dynamic-shared 49153 --no-opt-in",
            "shared_memory", "up to 49152 bytes, or up to 232448 with the opt-in that a launch must ask for",
        ),
        (f"--threads 128 --registers 32 --static-shared {10**15}", "shared_memory", f"{10**15} static"),
    ],
)  # fmt: skip
def test_a_block_that_cannot_launch_is_an_answer(answer, gemmsim, options, limiter, says):
    found = answer(f"occupancy --cc 9.0 {options}")
    assert (found["blocks_per_sm"], found["occupancy"], found["launches"]) == (0, 0, False)
    assert limiter in found["limiters"]
    assert says in found["reason"]
    shown = gemmsim(f"occupancy --cc 9.0 {options}")
    assert shown.status == 0
    assert " ".join(f"does not launch: {found['reason']}".split()) in " ".join(shown.out.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ("", "--threads is missing; needed: --threads and --registers, or --kernel, or --batch"),
        ("--threads 32", "--registers is missing; needed: --threads and --registers"),
        ("--threads -32 --registers 32", "--threads '-32' is not a whole number of 0 or more; nearest: 0"),
        ("--threads 32.5 --registers 32", "--threads '32.5' is not a whole number of 0 or more; nearest: 32"),
        ("--threads 32 --registers many", "--registers 'many' is not a whole number of 0 or more"),
        ("--threads 32 --registers 32 --static-shared -1", "--static-shared '-1' is not a whole number"),
        ("--threads 32 --registers 32 --dynamic-shared 1k", "--dynamic-shared '1k' is not a whole number"),
        ("--threads 32 --registers 32 --barriers -1", "--barriers '-1' is not a whole number"),
        (
            "--threads 32 --registers 32 --carveout 101",
            "--carveout 101 is out of range; allowed: default, and 0 to 100",
        ),
        ("--threads 32 --registers 32 --carveout -1", "--carveout '-1' is not a whole number"),
        ("--threads 256 --registers 25 --cc 2.0", "'2.0' is not supported; supported: 5.0 to 12.1 (5.0, 5.2"),
        ("--threads 32 --registers 32 --cc 9.5", "'9.5' is not supported; supported: 5.0 to 12.1"),
        ("--threads 32 --registers 32 --cc nine", "'nine' is not supported"),
        ("--threads 32 --registers 32 --cc 9.0 --device h200", "--cc '9.0' and --device 'h200' are two GPUs; give one"),
        ("--threads 32 --registers 32 --device h201", "unknown device 'h201'; nearest: h200"),
        ("--threads 32 --registers 32 --cc 9.0 --blocks 3", "waves need multiprocessors, which --cc does not have"),
        ("--threads 32 --registers 32 --blocks 0", "--blocks 0 is out of range; allowed: whole numbers from 1"),
        ("--threads 32 --registers 32 --blocks 3 --sms 0", "--sms 0 is out of range"),
        ("--threads 32 --registers 32 --blocks 3 --split-k 0", "--split-k 0 is out of range"),
        ("64 --threads 32 --registers 32 --tile 64x64 --blocks 3", "--blocks '3' and sizes are two launches; give one"),
        ("64 --threads 32 --registers 32 --tile 64x64 --split-k 65", "split_k 65: k 64 has no more slices"),
        ("64 --threads 32 --registers 32", "--tile BMxBN is missing: it cuts sizes into the blocks of a launch"),
        ("--threads 32 --registers 32 --tile 64x64", "sizes are missing: --tile cuts them into the blocks"),
        ("64 --threads 32 --registers 32 --tile 64", "--tile '64' is not of the form BMxBN"),
        ("--threads 32 --registers 32 --pad-a 4", "--pad-a is of a kernel; give --kernel too"),
        ("--kernel naive", "sizes are missing; give M, or M N K"),
        ("64 --kernel naive --threads 32", "--kernel naive brings its own threads; --threads goes without it"),
        ("64 --kernel naive --registers x", "--registers 'x' is not a whole number"),
        (
            "--threads 32 --registers 32 --picture a.pdf",
            "--picture 'a.pdf' is no picture that can be written; allowed: .png, .svg",
        ),
        ("--threads 32 --registers 32 --picture no/where.png", "cannot write no/where.png: No such file"),
        ("--batch none.csv", "cannot read none.csv: No such file"),
        ("--batch a.csv --threads 3", "--batch a.csv brings its own cases, and --threads describes another"),
        ("--batch a.csv --no-opt-in", "and --no-opt-in describes another"),
        ("64 --batch a.csv", "and sizes describes another"),
    ],
)
def test_what_cannot_be_read_is_refused(refusal, tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    for more in ("", " --json"):
        assert says in refusal(f"occupancy {options}{more}")


def test_the_tables_say_what_the_document_says(answer, gemmsim):
    options = f"occupancy {BLOCK} --blocks 1000 --sms 132"
    found, shown = answer(options), gemmsim(options).out
    lines = [re.sub(r" {2,}", "|", line) for line in shown.split("\n")]
    for line in (
        "blocks|2, limited by registers", "warps|16 of 64", "occupancy|25.0 %", "registers|2|limits", "barriers|64",
        "42 registers fewer|80|3 instead of 2|24|37.5 %", "7 registers more|129|1 instead of 2|8|12.5 %",
        "32 threads fewer|224|2|14|21.9 %", "99,329 shared bytes more|115,713|1 instead of 2|8|12.5 %",
        "2|115,712", "blocks|1,000; the GPU holds 264 at once", "busy|132 of 132 multiprocessors",
    ):  # fmt: skip
        assert line in lines, line
    assert found["launch"]["rounds"] == 4
    assert "waves|3.79, so 4 rounds" in "\n".join(lines)


# The launch


def test_one_tile_on_a_v100_and_k_cut_in_sixteen(answer, gemmsim):
    options = "occupancy 128 128 4096 --tile 128x128 --device v100-sxm2 --threads 256 --registers 122"
    whole, cut = answer(options)["launch"], answer(f"{options} --split-k 16")["launch"]
    assert (whole["blocks"], whole["busy_sms"], whole["sms"], whole["partial_bytes_written"]) == (1, 1, 80, 0)
    assert (cut["blocks"], cut["busy_sms"], cut["split_k"]) == (16, 16, 16)
    assert cut["partial_bytes_written"] == cut["partial_bytes_read"] == 16 * 128 * 128 * 4
    shown = " ".join(gemmsim(f"{options} --split-k 16").out.split())
    assert "busy 16 of 80 multiprocessors" in shown
    assert "reduction 1.05 MB of FP32 partial results written, and read again" in shown


@pytest.mark.parametrize(
    ("sizes", "blocks", "rounds", "percent"), [("1792", 98, 1, 90.74), ("1793", 120, 2, 55.56)]
)  # fmt: skip
def test_a_row_and_a_column_of_tiles_more_on_an_a100(answer, sizes, blocks, rounds, percent):
    block = "--threads 256 --registers 255 --device a100-80gb-sxm"  # one block an SM
    found = answer(f"occupancy {sizes} --tile 256x128 {block}")["launch"]
    assert (found["blocks"], found["slots"], found["rounds"]) == (blocks, 108, rounds)
    assert 100 * found["utilization"] == pytest.approx(percent, abs=0.005)


def test_blocks_can_be_given_for_any_number_of_multiprocessors(answer):
    found = answer(f"occupancy {BLOCK} --blocks 73 --sms 36 --split-k 2")["launch"]
    assert (found["blocks"], found["slots"], found["rounds"], found["tail_busy_sms"]) == (146, 72, 3, 2)
    assert (found["partial_bytes_written"], found["partial_bytes_read"]) == (None, None)  # of unknown sizes


def test_what_does_not_launch_makes_no_waves(answer):
    assert answer("occupancy --threads 2000 --registers 32 --blocks 7")["launch"] is None


# A kernel of the family


def test_a_kernel_brings_what_its_blocks_take(answer, gemmsim):
    found = answer("occupancy 4096 --kernel vectorized --device rtx-3090 --registers 121")
    tiling = default_tiling(kernel("vectorized"))
    assert found["block"]["threads"] == tiling.threads
    assert found["block"]["dynamic_shared_bytes"] == kernel("vectorized").shared_bytes(tiling)
    assert (found["block"]["registers"], found["registers_source"], found["capability"]) == (121, "given", "8.6")
    assert (found["launch"]["blocks"], found["launch"]["sms"]) == (32 * 32, device("rtx-3090").sms)
    assert "vectorized 128x128x8/8x8" in gemmsim("occupancy 4096 --kernel vectorized").out


def test_registers_of_a_kernel_are_those_that_predict_takes(answer):
    for options in (
        "4096 --kernel double_buffer",
        "1001 --kernel double_buffer --tile 96x96x8 --thread 6x6 --vector 2",
    ):
        found, predicted = answer(f"occupancy {options}"), answer(f"predict {options}")
        told = predicted["resources"]["registers_per_thread"]
        assert {"value": found["block"]["registers"], "source": found["registers_source"]} == told
        assert found["occupancy"] == predicted["occupancy"]
        assert found["launch"]["waves"] == predicted["waves"]


def test_tiles_that_a_gpu_cannot_hold_are_an_answer(answer):
    found = answer("occupancy 64 --kernel shared --tile 32x32x512 --device rtx-3090")  # 4 x 512 x 64 bytes
    assert (found["launches"], found["limiters"]) == (False, ["shared_memory"])
    assert "it launches with up to 101376 bytes" in found["reason"]


# Batches


def test_every_reference_case_through_the_command(answer):
    found = answer("occupancy --batch", str(REFERENCE))["results"]
    with gzip.open(REFERENCE, "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(found) == len(rows) == 40_166
    for result, row in zip(found, rows, strict=True):
        assert result == {"blocks_per_sm": int(row["active_blocks"]), "limiters": row["limiter"].split("|")}


def test_a_bad_cell_ends_a_document_that_is_whole(gemmsim, batch):
    path = batch(*[GOOD] * 3, "9.0,256,bad,0,0,default", GOOD)
    result = gemmsim("occupancy --json --batch", str(path))
    message = f"{path}, row 4 (line 5): regs_per_thread 'bad' is not a whole number of 0 or more"
    assert (result.status, result.err) == (2, f"gemmsim: error: {message}\n")
    assert result.document == {"results": [{"blocks_per_sm": 2, "limiters": ["registers"]}] * 3, "error": message}
    result = gemmsim("occupancy --batch", str(path))
    assert (result.status, result.err) == (2, f"gemmsim: error: {message}\n")
    assert result.out.count("\n") == 4


@pytest.mark.parametrize("rows", [["9.0,256,bad,0,0,default"], []])
def test_without_a_row_that_can_be_used_there_is_no_document(refusal, batch, rows):
    path = batch(*rows, names=NAMES if rows else "cc,threads_per_block")
    for more in ([], ["--json"]):
        message = refusal("occupancy --batch", str(path), *more)
        assert ("row 1 (line 2): regs_per_thread 'bad'" if rows else "column regs_per_thread is missing") in message


def test_a_file_of_names_alone(answer, gemmsim, batch):
    path = str(batch())
    assert answer("occupancy --batch", path) == {"results": []}
    result = gemmsim("occupancy --batch", path)
    assert (result.status, result.out) == (0, f"{NAMES},blocks_per_sm,warps_per_sm,occupancy,limiters\n")
    assert result.err == "0 cases, 0 of which would not launch\n"


def test_without_json_the_file_gets_columns(gemmsim, batch):
    path = batch(
        f'{GOOD},"a, b"', "sm_80, 224, 92, 0, 0, 50,c", "9.0,2000,32,0,0,default,d,more", "9.0,32,32,0,0,0",
        names=f"{NAMES},name",
    )  # fmt: skip
    result = gemmsim("occupancy --batch", str(path))
    assert (result.status, result.err) == (0, "4 cases, 1 of which would not launch\n")
    rows = list(csv.DictReader(io.StringIO(result.out)))
    assert [row["name"] for row in rows] == ["a, b", "c", "d", ""]
    assert [row["threads_per_block"] for row in rows] == ["256", "224", "2000", "32"]
    added = [[row[name] for name in ("blocks_per_sm", "warps_per_sm", "occupancy", "limiters")] for row in rows]
    assert added[:3] == [
        ["2", "16", "0.25", "registers"],
        ["2", "14", "0.21875", "registers"],
        ["0", "0", "0.0", "warps"],
    ]
    assert added[3][0] == "8"  # of the 8 KB of the smallest carve-out 1 KB each


def test_a_batch_says_what_its_rows_say_alone(answer, batch):
    cases = list(itertools.product(("7.5", "9.0"), (64, 1000), (32, 200), (0, 4096), (0, 60_000), ("default", 30)))
    found = answer("occupancy --batch", str(batch(*(",".join(map(str, case)) for case in cases))))["results"]
    for result, (cc, threads, registers, static, dynamic, carveout) in zip(found, cases, strict=True):
        alone = answer(
            f"occupancy --cc {cc} --threads {threads} --registers {registers} --static-shared {static}"
            f" --dynamic-shared {dynamic} --carveout {carveout}"
        )
        assert result == {name: alone[name] for name in ("blocks_per_sm", "limiters")}


def test_a_reader_who_goes_away_ends_it(batch):
    path = batch(*[GOOD] * 60_000)
    words = [sys.executable, "-m", "gemmsim", "occupancy", "--batch", str(path)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout.readline().startswith(NAMES)
        running.stdout.close()
        assert running.stderr.read() == ""
    assert running.returncode == 141


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_batch_is_printed_while_it_is_read(tmp_path, more):
    fifo, rows = tmp_path / "cases", PIECE_ROWS + 500  # what is left waits in the pipe while the first are printed
    os.mkfifo(fifo)
    words = [sys.executable, "-m", "gemmsim", "occupancy", "--batch", str(fifo), *more]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        with open(fifo, "w") as cases:
            cases.write(f"{NAMES}\n" + f"{GOOD}\n" * rows)
            cases.flush()
            start = [running.stdout.readline() for _ in range(1000)]  # the file is not at its end
            cases.write("9.0,x\n")
        rest = running.stdout.read()
    assert running.wait() == 2
    lines = ("".join(start) + rest).splitlines()
    if more:
        assert len(json.loads("\n".join(lines))["results"]) == rows
    else:
        assert len(lines) == 1 + rows


def test_the_command_in_a_process_of_its_own(tmp_path):
    done = process("occupancy", *BLOCK.split(), "--json", stdout=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    chip = capability("9.0")
    expected = largest_dynamic_shared(chip, Block(256, 122, 0, 16384))
    assert found["largest_dynamic_shared_bytes"] == {str(n): most for n, most in expected.items()}


# Pictures


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("b.SVG", b"<?xml")])
def test_a_picture_is_written_beside_the_answer(answer, tmp_path, name, start):
    path = tmp_path / name
    assert answer(f"occupancy {BLOCK} --picture", str(path))["blocks_per_sm"] == 2
    first = path.read_bytes()
    assert first.startswith(start)
    answer(f"occupancy {BLOCK} --picture", str(path))
    assert path.read_bytes() == first
