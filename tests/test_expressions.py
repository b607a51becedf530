"""Expressions: Python's meaning within 64 bits, one line for everything else, nothing ever executed."""

from __future__ import annotations

import ast
import inspect
import operator
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.expressions import DEEPEST, LONGEST, MOST_PARTS, parse, parse_condition

NAMES = ("lane", "tid", "tx", "ty", "warp")
LANE = np.arange(32)
LEAST, MOST = -(2**63), 2**63 - 1


def value(text: str, **variables: Any) -> Any:
    """The value of a number, as plain Python has it."""
    return parse(text, tuple(variables)).evaluate(variables).tolist()


# The same as Python, lane by lane

BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
}  # fmt: skip
UNARY: dict[str, Callable[[int], int]] = {"+": operator.pos, "-": operator.neg, "~": operator.invert}
OPERATORS: dict[str, Any] = {
    "+": ast.Add(), "-": ast.Sub(), "*": ast.Mult(), "//": ast.FloorDiv(), "%": ast.Mod(),
    "&": ast.BitAnd(), "|": ast.BitOr(), "^": ast.BitXor(), "<<": ast.LShift(), ">>": ast.RShift(),
}  # fmt: skip
SIGNS: dict[str, Any] = {"+": ast.UAdd(), "-": ast.USub(), "~": ast.Invert()}

Tree = int | str | tuple[Any, ...]
INTERESTING = st.sampled_from([0, 1, 2, 3, 31, 32, 33, 63, 64, 2**31, 2**32, 2**62, MOST])
TREES: st.SearchStrategy[Tree] = st.recursive(
    st.sampled_from(["lane", "tx"]) | INTERESTING | st.integers(0, MOST),
    lambda inner: (
        st.tuples(st.sampled_from(sorted(UNARY)), inner) | st.tuples(st.sampled_from(sorted(BINARY)), inner, inner)
    ),
    max_leaves=12,
)


def written(tree: Tree) -> str:
    """The tree as Python writes it, with the parentheses that it needs and no others."""

    def node(part: Tree) -> ast.expr:
        match part:
            case int():
                return ast.Constant(part)
            case str():
                return ast.Name(part)
            case (sign, operand):
                return ast.UnaryOp(SIGNS[sign], node(operand))
            case (sign, left, right):
                return ast.BinOp(node(left), OPERATORS[sign], node(right))
        raise AssertionError(part)

    return ast.unparse(node(tree))


class RefusedError(Exception):
    """64 bits, or Python, cannot do it."""


def computed(tree: Tree, variables: dict[str, int]) -> int:
    """The value by Python's own numbers, each step within 64 bits."""
    match tree:
        case int():
            return tree
        case str():
            return variables[tree]
        case (sign, operand):
            result = UNARY[sign](computed(operand, variables))
        case (sign, left, right):
            a, b = computed(left, variables), computed(right, variables)
            if (sign in ("//", "%") and b == 0) or (sign in ("<<", ">>") and not 0 <= b <= 63):
                raise RefusedError
            result = BINARY[sign](a, b)
    if not LEAST <= result <= MOST:
        raise RefusedError
    return result


@given(TREES, st.lists(st.tuples(INTERESTING | st.integers(LEAST, MOST), st.integers(-70, 70)), min_size=1, max_size=6))
def test_every_lane_has_pythons_value_or_the_whole_is_refused(tree, rows):
    text = written(tree)
    variables = {"lane": np.array([lane for lane, _ in rows]), "tx": np.array([tx for _, tx in rows])}
    try:
        expected = [computed(tree, {"lane": lane, "tx": tx}) for lane, tx in rows]
    except RefusedError:
        with pytest.raises(InputError, match=r"passes 64 bits|divides by zero|shifts by less than 0"):
            parse(text, variables).evaluate(variables)
    else:
        found = parse(text, variables).evaluate(variables)
        assert found.dtype == np.int64
        assert found.tolist() == expected


CONDITIONS = [
    "lane > 3 and lane % 2 == 0", "not lane < 5 or tx == 1", "0 < lane <= 5 != tx", "lane != 0 and 8 // lane == 2",
    "lane == 0 or 8 % lane == 2", "0 < lane < 8 // lane", "not (lane & 1 == tx)", "lane < 2 or lane > 3 and lane < 6",
    "lane >= 1 and (lane >= 2 and 7 // (lane // 2) > 1 or tx == 0)",
]  # fmt: skip


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_mean_what_python_means_and_stop_where_it_stops(text):
    variables = {"lane": np.arange(8), "tx": np.arange(8) % 2}
    found = parse_condition(text, variables).evaluate(variables)
    assert found.dtype == np.bool_
    assert found.tolist() == [eval(text, {}, {"lane": lane, "tx": lane % 2}) for lane in range(8)]


