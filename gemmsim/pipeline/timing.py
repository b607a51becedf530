"""How long things take on a multiprocessor: latencies and rates of a GPU, and what each access of a kernel costs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from gemmsim.accesses.classes import LaneAddresses, lane_addresses
from gemmsim.accesses.costs import access_costs
from gemmsim.calibration import Calibration
from gemmsim.coalescing import SECTOR_BYTES, l1_wavefronts, transactions
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling

CODE_INSTRUCTIONS = 2016
"""What a sub-core's cache of code holds. On an H200 loops of up to 31 KB run at full rate, longer ones do not."""
MOVED = (1, 2, 4)
"""Registers of a thread that an access moves."""
BITS_OF_REGISTER = 32
INSTRUCTIONS_OF_LINE = 8
MEMORY_BYTES = 64
"""What memory sends at once: on an H200 each second tile of 32 bytes a row waits for the other operand alone."""


class Cost(NamedTuple):
    """What one request takes on average: lookups of L1's tags, wavefronts of its data stage, bytes of whole sectors,
    and places, runs of bytes with gaps between them. A share of the requests, `along_k`, goes on along the same rows
    from pass to pass, so that only one pass in `passes_apart` meets what memory has not sent yet."""

    lookups: float = 1.0
    wavefronts: float = 1.0
    bytes: float = 0.0
    places: float = 1.0
    along_k: float = 0.0
    passes_apart: float = 1.0


Costs = Mapping[tuple[str, int], Cost]
"""By action and registers moved."""


