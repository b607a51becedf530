"""Programs of compiled kernels: of one that was just compiled, and those that are shipped, so that none needs to be.

`campaigns/programs.py` makes the shipped ones, for the launches of the shipped records and of the table of registers,
and for what led searches (`campaigns/finalists.py`). As in that table a row holds for the sources that it was made
from: it carries their hash, and is not used once they have changed.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmsim.accesses.costs import access_costs
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.machine_code.sass import Function
from gemmsim.pipeline.program import Program, program_of
from gemmsim.problem import Problem
from gemmsim.register_table import Key, key_of, sources_hash
from gemmsim.registers.register_files import register_file
from gemmsim.tiling import Tiling

SHIPPED = Path(__file__).parent.parent / "data" / "programs"
SIZE_OF_LAUNCH = "TILES"
"""The macro that does not matter to the code: how many tiles have room for their partial sums."""
PROGRAM = ',"program":'
"""Where in a line the program begins, the last and by far the longest part."""
DIGITS = 3
AFTER_SOURCES = ("compiler", "registers_per_thread", "local_bytes", "program")
BITS_OF_REGISTER = 32


@dataclass(frozen=True)
class Row:
    """The program of a kernel with the macros of its launch, and the registers and bytes of local memory of a thread;
    `sources` is the hash of what was compiled."""

    kernel: str
    macros: Mapping[str, int]
    sources: str
    compiler: str
    program: Mapping[str, Any]
    registers_per_thread: int = 0
    local_bytes: int = 0

    @property
    def key(self) -> Key:
        """What the row is looked up by."""
        return key_of(self.kernel, self.macros)


def program_for(kernel: Kernel, problem: Problem, tiling: Tiling, device: Device) -> Program | None:
    """The shipped program of a launch (whole numbers, no arrays); None where there is none for these sources and the
    device's capability."""
    of = _start(kernel.name, code_macros(kernel, problem, tiling), _present_sources(kernel))
    return _program(shipped_file(device.capability.sm), of)


def compiled_program(function: Function, kernel: Kernel, problem: Problem, tiling: Tiling, device: Device) -> Program:
    """The program of a launch whose kernel was compiled for the device and disassembled.

    Raises InputError where its register file is not known, or the code has no loop with FFMA.
    """
    return program_of(function, register_file(device.capability), merged_loads(kernel, problem, tiling))


def code_macros(kernel: Kernel, problem: Problem, tiling: Tiling) -> dict[str, int]:
    """The macros of a launch that decide the code."""
    return {name: int(value) for name, value in kernel.macros(problem, tiling).items() if name != SIZE_OF_LAUNCH}


def merged_loads(kernel: Kernel, problem: Problem, tiling: Tiling) -> float:
    """Share of a kernel's shared loads whose lanes merge: served in fewer groups than they have registers."""
    if not kernel.staged:
        return 0.0
    costs = access_costs(kernel, tiling, kernel.widths(problem, tiling), problem.element_bytes)
    loads = [cost for cost in costs if cost.op == "load"]
    merged = [each for each in loads if each.ideal_wavefronts < each.requests * each.width_bits // BITS_OF_REGISTER]
    return float(sum(each.requests for each in merged) / sum(each.requests for each in loads))


def shipped_file(architecture: str) -> Path:
    """Where the programs of an architecture, such as "sm_90", are; there may be no such file."""
    return SHIPPED / f"{architecture}.jsonl.xz"


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, fresh or not; none where there is no file."""
    return [_row(path, line) for line in _lines(path)]


@cache
def read_heads(path: Path) -> tuple[Row, ...]:
    """The same without their programs, in a small part of the time."""
    return tuple(_row(path, line.partition(PROGRAM)[0] + "}", program={}) for line in _lines(path))


def program_of_row(path: Path, row: Row) -> Program:
    """The program of a row that was read without it."""
    found = _program(path, _start(row.kernel, row.macros, row.sources))
    assert found is not None
    return found


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Write one JSON object a row, ordered by kernel and macros, compressed; the same rows make the same bytes."""
    lines = [_line(row) for row in sorted(rows, key=lambda row: row.key)]
    path.parent.mkdir(parents=True, exist_ok=True)
    for kept in (_lines, _program, read_heads):
        kept.cache_clear()
    path.write_bytes(lzma.compress("".join(f"{line}\n" for line in lines).encode()))


def rounded(program: Program) -> dict[str, Any]:
    """A program as JSON values, no more digits to its cycles than they are worth."""
    return {
        name: part if isinstance(part, str) else [_rounded(step) for step in part]
        for name, part in program.to_dict().items()
    }


def _rounded(step: Iterable[Any]) -> list[Any]:
    values = (round(value, DIGITS) if isinstance(value, float) else value for value in step)
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]


def _line(row: Row) -> str:
    rest = _json({name: getattr(row, name) for name in AFTER_SOURCES})
    return f"{_start(row.kernel, row.macros, row.sources)},{rest[1:]}"


def _start(kernel: str, macros: Mapping[str, int], sources: str) -> str:
    """How the line of a row begins: found so, no other line needs to be parsed."""
    return _json({"kernel": kernel, "macros": dict(sorted(macros.items())), "sources": sources})[:-1]


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@cache
def _program(path: Path, start: str) -> Program | None:
    line = next((line for line in _lines(path) if line.startswith(start)), None)
    return Program.from_dict(json.loads(line)["program"]) if line else None


@cache
def _lines(path: Path) -> tuple[str, ...]:
    try:
        return tuple(lzma.decompress(path.read_bytes()).decode().splitlines()) if path.is_file() else ()
    except (lzma.LZMAError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


def _row(path: Path, text: str, **more: Any) -> Row:
    try:
        return Row(**json.loads(text), **more)
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} is damaged: {error}") from None


@cache
def _present_sources(kernel: Kernel) -> str:
    return sources_hash(kernel)
