"""A beam search for an order of FFMA that suits the register ports: place after place, many orders at once.

Each order carries the state of the ports, what the operand cache holds, and which FFMA are left. What is tried at a
place is every FFMA that may stand there, with its factors either way round and either, both or none of them kept. An
order in which some FFMA would miss its last place is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.rearrange.decode import Operation
from gemmsim.rearrange.dependences import Dependences
from gemmsim.registers.instruction_streams import RZ, Instruction
from gemmsim.registers.port_machine import PortMachine, Reads, port_machine
from gemmsim.registers.register_files import RegisterFile

Array = NDArray[Any]
SLOTS = 3
FLAGS = 4
"""Which of the slots A and B keep their operand: none, A, B, both."""
FLAG_BITS = np.array([[False, False], [True, False], [False, True], [True, True]])
"""The same, as whether A and B are kept."""
NONE = -1
NO_BANK = 2
"""In place of a bank: a slot that reads nothing."""
CHILDREN = 4
"""Orders that may follow one, as a share of the beam: one of so many, so that it does not become all alike."""
BUSY_WEIGHT = 0.3
"""Cycles that a cycle of a bank's backlog is taken to cost later."""
HOLD_WEIGHT = 0.3
"""Cycles that an operand in the cache is taken to spare which is still to be read."""
ORDER_WEIGHT = 1e-3
"""Cycles that a place away from the compiler's order counts for: it decides between equals."""


@dataclass(frozen=True)
class Style:
    """What a search may do: swap factors, hold operands for longer than until the next FFMA, and over instructions
    that are none. With a narrower window than the ports have it finds orders that rely less on reads that come late."""

    swaps: bool = False
    long_holds: bool = True
    over_others: bool = True
    window_cycles: int = 3


@dataclass(frozen=True)
class Choice:
    """An FFMA, by number, for the next place that takes one: with its factors swapped or not, and flags of A and B."""

    ffma: int
    swapped: bool
    flags: int


@dataclass
class _Orders:
    """The orders of the beam, one a row. `kept` are the values in the operand cache, by bank and slot; `uses` how many
    FFMA are still to read each value, and `left` which FFMA are."""

    state: Array
    kept: Array
    uses: Array
    left: Array
    waits_for: Array
    earliest: Array
    slack: Array
    cost: Array
    identity: Array
    history: list[tuple[Array, Array]] = field(default_factory=list)

    def take(self, rows: Array) -> None:
        """Keep these rows alone, in this order."""
        for name in ("state", "kept", "uses", "left", "waits_for", "earliest", "slack", "cost", "identity"):
            setattr(self, name, getattr(self, name)[rows])


