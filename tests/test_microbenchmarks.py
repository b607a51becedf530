"""Microbenchmarks without a GPU: what a made-up one is found to be, the arithmetic of clocks, the code of the loops."""

from __future__ import annotations

import json
import tomllib
from functools import cache
from types import SimpleNamespace

import fake_bench
import numpy as np
import pytest
from fake_bench import FACTS, FakeGpu, Machine
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.calibration import load_calibration
from gemmsim.calibration.files import CalibrationFile, read_calibration_file, write_calibration_file
from gemmsim.calibration.numbers import NAMES
from gemmsim.device import capability, device
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu import calibrate as parts
from gemmsim.gpu import calibrate_memory, microbenchmarks
from gemmsim.gpu import calibration_campaign as campaign
from gemmsim.gpu.calibrate import PARTS
from gemmsim.gpu.calibration_campaign import calibrate, device_name
from gemmsim.gpu.disassemble import disassembled
from gemmsim.gpu.microbenchmarks import PROGRAMS, Bench, Rows, compiled
from gemmsim.gpu.paired_runs import SIXTEEN_BITS, TWO_BITS, VECTORS, gaps, last_of_chain, per_unit, side_by_side
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.machine_code.sass import Instruction

CAPABILITIES = ("7.5", "8.0", "9.0", "12.0")


@pytest.fixture(autouse=True)
def made_up(monkeypatch, tmp_path):
    """A machine whose GPU is made up: nothing is compiled, nobody is asked for clocks, memory is small."""
    cubin = tmp_path / "cubin"
    cubin.write_bytes(b"cubin")
    monkeypatch.setattr(microbenchmarks, "compiled", lambda *_: SimpleNamespace(path=cubin))
    monkeypatch.setattr(calibrate_memory, "MEMORY_CHAIN_BYTES", 2 * FACTS.l2_bytes)
    monkeypatch.setattr(microbenchmarks, "REPEATS", 3)
    monkeypatch.setattr(parts, "WARM_UP_S", 0)
    monkeypatch.setattr(campaign, "Gpu", FakeGpu)
    monkeypatch.setattr(campaign, "nvcc", lambda: "nvcc 13.0")
    monkeypatch.setattr(campaign, "under_load", lambda facts, keep_busy: {"driver": "580.1", "sm_clock_hz": None})


# What is measured


EXPECTED = {  # of a fresh Machine
    "clock_hz": 1.5e9,
    "ffma_per_cycle_per_sm": 128,
    "ffma_latency_cycles": 4,
    "shared_load_latency_32_bit_cycles": 23,
    "shared_load_latency_64_bit_cycles": 25,
    "shared_load_latency_128_bit_cycles": 29,
    "shared_bytes_per_cycle": 128,
    "l1_latency_cycles": 33,
    "l1_bytes_per_cycle": 120,
    "l2_latency_near_cycles": 250,
    "l2_latency_far_cycles": 400,
    "l2_bytes_per_s": 2e12,
    "l2_far_bytes_per_s": 1.5e12,
    "l2_same_lines_bytes_per_s": 2e12,
    "l2_write_bytes_per_s": 2e12,
    "l2_bytes_per_cycle_per_sm": 60,
    "l2_write_bytes_per_cycle_per_sm": 60,
    "dram_latency_cycles": 800,
    "cold_latency_cycles": 800,
    "cold_slowest_cycles": 800,
    "cold_rows_slowest_cycles": 800,
    "l2_slowest_cycles": 250,
    "l2_line_cycles": 2,
    "l2_line_alone_cycles": 1.5,
    "code_line_cycles": 50,
    "dram_bytes_per_s": 4e11,
    "dram_write_bytes_per_s": 4e11,
    "barrier_4_warps_cycles": 8,
    "barrier_8_warps_cycles": 16,
    "barrier_16_warps_cycles": 32,
    "barrier_32_warps_cycles": 64,
    "launch_s": fake_bench.LAUNCH_S + 90 / 1.5e9,
    "launch_overhead_s": fake_bench.LAUNCH_S,
    "block_start_cycles": 90,
    "block_turnover_cycles": 800,
    "copy_latency_cycles": 400,
    "atomic_latency_cycles": 600,
}


