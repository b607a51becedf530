"""Code that is known without a compiler: of which launches, and what of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.ladder import default_tiling
from gemmsim.pipeline import programs
from gemmsim.pipeline.programs import Row, code_macros, program_for, rounded, write_rows
from gemmsim.problem import Problem
from gemmsim.register_table import sources_hash
from gemmsim.search.known_code import known_code, known_registers
from gemmsim.search.spaces import space

H200, CUBE, ASYNC = device("h200"), Problem(4096, 4096, 4096), kernel("async")
BASE = dict(ASYNC.tiling_dict(default_tiling(ASYNC))) | {"stages": 3, "pad_a": 4, "pad_b": 0, "group": 8, "split_k": 1}


def row(registers: int, **changed: int) -> Row:
    program = program_for(ASYNC, CUBE, default_tiling(ASYNC), H200)
    assert program is not None
    macros = code_macros(ASYNC, CUBE, ASYNC.tiling(**BASE | changed))
    return Row("async", macros, sources_hash(ASYNC), "nvcc", rounded(program), registers, 8)


def ship(monkeypatch: pytest.MonkeyPatch, folder, rows) -> None:
    write_rows(folder / "sm_90.jsonl.xz", rows)
    monkeypatch.setattr(programs, "SHIPPED", folder)


def registers(**changed: int) -> tuple[int, int]:
    return tuple(known_registers(CUBE, ASYNC, ASYNC.tiling(**BASE | changed), H200).tolist())


def code_registers(**changed: int) -> int | None:
    found = known_code(CUBE, ASYNC, ASYNC.tiling(**BASE | changed), H200)
    return found and found.registers_per_thread


def test_what_is_shipped_is_known_as_it_is():
    tiling = default_tiling(ASYNC)
    found = known_code(CUBE, ASYNC, tiling, H200)
    assert found is not None
    assert found.program == program_for(ASYNC, CUBE, tiling, H200)
    assert 128 < found.registers_per_thread <= 255
    assert known_registers(CUBE, ASYNC, tiling, H200).tolist() == [found.registers_per_thread, found.local_bytes]
    assert known_code(CUBE, ASYNC, tiling, device("a10")) is None


def test_code_alike_stands_for_what_differs_in_addresses_and_counts(tmp_path, monkeypatch):
    ship(monkeypatch, tmp_path, [row(200), row(230, split_k=2)])
    for changed in ({}, {"pad_a": 8, "pad_b": 4}, {"group": 2}, {"group": 16, "pad_a": 0}):
        assert code_registers(**changed) == 200
    assert {code_registers(split_k=3), code_registers(split_k=12, pad_b=4)} == {230}
    for changed in ({"group": 1}, {"stages": 4}, {"block_k": 16}):
        assert code_registers(**changed) is None


def test_a_ring_of_another_length_has_the_registers_alone(tmp_path, monkeypatch):
    ship(monkeypatch, tmp_path, [row(200), row(210, stages=2)])
    assert registers() == (200, 8)
    assert registers(stages=2) == (210, 8)
    assert registers(stages=4) == registers(stages=6, pad_a=8) == (210, 8)  # of several the most
    assert registers(stages=4, group=1) == registers(block_k=16) == (0, 0)


def test_of_many_launches_each_is_looked_up(tmp_path, monkeypatch):
    ship(monkeypatch, tmp_path, [row(200), row(216, pad_a=8)])
    names = ("pad_a", "pad_b", "stages", "group", "warp_m")
    of = space(ASYNC, CUBE, H200, (), {name: (BASE.get(name, 0),) for name in ASYNC.fields if name not in names})
    (many,) = of.chunks()
    found = known_registers(CUBE, ASYNC, many, H200)
    assert found.shape == (2, len(many.pad_a))
    assert set(found[0].tolist()) == {0, 200, 216}
    for at, (warp_m, stages, pad_a, pad_b, group) in enumerate(
        zip(many.warp_m, many.stages, many.pad_a, many.pad_b, many.group, strict=True)
    ):
        exactly = (stages, pad_a, pad_b, group) == (3, 4, 0, 8)
        expected = 0 if warp_m != BASE["warp_m"] or group == 1 else 200 if exactly else 216
        assert found[0, at] == expected
    assert np.array_equal(found[1] > 0, found[0] > 0)


def test_code_of_other_sources_or_without_registers_is_not_known(tmp_path, monkeypatch):
    ship(monkeypatch, tmp_path, [dataclasses.replace(row(200), sources="of other sources"), row(0, stages=2)])
    assert code_registers() is code_registers(stages=2) is None
    assert registers() == registers(stages=2) == (0, 0)
