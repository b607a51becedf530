"""What more or less of one resource would change: the nearest cliffs, and all the way to each side.

Each is found by asking `occupancy` for every value that a block could have at once, not by a formula of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmsim.device import Capability
from gemmsim.occupancy.limits import MOST_BARRIERS, Occupancy, occupancy
from gemmsim.problem import Count

Counts = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Block:
    """What one block takes, and how it is launched, as `occupancy` has it; a field can be an array."""

    threads: Count
    registers: Count
    static_shared_bytes: Count = 0
    dynamic_shared_bytes: Count = 0
    carveout: Count | None = None
    barriers: Count = 1
    opt_in: bool = True

    @property
    def shared_bytes(self) -> Count:
        """Static and dynamic shared memory together: no limit tells them apart."""
        return self.static_shared_bytes + self.dynamic_shared_bytes

    def on(self, capability: Capability) -> Occupancy:
        """How many of it fit on one SM."""
        return occupancy(capability, **vars(self))

    def with_shared(self, total_bytes: Count) -> Block:
        """The same with so much shared memory in all."""
        return replace(self, static_shared_bytes=total_bytes, dynamic_shared_bytes=0)


@dataclass(frozen=True)
class Cliff:
    """The nearest value on one side at which other blocks, or other warps, are resident on an SM, and what is there."""

    value: int
    change: int
    blocks_per_sm: int
    warps_per_sm: int
    occupancy: float


@dataclass(frozen=True)
class Sweep:
    """What is resident on an SM for every value of one resource, all others as they are.

    `values` ascend. Where they leave some out, what is resident is that of the next value that is there.
    `present` is the value that the block has now, perhaps none of them.
    """

    resource: str
    present: int
    now: Occupancy
    values: Counts
    swept: Occupancy

    @property
    def fewer(self) -> Cliff | None:
        """The nearest cliff below the present value."""
        below = np.flatnonzero(self._different & (self.values < self.present))
        return self._cliff(below[-1]) if below.size else None

    @property
    def more(self) -> Cliff | None:
        """The nearest cliff above the present value."""
        above = np.flatnonzero(self._different & (self.values > self.present))
        return self._cliff(above[0]) if above.size else None

    @property
    def _different(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        blocks, warps = self.swept.blocks_per_sm, self.swept.warps_per_sm
        differs = (blocks != self.now.blocks_per_sm) | (warps != self.now.warps_per_sm)
        return np.asarray(differs)

    def _cliff(self, at: int) -> Cliff:
        there, value = self.swept, int(self.values[at])
        resident = int(there.blocks_per_sm[at]), int(there.warps_per_sm[at]), float(there.occupancy[at])
        return Cliff(value, value - self.present, *resident)


def sweep(capability: Capability, block: Block, resource: str) -> Sweep:
    """What is resident for every value of `resource`, one of SWEPT."""
    axis = SWEPT[resource]
    values = axis.values(capability)
    return Sweep(
        resource, getattr(block, resource), block.on(capability), values, axis.moved(block, values).on(capability)
    )


def sweeps(capability: Capability, block: Block) -> dict[str, Sweep]:
    """The sweep of each resource of SWEPT."""
    return {resource: sweep(capability, block, resource) for resource in SWEPT}


def largest_dynamic_shared(capability: Capability, block: Block) -> dict[int, int]:
    """{n: most bytes of dynamic shared memory with which n blocks are resident on an SM}, all else as it is.

    For every n that is possible, from 1 on; empty where no block launches even without dynamic shared memory.
    """
    steps = shared_steps(capability)
    totals = np.append(steps[steps > block.static_shared_bytes], block.static_shared_bytes)
    blocks = block.with_shared(totals).on(capability).blocks_per_sm
    most = int(blocks.max(initial=0))
    return {n: int(totals[blocks >= n].max()) - block.static_shared_bytes for n in range(1, most + 1)}


def shared_steps(capability: Capability) -> Counts:
    """Bytes of shared memory on either side of each step of the allocation, from 0 to past what a block can have.

    Memory is given out in units, the reserve of a block included: all sizes from a unit's first byte to its last
    are one to every limit, so these are all the sizes that need be looked at.
    """
    unit, reserved = capability.shared_allocation_unit, capability.shared_bytes_reserved_per_block
    last = np.arange(0, capability.shared_bytes_per_block_optin + reserved + unit, unit) - reserved
    return np.unique(np.concatenate([last, last + 1]).clip(0))


@dataclass(frozen=True)
class _Axis:
    """How one resource is swept: its values on a capability, and a block moved to them."""

    values: Callable[[Capability], Counts]
    moved: Callable[[Block, Counts], Block]


def _field(name: str, values: Callable[[Capability], Counts]) -> _Axis:
    def moved(block: Block, to: Counts) -> Block:
        changed: dict[str, Any] = {name: to}
        return replace(block, **changed)

    return _Axis(values, moved)


SWEPT: Mapping[str, _Axis] = {
    "registers": _field("registers", lambda chip: np.arange(chip.registers_per_thread_launchable + 2)),
    "shared_bytes": _Axis(shared_steps, Block.with_shared),
    "threads": _field("threads", lambda chip: np.arange(1, chip.max_threads_per_block + 2)),
    "barriers": _field("barriers", lambda chip: np.arange(MOST_BARRIERS + 1)),
}
"""The resources of a block that can be swept; all but that of barriers, to what it can name, end past what launches."""
