"""What it costs that a thread lacks registers: what lies in local memory instead, and loads that wait for each other.

The compiler says how many registers a thread has and how much local memory it takes; without it both are estimated
(`Kernel.estimated`). Whose values lie there decides what they cost. Accumulators and fragments are needed in every
small iteration: what of them finds no register is loaded and stored again each time. The rest, above all addresses of
what a thread stages, is loaded once for each tile. And a load from global memory needs registers, for its address and
until its value is stored: where there are few, few loads are under way, and a warp waits for one batch after another.

The constants are what nvcc 13.0 makes of kernels of the family for sm_90: rounded, and chosen on compiled kernels whose
measured times are not held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gemmsim.coalescing import LINE_BYTES
from gemmsim.device import Capability
from gemmsim.elementwise import either, larger, smaller, somewhere
from gemmsim.kernels import Kernel, Widths
from gemmsim.problem import ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling

REGISTERS_BESIDE = 12
"""Registers that the innermost loop holds beside accumulators and fragments: bases, counters, bounds."""
STAGING_REGISTERS, REGISTERS_OF_LOAD = 20, 0.5
"""The same while tiles are loaded: sizes and pointers of both matrices too; and an address for every few loads."""
AHEAD_AT_ONCE = 0.25
"""Share of the fragments read ahead that are there beside the present ones: these are free as they are multiplied."""
LOADS_TOGETHER, LOADS_UNDER_WAY = 8, 40
"""Global loads of a tile that nearly all compiled loops have under way at once; of more so many on average."""
LOADS_WITHOUT_ADDRESS, WORDS_OF_ADDRESS = 3, 3
"""Loads under way where their addresses come from local memory, and words there of each such address."""
WORDS_TOGETHER = 4
"""Words of local memory that are loaded before the first of them is waited for."""
UNROLLED_FFMA, UNROLLED_SQUARE_FFMA = 4, 8
"""FFMA of a thread and tile, up to which the compiler unrolls the loop over tiles and loads two at once; more where
tiles of A and B have as many elements, so that one guard serves both."""


@dataclass(frozen=True)
class Spills:
    """What lacking registers cost for each tile of k; numbers or arrays.

    lines       of local memory that the warps of a block move to and from their registers
    held_lines  that they have there
    waits       of a warp for local memory, one after another
    batches     of global loads, each of which a warp waits for: 1 where registers suffice, 0 where copies pass them by
    """

    lines: Any = 0.0
    held_lines: Any = 0.0
    waits: Any = 0.0
    batches: Any = 1.0

    def missing(self, resident: Any, shared_bytes: Any, of: Capability) -> Any:
        """Share of the lines that come from L2: L1 has what `resident` blocks leave of it, and keeps some of more."""
        whole = of.unified_cache_bytes or of.shared_bytes_per_sm
        room = whole - resident * (shared_bytes + of.shared_bytes_reserved_per_block)
        return larger(0.0, 1 - larger(0, room) / larger(1, resident * self.held_lines * LINE_BYTES))


def spills(kernel: Kernel, tiling: Tiling, widths: Widths, registers: Any, spilled: Any) -> Spills:
    """The spills of a kernel whose threads have so many registers and `spilled` words of local memory."""
    warps = ceil_div(tiling.threads, WARP_SIZE)
    spilled = spilled if somewhere(spilled) else 0.0
    if not kernel.staged:
        return Spills(warps * spilled, warps * spilled)
    elements, loads = carried(tiling, widths)
    run = 1 if kernel.transposed else widths.shared_a
    fragments = tiling.thread_m * run + tiling.thread_n
    core = tiling.thread_m * tiling.thread_n + fragments
    held = core + (AHEAD_AT_ONCE * fragments if kernel.prefetches else 0) + REGISTERS_BESIDE
    again = smaller(larger(0, held - registers), spilled) * (tiling.block_k / run)
    if kernel.copies:
        batches = 0.0
    elif kernel.prefetches:  # what is on its way occupies registers through the whole tile
        staged = elements + REGISTERS_OF_LOAD * loads + STAGING_REGISTERS
        lacking = larger(0, core + fragments + staged - registers)
        batches = 1 + smaller(lacking, smaller(elements, spilled)) * (loads / elements)
    else:
        without_address = smaller(loads, spilled / WORDS_OF_ADDRESS)
        more = larger(0, loads - LOADS_TOGETHER) / LOADS_UNDER_WAY
        batches = 1 + more + larger(0, without_address / LOADS_WITHOUT_ADDRESS - 1)
    unrolled = either(tiling.block_m == tiling.block_n, UNROLLED_SQUARE_FFMA, UNROLLED_FFMA)
    tiny = tiling.thread_m * tiling.thread_n * tiling.block_k <= unrolled
    return Spills(
        warps * (spilled + 2 * again), warps * spilled, again / WORDS_TOGETHER, batches * either(tiny, 0.5, 1.0)
    )


def carried(tiling: Tiling, widths: Widths) -> tuple[Any, Any]:
    """(elements, loads or copies) of a thread that carries its share of a tile of k from global to shared memory."""
    a, b = tiling.block_m * tiling.block_k, tiling.block_k * tiling.block_n
    return (a + b) / tiling.threads, (a / widths.global_a + b / widths.global_b) / tiling.threads
