"""The command line as users and their scripts see it: answers, exit statuses, and what bad input gets."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import synthetic
from hypothesis import given
from hypothesis import strategies as st

from gemmsim import answers, cli, commands
from gemmsim.device import Device, device, devices
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.compile import Cubin
from gemmsim.kernels import KERNELS, kernel
from gemmsim.options import whole
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, scan_records, shipped_records
from gemmsim.records import Failure, Point, Record
from gemmsim.traffic import traffic

ROOT = Path(__file__).resolve().parent.parent
TEXTBOOK = "2048 --kernel double_buffer --tile 128x128x8 --thread 8x8"
SHARED = "2048 --kernel shared --tile 32x32x32"


@dataclass(frozen=True)
class Result:
    """What one run of the command left."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def gemmsim(capsys) -> Callable[..., Result]:
    """Runs the command within this process; words of one string are separated by blanks."""

    def run(line: str, *more: str) -> Result:
        capsys.readouterr()
        status = cli.main([*line.split(), *more])
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def answer(gemmsim) -> Callable[..., Any]:
    """The JSON document of a command that must succeed and print nothing else."""

    def run(line: str, *more: str) -> Any:
        result = gemmsim(line, *more, "--json")
        assert (result.status, result.err) == (0, "")
        return result.document

    return run


@pytest.fixture
def refusal(gemmsim) -> Callable[..., str]:
    """The one line of a command that must fail with this exit status; nothing on standard output."""

    def run(line: str, *more: str, status: int = 2) -> str:
        result = gemmsim(line, *more)
        assert result.out == ""
        assert result.err.startswith("gemmsim: error: ")
        assert result.err.count("\n") == 1
        assert result.status == status
        message: str = result.err.removeprefix("gemmsim: error: ").rstrip("\n")
        return message

    return run


