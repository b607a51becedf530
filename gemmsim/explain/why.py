"""Two configurations side by side: what differs between them, and which of the differences decides.

Two questions are asked of the model. Which resources alone need longer in the slower configuration than the faster
one takes in all: these are what had to go. And what becomes of the slower one when it takes over a single option
from the faster: that tells which option did it. Both use the terms of a prediction as they come, whatever these are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmsim.errors import InputError
from gemmsim.explain.sides import Side, changes, option_of, text_of, texts_of
from gemmsim.predict import predict

SAME = 1e-3
"""Times that are closer than this share of the longer one count as equal."""


@dataclass(frozen=True)
class Quantity:
    """The same number of both; a count that one kernel does not have is 0 there."""

    name: str
    a: float
    b: float

    @property
    def differs(self) -> bool:
        """Whether the two are not equal."""
        return self.a != self.b

    @property
    def ratio(self) -> float | None:
        """That of A over that of B; None where B has none."""
        return self.a / self.b if self.b else None


@dataclass(frozen=True)
class Swap:
    """The slower configuration with one option as the faster one has it.

    `brings` are the options that come along because the slower one's kernel has none such. `time_s` is its predicted
    time, None where that cannot be, and `reason` says why not. `closes` is the share of the gap between the two times
    that it closes: 1 for all of it, below 0 where it makes things worse.
    """

    option: str
    slower: str
    faster: str
    brings: tuple[str, ...]
    time_s: float | None
    closes: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Why:
    """A and B on one device. Raises InputError where their devices differ: then nothing of the launch decides."""

    a: Side
    b: Side

    def __post_init__(self) -> None:
        names = [side.prediction.device.name for side in (self.a, self.b)]
        if names[0] != names[1]:
            raise InputError(f"A is on {names[0]} and B on {names[1]}; two configurations are compared on one device")

    @property
    def tie(self) -> bool:
        """Whether both take the same time, or neither launches."""
        times = sorted((self.a.time_s, self.b.time_s))
        return times[0] == times[1] or times[1] - times[0] <= SAME * times[1] < float("inf")

    @property
    def slower(self) -> Side:
        """The one that takes longer, by prediction; A where both take the same time."""
        return self.b if self.b.time_s > self.a.time_s else self.a

    @property
    def faster(self) -> Side:
        """The other one."""
        return self.a if self.slower is self.b else self.b

    @property
    def names(self) -> tuple[str, str]:
        """(the slower one's letter, the faster one's)."""
        return ("B", "A") if self.slower is self.b else ("A", "B")

    @property
    def speedup(self) -> float:
        """How many times as fast the faster one is; infinite where the other does not launch, NaN where neither."""
        if self.faster.time_s == float("inf"):
            return float("nan")
        return self.slower.time_s / self.faster.time_s

    @cached_property
    def counts(self) -> tuple[Quantity, ...]:
        """The counts of both."""
        return quantities(self.a.counts, self.b.counts)

    @cached_property
    def residence(self) -> tuple[Quantity, ...]:
        """What blocks of both take, and how many find room."""
        return quantities(self.a.residence, self.b.residence)

    @cached_property
    def terms(self) -> tuple[Quantity, ...]:
        """The seconds of every term of both, by name."""
        return quantities(*({n: float(s) for n, s in side.prediction.terms.items()} for side in (self.a, self.b)))

    @cached_property
    def options(self) -> tuple[tuple[str, str, str], ...]:
        """(option, A's, B's) of all that was chosen differently; "-" where a kernel has no such option."""
        return tuple(
            (option, texts[0], texts[1])
            for option, texts in texts_of(self.a, self.b).items()
            if texts[0] != texts[1]
        )  # fmt: skip

    @cached_property
    def too_long(self) -> tuple[str, ...]:
        """The terms that alone need longer in the slower one than the faster one takes in all, the longest first.

        Each of these had to shrink for the faster one to be faster. None where times are equal, or where the time
        is more than its longest term.
        """
        if self.tie or not self.slower.resident.launches:
            return ()
        found = {n: float(s) for n, s in self.slower.prediction.terms.items() if s > self.faster.time_s * (1 + SAME)}
        return tuple(sorted(found, key=lambda name: -found[name]))

    @cached_property
    def deciding_term(self) -> str | None:
        """The first of these; where there is none, the term that differs most. None where times are equal
        or infinite."""
        if self.tie or not self.slower.resident.launches:
            return None
        if self.too_long:
            return self.too_long[0]
        slower, faster = self.slower.prediction.terms, self.faster.prediction.terms
        return max(slower, key=lambda name: float(slower[name]) - float(faster.get(name, 0.0)))

    @cached_property
    def swaps(self) -> tuple[Swap, ...]:
        """One option of the slower one changed at a time, what closes most of the gap first."""
        if self.tie:
            return ()
        found = [self._swap(*change) for change in changes(self.slower, self.faster)]
        return tuple(sorted(found, key=lambda swap: (swap.closes is None, -(swap.closes or 0.0))))

    @property
    def deciding_option(self) -> Swap | None:
        """The option that alone closes at least half of the gap, and more than any other; None where none does."""
        best = next(iter(self.swaps), None)
        return best if best is not None and best.closes is not None and best.closes >= 0.5 else None

    def _swap(self, option: str, texts: tuple[str, str], with_it: dict[str, Any]) -> Swap:
        side = self.slower
        of: dict[str, Any] = {"problem": side.problem, "kernel": side.kernel, "registers": side.given_registers}
        of |= with_it
        brought = dict.fromkeys(option_of(name) for name in of["values"] if name not in side.kernel.fields)
        told = {each: text_of(self.faster, each) for each in brought}
        names = (option, *texts, tuple(f"{each} {text}" for each, text in told.items() if text != "-"))
        try:
            tiling = of["kernel"].tiling(**of["values"])
            found = predict(of["problem"], of["kernel"], tiling, side.prediction.device, of["registers"])
        except InputError as error:
            return Swap(*names, None, None, str(error))
        if not found.occupancy.launches:
            return Swap(*names, None, None, f"does not launch: {found.occupancy.reason}")
        time_s, from_s = float(found.time_s), side.time_s
        closes = 1.0 if from_s == float("inf") else (from_s - time_s) / (from_s - self.faster.time_s)
        return Swap(*names, time_s, closes)


def quantities(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[Quantity, ...]:
    """The numbers of two, by name, in the order of A's and then of those that B alone has."""
    return tuple(Quantity(name, a.get(name, 0), b.get(name, 0)) for name in {**a, **b})
