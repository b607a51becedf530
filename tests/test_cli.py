"""The command line as users and their scripts see it: what the commands answer that need no GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import SHARED, TEXTBOOK

from gemmsim.device import device, devices
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin
from gemmsim.kernels import KERNELS, kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.records import Point

# explain, traffic, predict


def test_explain_the_textbook_example(answer):
    found = answer(f"explain {TEXTBOOK}")
    expected = {
        "blocks": 256, "block_grid": [16, 16, 256], "thread_grid": [16, 16], "threads_per_block": 256,
        "outputs_per_block": 16384, "outputs_per_thread": 64, "k_iterations": 256, "inner_iterations": 8,
        "ffma_per_inner_iteration": 64, "tile_elements": {"a": [128, 8], "b": [8, 128]}, "shared_bytes": 16384,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected
    assert found["registers_per_thread"]["source"] == "table"
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
    assert found["bounds"] == {}  # of bytes that are modelled


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
    assert found["bytes"]["l2"] >= 32 * found["caches"]["l1_fill_sectors"]
    assert found["bytes"]["l2"] <= 32 * sectors
    assert found["bytes"]["dram"] >= found["bytes"]["compulsory"]


def test_predict_says_what_python_says(answer):
    found = answer(
        "predict 4096 1000 777 --kernel vectorized --tile 128x64x8 --thread 8x4 --device H100_SXM --route analytic"
    )
    tiling = kernel("vectorized").tiling(block_m=128, block_n=64, block_k=8, thread_m=8, thread_n=4)
    expected = predict(Problem(4096, 1000, 777), kernel("vectorized"), tiling, device("h100-sxm"))
    assert found["device"] == "h100-sxm"
    assert found["time_s"] == expected.time_s
    assert found["cycles"] == round(expected.cycles, 6)
    assert found["flop_per_s"] == expected.flop_per_s
    assert found["bound_by"] == expected.bound_by
    assert found["terms"] == pytest.approx(expected.terms)
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
    unusual = "2048 --kernel double_buffer --tile 128x64x16 --thread 8x8"  # no tiling of the table
    text = " ".join(gemmsim(f"{command} {unusual}").out.split())
    registers = re.search(r"from an estimate of (\d+) registers, --compile or --registers makes it exact", text)
    assert f"{registers[1]} a thread (estimate)" in text or f"{registers[1]} registers each (estimate)" in text
    assert "about 3 blocks an SM" in text
    for known, blocks in ((f"{unusual} --registers 160", 3), (TEXTBOOK, 2)):
        given = " ".join(gemmsim(f"{command} {known}").out.split())
        assert f" {blocks} blocks an SM" in given
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


def test_cycles_are_the_time_at_the_clock_of_the_device(answer):
    for on in ("h200", "rtx-3090"):
        found = answer(f"predict 2048 --kernel vectorized --device {on}")
        assert found["cycles"] == pytest.approx(found["time_s"] * device(on).clock_hz)


# ladder


def test_the_ladder_is_what_predict_and_the_records_say(answer, gemmsim):
    found = answer("ladder 4096")
    records, _ = read_records(shipped_records())
    assert [rung["kernel"] for rung in found["rungs"]] == list(KERNELS)
    for rung in found["rungs"]:
        point = {"m": 4096, "n": 4096, "k": 4096, "kernel": rung["kernel"], "tiling": rung["tiling"]}
        measured = [record for record in records if record.point == Point.from_dict(point)]
        if not measured:
            assert rung["measured_s"] is None
            continue
        (record,) = measured
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
        assert rung["measured_s"] is None or f"{rung['measured_s'] * 1e3:.3g} ms" in row
        assert f"{100 * rung['peak_fraction']:.1f} %" in row
        assert f"{rung['flop_per_s'] / 1e12:.3g} " in row
        assert "~" not in row


def test_the_ladder_without_records_of_the_device(answer, gemmsim, campaign):
    found = answer("ladder 1000 700 77 --device v100-sxm2")  # for which no table of registers is there
    assert found["problem"] == {"m": 1000, "n": 700, "k": 77, "dtype": "fp32"}
    assert {rung["measured_s"] for rung in found["rungs"]} == {None}
    assert {rung["registers_per_thread"]["source"] for rung in found["rungs"]} == {"estimate"}
    assert "~100 %" in gemmsim("ladder 1000 700 77 --device v100-sxm2").out
    counted = answer("ladder 1000 700 77 --device a10")
    assert {rung["registers_per_thread"]["source"] for rung in counted["rungs"]} == {"table"}
    assert "~" not in gemmsim("ladder 1000 700 77 --device a10").out
    own = answer("ladder 3000 70 513 --records", str(campaign))
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
        of_the_time = 100 * seconds / found["time_s"]
        assert re.search(rf"^{name.replace('_', ' ')} .* {of_the_time:.1f} %$", shown, re.MULTILINE), name


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
    assert re.search(r"^vectorized +128x128x8/8x8.* \d\.\d+ ms +\d\.\d\d ms ", shown, re.MULTILINE)
