"""What users demand of configurations, such as "block_m >= 64 and stages == 2", as rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from gemmsim.errors import InputError
from gemmsim.expressions import Expression, parse_condition
from gemmsim.kernels import Kernel
from gemmsim.rules import Rule, Symbol
from gemmsim.tiling import FIELDS

DERIVED: Mapping[str, Callable[[Kernel, Any], Any]] = {
    "threads": lambda kernel, of: of.threads,
    "shared_bytes": lambda kernel, of: kernel.shared_bytes(of),
}
"""What a constraint can speak of beside the fields of a tiling."""
NAMES = (*FIELDS, *DERIVED)


def constraint(text: str) -> Expression:
    """The condition on configurations that a text writes, over NAMES.

    Raises InputError that names what is allowed.
    """
    try:
        return parse_condition(text, NAMES)
    except InputError as error:
        if "; nearest: " in str(error):
            raise InputError(f"{error}; allowed: {', '.join(NAMES)}") from None
        raise


def rule_of(condition: Expression, kernel: Kernel) -> Rule:
    """A constraint as a rule for the tilings of a kernel."""

    def variables(of: Any) -> dict[str, Any]:
        return {name: _variable(kernel, name, of) for name in condition.names}

    def holds(of: Any) -> Any:
        found = variables(of)
        read = [value for value in found.values() if isinstance(value, Symbol)]
        if not found:
            return bool(condition.evaluate({}))
        if read:  # which fields it reads is all that symbols can tell
            text = re.sub(r"[a-z]\w*", lambda word: _text(found, word[0]), condition.text)
            return Symbol(f"({text})", frozenset().union(*(value.names for value in read)), decides=True)
        return condition.evaluate(found)

    return Rule(holds, f"not {condition.text}", variables)


def _variable(kernel: Kernel, name: str, of: Any) -> Any:
    return DERIVED[name](kernel, of) if name in DERIVED else attrgetter(name)(of)


def _text(variables: Mapping[str, Any], word: str) -> str:
    """A word of a condition with what it stands for, if it is a variable."""
    value = variables.get(word, word)
    return value.text if isinstance(value, Symbol) else str(value)
