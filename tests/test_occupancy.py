"""Occupancy against NVIDIA's own header, against published cases, and against itself."""

import csv
import dataclasses
import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import slow_occupancy
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.analytic.launch_waves import waves
from gemmsim.device import capabilities, capability, device
from gemmsim.errors import InputError
from gemmsim.occupancy import UNLIMITED, blocks_that_fit, most_registers, most_threads, occupancies, occupancy

REFERENCE = Path(__file__).parent / "data" / "occupancy_reference.csv.gz"


def of(cc, threads, registers, static=0, dynamic=0, **more):
    return occupancy(capability(cc), threads, registers, static, dynamic, **more)


# Cases that cuda_occupancy.h of CUDA 13.0 computed: 2114 for each of 19 capabilities.


def reference_rows():
    with gzip.open(REFERENCE, "rt", newline="") as file:
        return list(csv.DictReader(file))


def columns(rows):
    names = ("threads_per_block", "regs_per_thread", "static_smem", "dynamic_smem", "carveout")
    return [np.array([int(row[name].replace("default", "100")) for row in rows]) for name in names]


def test_every_reference_case_as_arrays():
    compared = 0
    for cc, group in itertools.groupby(reference_rows(), key=lambda row: row["cc"]):
        rows = list(group)
        *block, carveout = columns(rows)
        result = of(cc, *block, carveout=carveout)
        assert result.blocks_per_sm.tolist() == [int(row["active_blocks"]) for row in rows]
        limiters = [
            "|".join(name for name, limiting in result.limiters.items() if limiting[at]) for at in range(len(rows))
        ]
        assert limiters == [row["limiter"] for row in rows]
        compared += len(rows)
    assert compared == 40_166


def test_every_reference_case_in_one_call():
    rows = reference_rows()
    *block, carveout = columns(rows)
    which = np.array([capabilities().index(row["cc"]) for row in rows])
    result = occupancies([capability(name) for name in capabilities()], which, *block, carveout=carveout)
    assert result.blocks_per_sm.tolist() == [int(row["active_blocks"]) for row in rows]
    for name, limiting in result.limiters.items():
        assert limiting.tolist() == [name in row["limiter"].split("|") for row in rows]


def test_reference_cases_one_by_one():
    rows = reference_rows()[::13]
    assert {row["cc"] for row in rows} == set(capabilities())
    for row in rows:
        block = (int(row[name]) for name in ("threads_per_block", "regs_per_thread", "static_smem", "dynamic_smem"))
        carveout = None if row["carveout"] == "default" else int(row["carveout"])
        result = of(row["cc"], *block, carveout=carveout)
        assert (result.blocks_per_sm, "|".join(result.limiters)) == (int(row["active_blocks"]), row["limiter"])
        assert result.launches == (result.blocks_per_sm > 0) == (result.reason is None)


# Published cases: what a tool, a tutorial or a forum got wrong, and the right answer.


