"""Files of warp accesses, JSON Lines, and what each access costs: {op, width_bits, lane_byte_address} a line.

`lane_byte_address` has 32 entries, null for a lane that is inactive; other keys are ignored. A file may be
compressed (its name then ends in .gz), and is read piece by piece.
"""

from __future__ import annotations

import codecs
import gzip
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import WIDTHS_BYTES, Passes, async_copy_passes, ldmatrix_passes, passes
from gemmsim.coalescing import transactions
from gemmsim.errors import InputError, short, unknown
from gemmsim.patterns import check_rows
from gemmsim.tiling import WARP_SIZE

LONGEST_LINE_BYTES = 100_000
LINES_AT_ONCE = 4096
LARGEST_ADDRESS = 2**63 - 1
WIDTHS_BITS = tuple(8 * width_bytes for width_bytes in WIDTHS_BYTES)

Counts = Mapping[str, NDArray[np.int64]]


@dataclass(frozen=True)
class Operation:
    """A memory instruction: its widths, what counts it, and how many lanes give it addresses.

    `count` takes addresses and active lanes of shape (accesses, 32) and the width in bytes. Where `every`,
    none of those lanes may be inactive.
    """

    widths_bits: tuple[int, ...]
    count: Callable[[Any, Any, int], Counts]
    lanes: int = WARP_SIZE
    every: bool = False


def _wavefronts(of: Passes) -> Counts:
    return {"wavefronts": of.wavefronts, "conflicts": of.excess}


def _shared(store: bool) -> Operation:
    return Operation(WIDTHS_BITS, lambda addresses, active, width: _wavefronts(passes(addresses, active, width, store)))


def _ldmatrix(matrices: int) -> Operation:
    return Operation(
        (128,), lambda addresses, active, width: _wavefronts(ldmatrix_passes(addresses, matrices)), 8 * matrices, True
    )


def _async_copy(through_l1: bool, *widths_bits: int) -> Operation:
    return Operation(
        widths_bits,
        lambda addresses, active, width: _wavefronts(async_copy_passes(addresses, active, width, through_l1)),
    )


def _transactions(addresses: Any, active: Any, width_bytes: int) -> Counts:
    return vars(transactions(addresses, active, width_bytes))


OPERATIONS: Mapping[str, Mapping[str, Operation]] = {
    "banks": {
        "ld": _shared(store=False),
        "st": _shared(store=True),
        **{f"ldmatrix x{matrices}": _ldmatrix(matrices) for matrices in (1, 2, 4)},
        "cp.async.ca (through L1)": _async_copy(True, 32, 64, 128),
        "cp.async.cg (past L1)": _async_copy(False, 128),
    },
    "coalescing": dict.fromkeys(("global load", "global store"), Operation(WIDTHS_BITS, _transactions)),
}
"""{command: {name of an operation in a file: what it is}}."""


class Access(NamedTuple):
    """One line of a file; the address of an inactive lane is None."""

    line: int
    operation: str
    width_bits: int
    addresses: list[int | None]


@dataclass(frozen=True)
class Counted:
    """The accesses of a file in order: which lines, which operations, how wide, and their counts by name."""

    lines: tuple[int, ...]
    operations: tuple[str, ...]
    widths_bits: tuple[int, ...]
    counts: Counts

    @property
    def results(self) -> list[dict[str, int]]:
        """The counts of each access."""
        columns = [column.tolist() for column in self.counts.values()]
        return [dict(zip(self.counts, row, strict=True)) for row in zip(*columns, strict=True)]


def count_file(path: str | Path, command: str) -> Counted:
    """The counts of every access of a file whose operations are those that `command` takes.

    Raises InputError for a file that cannot be read or has no access in it, and, with its number, for a
    line that is none.
    """
    operations = OPERATIONS[command]
    accesses = (_access(data, operations, f"{path}, line {number}", number) for number, data in _lines(path))
    kept: list[tuple[int, str, int]] = []
    counts: list[Counts] = []
    while some := list(islice(accesses, LINES_AT_ONCE)):
        kept += [access[:3] for access in some]
        counts.append(_count(some, operations, path))
    if not kept:
        raise InputError(f"{path}: no access in it; needed: lines of op, width_bits and lane_byte_address")
    lines, names, widths = zip(*kept, strict=True)
    return Counted(lines, names, widths, {name: np.concatenate([part[name] for part in counts]) for name in counts[0]})


