"""How many blocks one SM holds, and what limits them.

The formulas are those of NVIDIA's occupancy header (cuda_occupancy.h, CUDA 13.0), in its order, with
partitioned global caching off. Plain numbers and int64 arrays go through the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from gemmsim.device import Capability
from gemmsim.elementwise import either, larger, smaller, some_array
from gemmsim.notebook import as_table
from gemmsim.problem import LARGEST_COUNT, Count, ceil_div, require_one_shape, whole_number
from gemmsim.tiling import WARP_SIZE

UNLIMITED = 2**31 - 1
"""The limit of a resource that the block does not use, as the header has it."""
LARGEST_DEMAND = 2**31 - 1
"""More of anything is counted as this: no GPU has so much, and no product of two such passes 2^63."""
MOST_BARRIERS = 16
"""Barriers that a block can name (PTX ISA, instruction `barrier`: 16 a block, numbered 0 to 15)."""
RESOURCES = ("warps", "registers", "shared_memory", "blocks", "barriers")
"""What can limit the blocks of an SM, in the order in which limits are given."""


@dataclass(frozen=True)
class Occupancy:
    """What fits on one SM.

    `occupancy` is resident over possible warps, 0 to 1. `limits` has the blocks that each of RESOURCES
    alone allows, UNLIMITED where the block uses none. For one case `limiters` are the names of all limits
    that equal `blocks_per_sm`, and `reason` says why a block does not launch and what would make it. For
    arrays the numbers are arrays, `limiters` has for each name where it limits, and `reason` is None.
    """

    blocks_per_sm: Count
    warps_per_sm: Count
    occupancy: Any
    limits: Mapping[str, Count]
    limiters: tuple[str, ...] | Mapping[str, Any]
    launches: Any
    reason: str | None

    _repr_html_ = as_table


def occupancy(
    capability: Capability,
    threads: Count,
    registers: Count,
    static_shared_bytes: Count = 0,
    dynamic_shared_bytes: Count = 0,
    carveout: Count | None = None,
    barriers: Count = 1,
    *,
    opt_in: bool = True,
) -> Occupancy:
    """Occupancy of blocks of `threads` threads with `registers` each and these bytes of shared memory.

    `carveout` is the percentage of shared memory preferred (0 to 100); None, the driver's default, is
    the most there is. `barriers` are those of a block; they limit its number from compute capability 9.0 on.
    Without `opt_in` a block has no more than the default 48 KB of shared memory, as in a launch that
    does not set cudaFuncAttributeMaxDynamicSharedMemorySize.

    A block that cannot launch is an answer: no blocks. Raises InputError for numbers that are not
    whole, or negative.
    """
    block = _demand(threads, registers, static_shared_bytes, dynamic_shared_bytes, carveout, barriers)
    limits = _alike(_limits(capability, opt_in, *map(_counted, block)))
    reason = None
    if not (some_array(limits.values()) or all(limits.values())):
        reason = _reason(capability, block, opt_in, limits)
    return _resident(limits, _counted(block[0]), capability.max_warps_per_sm, reason)


def blocks_that_fit(capability: Capability, threads: Count, registers: Count, shared_bytes: Count) -> Count:
    """Blocks that one SM holds, as `occupancy` has them, of counts that are known to be some: nothing is checked."""
    return reduce(smaller, _limits(capability, True, threads, registers, 0, shared_bytes, 100, 1).values())


def occupancies(
    capabilities: Sequence[Capability],
    which: Count,
    threads: Count,
    registers: Count,
    static_shared_bytes: Count = 0,
    dynamic_shared_bytes: Count = 0,
    carveout: Count | None = None,
    barriers: Count = 1,
    *,
    opt_in: bool = True,
) -> Occupancy:
    """As `occupancy` for arrays, each case on a capability of its own: that of number `which`."""
    which = whole_number(np.asarray(which), "which", 0, len(capabilities) - 1)
    block = _demand(threads, registers, static_shared_bytes, dynamic_shared_bytes, carveout, barriers)
    require_one_shape(which, *block)
    which, *demands = np.broadcast_arrays(which, *map(_counted, block))
    order = np.argsort(which.astype(np.int16), axis=None, kind="stable")  # so each capability has its cases together
    demands = [demand.ravel()[order] for demand in demands]
    limits = {name: np.empty(which.size, np.int64) for name in RESOURCES}
    ends = np.cumsum(np.bincount(which.ravel(), minlength=len(capabilities))).tolist()
    for chip, start, end in zip(capabilities, [0, *ends], ends, strict=False):
        for name, limit in _limits(chip, opt_in, *(demand[start:end] for demand in demands)).items():
            limits[name][order[start:end]] = limit
    shaped = {name: limit.reshape(which.shape) for name, limit in limits.items()}
    most_warps = np.array([chip.max_warps_per_sm for chip in capabilities])
    return _resident(shaped, _counted(block[0]), most_warps[which], None)


def warp_limit(capability: Capability, threads: Count) -> Count:
    """Blocks of this many threads that the warp slots of an SM hold."""
    startable = (threads > 0) & (threads <= capability.max_threads_per_block)
    return startable * (capability.max_warps_per_sm // _warps(threads))


def register_limit(capability: Capability, threads: Count, registers: Count) -> Count:
    """Blocks that the register file holds; 0 where the launch check refuses the block.

    A sub-partition gives whole warps out of its own share, in units of registers a warp. The check
    takes the block as if its warps filled all sub-partitions alike.
    """
    warps = _warps(threads)
    per_warp = _registers_per_warp(capability, registers)
    checked = per_warp * _round_up(warps, capability.warps_rounded_at_launch)
    launchable = (checked <= capability.registers_per_block) & (registers <= capability.registers_per_thread_launchable)
    warps_per_partition = capability.registers_per_sm // capability.sub_partitions // larger(per_warp, 1)
    limit = warps_per_partition * capability.sub_partitions // warps
    return launchable * either(per_warp == 0, UNLIMITED, limit)


def shared_limit(capability: Capability, used: Count, percent: Count, opt_in: bool) -> Count:
    """Blocks with `used` bytes of shared memory each that fit, at a preferred carve-out in percent.

    The carve-out is the smallest size that the capability has for the preference and for one block.
    """
    reserved = capability.shared_bytes_reserved_per_block
    allocated = _round_up(used + reserved, capability.shared_allocation_unit)
    launchable = allocated <= reserved + _most_shared(capability, opt_in)
    wanted = percent * capability.shared_bytes_per_sm // 100
    sizes = np.array(capability.carveouts_bytes)
    size = sizes[-1]
    if some_array((percent,)) or wanted < size:
        size = sizes[smaller(np.searchsorted(sizes, larger(wanted, allocated)), len(sizes) - 1)]
    return launchable * either(allocated == 0, UNLIMITED, size // larger(allocated, 1))


def barrier_limit(capability: Capability, barriers: Count) -> Count:
    """Blocks that the barriers of an SM are enough for; UNLIMITED where they are not counted, 0 where a block has
    more than it can name."""
    limit = capability.barriers_per_sm // larger(barriers, 1) if capability.barriers_limit_blocks else UNLIMITED
    return (barriers <= MOST_BARRIERS) * either(barriers == 0, UNLIMITED, limit)


def most_registers(capability: Capability, threads: Count) -> Count:
    """The most registers a thread with which the register file can launch blocks of this many threads."""
    per_warp = capability.registers_per_block // _round_up(_warps(threads), capability.warps_rounded_at_launch)
    unit = capability.register_allocation_unit
    return smaller(per_warp // unit * unit // WARP_SIZE, capability.registers_per_thread)


def most_threads(capability: Capability, registers: Count) -> Count:
    """The largest block that launches with this many registers a thread; 0 if none does."""
    warps = capability.registers_per_block // larger(_registers_per_warp(capability, registers), 1)
    rounded = warps // capability.warps_rounded_at_launch * capability.warps_rounded_at_launch
    startable = registers <= capability.registers_per_thread_launchable
    return startable * smaller(rounded * WARP_SIZE, capability.max_threads_per_block)


def _demand(
    threads: Count, registers: Count, static: Count, dynamic: Count, carveout: Count | None, barriers: Count
) -> tuple[Count, ...]:
    """What a block asks for, in the order of the arguments, each a whole number or an array of them."""
    block = (
        whole_number(threads, "threads", 0, _most(threads)),
        whole_number(registers, "registers", 0, _most(registers)),
        whole_number(static, "static_shared_bytes", 0, _most(static)),
        whole_number(dynamic, "dynamic_shared_bytes", 0, _most(dynamic)),
        whole_number(100 if carveout is None else carveout, "carveout", 0, 100),
        whole_number(barriers, "barriers", 0, _most(barriers)),
    )
    require_one_shape(*block)
    return block


def _most(value: Any) -> int:
    """No upper limit: too much is an answer. Whole numbers of Python's can pass all that arrays hold."""
    return max(value, LARGEST_COUNT) if isinstance(value, int) else LARGEST_COUNT