@pytest.mark.parametrize(
    ("cc", "threads", "registers", "shared", "blocks", "percent"),
    [
        # 92 -> 96 registers: 3072 a warp, 5 warps a partition, 20 warps: 2 blocks of 7, not 65536 / 3072 / 7 = 3
        ("8.0", 224, 92, 0, 2, 21.875),
        # 41 and 43 registers both round to 48
        ("8.0", 512, 41, 0, 2, 50),
        ("8.0", 512, 43, 0, 2, 50),
        ("8.0", 1024, 41, 0, 1, 50),
        ("8.0", 1024, 43, 0, 1, 50),
        # the spreadsheet's 4 on 5.2 assumes partitioned global caching, which is off by default
        ("5.0", 128, 85, 0, 5, 31.25),
        ("5.2", 128, 85, 0, 5, 31.25),
        # 700 threads are 22 warps: 44 of 64, not 1400 of 2048 threads
        ("8.0", 700, 32, 0, 2, 68.75),
        # 12 warps in each quarter of the register file, not 65536 / 1280 = 51 in the whole
        ("8.0", 256, 40, 0, 6, 75),
        # 48 warps and 16 blocks an SM
        ("8.6", 64, 16, 0, 16, 200 / 3),
        ("8.6", 96, 16, 0, 16, 100),
        ("8.6", 384, 16, 0, 4, 100),
        ("8.6", 768, 16, 0, 2, 100),
        ("8.6", 1024, 16, 0, 1, 200 / 3),
        # a textbook exercise; without rounding 34 to 40 registers the last would hold 7 blocks
        ("8.0", 128, 30, 0, 16, 100),
        ("8.0", 32, 29, 0, 32, 50),
        ("8.0", 256, 34, 0, 6, 75),
        # padding A cost 5 registers, so 2 warps a partition instead of 3
        ("8.6", 128, 168, 16384, 3, 25),
        ("8.6", 128, 173, 16640, 2, 100 / 6),
        # low occupancy, and yet a fast kernel
        ("8.6", 256, 197, 32768, 1, 100 / 6),
        # pycuda.tools.OccupancyRecord says 8 blocks, 50 %
        ("8.0", 128, 32, 0, 16, 100),
        # a script that divides registers by shared bytes says 100 %, 200 %, and fails on the other two
        ("7.0", 32, 16, 1024, 32, 50),
        ("7.0", 256, 16, 1024, 8, 100),
        ("7.0", 256, 16, 0, 8, 100),
        ("8.0", 256, 16, 1024, 8, 100),
    ],
)
def test_published_cases(cc, threads, registers, shared, blocks, percent):
    result = of(cc, threads, registers, dynamic=shared)
    assert result.blocks_per_sm == blocks
    assert result.warps_per_sm == blocks * -(-threads // 32)
    assert 100 * result.occupancy == pytest.approx(percent)


def test_limiters_of_published_cases():
    assert of("8.0", 32, 29).limiters == ("blocks",)
    assert of("8.0", 256, 34).limiters == ("registers",)
    assert of("8.6", 256, 197, 32768).limiters == ("registers",)
    assert of("8.0", 128, 30).limiters == ("warps", "registers")  # ties are all named


def test_capability_below_those_supported():
    # a GTX 480: 4 blocks by the rules of its time, which the header no longer holds
    with pytest.raises(InputError, match=r"'2\.0' is not supported; supported: 5\.0 to 12\.1"):
        of("2.0", 256, 25, 3568)


def test_block_too_large_for_its_registers():
    # 8.9: 162 -> 168 registers; 16 warps need 86016 > 65536, 12 warps 64512
    result = of("8.9", 512, 162)
    assert (result.launches, result.blocks_per_sm, result.limiters) == (False, 0, ("registers",))
    assert result.reason is not None
    assert "86016 registers" in result.reason
    assert "up to 128 registers a thread or up to 384 threads" in result.reason
    assert of("8.9", 256, 162).blocks_per_sm == 1
    assert of("8.9", 384, 162).launches
    assert not of("8.9", 385, 162).launches


def test_launch_check_rounds_warps_up():
    # 10.0, 200 registers: 9 warps count as 12 -> 76800 > 65536, although 9 x 6400 = 57600 would fit
    assert not of("10.0", 288, 200).launches
    assert not of("10.0", 320, 200).launches
    largest = of("10.0", 256, 200)
    assert largest.blocks_per_sm == 1
    assert largest.warps_per_sm * 32 == 256
    assert most_threads(capability("10.0"), 200) == 256


@pytest.mark.parametrize(("cc", "most"), [("8.0", 82_944), ("8.6", 50_176), ("9.0", 115_712)])
def test_each_block_costs_a_reserved_kilobyte(cc, most):
    # (164, 100, 228 KB) / 2 - 1 KB for two blocks; a kilobyte more leaves one
    assert of(cc, 128, 32, dynamic=most).blocks_per_sm == 2
    assert of(cc, 128, 32, dynamic=most + 1).blocks_per_sm == 1
    assert of(cc, 128, 32, dynamic=most + 1024).blocks_per_sm == 1


def test_opt_in_above_48_kb():
    assert of("7.0", 256, 32, dynamic=98_304).blocks_per_sm == 1
    without = of("7.0", 256, 32, dynamic=98_304, opt_in=False)
    assert not without.launches
    assert without.reason is not None
    assert "up to 49152 bytes, or up to 98304 with the opt-in" in without.reason
    assert of("7.0", 256, 32, dynamic=49_152, opt_in=False).launches
    assert not of("7.0", 256, 32, dynamic=49_153, opt_in=False).launches


def test_stages_that_fit():
    def stages(count):
        return count * (128 * 64 + 64 * 256) * 2

    assert (stages(4), stages(3)) == (196_608, 147_456)
    fits = {cc: [of(cc, 256, 32, dynamic=stages(n)).launches for n in (4, 3)] for cc in ("8.0", "8.6", "9.0")}
    assert fits == {"8.0": [False, True], "8.6": [False, False], "9.0": [True, True]}


def test_limit_of_a_block_on_an_rtx_3090():
    chip = device("rtx-3090").capability
    assert chip.shared_bytes_per_block_optin == 101_376  # 100 KB of the SM less the reserved one
    result = occupancy(chip, 128, 32, dynamic_shared_bytes=110_592)
    assert not result.launches
    assert result.reason is not None
    assert "up to 101376 bytes" in result.reason


@pytest.mark.parametrize(("threads", "shared", "warps"), [(64, 8192, (4, 3)), (256, 16384, (4, 2))])
def test_warps_per_scheduler_at_129_registers(threads, shared, warps):
    # 5.2: 129 -> 136 registers, 3 warps a quarter; a block of 256 needs 2 a quarter, so one fits
    assert tuple(of("5.2", threads, registers, shared).warps_per_sm / 4 for registers in (128, 129)) == warps


def test_shared_memory_alone_and_the_waves_of_it():
    assert of("12.0", 128, 32, dynamic=9216).limits["shared_memory"] == 10  # 102400 / (9216 + 1024)
    assert waves(340, 170, 3).count == pytest.approx(0.667, abs=5e-4)


# What does not launch, and what would.

blocks_of_threads = st.integers(1, 1024)
register_counts = st.integers(0, 255)
shared_sizes = st.integers(0, 240_000)
any_capability = st.sampled_from(capabilities())


@given(any_capability, st.integers(0, 1100), st.integers(0, 300), shared_sizes, st.booleans())
def test_reason_names_what_would_launch(cc, threads, registers, dynamic, opt_in):
    result = of(cc, threads, registers, dynamic=dynamic, opt_in=opt_in)
    assert (result.reason is None) == result.launches
    if result.reason is not None:
        assert "\n" not in result.reason
        assert result.reason.count("launches with") == sum(limit == 0 for limit in result.limits.values())


@given(any_capability, blocks_of_threads, register_counts)
def test_most_registers_and_threads_are_the_edge(cc, threads, registers):
    chip = capability(cc)
    most = int(most_registers(chip, threads))
    assert occupancy(chip, threads, most).launches
    assert most == 255 or not occupancy(chip, threads, most + 1).launches
    largest = int(most_threads(chip, registers))
    assert occupancy(chip, largest, registers).launches
    assert largest == 1024 or not occupancy(chip, largest + 1, registers).launches


def test_no_threads_and_too_many_are_answers():
    for threads in (0, 1025, 5000):
        result = of("9.0", threads, 32)
        assert (result.blocks_per_sm, result.warps_per_sm, result.occupancy, result.launches) == (0, 0, 0, False)
        assert "warps" in result.limiters
        assert result.reason is not None
        assert f"cannot have {threads} threads; it launches with 1 to 1024" in result.reason


def test_more_registers_than_any_instruction_names_are_an_answer():
    result = of("9.0", 128, 300)
    assert (result.blocks_per_sm, result.limiters) == (0, ("registers",))
    assert "allowed are 65536 a block and 255 a thread; it launches with up to 255 registers a thread" in result.reason


def test_more_barriers_than_a_block_can_name_are_an_answer():
    for cc in ("9.0", "8.0", "5.0"):  # whether the barriers of an SM are counted or not
        result = of(cc, 32, 32, barriers=17)
        assert (result.blocks_per_sm, result.limiters) == (0, ("barriers",))
        assert "17 barriers, the PTX ISA numbers 16 of them, 0 to 15; it launches with up to 16" in result.reason


@pytest.mark.parametrize("name", ["threads", "registers", "static_shared_bytes", "dynamic_shared_bytes", "barriers"])
@pytest.mark.parametrize("number", [2**31 - 1, 2**31, 2**63 - 1, 10**30])
def test_no_number_is_too_large_to_be_an_answer(name, number):
    block = {"threads": 256, "registers": 32, name: number}
    result = occupancy(capability("9.0"), **block)
    assert (result.blocks_per_sm, result.warps_per_sm, result.launches) == (0, 0, False)
    assert str(number) in result.reason
    assert "up to 0 " not in result.reason
    if number < 2**63:
        assert occupancy(capability("9.0"), **{**block, name: np.array([number, 1])}).blocks_per_sm[0] == 0


def test_all_at_once_too_large():
    most = np.array([2**63 - 1])
    assert of("5.0", most, most, most, most, barriers=most).blocks_per_sm.tolist() == [0]
    assert "of both" in of("5.0", 10**9, 10**9).reason


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"threads": -1}, "threads -1 is out of range"),
        ({"registers": -8}, "registers -8 is out of range"),
        ({"dynamic_shared_bytes": -1}, "dynamic_shared_bytes -1 is out of range"),
        ({"barriers": -1}, "barriers -1 is out of range"),
        ({"threads": np.array([1.5])}, "threads must be an array of whole numbers, not of float64"),
        ({"threads": 12.5}, "threads 12.5 is not a whole number"),
        ({"registers": "many"}, "registers 'many' is not a whole number"),
        ({"carveout": 101}, "carveout 101 is out of range; allowed: whole numbers from 0 to 100"),
        ({"carveout": -1}, "carveout -1 is out of range"),
        ({"threads": np.array([32, -5, 64])}, "threads -5 is out of range"),
        (
            {"threads": np.array([32, 64]), "registers": np.array([1, 2, 3])},
            r"shapes \(2,\), \(3,\) do not go together",
        ),
    ],
)
def test_unusable_input(arguments, said):
    with pytest.raises(InputError, match=said):
        occupancy(capability("9.0"), **{"threads": 256, "registers": 32, **arguments})


