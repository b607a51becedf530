"""`gemmsim explain --why A B`: two configurations side by side."""

from __future__ import annotations

import argparse
import copy
import json
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from gemmsim import answers
from gemmsim.commands.command import Answer, Document, warn_each
from gemmsim.errors import InputError, Warn, short, unknown
from gemmsim.explain.narrate_why import described, reasons
from gemmsim.explain.sides import Side
from gemmsim.explain.why import Quantity, Swap, Why
from gemmsim.kernels import kernel
from gemmsim.options import Configuration, add_registers, add_tiling, configuration, device_of
from gemmsim.predict import Prediction
from gemmsim.record_files import latest, read_records, shipped_records
from gemmsim.records import Point, Record
from gemmsim.routes import route_of
from gemmsim.units import count, duration, percent, words

Predict = Callable[[argparse.Namespace, Configuration], tuple[Prediction, list[str]]]
"""Predicts a configuration, with warnings; the options say where its registers are from."""
LINE = re.compile(r"(.+\.jsonl):([0-9]{1,9})", re.IGNORECASE)
"""A line of a file of points or records."""
CAMPAIGNS = ("", "layouts")
"""The shipped records that say how long large launches take."""


def add_why(parser: argparse.ArgumentParser) -> None:
    """The two to compare."""
    parser.add_argument(
        "--why",
        nargs=2,
        metavar=("A", "B"),
        help="compare two configurations and say what decides; each in quotes, as 'KERNEL [M [N K]] --tile ...', or"
        " FILE.jsonl:LINE of points or records; options beside --why hold for both",
    )


def run_why(args: argparse.Namespace, warn: Warn, predict: Predict) -> Answer:
    """gemmsim explain --why"""
    if args.edges:
        raise InputError("--edges speaks of one configuration; leave it out with --why")
    measured = _measured(device_of(args.device).name)
    sides, warnings = [], []
    for letter, text in zip("AB", args.why, strict=True):
        with _located(letter):
            asked = _asked(text, args)
            found, warned = predict(asked.args, asked.configuration)
        given = None if asked.args.registers is None else int(asked.args.registers)
        point = Point(found.problem, found.kernel.name, found.tiling)
        sides.append(Side(found, given, asked.measured_s or measured.get(point.key)))
        warnings += [f"{letter}: {warning}" for warning in warned]
    warn_each(warnings, warn)
    why = Why(*sides)
    return Answer(lambda: _document(why, warnings), lambda show: _show(why))


@dataclass(frozen=True)
class _Asked:
    """One of the two: its options, what they describe, and the time of the record that it was taken from, if any."""

    args: argparse.Namespace
    configuration: Configuration
    measured_s: float | None = None


