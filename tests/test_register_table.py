"""The table of registers: of the present sources, as the compiler counts, and used wherever registers are not given."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from campaigns.registers import CAPABILITIES, HALF_ALIGNED, PROBLEMS, jobs
from gemmsim import register_table
from gemmsim.device import capability, device
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.toolchain import nvcc
from gemmsim.kernels import KERNELS, kernel
from gemmsim.ladder import default_tiling
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.register_table import SHIPPED, Row, compiled, key_of, read_table, resources, sources_hash, write_table

H200 = device("h200")
ALIGNED, RAGGED = PROBLEMS
DOUBLE = kernel("double_buffer")
TILING = default_tiling(DOUBLE)


@pytest.fixture
def table(monkeypatch, tmp_path):
    """A table of one's own, made of rows that are derived from one that fits."""

    def use(**changed):
        launch = DOUBLE.launch(ALIGNED, TILING)
        row = Row("double_buffer", launch.macros, {"9.0": 77}, {"9.0": 12}, sources_hash(DOUBLE), "nvcc 1.2")
        path = tmp_path / "table.jsonl"
        write_table(path, [replace(row, **changed)])
        monkeypatch.setattr(register_table, "SHIPPED", path)
        register_table._fresh.cache_clear()

    yield use
    register_table._fresh.cache_clear()


# What is shipped


def test_every_row_is_of_the_present_sources():
    hashes = {name: sources_hash(each) for name, each in KERNELS.items()}
    stale = {row.kernel for row in read_table(SHIPPED) if hashes.get(row.kernel) != row.sources}
    assert stale == set(), "the sources have changed: `make registers` compiles them anew"


def test_the_table_has_what_the_campaign_compiles_and_no_more():
    wanted = {key_of(job.kernel.name, job.launch.macros) for job in jobs()}
    rows = read_table(SHIPPED)
    assert {key_of(row.kernel, row.macros) for row in rows} == wanted, "`make registers` compiles what is missing"
    assert len(rows) == len(wanted)
    assert len({row.compiler for row in rows}) == 1
    for row in rows:
        assert tuple(row.registers) == tuple(sorted(filter(KERNELS[row.kernel].runs_on, CAPABILITIES)))
        assert set(row.spill_bytes) <= set(CAPABILITIES)
        assert all(16 <= count <= 255 for count in row.registers.values())
        assert all(spilled > 0 for spilled in row.spill_bytes.values())


@pytest.mark.parametrize("name", KERNELS)
def test_the_default_tiles_are_known_everywhere(name):
    for problem in (*PROBLEMS, *HALF_ALIGNED):
        for cc in filter(KERNELS[name].runs_on, CAPABILITIES):
            assert compiled(KERNELS[name], problem, default_tiling(KERNELS[name]), capability(cc)) is not None


@pytest.mark.parametrize(("name", "problem", "cc"), [("vectorized", ALIGNED, "9.0"), ("double_buffer", RAGGED, "8.6")])
def test_the_table_is_what_the_compiler_says(name, problem, cc):
    found = compiled(KERNELS[name], problem, default_tiling(KERNELS[name]), capability(cc))
    assert found is not None
    try:
        if str(nvcc()) != found.compiler:
            pytest.skip(f"the table is of {found.compiler}, here is {nvcc()}")
        launch = KERNELS[name].launch(problem, default_tiling(KERNELS[name]))
        cubin = compile_kernel(KERNELS[name], launch, capability(cc))
    except MachineError as error:
        pytest.skip(str(error))
    assert (found.registers_per_thread, found.spill_bytes) == (cubin.registers_per_thread, cubin.spill_bytes)


# How it is used


def test_a_launch_that_is_known(table):
    table()
    found = compiled(DOUBLE, Problem(9, 64, 12), TILING, H200.capability)
    assert (found.registers_per_thread, found.spill_bytes, found.compiler) == (77, 12, "nvcc 1.2")
    taken = resources(DOUBLE, ALIGNED, TILING, H200.capability)
    assert (taken.registers_per_thread, taken.source, taken.threads) == (77, "table", 256)
    assert taken.shared_bytes == DOUBLE.shared_bytes(TILING)


def test_what_is_given_comes_first(table):
    table()
    assert resources(DOUBLE, ALIGNED, TILING, H200.capability, 100) == DOUBLE.resources(ALIGNED, TILING, 100)


@pytest.mark.parametrize(
    ("changed", "problem", "tiling", "cc"),
    [
        ({}, RAGGED, TILING, "9.0"),  # other widths
        ({}, ALIGNED, replace(TILING, pad_a=8), "9.0"),
        ({}, ALIGNED, TILING, "8.6"),
        ({"sources": "0123456789abcdef"}, ALIGNED, TILING, "9.0"),  # other sources
        ({"kernel": "vectorized"}, ALIGNED, TILING, "9.0"),
        ({"kernel": "gone"}, ALIGNED, TILING, "9.0"),
        ({"macros": {"BLOCK_M": 128}}, ALIGNED, TILING, "9.0"),
    ],
)
def test_what_is_not_known_is_estimated(table, changed, problem, tiling, cc):
    table(**changed)
    assert compiled(DOUBLE, problem, tiling, capability(cc)) is None
    assert resources(DOUBLE, problem, tiling, capability(cc)) == DOUBLE.resources(problem, tiling)
    assert resources(DOUBLE, problem, tiling, capability(cc)).source == "estimate"


