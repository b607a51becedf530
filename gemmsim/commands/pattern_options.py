"""The words that describe a pattern of lanes, for the commands that count one or a file of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gemmsim.errors import LONGEST_VALUE, InputError, short
from gemmsim.expressions import parse
from gemmsim.options import path_text, whole
from gemmsim.pattern_files import WIDTHS_BITS
from gemmsim.patterns import ALL_LANES, FARTHEST_BYTES, VARIABLES, Block, Pattern, parse_lanes, pattern, ranges

DEFAULT_WIDTH_BITS = 32
UNITS = ("element", "byte")
PATTERN = ("width", "store", "block", "lanes", "unit", "base")
"""The options of an expression."""


def add_pattern(parser: argparse.ArgumentParser, whose: str) -> None:
    """The expression and what belongs to it, or a file of patterns; `whose` names the memory."""
    parser.add_argument(
        "index",
        nargs="?",
        metavar="EXPR",
        help=f"what a lane touches in {whose}, in integer arithmetic (+ - * // %% & | ^ << >> ~) over"
        f" {', '.join(VARIABLES)}; in elements of the width",
    )
    add = parser.add_argument_group("pattern").add_argument
    widths = ", ".join(map(str, WIDTHS_BITS))
    add("--width", metavar="BITS", help=f"bits that each lane moves: {widths} (default: {DEFAULT_WIDTH_BITS})")
    add("--store", action="store_true", help="a store; a load if left out")
    add("--block", metavar="XxY", help="threads of the block, such as 16x16; one warp if left out")
    add("--lanes", metavar="A-B", help="active lanes of every warp, such as 0-15 or 0-7,16; all if left out")
    add("--unit", metavar="U", help="what EXPR counts: element (the default) or byte")
    add("--base", metavar="BYTES", help="byte address at which the array starts (default: 0)")
    parser.add_argument(
        "--batch",
        type=path_text,
        metavar="FILE.jsonl",
        help="count every access of a file instead, one a line; may be .gz",
    )


@dataclass(frozen=True)
class Asked:
    """A pattern as it was asked for."""

    index: str
    block: Block
    lanes: tuple[int, ...]
    unit: str
    base_bytes: int
    store: bool
    pattern: Pattern

    @property
    def width_bits(self) -> int:
        """Bits of one lane."""
        return 8 * self.pattern.width_bytes

    def __str__(self) -> str:
        one_warp = self.block == Block()
        where = "one warp" if one_warp else f"a block of {self.block.x} x {self.block.y} threads"
        active = "" if self.lanes == ALL_LANES else f", lanes {ranges(self.lanes)} active"
        at = f", from byte {self.base_bytes}" if self.base_bytes else ""
        what = "byte address" if self.unit == "byte" else "element"
        index = self.index if len(self.index) <= LONGEST_VALUE else f"{self.index[: LONGEST_VALUE - 3]}..."
        return f"{self.width_bits}-bit {self.direction} of {what} {index}{at}, {where}{active}"

    @property
    def direction(self) -> str:
        """ "load" or "store"."""
        return "store" if self.store else "load"

    def document(self) -> dict[str, object]:
        """What was asked, as JSON begins with it."""
        return {
            "expression": self.index,
            "unit": self.unit,
            "base_bytes": self.base_bytes,
            "direction": self.direction,
            "width_bits": self.width_bits,
            "block": [self.block.x, self.block.y],
            "lanes": list(self.lanes),
        }


def pattern_of(args: argparse.Namespace, size_bytes: int | None) -> Asked:
    """The pattern that the options describe, within an array of `size_bytes`; InputError where one is unusable."""
    unit = UNITS[0] if args.unit is None else args.unit.lower()
    if unit not in UNITS:
        raise InputError(f"--unit {short(args.unit)}; allowed: {', '.join(UNITS)}")
    width_bits = width_of(args.width)
    block = block_of(args.block)
    lanes = ALL_LANES if args.lanes is None else parse_lanes(args.lanes)
    base_bytes = 0 if args.base is None else whole(args.base, "--base", 0, FARTHEST_BYTES)
    index = parse(" ".join(args.index.split()), VARIABLES)
    touched = pattern(index, block, lanes, width_bits // 8, unit == "byte", base_bytes, size_bytes)
    return Asked(index.text, block, lanes, unit, base_bytes, args.store, touched)


def width_of(text: str | None) -> int:
    """The bits of --width, or the default; InputError, with the nearest width, for one that no access has."""
    if text is None:
        return DEFAULT_WIDTH_BITS
    bits = whole(text, "--width", WIDTHS_BITS[0], WIDTHS_BITS[-1])
    if bits not in WIDTHS_BITS:
        nearest = min(WIDTHS_BITS, key=lambda width: abs(width - bits))
        raise InputError(f"--width {bits}; allowed: {', '.join(map(str, WIDTHS_BITS))}; nearest: {nearest}")
    return bits


def block_of(text: str | None) -> Block:
    """The threads of --block, written X or XxY; one warp where it is not given."""
    if text is None:
        return Block()
    if not re.fullmatch(r"[0-9]{1,9}(x[0-9]{1,9})?", text.lower()):
        raise InputError(f"--block {short(text)} is not of the form XxY, such as 16x16")
    return Block(*map(int, text.lower().split("x")))


def chosen(args: argparse.Namespace, forms: Mapping[str, tuple[str, Sequence[str]]]) -> str:
    """Which form of a command is asked for: the only one whose word is given.

    `forms` are {attribute: (how its word is written, options that go with it)}. Raises InputError for no form or
    several, and for an option that goes with another form.
    """
    given = [name for name in forms if getattr(args, name) is not None]
    ways = ", ".join(written for written, _ in forms.values())
    if len(given) != 1:
        found = " and ".join(forms[name][0] for name in given)
        raise InputError(
            f"{found} are several questions; give one of {ways}" if found else f"nothing to count; give one of {ways}"
        )
    written, options = forms[given[0]]
    for other, others in forms.values():
        for name in others:
            if name not in options and getattr(args, name, None) not in (None, False):
                raise InputError(f"--{name.replace('_', '-')} does not go with {written}; it goes with {other}")
    return given[0]
