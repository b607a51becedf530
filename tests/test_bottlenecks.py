"""What bounds launches, beside the unit that a profiler found busiest on an H200."""

from __future__ import annotations

import pytest

from gemmsim.device import DATA


def test_an_h200s_profiler_says_the_same_of_most():
    campaign = pytest.importorskip("campaigns.bottlenecks", reason="no campaigns beside the tests")
    lines = (DATA / "records" / "bottlenecks_h200.jsonl").read_text(encoding="utf-8").splitlines()
    found = campaign.rows(lines)
    assert len(found) == 28
    assert {profiler for _, _, profiler, _ in found} == {"issue", "data_stage", "latency"}
    assert sum(model == profiler for _, model, profiler, _ in found) == 23
