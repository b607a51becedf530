"""What a better order is worth: the share of it that hardware passes on, and what else bounds a launch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.predict import predict
from gemmsim.rearrange.gain import LOOP, PASSED_ON, gain
from gemmsim.records import Point

ORDERS = Path(__file__).parent.parent / "campaigns" / "measured" / "orders.jsonl"
ON = device("h200")


def measured():
    for line in ORDERS.read_text().splitlines():
        row = json.loads(line)
        yield row, Point.from_dict(row["point"])


def test_the_share_is_the_fit_to_the_orders_measured():
    saved, gained = [], []
    for row, point in measured():
        known = predict(point.problem, kernel(point.kernel), point.tiling, ON, row["registers_per_thread"])
        for order in row["orders"]:
            saved.append(float(known.terms["ffma"]) * (row["ports"] - order["ports"]))
            gained.append(row["median_s"] - order["median_s"])
    fit = sum(one * other for one, other in zip(saved, gained, strict=True)) / sum(each**2 for each in saved)
    assert len(saved) > 50
    assert pytest.approx(fit, abs=0.005) == PASSED_ON


@pytest.mark.parametrize(("after", "bound_by"), [(1.1, LOOP), (-1e6, "shared_memory")])
def test_a_launch_gets_shorter_by_that_share_unless_something_else_bounds_it(after, bound_by):
    row, point = next(measured())
    named = kernel(point.kernel)
    before = row["ports"]
    found = SimpleNamespace(cost_before=SimpleNamespace(ports=before), cost_after=SimpleNamespace(ports=after))
    known = predict(point.problem, named, point.tiling, ON, row["registers_per_thread"])
    worth = gain(found, point.problem, named, point.tiling, ON, row["registers_per_thread"])
    assert worth.before_s == float(known.time_s)
    assert worth.bound_by == bound_by
    if bound_by == LOOP:
        assert worth.before_s - worth.after_s == pytest.approx(
            PASSED_ON * (before - after) * float(known.terms["ffma"])
        )
    else:
        assert worth.after_s == float(known.terms[bound_by])
