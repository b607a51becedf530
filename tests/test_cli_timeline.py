"""gemmsim timeline: table, document, files, and a clear line for what cannot be."""

from __future__ import annotations

import json

import pytest

from gemmsim.commands import timeline as commands

SHOWN = "timeline 2048 --kernel vectorized --tile 128x128x8 --thread 8x8"


@pytest.fixture(scope="module")
def document():
    from gemmsim.cli import main  # once for all, as it simulates

    def run(line: str) -> dict:
        import contextlib
        import io

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            assert main([*line.split(), "--json"]) == 0
        return json.loads(out.getvalue())

    return run(f"{SHOWN} --beside double_buffer")


def test_the_document_has_both(document):
    for found in (document, document["beside"]):
        assert found["iterations"] == 2
        assert sum(found["cycles_by_kind"].values()) == pytest.approx(found["cycles"])
        assert found["cycles_per_iteration"] == pytest.approx(found["cycles"] / 2 / found["blocks"])
        assert {each["warp"] for each in found["intervals"]} == set(range(8))
        assert found["program"] in ("compiled", "described")
    assert (document["kernel"], document["beside"]["kernel"]) == ("vectorized", "double_buffer")
    assert document["beside"]["tiling"]["block_k"] == document["tiling"]["block_k"]
    assert document["beside"]["waiting"] < document["waiting"]


def test_the_sentence_says_what_is_hidden(document):
    for found in (document, document["beside"]):
        assert f"{found['kernel']} hides {100 * found['hidden']:.1f} %" in document["hides"]
        assert f"{found['cycles_per_iteration']:,.0f} of {found['kernel']}" in document["hides"]


def test_the_table_for_people(gemmsim, document):
    result = gemmsim(SHOWN)
    assert (result.status, result.err) == (0, "")
    assert "2048 x 2048 x 2048 fp32 on NVIDIA H200 (h200)" in result.out
    waited = document["cycles_by_kind"]["wait_memory"]
    (line,) = (line for line in result.out.splitlines() if line.startswith("wait memory"))
    assert line.split()[2:5] == [f"{waited:,.0f}", f"{100 * waited / document['cycles']:.1f}", "%"]


def test_files_are_written_and_named(gemmsim, tmp_path):
    picture, trace = tmp_path / "t.svg", tmp_path / "t.json"
    result = gemmsim(f"{SHOWN} --picture {picture} --trace {trace}")
    assert result.status == 0
    assert result.out.endswith(f"{picture}\n{trace}\n")
    assert picture.read_bytes().startswith(b"<?xml")
    assert json.loads(trace.read_text())["traceEvents"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.json", "t.svg"]  # and no part of one


@pytest.mark.parametrize("words", ["--trace no/where.json", "--picture no/where.svg"])
def test_a_place_that_takes_no_file_is_refused_before_the_work(refusal, monkeypatch, words):
    monkeypatch.setattr(commands, "timeline_of", lambda *_: pytest.fail("simulated in vain"))
    assert f"cannot write {words.split()[-1]}" in refusal(f"{SHOWN} {words}")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("timeline", "sizes are missing"),
        ("timeline 2048", "--kernel is missing"),
        (f"{SHOWN} --beside tripple", "unknown kernel"),
        (f"{SHOWN} --beside warp_tiled", "--beside warp_tiled does not take this tiling: warp"),
        (f"{SHOWN} --picture t.gif", "allowed: .png, .svg"),
        (f"{SHOWN} --trace t.svg", "ends in .json"),
        (f"{SHOWN} --trace /no/such/folder/t.json", "cannot write"),
        ("timeline 2048 2048 8 --kernel vectorized --tile 128x128x8", "smallest k that has them is 9"),
    ],
)
def test_refusals_are_one_line(gemmsim, line, said):
    result = gemmsim(line)
    assert (result.status, result.out) == (2, "")
    assert said in result.err
    assert result.err.count("\n") == 1