def test_every_number_of_a_made_up_gpu_is_found(tmp_path):
    out, told = tmp_path / "h200.toml", []
    content, failures = calibrate(list(PARTS), out, tell=lambda *words: told.append(words))
    assert failures == {}
    assert told == [(f"calibrated {part}", number, len(PARTS)) for number, part in enumerate(PARTS, 1)]
    found = {name: entry.value for name, entry in content.entries.items()}
    assert 0 <= found.pop("l2_latency_spread_cycles") < 1
    assert found == pytest.approx(EXPECTED, rel=1e-3)
    assert {*EXPECTED, "l2_latency_spread_cycles"} == set(NAMES)
    own = load_calibration(out, device("h200"))
    assert (own.own, own.inherited) == (True, ())
    assert own.sources["clock_hz"].startswith(
        "gemmsim calibrate, part ffma, NVIDIA H200, driver 580.1, CUDA 13.0, nvcc 13.0, 20"
    )
    assert own.sources["clock_hz"].endswith("; median of 3")


AFFECTED = {  # {what costs more: (part, the numbers that show it)}
    "ffma": ("ffma", ["ffma_per_cycle_per_sm"]),
    "ffma_chain": ("ffma", ["ffma_latency_cycles"]),
    "chase_shared_32": ("shared", ["shared_load_latency_32_bit_cycles"]),
    "chase_shared_64": ("shared", ["shared_load_latency_64_bit_cycles"]),
    "chase_shared_128": ("shared", ["shared_load_latency_128_bit_cycles"]),
    "read_shared": ("shared", ["shared_bytes_per_cycle"]),
    "chase_l1": ("l1", ["l1_latency_cycles"]),
    "read_l1": ("l1", ["l1_bytes_per_cycle"]),
    "barriers": ("barrier", [f"barrier_{warps}_warps_cycles" for warps in (4, 8, 16, 32)]),
    "copies": ("copy", ["copy_latency_cycles"]),
    "chase_atomic": ("atomic", ["atomic_latency_cycles"]),
}


@given(st.floats(0.3, 3), st.sampled_from(sorted(AFFECTED)))
def test_what_costs_more_shows_in_its_own_number_alone(factor, what):
    machine = Machine()
    assert set(machine.cycles) == set(AFFECTED)
    machine.cycles[what] *= factor
    part, names = AFFECTED[what]
    with Bench(FakeGpu(machine), repeats=1) as bench:
        found = {name: finding.value for name, finding in PARTS[part](bench).items()}
    for name, value in found.items():
        expected = EXPECTED[name] * (1 if name not in names else 1 / factor if "per_cycle" in name else factor)
        assert value == pytest.approx(expected, rel=2e-3)


def test_raw_readings_are_kept(tmp_path):
    out = tmp_path / "h200.toml"
    calibrate(["l1"], out)
    table = tomllib.loads(out.read_text())
    assert table["l1_latency_cycles"]["samples"] == pytest.approx([33] * 3, rel=1e-3)
    record = table["parts"]["l1"]
    assert record["environment"]["compiler"] == "nvcc 13.0"
    assert "sm_clock_hz" not in record["environment"]  # nobody said
    (long,) = (values for label, values in record["read"].items() if label.startswith("chase_l1") and "=2304" in label)
    assert long == pytest.approx([2304 * 33 + fake_bench.OVERHEAD_CYCLES] * 3, rel=1e-3)


def kernels_of(part):
    """The kernels that a part launches."""
    gpu = FakeGpu()
    with Bench(gpu, repeats=1) as bench:
        PARTS[part](bench)
    return {name for name, _, _ in gpu.launches}


@pytest.mark.parametrize("part", PARTS)
def test_a_result_that_is_wrong_fails_its_part_and_no_other(monkeypatch, tmp_path, part):
    monkeypatch.setattr(campaign, "warm_up", lambda bench: None)
    monkeypatch.setattr(microbenchmarks, "REPEATS", 1)
    unchecked = {"empty", "spin"} | ({"read_past_l1"} if part in ("cold", "lines") else set())  # there it only fills L2
    for kernel in sorted(kernels_of(part) - unchecked):

        def spoil(name, rows, kernel=kernel):
            if name == kernel:
                rows[-1, -1, 3] += 1

        gpu = FakeGpu(spoil=spoil)
        monkeypatch.setattr(campaign, "Gpu", lambda gpu=gpu: gpu)
        warned: list[str] = []
        other = "copy" if part == "atomic" else "atomic"
        content, failures = calibrate([part, other], tmp_path / kernel, warn=warned.append)
        assert list(failures) == [part]
        assert part not in content.parts
        assert len(content.parts) == 1
        assert failures[part].startswith(f"microbenchmark {kernel}: block ")
        assert warned == [f"{part}: {failures[part]}"]


