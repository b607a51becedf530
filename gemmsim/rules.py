"""What must hold of a configuration: one formula for a single one, for millions in arrays, and as text.

A rule is asked of anything with the attributes that it reads. Asked of a configuration made of `Symbol`s it
tells which of them it reads, and how it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.errors import require


@dataclass(frozen=True)
class Rule:
    """One thing that must hold.

    `holds` is the condition, in whole numbers, comparisons, `&` and `|` alone; `message` says what is wrong, a
    format string or a function, over `values` of the configuration.
    """

    holds: Callable[[Any], Any]
    message: str | Callable[..., str]
    values: Callable[[Any], Mapping[str, Any]]


def check(rules: Iterable[Rule], of: Any) -> None:
    """Raise InputError for the first rule that a configuration, or any of many, breaks.

    A rule may rely on those before it: it is not asked where they fail.
    """
    for rule in rules:
        ok = rule.holds(of)
        if ok is not True and not np.all(ok):
            require(ok, rule.message, **rule.values(of))


def legal(rules: Iterable[Rule], of: Any) -> Any:
    """Where all rules hold, an array if a rule's condition is one, as `check` decides it for each alone."""
    found: Any = True
    with np.errstate(divide="ignore"):  # dividing by 0 is forbidden by a rule before the one that does it
        for rule in rules:
            ok = rule.holds(of)
            if ok is not True:
                found = ok if found is True else found & ok
    return found


def _operator(sign: str, swapped: bool = False, decides: bool = False) -> Callable[[Any, Any], Any]:
    return lambda symbol, other: symbol._with(sign, other, swapped, decides)


class Symbol:
    """A whole number that is known by name only. What is computed with it is the text of the computation.

    `names` are those that take part. Comparisons give conditions, which `&` and `|` join.
    """

    def __init__(self, text: str, names: Iterable[str] | None = None, decides: bool = False) -> None:
        self.text, self.decides = text, decides
        self.names = frozenset((text,) if names is None else names)

    def __str__(self) -> str:
        return self.text[1:-1] if self.text.startswith("(") and _closes_last(self.text) else self.text

    def __neg__(self) -> Symbol:
        return Symbol(f"(-{self.text})", self.names)

    def _with(self, sign: str, other: Any, swapped: bool = False, decides: bool = False) -> Any:
        names = self.names | (other.names if isinstance(other, Symbol) else frozenset())
        texts = [self.text, other.text if isinstance(other, Symbol) else str(other)]
        left, right = reversed(texts) if swapped else texts
        return Symbol(f"({left} {sign} {right})", names, decides)

    def _joined(self, sign: str, word: str, other: Any) -> Any:
        if not self.decides:
            return self._with(sign, other)
        if isinstance(other, bool | np.bool_):  # a part that is decided for the whole space
            return self if bool(other) is (word == "and") else bool(other)
        return self._with(word, other, decides=True)

    def __and__(self, other: Any) -> Any:
        return self._joined("&", "and", other)

    def __or__(self, other: Any) -> Any:
        return self._joined("|", "or", other)

    __rand__, __ror__ = __and__, __or__
    __add__, __radd__ = _operator("+"), _operator("+", swapped=True)
    __sub__, __rsub__ = _operator("-"), _operator("-", swapped=True)
    __mul__, __rmul__ = _operator("*"), _operator("*", swapped=True)
    __floordiv__, __rfloordiv__ = _operator("//"), _operator("//", swapped=True)
    __mod__, __rmod__ = _operator("%"), _operator("%", swapped=True)
    __lt__, __le__ = _operator("<", decides=True), _operator("<=", decides=True)
    __gt__, __ge__ = _operator(">", decides=True), _operator(">=", decides=True)
    __eq__, __ne__ = _operator("==", decides=True), _operator("!=", decides=True)


def _closes_last(text: str) -> bool:
    """Whether the bracket that opens the text is closed by its last character."""
    depth = 0
    for place, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if not depth:
            return place == len(text) - 1
    return False