def process(*words: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """`python -m gemmsim` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings.pop("environment", {})}
    environment.pop("PYTHONUNBUFFERED", None)  # what is left in a buffer must not fail at the very end
    return subprocess.run(
        [sys.executable, "-m", "gemmsim", *words], text=True, stderr=subprocess.PIPE, env=environment, **settings
    )


# explain, traffic, predict


def test_explain_the_textbook_example(answer):
    found = answer(f"explain {TEXTBOOK}")
    expected = {
        "blocks": 256, "block_grid": [16, 16, 256], "thread_grid": [16, 16], "threads_per_block": 256,
        "outputs_per_block": 16384, "outputs_per_thread": 64, "k_iterations": 256, "inner_iterations": 8,
        "ffma_per_inner_iteration": 64, "tile_elements": {"a": [128, 8], "b": [8, 128]}, "shared_bytes": 16384,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["registers_per_thread"]["source"] == "estimate"
    assert found["problem"] == {"m": 2048, "n": 2048, "k": 2048, "dtype": "fp32"}
    assert found["tiling"]["thread_m"] == 8
    assert (found["device"], found["defaults"], found["warnings"]) == ("h200", [], [])


def test_explain_of_a_ragged_problem(answer):
    found = answer("explain 1000 700 77 --kernel shared --tile 16x32x8")
    assert found["block_grid"] == [63, 22, 10]  # 62.5, 21.875 and 9.625
    assert found["thread_grid"] == [32, 16]  # along n, then along m
    assert found["tile_elements"] == {"a": [16, 8], "b": [8, 32]}
    assert found["edges"]["last_tile"] == {"m": 8, "n": 28, "k": 5}


@pytest.mark.parametrize(
    ("options", "in_global", "in_shared", "in_registers"),
    [
        (TEXTBOOK, 134217728, 2147483648, 17179869184),
        (SHARED, 536870912, 17179869184, 17179869184),
        ("2048 --kernel naive", 17179869184, 0, 17179869184),
    ],
)
def test_reads_of_the_textbook_example(answer, options, in_global, in_shared, in_registers):
    found = answer(f"traffic {options}")
    assert found["reads"] == {"global": in_global, "shared": in_shared, "register": in_registers}
    assert found["bytes"]["global_issued"] == 4 * in_global
    assert found["bytes"]["compulsory"] == 3 * 2048**2 * 4
    assert found["ffma"] == 2048**3
    assert found["flop"] == 2 * 2048**3
    assert found["bounds"] == {"l2": "upper", "dram": "lower"}


def test_traffic_has_every_key(answer):
    found = answer(f"traffic {TEXTBOOK}")
    both = {"global_load", "global_store"}
    assert found["requests"].keys() == both | {"shared_load", "shared_store"}
    assert found["sectors"].keys() == both
    for name in ("wavefronts", "ideal_wavefronts", "excess"):
        assert found[name].keys() == {"shared_load", "shared_store"}
    assert found["bytes"].keys() == {"global_issued", "l2", "dram", "compulsory"}
    assert found["formulas"].keys() == {"global", "shared", "register"}
    sectors = found["sectors"]["global_load"] + found["sectors"]["global_store"]
    assert found["bytes"]["l2"] == 32 * sectors


def test_predict_says_what_python_says(answer):
    found = answer(
        "predict 4096 1000 777 --kernel vectorized --tile 128x64x8 --thread 8x4 --device H100_SXM".replace(
            "H100 SXM", "H100_SXM"
        )
    )
    tiling = kernel("vectorized").tiling(block_m=128, block_n=64, block_k=8, thread_m=8, thread_n=4)
    expected = predict(Problem(4096, 1000, 777), kernel("vectorized"), tiling, device("h100-sxm"))
    assert found["device"] == "h100-sxm"
    assert found["time_s"] == expected.time_s
    assert found["cycles"] == round(expected.cycles, 6)
    assert found["flop_per_s"] == expected.flop_per_s
    assert found["bound_by"] == expected.bound_by
    assert found["terms"] == pytest.approx(expected.terms)
    assert found["time_s"] == max(found["terms"].values())
    assert found["waves"] == expected.waves
    assert found["occupancy"] == expected.occupancy.occupancy
    assert found["calibrated"] is False
    assert found["floor_s"] <= found["time_s"]


def test_the_floor_is_the_slower_of_arithmetic_and_memory(answer):
    h200 = device("h200")
    large = answer("predict 8192 --kernel naive")
    assert large["floor_s"] == pytest.approx(2 * 8192**3 / h200.fp32_flop_per_s)
    flat = answer("predict 8192 8192 1 --kernel naive")
    assert flat["floor_s"] == pytest.approx(4 * (8192**2 + 2 * 8192) / h200.dram_bytes_per_s)


def test_a_kernel_that_does_not_launch_is_an_answer(answer, gemmsim):
    options = "512 --kernel register --tile 128x128x8 --thread 4x4 --registers 200"  # 1024 x 200 registers
    found = answer(f"predict {options}")
    assert (found["launches"], found["time_s"], found["cycles"], found["bound_by"]) == (False, None, None, None)
    assert found["occupancy_details"]["blocks_per_sm"] == 0
    assert "up to 64 registers" in found["occupancy_details"]["reason"]
    for command in ("predict", "explain"):
        result = gemmsim(f"{command} {options}")
        assert result.status == 0
        assert "does not launch" in result.out


def test_defaults_stand_in_for_tile_and_thread_and_are_named(answer, gemmsim):
    assert answer("predict 4096 --kernel naive")["defaults"] == ["--tile 8x32"]
    assert answer("predict 4096 --kernel shared")["defaults"] == ["--tile 32x32x32"]
    found = answer("predict 4096 --kernel vectorized")
    assert found["defaults"][:2] == ["--tile 128x128x8", "--thread 8x8"]
    again = answer(f"predict 4096 --kernel vectorized {' '.join(found['defaults'])}")
    assert again["defaults"] == []
    assert (again["tiling"], again["time_s"]) == (found["tiling"], found["time_s"])
    half = answer("explain 4096 --kernel vectorized --tile 64x64x8")
    assert (half["defaults"], half["tiling"]["pad_a"]) == (["--thread 8x8"], 0)
    assert "by default: --tile 32x32x32" in gemmsim("predict 4096 --kernel shared").out


def test_padding_belongs_to_the_default_tile_and_its_loss_is_said(answer, gemmsim):
    hint = "pad_a 0; the default tile has 4"
    spelled_out = "4096 --kernel vectorized --tile 128x128x8 --thread 8x8"
    for line, pad_a, hinted in (
        ("4096 --kernel vectorized", 4, False),
        ("4096 --kernel vectorized --thread 8x8", 4, False),
        (spelled_out, 0, True),
        (f"{spelled_out} --pad-a 0", 0, False),
        (f"{spelled_out} --pad-a 4", 4, False),
        ("4096 --kernel register --tile 128x128x8", 0, False),
        (TEXTBOOK, 0, True),
    ):
        for command in ("explain", "predict"):
            assert answer(f"{command} {line}")["tiling"]["pad_a"] == pad_a
            assert (hint in gemmsim(f"{command} {line}").out.split("\n")) == hinted
    assert "and 0 with --tile" in " ".join(gemmsim("explain --help").out.split())


def test_what_asks_for_nothing_is_no_demand(answer):
    found = answer("predict 64 --kernel vectorized --split-k 1 --swizzle 0 --stages 1")
    assert found["tiling"] == answer("predict 64 --kernel vectorized")["tiling"]


@pytest.mark.parametrize("command", ["explain", "predict"])
def test_what_rests_on_an_estimate_says_so(gemmsim, command):
    text = " ".join(gemmsim(f"{command} {TEXTBOOK}").out.split())
    registers = re.search(r"from an estimate of (\d+) registers, --compile or --registers makes it exact", text)
    assert f"{registers[1]} a thread (estimate)" in text or f"{registers[1]} registers each (estimate)" in text
    assert "about 2 blocks an SM" in text
    given = " ".join(gemmsim(f"{command} {TEXTBOOK} --registers 120").out.split())
    assert " 2 blocks an SM" in given
    assert "about" not in given
    assert "from an estimate" not in given


def test_matrices_beyond_the_memory_are_warned_of(gemmsim, answer):
    assert answer("predict 108000 --kernel naive")["warnings"] == []  # 3 x 4 x 108000^2 = 139.97 GB of 141
    for line in ("predict 108500 --kernel naive", "ladder 108500"):
        result = gemmsim(f"{line} --json")
        assert result.status == 0
        assert result.document["warnings"] == [
            "A, B and C take 141 GB, and h200 has 141 GB of memory: this cannot run there"
        ]
        assert result.err.startswith("gemmsim: warning: A, B and C take")


def test_whole_cycles_are_whole(answer):
    for options in (TEXTBOOK, "4096 --kernel vectorized", "2048 --kernel vectorized --device rtx-3090"):
        cycles = answer(f"predict {options}")["cycles"]
        assert cycles == int(cycles)


# ladder


def test_the_ladder_is_what_predict_and_the_records_say(answer, gemmsim):
    found = answer("ladder 4096")
    records, _ = read_records(shipped_records())
    assert [rung["kernel"] for rung in found["rungs"]] == list(KERNELS)
    for rung in found["rungs"]:
        point = {"m": 4096, "n": 4096, "k": 4096, "kernel": rung["kernel"], "tiling": rung["tiling"]}
        (record,) = (record for record in records if record.point == Point.from_dict(point))
        assert rung["measured_s"] == record.median_s
        registers = rung["registers_per_thread"]
        assert registers == {"value": record.resources["registers_per_thread"], "source": "compiler"}
        alone = answer(f"predict 4096 --kernel {rung['kernel']} --registers {registers['value']}")
        for name in ("tiling", "time_s", "flop_per_s", "bound_by", "occupancy"):
            assert rung[name] == alone[name], name
        assert rung["peak_fraction"] == alone["flop_per_s"] / device("h200").fp32_flop_per_s
    shown = gemmsim("ladder 4096").out
    for rung in found["rungs"]:
        row = next(line for line in shown.split("\n") if line.startswith(f"{rung['kernel']} "))
        assert f"{rung['time_s'] * 1e3:.3g} ms" in row
        assert f"{rung['measured_s'] * 1e3:.3g} ms" in row
        assert f"{100 * rung['peak_fraction']:.1f} %" in row
        assert f"{rung['flop_per_s'] / 1e12:.3g} " in row
    assert "~" not in shown


def test_the_ladder_without_records_of_the_device(answer, gemmsim, campaign):
    found = answer("ladder 1000 700 77 --device a10")
    assert found["problem"] == {"m": 1000, "n": 700, "k": 77, "dtype": "fp32"}
    assert {rung["measured_s"] for rung in found["rungs"]} == {None}
    assert {rung["registers_per_thread"]["source"] for rung in found["rungs"]} == {"estimate"}
    assert "~100 %" in gemmsim("ladder 1000 700 77 --device a10").out
    own = answer("ladder 1000 777 333 --records", str(campaign))
    assert all(rung["measured_s"] > rung["time_s"] for rung in own["rungs"])


def test_registers_can_be_given(answer):
    assert answer(f"explain {SHARED} --registers 36")["registers_per_thread"] == {"value": 36, "source": "given"}
    assert answer(f"predict {SHARED} --registers 36")["resources"]["registers_per_thread"]["source"] == "given"


def test_registers_can_be_compiled(answer, gemmsim, monkeypatch):
    asked = []

    def compiled(of, launch, capability):
        asked.append((of.name, launch.threads, capability.sm))
        return Cubin(Path("some.cubin"), 122, 0, 0, 0, "nvcc 13.0")

    monkeypatch.setattr("gemmsim.gpu.compile.compile_kernel", compiled)
    found = answer(f"explain {TEXTBOOK} --compile --device rtx-3090")
    assert found["registers_per_thread"] == {"value": 122, "source": "compiler"}
    assert found["occupancy_details"]["limits"]["registers"] == 2  # 65536 / (256 x 128)
    assert asked == [("double_buffer", 256, "sm_86")]
    assert answer(f"predict {TEXTBOOK} --compile")["resources"]["registers_per_thread"]["value"] == 122
    assert "122 a thread (compiler)" in gemmsim(f"explain {TEXTBOOK} --compile").out


def test_without_a_compiler_the_machine_cannot(refusal, monkeypatch):
    def missing(*_):
        raise MachineError("to compile kernels nvcc is needed: pip install 'gemmsim[compile]'")

    monkeypatch.setattr("gemmsim.gpu.compile.compile_kernel", missing)
    assert "gemmsim[compile]" in refusal(f"explain {TEXTBOOK} --compile", status=3)


# People and scripts get the same numbers


def numbers(text: str) -> set[str]:
    """Every run of digits with thousands apart, as in tables."""
    return set(re.findall(r"(?<![\d.,])\d[\d,]*(?:\.\d+)?", text))


@pytest.mark.parametrize("options", [TEXTBOOK, SHARED, "1000 900 777 --kernel register --tile 96x64x32 --thread 6x4"])
def test_tables_show_the_numbers_of_the_document(answer, gemmsim, options):
    shown = numbers(gemmsim(f"traffic {options}").out)
    found = answer(f"traffic {options}")
    groups = ("reads", "requests", "sectors", "wavefronts", "ideal_wavefronts", "excess", "bytes")
    for group in groups:
        for name, value in found[group].items():
            assert f"{value:,}" in shown, (group, name)
    shown = numbers(gemmsim(f"explain {options} --edges").out)
    found = answer(f"explain {options}")
    for name in ("blocks", "threads_per_block", "outputs_per_block", "k_iterations", "shared_bytes"):
        assert f"{found[name]:,}" in shown, name
    for access in found["accesses"]:
        for name in ("requests", "wavefronts", "ideal_wavefronts", "excess"):
            assert f"{access[name]:,}" in shown, (access, name)
    unguarded = found["edges"]["unguarded"]
    if unguarded["unsafe_blocks"]:
        for name in ("unsafe_blocks", "elements_past_b_per_block"):
            assert f"{unguarded[name]:,}" in shown, name
    shown = gemmsim(f"predict {options}").out
    found = answer(f"predict {options}")
    assert f"({int(found['cycles']):,} cycles)" in shown
    assert f"{found['flop_per_s'] / 1e12:.3g} TFLOP/s" in shown
    for name, seconds in found["terms"].items():
        of_longest = 100 * seconds / max(found["terms"].values())
        assert re.search(rf"^{name.replace('_', ' ')} .* {of_longest:.1f} %$", shown, re.MULTILINE), name


@pytest.mark.parametrize(
    "line",
    [f"explain {TEXTBOOK}", "explain 1001 999 77 --kernel vectorized --edges", "ladder 4096",
     "ladder 1000 --device t4", "explain 77 --kernel naive",
     f"traffic {TEXTBOOK}", "traffic 100000 --kernel naive", "predict 4096 --kernel vectorized",
     "predict 512 --kernel register --tile 128x128x8 --thread 4x4 --registers 200", "devices", "devices h200"],
)  # fmt: skip
def test_tables_fit_80_columns_and_are_plain_when_piped(gemmsim, monkeypatch, line):
    monkeypatch.delenv("COLUMNS", raising=False)
    result = gemmsim(line)
    assert result.status == 0
    lines = result.out.split("\n")
    assert max(map(len, lines)) <= 80
    assert result.out.isascii()
    assert "\x1b" not in result.out
    assert "…" not in result.out
    assert all(text == text.rstrip() for text in lines)


# devices


def test_devices_lists_all(answer, gemmsim):
    found = answer("devices")["devices"]
    assert [each["name"] for each in found] == list(devices())
    shown = gemmsim("devices").out
    for each in found:
        row = next(line.split() for line in shown.split("\n") if line.startswith(f"{each['name']} "))
        assert row[1] == each["capability"]
        assert float(row[4]) == pytest.approx(each["fp32_flop_per_s"] / 1e12, abs=0.05)


def test_a_device_names_the_source_of_every_number(answer, gemmsim):
    for name in devices():
        (found,) = answer("devices", name)["devices"]
        for key, value in found.items():
            if isinstance(value, int | float):
                assert len(found["sources"][key]) > 10, (name, key)
    assert "driver query of an H200" in gemmsim("devices h200").out
    (same,) = answer("devices", "NVIDIA H200")["devices"]
    assert same["name"] == "h200"


def test_a_device_file_will_do(answer, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text(
        'capability = "9.0"\nsms = 10\nclock_hz = 1e9\ndram_bytes_per_s = 1e12\nl2_bytes = 1048576\n'
        "[dram_bytes]\nvalue = 1000000000\nsource = 'its box'\n"
    )
    (found,) = answer("devices", str(file))["devices"]
    assert (found["name"], found["sms"], found["sources"]["sms"]) == ("mine", 10, "not given")
    assert found["sources"]["dram_bytes"] == "its box"
    assert answer("predict 512 --kernel naive --device", str(file))["device"] == "mine"


@pytest.mark.parametrize("columns", ["20", "40", "80", "200"])
def test_no_width_breaks_an_address_or_a_number(gemmsim, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    shown = gemmsim("devices h200").out
    for source in device("h200").sources.values():
        for address in re.findall(r"https?://[^\s,)]+", source):
            assert address in shown
    assert re.search(r"^l2_bytes_per_s +9.7 TB/s +\[\d+\]$", shown, re.MULTILINE)
    shown = gemmsim("ladder 4096").out
    assert re.search(r"^vectorized +128x128x8/8x8.* 2.78 ms ", shown, re.MULTILINE)


# measure and validate, on a machine that is made up


class Machine:
    """A GPU that answers as predicted, times 1.25; points of kernel `fails` fail."""

    fails = ""
    lacks = ""

    def __init__(self, as_device: Device | None = None, warn: Callable[[str], None] = print) -> None:
        if self.lacks:
            raise MachineError(self.lacks)
        self.device = as_device or device("h200")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self, points: Sequence[Point], progress: Callable[[int, int], None]) -> list[Failure | None]:
        progress(len(points), len(points))
        return [None] * len(points)

    def count(self, points: Sequence[Point]) -> list[dict[str, int] | Failure]:
        return [traffic(point.problem, kernel(point.kernel), point.tiling).counters for point in points]

    def measure(self, point: Point, flush: bool) -> Record:
        if point.kernel == self.fails:
            return synthetic.failed(point, self.device, "wrong result: C[0, 3] is 1.5 instead of 2.5")
        return synthetic.timed(point, self.device, 1.25, counted=False)

    def environment(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def machine(monkeypatch) -> type[Machine]:
    class Mine(Machine):
        pass

    monkeypatch.setattr("gemmsim.gpu.machine.GpuMachine", Mine)
    return Mine


@pytest.fixture
def points(tmp_path) -> Path:
    path = tmp_path / "points.jsonl"
    lines = [
        {"m": 300, "n": 200, "k": 100, "kernel": "naive", "tiling": {}, "color": "red"},
        {"m": 64, "n": 64, "k": 64, "kernel": "shared", "tiling": {"block_m": 16, "block_n": 16, "block_k": 16}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


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

    monkeypatch.setattr(commands, "measure", measure)
    gemmsim("measure 64 --kernel naive --no-flush --out somewhere.jsonl --resume --device h100-sxm")
    gemmsim("measure 64 --kernel naive --counters")
    (first, out, counters, resume, flush, _, _, on), second = seen
    assert [str(point) for point in first] == ["naive 64 x 64 x 64 fp32 8x32"]
    assert (out, counters, resume, flush, on.name) == ("somewhere.jsonl", False, True, False, "h100-sxm")
    assert (second[1:5], second[7]) == ((None, True, False, True), None)


# compare and report


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("records") / "records.jsonl", synthetic.campaign())


@pytest.fixture
def drawn(monkeypatch) -> list[Any]:
    """What a report was asked for, by a stand-in that draws nothing: the real one takes seconds."""
    seen: list[Any] = []

    def write_report(records: Path | None, out: Path, on: Device | None, warn: Callable[[str], None]) -> list[Path]:
        seen.append((records, out, on and on.name))
        return [out / "index.html", out / "reads.svg"]

    monkeypatch.setattr("gemmsim.report.write_report", write_report)
    return seen


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
            f"{100 * part['max_error']:.1f} %",
            f"{100 * part['mean_error']:+.1f} %",
            f"{part['kendall_tau']:.3f}",
            "-" if part["tau_within_problems"] is None else f"{part['tau_within_problems']:.3f}",
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
    assert re.search(r"^all .* -$", gemmsim("compare", str(one)).out, re.MULTILINE)


def test_report_writes_what_it_says(answer, tmp_path):
    records = synthetic.write(tmp_path / "records.jsonl", synthetic.campaign()[:3])
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
    "--kernel vectorized --warp 32x64": "kernel vectorized has no --warp; it has: block_m",
    "--kernel vectorized --warp 32": "--warp '32' is not of the form WMxWN",
    "--kernel vectorized --split-k 4": "kernel vectorized has no --split-k",
    "--kernel vectorized --swizzle 3": "kernel vectorized has no --swizzle",
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

    monkeypatch.setattr(commands, "configuration", interrupt)
    assert refusal("predict 64 --kernel naive", status=130) == "interrupted"


def test_a_bug_is_one_line_too_unless_asked_for_more(refusal, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("division\nby zero")

    monkeypatch.setattr(commands, "configuration", broken)
    monkeypatch.delenv("GEMMSIM_DEBUG", raising=False)
    assert "this is a bug: ZeroDivisionError: division by zero" in refusal("predict 64 --kernel naive", status=70)
    monkeypatch.setenv("GEMMSIM_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.main(["predict", "64", "--kernel", "naive"])


def test_no_memory_left(refusal, monkeypatch):
    def greedy(*_):
        raise MemoryError

    monkeypatch.setattr(commands, "configuration", greedy)
    assert "out of memory" in refusal("predict 64 --kernel naive", status=3)


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_help_has_an_example_that_works(gemmsim, machine, campaign, points, drawn, monkeypatch, tmp_path, command):
    result = gemmsim(f"{command} --help")
    assert (result.status, result.err) == (0, "")
    assert "--json" in result.out
    example = result.out.split("example:\n  gemmsim ")[1].strip()
    monkeypatch.chdir(tmp_path)
    for file in (campaign, points):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert gemmsim(example).status == 0


def test_help_and_version(gemmsim):
    whole_help = gemmsim("--help")
    assert whole_help.status == 0
    assert all(f"    {command} " in whole_help.out for command in commands.COMMANDS)
    assert re.fullmatch(r"gemmsim \d+\.\d+\.\d+\n", gemmsim("--version").out)


def test_help_shows_what_there_is(gemmsim):
    shown = gemmsim("explain --help").out
    assert shown.startswith("usage: gemmsim explain M [N K] --kernel K [options]\n")
    tiling = shown.split("\ntiling:\n")[1].split("\nexample")[0]
    assert re.findall(r"^  (--[\w-]+)", tiling, re.MULTILINE) == [
        "--tile", "--thread", "--vector", "--pad-a", "--pad-b", "--stages",
    ]  # fmt: skip
    assert not re.search(r"--(warp|split-k|swizzle)", shown)
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