def test_every_kernel_is_used():
    assert set.union(*map(kernels_of, PARTS)) == set(PROGRAMS)


def test_a_kernel_that_does_not_run_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(campaign, "Gpu", lambda: FakeGpu(spoil=lambda name, rows: rows.fill(0)))
    _, failures = calibrate(["barrier"], tmp_path / "out.toml")
    assert failures["barrier"].endswith("a clock did not go on; did the kernel run?")


def test_a_number_out_of_range_is_not_written(tmp_path, monkeypatch):
    machine = Machine(clock_hz=1e6)
    monkeypatch.setattr(campaign, "Gpu", lambda: FakeGpu(machine))
    content, failures = calibrate(["ffma"], tmp_path / "out.toml")
    assert failures["ffma"].startswith("clock_hz must not be ")
    assert content.entries == {}


def test_without_asynchronous_copies_there_is_no_latency_of_one():
    turing = FakeGpu(facts=FACTS.__class__(**{**FACTS.__dict__, "capability": "7.5"}))
    with Bench(turing) as bench:
        assert PARTS["copy"](bench) == {}


def test_loads_that_do_not_pass_l1_are_found_out(monkeypatch, tmp_path):
    machine = Machine(near_cycles=40)
    monkeypatch.setattr(campaign, "Gpu", lambda: FakeGpu(machine))
    _, failures = calibrate(["l2"], tmp_path / "out.toml")
    assert failures["l2"] == "loads past L1 take 40 cycles and those that hit it 33: they do not pass it"


def test_a_gpu_with_little_free_memory_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(FakeGpu, "mem_get_info", lambda self: (2**22, 2**33))
    _, failures = calibrate(["dram"], tmp_path / "out.toml")
    assert failures["dram"] == "0.0021 GB are half of what is free, too little to stream past L2"


# Files


def test_what_is_done_is_not_done_again(tmp_path):
    out = tmp_path / "out.toml"
    calibrate(["l1", "atomic"], out)
    before = read_calibration_file(out)
    content, _ = calibrate(["l1", "barrier"], out, resume=True)
    assert list(content.parts) == ["l1", "atomic", "barrier"]
    assert content.parts["l1"] == before.parts["l1"]
    again, _ = calibrate(["l1"], out)
    assert list(again.parts) == ["l1", "atomic", "barrier"]
    assert again.parts["l1"]["seconds"] != before.parts["l1"]["seconds"]


def test_the_file_of_another_gpu_is_refused(tmp_path):
    out = tmp_path / "out.toml"
    write_calibration_file(out, CalibrationFile("t4"))
    with pytest.raises(InputError, match=r"is the calibration of t4, and the GPU here is h200; give another file"):
        calibrate(["l1"], out)


@pytest.mark.parametrize(
    ("title", "name"),
    [("NVIDIA H200", "h200"), ("NVIDIA GeForce RTX 3090", "rtx-3090"), ("NVIDIA Z9000 (prototype)", "z9000-prototype")],
)
def test_the_name_of_a_gpu(title, name):
    assert device_name(title) == name


def test_the_command_measures_all_parts_and_shows_them(gemmsim, tmp_path):
    out = tmp_path / "out.toml"
    shown = gemmsim(f"calibrate ffma barrier --out {out}")
    assert shown.status == 0
    assert "barrier_8_warps_cycles" in shown.out
    assert "calibrated barrier: 2 of 2" in shown.err
    document = json.loads(gemmsim(f"calibrate --out {out} --resume --json").out)
    assert document["device"] == "h200"
    assert set(document["parts"]) == set(PARTS)
    assert document["failures"] == {}
    assert document["calibration"]["l1_latency_cycles"]["value"] == pytest.approx(33, rel=1e-3)


def test_the_command_says_which_part_failed(gemmsim, monkeypatch, tmp_path):
    monkeypatch.setattr(campaign, "Gpu", lambda: FakeGpu(Machine(clock_hz=1e6)))
    shown = gemmsim(f"calibrate ffma barrier --out {tmp_path / 'out.toml'}")
    assert shown.status == 1
    assert "ffma failed: clock_hz must not be" in shown.out
    assert "gemmsim: warning: ffma: clock_hz" in shown.err


# Arithmetic


@given(st.floats(0, 1e4), st.floats(0.1, 1e3), st.integers(1, 100), st.integers(1, 5000))
def test_the_difference_of_two_runs_is_free_of_what_both_have(overhead, cost, few, more):
    (found,) = per_unit([overhead + few * cost], [overhead + (few + more) * cost], more)
    assert found == pytest.approx(cost, rel=1e-6)


