"""Instructions as the register ports see them: what each reads in which slot, what it flags, how it stalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gemmsim.errors import InputError, require, short

SLOTS = "ABCDEFGHIJKL"
KEPT_SLOTS = 4
"""Of these, the first that have a flag; further ones are the registers of wide operands."""
RZ = 255
"""The register that is always zero: naming it reads nothing."""
LONGEST_STALL, LONGEST_LOOP = 15, 1 << 20


@dataclass(frozen=True)
class Instruction:
    """One instruction that reads `sources`: one register for each slot A, B, C, ...; None and 255 read nothing.

    `reuse` names the slots, D at most, whose operand is to be kept, as in "AB". `stall` and `yield_bit` (bit 109; 0
    yields) are those of its control field. Any `kind` but FFMA takes an issue slot and does no arithmetic that counts.
    """

    sources: tuple[int | None, ...]
    reuse: str = ""
    destination: int | None = None
    kind: str = "FFMA"
    stall: int = 1
    yield_bit: int = 1

    def __post_init__(self) -> None:
        most = len(SLOTS)
        require(len(self.sources) <= most, "{n} sources; allowed: {most} at most", n=len(self.sources), most=most)
        for register in (self.destination, *self.sources):
            if register is not None and not (type(register) is int and 0 <= register <= RZ):
                raise InputError(f"register {short(register)}; allowed: 0 to 254, and 255 for none")
        flagged = SLOTS[: min(len(self.sources), KEPT_SLOTS)]
        if not isinstance(self.reuse, str) or not set(self.reuse) <= set(flagged):
            raise InputError(f"reuse flags {short(self.reuse)}; allowed: letters of {flagged}")
        if not (type(self.stall) is int and 0 <= self.stall <= LONGEST_STALL):
            raise InputError(f"stall {short(self.stall)}; allowed: 0 to {LONGEST_STALL}")
        if not (type(self.yield_bit) is int and self.yield_bit in (0, 1)):
            raise InputError(f"yield bit {short(self.yield_bit)}; allowed: 0 and 1")


@dataclass(frozen=True)
class Stream:
    """The instructions of a loop, in order, over and over. With `unrolled`, the body of the loop is so many of them,
    repeated and cut; it begins with idle ports and an empty operand cache, which the branch leaves behind.

    Raises InputError for a body without any FFMA.
    """

    instructions: tuple[Instruction, ...]
    unrolled: int | None = None

    def __post_init__(self) -> None:
        if self.unrolled is not None and not (type(self.unrolled) is int and 1 <= self.unrolled <= LONGEST_LOOP):
            raise InputError(f"unrolled {short(self.unrolled)}; allowed: 1 to {LONGEST_LOOP}")
        within = self.instructions[: self.unrolled]
        require(any(each.kind == "FFMA" for each in within), "a stream without any FFMA")

    @classmethod
    def of(cls, ffma: Sequence[Any], stall: Any = 1, yield_bit: Any = 1, unrolled: int | None = None) -> Stream:
        """The stream of rows [Rd, Ra, Rb, Rc, reuse flags]; `stall` and `yield_bit` are numbers, or one for each row.

        Raises InputError, with its number from 0, for a row that is none.
        """
        stalls, yields = (
            list(each) if isinstance(each, list | tuple) else [each] * len(ffma) for each in (stall, yield_bit)
        )
        if not len(stalls) == len(yields) == len(ffma):
            raise InputError(f"{len(ffma)} FFMA, but {len(stalls)} stalls and {len(yields)} yield bits")
        rows = zip(ffma, stalls, yields, strict=True)
        return cls(tuple(_ffma(number, *row) for number, row in enumerate(rows)), unrolled)

    @property
    def steps(self) -> int:
        """Instructions of a pass: through those there are, or through the body of the loop."""
        return len(self.instructions) if self.unrolled is None else self.unrolled

    @property
    def ffma(self) -> int:
        """FFMA of a pass."""
        whole, rest = divmod(self.steps, len(self.instructions))
        is_ffma = [each.kind == "FFMA" for each in self.instructions]
        return whole * sum(is_ffma) + sum(is_ffma[:rest])


def _ffma(number: int, row: Any, stall: Any, yield_bit: Any) -> Instruction:
    if not isinstance(row, list | tuple) or len(row) not in (4, 5):
        raise InputError(f"FFMA {short(row)}; needed: [Rd, Ra, Rb, Rc, reuse flags] (row {number})")
    try:
        return Instruction(tuple(row[1:4]), row[4] if len(row) == 5 else "", row[0], stall=stall, yield_bit=yield_bit)
    except InputError as error:
        raise InputError(f"{error} (row {number})") from None
