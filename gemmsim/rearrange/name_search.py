"""Names for registers that suit the register ports, in the order in which the instructions are.

Rounds of exchanges: many pairs of registers that are in different banks change places, each alone, and of those that
spare cycles as many are taken together as spare most.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from gemmsim.machine_code.main_loop import main_loop
from gemmsim.machine_code.sass import Function
from gemmsim.main_loops.port_streams import stream_of_loop
from gemmsim.rearrange.flags import BANKS
from gemmsim.rearrange.renaming import Names, exchangeable
from gemmsim.registers.instruction_streams import Instruction, Stream
from gemmsim.registers.reads import simulate
from gemmsim.registers.register_files import RegisterFile, register_file

EXCHANGES = 320
"""Exchanges that are simulated in a round."""
FRUITLESS = 3
"""Rounds without a gain after which the search ends."""
Pair = tuple[int, int]


def best_names(function: Function) -> Names:
    """The names that were found for the registers of a function, none where no others are better; always the same for
    the same function.

    Raises InputError as `exchangeable`, and for a function without a main loop.
    """
    file = register_file(function.arch)
    search = _Search(stream_of_loop(main_loop(function), file).instructions, file)
    groups = exchangeable(function)
    chosen, numbers = random.Random(0), {register: register for group in groups for register in group}
    (least,) = search.cycles([numbers])
    fruitless = 0
    while fruitless < FRUITLESS:
        pairs = search.pairs(groups, numbers, EXCHANGES, chosen)
        spared = [least - cycles for cycles in search.cycles([_exchanged(numbers, [pair]) for pair in pairs])]
        better = _apart([pair for gain, pair in sorted(zip(spared, pairs, strict=True), reverse=True) if gain > 0])
        tried = [_exchanged(numbers, better[:count]) for count in range(1, len(better) + 1)]
        cycles = search.cycles(tried)
        if tried and min(cycles) < least:
            least = min(cycles)
            numbers, fruitless = tried[cycles.index(least)], 0
        else:
            fruitless += 1 if len(pairs) == EXCHANGES else FRUITLESS
    return {old: new for old, new in numbers.items() if old != new}


@dataclass
class _Search:
    """The instructions of a loop as the ports see them, and which of them read each register."""

    code: Sequence[Instruction]
    file: RegisterFile

    def __post_init__(self) -> None:
        self.readers: Mapping[int, set[int]] = defaultdict(set)
        for place, each in enumerate(self.code):
            for register in each.sources:
                if register is not None:
                    self.readers[register].add(place)

    def pairs(self, groups: Sequence[Sequence[int]], numbers: Names, most: int, chosen: random.Random) -> list[Pair]:
        """Pairs of a group in different banks of which the loop reads one, all or `most` of them."""
        found = [
            (one, other)
            for group in groups
            for one in group
            for other in group
            if (one in self.readers and (one < other or other not in self.readers))
            and numbers[one] % BANKS != numbers[other] % BANKS
        ]
        return found if len(found) <= most else chosen.sample(found, most)

    def cycles(self, all_numbers: Sequence[Names]) -> list[float]:
        """Cycles of a pass with each of these names."""
        return [report.cycles for report in simulate([self._stream(names) for names in all_numbers], self.file)]

    def _stream(self, names: Names) -> Stream:
        code = list(self.code)
        changed = {register for register, new in names.items() if register != new}
        for place in set().union(*(self.readers[register] for register in changed & self.readers.keys())):
            sources = tuple(each if each is None else names.get(each, each) for each in code[place].sources)
            code[place] = replace(code[place], sources=sources)
        return Stream(tuple(code))


def _exchanged(numbers: Names, pairs: Sequence[Pair]) -> dict[int, int]:
    """The names with those of each pair in each other's place."""
    found = dict(numbers)
    for one, other in pairs:
        found[one], found[other] = found[other], found[one]
    return found


def _apart(pairs: Sequence[Pair]) -> list[Pair]:
    """The first pairs, without those that share a register with one before."""
    taken: set[int] = set()
    found = []
    for pair in pairs:
        if not taken & set(pair):
            found.append(pair)
            taken |= set(pair)
    return found
