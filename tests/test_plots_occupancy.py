"""The charts of occupancy: the sweep as it is, the present block, its cliffs, and axes with units."""

from __future__ import annotations

import numpy as np
import pytest

from gemmsim.device import capability
from gemmsim.occupancy.cliffs import Block, sweep, sweeps
from gemmsim.plots.occupancy import CHARTS, chart, charts
from gemmsim.plots.style import DARK, LIGHT, figure, render

CHIP = capability("8.6")
BLOCK = Block(128, 168, dynamic_shared_bytes=16_384)
"""3 blocks of 4 warps; one register more leaves 2."""


def drawn(resource, block=BLOCK, chip=CHIP):
    return chart(figure().subplots(), sweep(chip, block, resource), chip)


def called(ax, label):
    return [line for line in ax.lines if line.get_label() == label]


@pytest.mark.parametrize("resource", CHARTS)
def test_the_line_is_the_sweep(resource):
    swept = sweep(CHIP, BLOCK, resource)
    (line,) = called(drawn(resource), "resident warps")
    assert np.array_equal(line.get_xdata(), swept.values)
    assert np.array_equal(line.get_ydata(), swept.swept.warps_per_sm)
    assert line.get_drawstyle() == "steps-pre"  # what lies between two values is that of the next one


@pytest.mark.parametrize("resource", CHARTS)
def test_the_present_block_and_its_cliffs_are_marked(resource):
    swept, ax = sweep(CHIP, BLOCK, resource), drawn(resource)
    (here,) = called(ax, "this block")
    assert here.get_xydata().tolist() == [[swept.present, 12]]
    cliffs = [cliff for cliff in (swept.fewer, swept.more) if cliff]
    marked = [line.get_xydata().tolist() for line in ax.lines if line.get_marker() == "D"]
    assert marked == [[[cliff.value, cliff.warps_per_sm]] for cliff in cliffs]
    assert len(called(ax, "nearest cliff")) == (1 if cliffs else 0)


def test_cliffs_say_what_is_there():
    assert [text.get_text() for text in drawn("registers").texts] == ["128: 4 blocks", "169: 2 blocks"]
    assert "1,025: does not launch" in [text.get_text() for text in drawn("threads", Block(1024, 32)).texts]
    assert "50,177: 1 block" in [text.get_text() for text in drawn("shared_bytes", Block(128, 255)).texts]


def test_axes_have_units_and_the_whole_range():
    labels = {resource: drawn(resource).get_xlabel() for resource in CHARTS}
    assert labels == {
        "registers": "Registers a thread", "shared_bytes": "Shared memory of a block (KiB)",
        "threads": "Threads of a block",
    }  # fmt: skip
    for resource in CHARTS:
        ax = drawn(resource)
        assert ax.get_ylabel() == "Resident warps"
        (share,) = ax.child_axes
        assert share.get_ylabel() == "Occupancy (%)"
        assert ax.get_xlim() == (0, sweep(CHIP, BLOCK, resource).values[-1])
        assert ax.get_yticks()[-1] == CHIP.max_warps_per_sm == 48
    ticks = [label.get_text() for label in drawn("shared_bytes").get_xticklabels()]
    assert ticks == [str(kib) for kib in range(0, 100, 16)]
    assert len(drawn("shared_bytes", chip=capability("9.0")).get_xticks()) <= 17


def test_a_block_beyond_the_axis_stands_at_its_end():
    (here,) = called(drawn("threads", Block(5000, 32)), "this block")
    assert here.get_xydata().tolist() == [[1025, 0]]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_one_figure_with_three_charts_and_one_legend(theme):
    title = "a long title " * 12
    whole = charts(figure(7.2, 9.0, theme), sweeps(CHIP, BLOCK), CHIP, title, theme)
    assert len(whole.axes) == len(CHARTS) == 3
    (legend,) = whole.legends
    assert [text.get_text() for text in legend.get_texts()] == ["resident warps", "nearest cliff", "this block"]
    assert max(map(len, whole.get_suptitle().split("\n"))) <= 80
    assert render(whole, "png").startswith(b"\x89PNG")


def test_where_there_is_no_cliff_none_is_marked():
    ax = drawn("registers", Block(1024, 16), capability("7.5"))
    assert called(ax, "nearest cliff") or not ax.texts
    assert [text.get_text() for text in ax.texts] == ["65: does not launch"]
    barriers = sweep(CHIP, BLOCK, "barriers")
    assert (barriers.fewer, barriers.more) == (None, None)
