"""Registers that a thread needs, estimated from what it holds: linear, with coefficients for each kernel.

`data/register_needs.toml` has the coefficients; `campaigns/register_needs.py` fits them to what the compiler made of
the kernels of shipped records that are not held out: the registers of a thread, and the words of local memory beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Protocol

import numpy as np

from gemmsim.device import DATA
from gemmsim.elementwise import either, larger, smaller, some_array
from gemmsim.problem import Count, ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling
from gemmsim.toml_files import read_toml

FILE = DATA / "register_needs.toml"
MOST_REGISTERS = 255
"""Registers that an instruction can name (CUDA Programming Guide)."""
REGISTER_FILE = 65536
"""Registers of a multiprocessor; the sources promise the compiler their threads a block, so it keeps a
block within them."""
WARPS_ROUNDED_AT_LAUNCH = 4
"""A launch is checked as if the warps of a block were a multiple of it (cuda_occupancy.h, CUDA 13.0)."""
SUB_CORES = 4
LANE_REGISTERS, SAVED = REGISTER_FILE // SUB_CORES // WARP_SIZE, 0.2
"""Registers of a sub-core for each lane, and the share of what a thread needs that the compiler saves for another
block."""
LEAST_REGISTERS = 32
"""What an estimate is at least: a block gets as many anyway, and nothing is gained by fewer."""
FIRST = 8
"""Vectors of a thread that take more registers than those after them: while few are needed the compiler is lavish."""


class Traits(Protocol):
    """What counts of a kernel (`gemmsim.kernels.Kernel`)."""

    @property
    def name(self) -> str: ...
    @property
    def staged(self) -> bool: ...
    @property
    def transposed(self) -> bool: ...
    @property
    def prefetches(self) -> bool: ...
    @property
    def copies(self) -> bool: ...


class Accesses(Protocol):
    """What counts of the widths of its accesses (`gemmsim.kernels.Widths`)."""

    @property
    def global_a(self) -> Count: ...
    @property
    def global_b(self) -> Count: ...
    @property
    def shared_a(self) -> Count: ...


def estimated_registers(kernel: Traits, tiling: Tiling, widths: Accesses) -> tuple[Count, Count]:
    """(registers of a thread, words of it in local memory): what it needs, rounded up to 8, as far as a thread can have
    as many of a block that still starts; the others spill."""
    needed, spared = registers_needed(kernel, tiling, widths)
    needed, most = np.ceil(needed / 8) * 8, smaller(MOST_REGISTERS, most_registers(tiling))
    registers = smaller(larger(_squeezed(needed, tiling), LEAST_REGISTERS), most)
    taken = registers.astype(np.int64) if some_array((registers,)) else int(registers)
    return taken, larger(0, needed - np.floor(spared) - most)


def _squeezed(needed: Any, tiling: Tiling) -> Any:
    """Registers of a thread that needs so many: the compiler saves some where that lets a second block reside, or a
    third."""
    of_block = 1.0 * ceil_div(tiling.warps, SUB_CORES)
    blocks = np.floor(LANE_REGISTERS * (1 + SAVED) / (of_block * needed))
    fit = np.floor(LANE_REGISTERS / 8 / (of_block * larger(2, blocks))) * 8
    return either((blocks == 2) | (blocks == 3), smaller(needed, fit), needed)


def most_registers(tiling: Tiling) -> Count:
    """Registers of a thread with which a block still starts."""
    counted_warps = ceil_div(tiling.warps, WARPS_ROUNDED_AT_LAUNCH) * WARPS_ROUNDED_AT_LAUNCH
    return REGISTER_FILE // (counted_warps * WARP_SIZE) // 8 * 8


def registers_needed(kernel: Traits, tiling: Tiling, widths: Accesses) -> tuple[Count, Count]:
    """(registers that a thread needs, those of them that it can do without and need not spill); not rounded.

    It can do without the addresses that are computed anew from others as soon as registers are short.
    """
    needed: Count = 0
    coefficients, amounts = needs()[kernel.name], held(kernel, tiling, widths)
    for name, amount in amounts.items():
        if name in coefficients:
            needed = needed + coefficients[name] * amount
    return needed, coefficients.get("smooth", 0) * amounts.get("smooth", 0)


def held(kernel: Traits, tiling: Tiling, widths: Accesses) -> dict[str, Count]:
    """What a thread holds, by what the coefficients are called.

    any           1: sizes, counters, bases
    lone          1 in blocks of one warp, which the compiler gives more, since few fit anyway
    accumulators  of its tile of C
    operands      of an outer product, or of as many as a run of A along k serves
    carried       elements on their way from global memory through a whole tile
    smooth        vectors from global memory in tiles whose rows have a power of two of them: their addresses differ by
                  constants
    rough         vectors of other tiles: an address and a guard each
    first         of both kinds of vectors the first ones, FIRST at most
    """
    found: dict[str, Count] = {"any": 1, "lone": 1 * (tiling.threads <= WARP_SIZE)}
    if not kernel.staged:
        return found
    run = 1 if kernel.transposed else widths.shared_a
    threads = tiling.threads
    row_a, row_b = tiling.block_k // widths.global_a, tiling.block_n // widths.global_b
    vectors_a = ceil_div(tiling.block_m * row_a, threads)
    vectors_b = ceil_div(tiling.block_k * row_b, threads)
    rough_a, rough_b = ((row & (row - 1)) > 0 for row in (row_a, row_b))
    rough = vectors_a * rough_a + vectors_b * rough_b
    found |= {
        "accumulators": tiling.thread_m * tiling.thread_n,
        "operands": tiling.thread_m * run + tiling.thread_n,
        "smooth": vectors_a + vectors_b - rough,
        "rough": rough,
        "first": smaller(FIRST, vectors_a + vectors_b),
    }
    if kernel.prefetches and not kernel.copies:
        found["carried"] = vectors_a * widths.global_a + vectors_b * widths.global_b
    return found


@cache
def needs() -> dict[str, Mapping[str, float]]:
    """{kernel: {what a thread holds: registers for each}}."""
    found = read_toml(FILE)
    return {name: row for name, row in found.items() if isinstance(row, dict)}
