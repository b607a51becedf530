"""The bank rules of compute capabilities before 7.0, as far as NVIDIA documented them.

From the CUDA C Programming Guide, version 4.2, sections F.3.3 (1.x), F.4.3 (2.x) and F.5.3 (3.x), and the
sections on shared memory of compute capability 5.x and 6.x in the guides since. They are arithmetic on
documents: nothing here was compared with hardware. What the guide leaves open is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any

import numpy as np

from gemmsim.banks import Passes, checked_lanes
from gemmsim.errors import InputError, unknown

Asked = dict[int, dict[int, list[int]]]
"""Of each bank the rows of words that a request asks for, and of each row the addresses, one for each lane."""


@dataclass(frozen=True)
class BankRule:
    """`lanes` are those served together, for each width in bytes that is documented.

    A wider access than `request_bytes` is that many requests, one after another. `any_broadcasts`: a pass
    delivers words to all lanes that ask for them; else one word alone, and of other banks an address each.
    `segment_words`: a bank delivers two words at once that are 32 apart in an aligned segment of that length.
    """

    banks: int
    lanes: dict[int, int]
    bank_bytes: int = 4
    request_bytes: int = 16
    any_broadcasts: bool = True
    segment_words: int = 0
    added_passes: dict[int, int] = field(default_factory=dict)

    def place(self, byte_address: int) -> tuple[int, int]:
        """(bank, what of it the bank delivers at once) of a byte."""
        word = byte_address // self.bank_bytes
        return word % self.banks, word // (self.segment_words or self.banks)


RULES = {
    "1.x": BankRule(16, dict.fromkeys((1, 2, 4, 8, 16), 16), request_bytes=4, any_broadcasts=False),
    "2.x": BankRule(32, {1: 32, 2: 32, 4: 32, 8: 16, 16: 8}, added_passes={16: 1}),
    "3.x, 32-bit banks": BankRule(32, dict.fromkeys((1, 2, 4), 32), segment_words=64),
    "3.x, 64-bit banks": BankRule(32, dict.fromkeys((1, 2, 4, 8), 32), bank_bytes=8),
    "5.x": BankRule(32, dict.fromkeys((1, 2, 4), 32)),
    "6.x": BankRule(32, dict.fromkeys((1, 2, 4), 32)),
}
"""By compute capability; 3.x has two modes. 64- and 128-bit accesses are not documented where they are absent."""


def documented_passes(byte_addresses: Any, active: Any, width_bytes: int, store: bool, capability: str) -> Passes:
    """Passes of warp accesses by the rule of an older compute capability, one of `RULES`; else as `banks.passes`.

    The ideal is a pass for each request of a lane group. On 1.x reads take the fewest passes that the guide
    allows, which leaves open which word is broadcast; stores to one address are one, as only one lane writes.
    On 2.x the guide adds one to the degree of every 128-bit access ("the majority" of them, in its words).
    """
    rule = RULES.get(capability)
    if rule is None:
        raise unknown("compute capability before 7.0", capability, RULES)
    addresses, active = checked_lanes(byte_addresses, active, width_bytes)
    if width_bytes not in rule.lanes:
        raise InputError(
            f"the rule of {8 * width_bytes}-bit accesses on compute capability {capability} is not documented;"
            f" documented: {', '.join(str(8 * width) for width in rule.lanes)} bits"
        )
    warps = addresses.shape[:-1]
    counts = np.zeros((3, *warps), np.int64)
    for warp in np.ndindex(warps):
        lanes = [a if acts else None for a, acts in zip(addresses[warp].tolist(), active[warp].tolist(), strict=True)]
        costs = [_cost(asked, rule, store) for asked in _requests(lanes, width_bytes, rule)]
        costs = [cost + rule.added_passes.get(width_bytes, 0) for cost in costs]
        counts[(slice(None), *warp)] = sum(costs), len(costs), max(costs, default=0)
    return Passes(counts)


def _requests(lanes: list[int | None], width_bytes: int, rule: BankRule) -> Iterator[Asked]:
    """What each request of each lane group asks for, of groups with an active lane."""
    request_bytes = min(width_bytes, rule.request_bytes)
    for first in range(0, 32, rule.lanes[width_bytes]):
        group = [address for address in lanes[first : first + rule.lanes[width_bytes]] if address is not None]
        for offset in range(0, width_bytes if group else 0, request_bytes):
            asked: Asked = {}
            for start in (address + offset for address in group):
                for bank, row in {rule.place(byte) for byte in range(start, start + request_bytes)}:
                    asked.setdefault(bank, {}).setdefault(row, []).append(start)
            yield asked


def _cost(asked: Asked, rule: BankRule, store: bool) -> int:
    """Passes of one request."""
    if rule.any_broadcasts:
        return max(len(of_row) for of_row in asked.values())
    if store:
        return max(len(set(chain.from_iterable(of_row.values()))) for of_row in asked.values())
    return next(passes for passes in count(1) if _broadcasts_needed(asked, passes) <= passes)


def _broadcasts_needed(asked: Asked, passes: int) -> int:
    """Passes of `passes` whose broadcast word must be in a given bank, over all banks, for all to be done by then."""
    needed = 0
    for of_row in asked.values():
        left = sum(map(len, of_row.values()))
        for lanes in sorted(map(len, of_row.values()), reverse=True):
            if left <= passes:
                break
            left -= lanes - 1
            needed += 1
    return needed
