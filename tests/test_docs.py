"""The documents: what they name exists, and what exists they name; and what `make measure` says it lacks."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmsim import cli
from gemmsim.commands import COMMANDS
from gemmsim.errors import InputError

ROOT = Path(__file__).resolve().parent.parent
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS_SHOWN = re.findall(
    r"^    (?:\$ )?(gemmsim .*|make .*)$|`(gemmsim \w[^`]*)`",
    "\n".join(path.read_text(encoding="utf-8") for path in DOCUMENTS),
    re.MULTILINE,
)


@pytest.mark.parametrize(
    "path", [path.relative_to(ROOT / "gemmsim") for path in sorted((ROOT / "gemmsim").rglob("*.py"))], ids=str
)
def test_the_architecture_names_every_module(path):
    if path.name == "__init__.py":
        assert len(path.parts) == 1 or f"`gemmsim/{path.parent}/`" in ARCHITECTURE
    elif len(path.parts) == 1:
        assert f"`gemmsim/{path}`" in ARCHITECTURE
    else:
        part = ARCHITECTURE.split(f"| in `gemmsim/{path.parent}/` |")[1].split("\n\n")[0]
        assert f"`{path.name}`" in part


def test_the_architecture_names_no_module_that_is_not_there():
    for name in re.findall(r"`(gemmsim/[\w/.]+)`", ARCHITECTURE):
        assert (ROOT / name).exists(), name


def test_the_rule_of_imports_is_one():
    rules = {
        " ".join(sentence.split())
        for path in (ROOT / "CONTRIBUTING.md", ROOT / "docs" / "architecture.md")
        for sentence in re.findall(r"A module\s+imports[^.]*?`tests/test_packaging\.py`[^.]*\.", path.read_text())
    }
    assert len(rules) == 1


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", document.read_text(encoding="utf-8")):
        assert re.match(r"https?://", target) or (document.parent / target).exists(), target


@pytest.mark.parametrize("line", sorted({(block or inline).split("#")[0].strip() for block, inline in COMMANDS_SHOWN}))
def test_commands_shown_are_commands(line):
    program, *words = shlex.split(line)
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert all("=" in word or word in targets for word in words)
        return
    if words[1:] in ([], ["NAME"], ["..."]):  # a command, named in a sentence
        assert words[0] in COMMANDS
        return
    if "..." not in words:
        parser, _ = cli._parsers()
        _, unread = parser.parse_known_args(words)
        assert unread == []


def test_commands_that_are_none_would_be_found():
    parser, _ = cli._parsers()
    with pytest.raises(InputError):
        parser.parse_known_args(["predikt", "4096"])
    assert parser.parse_known_args(["predict", "4096", "--tle", "8x8"])[1] == ["--tle", "8x8"]


def test_the_glossary_explains_what_the_tables_say():
    entries = re.findall(r"^\* \*\*(.*?)\.\*\* ", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)
    assert len(entries) == 22
    terms = " ".join(entries).lower()
    for term in (
        "ffma", "warp", "lane", "request", "sector", "wavefront", "ideal", "excess", "bank", "occupancy", "wave",
        "tail", "large and small iteration", "stage", "copy", "split k", "group", "pitch", "padding", "roofline",
        "ridge", "floor", "kendall tau", "mape",
    ):  # fmt: skip
        assert term in terms


@pytest.mark.skipif(not shutil.which("make"), reason="no make here")
def test_make_measure_asks_for_cuda_before_it_builds(tmp_path):
    tree = tmp_path / "checkout"
    tree.mkdir()
    shutil.copy(ROOT / "Makefile", tree)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "CUDA"))}
    command = [str(shutil.which("make")), "measure", f"PYTHON={sys.executable}"]
    done = subprocess.run(
        command, cwd=tree, env=clean | {"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2  # make's own; the recipe's is 3
    assert "Error 3" in done.stderr
    lacks = [line for line in done.stderr.splitlines() if line.startswith("to measure, this machine lacks ")]
    assert len(lacks) == 1
    assert "a CUDA toolkit (nvcc on PATH, or make measure CUDA_ROOT=/usr/local/cuda)" in lacks[0]
    assert not (tree / ".venv").exists()