def _counted(demand: Count) -> Count:
    return smaller(demand, LARGEST_DEMAND)


def _limits(
    capability: Capability,
    opt_in: bool,
    threads: Count,
    registers: Count,
    static: Count,
    dynamic: Count,
    percent: Count,
    barriers: Count,
) -> dict[str, Count]:
    """The blocks that each of RESOURCES alone allows."""
    return {
        "warps": warp_limit(capability, threads),
        "registers": register_limit(capability, threads, registers),
        "shared_memory": shared_limit(capability, static + dynamic, percent, opt_in),
        "blocks": capability.max_blocks_per_sm,
        "barriers": barrier_limit(capability, barriers),
    }


def _resident(limits: Mapping[str, Count], threads: Count, most_warps: Count, reason: str | None) -> Occupancy:
    """What the limits, all of one shape, leave."""
    blocks = reduce(smaller, limits.values())
    warps = blocks * ceil_div(threads, WARP_SIZE)
    at_limit = {name: limit == blocks for name, limit in limits.items()}
    limiters = at_limit if some_array((blocks,)) else tuple(name for name, limiting in at_limit.items() if limiting)
    return Occupancy(blocks, warps, warps / most_warps, limits, limiters, blocks > 0, reason)


def _warps(threads: Count) -> Count:
    """Warps of a block, the last one possibly not full; at least one, so that it divides."""
    return larger(ceil_div(threads, WARP_SIZE), 1)


