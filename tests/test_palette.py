"""The palette: contrast against both backgrounds, and differences that color-blind readers see too."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import gemmsim
from gemmsim.kernels import KERNELS
from gemmsim.plots import DARK, LIGHT, PAPER, STYLES
from gemmsim.plots.style import styles

# Color vision, simulated at full severity: Machado, Oliveira, Fernandes, "A physiologically-based model for
# simulation of color vision deficiency", IEEE TVCG 15(6), 2009, tables for severity 1.0; linear RGB.
VISION = {
    "normal": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
LEAST_DIFFERENCE = 23
"""CIE76. A difference of 2.3 is just noticed (Mahy et al., Color Research and Application 19, 1994); pictures need ten
times that."""
CSS = (Path(gemmsim.__file__).parent / "data" / "report" / "page.css").read_text(encoding="utf-8")


def linear(color: str) -> np.ndarray:
    """Linear RGB of a #rrggbb of sRGB (IEC 61966-2-1)."""
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """Ratio of relative luminances (WCAG 2.2, 1.4.3)."""
    dark, light = sorted(float(linear(color) @ (0.2126, 0.7152, 0.0722)) for color in (first, second))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: np.ndarray) -> np.ndarray:
    """CIE L*a*b* under D65 of linear sRGB."""
    to_xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.072175], [0.0193339, 0.119192, 0.9503041]]
    )
    x, y, z = to_xyz @ rgb / to_xyz.sum(axis=1)
    fx, fy, fz = (np.cbrt(t) if t > 216 / 24389 else (24389 / 27 * t + 16) / 116 for t in (x, y, z))
    return np.array([116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)])


def test_contrast_and_lab_are_right_where_the_answer_is_known():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)  # the best known near miss of 4.5
    assert lab(linear("#ffffff")) == pytest.approx([100, 0, 0], abs=1e-6)
    assert lab(linear("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.02)


@pytest.mark.parametrize("name", VISION)
def test_every_kind_of_vision_sees_grays_as_they_are(name):
    assert VISION[name].sum(axis=1) == pytest.approx([1, 1, 1], abs=1e-3)


def test_confusions_that_are_known_are_simulated():
    """Red and green of one luminance are alike to protanopia and deuteranopia, not to tritanopia."""

    def apart(name: str, first: str, second: str) -> float:
        seen = (lab(np.clip(VISION[name] @ linear(color), 0, 1)) for color in (first, second))
        return float(np.linalg.norm(np.subtract(*seen)))

    red, green = "#b54a20", "#6f7a1c"
    assert apart("normal", red, green) > 2 * apart("deuteranopia", red, green)
    assert apart("tritanopia", red, green) > 2 * apart("deuteranopia", red, green)


@pytest.mark.parametrize("theme", STYLES.values(), ids=STYLES)
@pytest.mark.parametrize("vision", VISION)
def test_series_are_told_apart(theme, vision):
    seen = {color: lab(np.clip(VISION[vision] @ linear(color), 0, 1)) for color in (*theme.series, theme.ink)}
    for first, second in combinations(seen, 2):
        assert np.linalg.norm(seen[first] - seen[second]) >= LEAST_DIFFERENCE, (first, second)


@pytest.mark.parametrize("theme", STYLES.values(), ids=STYLES)
def test_series_stand_out_from_the_background(theme):
    assert contrast(theme.ink, theme.background) >= 7
    for color in theme.series:
        assert contrast(color, theme.background) >= 3, color


def test_paper_is_black_on_white():
    assert (PAPER.ink, PAPER.background) == ("#000000", "#ffffff")


@pytest.mark.parametrize(("macro", "theme"), [("light", LIGHT), ("dark", DARK)])
def test_text_of_the_page_can_be_read(macro, theme):
    """WCAG 2.2, 1.4.3: 4.5 to 1 for text, on the page and on its cards."""
    part = CSS.partition(f"{{% macro {macro}() %}}")[2].partition("{% endmacro %}")[0]
    colors = dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", part))
    for name in ("quiet", "link", "warning"):
        for background in (theme.background, colors["card"]):
            assert contrast(colors[name], background) >= 4.5, name
    assert contrast(theme.ink, colors["card"]) >= 7


def test_kernels_have_a_color_and_a_marker_of_their_own():
    together = styles(KERNELS, LIGHT)
    assert len({style.color for style in together.values()}) == len(KERNELS)
    assert len({style.marker for style in together.values()}) == len(KERNELS)
    alone = styles(["register"], LIGHT)
    assert alone["register"] == together["register"]  # the same in every picture
    many = styles([f"kernel_{number:02}" for number in range(30)], LIGHT)
    assert len(set(many.values())) == 30
