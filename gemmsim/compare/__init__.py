"""Predictions held against measurements: errors, order, counters (`comparison`, `ranking`), and how far off a predicted
time may be (`error_bars`); main loops beside records (`loop_shares`)."""

from gemmsim.compare.comparison import ComparedPoint, Comparison, Pick, compare, counter_differences

__all__ = ["ComparedPoint", "Comparison", "Pick", "compare", "counter_differences"]