def _registers_per_warp(capability: Capability, registers: Count) -> Count:
    return _round_up(registers * WARP_SIZE, capability.register_allocation_unit)


def _most_shared(capability: Capability, opt_in: bool) -> int:
    """Bytes of shared memory that a block may use; opting in takes nothing from smaller blocks."""
    return capability.shared_bytes_per_block_optin if opt_in else capability.shared_bytes_per_block


def _round_up(value: Count, unit: int) -> Count:
    return ceil_div(value, unit) * unit


def _alike(limits: Mapping[str, Count]) -> dict[str, Count]:
    """The limits as plain ints, or all as arrays of one shape."""
    if not some_array(limits.values()):
        return {name: int(limit) for name, limit in limits.items()}
    return dict(zip(limits, np.broadcast_arrays(*limits.values()), strict=True))


def _reason(capability: Capability, block: tuple[int, ...], opt_in: bool, limits: Mapping[str, int]) -> str:
    """Why one block does not launch, and what each resource that refuses it would take."""
    threads, registers, static, dynamic, _, barriers = block
    sentences = []
    if limits["warps"] == 0:
        most = capability.max_threads_per_block
        sentences.append(f"a block cannot have {threads} threads; it launches with 1 to {most}")
    if limits["registers"] == 0:
        warps = int(_warps(threads))
        counted = _round_up(warps, capability.warps_rounded_at_launch)
        needed = _registers_per_warp(capability, registers) * counted
        cures = (
            (most_registers(capability, threads), "registers a thread"),
            (most_threads(capability, registers), "threads"),
        )
        launching = " or ".join(f"up to {most} {of}" for most, of in cures if most)
        sentences.append(
            f"{warps} warps (counted as {counted}) of {registers} registers a thread take {needed} registers; allowed"
            f" are {capability.registers_per_block} a block and {capability.registers_per_thread} a thread;"
            f" it launches with {launching or 'fewer of both'}"
        )
    if limits["shared_memory"] == 0:
        most, optin = (_most_shared(capability, asked) for asked in (opt_in, True))
        more = f", or up to {optin} with the opt-in that a launch must ask for" if optin > most else ""
        sentences.append(
            f"{static} static and {dynamic} dynamic bytes of shared memory are {static + dynamic};"
            f" it launches with up to {most} bytes{more}"
        )
    if limits["barriers"] == 0:
        sentences.append(
            f"a block cannot have {barriers} barriers, the PTX ISA numbers {MOST_BARRIERS} of them, 0 to"
            f" {MOST_BARRIERS - 1}; it launches with up to {MOST_BARRIERS}"
        )
    return "; ".join(sentences)
