"""The batches of `gemmsim occupancy`: a file of cases in, a JSON document or the file with more columns out."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Iterator
from functools import cache

import numpy as np

from gemmsim.commands.command import Answer
from gemmsim.commands.occupancy_options import ADDED, AMOUNTS, option
from gemmsim.errors import InputError
from gemmsim.occupancy import RESOURCES, Occupancy
from gemmsim.occupancy.batch import Piece, occupancy_pieces
from gemmsim.streams import say
from gemmsim.units import count, plural


def run_batch(args: argparse.Namespace) -> Answer:
    """gemmsim occupancy --batch; InputError where the options describe another block besides."""
    others = (*AMOUNTS, "carveout", "cc", "device", "kernel", "tile", "blocks", "sms", "picture")
    given = [option(name) for name in others if getattr(args, name) is not None]
    given += ["--no-opt-in"] * args.no_opt_in + ["sizes"] * bool(args.sizes)
    if given:
        raise InputError(f"--batch {args.batch} brings its own cases, and {given[0]} describes another; give either")
    return Answer(
        lambda: json.loads("".join(json_pieces(args.batch))),
        lambda show: print_batch(args.batch),
        pieces=lambda: json_pieces(args.batch),
    )


def json_pieces(path: str) -> Iterator[str]:
    """The document of a batch, piece by piece. Where a row cannot be used, the results before it are a document that
    says so, and then the error is raised; where there are none, it is raised at once."""
    opening, between, closing = '{\n  "results": [\n    ', ",\n    ", "\n  ]"
    start = opening
    try:
        for piece in occupancy_pieces(path):
            if piece.rows:
                yield start + between.join(map(_result, _codes(piece.occupancy)))
                start = between
    except InputError as error:
        if start != opening:
            yield f'{closing},\n  "error": {json.dumps(str(error))}\n}}\n'
        raise
    yield f"{closing}\n}}\n" if start != opening else '{\n  "results": []\n}\n'


def _codes(found: Occupancy) -> list[int]:
    """For each case one number for its blocks and its limiters together: few are different."""
    assert not isinstance(found.limiters, tuple), "of arrays"
    bits = (found.limiters[name].astype(np.int64) << place for place, name in enumerate(RESOURCES))
    codes: list[int] = (sum(bits) + (found.blocks_per_sm << len(RESOURCES))).tolist()
    return codes


def _limiters(code: int) -> list[str]:
    return [name for place, name in enumerate(RESOURCES) if code >> place & 1]


@cache
def _result(code: int) -> str:
    return json.dumps({"blocks_per_sm": code >> len(RESOURCES), "limiters": _limiters(code)})


def print_batch(path: str) -> None:
    """The file with the columns added, and on standard error how many of its cases do not launch."""
    rows = refused = 0
    for piece in occupancy_pieces(path):
        sys.stdout.write(_as_csv(piece, header=not rows))
        rows += len(piece.rows)
        refused += int((piece.occupancy.blocks_per_sm == 0).sum())
    sys.stdout.flush()
    say(f"{plural(rows, 'case')}, {count(refused)} of which would not launch")


def _as_csv(piece: Piece, header: bool) -> str:
    """The rows as long as the row of names, and behind them what fits."""
    text, columns = io.StringIO(), len(piece.header)
    write = csv.writer(text, lineterminator="\n")
    if header:
        write.writerow([*piece.header, *ADDED])
    found = piece.occupancy
    numbers = (found.blocks_per_sm.tolist(), found.warps_per_sm.tolist(), found.occupancy.tolist())
    for cells, *resident, code in zip(piece.rows, *numbers, _codes(found), strict=True):
        padding = [""] * (columns - len(cells))
        write.writerow([*cells[:columns], *padding, *resident, "|".join(_limiters(code))])
    return text.getvalue()
