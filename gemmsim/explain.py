"""How a launch divides the work, step by step: grid, blocks, iterations, threads, and what each holds."""

from __future__ import annotations

from dataclasses import dataclass

from gemmsim.edges import Edges, edges
from gemmsim.kernels import Kernel, Resources, Widths
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling
from gemmsim.traffic import AccessCost, Grid, access_costs, grid


@dataclass(frozen=True)
class Decomposition:
    """One launch taken apart. A large iteration is one tile of k, a small one a step inside it."""

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    grid: Grid
    widths: Widths
    resources: Resources
    accesses: tuple[AccessCost, ...]
    edges: Edges

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
        """Large iterations of a block."""
        return int(self.grid.k)

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
    kernel.check(tiling)
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
        edges(problem, kernel, tiling),
    )
