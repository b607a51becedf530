"""How many blocks one SM holds, what limits them, and how often a launch fills the GPU.

The formulas are those of NVIDIA's occupancy header (cuda_occupancy.h, CUDA 13.0), in its order, with
partitioned global caching off. Plain numbers and int64 arrays go through the same lines.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from gemmsim.device import Capability
from gemmsim.problem import Count, ceil_div, require_one_shape, whole_number
from gemmsim.tiling import WARP_SIZE

UNLIMITED = 2**31 - 1
"""The limit of a resource that the block does not use, as the header has it."""
LARGEST_INPUT = 2**31 - 1
MOST_BARRIERS = 16
"""Named barriers of a block (PTX ISA, `barrier`)."""


@dataclass(frozen=True)
class Occupancy:
    """What fits on one SM.

    `occupancy` is resident over possible warps, 0 to 1. `limits` has the blocks that each resource
    alone allows (UNLIMITED where the block uses none), in the order warps, registers, shared_memory,
    blocks, barriers. For one case `limiters` are the names of all limits that equal `blocks_per_sm`,
    and `reason` says why a block does not launch and what would make it. For arrays the numbers are
    arrays, `limiters` has for each name where it limits, and `reason` is None.
    """

    blocks_per_sm: Count
    warps_per_sm: Count
    occupancy: Any
    limits: Mapping[str, Count]
    limiters: tuple[str, ...] | Mapping[str, Any]
    launches: Any
    reason: str | None


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
    the most there is. `barriers` are those of a block; they count from compute capability 9.0 on.
    Without `opt_in` a block has no more than the default 48 KB of shared memory, as in a launch that
    does not set cudaFuncAttributeMaxDynamicSharedMemorySize.

    A block that cannot launch is an answer: no blocks. Raises InputError for numbers that are not
    whole, negative, or so large that no block could mean them.
    """
    threads = whole_number(threads, "threads", 0, LARGEST_INPUT)
    registers = whole_number(registers, "registers", 0, LARGEST_INPUT)
    static = whole_number(static_shared_bytes, "static_shared_bytes", 0, LARGEST_INPUT)
    dynamic = whole_number(dynamic_shared_bytes, "dynamic_shared_bytes", 0, LARGEST_INPUT)
    percent = whole_number(100 if carveout is None else carveout, "carveout", 0, 100)
    barriers = whole_number(barriers, "barriers", 0, MOST_BARRIERS)
    require_one_shape(threads, registers, static, dynamic, percent, barriers)

    by_resource = {
        "warps": warp_limit(capability, threads),
        "registers": register_limit(capability, threads, registers),
        "shared_memory": shared_limit(capability, static + dynamic, percent, opt_in),
        "blocks": capability.max_blocks_per_sm,
        "barriers": barrier_limit(capability, barriers),
    }
    limits = _alike(by_resource)
    blocks = reduce(_smaller, limits.values())
    warps = blocks * ceil_div(threads, WARP_SIZE)
    at_limit = {name: limit == blocks for name, limit in limits.items()}
    limiters: tuple[str, ...] | Mapping[str, Any] = at_limit
    reason = None
    if not _arrays(blocks):
        limiters = tuple(name for name in limits if at_limit[name])
        reason = None if blocks else _reason(capability, threads, registers, static, dynamic, opt_in, limits)
    return Occupancy(blocks, warps, warps / capability.max_warps_per_sm, limits, limiters, blocks > 0, reason)


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
    warps_per_partition = capability.registers_per_sm // capability.sub_partitions // _larger(per_warp, 1)
    limit = warps_per_partition * capability.sub_partitions // warps
    return launchable * _where(per_warp == 0, UNLIMITED, limit)


