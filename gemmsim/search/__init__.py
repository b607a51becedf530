"""Searching without a GPU: all legal configurations ranked by predicted time, and what is said of the first.

In the order of the work: what is varied (`sensible`, `constraints`) is enumerated (`spaces`, as products of axes:
`tables`), ranked by a short cut (`quick_times`, `scoring`), predicted in full and simulated (`refinement`, with
`known_code`); `finding` does all of that. Then what lies around the pick and what decides it (`landscapes`,
`sensitivity`), and the same space for another tuner (`tuner`).

`layouts` is a search of its own: paddings and swizzles of one tiling against bank conflicts.
"""

from gemmsim.search.finding import (
    COMPILED,
    LARGEST_TOP,
    LEAST_KEPT,
    MARGIN,
    SIMULATED,
    Found,
    rank,
    regret,
    search,
    spaces_of,
)

__all__ = [
    "COMPILED", "LARGEST_TOP", "LEAST_KEPT", "MARGIN", "SIMULATED", "Found", "rank", "regret", "search", "spaces_of",
]  # fmt: skip
