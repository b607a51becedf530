"""`gemmsim registers`: register ports of a thread tile, of compiled code, and of streams in a file."""

from __future__ import annotations

import argparse

from gemmsim.commands.command import Answer
from gemmsim.commands.pattern_options import chosen
from gemmsim.commands.registers_batch import add_batch, run_batch
from gemmsim.commands.registers_code import add_code, run_code
from gemmsim.commands.registers_tile import TILE, add_tile, run_tile
from gemmsim.errors import Warn

FORMS = {
    "thread": ("--thread RMxRN", ("arch", "warps", *TILE)),
    "sass": ("--sass FILE", ("function",)),
    "cubin": ("--cubin FILE", ("function",)),
    "batch": ("--batch FILE.jsonl", ("arch", "warps")),
}
"""The forms of the command, and the options of each."""


def add_registers(parser: argparse.ArgumentParser) -> None:
    """A thread tile, compiled code, or a file of streams; and on what they run."""
    parser.add_argument("--arch", metavar="CC", help="compute capability, such as sm_90 (default) or 8.6")
    parser.add_argument("--warps", metavar="W", help="warps of a sub-core that run the same in step (default: 1)")
    add_tile(parser)
    add_code(parser)
    add_batch(parser)


def run_registers(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim registers"""
    run = {"thread": run_tile, "sass": run_code, "cubin": run_code, "batch": run_batch}
    return run[chosen(args, FORMS)](args, warn)
