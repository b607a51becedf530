"""Pictures of what the model says and what was measured."""

from gemmsim.plots.draw import (
    LEVELS,
    RooflinePoint,
    errors,
    predicted_against_measured,
    reads_per_level,
    roofline,
    rooflines,
    time_terms,
)
from gemmsim.plots.style import DARK, LIGHT, Theme, figure, render

__all__ = [
    "DARK",
    "LEVELS",
    "LIGHT",
    "RooflinePoint",
    "Theme",
    "errors",
    "figure",
    "predicted_against_measured",
    "reads_per_level",
    "render",
    "roofline",
    "rooflines",
    "time_terms",
]
