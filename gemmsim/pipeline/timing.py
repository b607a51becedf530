"""How long things take on a multiprocessor: latencies and rates of a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from gemmsim.calibration import Calibration
from gemmsim.device import Device

CODE_INSTRUCTIONS = 2016
"""What a sub-core's cache of code holds. On an H200 loops of up to 31 KB run at full rate, longer ones do not."""
MOVED = (1, 2, 4)
"""Registers of a thread that an access moves."""
INSTRUCTIONS_OF_LINE = 8
BARRIER_HELD_CYCLES = 4.0
"""What a barrier that all warps of a block have reached holds of the data stage: on an H200 64 warps that only access
shared memory take 14.3 cycles each and pass, their 14 wavefronts, but 18.0, 16.3, 15.5, 14.9 and 14.6 with two barriers
a pass and 2, 4, 8, 16 and 32 warps a block, which is 3.7 to 5.9 for each barrier."""


class Shares(NamedTuple):
    """A share, or a number, of each operand's tiles."""

    a: float
    b: float


NOTHING, ALL = Shares(0.0, 0.0), Shares(1.0, 1.0)


@dataclass(frozen=True)
class Timing:
    """Cycles of a multiprocessor, and bytes a cycle, as `run` takes them.

    shared_load_cycles     latency of a shared load whose lanes are neighbours, by registers moved
    l1_cycles              of a global load that hits L1
    global_cycles          of one that misses it, without queues, at least; of a copy too
    global_tail_cycles     what it takes longer on average: exponentially distributed
    cold_share             share of those that L2 misses, of A and of B; of them cold_cycles and cold_tail_cycles are
                           told alike
    l1_misses              share of the bytes of global loads that come from below L1
    load_cycles_per_byte   of the multiprocessor's share of what is below L1, reading; store_ the same writing
    line_cycles            the same of each line that is asked for, however little of it
    barrier_cycles, arrival_cycles   from the last arrival at a barrier on; between two arrivals
    ffma_late_cycles       that an FFMA takes beyond what the register ports say
    operand_cycles         until a store or a load has read its operands
    other_cycles           of results with a scoreboard that come from no memory
    code_cycles            for each instruction that is not in the sub-core's cache of code
    fence_cycles           until what a warp wrote can be seen by all multiprocessors
    atomic_cycles          until the result of an atomic is there
    block_start_cycles     from block to block when a launch begins; block_turnover_cycles from a block's end to the
                           start of the next in its place
    """

    shared_load_cycles: Mapping[int, float]
    l1_cycles: float
    global_cycles: float
    load_cycles_per_byte: float
    store_cycles_per_byte: float
    barrier_cycles: float
    arrival_cycles: float
    code_cycles: float
    fence_cycles: float
    atomic_cycles: float
    block_start_cycles: float
    block_turnover_cycles: float
    l1_misses: float = 1.0
    line_cycles: float = 0.0
    global_tail_cycles: float = 0.0
    cold_share: Shares = NOTHING
    cold_cycles: float = 0.0
    cold_tail_cycles: float = 0.0
    ffma_late_cycles: float = 0.03
    operand_cycles: float = 12.0
    other_cycles: float = 24.0

    def with_(self, **values: float | Shares) -> Timing:
        """The same with other values."""
        return replace(self, **values)  # type: ignore[arg-type]


def timing(device: Device, known: Calibration) -> Timing:
    """The timing of a device's multiprocessor while all of them work, from its calibration, or from what stands in."""

    def of(name: str, default: float) -> float:
        found = known.numbers.get(name)
        return default if found is None else found

    narrow = of("shared_load_latency_32_bit_cycles", 23.0)
    latencies = {
        width: of(f"shared_load_latency_{32 * width}_bit_cycles", narrow + extra)
        for width, extra in zip(MOVED, (0, 3, 9), strict=True)
    }
    few, many = of("barrier_4_warps_cycles", 20.0), of("barrier_32_warps_cycles", 76.0)
    arrival = (many - few) / 28
    near = of("l2_latency_near_cycles", 270.0)
    far = of("l2_latency_far_cycles", near)
    cycles_a_second = device.sms * device.clock_hz
    return Timing(
        latencies,
        of("l1_latency_cycles", 34.0),
        near,
        cycles_a_second / of("l2_bytes_per_s", device.l2_bytes_per_s),
        cycles_a_second / of("l2_write_bytes_per_s", device.l2_bytes_per_s / 2),
        few - 4 * arrival,
        arrival,
        of("code_line_cycles", 20.0) / INSTRUCTIONS_OF_LINE,
        near + far,
        of("atomic_latency_cycles", 700.0),
        of("block_start_cycles", 150.0),
        of("block_turnover_cycles", 500.0),
    )