# Properties.

block_numbers = (
    st.integers(0, 1100),
    st.integers(0, 300),
    st.integers(0, 60_000),
    shared_sizes,
    st.integers(0, 100),
    st.integers(0, 20),
)


@given(any_capability, *block_numbers, st.booleans())
def test_an_sm_filled_block_by_block_holds_as_many(cc, threads, registers, static, dynamic, carveout, barriers, opt_in):
    block = (threads, registers, static, dynamic, carveout, barriers)
    result = of(cc, *block[:4], carveout=carveout, barriers=barriers, opt_in=opt_in)
    expected = slow_occupancy.blocks_per_sm(capability(cc), *block, opt_in=opt_in)
    assert (result.blocks_per_sm, list(result.limiters)) == expected


@given(st.lists(st.tuples(st.integers(0, len(capabilities()) - 1), *block_numbers), max_size=20), st.booleans())
def test_cases_of_many_capabilities_are_those_of_each(cases, opt_in):
    chips = [capability(name) for name in capabilities()]
    together = occupancies(chips, *np.array(cases, int).reshape(-1, 7).T, opt_in=opt_in)
    for at, (which, *block) in enumerate(cases):
        alone = occupancy(chips[which], *block, opt_in=opt_in)
        assert together.blocks_per_sm[at] == alone.blocks_per_sm
        assert together.warps_per_sm[at] == alone.warps_per_sm
        assert together.occupancy[at] == alone.occupancy
        assert {name: int(limit[at]) for name, limit in together.limits.items()} == alone.limits
        assert tuple(name for name, limiting in together.limiters.items() if limiting[at]) == alone.limiters


