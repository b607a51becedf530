"""The command `gemmsim`: parse, call, print. Exit statuses: 0 done, 1 the answer is no, 2 unusable input,
3 this machine cannot, 70 a bug of ours, 130 interrupted, 141 nobody reads the output any more."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from gemmsim import __version__, answers
from gemmsim.commands import COMMANDS
from gemmsim.errors import GemmsimError, InputError, report_line, short, unknown, warn
from gemmsim.streams import INTERRUPTED, NOBODY_READS, abandon, say

EXPRESSIONS = ("banks", "coalescing")
"""Commands whose argument is one: it may begin with a minus."""
BUG = 70
"""EX_SOFTWARE of sysexits.h."""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help with its texts as they are written, and room for the longest command before its summary."""

    def __init__(self, prog: str) -> None:
        longest = max(map(len, COMMANDS)) + 4
        super().__init__(prog, max_help_position=longest + 2)
        self._action_max_length = longest  # argparse forgets that commands are indented twice


class _Parser(argparse.ArgumentParser):
    """argparse, except that its refusals are errors like all others, and so is help that cannot be written."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; `{self.prog} --help` says more")

    def _print_message(self, message: str, file: Any = None) -> None:
        print(message, end="", file=file)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return the exit status; whatever goes wrong is one line on standard error."""
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except GemmsimError as error:
        return _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:
        abandon(sys.stdout)
        return NOBODY_READS
    except MemoryError:
        return _fail("out of memory on this machine; a smaller input or more memory", 3)
    except OSError as error:
        if error.filename is None:
            abandon(sys.stdout)
        return _fail(f"{error.filename or 'standard output'}: {error.strerror or error}", 3)
    except Exception as error:
        if os.environ.get("GEMMSIM_DEBUG"):
            raise
        return _fail(f"this is a bug: {type(error).__name__}: {error}; GEMMSIM_DEBUG=1 shows where", BUG)


def _run(words: list[str]) -> int:
    if not words:
        raise InputError(f"no command; known: {', '.join(COMMANDS)}; `gemmsim --help` says more")
    if words[0] not in COMMANDS and words[0] not in ("-h", "--help", "--version"):
        if words[0].startswith("-"):
            raise InputError(f"{words[0]} stands before the command; options follow it: gemmsim COMMAND ... {words[0]}")
        raise unknown("command", words[0], COMMANDS)
    if words[0] in EXPRESSIONS:  # in parentheses, which change no value, argparse takes -lane+31 for no option
        words = [f"({word})" if re.match(r"-(?!-|h$).*[a-z]", word) else word for word in words]
    _refuse_negative(words)
    parser, of_command = _parsers()
    try:
        args, rest = parser.parse_known_args(words)
    except SystemExit as done:  # --help, --version
        return int(done.code or 0)
    if rest:
        if not rest[0].startswith("-"):
            raise InputError(
                f"unexpected {short(rest[0])}: too many values, or apart; `gemmsim {words[0]} --help` says more"
            )
        known = re.findall(r"--[\w-]+", of_command[args.command].format_help())
        raise unknown("option", rest[0].partition("=")[0], known)
    answer = COMMANDS[args.command].run(args, warn)
    if args.json and answer.pieces:
        sys.stdout.writelines(answer.pieces())
    elif args.json:
        print(answers.to_json(answer.document()))
    else:
        from gemmsim import show  # imports rich, which JSON needs not wait for

        answer.show(show)
    return 0 if answer.ok else 1


def _refuse_negative(words: Sequence[str]) -> None:
    """Refuse -1e9 and -8x8 here: argparse would take them for options."""
    for word in words:
        if re.match(r"-\.?[0-9]", word) and not re.fullmatch(r"-[0-9]+|-[0-9]*\.[0-9]+", word):
            raise InputError(f"{short(word)} is negative; allowed: whole numbers, and tiles of them such as 128x128x8")


def _parsers() -> tuple[argparse.ArgumentParser, dict[str, _Parser]]:
    """The whole parser, and that of each command."""
    parser = _Parser(
        prog="gemmsim",
        description="Tells what a GPU matrix multiplication will do before it runs, and checks it on the GPU.",
        epilog="example:\n  gemmsim predict 4096 --kernel vectorized --device h200\n\n"
        "The glossary of the documentation explains the words: FFMA, wavefront, occupancy and others.",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"gemmsim {__version__}")
    adder = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    of_command = {}
    for name, command in COMMANDS.items():
        of_command[name] = sub = adder.add_parser(
            name,
            usage=f"gemmsim {name} {command.usage}",
            help=command.summary,
            description=command.summary[0].upper() + command.summary[1:] + ".",
            epilog=f"example:\n  gemmsim {name} {command.example}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        for add in command.options:
            add(sub)
        sub.add_argument("--json", action="store_true", help="print one JSON document and nothing else")
    return parser, of_command


def _fail(message: str, status: int) -> int:
    say(f"gemmsim: error: {report_line(message)}")
    return status