def _count(accesses: list[Access], operations: Mapping[str, Operation], path: str | Path) -> Counts:
    """The counts of accesses in their order: those of one operation and width at once."""
    alike: dict[tuple[str, int], list[int]] = {}
    for place, access in enumerate(accesses):
        alike.setdefault((access.operation, access.width_bits), []).append(place)
    counts: dict[str, NDArray[np.int64]] = {}
    for (name, width_bits), places in alike.items():
        operation, width_bytes = operations[name], width_bits // 8
        given = [accesses[place].addresses for place in places]
        active = np.array([[address is not None for address in row] for row in given])
        addresses = np.array([[address or 0 for address in row] for row in given], np.int64)
        active &= np.arange(WARP_SIZE) < operation.lanes
        addresses[~active] = 0

        def named(row: int, places: list[int] = places) -> str:
            return f"{path}, line {accesses[places[row]].line}: "

        check_rows(addresses, active, width_bytes, named)
        for key, column in operation.count(addresses, active, width_bytes).items():
            counts.setdefault(key, np.empty(len(accesses), np.int64))[places] = column
    return counts


def _access(data: bytes, operations: Mapping[str, Operation], where: str, number: int) -> Access:
    """The access that a line describes; InputError that says what is wrong with it."""
    try:
        entries = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise InputError(f"{where}: not readable as JSON ({reason})") from None
    if not isinstance(entries, dict):
        raise InputError(f"{where}: {short(entries)} is no JSON object; needed: op, width_bits, lane_byte_address")
    for key in ("op", "width_bits", "lane_byte_address"):
        if key not in entries:
            raise InputError(f"{where}: {key} is missing; needed: op, width_bits, lane_byte_address")
    name, width_bits, addresses = entries["op"], entries["width_bits"], entries["lane_byte_address"]
    operation = _operation(name, operations, where)
    if type(width_bits) is not int or width_bits not in operation.widths_bits:
        widths = ", ".join(map(str, operation.widths_bits))
        raise InputError(f"{where}: width_bits {short(width_bits)} of {name} does not exist; allowed: {widths}")
    _check_addresses(addresses, name, operation, where)
    return Access(number, name, width_bits, addresses)


def _operation(name: Any, operations: Mapping[str, Operation], where: str) -> Operation:
    if isinstance(name, str) and name in operations:
        return operations[name]
    for command, others in OPERATIONS.items():
        if isinstance(name, str) and name in others:
            raise InputError(
                f"{where}: op {name}; allowed here: {', '.join(operations)}; `gemmsim {command}` takes {name}"
            )
    raise InputError(f"{where}: {unknown('op', str(name), operations)}")


def _check_addresses(addresses: Any, name: str, operation: Operation, where: str) -> None:
    if not isinstance(addresses, list) or len(addresses) != WARP_SIZE:
        found = f"{len(addresses)} entries" if isinstance(addresses, list) else short(addresses)
        raise InputError(
            f"{where}: lane_byte_address is {found}; allowed: a list of {WARP_SIZE}, null for inactive lanes"
        )
    for lane, address in enumerate(addresses):
        if address is not None and (type(address) is not int or not 0 <= address <= LARGEST_ADDRESS):
            raise InputError(
                f"{where}: lane {lane} has the byte address {short(address)}; allowed: whole numbers from 0 to"
                f" {LARGEST_ADDRESS}, and null for an inactive lane"
            )
    if operation.every and None in addresses[: operation.lanes]:
        lane = addresses.index(None)
        raise InputError(
            f"{where}: lane {lane} is null; allowed: an address: {name} needs those of lanes 0 to {operation.lanes - 1}"
        )


def _lines(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """(number from 1, text) of the lines that are not blank."""
    try:
        with _opened(path) as file:
            for number, line in enumerate(_bounded(file, path), 1):
                line = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line  # some editors begin a file so
                if line.strip():
                    yield number, line
    except (OSError, EOFError, zlib.error) as error:  # gzip raises any of them for a file that is none or is cut off
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"cannot read {path}: {reason}") from None


def _bounded(file: IO[bytes], path: str | Path) -> Iterable[bytes]:
    number = 0
    while line := file.readline(LONGEST_LINE_BYTES + 1):
        number += 1
        if len(line) > LONGEST_LINE_BYTES:
            raise InputError(f"{path}, line {number}: longer than {LONGEST_LINE_BYTES} bytes, so no access")
        yield line


def _opened(path: str | Path) -> IO[bytes]:
    return cast(IO[bytes], gzip.open(path, "rb")) if str(path).endswith(".gz") else open(path, "rb")
