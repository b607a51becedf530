"""Paddings and swizzles against bank conflicts: those that help the stores and the loads of a kernel together.

Every one is tried by simulation: paddings of both tiles up to where the banks repeat, and every swizzle. What the
accesses to a tile cost depends on its own padding and the swizzle alone, so that a few simulations of each tile
make thousands of combinations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gemmsim import register_table
from gemmsim.accesses.costs import SharedCounts, access_costs, shared_per_tile
from gemmsim.banks import BANK_BYTES, BANKS
from gemmsim.device import Device
from gemmsim.explain import MOST_PADDING
from gemmsim.kernels import Kernel, Resources
from gemmsim.kernels.rules import swizzles
from gemmsim.occupancy import Occupancy
from gemmsim.predict import resident_blocks
from gemmsim.problem import Problem
from gemmsim.tiling import SWIZZLED_COLUMNS, Tiling

Counts = NDArray[np.int64]
LAYOUT = ("pad_a", "pad_b", "swizzle")
"""The fields of a tiling that move elements within shared memory and change nothing else."""


@dataclass(frozen=True)
class Layout:
    """One way for the shared tiles to lie: what a block pays for it in one tile of k, and what it takes."""

    tiling: Tiling
    loads: SharedCounts
    stores: SharedCounts
    resources: Resources
    resident: Occupancy

    @property
    def both(self) -> SharedCounts:
        """Loads and stores together."""
        return self.loads + self.stores


@dataclass(frozen=True)
class Fixes:
    """The layout asked about, and the better ones: those with fewer wavefronts, best first.

    Every one of these takes fewer wavefronts or fewer bytes than each other of its kind, with a swizzle or without.
    `least_excess_padded` is the smallest excess that padding alone leaves, `least_excess_swizzled` that of a swizzle,
    padded or not (None where the kernel has none, or none for these tiles); `tried` is how many layouts these are of.
    """

    baseline: Layout
    better: tuple[Layout, ...]
    least_excess_padded: int
    least_excess_swizzled: int | None
    tried: int

    @property
    def padding_clears(self) -> bool:
        """Whether some padding alone clears both the stores and the loads."""
        return self.least_excess_padded == 0

    @property
    def swizzle_clears(self) -> bool:
        """Whether some swizzle does, padded or not."""
        return self.least_excess_swizzled == 0


def fixes(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    registers_of: Callable[[Tiling], int | None] = lambda _: None,
) -> Fixes:
    """The layouts of the shared tiles that take fewer wavefronts than that of `tiling` (plain numbers, no arrays).

    Best is: fewest wavefronts, then fewest bytes, then least changed. Every access stays aligned and at least as wide
    as it is; layouts that the device cannot hold are left out. `registers_of` gives the compiler's count for a tiling;
    without one it is that of the shipped table, else an estimate, and marked as such. Raises InputError when the
    kernel does not take the tiling, or the device cannot hold its tiles.
    """
    kernel.check(tiling, device, problem)
    tried = layouts(problem, kernel, tiling, device)
    wavefronts, excess = costs(problem, kernel, tried)
    swizzled, shared_bytes = tried.swizzle > 0, kernel.shared_bytes(tried) + 0 * wavefronts

    def layout(of: Tiling) -> Layout:
        loads, stores = shared_per_tile(kernel, of, kernel.widths(problem, of), problem.element_bytes)
        resources = register_table.resources(kernel, problem, of, device.capability, registers_of(of))
        return Layout(of, loads, stores, resources, resident_blocks(resources, device))

    baseline = layout(tiling)
    better: list[int] = []
    fewest_bytes = {False: np.inf, True: np.inf}
    for at in np.lexsort((_change(tried, tiling), shared_bytes, wavefronts)):
        kind = bool(swizzled[at])
        if wavefronts[at] < baseline.both.wavefronts and shared_bytes[at] < fewest_bytes[kind]:
            fewest_bytes[kind] = shared_bytes[at]
            better.append(at)
    return Fixes(
        baseline,
        tuple(layout(_one(tried, at)) for at in better),
        int(excess[~swizzled].min()),
        int(excess[swizzled].min()) if swizzled.any() else None,
        len(wavefronts),
    )


def layouts(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device) -> Tiling:
    """The same tiling with every layout that the kernel, the device and the widths of its accesses allow: an array."""
    paddings = np.arange(0, MOST_PADDING if kernel.staged else 1, tiling.vector)
    whole_rows = tiling.block_m % SWIZZLED_COLUMNS == tiling.block_n % SWIZZLED_COLUMNS == 0
    some = swizzles(tiling.vector) if "swizzle" in kernel.fields and whole_rows else [0]
    every = replace(tiling, **dict(zip(LAYOUT, map(np.ravel, np.meshgrid(paddings, paddings, some)), strict=True)))
    now, then = kernel.widths(problem, tiling), kernel.widths(problem, every)
    held = kernel.shared_bytes(every) <= device.capability.shared_bytes_per_block_optin
    as_wide = (then.shared_a >= now.shared_a) & (then.shared_b >= now.shared_b)
    allowed = np.broadcast_to(held & as_wide, every.swizzle.shape)
    return replace(every, **{name: getattr(every, name)[allowed] for name in LAYOUT})


def costs(problem: Problem, kernel: Kernel, tried: Tiling) -> tuple[Counts, Counts]:
    """(wavefronts, excess) of a block for one tile of k, loads and stores together, in each of many layouts."""
    widths = kernel.widths(problem, tried)
    # copies past L1 also tell where in a row of banks the tile of B and the next stage start
    starts = kernel.start_b(tried), kernel.shared_bytes(tried) // (BANK_BYTES * tried.stages)
    places = [start % BANKS for start in starts] if kernel.copies else []
    total = np.zeros((2, len(tried.swizzle)), np.int64)
    for tile, width in (("a", widths.shared_a), ("b", widths.shared_b)):
        case = np.stack(np.broadcast_arrays(getattr(tried, f"pad_{tile}"), tried.swizzle, width, *places))
        _, first, which = np.unique(case, axis=1, return_index=True, return_inverse=True)
        total += np.array([_of_tile(problem, kernel, _one(tried, at), tile) for at in first]).T[:, which.ravel()]
    return total[0], total[1]


def _of_tile(problem: Problem, kernel: Kernel, tiling: Tiling, tile: str) -> tuple[int, int]:
    """(wavefronts, excess) of the accesses to one of the tiles."""
    of_all = access_costs(kernel, tiling, kernel.widths(problem, tiling), problem.element_bytes)
    to_tile = [cost for cost in of_all if cost.name.endswith(f"_{tile}")]
    return sum(cost.wavefronts for cost in to_tile), sum(cost.excess for cost in to_tile)


def _one(tried: Tiling, at: int) -> Tiling:
    """One of many layouts."""
    return replace(tried, **{name: int(getattr(tried, name)[at]) for name in LAYOUT})


def _change(tried: Tiling, tiling: Tiling) -> Counts:
    """How far each layout is from that of `tiling`: fields that differ first, then by how much."""
    apart = np.stack([np.abs(getattr(tried, name) - getattr(tiling, name)) for name in LAYOUT])
    return np.asarray((apart > 0).sum(axis=0) * 3 * MOST_PADDING + apart.sum(axis=0))
