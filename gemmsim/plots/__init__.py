"""Pictures of what the model says and what was measured.

Each function takes Matplotlib axes, what it is to show and a theme, draws, and returns the axes; `figures` has whole
figures. None computes, and none touches global state.
"""

from gemmsim.plots import figures
from gemmsim.plots.accuracy import errors, predicted_against_measured
from gemmsim.plots.bank_map import bank_map
from gemmsim.plots.ladder import reads_per_level, time_terms
from gemmsim.plots.landscape import landscape_picture, landscape_pictures
from gemmsim.plots.occupancy import chart, charts
from gemmsim.plots.roofline import LEVELS, RooflinePoint, roofline, rooflines
from gemmsim.plots.style import DARK, FORMS, LIGHT, PAPER, STYLES, Theme, figure, render
from gemmsim.plots.tile_order import tile_order
from gemmsim.plots.timeline import timeline_picture, timeline_pictures

__all__ = [
    "DARK",
    "FORMS",
    "LEVELS",
    "LIGHT",
    "PAPER",
    "STYLES",
    "RooflinePoint",
    "Theme",
    "bank_map",
    "chart",
    "charts",
    "errors",
    "figure",
    "figures",
    "landscape_picture",
    "landscape_pictures",
    "predicted_against_measured",
    "reads_per_level",
    "render",
    "roofline",
    "rooflines",
    "tile_order",
    "time_terms",
    "timeline_picture",
    "timeline_pictures",
]
