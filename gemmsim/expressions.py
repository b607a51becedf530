"""Expressions that users write, in integer arithmetic over named variables, and conditions on them.

Python's parser reads the text and a whitelist decides what of it means something here; nothing is ever
executed. The meaning is Python's own, for whole numbers that fit 64 bits with their sign: what would pass
them is an error, as are a division by zero and a shift by a negative number or by more than 63. Variables
may be arrays; an error names the place where it happens. As in Python, `and`, `or` and chained
comparisons leave out what comes after the decision, so that it cannot fail there.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from gemmsim.errors import InputError, short, unknown

LONGEST = 1000
"""Characters of an expression."""
MOST_PARTS = 300
"""Its numbers, names and operations."""
DEEPEST = 60
"""How many of them nest; `a + b + c` nests two."""
LEAST, MOST = -(2**63), 2**63 - 1

Kind = Literal["number", "condition"]
Numbers = NDArray[np.int64]
Truths = NDArray[np.bool_]
Fault = Callable[[Any, Any, Any], Any]
"""Where an operation fails, of its two operands and its result, which may have wrapped around."""

_OVERFLOW = "passes 64 bits"
_BY_ZERO = {"divides by zero": lambda a, b, result: b == 0}
_SHIFT = {"shifts by less than 0 or more than 63": lambda a, b, result: (b < 0) | (b > 63)}


@dataclass(frozen=True)
class _Operator:
    """A sign, what it does to 64-bit numbers, and where it cannot."""

    sign: str
    apply: Callable[[Any, Any], Any]
    faults: Mapping[str, Fault]


def _product_wrapped(a: Any, b: Any, result: Any) -> Any:
    """Dividing the product gives the other factor back, unless it has wrapped around."""
    return (a != 0) & ((result // np.where(a == 0, 1, a) != b) | ((a == -1) & (b == LEAST)))


def _divisor(b: Any) -> Any:
    return np.where(b == 0, 1, b)


_BINARY: dict[type[ast.operator], _Operator] = {
    ast.Add: _Operator("+", np.add, {_OVERFLOW: lambda a, b, result: (a ^ result) & (b ^ result) < 0}),
    ast.Sub: _Operator("-", np.subtract, {_OVERFLOW: lambda a, b, result: (a ^ b) & (a ^ result) < 0}),
    ast.Mult: _Operator("*", np.multiply, {_OVERFLOW: _product_wrapped}),
    ast.FloorDiv: _Operator(
        "//",
        lambda a, b: a // _divisor(b),
        {**_BY_ZERO, _OVERFLOW: lambda a, b, result: (a == LEAST) & (b == -1)},
    ),
    ast.Mod: _Operator("%", lambda a, b: a % _divisor(b), _BY_ZERO),
    ast.BitAnd: _Operator("&", np.bitwise_and, {}),
    ast.BitOr: _Operator("|", np.bitwise_or, {}),
    ast.BitXor: _Operator("^", np.bitwise_xor, {}),
    ast.LShift: _Operator(
        "<<",
        lambda a, b: a << (b & 63),
        {**_SHIFT, _OVERFLOW: lambda a, b, result: result >> (b & 63) != a},
    ),
    ast.RShift: _Operator(">>", lambda a, b: a >> (b & 63), _SHIFT),
}
_UNARY: dict[type[ast.unaryop], _Operator] = {  # as operations on 0 and the operand
    ast.UAdd: _Operator("+", lambda zero, a: a, {}),
    ast.USub: _BINARY[ast.Sub],
    ast.Invert: _Operator("~", lambda zero, a: ~a, {}),
}
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", np.equal),
    ast.NotEq: ("!=", np.not_equal),
    ast.Lt: ("<", np.less),
    ast.LtE: ("<=", np.less_equal),
    ast.Gt: (">", np.greater),
    ast.GtE: (">=", np.greater_equal),
}
_ARITHMETIC_SIGNS = " ".join([*(operator.sign for operator in _BINARY.values()), "~"])
_CONDITION_SIGNS = " ".join([*(sign for sign, _ in _COMPARISONS.values()), "and or not"])


@dataclass(frozen=True)
class Expression:
    """A number or a condition over variables, as `parse` and `parse_condition` make it; `names` are those in use."""

    text: str
    kind: Kind
    names: tuple[str, ...]
    _tree: ast.expr

    def evaluate(
        self, variables: Mapping[str, Any], where: Any = True, at: Sequence[str] = ()
    ) -> NDArray[np.int64 | np.bool_]:
        """The value for each element of the variables, whole numbers or arrays of them that broadcast together.

        Raises InputError where an operation fails, with the values of the variables `at` and of those in
        use at the first such place. Where `where` is false nothing fails, and the value means nothing.
        """
        shape = np.broadcast_shapes(np.shape(where), *(np.shape(value) for value in variables.values()))
        arrays = {name: np.asarray(value).astype(np.int64, casting="safe") for name, value in variables.items()}
        scope = _Scope(self.text, arrays, tuple(dict.fromkeys((*at, *self.names))), np.asarray(where, bool), shape)
        with np.errstate(all="ignore"):  # the faults of each operator say more
            return np.broadcast_to(_value(self._tree, scope), shape).copy()


def parse(text: str, names: Iterable[str]) -> Expression:
    """The number that `text` writes over the variables `names`.

    Raises InputError that quotes the piece that is not integer arithmetic, and says what is.
    """
    return _parse(text, tuple(names), "number")


def parse_condition(text: str, names: Iterable[str]) -> Expression:
    """The condition that `text` writes: comparisons of numbers, joined by `and`, `or` and `not`.

    Raises InputError as `parse` does.
    """
    return _parse(text, tuple(names), "condition")


def _parse(text: str, names: tuple[str, ...], kind: Kind) -> Expression:
    text = text.strip()
    reader = _Reader(text, names, kind)
    tree = reader.tree()
    reader.check_extent(tree)
    reader.require(kind, tree)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return Expression(text, kind, tuple(name for name in names if name in used), tree)


@dataclass(frozen=True)
class _Reader:
    """A text on its way to an expression, and what it may consist of."""

    text: str
    names: tuple[str, ...]
    kind: Kind

    @property
    def decides(self) -> bool:
        """Whether there may be conditions."""
        return self.kind == "condition"

    @property
    def allowed(self) -> str:
        """What an expression consists of, for messages."""
        signs = f"{_ARITHMETIC_SIGNS} {_CONDITION_SIGNS}" if self.decides else _ARITHMETIC_SIGNS
        return f"allowed: whole numbers, {', '.join(self.names)}, parentheses, {signs}"

    def tree(self) -> ast.expr:
        """What Python's parser makes of the text."""
        if not self.text:
            raise InputError(f"the expression is empty; {self.allowed}")
        if len(self.text) > LONGEST:
            raise InputError(
                f"the expression {short(self.text)} has {len(self.text)} characters; allowed: up to {LONGEST}"
            )
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about Python's style, which is no concern of its users here
                return ast.parse(self.text, mode="eval").body
        except SyntaxError as error:
            at = f" at character {error.offset}" if error.offset else ""
            raise InputError(f"{short(self.text)} is not an expression: {error.msg}{at}; {self.allowed}") from None
        except (ValueError, MemoryError, RecursionError):  # zero bytes and lone surrogates; nesting
            raise InputError(f"{short(self.text)} is not an expression; {self.allowed}") from None

    def check_extent(self, tree: ast.expr) -> None:
        """Raise InputError for a tree that is too large, or too deep for the functions that walk it."""
        level: list[ast.AST] = [tree]
        parts = depth = 0
        while level:
            inner = [node for node in level if isinstance(node, ast.expr)]
            parts, depth = parts + len(inner), depth + bool(inner)
            level = [child for node in level for child in ast.iter_child_nodes(node)]
        if parts > MOST_PARTS:
            raise InputError(f"the expression {short(self.text)} has {parts} parts; allowed: up to {MOST_PARTS}")
        if depth > DEEPEST:
            raise InputError(f"the expression {short(self.text)} nests {depth} deep; allowed: up to {DEEPEST}")

    def kind_of(self, node: ast.expr) -> Kind:
        """What a part is; InputError for one that is neither, or has an operand of the other kind."""
        match node:
            case ast.Constant(value=int(value)) if type(value) is int:
                if value > MOST:
                    raise InputError(f"{self.quoted(node)} {_OVERFLOW}; allowed: up to {MOST}")
                return "number"
            case ast.Name(id=name):
                if name not in self.names:
                    raise unknown("variable", name, self.names)
                return "number"
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                self.require("number", operand)
                return "number"
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                self.require("number", left, right)
                return "number"
            case ast.Compare(left=left, ops=ops, comparators=others) if self.decides and _COMPARISONS.keys() >= {
                type(op) for op in ops
            }:
                self.require("number", left, *others)
                return "condition"
            case ast.UnaryOp(op=ast.Not(), operand=operand) if self.decides:
                self.require("condition", operand)
                return "condition"
            case ast.BoolOp(values=operands) if self.decides:
                self.require("condition", *operands)
                return "condition"
        what = "a condition on whole numbers" if self.decides else "integer arithmetic"
        raise InputError(f"{self.quoted(node)} is not {what}; {self.allowed}")

    def require(self, kind: Kind, *nodes: ast.expr) -> None:
        """Raise InputError unless every part is of that kind."""
        for node in nodes:
            found = self.kind_of(node)
            if found != kind:
                raise InputError(f"{self.quoted(node)} is a {found}, where a {kind} is needed; {self.allowed}")

    def quoted(self, node: ast.expr) -> str:
        """A part as the user wrote it."""
        return _quoted(self.text, node)


