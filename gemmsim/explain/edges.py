"""What ragged sizes cost the kernels here, and what they would do to kernels that guard less.

The kernels of the family guard every edge. Many published ones guard none, or only the last row and
column of blocks; they are right just for sizes that their tiles divide, and go wrong silently.
"""

from __future__ import annotations

from dataclasses import dataclass

from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid
from gemmsim.traffic import ffma


@dataclass(frozen=True)
class Overrun:
    """What a kernel does that guards k nowhere, and m and n only in the last row and column of blocks.

    The others read the last tile of k whole: `unsafe_blocks` of them, each `elements_past_b` elements
    beyond the end of B. None where block_k divides k.
    """

    unsafe_blocks: int
    elements_past_b: int


@dataclass(frozen=True)
class Coverage:
    """The rows and columns of C that a grid of blocks reaches without guards, against those there are.

    `launches` is False for a grid without a block.
    """

    rows_never_written: range
    columns_never_written: range
    rows_out_of_range: range
    columns_out_of_range: range
    launches: bool

    @property
    def exact(self) -> bool:
        """Whether every result is written and nothing beyond C."""
        return not (
            self.rows_never_written or self.columns_never_written or self.rows_out_of_range or self.columns_out_of_range
        )


@dataclass(frozen=True)
class Edges:
    """Partial tiles of a launch, and the sizes that a kernel of this tiling would need without guards.

    `left` is what the last tile covers along m, n and k; `padding_fraction` the share of the FFMA that
    multiplies zeros outside the matrices; `multiples` what m, n and k would have to be multiples of;
    `padded` the sizes rounded up to those; `vector_multiples` what the leading dimensions must be
    multiples of for every access to be as wide as the tiling says (see `aligned_multiples`).
    """

    left: dict[str, int]
    padding_fraction: float
    multiples: dict[str, int]
    padded: dict[str, int]
    vector_multiples: dict[str, int]
    overrun: Overrun
    grid_rounded_down: Coverage
    grid_swapped: Coverage

    @property
    def whole(self) -> bool:
        """Whether every tile is whole, so that no guard ever acts."""
        return self.left == self.multiples


def edges(problem: Problem, kernel: Kernel, tiling: Tiling) -> Edges:
    """The edges of one launch (plain numbers, no arrays)."""
    sizes = {"m": problem.m, "n": problem.n, "k": problem.k}
    multiples = {"m": tiling.block_m, "n": tiling.block_n, "k": tiling.block_k}
    tiles = grid(problem, tiling)
    padded = dict(zip("mnk", tiles.padded, strict=True))
    return Edges(
        {axis: sizes[axis] - padded[axis] + tile for axis, tile in multiples.items()},
        1 - problem.m * problem.n * problem.k / ffma(problem, kernel, tiling),
        multiples,
        padded,
        aligned_multiples(tiling.vector),
        unguarded_overrun(problem, tiling),
        coverage(problem, tiling, problem.m // tiling.block_m, problem.n // tiling.block_n),
        coverage(problem, tiling, tiles.n, tiles.m),
    )


def unguarded_overrun(problem: Problem, tiling: Tiling) -> Overrun:
    """Reads past the end of B where only the last row and column of blocks are guarded.

    The last tile of k reaches ceil(k / block_k) block_k - k rows beyond B, block_n elements each.
    """
    rows_past = -problem.k % tiling.block_k
    if not rows_past:
        return Overrun(0, 0)
    tiles = grid(problem, tiling)
    return Overrun((tiles.m - 1) * (tiles.n - 1), rows_past * tiling.block_n)


def coverage(problem: Problem, tiling: Tiling, blocks_m: int, blocks_n: int) -> Coverage:
    """What blocks_m x blocks_n blocks reach of C, for a grid that need not be the right one."""
    rows, columns = blocks_m * tiling.block_m, blocks_n * tiling.block_n
    return Coverage(
        range(min(rows, problem.m), problem.m),
        range(min(columns, problem.n), problem.n),
        range(problem.m, max(rows, problem.m)),
        range(problem.n, max(columns, problem.n)),
        blocks_m > 0 and blocks_n > 0,
    )


def aligned_multiples(vector: int, column_major: bool = False) -> dict[str, int]:
    """What the sizes must be multiples of so that every access of `vector` elements is aligned.

    These are the leading dimensions: k of A, n of B and of C row-major; m of A and of C, k of B
    column-major. The third size is free.
    """
    return dict.fromkeys("mk" if column_major else "nk", vector) if vector > 1 else {}
