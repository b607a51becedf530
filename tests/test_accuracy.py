"""The report of errors: its tables against the comparison, and that what is shipped is what it would write."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from campaigns import accuracy
from campaigns.accuracy import DOCUMENT, Judged, document, factors, groups, judged, records, residuals, table
from gemmsim import routes
from gemmsim.calibration import calibration
from gemmsim.compare import ComparedPoint, Comparison, error_bars
from gemmsim.compare.error_bars import REGIMES, as_toml, read_factors
from gemmsim.device import device
from gemmsim.held_out import held_out
from gemmsim.kernels import KERNELS
from gemmsim.record_files import read_points, read_records, shipped_records
from gemmsim.simulated_times import read_times

H200 = device("h200")
SHIPPED = pytest.mark.skipif(not read_times(), reason="simulated times are of other code: python -m campaigns.accuracy")


@pytest.fixture(scope="module", autouse=True)
def judged_once():
    """All records are judged once with the GPU's own numbers, and once without: it takes seconds."""
    known: dict[bool, dict[str, list[Judged]]] = {}

    def once(on):
        own = calibration(on).own
        if own not in known:
            known[own] = judged(on)
        return known[own]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "judged", once)
        yield


@pytest.fixture(scope="module")
def points(judged_once) -> list[Judged]:
    """The points by the analytic route, which takes little time where simulated times are not known."""
    if read_times():
        return accuracy.judged(H200)["analytic"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "by_route", lambda closed, _: closed)
        return judged(H200)["analytic"]


def test_every_record_is_judged_once():
    found = records(H200, own=True)
    keys = [record.point.key for _, record in found]
    assert len(keys) == len(set(keys)) > 1600
    assert {campaign for campaign, _ in found} <= set(accuracy.CAMPAIGNS)
    order = list(accuracy.CAMPAIGNS)
    assert [order.index(campaign) for campaign, _ in found] == sorted(order.index(campaign) for campaign, _ in found)
    assert {campaign for campaign, _ in records(H200, own=False)} == {accuracy.FRESH}


DRAWN = shipped_records(accuracy.FRESH)


@pytest.fixture(scope="module")
def elsewhere() -> set[str]:
    """The keys of what stands in other records than the fresh ones, whatever they are of."""
    others = set(DRAWN.parent.glob("h200*.jsonl")) - {DRAWN}
    return {record.point.key for file in others for record in read_records(file)[0]}


def test_fresh_points_took_part_in_nothing_else(elsewhere):
    points = {record.point.key: record.point for record in read_records(DRAWN)[0]}
    seen = {point.key for point in read_points(accuracy.SEEN)}
    used = {key for key, point in points.items() if held_out(point)} | seen | elsewhere
    assert accuracy.fresh() == points.keys() - used
    assert {points[key].kernel for key in accuracy.fresh()} == set(KERNELS)


def test_a_point_of_another_record_is_not_fresh_though_nobody_lists_it(elsewhere, monkeypatch, tmp_path):
    """All but one are left out of the list of those that are seen: what is not in other records is taken then."""
    seen = read_points(accuracy.SEEN)
    file = tmp_path / "seen.jsonl"
    file.write_text(json.dumps(seen[0].to_dict()))
    monkeypatch.setattr(accuracy, "SEEN", file)
    assert elsewhere & {point.key for point in seen}
    taken = accuracy.fresh.__wrapped__() - accuracy.fresh()
    assert taken == {point.key for point in seen[1:] if not held_out(point)} - elsewhere


@SHIPPED
def test_the_shipped_weights_are_those_of_the_records():
    assert accuracy.weights(H200) == routes.weights()


def test_weights_are_of_fresh_points(points):
    """A route whose errors are half as large has four times the weight of the other; what other points say counts for
    nothing."""
    some = [each for each in points if each.kernel == "async"]
    assert {each.fresh for each in some} == {True, False}
    faked = {
        name: [_off(each, by if each.fresh else 1.5 / by) for each in some]
        for name, by in (("simulated", 1.1), ("analytic", 1.1**2))
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accuracy, "judged", lambda _: faked)
        assert accuracy.weights(H200) == {"async": 0.8}


def _off(each: Judged, by: float) -> Judged:
    measured_s = each.point.predicted_s / by
    measured = replace(each.point.record, samples_s=(measured_s,), median_s=measured_s)
    return replace(each, point=ComparedPoint(measured, each.point.prediction))


def test_groups_part_the_points(points):
    titles = dict(groups(points))
    assert titles["all"] == points
    assert set(KERNELS) | set(REGIMES) <= titles.keys()
    for names in (KERNELS, REGIMES):
        assert sum(len(titles[name]) for name in names) == len(points)


def test_a_row_says_what_the_comparison_says(points):
    row = next(line for line in table(H200, points) if line.startswith("| naive |"))
    found = Comparison(H200, tuple(each.point for each in points if each.kernel == "naive"), {}, ())
    cells = [cell.strip() for cell in row.strip("|").split("|")]
    assert cells[1:3] == [str(len(found.points)), f"{100 * found.mape:.1f} %"]
    assert cells[5] == f"{found.kendall_tau:.3f}"


def test_error_bars_are_fitted_to_fresh_points(points):
    fresh = {each.point.point.key: each for each in points if each.point.point.key in accuracy.fresh()}
    assert fresh.keys() == accuracy.fresh()
    assert list(residuals(points)) == [(each.kernel, each.regime, each.ratio) for each in fresh.values()]


@SHIPPED
def test_the_shipped_error_bars_are_those_of_the_records():
    assert as_toml(read_factors(), "") == as_toml(factors(H200), "")


@SHIPPED
def test_the_document_is_what_the_campaign_writes():
    assert DOCUMENT.read_text(encoding="utf-8") == "\n".join(document(H200)) + "\n"


@SHIPPED
def test_times_held_out_lie_inside_their_error_bars():
    text = DOCUMENT.read_text(encoding="utf-8")
    rows = re.findall(r"^\| all \|.*\| ([0-9.]+) % \|$", text, re.MULTILINE)
    assert float(rows[0]) >= 100 * error_bars.PROMISED
