"""The picture of a thread tile: every FFMA in its cell, banks by color, waits by a heavy edge."""

from __future__ import annotations

import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle

from gemmsim.plots.style import DARK, LIGHT, figure, render
from gemmsim.plots.tile_order import COLORS, tile_order
from gemmsim.registers.reads import simulate
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import Runs, ThreadTile, allocate, placement
from gemmsim.registers.tile_order import ORDERS, Cell, Plan, waits


def drawn(order: str, arch: str = "sm_90", theme=LIGHT) -> tuple[Axes, Plan, dict[Cell, float]]:
    file, tile, runs = register_file(arch), ThreadTile(4, 3), Runs.widest(ThreadTile(4, 3))
    plan = Plan(allocate(placement(tile, "consecutive", runs, file.banks), runs, file.banks), ORDERS[order](4, 3))
    stream = plan.stream(file)
    (report,) = simulate([stream], file)
    ax = figure(theme=theme).subplots()
    assert tile_order(ax, plan, stream, report, file.banks, "A tile", theme) is ax
    return ax, plan, waits(plan, report)


def squares(ax: Axes) -> list[Rectangle]:
    return [patch for patch in ax.patches if isinstance(patch, Rectangle) and patch.get_width() > 0]


@pytest.mark.parametrize("arch", ["sm_90", "sm_52"])
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_cells_have_number_register_and_color(arch, theme):
    ax, plan, waiting = drawn("column", arch, theme)
    banks = register_file(arch).banks
    texts = [text.get_text() for text in ax.texts]
    for number, (i, j) in enumerate(plan.order):
        register = plan.allocation.c[i][j]
        assert {str(number), f"R{register}"} <= set(texts)
        fills = [
            each for each in squares(ax) if each.get_fill() and each.contains_point(ax.transData.transform((j, i)))
        ]
        assert [to_hex(each.get_facecolor()) for each in fills] == [theme.series[COLORS[register % banks]]]
    assert sum(text.startswith("R") for text in texts) == len(plan.allocation.registers)
    edges = [each for each in squares(ax) if not each.get_fill()]
    assert len(edges) == len(waiting)
    assert waiting


def test_legend_axes_and_path():
    ax, plan, _ = drawn("serpentine")
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["bank 0 (e)", "bank 1 (o)", "waits for a bank"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["b0", "b1", "b2"]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a0", "a1", "a2", "a3"]
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert [(*arrow.xyann,) for arrow in arrows] == [(j, i) for i, j in plan.order[:-1]]
    assert ax.get_title() == "A tile"


@pytest.mark.parametrize("form", ["svg", "png"])
def test_the_same_bytes_each_time(form):
    pictures = [render(drawn("blocks2x2")[0].figure, form) for _ in range(2)]
    assert pictures[0] == pictures[1]
