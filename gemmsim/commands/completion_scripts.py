"""Completion for shells: scripts made from the options of the commands, so that they cannot fall behind them.

A script holds all words, so that completing starts no Python. (shtab, which makes such scripts from argparse too, has
none for fish; argcomplete has, but runs the program at every press of the key.) What an argument takes is read off
its metavar: K is a kernel, NAME|FILE.toml a GPU, CC a compute capability, FILE and names that end in .jsonl are
files, DIR is a folder, and a|b|c are words.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gemmsim.device import capabilities, devices
from gemmsim.kernels import KERNELS

SHELLS = ("bash", "zsh", "fish")
DTYPES = ("fp32",)
LONGEST_HELP = 72
"""Characters of a help text beside a word."""


@dataclass(frozen=True)
class Values:
    """What may stand as an argument: one of some words, and a file or a folder besides. All empty: nobody knows."""

    words: tuple[str, ...] = ()
    files: bool = False
    folders: bool = False


@dataclass(frozen=True)
class Option:
    """An option by all its names, what it says of itself, and what each of its arguments may be."""

    names: tuple[str, ...]
    text: str
    arguments: tuple[Values, ...]


@dataclass(frozen=True)
class Verb:
    """A command: its options, and what may stand beside them."""

    name: str
    text: str
    options: tuple[Option, ...]
    positional: Values


def verb(name: str, text: str, parser: argparse.ArgumentParser) -> Verb:
    """The command of that name, as its parser knows it."""
    options, positional = [], Values()
    for action in parser._actions:
        values = values_of(action)
        if action.option_strings:
            number = action.nargs if isinstance(action.nargs, int) else 1
            options.append(Option(tuple(action.option_strings), _short(action.help), (values,) * number))
        else:
            positional = Values(
                positional.words + values.words, positional.files or values.files, positional.folders or values.folders
            )
    return Verb(name, _short(text), tuple(options), positional)


def values_of(action: argparse.Action) -> Values:
    """What an argument may be, by its choices, its name and its metavar."""
    meta = action.metavar if isinstance(action.metavar, str) else ""
    if action.choices is not None:
        return Values(tuple(map(str, action.choices)))
    if "--dtype" in action.option_strings:
        return Values(DTYPES)
    if meta in ("K", "K[,K]"):
        return Values(tuple(KERNELS))
    if meta == "CC":
        return Values(capabilities())
    if re.fullmatch(r"[a-z]+(\|[a-z]+)+", meta):
        return Values(tuple(meta.split("|")))
    return Values(
        devices() if meta == "NAME|FILE.toml" else (),
        files=bool(re.search(r"\bFILE\b|\.jsonl\b|\bCUBIN\b", meta)),
        folders=meta == "DIR",
    )


def script(shell: str, verbs: Iterable[Verb], program: str = "gemmsim") -> str:
    """What a shell, one of SHELLS, reads to complete the commands."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](tuple(verbs), program)


def _short(text: str | None) -> str:
    """The first part of a help text, in one line."""
    line = " ".join((text or "").replace("%%", "%").split()).split(";")[0]
    return line if len(line) <= LONGEST_HELP else line[: LONGEST_HELP - 3].rsplit(" ", 1)[0] + "..."


# bash


def _bash(verbs: tuple[Verb, ...], program: str) -> str:
    """Words and paths are found by compgen; bash 3.2, as on macOS, will do."""
    names = f"_{program}"
    offered = [
        f"        {of.name}) options='{' '.join(name for option in of.options for name in option.names)}';"
        f" {_reply(of.positional, names)} ;;"
        for of in verbs
    ]
    lines = [
        f'# Completion of {program} for bash: eval "$({program} completion bash)", in ~/.bashrc.',
        f"{names}() {{",
        "    local options='' word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}",
        "    COMPREPLY=()",
        "    if [[ $COMP_CWORD -eq 1 ]]; then",
        f"        {names}_words '{' '.join((*(of.name for of in verbs), '--help', '--version'))}'",
        "        return",
        "    fi",
        "    if [[ $word == = ]]; then",
        "        word=''",
        "    elif [[ $before == = ]]; then",
        "        before=${COMP_WORDS[COMP_CWORD-2]}",
        "    fi",
        "    case ${COMP_WORDS[1]}/$before in",
        *(f"        {'|'.join(where)}) {_reply(values, names)} return ;;" for values, where in _places(verbs).items()),
        "    esac",
        "    case ${COMP_WORDS[1]} in",
        *offered,
        "    esac",
        f'    if [[ $word == -* ]]; then COMPREPLY=(); {names}_words "$options"; fi',
        "}",
        names + '_words() { local IFS=$\' \\t\\n\'; COMPREPLY+=($(compgen -W "$1" -- "$word")); }',
        names + '_paths() { local IFS=$\'\\n\'; COMPREPLY+=($(compgen "$1" -- "$word")); }',
        f"complete -o filenames -F {names} {program}",
    ]
    return "\n".join(lines) + "\n"