class Beam:
    """The search over one loop: `stream` are its instructions as the ports see them, FFMA by their places."""

    def __init__(
        self,
        loop: Sequence[Operation],
        stream: Sequence[Instruction],
        found: Dependences,
        file: RegisterFile,
        style: Style,
    ) -> None:
        self.style = style
        self.loop, self.stream, self.found = loop, stream, found
        file = replace(file, window_cycles=min(style.window_cycles, file.window_cycles))
        self.machine: PortMachine = port_machine(file)
        self.registers = np.array([loop[place].ffma for place in found.places], np.int32).reshape(-1, 4)
        self.first, self.last = np.array(found.first), np.array(found.last)
        self.places = np.array(found.places)
        self.ends, self.end_of = np.unique(self.last, return_inverse=True)
        self.successors: list[list[tuple[int, int]]] = [[] for _ in found.places]
        for edge in found.edges:
            self.successors[edge.before].append((edge.after, edge.cycles))
        self.kinds = _kinds(file)
        self.values, self.value_count = self._values()

    def _values(self) -> tuple[Array, int]:
        """(a number for what each FFMA reads as A, B and C, the same for the same register unchanged; how many)."""
        current: dict[int, int] = {}
        numbers: dict[tuple[int, int], int] = {}
        found = []
        for place, each in enumerate(self.loop):
            if each.ffma is not None:
                read = [(register, current.get(register, NONE)) for register in each.ffma[1:]]
                found.append([numbers.setdefault(value, len(numbers)) for value in read])
            current |= dict.fromkeys(each.writes, place)
        return np.array(found, np.int32).reshape(-1, SLOTS), len(numbers)

    def search(self, width: int, seed: int = 0, tell: Callable[[int], None] | None = None) -> list[Choice] | None:
        """The order with the fewest cycles that was found, a choice for each place of an FFMA; None where every order
        ran into a dead end."""
        random = np.random.default_rng(seed)
        names = random.integers(1, 2**62, len(self.places))
        orders = self._begin()
        for place, each in enumerate(self.loop):
            if each.ffma is None:
                self._other(orders, place)
            elif not self._ffma(orders, place, width, names, random):
                return None
            if tell is not None:
                tell(place)
        return self._choices(orders)

    def _begin(self) -> _Orders:
        count = len(self.places)
        waits_for = np.zeros((1, count), np.int16)
        for edge in self.found.edges:
            waits_for[0, edge.after] += 1
        slots = np.searchsorted(self.places, self.ends, side="right")
        due = np.array([(self.last <= end).sum() for end in self.ends])
        return _Orders(
            state=np.full(1, self.machine.idle),
            kept=np.full((1, NO_BANK, SLOTS), NONE, np.int32),
            uses=np.bincount(self.values[:, :2].ravel(), minlength=self.value_count + 1)[None, :].astype(np.int16),
            left=np.ones((1, count), bool),
            waits_for=waits_for,
            earliest=np.zeros((1, count), np.int64),
            slack=(slots - due)[None, :],
            cost=np.zeros(1),
            identity=np.zeros(1, np.int64),
        )

    def _other(self, orders: _Orders, place: int) -> None:
        """An instruction that is no FFMA goes by."""
        each = self.stream[place]
        banks = [NO_BANK if register is None or register == RZ else register & 1 for register in each.sources]
        kind = np.full(len(orders.cost), self.machine.kind(_reads(banks, 0, 0, each.stall)))
        orders.state, waits, _ = self.machine.run(orders.state, kind)
        orders.cost = orders.cost + waits
        for slot, bank in enumerate(banks[:SLOTS]):
            if bank != NO_BANK:
                orders.kept[:, bank, slot] = NONE
        if not self.style.over_others or not self._stays(place):
            orders.kept[:] = NONE

    def _ffma(self, orders: _Orders, place: int, width: int, names: Array, random: np.random.Generator) -> bool:
        """Put one FFMA at a place, in the best ways; False where there is none for any order."""
        rows, which = self._possible(orders, place)
        if not len(rows):
            return False
        _, a, b, c = self.registers[which].T
        sources = np.stack([np.stack([a, b, c], 1), np.stack([b, a, c], 1)], 1)  # (pair, swapped, slot)
        banks = np.where(sources == RZ, NO_BANK, sources & 1)
        v_a, v_b, v_c = self.values[which].T
        values = np.stack([np.stack([v_a, v_b, v_c], 1), np.stack([v_b, v_a, v_c], 1)], 1)
        was = orders.kept[rows[:, None, None], np.minimum(banks, 1), np.arange(SLOTS)]
        hit_bits = ((was == values) & (banks != NO_BANK)) @ (1 << np.arange(SLOTS))
        flags = np.arange(FLAGS if self.stream[place].stall <= 1 and self._stays(place) else 1)
        kinds = self.kinds[banks[..., 0, None], banks[..., 1, None], banks[..., 2, None], flags, hit_bits[..., None]]
        before = np.broadcast_to(orders.state[rows][:, None, None], kinds.shape)
        after, waits, _ = self.machine.run(before.ravel(), kinds.ravel())
        cost = orders.cost[rows][:, None, None] + waits.reshape(kinds.shape)
        score = cost + BUSY_WEIGHT * self._busy()[after].reshape(kinds.shape)
        lost = orders.uses[rows[:, None, None], was[..., :2]] > (was == values)[..., :2]
        held = orders.uses[rows[:, None, None], values[..., :2]] > 1
        kept_on = (held[..., None, :] & FLAG_BITS[: len(flags)]).sum(axis=-1) - lost.sum(axis=-1)[..., None]
        score -= HOLD_WEIGHT * (kept_on + self._alive(orders)[rows][:, None, None])
        score += ORDER_WEIGHT * (self.places[which] - place)[:, None, None]
        score += random.random(score.shape) * ORDER_WEIGHT
        if not self.style.swaps:
            score[:, 1] = np.inf
        picked = self._pick(score.ravel(), rows.repeat(score[0].size), width)
        pair, swapped, flag = np.unravel_index(picked, score.shape)
        self._advance(orders, rows[pair], which[pair], names, place)
        orders.state, orders.cost = after[picked], cost.ravel()[picked]
        self._keep(orders, values[pair, swapped], banks[pair, swapped], flag)
        if not self._stays(place):
            orders.kept[:] = NONE
        orders.history.append((rows[pair], (which[pair] << 3 | swapped << 2 | flag)))
        self._drop_alike(orders, score.ravel()[picked], width)
        return True

    def _stays(self, place: int) -> bool:
        control = self.loop[place].control
        return control.stall <= 1 and control.yield_bit == 1

    def _possible(self, orders: _Orders, place: int) -> tuple[Array, Array]:
        """(row, FFMA) of all that may stand here and make no other miss its last place."""
        tight = (orders.slack <= 0) & (self.ends >= place)
        first_tight = np.where(tight.any(axis=1), tight.argmax(axis=1), len(self.ends))
        ready = orders.left & (orders.waits_for == 0) & (self.first <= place) & (self.last >= place)
        ready &= orders.earliest <= self.found.starts[place]
        ready &= self.end_of[None, :] <= first_tight[:, None]
        rows, which = np.nonzero(ready)
        return rows, which

    def _busy(self) -> Array:
        """The backlog of the banks in each state of the machine, in cycles."""
        if len(self._backlog) < len(self.machine.states):
            self._backlog = np.array([sum(state.busy) for state in self.machine.states], float)
        return self._backlog

    _backlog: Array = np.empty(0)

    def _pick(self, score: Array, rows: Array, width: int) -> Array:
        """The best of all, not too many of one row."""
        most = min(len(score), 4 * width)
        best = np.argpartition(score, most - 1)[:most]
        best = best[np.argsort(score[best], kind="stable")]
        of_row = rows[best]
        order = np.argsort(of_row, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(of_row[order]) > 0])
        rank = np.empty(len(best), np.int64)
        rank[order] = np.arange(len(best)) - np.repeat(starts, np.diff(np.r_[starts, len(best)]))
        limit = max(1, width // CHILDREN) if len(np.unique(of_row)) > 1 else most
        chosen: Array = best[rank < limit]
        return chosen[: 2 * width]

    def _advance(self, orders: _Orders, rows: Array, which: Array, names: Array, place: int) -> None:
        """The rows that go on, each without the FFMA that it has put down."""
        orders.take(rows)
        at = np.arange(len(rows))
        orders.left[at, which] = False
        orders.identity = orders.identity ^ names[which]
        due = self.ends[None, :] >= self.last[which][:, None]
        orders.slack = orders.slack - ~due
        for row, ffma in enumerate(which.tolist()):
            for after, cycles in self.successors[ffma]:
                orders.waits_for[row, after] -= 1
                start = self.found.starts[place] + cycles
                if orders.earliest[row, after] < start:
                    orders.earliest[row, after] = start

    def _keep(self, orders: _Orders, values: Array, banks: Array, flag: Array) -> None:
        """What the operand cache holds after these reads."""
        at = np.arange(len(flag))
        if not self.style.long_holds:
            orders.kept[:] = NONE
        for slot in range(SLOTS):
            reads = banks[:, slot] != NO_BANK
            kept = np.where(flag >> slot & 1, values[:, slot], NONE)
            orders.kept[at[reads], banks[reads, slot], slot] = kept[reads]
        for number in (0, 1):
            orders.uses[at, values[:, number]] -= 1

    def _alive(self, orders: _Orders) -> Array:
        """How many values in the operand cache are still to be read, in each order."""
        rows = np.arange(len(orders.cost))[:, None, None]
        alive: Array = (orders.uses[rows, orders.kept[:, :, :2]] > 0).sum(axis=(1, 2))
        return alive

    def _drop_alike(self, orders: _Orders, score: Array, width: int) -> None:
        """Of orders that have the same FFMA left and leave ports and cache alike, only the best."""
        cache = (orders.kept.reshape(len(score), -1).astype(np.int64) * _PRIMES).sum(axis=1)
        key = orders.identity ^ (cache * 1_000_003) ^ (orders.state * 998_244_353)
        _, first = np.unique(key, return_index=True)  # rows come best first
        rows = np.sort(first)[:width]
        orders.take(rows)
        parents, codes = orders.history[-1]
        orders.history[-1] = parents[rows], codes[rows]

    def _choices(self, orders: _Orders) -> list[Choice]:
        row = int(np.argmin(orders.cost))
        found = []
        for parents, codes in reversed(orders.history):
            code = int(codes[row])
            found.append(Choice(code >> 3, bool(code >> 2 & 1), code & 3))
            row = int(parents[row])
        return found[::-1]


_PRIMES = np.array([2, 3, 5, 7, 11, 13]) * 7919 + 1


@cache
def _kinds(file: RegisterFile) -> Array:
    """The machine's numbers of FFMA, by banks of A, B and C, flags, and slots found kept, as bits."""
    table = np.zeros((NO_BANK + 1,) * SLOTS + (FLAGS, 1 << SLOTS), np.int64)
    for banks in product(range(NO_BANK + 1), repeat=SLOTS):
        for flags, hits in product(range(FLAGS), range(1 << SLOTS)):
            table[(*banks, flags, hits)] = port_machine(file).kind(_reads(banks, flags, hits, 1))
    return table


def _reads(banks: Sequence[int], flags: int, hits: int, gap: int) -> Reads:
    """What an instruction asks of the ports that reads from these banks, slot by slot."""
    slots, flagged, found = [0, 0], [0, 0], []
    for slot, bank in enumerate(banks):
        if bank == NO_BANK:
            continue
        if hits >> slot & 1:
            found.append((bank, slot))
        else:
            slots[bank] |= 1 << slot
            flagged[bank] |= flags & 1 << slot
    return Reads(tuple(slots), tuple(flagged), flags > 0, tuple(found), gap)
