"""The numbers of docs/kernels.md are those of the machine code and the model."""

from __future__ import annotations

import dataclasses
import re
import statistics
from functools import cache
from pathlib import Path

import pytest

from campaigns.main_loops import read_loop
from campaigns.stalls import TILES
from gemmsim.accesses.costs import access_costs
from gemmsim.compare.loop_shares import residents
from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.kernels import KERNELS
from gemmsim.main_loops.port_streams import simulate_loops
from gemmsim.main_loops.sub_core import loop_cycles_per_ffma
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.registers.register_files import register_file
from gemmsim.tiling import grid

TEXT = (Path(__file__).parent.parent / "docs" / "kernels.md").read_text(encoding="utf-8")
ROWS = {
    cells[0]: cells[1:]
    for line in TEXT.splitlines()
    if line.startswith("| ") and "---" not in line
    for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
}
H200, ASYNC = device("h200"), KERNELS["async"]


@pytest.fixture(scope="module", autouse=True)
def _tools():
    try:
        nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))


@cache
def facts(size: int) -> dict[str, int]:
    """The numbers of one column of the table."""
    problem, tiling = Problem(size, size, size), ASYNC.tiling(**TILES[size])
    cubin = compile_kernel(ASYNC, ASYNC.launch(problem, tiling), H200.capability)
    loop = read_loop(cubin.path)
    (report,) = simulate_loops([loop], register_file("9.0"))
    blocks = grid(problem, tiling).blocks
    on = residents(ASYNC, problem, tiling, H200.capability, cubin.registers_per_thread)
    warps = tiling.warps // 4 * min(on.blocks, -(-blocks // H200.sms))
    on = dataclasses.replace(on, warps=warps, blocks=warps * 4 // tiling.warps)
    costs = access_costs(ASYNC, tiling, ASYNC.widths(problem, tiling))
    kinds = {kind: loop.kinds.get(kind, 0) for kind in ("ffma", "shared_load", "global_copy")}
    return {
        "registers of a thread": cubin.registers_per_thread,
        "blocks": blocks,
        "rounds of blocks on the busiest multiprocessor": -(-blocks // (H200.sms * on.blocks)),
        "warps of a sub-core": warps,
        "steps of a block": grid(problem, tiling).k,
        "instructions of a step": len(loop.instructions),
        "of them FFMA": kinds["ffma"],
        "shared loads": kinds["shared_load"],
        "copies": kinds["global_copy"],
        "all others": len(loop.instructions) - sum(kinds.values()),
        "cycles of a step at the register ports": round(report.cycles),
        "cycles of a step as simulated, a warp": round(loop_cycles_per_ffma(loop, on) * loop.ffma),
        "wavefronts of shared memory, a step of a block": sum(cost.wavefronts for cost in costs),
        "of them bank conflicts": sum(cost.excess for cost in costs),
    }


@pytest.mark.parametrize(("column", "size"), [*enumerate(TILES)])
def test_what_is_counted(column, size):
    assert {name: int(ROWS[name][column]) for name in facts(size)} == facts(size)


@pytest.mark.parametrize(("column", "size"), [*enumerate(TILES)])
@pytest.mark.parametrize(
    ("row", "cycles"),
    [
        ("FFMA alone", "of them FFMA"),
        ("and every other instruction", "instructions of a step"),
        ("and conflicts at the register ports", "cycles of a step at the register ports"),
        ("and waits: barriers, fragments, copies", "cycles of a step as simulated, a warp"),
    ],
)
def test_what_that_makes_in_time(column, size, row, cycles):
    of = facts(size)
    steps = of["rounds of blocks on the busiest multiprocessor"] * of["steps of a block"] * of["warps of a sub-core"]
    value, unit = re.fullmatch(r"([\d.]+) (us|ms)", ROWS[row][column]).groups()
    expected_s = steps * of[cycles] / H200.clock_hz
    assert float(value) * {"us": 1e-6, "ms": 1e-3}[unit] == pytest.approx(expected_s, rel=0.003)


def test_the_table_of_what_was_measured_is_of_the_shipped_records():
    records, _ = read_records(shipped_records("cublas"))
    fastest: dict[str, tuple[float, float, str]] = {}
    for record in records:
        size, tiling = record.point.problem, KERNELS[record.point.kernel].describe(record.point.tiling)
        cublas_s = statistics.median(record.environment["cublas"]["samples_s"])
        found = (record.median_s, cublas_s / record.median_s, f"{record.point.kernel} `{tiling}`")
        name = f"{size.m} x {size.n} x {size.k}"
        fastest[name] = min(fastest.get(name, found), found)
    rows = re.findall(r"^\| (\d+ x \d+ x \d+) \| (\w+ `.*?`) \|.*\| ([\d.]+) \|$", TEXT, re.MULTILINE)
    assert {name: (tiling, float(ratio)) for name, tiling, ratio in rows} == {
        name: (tiling, round(ratio, 3)) for name, (_, ratio, tiling) in fastest.items()
    }
    ratios = [ratio for _, ratio, _ in fastest.values()]
    assert (
        f"The geometric mean of the ratios is {statistics.geometric_mean(ratios):.2f}, the lowest {min(ratios):.2f}"
        in TEXT
    )
