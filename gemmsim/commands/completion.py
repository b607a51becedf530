"""`gemmsim completion`: what a shell reads to complete commands, options and names."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from gemmsim.commands.command import Answer, Command
from gemmsim.commands.completion_scripts import SHELLS, script, verbs
from gemmsim.errors import InputError, unknown


def add_completion(parser: argparse.ArgumentParser) -> None:
    """The shell."""
    parser.add_argument(
        "shell", nargs="?", metavar="|".join(SHELLS), help='the shell: eval "$(gemmsim completion bash)" in ~/.bashrc'
    )


def run_completion(args: argparse.Namespace, commands: Mapping[str, Command]) -> Answer:
    """gemmsim completion"""
    if args.shell is None:
        raise InputError(f"the shell is missing; known: {', '.join(SHELLS)}")
    if args.shell not in SHELLS:
        raise unknown("shell", args.shell, SHELLS)
    text = script(args.shell, verbs({name: (of.summary, parser_of(of)) for name, of in commands.items()}))
    return Answer(lambda: {"shell": args.shell, "script": text}, lambda _: print(text, end=""))


def parser_of(command: Command) -> argparse.ArgumentParser:
    """The options of a command, as the command line has them."""
    parser = argparse.ArgumentParser()
    for add in command.options:
        add(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser
