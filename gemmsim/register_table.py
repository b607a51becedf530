"""Registers as a compiler counted them, shipped as a table for common tilings, so that no compiler is needed.

`campaigns/registers.py` makes the table. A row holds for the sources that it was made from, and for no others: it
carries their hash, and is not used once they have changed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.device import Capability
from gemmsim.elementwise import some_array
from gemmsim.errors import reading
from gemmsim.kernels import KERNELS, REGISTER_BYTES, Kernel, Resources
from gemmsim.problem import Count, Problem
from gemmsim.tiling import Tiling

SHIPPED = Path(__file__).parent / "data" / "registers" / "table.jsonl"
COLUMNS = ("compiler", "kernel", "loops", "macros", "registers", "running", "sources", "spill_bytes")
"""What a row of the table has."""
TABLE = "table"
"""The source of a register count that is from here, as `Resources` names it."""
HASH_DIGITS = 16
REPEATS = 64
"""Of n and k only that matters to the code which widths divide them, and none is wider than this; m does not."""

Key = tuple[str, tuple[tuple[str, int], ...]]


@dataclass(frozen=True)
class Row:
    """A kernel with the macros of its launch: registers of a thread by capability, such as {"9.0": 122}.

    `spill_bytes` are a thread's, of those capabilities alone where registers ran out; `sources` is the hash of the
    sources, `compiler` what compiled them. `loops` has of the main loop, by capability too, its FFMA, its
    instructions, and the cycles that a sub-core needs for these with its register ports; `running` the cycles per
    FFMA as the warps that fit there run it, waiting for what they load. Rows of `analytic/load_schedules.py` have
    `loads`.
    """

    kernel: str
    macros: Mapping[str, int]
    registers: Mapping[str, int] = field(default_factory=dict)
    spill_bytes: Mapping[str, int] = field(default_factory=dict)
    sources: str = ""
    compiler: str = ""
    loops: Mapping[str, tuple[int, int, float]] = field(default_factory=dict)
    running: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Compiled:
    """What a compiler said of one kernel for one capability."""

    registers_per_thread: int
    spill_bytes: int
    compiler: str

    @property
    def local_bytes(self) -> int:
        """Local memory of a thread: as a rule a word that spills is stored by one instruction, loaded by another."""
        return self.spill_bytes // 2


def compiled(kernel: Kernel, problem: Problem, tiling: Tiling, capability: Capability) -> Compiled | None:
    """What the shipped table says of one launch (whole numbers, no arrays); None where it has no row for these
    sources, this capability."""
    row, name = row_of(kernel, problem, tiling), capability.name
    if row is None or name not in row.registers:
        return None
    return Compiled(row.registers[name], row.spill_bytes.get(name, 0), row.compiler)


def resources(
    kernel: Kernel,
    problem: Problem,
    tiling: Tiling,
    capability: Capability,
    registers_per_thread: Count | None = None,
    local_bytes: Count = 0,
) -> Resources:
    """What one block takes, as `Kernel.resources`, but by the table where registers are not given and it knows.

    Of arrays the source is the table if it knows all of them, else an estimate, though some are counted.
    """
    if registers_per_thread is not None:
        return kernel.resources(problem, tiling, registers_per_thread, local_bytes)
    if many(problem, tiling):
        estimate = kernel.resources(problem, tiling)
        rows, which = rows_of(kernel, problem, tiling)
        counted = np.array([*(row.registers.get(capability.name, 0) for row in rows), 0])[which]
        local_bytes = np.array([*(row.spill_bytes.get(capability.name, 0) // 2 for row in rows), 0])[which]
        registers = np.where(counted > 0, counted, estimate.registers_per_thread)
        spilled = np.where(counted > 0, local_bytes // REGISTER_BYTES, estimate.spilled)
        source = TABLE if counted.all() else estimate.source
        return replace(estimate, registers_per_thread=registers, source=source, spilled=spilled)
    known = compiled(kernel, problem, tiling, capability)
    if known is None:
        return kernel.resources(problem, tiling)
    return replace(kernel.resources(problem, tiling, known.registers_per_thread, known.local_bytes), source=TABLE)


def key_of(kernel: str, macros: Mapping[str, int]) -> Key:
    """What a row is looked up by."""
    return kernel, tuple(sorted(macros.items()))


def sources_hash(kernel: Kernel) -> str:
    """Hash of the source of a kernel and of its headers."""
    digest = hashlib.sha256()
    for path in kernel.files:
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:HASH_DIGITS]


def read_table(path: Path) -> list[Row]:
    """The rows of a file, fresh or not; none where there is no file. InputError for one that is damaged."""
    with reading(path):
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return [Row(**json.loads(line)) for line in lines]


def write_table(path: Path, rows: Iterable[Row], columns: Sequence[str] = COLUMNS) -> None:
    """Write one JSON object a row, ordered by kernel and macros, so that changes show in a diff."""
    lines = [
        json.dumps({name: getattr(row, name) for name in columns}, sort_keys=True)
        for row in sorted(rows, key=lambda row: key_of(row.kernel, row.macros))
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _repeated(problem: Problem) -> tuple[Count, Count]:
    """The smallest n and k for which the compiler makes the same code."""
    return problem.n % REPEATS + REPEATS, problem.k % REPEATS + REPEATS


def many(problem: Problem, tiling: Tiling) -> bool:
    """Whether these are many launches, which arrays tell apart for the compiler."""
    return some_array((problem.n, problem.k, *vars(tiling).values()))


def row_of(kernel: Kernel, problem: Problem, tiling: Tiling, table: Path | None = None) -> Row | None:
    """The row of one launch (whole numbers, no arrays) in the shipped table, or in another; None where there is none
    for these sources."""
    return _fresh(table or SHIPPED).get(key_of_launch(kernel, *_repeated(problem), tiling))


@lru_cache(maxsize=2**12)
def key_of_launch(kernel: Kernel, n: int, k: int, tiling: Tiling) -> Key:
    """What the row of a launch is looked up by, of n and k as `_repeated` has them."""
    return key_of(kernel.name, kernel.macros(Problem(1, n, k), tiling))


def rows_of(
    kernel: Kernel, problem: Problem, tiling: Tiling, table: Path | None = None
) -> tuple[list[Row], NDArray[np.int64]]:
    """(rows of a table, which of them each of many launches has, -1 where it has none)."""
    macros = kernel.macros(Problem(1, *_repeated(problem)), tiling)
    alike = {name: value for name, value in macros.items() if not np.ndim(value)}
    rows = list(_fresh(table or SHIPPED).values())
    rows = [row for row in rows if row.kernel == kernel.name and row.macros.keys() == macros.keys()]
    rows = [row for row in rows if alike.items() <= row.macros.items()]
    shape = np.broadcast_shapes(*map(np.shape, macros.values()))
    columns = {name: np.broadcast_to(macros[name], shape).ravel() for name in macros.keys() - alike.keys()}
    which = np.full(math.prod(shape), -1, np.int64)
    for number, row in enumerate(rows):
        at: Any = slice(None)  # narrowed macro by macro, so that most rows cost one comparison
        for name, column in columns.items():
            found = np.flatnonzero(column[at] == row.macros[name])
            at = found if isinstance(at, slice) else at[found]
        which[at] = number
    return rows, which.reshape(shape)


@cache
def _fresh(path: Path) -> dict[Key, Row]:
    """The rows of a file that are of the present sources."""
    present: dict[str, Any] = {name: sources_hash(kernel) for name, kernel in KERNELS.items()}
    rows = read_table(path)
    return {key_of(row.kernel, row.macros): row for row in rows if present.get(row.kernel) == row.sources}