def test_several_variables_broadcast_and_plain_numbers_will_do():
    found = parse("tx + 10 * ty", NAMES).evaluate({"tx": np.arange(3), "ty": np.arange(2)[:, None]})
    assert found.tolist() == [[0, 1, 2], [10, 11, 12]]
    assert value("tx * 2", tx=21) == 42
    assert value("7", lane=LANE) == [7] * 32


def test_literals_and_signs():
    assert [value(text, lane=1) for text in ("0x1F", "0b11", "0o17", "1_000", "+5", "-5", "~5", "--5", "  8 ")] == [
        31, 3, 15, 1000, 5, -5, -6, 5, 8,
    ]  # fmt: skip
    assert value("-lane // 2 % 5 ^ 1 << 2 | lane & 3", lane=7) == eval("-7 // 2 % 5 ^ 1 << 2 | 7 & 3")


def test_the_edges_of_64_bits():
    edge = "-9223372036854775807 - 1"
    assert value(edge, lane=0) == LEAST
    assert value(f"({edge}) % -1", lane=0) == 0
    assert value("1 << 62", lane=0) == 2**62
    assert value("-1 << 63", lane=0) == LEAST
    assert value("-1 >> 63", lane=0) == -1
    for text in (f"-({edge})", f"({edge}) // -1", f"({edge}) * -1", f"-1 * ({edge})", "1 << 63", f"({edge}) - 1",
                 "9223372036854775807 + 1", "9223372036854775808"):  # fmt: skip
        with pytest.raises(InputError, match="passes 64 bits"):
            value(text, lane=0)


def test_names_are_those_in_use():
    assert parse("tx * 2 + lane * 0", NAMES).names == ("lane", "tx")
    assert parse("3", NAMES).names == ()


# Refusals


REFUSED = {
    "lane.x": "'lane.x' is not integer arithmetic; allowed: whole numbers, lane, tid, tx, ty, warp, parentheses, + - *",
    "1 + lane[0]": "'lane[0]' is not integer arithmetic",
    "abs(lane)": "'abs(lane)' is not integer arithmetic",
    "__import__('os').system('true')": "is not integer arithmetic",
    "lane ** 2": "'lane ** 2' is not",
    "3 * (lane / 2)": "'lane / 2' is not",
    "lane @ 2": "'lane @ 2' is not",
    "lane < 3": "'lane < 3' is not integer arithmetic",
    "lane and 1": "'lane and 1' is not",
    "not lane": "'not lane' is not",
    "lane if tx else 1": "is not",
    "lane, 1": "'lane, 1' is not",
    "(x := 1)": "is not",
    "lambda: 1": "is not",
    "[lane for lane in (1,)]": "is not",
    "f'{lane}'": "is not",
    "1.5": "'1.5' is not",
    "1e3": "'1e3' is not",
    "2j": "'2j' is not",
    "True": "'True' is not",
    "None": "'None' is not",
    "...": "is not",
    "'lane'": "is not",
    "lan": "unknown variable 'lan'; nearest: lane",
    "threadIdx": "unknown variable 'threadIdx'",
    "": "the expression is empty; allowed: whole numbers",
    " \t": "the expression is empty",
    "lane +": "'lane +' is not an expression: invalid syntax",
    "(lane": "'(' was never closed",
    "lane tid": "is not an expression",
    "lane; tid": "is not an expression",
    "lane = 1": "is not an expression",
    "lane\n+ 1": r"'lane\n+ 1' is not an expression",
    "import os": "is not an expression",
    "0777": "is not an expression: leading zeros",
    "\0": "is not an expression",
    "\ud800": "is not an expression",
    "9" * 900: "passes 64 bits; allowed: up to 9223372036854775807",
    "1" * (LONGEST + 1): f"{LONGEST + 1} characters; allowed: up to {LONGEST}",
    "1" + "+1" * 400: f"has 801 parts; allowed: up to {MOST_PARTS}",
    "-" * DEEPEST + "1": f"nests {DEEPEST + 1} deep; allowed: up to {DEEPEST}",
    "(" * 400 + "1" + ")" * 400: "is not an expression: too many nested parentheses",
    "~" * 40 + "(" * 40: "is not an expression",
}


