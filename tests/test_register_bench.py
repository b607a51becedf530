"""Microbenchmarks without a GPU: the program that is patched in is disassembled and run on paper, then its times."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sass_machine import GLOBAL_BASE, SassMachine

from gemmsim.errors import InputError, MachineError
from gemmsim.gpu import register_bench, register_campaign
from gemmsim.gpu.disassemble import disassembled
from gemmsim.gpu.register_bench import (
    BUFFER_BYTES,
    ROOMS,
    TRIPS,
    Bench,
    container,
    copies_of,
    looped_cycles,
    room_for,
    self_check,
    span_cycles,
    steady_cycles,
)
from gemmsim.gpu.register_campaign import append, checks, measure_bodies, read_done, record
from gemmsim.gpu.register_program import DUMP_BYTES, patched, program, run_on_paper, same_code, spare
from gemmsim.gpu.session import GpuFacts
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.machine_code.loop_bodies import LoopBody
from gemmsim.machine_code.register_variants import variants

BODIES = {body.name: body for body in variants()}
SMALL = BODIES["4x4 serpentine, accumulator opposite B"]
EVERYTHING = BODIES["LDS.128, LDG.128, STS.128 and IADD3, one in 8"]
FACTS = GpuFacts("NVIDIA H200", "9.0", 132, 4096, 10**9, "0000:00:04.0", "13.0", "2026.1")


@pytest.fixture(scope="module", autouse=True)
def _tools():
    try:
        nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))


class PaperGpu:
    """PyCUDA's driver as far as the bench calls it; launches run on the machine on paper."""

    facts = FACTS
    function_attribute = SimpleNamespace()

    class Error(Exception):
        pass

    def __init__(self, spoil: str = "") -> None:
        self.driver = self
        self.Context = SimpleNamespace(synchronize=lambda: None)
        self.memory = np.zeros(2**17, np.uint32)
        self.taken = 0
        self.spoil = spoil
        self.launches = 0

    def __enter__(self) -> PaperGpu:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def alive(self) -> bool:
        return not self.spoil

    def mem_alloc(self, size: int) -> Any:
        base = GLOBAL_BASE + self.taken
        self.taken += -(-size // 256) * 256
        self.memory = np.zeros(max(self.memory.size, self.taken // 4), np.uint32)

        class Allocation(int):
            def free(self) -> None:
                pass

        return Allocation(base)

    def memset_d32(self, address: int, value: int, count: int) -> None:
        start = (address - GLOBAL_BASE) // 4
        self.memory[start : start + count] = value

    def memcpy_dtoh(self, words: Any, address: int) -> None:
        start = (address - GLOBAL_BASE) // 4
        words[:] = self.memory[start : start + words.size]

    def module_from_buffer(self, image: bytes) -> Any:
        (function,) = disassembled(image)

        def call(grid, block, out, buffer, trips, shared_size):
            self.launches += 1
            if self.spoil and self.launches > 1:
                raise self.Error(self.spoil)
            assert (grid, shared_size) == ((1, 1), 32 * 1024)
            descriptor = 0xE_0000_000D
            constants = {0x208: descriptor, 0x210: out, 0x218: buffer, 0x220: trips}
            SassMachine(function, block[0], self.memory, constants).run()

        return SimpleNamespace(get_function=lambda name: SimpleNamespace(prepare=lambda form: None, prepared_call=call))


@pytest.mark.parametrize("name", ["4x4 serpentine, accumulator opposite B", "eee", EVERYTHING.name])
def test_the_program_runs_the_body_as_often_as_it_is_told(name):
    body = BODIES[name]
    template, registers = container(ROOMS[0])
    (function,) = disassembled(patched(body, 3, template, registers).image)
    memory = np.zeros(2**17, np.uint32)
    out, buffer = GLOBAL_BASE, GLOBAL_BASE + 4 * (memory.size - BUFFER_BYTES // 4 - 4) // 16 * 16
    constants = {0x208: 0xE_0000_000D, 0x210: out, 0x218: buffer, 0x220: 5}
    machine = SassMachine(function, 1024, memory, constants)
    machine.run()
    of_body = [each for each in machine.ran if each.kind == "ffma"]
    assert len(of_body) == 5 * 3 * body.ffma
    assert [each.opcode for each in machine.ran].count("CS2R") == 2
    assert machine.ran[-1].opcode == "EXIT"
    starts, ends = memory[:1024], memory[1024:2048]
    assert (
        ends - starts == 5 * (3 * len(body.code) + 3) + 1
    ).all()  # counter, test and branch a pass; the clock itself
    assert not memory[2048 : (buffer - out) // 4].any()  # nothing else is written
    assert span_cycles(memory[:2048], 1024) == ends[0] - starts[0]


@pytest.mark.parametrize(
    "body", [SMALL, EVERYTHING, BODIES["8x8 serpentine, LDS.128, IADD3 and STS, one in 8"]], ids=lambda body: body.name
)
def test_registers_are_as_on_paper(body):
    found = Bench(PaperGpu()).registers(body, 3, 2)
    expected = run_on_paper(body, 3, 2)
    assert len(expected) > body.ffma // 8
    assert {number: set(found[number].tolist()) for number in expected} == {
        number: {bits} for number, bits in expected.items()
    }


def test_the_self_check_passes_and_tells():
    said = self_check(Bench(PaperGpu()), [SMALL, EVERYTHING])
    assert [line.partition(":")[0] for line in said] == [SMALL.name, EVERYTHING.name]


def test_the_self_check_sees_a_wrong_instruction(monkeypatch):
    other = replace(SMALL, code=(*SMALL.code[:-1], SMALL.code[-1].replace("R45", "R44")))
    monkeypatch.setattr(register_bench, "patched", lambda body, *rest, **more: patched(other, *rest, **more))
    with pytest.raises(MachineError, match=r"is not what was to be patched in: at 0x2e0 FFMA R44"):
        self_check(Bench(PaperGpu()), [SMALL])


def test_the_self_check_sees_a_wrong_result(monkeypatch):
    monkeypatch.setattr(SassMachine, "do_ffma", lambda self, each: self.put(each.operands[0], 7))
    with pytest.raises(MachineError, match=r"leaves 0x00000007 in R32 instead of 0x\w{8}, and 16 of 24 registers"):
        self_check(Bench(PaperGpu()), [SMALL])


def test_what_is_checked_covers_every_instruction():
    chosen = checks(list(BODIES.values()))
    assert {each.mnemonic for body in chosen for each in body.instructions} == {
        each.mnemonic for body in BODIES.values() for each in body.instructions
    }


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_every_variant_has_room_and_keeps_its_registers(body):
    rooms = [room_for(body, warps) for warps in (1, 2, 4, 8)]
    assert all(rooms[:3])
    assert rooms[3] or "8x8" in body.name
    for room in filter(None, rooms):
        registers = container(room)[1]
        assert registers * room.threads <= 65536
        free = spare(body, registers)
        taken = {free.counter, free.start, free.end, free.lane, free.address, free.address + 1}
        assert len(taken) == 6
        assert not taken & body.registers
        assert max(taken | body.registers) < registers
        assert free.address % 2 == 0


@pytest.mark.parametrize("body", list(BODIES.values())[::18], ids=lambda body: body.name)
def test_variants_are_patched_in_as_they_are_written(body):
    room = room_for(body, 4)
    assert room
    template, registers = container(room)
    for copies in copies_of(body):
        (function,) = disassembled(patched(body, copies, template, registers).image)
        assert same_code(body, copies, function.instructions) is None


@pytest.mark.parametrize("room", ROOMS, ids=str)
def test_programs_name_no_register_that_compiled_code_would_not(room):
    """Of the registers that a compiler reports the last ones are not for naming: the hardware calls that illegal."""
    template, registers = container(room)
    (function,) = disassembled(template.image)
    named = {register for each in function.instructions for register in each.writes}
    named |= {read.first + read.registers - 1 for each in function.instructions for read in each.reads}
    assert registers == max(named) + 1


@pytest.mark.parametrize("period", [1, 16, 64, 80, 128, 200, 400, 512])
def test_loops_are_as_long_as_they_should_be(period):
    body = LoopBody("x", ("FFMA R4, R5, R6, R7",) * period, (1,) * period, (1,) * period)
    lengths = [copies * period for copies in copies_of(body)]
    assert 128 <= lengths[0] < 128 + period
    assert lengths[1:] == [2 * lengths[0], 4 * lengths[0]][: len(lengths) - 1]
    assert lengths[-1] <= 1024
    template, registers = container(ROOMS[0])
    program(body, copies_of(body)[-1], template, registers, dump=True)


def test_too_much_code_is_refused():
    template, registers = container(ROOMS[0])
    with pytest.raises(InputError, match=r"\d+ instructions do not fit before the 2171 of the template"):
        program(SMALL, 150, template, registers)
    with pytest.raises(InputError, match="62 registers a thread are too few"):
        program(BODIES["8x8 rows, accumulator opposite B"], 4, template, registers)


# Times


@given(
    each=st.floats(0.5, 8), overhead=st.floats(5, 60), start=st.integers(0, 300), cold=st.floats(0, 3),
    warps=st.sampled_from([1, 2, 4, 8]),
)  # fmt: skip
def test_the_differences_leave_the_body_alone(each, overhead, start, cold, warps):
    def cycles(copies: int, trips: int) -> int:  # the first pass fetches the code
        body = copies * 64 * each * warps
        return round(start + trips * (overhead + body) + cold * copies * 64)

    samples = {(copies, trips): [cycles(copies, trips)] * 3 for copies in (2, 4, 8) for trips in TRIPS}
    assert steady_cycles(samples, 64, warps) == pytest.approx(each, abs=2e-4)
    with_loop = each + overhead / (4 * 64 * warps)
    assert looped_cycles(samples, 64, warps) == pytest.approx(with_loop, abs=2e-4)


@given(zero=st.integers(0, 2**32 - 1), starts=st.lists(st.integers(0, 40), min_size=4, max_size=4))
def test_clocks_may_pass_zero(zero, starts):
    clocks = np.zeros(2048, np.uint32)
    first = np.repeat(starts, 32)
    clocks[:128] = (zero + first) % 2**32
    clocks[1024 : 1024 + 128] = (zero + 1000 + first) % 2**32
    if not clocks[1024 : 1024 + 128].all():
        return  # an end that reads zero cannot be told from one that was not written
    assert span_cycles(clocks, 128) == 1000 + max(starts) - min(starts)


def test_a_program_that_left_no_clocks_is_noticed():
    with pytest.raises(MachineError, match="the clocks make no sense"):
        span_cycles(np.zeros(2048, np.uint32), 128)


def test_a_record_says_what_was_measured():
    samples = {(2, 16): [900] * 3, (2, 80): [2500] * 3, (4, 16): [1100] * 3, (4, 80): [4300] * 3}
    samples |= {(8, 16): [2100] * 3, (8, 80): [8300] * 3}
    found = record(SMALL, {1: samples, 2: samples}, {"gpu": "H200"})
    assert found["name"] == SMALL.name
    assert found["ffma"][0] == [33, 24, 28, 33, "A"]
    # a pass: (2500 - 900) / 64 = 25, (4300 - 1100) / 64 = 50, (8300 - 2100) / 64 = 96.875; 16 FFMA a copy
    assert found["cycles_per_ffma"] == round(25 / 32, 5)
    assert found["steady_cycles_per_ffma_by_warps"] == {"1": round(25 / 32, 5), "2": round(46.875 / 128, 5)}
    assert found["cycles_per_ffma_by_warps"]["1"] == round(50 / 64, 5)
    assert found["samples"]["1"][0] == {"copies": 2, "trips": 16, "cycles": [900] * 3}
    json.dumps(found)


# Campaigns


@pytest.fixture
def on_paper(monkeypatch):
    """A GPU on paper, and times that are made up."""
    monkeypatch.setattr(register_campaign, "Gpu", PaperGpu)
    monkeypatch.setattr(register_campaign, "self_check", lambda bench, bodies: ["nothing"])

    def time(self: Bench, body: LoopBody, warps: int) -> Any:
        return {(copies, trips): [copies * trips * len(body.code)] * 3 for copies in (2, 4, 8) for trips in TRIPS}

    monkeypatch.setattr(Bench, "time", time)


def test_every_record_is_on_disk_at_once_and_not_measured_twice(on_paper, tmp_path):
    out = tmp_path / "out.jsonl"
    seen: list[int] = []
    records = measure_bodies([SMALL, EVERYTHING], out, tell=lambda phase, done, of: seen.append(len(read_done(out))))
    assert seen == [0, 1, 2]  # the check, then each body
    assert read_done(out) == records
    assert [each["cycles_per_ffma"] for each in records] == [1.0, 1.125]
    again = measure_bodies([EVERYTHING, SMALL], out, read_done(out))
    assert again == records[::-1]
    assert len(read_done(out)) == 2


def test_what_failed_is_tried_again(on_paper, tmp_path):
    failed = SMALL.to_dict() | {"failure": "launch failed"}
    (found,) = measure_bodies([SMALL], tmp_path / "out.jsonl", [failed])
    assert found["cycles_per_ffma"] == 1.0


def test_an_interrupted_file_is_taken_up(on_paper, tmp_path):
    out = tmp_path / "out.jsonl"
    append(out, record(SMALL, {}, {}))
    out.write_bytes(out.read_bytes() + b'{"name": "half a li')
    assert [each["name"] for each in read_done(out)] == [SMALL.name]
    assert read_done(tmp_path / "none.jsonl") == []
    with pytest.raises(InputError, match="cannot read"):
        read_done(tmp_path)


def test_a_body_that_breaks_the_context_fails_alone(monkeypatch, tmp_path):
    gpus = [PaperGpu(), PaperGpu("illegal instruction"), PaperGpu()]
    left = iter(gpus[1:])
    monkeypatch.setattr(register_campaign, "Gpu", lambda: next(left))
    monkeypatch.setattr(register_campaign, "self_check", lambda bench, bodies: [])
    monkeypatch.setattr(register_campaign, "WARPS_PER_SUB_CORE", (1,))
    monkeypatch.setattr(register_bench, "TRIPS", (1, 2))
    monkeypatch.setattr(register_bench, "copies_of", lambda body: (2, 4))
    warned: list[str] = []
    found = measure_bodies([SMALL, BODIES["eee"]], tmp_path / "out.jsonl", warn=warned.append)
    assert [each.get("failure") for each in found] == ["launch failed: illegal instruction", None]
    assert warned == [f"{SMALL.name}: launch failed: illegal instruction"]
    ran = len(BODIES["eee"].code)
    assert found[1]["cycles_per_ffma"] == 1.0
    assert found[1]["samples"]["1"][0]["cycles"] == [2 * ran + 3 + 1] * 5


def test_a_self_check_that_does_not_run_is_the_machines_fault(monkeypatch, tmp_path):
    gpu = PaperGpu("illegal instruction")
    gpu.launches = 1
    monkeypatch.setattr(register_campaign, "Gpu", lambda: gpu)
    with pytest.raises(MachineError, match="the self-check of the microbenchmarks does not run: illegal instruction"):
        measure_bodies([SMALL], tmp_path / "out.jsonl")


def test_another_gpu_is_refused():
    other = PaperGpu()
    other.facts = replace(FACTS, title="NVIDIA A100", capability="8.0")
    with pytest.raises(MachineError, match=re.escape("NVIDIA A100 has compute capability 8.0")):
        Bench(other)


def test_a_dump_has_room_for_every_register():
    assert DUMP_BYTES >= 4 * 255
