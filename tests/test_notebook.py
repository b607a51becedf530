"""Results in Jupyter: every noun that people get back shows its numbers with units, and text is escaped."""

from __future__ import annotations

import xml.etree.ElementTree
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import synthetic

from gemmsim.compare import compare
from gemmsim.device import device
from gemmsim.explain import explain
from gemmsim.kernels import KERNELS
from gemmsim.ladder import default_tiling
from gemmsim.notebook import as_table
from gemmsim.occupancy import occupancy
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.traffic import traffic
from gemmsim.units import duration, percent, si

H200 = device("h200")
KERNEL = KERNELS["double_buffer"]
LAUNCH = Problem(4096, 4096, 4096), KERNEL, default_tiling(KERNEL)


def shown(noun) -> dict[str, str]:
    """{name: text} of the table that a notebook shows."""
    table = xml.etree.ElementTree.fromstring(noun._repr_html_())
    rows = [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]
    assert all(text.strip() for row in rows for text in row)
    return dict(rows)


def test_a_prediction_shows_time_terms_and_rate():
    found = predict(*LAUNCH, H200)
    table = shown(found)
    assert table["time s"] == duration(found.time_s)
    assert table["flop per s"] == si(found.flop_per_s, "FLOP/s")
    assert table["bound by"] == found.bound_by
    assert table["device"] == "NVIDIA H200"
    assert table["kernel"] == "double_buffer"
    for name, seconds in found.terms.items():
        assert table[f"terms: {name.replace('_', ' ')}"] == duration(seconds)


def test_many_predictions_at_once_show_their_shape():
    found = predict(Problem(np.array([512, 1024, 2048]), 512, 512), KERNEL, LAUNCH[2], H200)
    assert shown(found)["time s"] == "array of 3"


def test_occupancy_traffic_and_decomposition():
    table = shown(occupancy(H200.capability, 256, 128))
    assert table["blocks per sm"] == "2"
    assert table["occupancy"] == percent(0.25)
    assert table["limits: shared memory"].isdigit()
    assert table["limits: registers"] == "2"
    counted = traffic(*LAUNCH)
    assert shown(counted)["ffma"] == f"{counted.ffma:,}"
    assert shown(counted)["bytes: compulsory"]
    taken = explain(*LAUNCH)
    assert shown(taken)["blocks"] == f"{taken.blocks:,}"
    assert shown(taken)["block grid"] == "32, 32, 512"


def test_a_comparison_shows_its_errors_not_all_its_points():
    found = compare(synthetic.campaign(), H200)
    table = shown(found)
    assert table["points"] == f"{len(found.points)} in all"
    assert table["mape"] == percent(found.mape)
    assert len("".join(table.values())) < 4000


@dataclass(frozen=True)
class Noun:
    """Whatever can be in one."""

    text: str = "<b> & 'more'"
    none: float | None = None
    nothing: float = float("nan")
    no_limit: int = 2**31 - 1
    moved_bytes: int = 1_234_567
    flag: bool = True
    empty: tuple[int, ...] = ()

    _repr_html_ = as_table

    @property
    def undefined(self) -> float:
        """What cannot be computed."""
        return 1 / 0

    @cached_property
    def error(self) -> float:
        """A share."""
        return -0.125


def test_text_is_escaped_and_what_cannot_be_computed_left_out():
    assert "<b>" not in Noun()._repr_html_()
    assert shown(Noun()) == {
        "text": "<b> & 'more'", "nothing": "-", "no limit": "any", "moved bytes": "1.23 MB", "flag": "yes",
        "empty": "none", "error": "-12.5 %",
    }  # fmt: skip


def test_a_comparison_without_points_is_shown_too():
    found = compare([synthetic.campaign()[0]], H200)
    assert shown(found)["kendall tau"] == "-"
