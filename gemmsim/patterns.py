"""Patterns of lanes: the addresses that an index expression gives to the warps of one block, and what they meet.

Threads are numbered along x first, as CUDA does it: tid = ty * x + tx, and 32 in sequence are a warp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import BANK_BYTES, BANKS, LaneGroup, checked_lanes, lane_groups
from gemmsim.coalescing import SECTOR_BYTES
from gemmsim.errors import InputError, require, short
from gemmsim.expressions import Expression
from gemmsim.problem import ceil_div
from gemmsim.tiling import LARGEST_BLOCK, WARP_SIZE

VARIABLES = ("lane", "tid", "tx", "ty", "warp")
"""What an index expression may speak of."""
ALL_LANES = tuple(range(WARP_SIZE))
FARTHEST_BYTES = 2**62
"""Where addresses end, so that sums of them do not pass 64 bits."""

Lanes = NDArray[np.int64]
Active = NDArray[np.bool_]


@dataclass(frozen=True)
class Block:
    """The threads of a block, x times y of them; their last warp may be partial."""

    x: int = WARP_SIZE
    y: int = 1

    def __post_init__(self) -> None:
        require(
            self.x >= 1 and self.y >= 1 and self.threads <= LARGEST_BLOCK,
            f"a block of {self.x} x {self.y} threads; allowed: 1 to {LARGEST_BLOCK} in all",
        )

    @property
    def threads(self) -> int:
        """Threads of the block."""
        return self.x * self.y

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return int(ceil_div(self.threads, WARP_SIZE))

    @property
    def variables(self) -> dict[str, Lanes]:
        """VARIABLES of every thread, arrays of shape (warps, 32), which run on to the end of the last warp."""
        tid = np.arange(self.warps * WARP_SIZE, dtype=np.int64).reshape(self.warps, WARP_SIZE)
        values = (tid % WARP_SIZE, tid, tid % self.x, tid // self.x, tid // WARP_SIZE)
        return dict(zip(VARIABLES, values, strict=True))

    def active(self, lanes: Sequence[int] = ALL_LANES) -> Active:
        """Which threads exist and are among `lanes` of their warp: an array of shape (warps, 32).

        Raises InputError where that leaves none.
        """
        values = self.variables
        found: Active = (values["tid"] < self.threads) & np.isin(values["lane"], lanes)
        if not found.any():
            raise InputError(f"lanes {ranges(lanes)}: none is active in a block of {self.threads} threads")
        return found


@dataclass(frozen=True)
class Pattern:
    """One access of every warp of a block: arrays of shape (warps, 32), which mean nothing on inactive lanes.

    Raises InputError that names warp, lane and address for an active lane whose address is negative, no
    multiple of the width, or whose bytes do not lie within `size_bytes`, where that is known.
    """

    byte_addresses: Lanes
    active: Active
    width_bytes: int
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        check_rows(self.byte_addresses, self.active, self.width_bytes, self.warp_named)
        if self.size_bytes is not None:
            # the address can be the largest number that there is, so nothing is added to it
            self._check(self.byte_addresses > self.size_bytes - self.width_bytes, self._past_the_end)

    @property
    def warps(self) -> int:
        """Warps of the block."""
        return len(self.byte_addresses)

    def warp_named(self, warp: int) -> str:
        """How messages begin that speak of a warp: with nothing where it is the only one."""
        return f"warp {warp}, " if self.warps > 1 else ""

    def _check(self, failed: Active, says: Callable[[int], str]) -> None:
        bad = np.argwhere(failed & self.active)
        if len(bad):
            warp, lane = map(int, bad[0])
            where = f"{self.warp_named(warp)}lane {lane} "
            raise InputError(where + says(int(self.byte_addresses[warp, lane])))

    def _past_the_end(self, address: int) -> str:
        return (
            f"runs out of the array: {self.width_bytes} bytes at byte address {address}; allowed:"
            f" {self.size_bytes} bytes in all"
        )


def pattern(
    index: Expression,
    block: Block,
    lanes: Sequence[int],
    width_bytes: int,
    in_bytes: bool = False,
    base_bytes: int = 0,
    size_bytes: int | None = None,
) -> Pattern:
    """The pattern of an array at `base_bytes` of which every lane touches the element `index`, or with
    `in_bytes` the element at that byte.

    Raises InputError where the index has no value, or leads to no address (`Pattern`).
    """
    active = block.active(lanes)
    who = ("warp", "lane") if block.warps > 1 else ("lane",)
    value = np.where(active, index.evaluate(block.variables, active, who), 0)
    unit_bytes = 1 if in_bytes else width_bytes
    farthest = (FARTHEST_BYTES - base_bytes) // unit_bytes
    beyond = np.argwhere((value > farthest) | (value < -farthest))
    if len(beyond):
        warp, lane = map(int, beyond[0])
        at = f"warp {warp}, lane {lane}" if block.warps > 1 else f"lane {lane}"
        raise InputError(f"{short(index.text)} is {value[warp, lane]} at {at}, which is beyond any memory")
    return Pattern(base_bytes + value * unit_bytes, active, width_bytes, size_bytes)


def check_rows(byte_addresses: Any, active: Any, width_bytes: int, named: Callable[[int], str]) -> None:
    """Raise the InputError of `checked_lanes` for the first of many warps that has one, after the warp's name."""
    try:
        checked_lanes(byte_addresses, active, width_bytes)
    except InputError:
        for row, (addresses, lanes) in enumerate(zip(byte_addresses, active, strict=True)):
            try:
                checked_lanes(addresses, lanes, width_bytes)
            except InputError as error:
                raise InputError(f"{named(row)}{error}") from None
        raise


