"""The numbers that a calibration has, and within which bounds they lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gemmsim.errors import require

BARRIER_WARPS = (4, 8, 16, 32)
WIDTHS_BITS = (32, 64, 128)


@dataclass(frozen=True)
class Calibration:
    """What one GPU was measured to do; None where nobody knows. Cycles are those of a multiprocessor (SM).

    clock_hz                     the SMs' clock under load
    ffma_per_cycle_per_sm        FFMA of all lanes, operands that wait for no register port
    ffma_latency_cycles          from an FFMA to the next that needs it
    shared_load_latency_*        the same of a load, lanes at neighbouring addresses: 1, 2 and 4 wavefronts
    shared_bytes_per_cycle       128-bit loads without conflicts, of one SM
    l1_latency_cycles            a load of one address that hits L1
    l1_bytes_per_cycle           128-bit loads that hit, of one SM
    l2_latency_near_cycles       a load past L1 that hits a small working set; mean over addresses and SMs
    l2_latency_far_cycles        the same in 70 % of L2, more than either half holds, where L2 has two
    l2_latency_spread_cycles     slowest less fastest SM, of the near one
    l2_bytes_per_s               all SMs reading 40 % of L2, each another place
    l2_far_bytes_per_s           the same of 70 %
    l2_same_lines_bytes_per_s    all SMs reading the same addresses at about the same time
    l2_write_bytes_per_s         all SMs writing 40 % of L2
    l2_bytes_per_cycle_per_sm    one SM alone reading
    l2_write_bytes_per_cycle_per_sm   one SM alone writing
    dram_latency_cycles          a load that misses L2
    cold_latency_cycles          the same line after line, other data having been written over L2, which it must write
                                 back first
    cold_slowest_cycles          the slowest of 64 such loads, of neighbouring lines, by a block that waits for all
    cold_rows_slowest_cycles     the same of loads that go each along a row of its own
    l2_slowest_cycles            the same of loads anywhere in L2 that hit it
    l2_line_cycles               of an SM for each line that it asks L2 for while all others do, however little of it;
                                 l2_line_alone_cycles the same while no other does
    code_line_cycles             128 bytes of code that run for the first time, the same done before
    dram_bytes_per_s             reads of memory by all SMs; dram_write_bytes_per_s writes
    barrier_*_warps_cycles       from one __syncthreads to the next, by warps of the block
    launch_s                     an empty kernel as events measure it
    launch_overhead_s            what events measure beyond the time of a kernel's blocks
    block_start_cycles           of an SM for each block of an endless row of empty ones
    block_turnover_cycles        from the end of a block to the start of the next in its place
    copy_latency_cycles          an asynchronous copy from L2 to shared memory, until it has been waited for
    atomic_latency_cycles        an atomic addition in L2 whose result is used

    `own` says whether this GPU itself was calibrated, `inherited` which numbers are not its own all the same, `sources`
    where each is from. Raises InputError for numbers out of range, and for an L2 that is faster far than near.
    """

    device: str
    own: bool = False
    clock_hz: float | None = None
    ffma_per_cycle_per_sm: float | None = None
    ffma_latency_cycles: float | None = None
    shared_load_latency_32_bit_cycles: float | None = None
    shared_load_latency_64_bit_cycles: float | None = None
    shared_load_latency_128_bit_cycles: float | None = None
    shared_bytes_per_cycle: float | None = None
    l1_latency_cycles: float | None = None
    l1_bytes_per_cycle: float | None = None
    l2_latency_near_cycles: float | None = None
    l2_latency_far_cycles: float | None = None
    l2_latency_spread_cycles: float | None = None
    l2_bytes_per_s: float | None = None
    l2_far_bytes_per_s: float | None = None
    l2_same_lines_bytes_per_s: float | None = None
    l2_write_bytes_per_s: float | None = None
    l2_bytes_per_cycle_per_sm: float | None = None
    l2_write_bytes_per_cycle_per_sm: float | None = None
    dram_latency_cycles: float | None = None
    cold_latency_cycles: float | None = None
    cold_slowest_cycles: float | None = None
    cold_rows_slowest_cycles: float | None = None
    l2_slowest_cycles: float | None = None
    l2_line_cycles: float | None = None
    l2_line_alone_cycles: float | None = None
    code_line_cycles: float | None = None
    dram_bytes_per_s: float | None = None
    dram_write_bytes_per_s: float | None = None
    barrier_4_warps_cycles: float | None = None
    barrier_8_warps_cycles: float | None = None
    barrier_16_warps_cycles: float | None = None
    barrier_32_warps_cycles: float | None = None
    launch_s: float | None = None
    launch_overhead_s: float | None = None
    block_start_cycles: float | None = None
    block_turnover_cycles: float | None = None
    copy_latency_cycles: float | None = None
    atomic_latency_cycles: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    inherited: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, value in self.numbers.items():
            least, most, unit = range_of(name)
            require(
                least <= value <= most,
                "{name} must not be {value:.9g}; allowed: {least:.15g} to {most:.15g} {unit}",
                name=name, value=value, least=least, most=most, unit=unit,
            )  # fmt: skip
        near, far = self.l2_latency_near_cycles, self.l2_latency_far_cycles
        require(
            near is None or far is None or far >= 0.9 * near,
            "l2_latency_far_cycles {far} is less than l2_latency_near_cycles {near}", far=far, near=near,
        )  # fmt: skip

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that are known, by name."""
        return {name: getattr(self, name) for name in NAMES if getattr(self, name) is not None}

    def shared_load_latency_cycles(self, width_bits: int) -> float | None:
        """The latency of a shared load of 32, 64 or 128 bits a lane; InputError for other widths."""
        require(width_bits in WIDTHS_BITS, "{w} bits; allowed: 32, 64, 128", w=width_bits)
        found: float | None = getattr(self, f"shared_load_latency_{width_bits}_bit_cycles")
        return found

    def barrier_cycles(self, warps: Any) -> Any:
        """Cycles from one barrier to the next for blocks of so many warps, a number or an array.

        Linear between 4, 8, 16 and 32 warps, constant below; None where one of these is not known.
        """
        known = [getattr(self, f"barrier_{count}_warps_cycles") for count in BARRIER_WARPS]
        return None if None in known else np.interp(warps, BARRIER_WARPS, known)[()]


NAMES = tuple(
    name for name in Calibration.__dataclass_fields__ if name not in ("device", "own", "sources", "inherited")
)


def range_of(name: str) -> tuple[float, float, str]:
    """(least, most, unit) of a number: wide enough for any GPU, too narrow for a wrong unit."""
    if name == "l2_latency_spread_cycles":
        return (0, 2000, "cycles")
    for ending, found in RANGES.items():
        if name.endswith(ending):
            return found
    raise KeyError(name)


RANGES = {
    "l2_line_cycles": (0.1, 100, "cycles"),
    "l2_line_alone_cycles": (0.1, 100, "cycles"),
    "_hz": (1e8, 1e11, "Hz"),
    "_bytes_per_s": (1e9, 1e16, "bytes/s"),
    "_bytes_per_cycle": (1, 1024, "bytes a cycle"),
    "ffma_per_cycle_per_sm": (1, 1024, "FFMA a cycle"),
    "_bytes_per_cycle_per_sm": (1, 1024, "bytes a cycle"),
    "_cycles": (1, 20_000, "cycles"),
    "_s": (1e-8, 1e-2, "s"),
}
