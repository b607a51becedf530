"""The report: one page that stands alone, files that say the same, and every kind of unusable input."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import os
import re
import sys
import xml.etree.ElementTree
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import synthetic
from drawings import drawn_once
from markupsafe import Markup

from gemmsim import plots
from gemmsim.compare import compare, counter_differences
from gemmsim.device import device
from gemmsim.errors import InputError, MachineError
from gemmsim.held_out import held_out
from gemmsim.kernels import KERNELS
from gemmsim.ladder import default_tiling
from gemmsim.problem import Problem
from gemmsim.records import Point, Record
from gemmsim.report import model_tables, page, record_tables, write_report
from gemmsim.report.chapters import ANSWER, CHAPTERS
from gemmsim.report.findings import fastest, findings
from gemmsim.report.inline import inline, variables
from gemmsim.report.surroundings import surroundings
from gemmsim.units import duration, percent

PICTURES = [each.picture for each in CHAPTERS if each.picture]
H200, T4 = device("h200"), device("t4")
LARGEST_PAGE_BYTES = 5_000_000
ALONE = {"area", "base", "br", "col", "hr", "img", "input", "link", "meta", "source"}
POINT = Point(Problem(256, 256, 256), "naive", default_tiling(KERNELS["naive"]))


class Page(HTMLParser):
    """Elements, text, and whether every element that opens closes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.open: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in ALONE:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open[-1:] == ["script"]:
            self.scripts.append(data)
        elif self.open[-1:] != ["style"]:
            self.text += data

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> tuple[list[Record], list[Path]]:
    folder = tmp_path_factory.mktemp("campaign")
    records = synthetic.campaign()
    with drawn_once(tmp_path_factory):
        return records, write_report(synthetic.write(folder / "records.jsonl", records), folder / "out" / "report")


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures that show nothing, for tests of everything else: drawing takes seconds."""

    def drawn(picture, of, name):
        svg = b'<svg viewBox="0 0 1 1"></svg>'
        shown = Markup(inline(svg, plots.LIGHT, name, picture.alt(of)))
        files = {f"{name}.{form}": form.encode() for form in ("svg", "png")}
        return page.Drawn(picture.alt(of), (("wide", shown),), f"{name}.svg", f"{name}.png"), files

    monkeypatch.setattr(page, "_drawn", drawn)


def report(folder: Path, records: list[Record], **options) -> tuple[Page, list[Path]]:
    files = write_report(synthetic.write(folder / "records.jsonl", records), folder / "out", **options)
    return Page(files[0].read_text(encoding="utf-8")), files


def test_files_are_page_pictures_and_tables(campaign):
    records, files = campaign
    assert files[0].name == "index.html"
    assert {path.name for path in files} == {path.name for path in files[0].parent.iterdir()}
    stems = {path.stem for path in files if path.suffix in (".svg", ".png")}
    assert stems == {f"h200-{picture.name}" for picture in PICTURES}
    found = findings(records, H200)
    made = [*ANSWER, *(each for chapter in CHAPTERS for each in chapter.tables)]
    assert {path.stem for path in files if path.suffix == ".csv"} == {f"h200-{each(found).name}" for each in made}
    for path in files:
        content = path.read_bytes()
        if path.suffix == ".svg":
            assert xml.etree.ElementTree.fromstring(content).tag.endswith("svg")
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n\x1a\n")


def _hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _sources(text: str) -> set[str]:
    """Addresses that the data names as sources; nothing loads them."""
    data = text.partition('<script type="application/json"')[2].partition("</script>")[0]
    return set(re.findall(r"https?://[^\"<]*", data))


def test_page_stands_alone(campaign):
    _, files = campaign
    text = files[0].read_text(encoding="utf-8")
    assert len(text.encode()) <= LARGEST_PAGE_BYTES
    parsed = Page(text)
    assert not parsed.open
    assert not {tag for tag, _ in parsed.elements} & {"link", "iframe", "object", "embed", "img"}
    for tag, attributes in parsed.elements:
        for name in ("src", "srcset", "href", "data", "poster", "action", "xlink:href"):
            assert re.match(r"#|data:image/png|[\w-]+\.(csv|svg|png)$|$", attributes.get(name, "")), (tag, attributes)
    assert not re.search(r"@import|url\((?!#)", text)
    assert set(re.findall(r"https?://[^\"<]*", text)) <= {"http://www.w3.org/1999/xlink"} | _sources(text)
    (policy,) = (each["content"] for each in parsed.all("meta") if "http-equiv" in each)
    assert policy.startswith("default-src 'none';")
    assert all(f"'sha256-{_hash(each)}'" in policy for each in parsed.scripts[1:])
    ids = [attributes["id"] for _, attributes in parsed.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for link in parsed.all("a"):
        target = link["href"]
        assert target[1:] in ids if target.startswith("#") else (files[0].parent / target).is_file()


def test_every_picture_says_in_words_what_it_shows(campaign):
    _, files = campaign
    text = files[0].read_text(encoding="utf-8")
    parsed = Page(text)
    labels = [each["aria-label"] for each in parsed.all("svg")]
    assert len(set(labels)) == len(PICTURES)
    assert len(labels) == sum(4 if picture.is_field else 2 for picture in PICTURES)
    for label in labels:
        assert len(label) > 60
        assert re.search(r"\d", label)
    assert {each["role"] for each in parsed.all("svg")} == {"img"}
    assert "nan" not in " ".join(labels)
    for chapter in CHAPTERS:
        assert len(re.findall(r"\.(?: |$)", chapter.reading)) == 2, "two sentences on how to read it"


def test_what_a_picture_refers_to_is_in_it(campaign):
    _, files = campaign
    pictures = re.findall(r"<svg .*?</svg>", files[0].read_text(encoding="utf-8"), re.DOTALL)
    assert pictures
    for picture in pictures:
        ids = re.findall(r'\bid="([^"]*)"', picture)
        assert len(ids) == len(set(ids))
        referred = set(re.findall(r'href="#([^"]*)"|url\(#([^)]*)\)', picture))
        assert {first or second for first, second in referred} <= set(ids)
        assert "clip-path" in picture


def test_pictures_on_the_page_have_its_colors(campaign):
    _, files = campaign
    text = files[0].read_text(encoding="utf-8")
    for picture in re.findall(r'<div class="picture (?:wide|narrow)">(.*?)</div>', text, re.DOTALL):
        assert not re.findall(r"(?<!&)#[0-9a-f]{6}\b", picture)
        assert "var(--ink)" in picture
    for theme in (plots.LIGHT, plots.DARK):
        for color, variable in variables(theme).items():
            assert f"{variable}: {color};" in text


def test_the_answer_comes_first(campaign):
    records, files = campaign
    text = " ".join(Page(files[0].read_text(encoding="utf-8")).text.split())
    found = compare(records, H200)
    largest = max(found.points, key=lambda point: point.point.problem.flop).point.problem
    best = min((p for p in found.points if p.point.problem == largest), key=lambda point: point.measured_s)
    equal = sum(each.equal for each in found.counters.values())
    total = sum(each.total for each in found.counters.values())
    assert total - equal == 1
    head = text[: text.index("Reads at every level of the ladder Each step")]
    for said in (
        f"Fastest at {largest}: {best.point.kernel}",
        f"Predicted {duration(best.predicted_s)} Measured {duration(best.measured_s)}",
        f"Of the FP32 peak of 66.9 TFLOP/s {percent(largest.flop / best.measured_s / H200.fp32_flop_per_s)}",
        f"Bound by, says the model {best.prediction.bound_by.replace('_', ' ')}",
        f"Mean absolute error {percent(found.mape)}",
        f"Kendall tau, all points {found.kendall_tau:.3f}",
        f"Kendall tau within a size {found.tau_within_problems:.3f}",
        f"Counts equal to hardware {equal} of {total}",
        "Points without a time 2",
    ):
        assert said in head
    for size in {point.point.problem for point in found.points}:
        assert f"{size.m:,} {size.n:,} {size.k:,}" in head


def test_csv_numbers_are_those_of_compare(campaign):
    records, files = campaign
    found = compare(records, H200)
    frames = {path.stem.removeprefix("h200-"): pd.read_csv(path) for path in files if path.suffix == ".csv"}

    points = frames["points"]
    assert len(points) == len(found.points)
    for name in ("predicted_s", "measured_s", "error"):
        assert points[name].tolist() == [getattr(point, name) for point in found.points]
    assert points["bound_by"].tolist() == [point.prediction.bound_by for point in found.points]
    assert points[["m", "n", "k"]].values.tolist() == [
        [p.point.problem.m, p.point.problem.n, p.point.problem.k] for p in found.points
    ]
    rates = [point.point.problem.flop / point.measured_s for point in found.points]
    assert points["measured_flop_per_s"].tolist() == rates
    assert points["peak_fraction"].tolist() == [rate / H200.fp32_flop_per_s for rate in rates]

    parts = {**found.by_kernel(), "all": found}
    assert frames["kernels"]["kernel"].tolist() == list(parts)
    for name in ("mape", "max_error", "mean_error", "kendall_tau"):
        assert frames["kernels"][name].tolist() == [getattr(part, name) for part in parts.values()]

    assert frames["counters"].values.tolist() == [
        [name, each.equal, each.total, each.worst_relative] for name, each in found.counters.items()
    ]
    pairs = [pair for point in found.points for pair in counter_differences(point.record).values()]
    assert frames["counts"][["model", "hardware"]].values.tolist() == [list(pair) for pair in pairs]
    assert frames["counts"]["difference"].tolist() == [model - hardware for model, hardware in pairs]

    best = frames["best"].groupby(["m", "n", "k"])["measured_s"].first()
    assert best.to_dict() == points.groupby(["m", "n", "k"])["measured_s"].min().to_dict()
    assert frames["failed"]["reason"].tolist() == [record.failure for record in found.failed]


def test_ladder_table_has_the_numbers_of_the_pictures(campaign):
    records, files = campaign
    frame = pd.concat(
        [pd.read_csv(files[0].parent / f"h200-{name}.csv").set_index("kernel") for name in ("reads", "terms")], axis=1
    )
    assert frame.index.tolist() == list(KERNELS)
    assert set(frame["register_reads"]) == {2 * 4096**3}
    assert frame["global_reads"]["shared"] == 2 * 4096**3 // 32
    assert frame["shared_reads"]["naive"] == 0
    for name in KERNELS:
        of_kernel = [r for r in records if r.ok and r.point.kernel == name and r.point.problem.m == 4096]
        assert frame["measured_s"][name] == min(record.median_s for record in of_kernel)


def test_only_differing_counts_stand_on_the_page(campaign):
    records, _ = campaign
    table = record_tables.counts(findings(records, H200))
    assert table.shown_rows is not None
    assert [row[-1] for row in table.shown_rows] == [-12]
    assert len(table.shown) == 1
    assert len(table.rows) > 100
    assert table.note.startswith(f"1 of {len(table.rows)} counts differ")


def test_points_held_out_are_marked(campaign):
    found = findings(campaign[0], H200)
    (compared,) = (picture for picture in PICTURES if picture.name == "compare")
    for ax in compared.draw(found, plots.LIGHT, False).axes:
        (rings,) = (line for line in ax.lines if line.get_label() == "held out")
        assert len(np.asarray(rings.get_xdata())) == sum(held_out(point.point) for point in found.comparison.points)


def test_text_of_records_is_escaped(campaign):
    _, files = campaign
    text = files[0].read_text(encoding="utf-8")
    assert "launch &lt;refused&gt; &amp; lost" in text
    assert "<refused>" not in text


def test_the_same_records_give_the_same_bytes(tmp_path, undrawn):
    records = [synthetic.timed(POINT, H200, 1.2)]
    (_, first), (_, second) = (report(tmp_path, records) for _ in range(2))
    kept = {path.name: path.read_bytes() for path in first}
    assert {path.name: path.read_bytes() for path in second} == kept


def test_one_line_is_enough(tmp_path, undrawn):
    parsed, files = report(tmp_path, [synthetic.timed(POINT, H200, 1.25)])
    assert "Mean absolute error 20.0 % Largest absolute error 20.0 % Kendall tau, all points - " in " ".join(
        parsed.text.split()
    )
    assert "nan" not in parsed.text.lower()
    assert "h200-picks.csv" not in {path.name for path in files}  # one point leaves no choice
    assert re.search(r"\b0 of \d+ counts differ", parsed.text)
    assert {"h200-compare", "h200-terms"} <= {each["id"] for each in parsed.all("section") if "class" in each}
    frame = pd.read_csv(files[0].parent / "h200-terms.csv").set_index("kernel")
    assert frame["measured_s"].notna().to_dict() == {name: name == "naive" for name in KERNELS}


def test_only_failures_still_make_a_page(tmp_path, undrawn):
    failures = [synthetic.failed(POINT, H200, "no GPU answered"), synthetic.failed(_larger(), H200, "out of memory")]
    parsed, files = report(tmp_path, failures)
    assert "None of the 2 points has a time" in parsed.text
    assert "The only point has no time" in report(tmp_path, failures[:1])[0].text
    assert "no GPU answered" in parsed.text
    assert f"predicts at {_larger().problem}" in " ".join(parsed.text.split())
    labels = list(dict.fromkeys(each["aria-label"].partition(" ")[0] for each in parsed.all("svg")))
    assert labels[:3] == ["Reads,", "Rooflines", "Times"]
    assert "Predicted" not in labels
    assert "h200-points.csv" not in {path.name for path in files}
    assert not re.search(r"measured \d", "".join(each["aria-label"] for each in parsed.all("svg")))


def _larger() -> Point:
    return Point(Problem(512, 512, 512), "naive", default_tiling(KERNELS["naive"]))


def test_a_size_that_most_kernels_refuse_leaves_them_out(tmp_path, undrawn):
    size = 1_664_510  # 2mnk just fits 63 bits, padded to whole tiles it does not
    point = Point(Problem(size, size, size), "naive", default_tiling(KERNELS["naive"]))
    assert len(findings([synthetic.failed(point, H200, "out of memory")], H200).rungs) < len(KERNELS)
    parsed, _ = report(tmp_path, [synthetic.failed(point, H200, "out of memory")])
    assert "1,664,510" in parsed.text


def test_two_devices_make_two_chapters(tmp_path, undrawn):
    records = [synthetic.timed(POINT, H200, 1.2), synthetic.timed(POINT, T4, 1.3), synthetic.timed(_larger(), T4, 1.3)]
    parsed, files = report(tmp_path, records)
    assert [each["id"] for each in parsed.all("section") if "class" not in each] == ["h200", "t4"]
    for on, points in ((H200, 1), (T4, 2)):
        frame = pd.read_csv(files[0].parent / f"{on.name}-points.csv")
        assert frame["predicted_s"].tolist() == [p.predicted_s for p in compare(records, on).points]
        assert len(frame) == points


def test_a_device_given_leaves_the_others_out(tmp_path, undrawn):
    records = [synthetic.timed(POINT, H200, 1.2), synthetic.timed(POINT, T4, 1.3)]
    parsed, files = report(tmp_path, records, device=T4)
    assert [each["id"] for each in parsed.all("section") if "class" not in each] == ["t4"]
    assert not [path for path in files if "h200" in path.name]
    with pytest.raises(InputError, match="no record of l4; it has: h200, t4"):
        report(tmp_path, records, device=device("l4"))


def test_a_device_of_ones_own_needs_its_description(tmp_path, undrawn):
    mine = dataclasses.replace(H200, name="../My GPU")
    records = [synthetic.timed(POINT, mine, 1.2)]
    with pytest.raises(InputError, match=r"device '\.\./My GPU' is not known"):
        report(tmp_path, records)
    parsed, files = report(tmp_path, [*records, synthetic.timed(POINT, H200, 1.2)])
    assert "is not known" in parsed.text  # and the known one has its chapter
    assert "h200-points.csv" in {path.name for path in files}
    _, files = report(tmp_path, records, device=mine)
    assert {path.parent for path in files} == {tmp_path / "out"}
    assert "my-gpu-points.csv" in {path.name for path in files}


def test_damaged_lines_are_named_here_and_on_the_page_without_the_path(tmp_path, undrawn, capsys):
    source = synthetic.write(tmp_path / "records.jsonl", [synthetic.timed(POINT, H200, 1.2)])
    with open(source, "a", encoding="utf-8") as file:
        file.write('{"point": ')
    text = write_report(source, tmp_path / "out")[0].read_text(encoding="utf-8")
    assert "records.jsonl, line 2" in text
    assert str(tmp_path) not in text
    told, said = capsys.readouterr()
    assert told == ""
    assert f"warning: {source}, line 2" in said
    warnings: list[str] = []
    write_report(source, tmp_path / "out", warn=warnings.append)
    assert len(warnings) == 1
    assert capsys.readouterr().err == ""


def test_half_a_character_in_a_record_makes_a_page_all_the_same(tmp_path, undrawn):
    half = "lost \ud800 half"
    failed = synthetic.failed(POINT, H200, half)
    odd = dataclasses.replace(synthetic.timed(POINT, H200, 1.2), environment={"gpu": half})
    elsewhere = dataclasses.replace(POINT, problem=Problem(8192, 8192, 8192))
    _, files = report(tmp_path, [odd, dataclasses.replace(failed, point=elsewhere)])
    assert all(
        b"lost \\ud800 half" in path.read_bytes() for path in files if path.name in ("index.html", "h200-failed.csv")
    )


def test_a_record_without_a_prediction_is_named(tmp_path, undrawn):
    deep = KERNELS["shared"].tiling(block_m=32, block_n=32, block_k=512)  # 128 KiB, twice what a T4 has
    large = Point(Problem(512, 512, 512), "shared", deep)
    records = [synthetic.timed(POINT, T4, 1.2), dataclasses.replace(synthetic.timed(large, H200, 1.2), device="t4")]
    warnings: list[str] = []
    parsed, _ = report(tmp_path, records, warn=warnings.append)
    (warning,) = warnings
    assert "no prediction for shared 512 x 512 x 512" in warning
    assert "no prediction for shared 512 x 512 x 512" in parsed.text


@pytest.mark.parametrize("content", [None, "", "not a record\n"])
def test_no_records_is_one_line(tmp_path, content):
    source = tmp_path / "records.jsonl"
    if content is not None:
        source.write_text(content)
    with pytest.raises(InputError, match=r"records\.jsonl") as caught:
        write_report(source, tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def unwritable(folder: Path, kind: str) -> Path:
    """A folder that cannot be made or written."""
    if kind == "a file":
        (folder / "taken").write_text("")
        return folder / "taken"
    if kind == "below a file":
        (folder / "taken").write_text("")
        return folder / "taken" / "out"
    if kind == "no space for it":
        if not sys.platform.startswith("linux"):
            pytest.skip("needs /proc")
        return Path("/proc/report")
    if os.geteuid() == 0:
        pytest.skip("root writes everywhere")
    (folder / "closed").mkdir(mode=0o500)
    return folder / "closed"


@pytest.mark.parametrize("kind", ["a file", "below a file", "no space for it", "closed"])
def test_a_folder_that_cannot_be_written_is_one_line_before_all_is_drawn(tmp_path, monkeypatch, kind):
    monkeypatch.setattr(page, "_findings", lambda *_: pytest.fail("worked in vain"))
    out = unwritable(tmp_path, kind)
    source = synthetic.write(tmp_path / "records.jsonl", [synthetic.timed(POINT, H200, 1.2)])
    with pytest.raises(InputError, match="cannot write the report into") as caught:
        write_report(source, out)
    assert str(out) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
@pytest.mark.parametrize("at", ["h200-terms.svg", "index.html"])
def test_an_interrupted_run_leaves_whole_files_alone(tmp_path, undrawn, monkeypatch, failure, at):
    _, files = report(tmp_path, [synthetic.timed(POINT, H200, 1.2)])
    before = files[0].read_bytes()
    write = Path.write_bytes

    def interrupted(path: Path, content: bytes) -> int:
        if at in path.name:
            write(path, content[: len(content) // 2])
            raise failure
        return write(path, content)

    monkeypatch.setattr(Path, "write_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt if isinstance(failure, KeyboardInterrupt) else MachineError):
        report(tmp_path, [synthetic.timed(POINT, H200, 1.9)])
    assert files[0].read_bytes() == before
    assert not list((tmp_path / "out").glob(".*"))


def test_the_later_of_two_measurements_counts():
    first, second = (synthetic.timed(POINT, H200, times) for times in (1.2, 1.6))
    assert findings([first, second], H200).fastest[0].error == pytest.approx(1 / 1.6 - 1)
    failure = synthetic.failed(POINT, H200, "out of memory")
    for either in ([failure, first], [first, failure]):  # a failure takes nothing back of what was timed
        assert findings(either, H200).failed == ()
        assert len(findings(either, H200).fastest) == 1


def test_the_fastest_is_the_one_measured_so(campaign):
    records, _ = campaign
    points = compare(records, H200).points
    found = fastest(points)
    assert [point.point.problem.flop for point in found] == sorted({point.point.problem.flop for point in points})
    for point in found:
        same = [other.measured_s for other in points if other.point.problem == point.point.problem]
        assert point.measured_s == min(same)


def test_the_pick_is_the_point_that_the_model_calls_fastest(campaign):
    records, files = campaign
    found = compare(records, H200)
    frame = pd.read_csv(files[0].parent / "h200-picks.csv")
    regrets = {(of.m, of.n, of.k): pick.regret for of, pick in found.picks().items()}
    assert frame.set_index(["m", "n", "k"])["regret"].to_dict() == regrets
    assert max(regrets.values()) > 0
    for row in frame.itertuples():
        points = [p for p in found.points if p.point.problem == Problem(row.m, row.n, row.k)]
        assert row.points == len(points)
        assert row.best_measured_s == min(point.measured_s for point in points)
        (pick,) = (
            point
            for point in points
            if (point.point.kernel, point.prediction.kernel.describe(point.point.tiling)) == (row.kernel, row.tiling)
        )
        assert pick.measured_s == row.measured_s
        assert pick.predicted_s == pytest.approx(min(point.predicted_s for point in points), rel=1e-9)


def test_of_two_picks_as_fast_the_slower_counts(tmp_path, undrawn):
    fast, slow, best = (
        Point(POINT.problem, "shared", KERNELS["shared"].tiling(block_m=32, block_n=32, block_k=32, pad_a=pad))
        for pad in (8, 4, 12)
    )
    predicted = {p.predicted_s for p in compare([synthetic.timed(each, H200, 2) for each in (fast, slow)], H200).points}
    assert len(predicted) == 1
    _, files = report(tmp_path, [synthetic.timed(p, H200, t) for p, t in ((fast, 1.5), (slow, 2.5), (best, 1.25))])
    (row,) = pd.read_csv(files[0].parent / "h200-picks.csv").itertuples()
    assert row.regret == pytest.approx(1)
    assert row.tiling == "32x32x32 pad_a=4"


def test_rungs_say_which_tilings_they_have(campaign, tmp_path, undrawn):
    records, _ = campaign
    one = [synthetic.timed(POINT, H200, 1.2)]
    failure = [synthetic.failed(POINT, H200, "out of memory")]
    for of, said in (
        (records, "each kernel in its fastest measured tiling"),
        (one, "each kernel in its fastest measured tiling, or its default one where none was measured"),
        (failure, "each kernel in its default tiling"),
    ):
        found = findings(of, H200)
        assert found.tilings == said
        for picture in PICTURES:
            if picture.name in ("reads", "terms"):
                (ax,) = picture.draw(found, plots.LIGHT, False).axes
                shown = [label.get_text().replace("\n", " ") for label in ax.get_yticklabels()]
                assert shown == [f"{rung.kernel.name} {rung.described}" for rung in found.rungs]
        assert model_tables.terms(found).note == f"{said[0].upper()}{said[1:]}."


def environment(**values) -> Record:
    return dataclasses.replace(synthetic.failed(POINT, H200, "lost"), environment=values)


def test_surroundings_are_ranges_without_noise():
    found = surroundings(
        [
            environment(gpu="NVIDIA H200", driver="580.1", cuda="13.0", compiler="nvcc 13.0.88", seed=1, power_w=139.6,
                        time="2001-02-04T00:00:01+00:00", sm_clock_hz=1.98e9, temperature_c=36.0),
            environment(gpu="NVIDIA H200", driver="580.2", cuda="13.0", compiler=None, seed=2, power_w=1001.2,
                        time="2001-02-03T23:59:59+00:00", sm_clock_hz=1.965e9, temperature_c=36.0),
            environment(gpu=["?"], power_w=True, sm_clock_hz=float("nan"), temperature_c="hot", time="then"),
            environment(sm_clock_hz=10**400),
        ]
    )  # fmt: skip
    assert found == {
        "GPU": "NVIDIA H200",
        "Driver": "580.1, 580.2",
        "CUDA": "13.0",
        "Compiler": "nvcc 13.0.88",
        "SM clock": "1965 to 1980 MHz",
        "Power": "140 to 1001 W",
        "Temperature": "36 °C",
        "Measured": "2001-02-03 to 2001-02-04",
    }
    assert surroundings([environment()]) == {}


def test_the_page_has_the_surroundings_of_each_device(tmp_path, undrawn):
    parsed, _ = report(tmp_path, [synthetic.timed(POINT, H200, 1.2), synthetic.timed(POINT, T4, 1.3)])
    foot = " ".join(parsed.text.partition("From the records")[2].split())
    assert f"GPU {H200.title} Driver synthetic" in foot
    assert f"GPU {T4.title} Driver synthetic" in foot
    assert "seed" not in foot
    assert "Power 401 W" in foot