def shared_limit(capability: Capability, used: Count, percent: Count, opt_in: bool) -> Count:
    """Blocks with `used` bytes of shared memory each that fit, at a preferred carve-out in percent.

    The carve-out is the smallest size that the capability has for the preference and for one block.
    """
    reserved = capability.shared_bytes_reserved_per_block
    allocated = _round_up(used + reserved, capability.shared_allocation_unit)
    launchable = allocated <= reserved + _most_shared(capability, opt_in)
    wanted = percent * capability.shared_bytes_per_sm // 100
    sizes = np.array(capability.carveouts_bytes)
    size = sizes[_smaller(np.searchsorted(sizes, _larger(wanted, allocated)), len(sizes) - 1)]
    return launchable * _where(allocated == 0, UNLIMITED, size // _larger(allocated, 1))


def barrier_limit(capability: Capability, barriers: Count) -> Count:
    """Blocks that the barriers of an SM are enough for; UNLIMITED where they are not counted."""
    if not capability.barriers_limit_blocks:
        return UNLIMITED + 0 * barriers
    return _where(barriers == 0, UNLIMITED, capability.barriers_per_sm // _larger(barriers, 1))


def most_registers(capability: Capability, threads: Count) -> Count:
    """The most registers a thread with which the register file can launch blocks of this many threads."""
    per_warp = capability.registers_per_block // _round_up(_warps(threads), capability.warps_rounded_at_launch)
    unit = capability.register_allocation_unit
    return _smaller(per_warp // unit * unit // WARP_SIZE, capability.registers_per_thread)


def most_threads(capability: Capability, registers: Count) -> Count:
    """The largest block that launches with this many registers a thread; 0 if none does."""
    warps = capability.registers_per_block // _larger(_registers_per_warp(capability, registers), 1)
    rounded = warps // capability.warps_rounded_at_launch * capability.warps_rounded_at_launch
    startable = registers <= capability.registers_per_thread_launchable
    return startable * _smaller(rounded * WARP_SIZE, capability.max_threads_per_block)


@dataclass(frozen=True)
class Waves:
    """A launch of `blocks` on a GPU that holds `slots` of them at once."""

    blocks: Count
    slots: Count

    @property
    def count(self) -> Any:
        """Times that the launch fills the GPU, not rounded."""
        return self.blocks / self.slots

    @property
    def rounds(self) -> Count:
        """Rounds that it takes when all blocks last alike: the count rounded up."""
        return ceil_div(self.blocks, self.slots)

    @property
    def utilization(self) -> Any:
        """Share of the slots, over all rounds, that have a block."""
        return self.blocks / (self.rounds * self.slots)

    @property
    def tail_utilization(self) -> Any:
        """Share of the slots that have a block in the last round."""
        return (self.blocks - (self.rounds - 1) * self.slots) / self.slots


def waves(blocks: Count, sms: Count, blocks_per_sm: Count = 1) -> Waves:
    """How a launch of `blocks` spreads over `sms` SMs that hold `blocks_per_sm` each.

    Raises InputError for numbers that are not whole or not positive: blocks that do not launch make no waves.
    """
    slots = whole_number(sms, "sms") * whole_number(blocks_per_sm, "blocks_per_sm")
    return Waves(whole_number(blocks, "blocks", most=2**53), slots)


def _warps(threads: Count) -> Count:
    """Warps of a block, the last one possibly not full; at least one, so that it divides."""
    return _larger(ceil_div(threads, WARP_SIZE), 1)


def _registers_per_warp(capability: Capability, registers: Count) -> Count:
    return _round_up(registers * WARP_SIZE, capability.register_allocation_unit)


def _most_shared(capability: Capability, opt_in: bool) -> int:
    """Bytes of shared memory that a block may use; opting in takes nothing from smaller blocks."""
    return capability.shared_bytes_per_block_optin if opt_in else capability.shared_bytes_per_block


def _round_up(value: Count, unit: int) -> Count:
    return ceil_div(value, unit) * unit


def _larger(one: Count, other: Count) -> Count:
    return np.maximum(one, other) if _arrays(one, other) else max(one, other)


def _smaller(one: Count, other: Count) -> Count:
    return np.minimum(one, other) if _arrays(one, other) else min(one, other)


def _where(condition: Any, yes: Count, no: Count) -> Count:
    if _arrays(condition):
        return np.where(condition, yes, no)
    return yes if condition else no


def _arrays(*values: Any) -> bool:
    return any(isinstance(value, np.ndarray) for value in values)


def _alike(limits: Mapping[str, Count]) -> dict[str, Count]:
    """The limits as plain ints, or all as arrays of one shape."""
    if not _arrays(*limits.values()):
        return {name: int(limit) for name, limit in limits.items()}
    return dict(zip(limits, np.broadcast_arrays(*limits.values()), strict=True))


def _reason(
    capability: Capability,
    threads: int,
    registers: int,
    static: int,
    dynamic: int,
    opt_in: bool,
    limits: Mapping[str, int],
) -> str:
    """Why one block does not launch, and what each resource that refuses it would take."""
    sentences = []
    if limits["warps"] == 0:
        most = capability.max_threads_per_block
        sentences.append(f"a block cannot have {threads} threads; it launches with 1 to {most}")
    if limits["registers"] == 0:
        warps = int(_warps(threads))
        counted = _round_up(warps, capability.warps_rounded_at_launch)
        needed = _registers_per_warp(capability, registers) * counted
        cures = [f"up to {most_registers(capability, threads)} registers a thread"]
        if fitting := int(most_threads(capability, registers)):
            cures.append(f"up to {fitting} threads")
        sentences.append(
            f"{warps} warps (counted as {counted}) of {registers} registers a thread take {needed} registers; allowed"
            f" are {capability.registers_per_block} a block and {capability.registers_per_thread} a thread;"
            f" it launches with {' or '.join(cures)}"
        )
    if limits["shared_memory"] == 0:
        most, optin = (_most_shared(capability, asked) for asked in (opt_in, True))
        more = f", or up to {optin} with the opt-in that a launch must ask for" if optin > most else ""
        sentences.append(
            f"{static} static and {dynamic} dynamic bytes of shared memory are {static + dynamic};"
            f" it launches with up to {most} bytes{more}"
        )
    return "; ".join(sentences)
