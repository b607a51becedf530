"""How a launch divides the work, step by step: grid, blocks, iterations, threads, and what each holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from gemmsim.accesses.costs import AccessCost, access_costs
from gemmsim.accesses.shared_memory import SharedAccess, shared_accesses
from gemmsim.explain.edges import Edges, edges
from gemmsim.kernels import Kernel, Resources, Widths
from gemmsim.notebook import as_table
from gemmsim.problem import Problem
from gemmsim.tiling import Grid, Tiling, grid


@dataclass(frozen=True)
class Decomposition:
    """One launch taken apart. A large iteration is one tile of k, a small one a step inside it.

    `conflicts` says of each access with bank conflicts where they are from.
    """

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    grid: Grid
    widths: Widths
    resources: Resources
    accesses: tuple[AccessCost, ...]
    conflicts: Mapping[str, str]
    edges: Edges

    _repr_html_ = as_table

    @property
    def blocks(self) -> int:
        """Blocks of the launch."""
        return int(self.grid.blocks)

    @property
    def block_grid(self) -> tuple[int, int, int]:
        """Tiles along m, n and k."""
        return self.grid.m, self.grid.n, self.grid.k

    @property
    def thread_grid(self) -> tuple[int, int]:
        """Threads of a block along n and along m."""
        return self.tiling.thread_columns, self.tiling.thread_rows

    @property
    def outputs_per_block(self) -> int:
        """Elements of C that a block computes."""
        return int(self.tiling.block_m * self.tiling.block_n)

    @property
    def outputs_per_thread(self) -> int:
        """Elements of C that a thread computes."""
        return int(self.tiling.thread_m * self.tiling.thread_n)

    @property
    def k_iterations(self) -> int:
        """Large iterations of a block, of the one that has most."""
        return int(self.grid.steps)

    @property
    def inner_iterations(self) -> int:
        """Small iterations in a large one."""
        return int(self.tiling.block_k)

    @property
    def ffma_per_inner_iteration(self) -> int:
        """FFMA of a thread in a small iteration: one for each of its results."""
        return self.outputs_per_thread

    @property
    def tile_elements(self) -> dict[str, tuple[int, int]]:
        """Rows and columns of the tile of A and of B."""
        tiling = self.tiling
        return {"a": (tiling.block_m, tiling.block_k), "b": (tiling.block_k, tiling.block_n)}

    @property
    def shared_bytes_per_stage(self) -> int:
        """Bytes of one tile of A and one of B, padding included."""
        return int(self.resources.shared_bytes // self.tiling.stages)


def explain(problem: Problem, kernel: Kernel, tiling: Tiling, registers_per_thread: int | None = None) -> Decomposition:
    """Take one launch apart (whole numbers, no arrays).

    `registers_per_thread` is the compiler's count where known; without it an estimate is used, and
    marked. Raises InputError when the kernel does not take the tiling, or no launch is that large.
    """
    kernel.launch(problem, tiling)
    widths = kernel.widths(problem, tiling)
    return Decomposition(
        problem,
        kernel,
        tiling,
        grid(problem, tiling),
        widths,
        kernel.resources(problem, tiling, registers_per_thread),
        access_costs(kernel, tiling, widths, problem.element_bytes),
        conflicts(problem, kernel, tiling),
        edges(problem, kernel, tiling),
    )


MOST_PADDING = 32
"""Paddings that are tried: elements of 4 bytes in as many banks repeat from here on."""


def conflicts(problem: Problem, kernel: Kernel, tiling: Tiling) -> dict[str, str]:
    """For each shared access with bank conflicts, by name, one sentence: how its lanes lie, what that costs, and
    which padding clears it.

    What it costs is that of the worst warp instruction. Only where the lanes of a warp span rows of the tile
    does the pitch, and so the padding, enter the pattern.
    """
    widths = kernel.widths(problem, tiling)
    reasons = {}
    for access in shared_accesses(kernel, tiling, widths):
        passes = access.passes(problem.element_bytes)
        if passes.excess.any():
            worst = np.unravel_index(int(passes.excess.argmax()), passes.excess.shape)
            cost = f"so a warp takes {passes.wavefronts[worst]} wavefronts, not {passes.ideal_wavefronts[worst]}"
            pad, pitch = _pad_and_pitch(kernel, tiling, access)
            if _spans_rows(access, pitch):
                clearing = clearing_padding(problem, kernel, tiling, access.name)
                cure = (
                    f"no aligned {pad} up to {MOST_PADDING} clears" if clearing is None else f"{pad} {clearing} clears"
                )
                reason = f"{_spread(access, worst, pitch)}, {cost}; {cure} it"
            else:
                reason = (
                    f"{_spread(access, worst, pitch)}, {cost}; all in one row of the tile, so {pad} cannot change it"
                )
            reasons[access.name] = reason
    return reasons


def clearing_padding(problem: Problem, kernel: Kernel, tiling: Tiling, access: str) -> int | None:
    """The smallest padding of its tile that frees the shared access of that name from bank conflicts.

    Tried by simulation up to MOST_PADDING, where it keeps every access aligned and as wide as it is; None
    where none clears it. Other accesses to the same tile may get conflicts by it.
    """
    widths = kernel.widths(problem, tiling)
    for elements in range(0, MOST_PADDING + 1, tiling.vector):
        padded = replace(tiling, **{f"pad_{access[-1]}": elements})
        if kernel.widths(problem, padded) == widths:
            costs = {cost.name: cost for cost in access_costs(kernel, padded, widths, problem.element_bytes)}
            if not costs[access].excess:
                return elements
    return None


def _pad_and_pitch(kernel: Kernel, tiling: Tiling, access: SharedAccess) -> tuple[str, int]:
    """The padding of the tile that the access goes to, and that tile's pitch."""
    pitch_a, pitch_b = kernel.pitches(tiling)
    return f"pad_{access.name[-1]}", int(pitch_a if access.name.endswith("_a") else pitch_b)


def _spans_rows(access: SharedAccess, pitch: int) -> bool:
    """Whether the lanes of any warp instruction touch more than one row of the tile."""
    rows = access.elements // pitch
    first = np.where(access.active, rows, rows.max()).min(axis=-1)
    last = np.where(access.active, rows, 0).max(axis=-1)
    return bool((last > first).any())


def _spread(access: SharedAccess, worst: tuple[np.intp, ...], pitch: int) -> str:
    """How the lanes of one warp instruction lie."""
    elements = np.unique(access.elements[worst][access.active[worst]])
    rows = np.unique(elements // pitch)
    if len(rows) > 1:
        steps = np.unique(np.diff(rows))
        apart = f", {steps[0] * pitch} elements apart" if len(steps) == 1 else ""
        return f"lanes spread over {len(rows)} rows of the tile{apart}"
    steps = np.unique(np.diff(elements))
    return f"lanes lie {steps[0]} elements apart" if len(steps) == 1 else "lanes lie unevenly in their row"