@dataclass(frozen=True)
class _Scope:
    """What an evaluation needs to know: the variables, where it counts, and how to name a place."""

    text: str
    variables: Mapping[str, Numbers]
    at: tuple[str, ...]
    live: Truths
    shape: tuple[int, ...]

    def check(self, node: ast.expr, failed: Any, says: str) -> None:
        """Raise InputError at the first live place at which the operation has failed."""
        bad = np.broadcast_to(failed & self.live, self.shape)
        if bad.any():
            first = np.unravel_index(int(bad.argmax()), self.shape)
            place = ", ".join(f"{name} {np.broadcast_to(self.variables[name], self.shape)[first]}" for name in self.at)
            raise InputError(f"{_quoted(self.text, node)} {says}" + (f" at {place}" if place else ""))


def _value(node: ast.expr, scope: _Scope) -> Any:
    """The value of a part that `_Reader` has let through."""
    match node:
        case ast.Constant(value=int(value)):
            return np.int64(value)
        case ast.Name(id=name):
            return scope.variables[name]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_value(operand, scope)
        case ast.UnaryOp(op=sign, operand=operand):
            return _applied(_UNARY[type(sign)], node, np.int64(0), _value(operand, scope), scope)
        case ast.BinOp(left=left, op=operator, right=right):
            return _applied(_BINARY[type(operator)], node, _value(left, scope), _value(right, scope), scope)
        case ast.BoolOp(op=op, values=operands):
            decides = isinstance(op, ast.Or)
            truth = _value(operands[0], scope)
            for operand in operands[1:]:
                undecided = replace(scope, live=scope.live & (truth != decides))
                right_truth = _value(operand, undecided)
                truth = truth | right_truth if decides else truth & right_truth
            return truth
        case ast.Compare(left=left, ops=ops, comparators=others):
            truth, a = np.bool_(True), _value(left, scope)
            for comparison, other in zip(ops, others, strict=True):
                b = _value(other, replace(scope, live=scope.live & truth))
                truth, a = truth & _COMPARISONS[type(comparison)][1](a, b), b
            return truth
    raise AssertionError(f"a part that was let through: {ast.dump(node)}")


def _applied(operator: _Operator, node: ast.expr, a: Any, b: Any, scope: _Scope) -> Any:
    result = operator.apply(a, b)
    for says, fault in operator.faults.items():
        scope.check(node, fault(a, b, result), says)
    return result


def _quoted(text: str, node: ast.expr) -> str:
    return short(ast.get_source_segment(text, node) or text)
