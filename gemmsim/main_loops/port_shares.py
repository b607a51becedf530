"""What register ports and issue slots leave of the FFMA peak in the main loop of a kernel.

From the shipped table where it has the launch; elsewhere what compilers make of such kernels as a rule: the median of
the table's rows of the same kernel and thread tile, or without these of the same kernel, on register files alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim import register_table
from gemmsim.device import Capability, capability
from gemmsim.errors import InputError, require
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.register_table import TABLE, Row, many, read_table, row_of, rows_of
from gemmsim.registers.register_files import RegisterFile, register_file
from gemmsim.tiling import Tiling

COMPILED, TYPICAL, NONE = "compiled", "typical", "none"
"""Sources of a share beside the table: this cubin; similar kernels; nothing, and then nothing is taken off."""

Loop = tuple[int, int, float]
"""FFMA, instructions and cycles of a pass through a main loop."""
UNKNOWN = (0.0, 0.0)
"""The shares of a loop that is not known."""
Tile = tuple[int, int]
"""Rows and columns of a thread."""


@dataclass(frozen=True)
class PortShare:
    """Shares of the FFMA peak in a main loop, numbers or arrays: `fraction` with the conflicts of its register reads,
    `ideal_fraction` as if there were none, when its other instructions still take issue slots."""

    fraction: Any
    ideal_fraction: Any
    source: str

    def __post_init__(self) -> None:
        good = (self.fraction > 0) & (self.ideal_fraction <= 1)
        require(good, "shares {f} and {i} of the peak; allowed: above 0, to 1", f=self.fraction, i=self.ideal_fraction)

    @property
    def gain(self) -> Any:
        """By how much faster the main loop would be if no read conflicted: the most that another order can bring."""
        return self.ideal_fraction / self.fraction - 1


def share_of_loop(loop: Loop, file: RegisterFile, source: str = COMPILED) -> PortShare:
    """The shares of a main loop."""
    return PortShare(*_fractions(loop, file), source)


def port_share(kernel: Kernel, problem: Problem, tiling: Tiling, on: Capability) -> PortShare:
    """The shares of one launch, or of many where n, k or the tiling are arrays.

    Of arrays the source is the table only if it knows all of them.
    """
    try:
        file = register_file(on)
    except InputError:
        return PortShare(1.0, 1.0, NONE)

    if not many(problem, tiling):
        row = row_of(kernel, problem, tiling)
        known = _of_row(row, on.name, file) if row else UNKNOWN
        return PortShare(*known, TABLE) if known > UNKNOWN else _typical(kernel, tiling, file)
    rows, which = rows_of(kernel, problem, tiling)
    shares = np.array([*(_of_row(row, on.name, file) for row in rows), UNKNOWN])[which]
    fraction, ideal = shares[..., 0], shares[..., 1]
    if np.all(fraction > 0):
        return PortShare(fraction, ideal, TABLE)
    usual = _typical(kernel, tiling, file)
    found = np.where(fraction > 0, fraction, usual.fraction)
    return PortShare(found, np.where(fraction > 0, ideal, usual.ideal_fraction), usual.source)


def _of_row(row: Row, name: str, file: RegisterFile) -> tuple[float, float]:
    """The shares of a capability, or of one whose register file is alike, for which compilers write much the same."""
    names = sorted(_alike(row, file), key=lambda each: each != name)
    return _fractions(row.loops[names[0]], file) if names else UNKNOWN


def _alike(row: Row, file: RegisterFile) -> list[str]:
    """The capabilities with a main loop in the row whose register file is like this one."""
    files = ((name, register_file(capability(name))) for name in row.loops)
    return [name for name, other in files if (other.name, other.lanes) == (file.name, file.lanes)]


def _fractions(loop: Loop, file: RegisterFile) -> tuple[float, float]:
    """(share of the peak, the same without conflicts)."""
    ffma, instructions, cycles = loop
    busy = ffma * file.ffma_interval_cycles
    return busy / max(cycles, busy), busy / max(instructions, busy)


def _typical(kernel: Kernel, tiling: Tiling, file: RegisterFile) -> PortShare:
    """What is usual for each tiling; 1 where there is nothing to go by."""
    of_kernel, of_tiles = _medians(register_table.SHIPPED, kernel.name, file)
    source = TYPICAL if of_tiles else NONE
    if not isinstance(tiling.thread_m, np.ndarray) and not isinstance(tiling.thread_n, np.ndarray):
        return PortShare(*of_tiles.get((tiling.thread_m, tiling.thread_n), of_kernel), source)
    rows, columns = np.broadcast_arrays(tiling.thread_m, tiling.thread_n)
    found = np.full((2, *rows.shape), np.reshape(of_kernel, (2,) + (1,) * rows.ndim))
    for (m, n), shares in of_tiles.items():
        found[:, (rows == m) & (columns == n)] = np.reshape(shares, (2, 1))
    return PortShare(found[0], found[1], source)


@cache
def _medians(
    path: Path, kernel: str, file: RegisterFile
) -> tuple[tuple[float, float], Mapping[Tile, tuple[float, float]]]:
    """(medians of the kernel, {thread tile: medians}), of all the table's rows, those of older sources too."""
    by_tile: dict[Tile, list[tuple[float, float]]] = {}
    for row in read_table(path):
        tile = row.macros.get("THREAD_M", 1), row.macros.get("THREAD_N", 1)
        if row.kernel == kernel:
            shares = (_fractions(row.loops[name], file) for name in _alike(row, file))
            by_tile.setdefault(tile, []).extend(shares)
    known = {tile: shares for tile, shares in by_tile.items() if shares}
    everything = [each for shares in known.values() for each in shares]
    return _median(everything), {tile: _median(shares) for tile, shares in known.items()}


def _median(shares: Sequence[tuple[float, float]]) -> tuple[float, float]:
    fraction, ideal = np.median(shares, axis=0) if shares else (1.0, 1.0)
    return float(fraction), float(ideal)