def test_cases_of_many_capabilities_in_any_shape():
    chips, which = [capability("8.0"), capability("8.6")], np.array([[0, 1], [1, 0], [0, 0]])
    together = occupancies(chips, which, 256, np.array([40, 200]))
    assert together.blocks_per_sm.tolist() == [[6, 1], [6, 1], [6, 1]]
    assert together.occupancy.tolist() == [[0.75, 8 / 48], [1.0, 8 / 64], [0.75, 8 / 64]]
    assert all(limit.shape == (3, 2) for limit in together.limits.values())
    assert occupancies(chips, np.array([], int), 256, 40).blocks_per_sm.shape == (0,)
    assert occupancies(chips, 1, 256, 40).blocks_per_sm == 6


def test_a_capability_that_is_not_in_the_list():
    with pytest.raises(InputError, match="which 1 is out of range; allowed: whole numbers from 0 to 0"):
        occupancies([capability("9.0")], np.array([0, 1]), 32, 32)


@given(
    any_capability,
    st.lists(st.tuples(*block_numbers), min_size=1, max_size=20),
    st.booleans(),
)
def test_arrays_equal_single_cases(cc, cases, opt_in):
    chip = capability(cc)
    together = occupancy(chip, *np.array(cases).T, opt_in=opt_in)
    assert isinstance(together.limiters, dict)
    for at, case in enumerate(cases):
        alone = occupancy(chip, *case, opt_in=opt_in)
        assert together.blocks_per_sm[at] == alone.blocks_per_sm
        assert together.warps_per_sm[at] == alone.warps_per_sm
        assert together.occupancy[at] == alone.occupancy
        assert together.launches[at] == alone.launches
        assert {name: int(limit[at]) for name, limit in together.limits.items()} == alone.limits
        assert tuple(name for name, limiting in together.limiters.items() if limiting[at]) == alone.limiters