def test_a_change_of_a_source_or_a_header_makes_rows_stale(table, monkeypatch, tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    for path in DOUBLE.source.parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    before = sources_hash(DOUBLE)
    monkeypatch.setattr("gemmsim.kernels.traits.sources", lambda: folder)
    assert sources_hash(DOUBLE) == before
    for name in ("double_buffer.cu", "common.cuh"):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(kept + b"\n")
        assert sources_hash(DOUBLE) != before
        (folder / name).write_bytes(kept)
    (folder / "naive.cu").write_bytes(b"")
    assert sources_hash(DOUBLE) == before
    table(sources=before)
    assert compiled(DOUBLE, ALIGNED, TILING, H200.capability) is not None
    (folder / "common.cuh").write_bytes(b"")
    register_table._fresh.cache_clear()
    assert compiled(DOUBLE, ALIGNED, TILING, H200.capability) is None


def test_without_a_table_everything_is_estimated(monkeypatch, tmp_path, table):
    table()
    monkeypatch.setattr(register_table, "SHIPPED", tmp_path / "none.jsonl")
    assert resources(DOUBLE, ALIGNED, TILING, H200.capability).source == "estimate"


def test_the_widths_decide_and_not_the_sizes(table):
    table()
    for n, k, known in ((4, 4, True), (8, 2**31 - 2**16, True), (6, 4, False), (4, 6, False), (1, 1, False)):
        found = compiled(DOUBLE, Problem(1, n, k), TILING, H200.capability)
        assert (
            (found is not None) == known == (DOUBLE.widths(Problem(1, n, k), TILING) == DOUBLE.widths(ALIGNED, TILING))
        )


def test_more_blocks_than_a_launch_takes_are_no_obstacle():
    vectorized = kernel("vectorized")
    huge = Problem(2**31 - 2**16, 2**20, 1)
    tiling = vectorized.tiling(block_m=4, block_n=4, block_k=4, thread_m=4, thread_n=4)
    assert resources(vectorized, huge, tiling, H200.capability).source == "estimate"


def test_arrays_are_looked_up_like_numbers():
    sizes = np.array([4096, 1001, 64, 1902])
    pads = np.array([[0], [4], [12]])
    problem, tilings = Problem(sizes, sizes, sizes), replace(TILING, pad_a=pads)
    many = resources(DOUBLE, problem, tilings, H200.capability)
    assert many.registers_per_thread.shape == (3, 4)
    sources = set()
    for row, pad in enumerate(pads[:, 0]):
        for column, size in enumerate(sizes):
            alone = resources(DOUBLE, Problem(*[int(size)] * 3), replace(TILING, pad_a=int(pad)), H200.capability)
            assert many.registers_per_thread[row, column] == alone.registers_per_thread
            sources.add(alone.source)
    assert sources == {"table", "estimate"}
    assert many.source == "estimate"
    known = resources(DOUBLE, Problem(sizes[:2], sizes[:2], sizes[:2]), TILING, H200.capability)
    assert known.source == "table"


def test_a_prediction_says_that_its_registers_are_from_the_table(table):
    table()
    found = predict(ALIGNED, DOUBLE, TILING, H200)
    assert (found.resources.registers_per_thread, found.resources.source) == (77, "table")
    assert found.occupancy.limits["registers"] == 3  # 80 registers, 2560 a warp: 6 warps in each of 4 partitions
    assert predict(ALIGNED, DOUBLE, TILING, device("rtx-3090")).resources.source == "estimate"


@pytest.mark.parametrize("command", ["explain", "predict"])
def test_commands_use_it_and_say_so(table, gemmsim, answer, command):
    table()
    found = answer(f"{command} 4096 --kernel double_buffer")
    told = found["registers_per_thread"] if command == "explain" else found["resources"]["registers_per_thread"]
    assert told == {"value": 77, "source": "table"}
    text = " ".join(gemmsim(f"{command} 4096 --kernel double_buffer").out.split())
    assert "(table)" in text
    assert "about" not in text


def test_the_command_occupancy_uses_it_and_names_spills(table, gemmsim, answer):
    table()
    found = answer("occupancy 4096 --kernel double_buffer")
    assert (found["block"]["registers"], found["registers_source"], found["spill_bytes"]) == (77, "table", 12)
    shown = " ".join(gemmsim("occupancy 4096 --kernel double_buffer").out.split())
    assert "77 registers (table) each" in shown
    assert "spills 12 bytes a thread" in shown
    given = answer("occupancy 4096 --kernel double_buffer --registers 80")
    assert (given["registers_source"], given["spill_bytes"]) == ("given", None)
    assert answer("occupancy 4096 --kernel double_buffer --cc 8.6")["spill_bytes"] is None


def test_a_table_is_written_in_one_order(tmp_path):
    rows = read_table(SHIPPED)
    path = tmp_path / "again.jsonl"
    write_table(path, reversed(rows))
    assert path.read_bytes() == SHIPPED.read_bytes()
    assert all(json.loads(line)["registers"] for line in path.read_text().splitlines())
