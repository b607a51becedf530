"""docs/walk.md is what its template gives today: no number in it is stale."""

from __future__ import annotations

import re

import pytest

from docs import build as builder
from docs.walk.pictures import PICTURES
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.ladder import climb
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records

TOLERANCE = 0.02
"""Points by which a picture may differ: arithmetic of another machine, not another picture."""
NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?|-?\d+")


@pytest.fixture(scope="module")
def built():
    return builder.build()


def test_the_page_is_as_built(built):
    assert builder.PAGE.read_text(encoding="utf-8") == built.page, "run `make docs` and read what has changed"


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_the_pictures_are_as_built(built, name):
    committed = (builder.FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    present = built.pictures[name].decode()
    assert NUMBER.sub("", committed) == NUMBER.sub("", present), "run `make docs` and look at what has changed"
    pairs = zip(NUMBER.findall(committed), NUMBER.findall(present), strict=True)
    assert all(abs(float(one) - float(other)) <= TOLERANCE for one, other in pairs)


def test_no_picture_is_left_over(built):
    assert {path.stem for path in builder.FOLDER.glob("*")} == set(built.pictures) == set(PICTURES)


def test_the_template_has_no_figure_of_its_own():
    """Beside placeholders there is no number that a model or a measurement gives."""
    text = (builder.DOCS / "walk" / "walk.md.j2").read_text(encoding="utf-8")
    text = re.sub(r"\{#.*?#\}|\{%.*?%\}|\{\{.*?\}\}|`[^`]*`|```.*?```", "", text, flags=re.DOTALL)
    written = set(re.findall(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d", text))
    # sizes of the example, of a warp, a bank, a sector and a word, and what a formula says
    assert written <= {"2", "1", "4", "8", "32", "128", "256", "2048", "4096", "0", "64"}


def test_the_ladder_on_the_page_is_the_ladder(built):
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([\d.]+ [mu]s) \| ([\d.]+ [mu]s|-) \|$", built.page, re.MULTILINE)
    assert [row[0] for row in rows] == list(KERNELS)
    rungs = climb(Problem(2048, 2048, 2048), device("h200"), read_records(shipped_records())[0])
    for (_, predicted, measured), rung in zip(rows, rungs, strict=True):
        for text, seconds in ((predicted, float(rung.prediction.time_s)), (measured, rung.measured_s)):
            if seconds is not None:
                number, unit = text.split()
                assert float(number) * {"ms": 1e-3, "us": 1e-6}[unit] == pytest.approx(seconds, rel=0.006)


def test_a_claim_that_is_no_longer_true_stops_the_build():
    assert builder.holds(1 < 2, "it pays") == "it pays"
    with pytest.raises(RuntimeError, match='no longer true, so to be said otherwise in the template: "it pays"'):
        builder.holds(False, "it pays")


def test_a_command_that_fails_stops_the_build():
    with pytest.raises(
        RuntimeError, match="gemmsim predict 4096 --kernel nave exited 2: gemmsim: error: unknown kernel"
    ):
        builder.ask("predict 4096 --kernel nave")


def test_excerpts_of_what_is_printed():
    shown = builder.show("explain 2048 --kernel shared --tile 32x32x32", "How the work", 2)
    assert shown.splitlines()[0] == "    $ gemmsim explain 2048 --kernel shared --tile 32x32x32"
    assert shown.splitlines()[2] == "    How the work is divided"
    assert len(shown.splitlines()) == 4
    with pytest.raises(StopIteration):
        builder.show("explain 2048 --kernel shared --tile 32x32x32", "no line begins so", 2)


def test_paragraphs_are_filled_and_all_else_is_left():
    kept = ["# A heading " + "x " * 90, "| a | b |\n| --- | --- |", "    code  of   one kind", "* a list\n* of two"]
    text = builder.wrapped("\n\n".join([*kept, "words " * 60, "a\nb"]))
    parts = text.rstrip("\n").split("\n\n")
    assert parts[:4] == [part.rstrip() for part in kept]
    assert max(map(len, parts[4].splitlines())) <= builder.WIDTH
    assert parts[4].split() == ["words"] * 60
    assert parts[5] == "a b"
    assert builder.wrapped(text) == text


def test_writing_removes_what_is_no_longer_shown(tmp_path, monkeypatch):
    monkeypatch.setattr(builder, "PAGE", tmp_path / "walk.md")
    monkeypatch.setattr(builder, "FOLDER", tmp_path / "pictures")
    builder.write(builder.Built("one", {"a": b"A", "b": b"B"}))
    builder.write(builder.Built("two", {"b": b"C"}))
    assert (tmp_path / "walk.md").read_text() == "two"
    assert {path.name: path.read_bytes() for path in (tmp_path / "pictures").iterdir()} == {"b.svg": b"C"}