def costs(problem: Problem, kernel: Kernel, tiling: Tiling, slowest: bool = False) -> Costs:
    """What the requests of each kind and width cost on average, where lanes beyond the matrix ask for nothing.

    Shared accesses by the bank rule; global ones by what hardware showed of L1, wherever its hash is known. Those of
    copies are two: "global_copy" what they write to shared memory, "global_copy_source" what they read. One that reads
    the same place for several lanes writes one of these after the other, as at edges, where lanes beyond the matrix
    read its last row or column again; `slowest`: as in the blocks that do so most, not on average over all blocks.
    """
    sums: dict[tuple[str, int], np.ndarray] = defaultdict(lambda: np.zeros(6))
    if kernel.staged:
        names = {"load": "shared_load", "store": "shared_store", "copy": "global_copy"}
        for each in access_costs(kernel, tiling, kernel.widths(problem, tiling), problem.element_bytes):
            of = names[each.op], each.width_bits // BITS_OF_REGISTER
            sums[of] += (each.requests, 0, each.wavefronts, 0, 0, 0)
    for access in _of_one_class(problem, kernel, tiling):
        name = "global_copy_source" if access.direction == "copy" else f"global_{access.direction}"
        along_k = access.name.endswith("a")
        # Of neighbours along k that are loaded one after the other the first alone misses L1.
        missed = problem.element_bytes / SECTOR_BYTES if along_k and not kernel.staged else 1.0
        sums[name, access.width_bits // BITS_OF_REGISTER] += _in_global(access, along_k and kernel.staged, missed)
    apart = max(1, MEMORY_BYTES // (tiling.block_k * problem.element_bytes)) if kernel.staged else 1
    means = {of: map(float, total[1:] / total[0]) for of, total in sums.items() if total[0]}
    found = {of: Cost(*mean)._replace(passes_apart=apart) for of, mean in means.items()}
    if kernel.copies:
        for width, alike in _alike(problem, kernel, tiling, slowest).items():
            cost = found["global_copy", width]
            found["global_copy", width] = cost._replace(wavefronts=max(cost.wavefronts, alike))
    return found | {
        (name, width): next(cost for (other, _), cost in found.items() if other == name)
        for name in {name for name, _ in found}
        for width in MOVED
        if (name, width) not in found
    }


def _of_one_class(problem: Problem, kernel: Kernel, tiling: Tiling) -> list[LaneAddresses]:
    """The global accesses of the first class of blocks, interior where there are such; along k whole tiles."""
    found: list[LaneAddresses] = []
    for access in lane_addresses(problem, kernel, tiling):
        if access.memory == "global" and access.step in ("whole", "once a block", "last partial"):
            if found and access.blocks != found[0].blocks:
                break
            if access.step != "last partial" or all(other.step != "whole" for other in found):
                found.append(access)
    return found


def _alike(problem: Problem, kernel: Kernel, tiling: Tiling, slowest: bool) -> dict[int, float]:
    """{registers moved: lanes of a copy that read the same place, at most}, on average over copies and blocks."""
    sums: dict[int, dict[str, np.ndarray]] = defaultdict(lambda: defaultdict(lambda: np.zeros(2)))
    for access in lane_addresses(problem, kernel, tiling):
        if access.direction == "copy" and access.memory == "global":
            places = np.where(access.active, access.byte_addresses, -1 - np.arange(access.active.shape[-1]))
            same = (places[..., :, None] == places[..., None, :]).sum(axis=-1).max(axis=-1)
            width = access.width_bits // BITS_OF_REGISTER
            sums[width][access.blocks] += access.times * np.array([same.sum(), same.size])
    found = {}
    for width, by in sums.items():
        lanes, copies = sum(by.values(), np.zeros(2))
        found[width] = max(each[0] / each[1] for each in by.values()) if slowest else lanes / copies
    return found


def _in_global(access: LaneAddresses, along_k: bool, missed: float) -> tuple[float, ...]:
    """(instructions of warps, and of them all the lookups, wavefronts, bytes, places, those along k) of an access, the
    places of the share of requests that misses L1."""
    addresses = np.where(access.active, access.byte_addresses, 0)
    asked = transactions(addresses, access.active, access.width_bits // 8)
    executed, bytes_ = asked.requests.size, SECTOR_BYTES * asked.sectors.sum()
    width = access.width_bits // 8
    ordered = np.sort(np.where(access.active, access.byte_addresses, -1), axis=-1)
    runs = (ordered[..., 1:] - ordered[..., :-1] > width) & (ordered[..., :-1] >= 0)
    places = missed * (runs.sum() + access.active.any(axis=-1).sum())
    goes_on = executed if along_k else 0
    try:
        found = l1_wavefronts(addresses, access.active, access.width_bits // 8)
        return executed, found.tag.sum(), found.data.sum(), bytes_, places, goes_on
    except InputError:  # rows so far apart that the hash is not known: as if every line took a lookup
        return executed, asked.lines.sum(), asked.lines.sum(), bytes_, places, goes_on


@dataclass(frozen=True)
class Timing:
    """Cycles of a multiprocessor, and bytes a cycle, as `run` takes them.

    shared_load_cycles     latency of a shared load beyond its wavefronts, by registers moved
    l1_cycles              of a global load that hits L1
    global_cycles          of one that misses it, without queues, at least; of a copy too
    global_tail_cycles     what it takes longer on average: exponentially distributed
    cold_share             share of those that L2 misses; of them cold_cycles and cold_tail_cycles are told alike
    l1_misses              share of the bytes of global loads that come from below L1
    load_cycles_per_byte   of the multiprocessor's share of what is below L1, reading; store_ the same writing
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
    global_tail_cycles: float = 0.0
    cold_share: float = 0.0
    cold_cycles: float = 0.0
    cold_tail_cycles: float = 0.0
    ffma_late_cycles: float = 0.03
    operand_cycles: float = 12.0
    other_cycles: float = 24.0

    def with_(self, **values: float) -> Timing:
        """The same with other values."""
        return replace(self, **values)  # type: ignore[arg-type]


def timing(device: Device, known: Calibration) -> Timing:
    """The timing of a device's multiprocessor while all of them work, from its calibration, or from what stands in."""

    def of(name: str, default: float) -> float:
        found = known.numbers.get(name)
        return default if found is None else found

    narrow = of("shared_load_latency_32_bit_cycles", 23.0)
    latencies = {
        width: of(f"shared_load_latency_{32 * width}_bit_cycles", narrow + extra) - (width - 1)
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