def test_plain_numbers_go_with_arrays():
    threads = np.array([[64, 128], [256, 512]])
    result = of("9.0", threads, 32)
    assert result.blocks_per_sm.tolist() == [[32, 16], [8, 4]]
    assert all(limit.shape == (2, 2) for limit in result.limits.values())
    assert result.reason is None
    assert of("9.0", np.array([], dtype=int), 32).blocks_per_sm.size == 0


@given(any_capability, blocks_of_threads, register_counts, shared_sizes, st.data())
def test_more_of_anything_never_fits_more_blocks(cc, threads, registers, dynamic, data):
    chip = capability(cc)

    def blocks(registers=registers, static=0, dynamic=dynamic, barriers=1, carveout=100, opt_in=True):
        return occupancy(chip, threads, registers, static, dynamic, carveout, barriers, opt_in=opt_in).blocks_per_sm

    now = blocks()
    assert blocks(registers=registers + data.draw(st.integers(0, 60))) <= now
    assert blocks(dynamic=dynamic + data.draw(st.integers(0, 9000))) <= now
    assert blocks(static=data.draw(st.integers(0, 9000))) <= now
    assert blocks(barriers=data.draw(st.integers(1, 16))) <= now
    assert blocks(carveout=data.draw(st.integers(0, 100))) <= now
    assert blocks(opt_in=False) <= now


@given(any_capability, blocks_of_threads, register_counts, shared_sizes)
def test_what_is_resident_is_there(cc, threads, registers, dynamic):
    chip = capability(cc)
    result = occupancy(chip, threads, registers, dynamic_shared_bytes=dynamic)
    warps = result.warps_per_sm
    assert warps <= chip.max_warps_per_sm
    assert 0 <= result.occupancy <= 1
    assert warps * 32 * registers <= chip.registers_per_sm
    assert result.blocks_per_sm * (dynamic + chip.shared_bytes_reserved_per_block) <= chip.shared_bytes_per_sm
    assert result.blocks_per_sm == min(result.limits.values())
    assert result.limiters == tuple(name for name, limit in result.limits.items() if limit == result.blocks_per_sm)


def test_what_is_not_used_does_not_limit():
    limits = of("7.0", 32, 0, barriers=0).limits
    assert limits == {
        "warps": 64,
        "registers": UNLIMITED,
        "shared_memory": UNLIMITED,
        "blocks": 32,
        "barriers": UNLIMITED,
    }


def test_carve_out_is_the_next_size_up():
    # 9.0: 43 % of 228 KB is under 100 KB, 44 % over it, so 132 KB; a block of 9 KB takes 10
    assert [of("9.0", 32, 32, dynamic=9216, carveout=percent).blocks_per_sm for percent in (43, 44)] == [10, 13]
    assert of("9.0", 32, 32, dynamic=132_000, carveout=0).blocks_per_sm == 1  # a preference, not a limit


def test_one_case_is_plain_numbers():
    result = of("9.0", 256, 96, dynamic=4096)
    answer = json.loads(json.dumps(dataclasses.asdict(result)))
    assert answer == {
        "blocks_per_sm": 2,  # 3072 registers a warp: 5 warps in each of 4 partitions, 8 a block
        "warps_per_sm": 16,
        "occupancy": 0.25,
        "limits": {"warps": 8, "registers": 2, "shared_memory": 45, "blocks": 32, "barriers": 64},
        "limiters": ["registers"],
        "launches": True,
        "reason": None,
    }
    assert {type(limit) for limit in (result.blocks_per_sm, result.warps_per_sm, *result.limits.values())} == {int}


def test_barriers_count_from_hopper_on():
    assert of("9.0", 32, 32, barriers=16).blocks_per_sm == 64 // 16
    assert of("9.0", 32, 32, barriers=16).limiters == ("barriers",)
    assert of("8.0", 32, 32, barriers=16).blocks_per_sm == 32


@given(st.integers(1, 1024), st.integers(1, 255), st.integers(0, 230_000))
def test_blocks_that_fit_are_those_of_the_occupancy(threads, registers, shared_bytes):
    for name in ("h200", "t4"):
        chip = device(name).capability
        found = occupancy(chip, threads, registers, dynamic_shared_bytes=shared_bytes).blocks_per_sm
        assert blocks_that_fit(chip, threads, registers, shared_bytes) == found
        assert blocks_that_fit(chip, threads, np.array([registers]), np.array([shared_bytes])) == found
