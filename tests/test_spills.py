"""What lacking registers cost, and how many are estimated to be lacking."""

from __future__ import annotations

import numpy as np
import pytest

from campaigns.register_needs import rows
from gemmsim.analytic.spills import REGISTERS_BESIDE, WORDS_OF_ADDRESS, carried, spills
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.kernels.registers import held, needs, registers_needed
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records

H200 = device("h200")
CUBE = Problem(1024, 1024, 1024)


def of(name, text, registers, spilled, **options):
    """The spills of one kernel: block, then thread tile, "128x128x8/8x8"."""
    kernel = KERNELS[name]
    block, thread = text.split("/")
    names = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
    extents = dict(zip(names, map(int, f"{block}x{thread}".split("x")), strict=True))
    tiling = kernel.tiling(**extents, **options)
    return spills(kernel, tiling, kernel.widths(CUBE, tiling), registers, spilled)


def test_enough_registers():
    found = of("double_buffer", "128x128x8/8x8", 255, 0)
    assert (found.lines, found.waits, found.batches) == (0, 0, 1)
    assert found.missing(4, 1024, H200.capability) == 0


def test_addresses_that_spill_are_loaded_once_a_tile():
    found = of("register", "64x64x16/8x8", 255, 30)  # 64 + 8 x 4 + 8 registers for sums and operands
    assert (found.lines, found.waits) == (2 * 30, 0)  # of two warps
    assert found.batches == 1 + (32 - 8) / 40 + (30 / WORDS_OF_ADDRESS) / 3 - 1  # of 32 loads, 8 of them together


def test_sums_that_spill_are_loaded_and_stored_in_every_small_iteration():
    registers = 64 + 16 + REGISTERS_BESIDE - 10
    found = of("vectorized", "128x128x8/8x8", registers, 25)
    again = 8 * 10
    assert found.lines == 8 * (25 + 2 * again)  # of eight warps
    assert found.waits == again / 4


def test_what_a_prefetch_holds_is_waited_for_where_it_spills():
    """64 + 2 x 16 + 20 registers, 16 elements in 4 loads, which have 2 addresses: of 8 elements that find no place 2
    loads wait alone."""
    assert of("double_buffer", "64x64x8/8x8", 64 + 32 + 20 + 16 + 2 - 8, 100).batches == 1 + 8 / 4
    assert of("double_buffer", "64x64x8/8x8", 64 + 32 + 20 + 16 + 2 - 8, 0).batches == 1


def test_tiny_tiles_are_loaded_two_at_once():
    kernel = KERNELS["shared"]

    def batches(block_n: int, block_k: int) -> float:
        tiling = kernel.tiling(block_m=16, block_n=block_n, block_k=block_k)
        return float(spills(kernel, tiling, kernel.widths(CUBE, tiling), 32, 0).batches)

    assert [batches(16, block_k) for block_k in (4, 8, 16)] == [0.5, 0.5, 1]
    assert [batches(32, block_k) for block_k in (4, 8, 16)] == [0.5, 1, 1]  # square ones up to a larger depth


def test_l1_holds_what_shared_memory_leaves():
    found = of("vectorized", "128x128x8/8x8", 255, 64)  # 8 warps x 64 lines of 128 bytes: 64 KB
    whole = H200.capability.unified_cache_bytes // 1024
    assert found.missing(2, 0, H200.capability) == 0
    assert found.missing(8, 0, H200.capability) == pytest.approx(1 - (whole - 8) / (8 * 64))  # 1 KB reserved for each
    assert found.missing(8, 16 * 1024, H200.capability) == pytest.approx(1 - (whole - 8 * 17) / (8 * 64))


def test_what_is_carried():
    kernel = KERNELS["vectorized"]
    tiling = kernel.tiling(block_m=128, block_n=64, block_k=8, thread_m=8, thread_n=8)
    widths = kernel.widths(CUBE, tiling)
    assert carried(tiling, widths) == ((128 * 8 + 8 * 64) / 128, (128 * 8 + 8 * 64) / 4 / 128)


# The estimate of registers


@pytest.mark.parametrize("name", KERNELS)
def test_what_the_compiler_made_of_a_kernel_is_estimated(name):
    """Of kernels with all their registers, on average within 16 %; of others within 25 %."""
    errors = {True: [], False: []}
    for holds, needed, whole, _ in rows(H200)[name]:
        estimated = sum(needs()[name].get(what, 0) * amount for what, amount in holds.items())
        errors[whole].append(abs(estimated / needed - 1))
    assert np.mean(errors[True]) < 0.16
    assert not errors[False] or np.mean(errors[False]) < 0.25


def test_spills_are_foreseen():
    """Of launches that spill most are foreseen, of those that do not few are accused."""
    seen = {}
    for record in read_records(shipped_records("random"))[0]:
        kernel = KERNELS[record.point.kernel]
        if record.ok and kernel.thread_tiled:
            spilled = kernel.resources(record.point.problem, record.point.tiling).spilled
            seen.setdefault(record.resources["local_bytes"] > 0, []).append(spilled > 0)
    assert np.mean(seen[True]) > 0.7
    assert np.mean(seen[False]) < 0.1


def test_addresses_of_smooth_rows_are_spared():
    kernel = KERNELS["vectorized"]
    smooth, rough = (
        kernel.tiling(block_m=64, block_n=n, block_k=32, thread_m=8, thread_n=8, vector=1) for n in (128, 96)
    )
    for tiling in (smooth, rough):
        widths = kernel.widths(CUBE, tiling)
        needed, spared = registers_needed(kernel, tiling, widths)
        assert 0 < spared < needed
        assert spared == needs()["vectorized"]["smooth"] * held(kernel, tiling, widths)["smooth"]
    assert held(kernel, smooth, kernel.widths(CUBE, smooth))["rough"] == 0
    assert held(kernel, rough, kernel.widths(CUBE, rough))["rough"] == 32 * 96 / rough.threads


# In a prediction


def test_local_memory_that_the_compiler_names_counts():
    kernel = KERNELS["register"]
    tiling = kernel.tiling(block_m=128, block_n=64, block_k=48, thread_m=8, thread_n=16, pad_a=8, pad_b=8)
    free, spilled = (predict(CUBE, kernel, tiling, H200, 255, local_bytes=each) for each in (0, 1768))
    assert spilled.resources.spilled == 442
    assert spilled.time_s > 1.5 * free.time_s
