"""Pictures: labels with units, legends with every series, axes that compare, colors that can be told apart."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import matplotlib.image
import numpy as np
import pytest
import synthetic
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from gemmsim import plots
from gemmsim.compare import compare
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.ladder import default_tiling, ladder
from gemmsim.plots import DARK, LIGHT, RooflinePoint
from gemmsim.plots.style import points_at, styles
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.records import Point
from gemmsim.roofline import bandwidths
from gemmsim.traffic import reads

H200 = device("h200")
PROBLEM = Problem(4096, 4096, 4096)
READS = {kernel.name: reads(PROBLEM, kernel, tiling) for kernel, tiling in ladder()}
PREDICTIONS = {kernel.name: predict(PROBLEM, kernel, tiling, H200) for kernel, tiling in ladder()}
MEASURED_S = {name: 1.2 * float(prediction.time_s) for name, prediction in PREDICTIONS.items() if name != "shared"}
POINTS = [
    RooflinePoint(name, 2.0 ** (i - 1), 3e12 * (i + 1), m) for i, name in enumerate(KERNELS) for m in (False, True)
]


@pytest.fixture(scope="module")
def comparison():
    return compare(synthetic.campaign(), H200)


def axes(theme=LIGHT) -> Axes:
    return plots.figure(theme=theme).subplots()


def xy(line: Line2D) -> np.ndarray:
    """The points of a line, one a row."""
    return np.asarray(line.get_xydata(), float)


def called(ax: Axes, label: str) -> Line2D:
    """The one line of that label."""
    (line,) = (line for line in ax.lines if line.get_label() == label)
    return line


def outside(ax: Axes) -> list[Line2D]:
    """Markers that stand at the border for a point beyond it."""
    return [line for line in ax.lines if line.get_gid() == "outside"]


def rendered(ax: Axes, form: str) -> bytes:
    """The picture as bytes."""
    assert isinstance(ax.figure, Figure)
    return plots.render(ax.figure, form)


def legend_of(ax: Axes) -> list[str]:
    legend = ax.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def drawings(comparison):
    return {
        "reads": (lambda ax: plots.reads_per_level(ax, READS, PROBLEM), ("x",), ("(elements)", "")),
        "roofline": (lambda ax: plots.roofline(ax, H200, POINTS), ("x", "y"), ("FLOP/byte of L2", "(TFLOP/s)")),
        "times": (lambda ax: plots.predicted_against_measured(ax, comparison), ("x", "y"), ("(ms)", "(ms)")),
        "errors": (lambda ax: plots.errors(ax, comparison), ("x",), ("(ms)", "(%)")),
        "terms": (lambda ax: plots.time_terms(ax, PREDICTIONS, MEASURED_S), ("x",), ("(ms)", "")),
    }


@pytest.mark.parametrize("name", ["reads", "roofline", "times", "errors", "terms"])
def test_axes_have_units_scales_and_a_complete_legend(comparison, name):
    draw, log, units = drawings(comparison)[name]
    ax = axes()
    assert draw(ax) is ax
    assert ax.get_xlabel().endswith(units[0])
    assert ax.get_ylabel().endswith(units[1])
    assert {axis: getattr(ax, f"get_{axis}scale")() for axis in "xy"} == {
        axis: "log" if axis in log else "linear" for axis in "xy"
    }
    assert ax.get_title()
    drawn = {artist.get_label() for artist in (*ax.lines, *ax.collections, *ax.patches, *ax.containers)}
    named = {str(label) for label in drawn if label and not str(label).startswith("_")}
    assert set(legend_of(ax)) == named
    assert len(legend_of(ax)) >= 4


def test_reads_are_labelled_with_their_values_and_zero_is_said():
    ax = plots.reads_per_level(axes(), READS, PROBLEM)
    texts = [text.get_text() for text in ax.texts]
    # the textbook's formulas at 4096^3: 2mnk, mnk(1/32 + 1/32), mnk(1/128 + 1/128), mnk(1/8 + 1/8)
    assert texts.count("137 G") == 9
    assert texts.count("4.29 G") == 1
    assert texts.count("1.07 G") == 4  # and warp_tiled
    assert texts.count("17.2 G") == 3
    # async: its tile is 128 x 256, and a thread's 16 x 8
    assert texts.count("805 M") == 1
    assert texts.count("12.9 G") == 2
    assert texts.count("0") == 1
    lengths = sorted(bar.get_width() for bar in ax.patches if isinstance(bar, Rectangle))
    assert lengths[0] == 0
    assert lengths[-1] == 2 * 4096**3
    left, right = ax.get_xlim()
    assert left < PROBLEM.compulsory_elements < 2 * 4096**3 < right


def test_roofs_are_those_of_the_device_and_pass_every_edge():
    ax = plots.roofline(axes(), H200, POINTS)
    (left, right), (_, top) = ax.get_xlim(), ax.get_ylim()
    roofs = {str(line.get_label()): xy(line) for line in ax.lines if "TB/s" in str(line.get_label())}
    assert len(roofs) == 4
    for (label, ends), rate in zip(roofs.items(), bandwidths(H200).values(), strict=True):
        assert ends[:, 0].tolist() == [left, right]
        assert ends[:, 1] / ends[:, 0] == pytest.approx([rate / 1e12] * 2), label
        assert ends[-1, 1] > top  # the slope leaves through the top: it passes every point below
    (peak,) = (line for line in ax.lines if str(line.get_label()).startswith("FP32 peak"))
    assert set(np.asarray(peak.get_ydata())) == {H200.fp32_flop_per_s / 1e12}
    assert xy(called(ax, "ridge points"))[:, 0] == pytest.approx(
        [H200.fp32_flop_per_s / rate for rate in bandwidths(H200).values()]
    )


def test_pictures_of_one_machine_have_the_same_axes_whatever_the_points():
    limits = {
        (ax.get_xlim(), ax.get_ylim())
        for points in ([], POINTS, [RooflinePoint("naive", 1e9, 1e20, True)])
        for ax in (plots.roofline(axes(), H200, points),)
    }
    assert len(limits) == 1
    other = plots.roofline(axes(), device("t4"), [])
    assert (other.get_xlim(), other.get_ylim()) not in limits


@pytest.mark.parametrize(
    ("flop_per_byte", "flop_per_s"), [(1e6, 1e13), (1e-4, 1e13), (10, 1e15), (10, 1e6), (1e9, 1e20)]
)
def test_a_point_outside_stands_at_the_border_and_says_where_it_belongs(flop_per_byte, flop_per_s):
    ax = plots.roofline(axes(), H200, [RooflinePoint("naive", flop_per_byte, flop_per_s, True)])
    (flag,) = outside(ax)
    ((x, y),) = xy(flag)
    assert x in (*ax.get_xlim(), flop_per_byte)
    assert y in (*ax.get_ylim(), flop_per_s / 1e12)
    assert (x, y) != (flop_per_byte, flop_per_s / 1e12)
    (text,) = (text for text in ax.texts if "FLOP/byte" in text.get_text())
    assert isinstance(text, Annotation)
    assert text.arrow_patch is not None
    assert text.get_text() == f"{flop_per_byte:.4g} FLOP/byte, {flop_per_s / 1e12:.4g} TFLOP/s"
    assert "naive, measured" in legend_of(ax)


def test_points_inside_are_where_they_belong_hollow_where_predicted():
    ax = plots.roofline(axes(), H200, POINTS)
    assert not outside(ax)
    for point in POINTS:
        line = called(ax, f"{point.kernel}, {'measured' if point.measured else 'predicted'}")
        assert xy(line).tolist() == [[point.flop_per_byte, point.flop_per_s / 1e12]]
        assert (line.get_markerfacecolor() == "none") is not point.measured


def test_bands_and_points_of_the_comparison(comparison):
    ax = plots.predicted_against_measured(axes(), comparison)
    assert ax.get_xlim() == ax.get_ylim()
    drawn = np.concatenate([xy(line) for line in ax.lines if str(line.get_label()) in KERNELS])
    expected = [(1e3 * point.measured_s, 1e3 * point.predicted_s) for point in comparison.points]
    assert np.array(sorted(map(tuple, drawn))) == pytest.approx(np.array(sorted(expected)))
    bands = {str(band.get_label()): np.asarray(band.get_paths()[0].vertices) for band in ax.collections}
    for label, share in (("within 5 %", 0.05), ("within 10 %", 0.1)):
        ratios = bands[label][:, 1] / bands[label][:, 0]
        assert (ratios.min(), ratios.max()) == pytest.approx((1 - share, 1 + share))


def test_a_prediction_without_end_is_flagged_not_dropped(comparison):
    point = comparison.points[3]
    unfit = replace(point.prediction, occupancy=replace(point.prediction.occupancy, blocks_per_sm=0))
    endless = replace(point, prediction=unfit)
    assert endless.predicted_s == np.inf
    for draw in (plots.predicted_against_measured, plots.errors):
        ax = draw(axes(), replace(comparison, points=(*comparison.points[:3], endless)))
        (flag,) = outside(ax)
        assert xy(flag)[0, 1] == ax.get_ylim()[1]


def test_terms_and_measured_times(comparison):
    ax = plots.time_terms(axes(), PREDICTIONS, MEASURED_S)
    for name in next(iter(PREDICTIONS.values())).terms:
        assert xy(called(ax, name.replace("_", " ")))[:, 0] == pytest.approx(
            [1e3 * prediction.terms[name] for prediction in PREDICTIONS.values()]
        )
    predicted_s = [float(prediction.time_s) for prediction in PREDICTIONS.values()]
    for label, times_s in (("measured", [*MEASURED_S.values()]), ("predicted", predicted_s)):
        (lines,) = (lines for lines in ax.collections if lines.get_label() == label)
        places = [np.asarray(path.vertices)[0, 0] for path in lines.get_paths()]
        assert places == pytest.approx([1e3 * time_s for time_s in times_s])
    assert [label.get_text() for label in ax.get_yticklabels()] == list(PREDICTIONS)
    assert "measured" not in legend_of(plots.time_terms(axes(), PREDICTIONS, {}))


@pytest.mark.parametrize("stacked", [False, True])
def test_panels_have_the_same_axes_and_one_legend(stacked):
    points = {"dram": POINTS[:4], "l2": POINTS, "shared_memory": []}
    drawn = plots.rooflines(
        plots.figure(5, 12) if stacked else plots.figure(), H200, points, "a title", stacked=stacked
    )
    assert len({(ax.get_xlim(), ax.get_ylim()) for ax in drawn.axes}) == 1
    drawn.draw_without_rendering()
    corners = np.array([ax.get_position().p0 for ax in drawn.axes])
    assert [len(set(of_axis)) for of_axis in corners.T.round(6)] == ([1, 3] if stacked else [2, 2])
    (legend,) = drawn.legends
    assert drawn.bbox.x0 <= legend.get_window_extent().x0
    assert legend.get_window_extent().x1 <= drawn.bbox.x1
    texts = [text.get_text() for text in drawn.legends[0].get_texts()]
    assert len(texts) == len(set(texts)) == 4 + 1 + 1 + len(POINTS)


def test_a_short_axis_has_labels_between_powers_of_ten():
    record = synthetic.timed(Point(PROBLEM, "naive", default_tiling(KERNELS["naive"])), H200, 1.3)
    ax = plots.predicted_against_measured(axes(), compare([record], H200))
    rendered(ax, "svg")
    shown = [label.get_text() for label in ax.get_xticklabels() + ax.get_xticklabels(minor=True) if label.get_text()]
    assert len(shown) >= 2


def test_pictures_are_the_same_bytes_every_time():
    for form in plots.FORMS:
        first, again = (rendered(plots.time_terms(axes(), PREDICTIONS, MEASURED_S), form) for _ in range(2))
        assert first == again
        assert not re.search(rb"20\d\d-\d\d|D:20\d\d|matplotlib\.org|Matplotlib v", first)


def test_drawing_leaves_no_global_state():
    import sys

    import matplotlib

    before = dict(matplotlib.rcParams)
    rendered(plots.reads_per_level(axes(), READS, PROBLEM), "svg")
    assert dict(matplotlib.rcParams) == before
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def pixels(ax: Axes, color: str) -> int:
    """Pixels of a picture that have, nearly, that color."""
    picture = matplotlib.image.imread(io.BytesIO(rendered(ax, "png")))[..., :3]
    wanted = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return int((np.abs(picture - wanted).max(axis=-1) < 0.04).sum())


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
@pytest.mark.parametrize("name", KERNELS)
def test_a_predicted_point_over_a_measured_one_hides_nothing(theme, name):
    ax = plots.figure(1, 1, theme).subplots()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    ax.set_axis_off()
    style = styles([name], theme)[name]
    points_at(ax, [(0.5, 0.5)], theme, style=style, label="measured", where="", filled=True)
    filled = pixels(ax, style.color)
    points_at(ax, [(0.5, 0.5)], theme, style=style, label="predicted", where="", filled=False)
    assert pixels(ax, style.color) >= filled >= 60


def test_points_held_out_have_a_ring(comparison):
    apart = {point.point.key for point in comparison.points[::7]}
    for draw in (plots.predicted_against_measured, plots.errors):
        ax = draw(axes(), comparison, held_out=lambda point: point.key in apart)
        assert len(xy(called(ax, "held out"))) == len(apart)
        assert "held out" in legend_of(ax)
        assert "held out" not in legend_of(draw(axes(), comparison))


@pytest.mark.parametrize("level", bandwidths(H200))
def test_the_ridge_is_told_where_no_point_is(level):
    ax = plots.roofline(axes(), H200, POINTS, level)
    assert f"ridge at {H200.fp32_flop_per_s / bandwidths(H200)[level]:.3g} FLOP/byte" in ax.get_title()
    assert not ax.texts


def test_labels_of_several_lines_and_the_legend_keep_apart():
    lines = {f"{name}\n128x128x8/8x8\npad_a=4": of for name, of in READS.items()}
    for ax in (
        plots.reads_per_level(axes(), lines, PROBLEM),
        plots.time_terms(axes(), {f"{name}\n8x8": of for name, of in PREDICTIONS.items()}, {}),
    ):
        assert isinstance(ax.figure, Figure)
        ax.figure.draw_without_rendering()
        legend = ax.get_legend()
        assert legend is not None
        below = min(label.get_window_extent().y0 for label in (*ax.get_xticklabels(), ax.xaxis.label))
        assert legend.get_window_extent().y1 <= below


def test_every_kernel_has_a_default_tiling_that_it_takes():
    assert [kernel.name for kernel, _ in ladder()] == list(KERNELS)
    for kernel, tiling in ladder():
        kernel.check(tiling, H200)