@pytest.mark.parametrize("text", REFUSED, ids=[ascii(text[:20]) for text in REFUSED])
def test_what_is_no_arithmetic(text):
    with pytest.raises(InputError) as refusal:
        parse(text, NAMES)
    assert REFUSED[text] in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 300


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lane", "'lane' is a number, where a condition is needed; allowed: whole numbers, lane"),
        ("lane > 1 and 5", "'5' is a number, where a condition is needed"),
        ("(lane < 3) + 1 > 0", "'lane < 3' is a condition, where a number is needed"),
        ("(lane < 3) == (tx < 3)", "'lane < 3' is a condition, where a number is needed"),
        ("lane in (1, 2)", "'lane in (1, 2)' is not a condition on whole numbers"),
        ("lane is 3", "'lane is 3' is not a condition"),
        ("True", "'True' is not a condition"),
        ("tile > 3", "unknown variable 'tile'"),
    ],
)
def test_what_is_no_condition(text, says):
    with pytest.raises(InputError) as refusal:
        parse_condition(text, NAMES)
    assert says in str(refusal.value)
    assert "and or not" in str(refusal.value) or "unknown" in says


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lane // (lane - 5)", "'lane // (lane - 5)' divides by zero at lane 5"),
        ("7 % tx", "'7 % tx' divides by zero at lane 0, tx 0"),
        ("1 << lane - 3", "'1 << lane - 3' shifts by less than 0 or more than 63 at lane 0"),
        ("lane >> 3 * lane", "'lane >> 3 * lane' shifts by less than 0 or more than 63 at lane 22"),
        ("lane << 60", "'lane << 60' passes 64 bits at lane 8"),
        ("0 * (3 + lane * 1000000000000000000)", "'lane * 1000000000000000000' passes 64 bits at lane 10"),
    ],
)
def test_where_it_fails(text, says):
    with pytest.raises(InputError) as refusal:
        parse(text, NAMES).evaluate({"lane": LANE, "tx": LANE % 4}, at=("lane",))
    assert str(refusal.value) == says


def test_nothing_fails_where_it_does_not_count():
    asked = parse("32 // lane", NAMES)
    assert asked.evaluate({"lane": LANE}, where=LANE > 0)[1:].tolist() == [32 // lane for lane in range(1, 32)]
    with pytest.raises(InputError, match="at lane 0"):
        asked.evaluate({"lane": LANE}, where=LANE < 1)


def test_variables_are_whole_numbers():
    for odd in (LANE / 2, np.array([2**63], np.uint64), "lane"):
        with pytest.raises((TypeError, ValueError)):
            parse("lane", NAMES).evaluate({"lane": odd})


PIECES = st.lists(
    st.sampled_from(
        [*NAMES, *BINARY, *UNARY, "0", "1", "63", "0x7", "9" * 20, "1_", "1e9", "(", ")", "[", "]", "{", "}", ".", ",",
         ":", "'", '"', "\\", "#", "=", "==", "<", " ", "\n", "\t", "**", "/", "@", "!", "\0", "\xe9", "\uff4cane",
         "\U0001d7d9", "f'", "lambda", "if", "else", "and", "or", "not", "in", "is", "await", "yield"]
    ),
    max_size=30,
).map("".join)  # fmt: skip


@given(PIECES | st.text(max_size=40), st.booleans())
def test_any_text_is_an_expression_or_one_line(text, condition):
    message = ""
    try:
        found = (parse_condition if condition else parse)(text, NAMES)
        result = found.evaluate(dict.fromkeys(NAMES, LANE), at=("lane",))
    except InputError as error:
        message = str(error)
    else:
        assert (result.shape, result.dtype) == ((32,), np.bool_ if condition else np.int64)
    assert len(message) < 500
    assert "\n" not in message


@pytest.mark.parametrize(
    "text", ["-" * 900 + "1", "(" * 199 + "1" + ")" * 199, "not " * 200 + "lane", "1" + "<1" * 400]
)
def test_nothing_is_too_deep_for_the_reader(text):
    for read in (parse, parse_condition):
        with suppress(InputError):  # how deep Python's parser goes depends on its version
            read(text, NAMES)


def test_the_deepest_that_is_allowed_can_be_evaluated_with_little_room():
    deep = parse("-" * (DEEPEST - 1) + "1", NAMES)
    limit, used = sys.getrecursionlimit(), len(inspect.stack(0))
    sys.setrecursionlimit(used + 5 * DEEPEST)
    try:
        assert deep.evaluate({}).tolist() == (-1) ** (DEEPEST - 1)
    finally:
        sys.setrecursionlimit(limit)
