"""Registers that a thread needs, estimated from what it holds: linear, with coefficients for each kernel.

`data/register_needs.toml` has the coefficients; `campaigns/register_needs.py` fits them to what the compiler made of
the kernels of shipped records that are not held out: the registers of a thread, and the words of local memory beside.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import Protocol

from gemmsim.device import DATA
from gemmsim.problem import Count, ceil_div, smaller
from gemmsim.tiling import WARP_SIZE, Tiling

FILE = DATA / "register_needs.toml"
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
    found = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {name: row for name, row in found.items() if isinstance(row, dict)}
