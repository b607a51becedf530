"""The picture of a timeline: its rows, what lies in them, one scale for several."""

from __future__ import annotations

import pytest

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.pipeline.timeline import MEANINGS
from gemmsim.plots import DARK, LIGHT, figure, figures, render, timeline_picture
from gemmsim.plots.timeline import FINEST, FLIGHT, LOOKS, PASS
from gemmsim.problem import Problem
from gemmsim.scenes import timeline_of

TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}


@pytest.fixture(scope="module")
def pair():
    return [
        timeline_of(Problem(2048, 2048, 2048), kernel(name), kernel(name).tiling(**TILE), device("h200"))
        for name in ("vectorized", "double_buffer")
    ]


def test_every_kind_has_a_look():
    assert sorted(kind for look in LOOKS for kind in look.kinds) == sorted(MEANINGS)


def test_rows_are_the_warps_of_one_sub_core(pair):
    for sub_core in (0, 3):
        ax = timeline_picture(figure().subplots(), pair[0], sub_core=sub_core)
        own = [of for of, lane in pair[0].warps.items() if lane[0].sub_core == sub_core]
        assert [label.get_text() for label in ax.get_yticklabels()] == [f"block {b}, warp {w}" for b, w in own]
    assert f"{pair[0].cycles_per_iteration:,.0f} cycles an iteration of a block" in ax.get_title()


def test_bars_are_as_long_as_what_they_show(pair):
    (found, _), finest = pair, FINEST * pair[0].cycles
    ax = timeline_picture(figure().subplots(), found)
    drawn = {patch.get_label(): patch for patch in ax.patches}
    for look in LOOKS:
        lanes = [lane for lane in found.warps.values() if lane[0].sub_core == 0]
        for row, lane in enumerate(lanes):
            cycles = sum(each.cycles for each in lane if each.kind in look.kinds)
            boxes = [
                box.get_extents()
                for box in map(type(drawn[look.label].get_path()), _polygons(drawn[look.label].get_path()))
                if abs((box.get_extents().y0 + box.get_extents().y1) / 2 - row) < 0.01
            ]
            length = sum(box.width for box in boxes)
            count = sum(1 for each in lane if each.kind in look.kinds)
            assert cycles - 1e-6 <= length <= cycles + 1.01 * finest * count


def _polygons(path):
    return [polygon for polygon in path.to_polygons(closed_only=False) if len(polygon) > 2]


def test_passes_and_flights_are_marked(pair):
    ax = timeline_picture(figure().subplots(), pair[1])
    marks = {lines.get_label(): lines for lines in ax.collections}
    flights = [each for each in pair[1].flights if pair[1].warps[each.block, each.warp][0].sub_core == 0]
    assert len(marks[FLIGHT].get_segments()) == len(flights)
    assert marks[PASS].get_segments()


def test_side_by_side_has_one_scale(pair):
    for narrow in (False, True):
        drawn = figures.timeline(pair, DARK, narrow)
        assert {ax.get_xlim() for ax in drawn.axes} == {(0, max(each.cycles for each in pair))}
        assert len(drawn.legends[0].get_texts()) == len(LOOKS) + 2


def test_the_same_timeline_makes_the_same_small_file(pair):
    first, second = (render(figures.timeline(pair, LIGHT), "svg") for _ in range(2))
    assert first == second
    assert len(first) < 600_000