def useful_bytes(of: Pattern) -> Lanes:
    """Distinct bytes that the active lanes of each warp touch; an array of shape (warps,)."""
    # aligned elements of one width are the same or apart
    elements = [
        len(set(addresses[active].tolist())) for addresses, active in zip(of.byte_addresses, of.active, strict=True)
    ]
    return np.array(elements, np.int64) * of.width_bytes


@dataclass(frozen=True)
class Served:
    """What one pass of a lane group takes from neighbouring banks: a word or a wider element, and for whom.

    turn    the number of the pass, from 0
    banks   one bank, or those that a 64- or 128-bit element covers
    word    the number of its first word in shared memory
    lanes   those that touch it, ascending
    """

    turn: int
    banks: range
    word: int
    lanes: tuple[int, ...]


def served(of: Pattern, warp: int, store: bool) -> tuple[tuple[LaneGroup, tuple[Served, ...]], ...]:
    """The lane groups of a warp, each with what its passes deliver.

    Which word of a bank comes first is not known of the hardware; here it is the lowest.
    """
    addresses, active = of.byte_addresses[warp], of.active[warp]
    groups = lane_groups(addresses, active, of.width_bytes, store)
    return tuple((group, _passes_of(group, addresses, of.width_bytes)) for group in groups)


def _passes_of(group: LaneGroup, addresses: Lanes, width_bytes: int) -> tuple[Served, ...]:
    unit_words = max(1, width_bytes // BANK_BYTES)
    askers = lanes_by((addresses // (BANK_BYTES * unit_words)).tolist(), group.lanes)
    taken: dict[int, int] = {}
    found = []
    for unit, lanes in sorted(askers.items()):
        bank = unit * unit_words % BANKS
        turn = taken[bank] = taken.get(bank, -1) + 1
        found.append(Served(turn, range(bank, bank + unit_words), unit * unit_words, lanes))
    return tuple(found)


def lanes_of_sectors(of: Pattern, warp: int) -> dict[int, tuple[int, ...]]:
    """{number of a 32-byte sector: lanes of the warp that touch it}, ascending."""
    sectors = (of.byte_addresses[warp] // SECTOR_BYTES).tolist()
    return dict(sorted(lanes_by(sectors, np.flatnonzero(of.active[warp]).tolist()).items()))


def lanes_by(places: Sequence[int], lanes: Sequence[int]) -> dict[int, tuple[int, ...]]:
    """{place: the lanes that are there}; `places` has one for each of the 32 lanes."""
    found: dict[int, tuple[int, ...]] = {}
    for lane in lanes:
        found[places[lane]] = (*found.get(places[lane], ()), lane)
    return found


def parse_lanes(text: str) -> tuple[int, ...]:
    """The lanes of a list such as "0-7,16", ascending.

    Raises InputError for another form, and for lanes that a warp does not have.
    """
    if not re.fullmatch(r"\s*\d{1,9}(\s*-\s*\d{1,9})?(\s*,\s*\d{1,9}(\s*-\s*\d{1,9})?)*\s*", text, re.ASCII):
        raise InputError(f"lanes {short(text)} are no list of lanes; allowed: lanes 0 to 31, such as 0-7,16")
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high >= WARP_SIZE or low > high:
            raise InputError(f"lanes {short(part.strip())} do not exist; allowed: 0 to 31, such as 0-7,16")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as people list them: "0-7, 16"; as `parse_lanes` reads it."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)
