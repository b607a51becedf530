"""What the best time is over two quantities at once, all else being as good as it can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmsim.kernels import MOST_REGISTERS
from gemmsim.problem import ceil_div
from gemmsim.search.scoring import Floats, Scored
from gemmsim.search.spaces import Space

REGISTER_STEP = 8
"""Registers of a thread that a landscape takes together; estimates are multiples of it."""


class Landscape:
    """The best time for each pair of values of two quantities over all else: `best_s`, a row for each value of y,
    infinite where there is no configuration; by the quick route. A quantity is a field of tilings or "registers", those
    of a thread."""

    def __init__(self, x: str, y: str, spaces: Sequence[Space]) -> None:
        self.x, self.y = x, y
        self.xs, self.ys = (_values(name, spaces) for name in (x, y))
        self.best_s: Floats = np.full((len(self.ys), len(self.xs)), np.inf)

    def take(self, scored: Scored) -> None:
        """Look at one table."""
        x, y = (
            np.searchsorted(values, _quantity(name, scored)) for name, values in ((self.x, self.xs), (self.y, self.ys))
        )
        best_s = scored.time_s
        shape = np.broadcast_shapes((1,) * best_s.ndim, x.shape, y.shape)
        for axis, length in enumerate(shape):
            if length == 1:  # both are the same all along it
                best_s = best_s.min(axis=axis, keepdims=True)
        np.minimum.at(self.best_s, tuple(np.broadcast_arrays(y, x, best_s)[:2]), best_s)


def landscapes(spaces: Sequence[Space]) -> tuple[Landscape, Landscape]:
    """The two that say most, to be filled by a search: of the tile of a block, and of stages and registers."""
    return Landscape("block_n", "block_m", spaces), Landscape("stages", "registers", spaces)


def _quantity(name: str, scored: Scored) -> Any:
    """What a landscape is drawn over. Registers are the estimate, in steps of 8 up to 255."""
    if name != "registers":
        return getattr(scored.table.tilings, name)
    registers = scored.kernel.resources(scored.problem, scored.table.tilings).registers_per_thread
    return np.minimum(ceil_div(registers, REGISTER_STEP) * REGISTER_STEP, MOST_REGISTERS)


def _values(name: str, spaces: Sequence[Space]) -> tuple[int, ...]:
    if name == "registers":
        return (*range(REGISTER_STEP, MOST_REGISTERS, REGISTER_STEP), MOST_REGISTERS)
    return tuple(sorted({value for each in spaces for value in each.values.get(name, (each.fixed.get(name, 1),))}))
