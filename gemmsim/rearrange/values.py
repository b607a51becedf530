"""What a basic block computes, as numbers for values: equal numbers are equal values, whatever the inputs are.

An FFMA is some function of its two factors, in either order, and its addend. Any other instruction is some function of
the registers that it reads, of where it stands among the others, and so of all that these have done to memory,
predicates and uniform registers: they keep their order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gemmsim.rearrange.decode import Operation, bare
from gemmsim.registers.instruction_streams import RZ


@dataclass
class _Values:
    """Numbers of values, the same key always the same."""

    numbers: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def of(self, *key: Any) -> int:
        return self.numbers.setdefault(key, len(self.numbers))


@dataclass
class _Run:
    """A block run on numbers: what its registers hold, and what each other instruction was given."""

    values: _Values
    registers: dict[int, int] = field(default_factory=dict)
    given: list[int] = field(default_factory=list)

    def read(self, register: int) -> int:
        if register == RZ:
            return self.values.of("zero")
        return self.registers.setdefault(register, self.values.of("before", register))

    def step(self, each: Operation) -> None:
        if each.ffma is not None:
            target, *factors, addend = each.ffma
            a, b = sorted(self.read(factor) for factor in factors)
            if target != RZ:
                self.registers[target] = self.values.of("ffma", a, b, self.read(addend))
            return
        kept = each.writes if each.instruction.guard else ()
        inputs = tuple(self.read(register) for register in (*each.reads, *kept))
        number = self.values.of("other", len(self.given), bare(each.instruction.word or 0), inputs)
        self.given.append(number)
        for register in each.writes:
            self.registers[register] = self.values.of("result", number, register)


def difference(before: Sequence[Operation], after: Sequence[Operation]) -> str | None:
    """Where two forms of a basic block do not compute the same, in words; None where they do, for all inputs."""
    values = _Values()
    one, other = _Run(values), _Run(values)
    for run, code in ((one, before), (other, after)):
        for each in code:
            run.step(each)
    others = [each for each in before if each.ffma is None]
    if len(one.given) != len(other.given):
        return "other instructions than FFMA were added or lost"
    for each, was, becomes in zip(others, one.given, other.given, strict=True):
        if was != becomes:
            return f"{each.instruction.text} at {each.instruction.address:#x} gets other values"
    for register in sorted({*one.registers, *other.registers}):
        if one.read(register) != other.read(register):
            return f"R{register} holds another value at the end of the block"
    return None
