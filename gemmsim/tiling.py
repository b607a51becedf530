"""How a multiplication is cut: block, thread and k tiles, buffers, widths and padding."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

import numpy as np

from gemmsim.errors import InputError, short
from gemmsim.problem import Count, Problem, ceil_div, require_one_shape, whole_number
from gemmsim.rules import Rule, check

WARP_SIZE = 32
LARGEST_BLOCK = 1024
"""Threads of a block, on every GPU since compute capability 2.0 (CUDA Programming Guide)."""
LARGEST_TILE = 4096
LARGEST_PAD = 256
SWIZZLED_COLUMNS = 32
"""Columns of a row of a shared tile within which a swizzle moves elements: one for each bank."""
LARGEST_SWIZZLE = SWIZZLED_COLUMNS // 2


def nearest_divisor(number: int, wanted: int) -> int:
    """The divisor of `number` that is nearest to `wanted`; the smaller of two as near."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    return min(divisors, key=lambda d: (abs(d - wanted), d))


def nearest_multiple(number: Count, of: Count, positive: bool = True) -> Count:
    """The multiple of `of` that is nearest to `number`, and not 0 if it has to be positive."""
    below = (number + of // 2) // of * of
    return np.maximum(below, of)[()] if positive else below


@dataclass(frozen=True)
class Tiling:
    """One configuration, or many at once where fields are int64 arrays.

    A block computes block_m x block_n of C, block_k of the k dimension at a time; a thread computes
    thread_m x thread_n of that. `stages` tiles of A and B are held in shared memory at once; `vector`
    is the widest access in elements; `pad_a` and `pad_b` are unused elements at the end of each
    row of the tile of A (of the transposed tile, where the kernel transposes) and of B; `swizzle` is by how
    many columns neighbouring groups of rows of the tile of A are moved against each other (see `column_in_a` of
    `gemmsim.accesses.shared_memory`), 0 for tiles that lie as they are. A warp computes warp_m x warp_n, 0 where lanes
    just run along n; `split_k` blocks share the k dimension of a tile of C; blocks go down `group` rows of tiles
    before they go on along n, 1 where they run along n.

    Two fields say in which order a thread does what it does, and change no result: `traversal` is how many rows of
    the thread tile are multiplied together, column after column there and back, 0 for the kernel's own order; `spread`
    in how many groups the copies of a tile are issued while another is multiplied, 0 for all together at its end.

    Raises InputError for values out of range, a thread tile that does not divide the block tile, or
    more than 1024 threads. What a kernel demands beyond that stands in `gemmsim.kernels`.
    """

    block_m: Count
    block_n: Count
    block_k: Count = 1
    thread_m: Count = 1
    thread_n: Count = 1
    stages: Count = 1
    vector: Count = 1
    pad_a: Count = 0
    pad_b: Count = 0
    swizzle: Count = 0
    warp_m: Count = 0
    warp_n: Count = 0
    split_k: Count = 1
    group: Count = 1
    traversal: Count = 0
    spread: Count = 0

    def __post_init__(self) -> None:
        for name in FIELDS:
            least, most = RANGES.get(name, (1, LARGEST_TILE))
            object.__setattr__(self, name, whole_number(getattr(self, name), name, least, most))
        require_one_shape(*vars(self).values())
        check(TILING_RULES, self)

    @classmethod
    def unchecked(cls, **values: Any) -> Tiling:
        """A tiling of which nothing is checked, for rules to be asked about; it has the fields that are given."""
        tiling = object.__new__(cls)
        vars(tiling).update(values)
        return tiling

    @property
    def threads(self) -> Count:
        """Threads of a block."""
        return self.thread_rows * self.thread_columns

    @property
    def thread_rows(self) -> Count:
        """Threads along m."""
        return self.block_m // self.thread_m

    @property
    def thread_columns(self) -> Count:
        """Threads along n; lanes run fastest along these."""
        return self.block_n // self.thread_n

    @property
    def warps(self) -> Count:
        """Warps of a block, the last one possibly not full."""
        return ceil_div(self.threads, WARP_SIZE)

    @property
    def tiles_ahead(self) -> Count:
        """Tiles whose copies are issued before the first is multiplied, and so many past the end of k: all of the ring,
        unless copies are spread, which leave one buffer to the tile that is multiplied."""
        return self.stages - (self.spread > 0)


FIELDS = tuple(field.name for field in fields(Tiling))
RANGES = {
    "pad_a": (0, LARGEST_PAD), "pad_b": (0, LARGEST_PAD), "swizzle": (0, LARGEST_SWIZZLE),
    "warp_m": (0, LARGEST_TILE), "warp_n": (0, LARGEST_TILE),
    "traversal": (0, LARGEST_TILE), "spread": (0, LARGEST_TILE),
}  # fmt: skip
"""Least and most of the fields that may be 0."""


def _thread_tiles_divide(axis: str) -> Rule:
    block, thread = attrgetter(f"block_{axis}"), attrgetter(f"thread_{axis}")
    return Rule(
        lambda of: block(of) % thread(of) == 0,
        lambda block, thread: (
            f"thread_{axis} {thread} does not divide block_{axis} {block};"
            f" nearest that does: {nearest_divisor(block, thread)}"
        ),
        lambda of: {"block": block(of), "thread": thread(of)},
    )


TILING_RULES = (
    _thread_tiles_divide("m"),
    _thread_tiles_divide("n"),
    Rule(
        lambda of: of.threads <= LARGEST_BLOCK,
        "{m} x {n} elements at {rm} x {rn} a thread need {threads} threads a block;"
        f" allowed: up to {LARGEST_BLOCK}, so larger thread tiles or a smaller block",
        lambda of: {"m": of.block_m, "n": of.block_n, "rm": of.thread_m, "rn": of.thread_n, "threads": of.threads},
    ),
)
"""What must hold of every tiling, whatever the kernel."""


@dataclass(frozen=True)
class Grid:
    """Tiles along m, n and k, shared out among the blocks."""

    m: Count
    n: Count
    k: Count
    tiling: Tiling

    @property
    def tiles(self) -> Count:
        """Tiles of C."""
        return self.m * self.n

    @property
    def blocks(self) -> Count:
        """Blocks of the launch: `split_k` for each tile of C."""
        return self.tiles * self.tiling.split_k

    @property
    def steps(self) -> Count:
        """Large iterations of a block; where `split_k` blocks share them, of the one that has most."""
        return ceil_div(self.k, self.tiling.split_k)

    @property
    def padded(self) -> tuple[Count, Count, Count]:
        """m, n and k rounded up to whole tiles."""
        return self.m * self.tiling.block_m, self.n * self.tiling.block_n, self.k * self.tiling.block_k


def grid(problem: Problem, tiling: Tiling) -> Grid:
    """Tiles that cover the problem along each axis, the last one possibly partly outside."""
    return Grid(
        ceil_div(problem.m, tiling.block_m),
        ceil_div(problem.n, tiling.block_n),
        ceil_div(problem.k, tiling.block_k),
        tiling,
    )


def parse_extents(text: str, names: tuple[str, ...], option: str) -> dict[str, int]:
    """{name: number} from text like "128x128x8", one number for each of `names`.

    Raises InputError, naming the option, when the text has another form.
    """
    if re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9})*", text) and text.count("x") + 1 == len(names):
        return dict(zip(names, map(int, text.split("x")), strict=True))
    form = "x".join(name.upper() for name in names)
    raise InputError(f"{option} {short(text)} is not of the form {form}, such as {'x'.join(['8'] * len(names))}")
