"""Where each FFMA of a loop may stand: after what, how many cycles after it, and before what.

All other instructions keep their places, so they give each FFMA a first and a last place; among FFMA there are edges.
Nothing moves from one pass of the loop to another, nor out of its basic block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gemmsim.rearrange.decode import Operation, Span
from gemmsim.rearrange.waits import SET_CYCLES, Known

FFMA_CYCLES, MIXED_CYCLES = 4, 8
"""Cycles from an FFMA to one that uses its result; the same to or from any other instruction, on the safe side."""
LOAD_PLACES = 48
"""Places behind a load where its result is asked for at the soonest, unless the compiler waited for it sooner."""


@dataclass(frozen=True)
class Edge:
    """FFMA `after` comes at least `cycles` after FFMA `before`, both by number."""

    before: int
    after: int
    cycles: int


@dataclass(frozen=True)
class Dependences:
    """Of each FFMA of a loop, in the compiler's order: its place there, the first and the last that it may have, all
    counted from the beginning of the loop; and the edges among them. `starts` is the cycle in which each place comes
    up if nothing waits."""

    places: tuple[int, ...]
    first: tuple[int, ...]
    last: tuple[int, ...]
    edges: tuple[Edge, ...]
    starts: tuple[int, ...]


@dataclass
class _Register:
    """Who has written a register last, and who has read it since, by place."""

    writer: int | None = None
    readers: list[int] = field(default_factory=list)


def dependences(
    loop: Sequence[Operation], offset: int, spans: Iterable[Span], known: Known, load_places: int = LOAD_PLACES
) -> Dependences:
    """The dependences of a loop whose first instruction has number `offset` in the function, with its basic blocks.

    What a load brings is used `load_places` behind it at the soonest, unless the compiler waited for it sooner.
    """
    starts = [0]
    for each in loop:
        starts.append(starts[-1] + max(each.control.stall, 1))
    bounds = _Bounds(loop, offset, starts, known, load_places)
    for span in spans:
        for place in range(span.first - offset, span.last - offset):
            bounds.first[place], bounds.last[place] = span.first - offset, span.last - offset - 1
    registers: dict[int, _Register] = {}
    for place, each in enumerate(loop):
        for register in each.reads:
            known_of = registers.setdefault(register, _Register())
            bounds.order(known_of.writer, place, result=True)
            if known_of.writer is None:
                bounds.loaded_before(register, place)
            known_of.readers.append(place)
        for register in each.writes:
            known_of = registers.setdefault(register, _Register())
            for reader in known_of.readers:
                bounds.order(reader, place, result=False)
            bounds.order(known_of.writer, place, result=True)
            registers[register] = _Register(place)
    return bounds.found()


class _Bounds:
    def __init__(
        self, loop: Sequence[Operation], offset: int, starts: Sequence[int], known: Known, load_places: int
    ) -> None:
        self.loop, self.offset, self.starts, self.known = loop, offset, starts, known
        self.load_places = load_places
        self.first, self.last = [0] * len(loop), [len(loop) - 1] * len(loop)
        self.edges: dict[tuple[int, int], int] = {}
        self.writers: dict[int, int] = {}
        for place, each in enumerate(loop):
            self.writers |= dict.fromkeys(each.writes, place)

    def order(self, before: int | None, after: int, result: bool) -> None:
        """Keep `after` behind `before`; with `result`, until what that writes is there."""
        if before is None or before == after:
            return
        one, other = self.loop[before], self.loop[after]
        apart = self.starts[after] - self.starts[before]
        if one.ffma is not None and other.ffma is not None:
            cycles = FFMA_CYCLES if result else 1
            self.edges[before, after] = max(self.edges.get((before, after), 0), cycles)
        elif other.ffma is not None:
            wanted = SET_CYCLES if one.variable else MIXED_CYCLES if result else 1
            cycles = min(wanted, apart)
            self.first[after] = max(self.first[after], self.place_from(self.starts[before] + cycles))
            if result and one.variable:
                self.first[after] = max(self.first[after], self.expected(before, after))
        elif one.ffma is not None:
            cycles = min(MIXED_CYCLES, apart) if result else 1
            self.last[before] = min(self.last[before], self.place_to(self.starts[after] - cycles))

    def expected(self, load: int, user: int) -> int:
        """The first place for what uses the result of a load of this pass."""
        waited = self.known.waited.get(load + self.offset, user)
        return min(waited if waited > load else user, load + self.load_places, user)

    def loaded_before(self, register: int, place: int) -> None:
        """What uses a register that the pass before loaded comes no sooner than the compiler waited for it."""
        load = self.writers.get(register)
        if load is not None and self.loop[load].variable and self.loop[place].ffma is not None:
            waited = self.known.waited.get(load + self.offset, 0)
            expected = min(waited if waited <= place else place, max(load + self.load_places - len(self.loop), 0))
            self.first[place] = max(self.first[place], expected)

    def place_from(self, cycle: int) -> int:
        """The first place in this cycle or later."""
        return next(place for place, start in enumerate(self.starts) if start >= cycle)

    def place_to(self, cycle: int) -> int:
        """The last place in this cycle or sooner."""
        return next(place for place in reversed(range(len(self.loop))) if self.starts[place] <= cycle)

    def found(self) -> Dependences:
        """The bounds of the FFMA, each no narrower than where the compiler has it, drawn along the edges."""
        places = [place for place, each in enumerate(self.loop) if each.ffma is not None]
        number = {place: at for at, place in enumerate(places)}
        edges = [Edge(number[before], number[after], cycles) for (before, after), cycles in self.edges.items()]
        first, last = [self.first[place] for place in places], [self.last[place] for place in places]
        for edge in sorted(edges, key=lambda each: each.after):
            first[edge.after] = max(first[edge.after], self.place_from(self.starts[first[edge.before]] + edge.cycles))
        for edge in sorted(edges, key=lambda each: -each.before):
            last[edge.before] = min(last[edge.before], self.place_to(self.starts[last[edge.after]] - edge.cycles))
        return Dependences(tuple(places), tuple(first), tuple(last), tuple(edges), tuple(self.starts))
