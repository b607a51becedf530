"""Every figure on the page is what commands print: its data against their documents, its tables against the data."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
import synthetic

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.report import page
from gemmsim.report.data import document
from gemmsim.report.findings import findings
from gemmsim.report.page import write_report


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return synthetic.write(tmp_path_factory.mktemp("source") / "records.jsonl", synthetic.campaign())


@pytest.fixture(scope="module")
def text(source, tmp_path_factory) -> str:
    with pytest.MonkeyPatch.context() as patched:
        nothing = page.Drawn("nothing", (), "n.svg", "n.png")
        patched.setattr(page, "_drawn", lambda *_: (nothing, {}))
        return write_report(source, tmp_path_factory.mktemp("page"))[0].read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    assert "<" not in found[1]
    return json.loads(found[1])["h200"]


def options(launch) -> str:
    """The options that ask for this launch."""
    tiling = dict(launch["tiling"])
    of = kernel(launch["kernel"])
    words = [
        "--kernel",
        of.name,
        "--tile",
        "x".join(str(tiling.pop(f"block_{axis}", "")) for axis in "mnk").rstrip("x"),
    ]
    for option in ("thread", "warp"):
        if f"{option}_m" in tiling:
            words += [f"--{option}", f"{tiling.pop(f'{option}_m')}x{tiling.pop(f'{option}_n')}"]
    words += [word for name, value in tiling.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return " ".join(words)


def sizes(problem) -> str:
    return f"{problem['m']} {problem['n']} {problem['k']}"


def without(found, *names):
    return {name: value for name, value in found.items() if name not in ("defaults", "warnings", *names)}


def test_the_comparison_is_that_of_compare(data, answer, source):
    assert without(data["compare"]) == without(answer("compare", str(source)))


def test_the_device_is_that_of_devices(data, answer):
    (found,) = answer("devices h200")["devices"]
    assert data["device"] == found


def test_every_rung_is_that_of_predict_and_traffic(data, answer):
    assert len(data["rungs"]) == len({rung["predict"]["kernel"] for rung in data["rungs"]}) >= 7
    for rung in data["rungs"]:
        found = rung["predict"]
        asked = f"{sizes(found['problem'])} {options(found)}"
        assert without(found) == without(answer(f"predict {asked}"))
        assert without(rung["traffic"]) == without(answer(f"traffic {asked}"))


def test_the_banks_are_those_of_banks(data, answer):
    assert set(data["banks"]) == {"most conflicts", "fewest conflicts"}
    for found in data["banks"].values():
        problem = "x".join(sizes(found["problem"]).split())
        printed = answer(f"banks {options(found)} --problem {problem}")
        assert found["accesses"] == [
            {name: value for name, value in access.items() if name != "reason"} for access in printed["accesses"]
        ]


def test_the_registers_are_those_of_registers(data, answer):
    found = data["registers"]
    printed = answer(f"registers --thread {found['thread_m']}x{found['thread_n']}")
    for name in ("cycles_per_ffma", "peak_fraction", "reuse_hits", "gain"):
        assert found[name] == printed[name]
    for name in ("cycles_per_ffma", "peak_fraction", "reuse_hits"):
        assert found["best"][name] == printed["best"][name]


def test_the_occupancy_is_that_of_occupancy(data, answer):
    found = data["occupancy"]
    block = found["block"]
    printed = answer(
        f"occupancy --cc 9.0 --threads {block['threads']} --registers {block['registers']}"
        f" --dynamic-shared {block['dynamic_shared_bytes']}"
    )
    for name in found:
        assert found[name] == printed[name], name


def table(text: str, title: str) -> list[dict[str, str]]:
    """The rows of a table of the page: what each cell is sorted by, or says where that is text."""
    part = text.partition(f"<h4>{title}")[2].partition("</table>")[0]
    heads = re.findall(r"<th[^>]*>(.*?)</th>", part)
    rows = re.findall(r"<tr>\n(<td.*?)</tr>", part, re.DOTALL)
    cells = (re.findall(r"<td(?: data-value=(\S*?)| class=text)?>(.*?)</td>", row) for row in rows)
    return [
        dict(zip(heads, (value or unescape(said) for value, said in of_row), strict=True)) for of_row in cells
    ]  # fmt: skip


def test_the_tables_have_the_numbers_of_the_data(text, data):
    points = table(text, "Points with a time")
    assert len(points) == len(data["compare"]["points"])
    for row, point in zip(points, data["compare"]["points"], strict=True):
        assert [int(row[name]) for name in "mnk"] == [point["problem"][name] for name in "mnk"]
        assert row["Kernel"] == point["kernel"]
        values = [float(row[name]) for name in ("Predicted", "Measured", "Error")]
        assert values == [point[name] for name in ("predicted_s", "measured_s", "error")]
        assert row["Bound by"] == point["bound_by"].replace("_", " ")
    terms = table(text, "Time of each resource")
    for row, rung in zip(terms, data["rungs"], strict=True):
        assert float(row["Predicted"]) == rung["predict"]["time_s"]
        assert float(row["Shared memory"]) == rung["predict"]["terms"]["shared_memory"]
    for row, rung in zip(table(text, "Elements read"), data["rungs"], strict=True):
        assert int(row["Global reads"]) == rung["traffic"]["reads"]["global"]
        assert int(row["Shared reads"]) == rung["traffic"]["reads"]["shared"]
    counters = {row["Counter"]: [int(row["Equal"]), int(row["Points"])] for row in table(text, "Agreement of each")}
    assert counters == {name: [of["equal"], of["total"]] for name, of in data["compare"]["counters"].items()}
    kernels = {row["Kernel"]: float(row["Mean abs. error"]) for row in table(text, "Error of the predicted time")}
    assert kernels == {
        **{name: part["mape"] for name, part in data["compare"]["by_kernel"].items()}, "all": data["compare"]["mape"]
    }  # fmt: skip


def test_a_record_that_ends_a_script_does_not(tmp_path, monkeypatch):
    from dataclasses import replace

    on = device("h200")
    record = replace(synthetic.campaign()[0], environment={"gpu": "</script><b>"})
    failed = synthetic.failed(synthetic.campaign()[1].point, on, "</script><i>")
    as_text = json.dumps(document(findings([record, failed], on)), default=str)
    assert "</script>" in as_text  # so it would
    monkeypatch.setattr(page, "_drawn", lambda *_: (page.Drawn("nothing", (), "n.svg", "n.png"), {}))
    written = write_report(synthetic.write(tmp_path / "r.jsonl", [record, failed]), tmp_path / "out")[0]
    text = written.read_text(encoding="utf-8")
    assert text.count("</script>") == 2
    assert "<i>" not in text
