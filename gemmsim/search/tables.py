"""Many configurations of a kernel as a product of three axes, so that each formula is computed on as few as it needs.

Along the first axis lies what decides who computes what, along the second the order of the blocks, along the third how
tiles lie in shared memory. A field is an array with as many elements as its own axis and one along each other. NumPy
broadcasts them, so that a term which reads no padding is computed once for all paddings.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.tiling import Tiling

ORDERS, LAYOUTS = ("group",), ("pad_a", "swizzle", "pad_b")
"""Fields of the second and of the third axis; all others are of the first. The padding of B, which changes least, comes
last, so that neighbours along the third are often alike."""

Column = NDArray[np.int64]
Rows = Mapping[str, Column]
"""Columns of one length, one for each field that is settled."""
AXES = 3


@dataclass(frozen=True)
class Table:
    """Configurations as a product; `legal`, which broadcasts to its shape, tells which of its cells are any."""

    tilings: Tiling
    legal: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells along each axis."""
        return np.broadcast_shapes((1,) * AXES, *(np.shape(value) for value in vars(self.tilings).values()))

    @property
    def count(self) -> int:
        """Configurations."""
        return math.prod(self.shape) * int(np.count_nonzero(self.legal)) // np.size(self.legal)

    def flat(self, cells: Column) -> Tiling:
        """The configurations in these cells, numbers within the whole table: fields are columns, or one whole number
        where the kernel has no such field."""
        places = dict(zip(range(AXES), np.unravel_index(cells, self.shape), strict=True))

        def at(name: str, value: Any) -> Any:
            return value.ravel().take(places[_axis(name)]) if isinstance(value, np.ndarray) else value

        return Tiling.unchecked(**{name: at(name, value) for name, value in vars(self.tilings).items()})


def _axis(name: str) -> int:
    """The axis along which a field varies."""
    return 1 if name in ORDERS else 2 if name in LAYOUTS else 0


def product(fixed: Mapping[str, int], rows: Rows, orders: Rows, layouts: Rows) -> Tiling:
    """The product of three lists: rows of the first axis, orders of blocks, layouts; its fields broadcast together."""
    axes = ((rows, np.s_[:, None, None]), (orders, np.s_[None, :, None]), (layouts, np.s_[None, None, :]))
    columns = {name: column[where] for axis, where in axes for name, column in axis.items()}
    return Tiling.unchecked(**{**fixed, **columns})


def combined(values: Rows) -> dict[str, Column]:
    """Every combination of the values of these fields, the last field changing fastest."""
    grids = np.meshgrid(*values.values(), indexing="ij")
    return {name: grid.ravel() for name, grid in zip(values, grids, strict=True)}


def size_of(tilings: Tiling) -> int:
    """How many configurations there are in a list of them."""
    return max((len(value) for value in vars(tilings).values() if isinstance(value, np.ndarray)), default=1)


def rows_of(tilings: Tiling, which: Any) -> Tiling:
    """Those of a list at these places: one of whole numbers for a number, many for an array."""

    def at(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        return value[which] if isinstance(which, np.ndarray) else int(value[which])

    return Tiling.unchecked(**{name: at(value) for name, value in vars(tilings).items()})
