"""Rules: checked one by one, over arrays, and written down."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.rules import Rule, Symbol, check, legal

POSITIVE = Rule(lambda of: of.b > 0, "b {b} is not positive", lambda of: {"b": of.b})
DIVIDES = Rule(lambda of: of.a % of.b == 0, lambda a, b: f"{b} does not divide {a}", lambda of: {"a": of.a, "b": of.b})


def test_the_first_broken_rule_is_told_and_no_later_one_is_asked():
    check([POSITIVE, DIVIDES], SimpleNamespace(a=6, b=3))
    with pytest.raises(InputError, match=r"^4 does not divide 6$"):
        check([POSITIVE, DIVIDES], SimpleNamespace(a=6, b=4))
    with pytest.raises(InputError, match=r"^b 0 is not positive$"):
        check([POSITIVE, DIVIDES], SimpleNamespace(a=6, b=0))  # dividing would fail


def test_of_many_the_first_that_breaks_it_is_told():
    many = SimpleNamespace(a=np.array([6, 6, 7]), b=np.array([3, 4, 5]))
    with pytest.raises(InputError, match=r"^4 does not divide 6$"):
        check([POSITIVE, DIVIDES], many)
    assert legal([POSITIVE, DIVIDES], many).tolist() == [True, False, False]
    assert legal([POSITIVE, DIVIDES], SimpleNamespace(a=np.array([6, 6]), b=np.array([0, 2]))).tolist() == [False, True]
    assert legal([], many) is True


NUMBERS = st.recursive(
    st.sampled_from(["x", "y", "z"]) | st.integers(1, 99).map(str),
    lambda inner: (
        st.tuples(inner, st.sampled_from(["+", "-", "*", "//", "%", "&"]), inner).map(" ".join).map("({})".format)
        | inner.map("(-{})".format)
    ),
    max_leaves=8,
)
CONDITIONS = st.recursive(
    st.tuples(NUMBERS, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), NUMBERS).map(" ".join).map("({})".format),
    lambda inner: st.tuples(inner, st.sampled_from(["&", "|"]), inner).map(" ".join).map("({})".format),
    max_leaves=4,
)


@given(CONDITIONS, st.lists(st.tuples(*[st.integers(-50, 50)] * 3), min_size=1, max_size=5))
def test_what_a_symbol_writes_means_what_was_computed(formula, rows):
    """The formula computed with symbols, and the text of that computed with numbers, are the formula of numbers."""
    symbols = {name: Symbol(name) for name in "xyz"}
    try:
        written = eval(formula, {}, symbols)
    except ZeroDivisionError:
        return  # among the constants
    for row in rows:
        values = {name: np.int64(value) for name, value in zip("xyz", row, strict=True)}
        with np.errstate(all="ignore"):
            expected = eval(formula, {}, values)
            found = eval(str(written), {}, values)
        assert bool(found) == bool(expected)
    if isinstance(written, Symbol):
        assert written.names <= set("xyz")
        assert all(name in str(written) for name in written.names)


def test_a_decided_part_drops_out():
    x = Symbol("x")
    assert str((x > 1) & True) == "x > 1"
    assert ((x > 1) & False) is False
    assert ((x > 1) | True) is True
    assert str(False | (x > 1)) == "x > 1"
    assert str((x > 1) & (x < 3)) == "(x > 1) and (x < 3)"
    assert (x > 1).names == {"x"}
    assert str((x + 1) * (x - 1)) == "(x + 1) * (x - 1)"
