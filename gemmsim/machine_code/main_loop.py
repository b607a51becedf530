"""The loop that does the work of a kernel: where it is in the machine code, and what is in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import WORD_BYTES
from gemmsim.machine_code.sass import Function, Instruction


@dataclass(frozen=True)
class MainLoop:
    """A loop: its instructions in the order of their addresses, the branch back last.

    A part that a branch within goes over is in it all the same, and so is a loop within it, once.
    """

    function: Function
    instructions: tuple[Instruction, ...]

    @property
    def start(self) -> int:
        """The address of the first instruction."""
        return self.instructions[0].address

    @property
    def end(self) -> int:
        """The address behind the branch."""
        return self.instructions[-1].address + WORD_BYTES

    @cached_property
    def kinds(self) -> Mapping[str, int]:
        """{kind: instructions}, "unknown" among the kinds where there are such."""
        return Counter(each.kind for each in self.instructions)

    @property
    def ffma(self) -> int:
        """FFMA in a pass."""
        return self.kinds.get("ffma", 0)

    @cached_property
    def accesses(self) -> Mapping[str, int]:
        """{opcode and bits, "LDS.128": instructions} of the loads and stores."""
        return Counter(each.access for each in self.instructions if each.access)

    @cached_property
    def unknown(self) -> Mapping[str, int]:
        """{opcode: instructions} of those whose registers are not known."""
        return Counter(each.opcode for each in self.instructions if not each.known)

    @property
    def branches(self) -> int:
        """Branches within it, which leave it or go over a part of it."""
        return sum(each.opcode == "BRA" for each in self.instructions) - 1


def main_loop(function: Function) -> MainLoop:
    """The loop with the most FFMA that are in no loop within it; of equals the first.

    A loop is what lies between a branch backwards and where it goes. Raises InputError where there is no loop with
    FFMA.
    """
    loops = [
        (each.target // WORD_BYTES, number)
        for number, each in enumerate(function.instructions)
        if each.opcode == "BRA" and each.target is not None and each.target <= each.address
    ]
    found = {number for number, each in enumerate(function.instructions) if each.kind == "ffma"}
    own = {loop: len(found & (_span(loop) - _within(loop, loops))) for loop in loops}
    best = max(own, key=lambda loop: (own[loop], -loop[0]), default=None)
    if best is None or own[best] == 0:
        raise InputError(f"function {function.name} has no loop with an FFMA in it; it has {len(loops)} loops")
    return MainLoop(function, function.instructions[best[0] : best[1] + 1])


def _span(loop: tuple[int, int]) -> set[int]:
    return set(range(loop[0], loop[1] + 1))


def _within(loop: tuple[int, int], loops: Sequence[tuple[int, int]]) -> set[int]:
    """The instructions of the loops within a loop."""
    first, last = loop
    inner = [other for other in loops if other != loop and first <= other[0] and other[1] <= last]
    return set().union(*map(_span, inner))