@contextmanager
def _located(letter: str) -> Iterator[None]:
    """Says which of the two a refusal is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{letter}: {error}") from None


def _asked(text: str, args: argparse.Namespace) -> _Asked:
    """What the text of one of the two asks for."""
    line = LINE.fullmatch(text.strip())
    if line is None:
        own = _parsed(text, args)
        return _Asked(own, configuration(own))
    point, record = _point(line[1], int(line[2]))
    on = device_of(args.device)
    asked = Configuration(point.problem, kernel(point.kernel), point.tiling, on, ())
    return _Asked(args, asked, record.median_s if record is not None and record.device == on.name else None)


class _Options(argparse.ArgumentParser):
    """argparse, except that it raises what the command line does."""

    def error(self, message: str) -> NoReturn:
        raise InputError(message)


def _parsed(text: str, args: argparse.Namespace) -> argparse.Namespace:
    """The options of the command, with those of the text over them."""
    parser = _Options(add_help=False, allow_abbrev=False)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--dtype")
    add_tiling(parser)
    add_registers(parser)
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise InputError(f"{short(text)} cannot be read: {error}") from None
    own, rest = parser.parse_known_intermixed_args(parts, copy.copy(args))
    if rest:
        known = [option for action in parser._actions for option in action.option_strings]
        raise unknown("option", rest[0].partition("=")[0], known)
    names = [word for word in own.words if not re.match(r"[+-]?\.?[0-9]", word)]
    if len(names) > 1:
        raise InputError(f"{short(names[0])} and {short(names[1])}: a configuration has one kernel")
    own.kernel = names[0] if names else own.kernel
    own.sizes = [word for word in own.words if word not in names] or own.sizes
    return own


def _point(path: str, number: int) -> tuple[Point, Record | None]:
    """The point of a line of a file, and the record, if the line is one."""
    where = f"{path}, line {number}"
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
        data: Any = json.loads(lines[number - 1]) if 0 < number <= len(lines) else None
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not readable as JSON ({type(error).__name__})") from None
    if data is None:
        raise InputError(f"{where}: there is none; lines are numbered from 1 to {len(lines)}")
    if isinstance(data, dict) and "point" in data:
        record = Record.from_dict(data, where)
        return record.point, record
    return Point.from_dict(data, where), None


def _measured(device_name: str) -> dict[str, float]:
    """{key of a point: median} of the shipped records of this device, none where an installation has no records."""
    records: list[Record] = []
    for campaign in CAMPAIGNS:
        with suppress(InputError):
            records += read_records(shipped_records(campaign))[0]
    found = (record for record in latest(records) if record.ok and record.device == device_name)
    return {record.point.key: record.median_s for record in found if record.median_s is not None}


def _document(why: Why, warnings: list[str]) -> Document:
    """The document of --why; times are null where a side does not launch."""
    return {
        "device": why.a.prediction.device.name,
        "route": route_of(why.a.prediction),
        "a": _side(why.a),
        "b": _side(why.b),
        "faster": None if why.tie else why.names[1].lower(),
        "speedup": why.speedup,
        "differences": {
            "options": {option: {"a": a, "b": b} for option, a, b in why.options},
            "counts": _compared(why.counts),
            "conflicts": {
                name: dict(side.decomposition.conflicts) for name, side in (("a", why.a), ("b", why.b))
            },
            "occupancy": _compared(why.residence),
            "terms": _compared(why.terms),
        },
        "decides": {
            "term": why.deciding_term,
            "too_long": why.too_long,
            "option": None if why.deciding_option is None else why.deciding_option.option,
        },
        "swaps": [asdict(swap) for swap in why.swaps],
        "reasons": [{"topic": topic, "text": text} for topic, text in reasons(why)],
        "warnings": warnings,
    }  # fmt: skip


def _side(side: Side) -> Document:
    found = side.prediction
    return answers.launch(side.problem, side.kernel, side.tiling) | {
        "launches": found.occupancy.launches,
        "time_s": side.time_s,
        "measured_s": side.measured_s,
        "bound_by": found.bound_by if found.occupancy.launches else None,
        "terms": found.terms,
        "registers_per_thread": answers.registers(found.resources),
    }


def _compared(numbers: tuple[Quantity, ...]) -> Document:
    return {each.name: {"a": each.a, "b": each.b, "ratio": each.ratio} for each in numbers}


def _show(why: Why) -> None:
    from gemmsim.console import facts, line, table

    device = why.a.prediction.device
    for name, side in (("A", why.a), ("B", why.b)):
        line(f"{name}  {described(side)}", indent="   ")
    line(f"on {device.title} ({device.name})")
    line("times are by closed forms alone, as those of predict --route analytic")
    facts("Why", reasons(why))
    table("What was chosen differently", ("option", "A", "B"), why.options, text=(0, 1, 2))
    _numbers("Time of each resource on its own", why.terms, duration, differing=False)
    _numbers("Counts that differ, the whole launch", why.counts, count)
    _numbers(
        "What a block takes, and how many find room",
        why.residence,
        lambda value: f"{value:.4g}" if value % 1 else count(value),
    )
    if why.swaps:
        table(
            f"{why.names[0]} with one option of {why.names[1]}'s",
            ("option", "from", "to", "time", "of the gap"),
            (_swapped(swap) for swap in why.swaps),
            text=(0, 1, 2),
        )
        for swap in why.swaps:
            if swap.reason is not None:
                line(f"{swap.option} {swap.faster}: {swap.reason}")


def _numbers(title: str, numbers: tuple[Quantity, ...], show: Callable[[float], str], differing: bool = True) -> None:
    """A row for each number of both, or for each that differs."""
    from gemmsim.console import table

    rows = [
        (words(each.name), show(each.a), show(each.b), "-" if each.ratio is None else f"{each.ratio:.3g}")
        for each in numbers
        if each.differs or not differing
    ]
    if rows:
        table(title, ("", "A", "B", "A / B"), rows)


def _swapped(swap: Swap) -> tuple[str, ...]:
    if swap.time_s is None or swap.closes is None:
        return swap.option, swap.slower, swap.faster, "-", "-"
    return swap.option, swap.slower, swap.faster, duration(swap.time_s), percent(swap.closes)
