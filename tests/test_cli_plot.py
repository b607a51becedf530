"""gemmsim plot: every picture in every form and style, and a clear line for what does not go together."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from dataclasses import replace
from pathlib import Path

import pytest
import synthetic

from gemmsim import plots
from gemmsim.commands.plot import FORMS, PICTURES, STYLES
from gemmsim.device import device

SMALL = {
    "reads": "reads 256 --kernel shared",
    "roofline": "roofline 256 --kernel shared",
    "terms": "terms 256 --kernel shared",
    "compare": "compare",
    "banks": "banks --kernel double_buffer",
    "registers": "registers --thread 4x4",
    "occupancy": "occupancy --kernel register --device t4",
    "landscape": "landscape 512 --kernel shared",
    "timeline": "timeline 512 --kernel vectorized --beside double_buffer",
}


@pytest.fixture(scope="module")
def records(tmp_path_factory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("records") / "records.jsonl", synthetic.campaign()[:16])


def test_every_picture_has_an_example_here():
    assert set(SMALL) == set(PICTURES)
    assert tuple(plots.STYLES) == STYLES
    assert tuple(f".{form}" for form in plots.FORMS) == FORMS


@pytest.mark.parametrize("name", SMALL)
def test_pictures_are_drawn_and_named(answer, records, tmp_path, name):
    out = tmp_path / f"{name}.svg"
    line = SMALL[name] + (f" --records {records}" if "records" in PICTURES[name].takes else "")
    assert answer(f"plot {line} --narrow --out {out}") == {"picture": name, "style": "light", "file": str(out)}
    assert xml.etree.ElementTree.parse(out).getroot().tag.endswith("svg")


@pytest.mark.parametrize(("form", "begins"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")])
def test_the_name_of_the_file_says_the_form(gemmsim, tmp_path, form, begins):
    out = tmp_path / f"p.{form}"
    result = gemmsim(f"plot registers --thread 2x2 --style paper --out {out}")
    assert (result.status, result.out, result.err) == (0, f"{out}\n", "")
    assert out.read_bytes().startswith(begins)


def test_a_style_is_seen(gemmsim, tmp_path):
    for style, theme in plots.STYLES.items():
        assert gemmsim(f"plot registers --thread 2x2 --style {style} --out {tmp_path / 'p.svg'}").status == 0
        assert theme.background in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("plot", "the following arguments are required"),
        ("plot reads", "--out"),
        ("plot reeds --out p.png", "unknown picture 'reeds'; nearest: reads"),
        ("plot reads --out p.jpg", "--out 'p.jpg' is no picture that can be written; allowed: .png, .svg, .pdf"),
        ("plot reads --out p.png --style drak", "unknown style 'drak'; nearest: dark"),
        (
            "plot compare 4096 --out p.png",
            "sizes go with reads, roofline, terms, banks, occupancy, landscape, timeline, not with",
        ),
        ("plot compare --kernel naive --out p.png", "--kernel goes with"),
        ("plot banks --kernel shared --order row --out p.png", "--order goes with registers, not with banks"),
        ("plot banks --kernel naive --out p.png", "kernel naive makes no access to shared memory"),
        ("plot banks --out p.png", "--kernel is missing"),
        ("plot occupancy --out p.png", "--kernel is missing"),
        ("plot reads 64 --tile 8x32 --out p.png", "--tile is of a kernel; give --kernel too, or leave it out"),
        ("plot reads --device t4 --out p.png", "there is no record of t4 to take them from"),
        ("plot registers --thread 99x99 --out p.png", "thread tile 99x99 needs"),
        ("plot registers --order zigzag --out p.png", "unknown order 'zigzag'"),
        ("plot landscape --out p.png", "sizes are missing"),
    ],
)
def test_refusals(refusal, line, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refusal(line)
    assert not list(tmp_path.iterdir())


def test_a_file_that_cannot_be_written(refusal, tmp_path):
    (tmp_path / "taken").write_text("")
    assert "cannot write" in refusal(f"plot registers --thread 2x2 --out {tmp_path / 'taken' / 'p.png'}")


@pytest.mark.parametrize("name", ["nowhere/p.png", 250 * "p" + ".png"])
def test_it_is_noticed_before_the_work(refusal, monkeypatch, tmp_path, name):
    """A name that is a file's longest leaves no room for the part that is written first."""
    monkeypatch.setitem(PICTURES, "registers", replace(PICTURES["registers"], draw=None))
    assert "cannot write" in refusal(f"plot registers --thread 2x2 --out {tmp_path / name}", status=2)
    assert not list(tmp_path.iterdir())


def test_records_of_two_devices_need_a_choice(refusal, gemmsim, tmp_path):
    mixed = [*synthetic.campaign()[:2], *synthetic.campaign(device("rtx-3090"))[:2]]
    file = synthetic.write(tmp_path / "records.jsonl", mixed)
    assert "choose one with --device" in refusal(f"plot compare --records {file} --out p.png")
    out = tmp_path / "p.svg"
    assert gemmsim(f"plot compare --records {file} --device rtx-3090 --out {out}").status == 0


def test_damaged_lines_are_warnings(gemmsim, records, tmp_path):
    damaged = tmp_path / "records.jsonl"
    damaged.write_text(records.read_text() + '{"point": ')
    result = gemmsim(f"plot compare --records {damaged} --out {tmp_path / 'p.svg'} --json")
    assert json.loads(result.out)["picture"] == "compare"
    assert result.err.startswith("gemmsim: warning: ")