def _places(verbs: tuple[Verb, ...]) -> dict[Values, list[str]]:
    """{values: the patterns COMMAND/OPTION after which they stand}, COMMAND being * where that holds of all that have
    the option."""
    found: dict[str, dict[str, Values]] = {}
    for of in verbs:
        for option in of.options:
            for name in option.names:
                if option.arguments:
                    found.setdefault(name, {})[of.name] = option.arguments[0]
    flags = {name for of in verbs for option in of.options if not option.arguments for name in option.names}
    places: dict[Values, list[str]] = {}
    for name, by_verb in found.items():
        if len(set(by_verb.values())) == 1 and name not in flags:
            by_verb = {"*": next(iter(by_verb.values()))}
        for verb_name, values in by_verb.items():
            places.setdefault(values, []).append(f"{verb_name}/{name}")
    return places


def _reply(values: Values, names: str) -> str:
    """Bash that offers these values."""
    parts = [f"{names}_words '{' '.join(values.words)}';"] if values.words else []
    parts += [f"{names}_paths -f;"] if values.files else [f"{names}_paths -d;"] if values.folders else []
    return " ".join(parts) or ":;"


# zsh


def _zsh(verbs: tuple[Verb, ...], program: str) -> str:
    function = f"_{program}"
    lines = [
        f"#compdef {program}",
        f'# Completion of {program} for zsh: eval "$({program} completion zsh)", in ~/.zshrc after compinit.',
        f"{function}() {{",
        "    local -a commands=(",
        *(f"        {_quoted(f'{of.name}:{of.text}')}" for of in verbs),
        "    )",
        "    if (( CURRENT == 2 )); then",
        "        _describe -t commands command commands",
        "        return",
        "    fi",
        "    shift words",
        "    (( CURRENT-- ))",
        "    case $words[1] in",
    ]
    for of in verbs:
        specs = []
        for option in of.options:
            takes = "".join(f": :{_action(values)}" for values in option.arguments)
            text = re.sub(r"([\[\]:\\])", r"\\\1", option.text)
            specs += [_quoted(f"*{name}[{text}]{takes}") for name in option.names]
        # where nobody knows what stands `{:}` offers nothing: beside a blank, a message, zsh would not insert a thing
        specs.append(_quoted(f"*: :{'{:}' if of.positional == Values() else _action(of.positional)}"))
        lines += [f"        {of.name}) _arguments \\", *(f"            {spec} \\" for spec in specs), "            ;;"]
    lines += [
        "    esac",
        "}",
        f'if [[ $funcstack[1] == {function} ]]; then {function} "$@"; else compdef {function} {program}; fi',
    ]
    return "\n".join(lines) + "\n"


def _action(values: Values) -> str:
    """What `_arguments` offers for a value: nothing, a list, paths, or both; with a blank first it adds no options."""
    paths = "_files" if values.files else "_files -/" if values.folders else ""
    words = " ".join(values.words)
    if words and paths:
        return f' _alternative "words\\: \\:({words})" "files\\: \\:{paths}"'
    return f"({words})" if words else paths or " "


# fish


def _fish(verbs: tuple[Verb, ...], program: str) -> str:
    lines = [
        f"# Completion of {program} for fish: {program} completion fish | source, in ~/.config/fish/config.fish.",
        f"complete -c {program} -e",
        f"complete -c {program} -f",
        f"complete -c {program} -n __fish_use_subcommand -l help -d 'show what there is'",
        f"complete -c {program} -n __fish_use_subcommand -l version -d 'show the version'",
    ]
    for of in verbs:
        lines.append(f"complete -c {program} -n __fish_use_subcommand -a {of.name} -d {_fish_quoted(of.text)}")
        start = f"complete -c {program} -n '__fish_seen_subcommand_from {of.name}'"
        for option in of.options:
            names = " ".join(f"-l {n[2:]}" if n.startswith("--") else f"-s {n[1:]}" for n in option.names)
            takes = _fish_values(option.arguments[0], " -r") if option.arguments else ""
            lines.append(f"{start} {names}{takes} -d {_fish_quoted(option.text)}")
        if of.positional != Values():
            lines.append(start + _fish_values(of.positional, ""))
    return "\n".join(lines) + "\n"


def _fish_values(values: Values, requires: str) -> str:
    """What fish offers for a value; the files that it would offer by itself only where one may stand."""
    words = " ".join(values.words) + (" (__fish_complete_directories)" if values.folders else "")
    return requires + (" -F" if values.files else " -f") + (f" -a {_fish_quoted(words)}" if words else "")


def _quoted(text: str) -> str:
    """One word of a shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def verbs(parsers: Mapping[str, tuple[str, argparse.ArgumentParser]]) -> tuple[Verb, ...]:
    """The commands of these {name: (summary, parser)}."""
    return tuple(verb(name, text, parser) for name, (text, parser) in parsers.items())
