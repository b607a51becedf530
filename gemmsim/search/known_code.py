"""What is known without a compiler of the code of launches: what is shipped of them, or of code that is much alike.

What compilers make of a kernel hangs on all its macros. But paddings change addresses alone, and how many rows of tiles
are a group, or how many parts k has, changes counts alone, once there is more than one: programs are as good as the
same. How many tiles a ring holds changes what comes before the main loop: registers are mostly the same then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gemmsim.device import Device
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.pipeline.program import Program
from gemmsim.pipeline.programs import SIZE_OF_LAUNCH, Row, code_macros, program_of_row, read_heads, shipped_file
from gemmsim.problem import Problem
from gemmsim.register_table import Key, key_of, sources_hash
from gemmsim.tiling import Tiling

ADDRESSES, COUNTS, RING = ("PAD_A", "PAD_B"), ("GROUP", "SPLIT_K"), ("STAGES",)
"""Macros on which addresses alone depend; counts alone, once above one; and what comes before the main loop."""
WITH_PROGRAM = 2
"""The first so many ways to look code up give its program, the others its registers alone."""


class Compiled(NamedTuple):
    """What a compiler made of a launch: registers and local memory of a thread, and the program of its warps."""

    registers_per_thread: int
    local_bytes: int
    program: Program


def known_code(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device) -> Compiled | None:
    """The code of a launch (whole numbers, no arrays) as shipped, or code alike; None where there is none."""
    path = shipped_file(device.capability.sm)
    row = _first(_rows(path), islice(ways(kernel.name, code_macros(kernel, problem, tiling)), WITH_PROGRAM))
    if row is None:
        return None
    return Compiled(row.registers_per_thread, row.local_bytes, program_of_row(path, row))


def known_registers(problem: Problem, kernel: Kernel, tilings: Tiling, device: Device) -> NDArray[np.int64]:
    """(registers of a thread, bytes of its local memory) of each of many launches, as the shipped code has them, or
    code alike in a ring of any length; 0 registers where there is none."""
    rows, macros = _rows(shipped_file(device.capability.sm)), kernel.macros(problem, tilings)
    columns = np.broadcast_arrays(*macros.values())
    found = np.zeros((2, columns[0].size), np.int64)
    for at, values in enumerate(zip(*(column.ravel().tolist() for column in columns), strict=True)):
        of = dict(zip(macros, values, strict=True))
        of.pop(SIZE_OF_LAUNCH, None)
        if row := _first(rows, ways(kernel.name, of)):
            found[:, at] = row.registers_per_thread, row.local_bytes
    return found.reshape(2, *columns[0].shape)


def ways(kernel: str, macros: Mapping[str, int]) -> Iterator[Key]:
    """What code is looked up by: all its macros, those that decide its program, those that decide its registers."""
    yield key_of(kernel, macros)
    alike = {
        name: min(2, value) if name in COUNTS else value for name, value in macros.items() if name not in ADDRESSES
    }
    yield key_of(kernel, alike)
    yield key_of(kernel, {name: value for name, value in alike.items() if name not in RING})


def _first(rows: Mapping[Key, Row], ways: Iterable[Key]) -> Row | None:
    return next((rows[way] for way in ways if way in rows), None)


@cache
def _rows(path: Path) -> dict[Key, Row]:
    """Of the rows of a file that are of the present sources and tell their registers, by every way: of several alike
    the one with the most registers, so that what is known of others makes none look better than it is."""
    present = {name: sources_hash(kernel) for name, kernel in KERNELS.items()}
    found: dict[Key, Row] = {}
    for row in sorted(read_heads(path), key=lambda row: -row.registers_per_thread):
        if row.registers_per_thread and row.sources == present.get(row.kernel):
            for way in ways(row.kernel, row.macros):
                found.setdefault(way, row)
    return found
