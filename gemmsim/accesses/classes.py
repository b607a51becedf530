"""A launch by its classes of tiles: how often each occurs, what its lanes touch, and the totals that follow.

Along each axis there are whole tiles and at most one partial one, so blocks are of at most four classes and steps
along k of two. Within a class the guards are alike, and where a tile starts matters only modulo a sector. The
totals of a launch therefore come from a few representatives, whatever the sizes.

Assumed: A, B and C start at multiples of 32 bytes, as every CUDA allocation does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Literal

from gemmsim.accesses.global_memory import GlobalAccess, LaneAccess, global_accesses
from gemmsim.accesses.lane_runs import Direction, pairs
from gemmsim.accesses.shared_memory import SharedAccess, shared_accesses
from gemmsim.banks import Lanes, Mask
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling

Memory = Literal["global", "shared"]
Blocks = Literal["interior", "right edge", "bottom edge", "corner"]
Step = Literal["whole", "last partial", "past the end", "once a block"]


@dataclass(frozen=True)
class Segment:
    """Tiles of one kind along an axis: `count` of them from number `first`, each `left` long."""

    first: int
    count: int
    left: int


Class = Mapping[str, Segment]
"""Blocks and steps that are alike: the kind of tile along each axis."""


def segments(size: int, tile: int) -> list[Segment]:
    """The whole tiles of an axis, then the partial one; those that exist."""
    whole, rest = divmod(size, tile)
    kinds = [Segment(0, whole, tile), Segment(whole, 1 if rest else 0, rest)]
    return [kind for kind in kinds if kind.count]


@dataclass(frozen=True)
class LaneAddresses:
    """One access in one class of blocks and of steps along k, warp by warp.

    byte_addresses   of every lane, in the first block and step of the class: from the start of the matrix, or of the
                     block's shared memory (where that holds several stages, in the first of them); of the shape
                     (instructions, warps, 32), a thread executes these in order
    active           lanes that take part; the addresses of others mean nothing
    times            how often that happens in the launch: steps of all blocks of the class, or blocks
    """

    name: str
    memory: Memory
    direction: Direction
    width_bits: int
    blocks: Blocks
    step: Step
    times: int
    byte_addresses: Lanes
    active: Mask

    @property
    def requests(self) -> int:
        """Warp instructions with an active lane, over the launch."""
        return self.times * int(self.active.any(axis=-1).sum())


def lane_addresses(problem: Problem, kernel: Kernel, tiling: Tiling) -> Iterator[LaneAddresses]:
    """Every load, store and copy of tiles and results, lane by lane, for each class of blocks and of steps along k.

    A copy has an entry for each memory. What a kernel fetches past the end of k is zeros in shared memory, and steps of
    their own. Left out are the first fragments of each block, which are loaded once more, and partial sums.
    Plain numbers, no arrays. Raises InputError when the kernel does not take the tiling or the dtype.
    """
    kernel.check(tiling, problem=problem)
    widths = kernel.widths(problem, tiling)
    in_global = list(global_accesses(kernel, tiling, widths))
    in_shared = list(shared_accesses(kernel, tiling, widths, every=True))
    along = {axis: segments(*extents) for axis, extents in extents(problem, tiling).items()}
    for m, n in product(along["m"], along["n"]):
        for k in along["k"]:
            at = {"m": m, "n": n, "k": k}
            yield from (_in_global(each, problem, tiling, at) for each in in_global if not each.once_per_block)
            yield from (_in_shared(each, problem, tiling, at) for each in in_shared)
        if kernel.copies:
            past = {"m": m, "n": n, "k": Segment(0, int(tiling.tiles_ahead * tiling.split_k), 0)}
            yield from (_in_shared(each, problem, tiling, past) for each in in_shared if each.direction == "copy")
        yield from (_in_global(each, problem, tiling, {"m": m, "n": n}) for each in in_global if each.once_per_block)


def _in_global(access: GlobalAccess | LaneAccess, problem: Problem, tiling: Tiling, at: Class) -> LaneAddresses:
    if isinstance(access, LaneAccess):
        element, active = of_lanes(access, problem, at)
    else:
        row, number, here = access.runs.spread()
        move_down, move_across = pairs(access.moves_down, access.moves_across)
        down, across = row * access.step_down + move_down, number * access.step_across + move_across
        active = here & (down < at[access.down].left) & (across < at[access.across].left)
        element = down * stride(access, problem, access.down) + across * stride(access, problem, access.across)
    shape = (-1, *active.shape[-2:])
    for axis, (_, tile) in extents(problem, tiling).items():
        if axis in at:
            element = element + at[axis].first * tile * stride(access, problem, axis)
    return LaneAddresses(
        access.name, "global", access.direction, 8 * problem.element_bytes * access.width, *_class(tiling, at),
        problem.element_bytes * element.reshape(shape), active.reshape(shape),
    )  # fmt: skip


def of_lanes(access: LaneAccess, problem: Problem, at: Class) -> tuple[Lanes, Mask]:
    """(element of the matrix, counted from the start of the tile; active) of every lane."""
    rows, columns, active = access.within(*(at[axis].left for axis in access.matrix))
    return rows * int(getattr(problem, access.matrix[1])) + columns, active


def _in_shared(access: SharedAccess, problem: Problem, tiling: Tiling, at: Class) -> LaneAddresses:
    addresses = problem.element_bytes * (access.start + access.elements)
    width_bits = 8 * problem.element_bytes * access.width
    return LaneAddresses(
        access.name, "shared", access.direction, width_bits, *_class(tiling, at), addresses, access.active
    )


def _class(tiling: Tiling, at: Class) -> tuple[Blocks, Step, int]:
    """The names of a class, and how often it occurs."""
    partial = {axis: part.left < getattr(tiling, f"block_{axis}") for axis, part in at.items()}
    blocks: dict[tuple[bool, bool], Blocks] = {
        (False, False): "interior", (False, True): "right edge", (True, False): "bottom edge", (True, True): "corner",
    }  # fmt: skip
    step: Step = "once a block" if "k" not in at else "last partial" if partial["k"] else "whole"
    if "k" in at and not at["k"].left:
        step = "past the end"
    return blocks[partial["m"], partial["n"]], step, math.prod(part.count for part in at.values())


def extents(problem: Problem, tiling: Tiling) -> dict[str, tuple[int, int]]:
    """Size and tile along each axis."""
    return {axis: (getattr(problem, axis), getattr(tiling, f"block_{axis}")) for axis in "mnk"}


def stride(access: GlobalAccess | LaneAccess, problem: Problem, axis: str) -> int:
    """Elements of the matrix from one place along an axis to the next; 0 where the axis is none of the matrix."""
    rows, columns = access.matrix
    return int(getattr(problem, columns)) if axis == rows else int(axis == columns)