def test_a_long_run_that_is_not_longer_is_no_measurement():
    with pytest.raises(MachineError, match="a long run was no longer than a short one: 5 and 5"):
        per_unit([5.0], [5.0], 1)


@given(st.integers(1, 60), st.integers(0, 200), st.data())
def test_where_chains_end_is_where_following_them_leads(length, steps, data):
    places = np.array(data.draw(st.permutations(range(length))), np.uint64)
    following = dict(zip(places.tolist(), np.roll(places, -1).tolist(), strict=True))
    start = data.draw(st.integers(0, length - 1))
    at = places[start].item()
    for _ in range(steps):
        at = following[at]
    assert last_of_chain(places, np.array([start]), steps) == at


@given(st.integers(1, 9), st.integers(1, 40), st.integers(0, 31))
def test_threads_of_a_block_read_lines_side_by_side(steps, threads, block):
    lines = 32 * steps * threads
    order = side_by_side(lines + 5, threads)  # what fills no block is left out
    assert sorted(order.tolist()) == list(range(lines))
    # 32 equal parts, one a block; of each again one a thread, which it follows step by step
    chains = order.reshape(32, threads, steps)[block]
    first = block * steps * threads
    for step in range(steps):
        assert chains[:, step].tolist() == list(range(first + step * threads, first + (step + 1) * threads))


def rows_of(*blocks: tuple[int, int, int]) -> Rows:
    """Rows of blocks of two warps, the second a little later, from (start, end, result)."""
    return Rows(np.array([[(s, e - 2, 50, r), (s + 1, e, 50, r)] for s, e, r in blocks], np.uint64))


def test_gaps_are_those_between_blocks_of_one_multiprocessor():
    rows = rows_of((100, 200, 0), (1000, 1100, 7), (230, 330, 0), (1150, 1250, 7), (335, 400, 0))
    assert sorted(gaps(rows)) == [5, 30, 50]
    assert rows.cycles.tolist() == [100, 100, 100, 100, 65]
    for wrong in (((100, 200, 0), (150, 250, 0)), ((100, 200, 0), (100, 200, 1))):
        with pytest.raises(MachineError, match="one for each SM"):
            gaps(rows_of(*wrong))


def test_ffma_come_to_rest_where_their_result_is_expected():
    sums = np.arange(1031, dtype=np.float32)
    for _ in range(256):  # x / 2 is exact, so this is what FFMA rounds
        sums = (np.float64(0.5) * sums.astype(np.float64) + 1).astype(np.float32)
    assert set(sums.view(np.uint32).tolist()) == {TWO_BITS}
    assert (sums[:8].sum(dtype=np.float32)).view(np.uint32) == SIXTEEN_BITS


# Machine code


@cache
def loops(source: str, of: str) -> dict[str, list[list[Instruction]]]:
    """{kernel: the bodies of its loops after the clock is read, the longest last} of a compiled source."""
    found = {}
    for function in disassembled(compiled(source, capability(of)).path.read_bytes(), source):
        code = list(function.instructions)
        at = {each.address: number for number, each in enumerate(code)}
        start = next((number for number, each in enumerate(code) if "CLOCK" in each.text), 0)
        bodies = []
        for number, each in enumerate(code):
            if each.opcode == "BRA" and each.target in at and start < at[each.target] < number:
                bodies.append(code[at[each.target] : number + 1])
        found[function.name] = sorted(bodies, key=len)
    return found


def body(kernel: str, of: str) -> list[Instruction]:
    """The longest loop of a kernel: what is timed."""
    try:
        nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))
    return loops(PROGRAMS[kernel][0], of)[kernel][-1]


def is_chain(code: list[Instruction]) -> bool:
    """Whether each instruction reads what the one before wrote, and the first what the last did."""
    return all(
        set(before.writes[:1]) & {read.first for read in each.reads}
        for before, each in zip([code[-1], *code[:-1]], code, strict=True)
    )


@pytest.mark.parametrize("of", CAPABILITIES)
class TestLoops:
    """Timed loops have the instructions that were meant, as many of them, and nothing that could hide them."""

    @pytest.mark.parametrize(
        ("kernel", "mnemonics"),
        [
            ("chase_l1", {"LDG.E.64", "LDG.E.64.SYS"}),
            ("chase_l2", {"LDG.E.64.STRONG.GPU"}),
            ("chase_atomic", {"ATOMG.E.ADD.64.STRONG.GPU"}),
            ("chase_shared_32", {"LDS", "LDS.U"}),
            ("chase_shared_64", {"LDS.64", "LDS.U.64"}),
            ("chase_shared_128", {"LDS.128", "LDS.U.128"}),
        ],
    )
    def test_chases_are_chains_of_32_loads(self, of, kernel, mnemonics):
        loads = [each for each in body(kernel, of) if each.opcode in ("LDG", "LDS", "ATOMG")]
        assert len(loads) == 32
        assert {each.mnemonic for each in loads} <= mnemonics
        assert is_chain(loads)
        assert len(body(kernel, of)) <= 40

    def test_ffma_are_a_chain(self, of):
        for length in (32, 96):
            chain = [each for each in body(f"ffma_chain_{length}", of) if each.opcode == "FFMA"]
            assert len(chain) == length
            assert is_chain(chain)

    @pytest.mark.parametrize("length", [128, 384])
    def test_ffma_at_their_peak_read_one_register(self, of, length):
        code = [each for each in body(f"ffma_{length}", of) if each.opcode == "FFMA"]
        assert len(code) == length
        assert len({each.writes for each in code}) == 8
        others = [[read for read in each.reads if read.first not in each.writes] for each in code]
        assert all(len(each.reads) == 1 + len(other) for each, other in zip(code, others, strict=True))
        assert len({read.first for each in others for read in each}) <= 2
        assert np.mean([all(read.reuse for read in each) for each in others]) > 0.8
        assert len(body(f"ffma_{length}", of)) <= length + 5

    @pytest.mark.parametrize(
        ("kernel", "lengths"), [("ffma", (128, 384)), ("ffma_chain", (32, 96)), ("barriers", (32, 96))]
    )
    def test_loops_of_two_lengths_differ_in_little_else(self, of, kernel, lengths):
        short, long = (len(body(f"{kernel}_{length}", of)) - length for length in lengths)
        assert 3 <= short <= long <= short + 1  # ptxas leaves the long one of sm_80 by a call

    @pytest.mark.parametrize(
        ("kernel", "mnemonics"),
        [
            ("read_shared", {"LDS.128", "LDS.U.128"}),
            ("read_l1", {"LDG.E.128", "LDG.E.128.SYS"}),
            ("read_past_l1", {"LDG.E.128.STRONG.GPU"}),
            ("write_global", {"STG.E.128", "STG.E.128.SYS"}),
        ],
    )
    def test_streams_have_eight_accesses_of_128_bits_under_way(self, of, kernel, mnemonics):
        code = body(kernel, of)
        accesses = [number for number, each in enumerate(code) if each.opcode in ("LDG", "LDS", "STG")]
        assert len(accesses) == VECTORS
        assert {code[number].mnemonic for number in accesses} <= mnemonics
        if kernel != "write_global":
            loaded = {register for number in accesses for register in code[number].writes}
            assert (
                len(loaded) >= (2 if kernel == "read_shared" else 4) * VECTORS
            )  # half of them will do for shared memory
        assert not any(each.opcode in ("LDL", "STL") for each in code)

    def test_barriers_are_all_there(self, of):
        for length in (32, 96):
            assert [each.opcode for each in body(f"barriers_{length}", of)].count("BAR") == length

    def test_copies_are_waited_for_one_by_one(self, of):
        if of == "7.5":
            pytest.skip("there are none on sm_75")
        order = [each.opcode for each in body("copies", of) if each.opcode in ("LDGSTS", "LDGDEPBAR", "DEPBAR")]
        assert order == ["LDGSTS", "LDGDEPBAR", "DEPBAR"] * 32
        assert {each.mnemonic for each in body("copies", of) if each.opcode == "LDGSTS"} == {"LDGSTS.E.BYPASS.128"}

    @pytest.mark.parametrize("length", [512, 2048])
    def test_code_that_runs_once_is_all_there_and_has_no_loop(self, of, length):
        body("chase_l2", of)  # skips where nothing compiles
        image = compiled("latency", capability(of)).path.read_bytes()
        (function,) = (each for each in disassembled(image, "latency") if each.name == f"straight_{length}")
        assert [each.opcode for each in function.instructions].count("FFMA") == length
        assert loops("latency", of)[f"straight_{length}"] == []

    def test_clocks_are_read_outside_of_loops_only(self, of):
        for kernel in PROGRAMS:
            if kernel not in ("empty", "spin", "copies") and not kernel.startswith("straight"):
                assert not any("CLOCK" in each.text or "TIMER" in each.text for each in body(kernel, of))
