"""How well the time model of kernel clblast ranks public search spaces: `python -m benchmarks.rank FOLDER`.

The folder, or else the environment variable GEMMSIM_KERNEL_TUNER_DATA, has the tables RTX_2080_Ti.csv.gz and
RTX_3090.csv.gz; where it is absent there is nothing to do. Each GPU is ranked with the shipped constants, with the
fitted one taken from the other GPU alone, by the other GPU's measured times, and by a roofline. Exit status 1 when a
promise is missed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from gemmsim.clblast.constants import Constants, constants
from gemmsim.clblast.kernel_tuner import SearchSpace, read_search_space
from gemmsim.clblast.timing import Timing, predict_clblast
from gemmsim.compare.ranking import Ranking
from gemmsim.device import Device, device
from gemmsim.problem import Problem

FILES = {"rtx-2080-ti": "RTX_2080_Ti.csv.gz", "rtx-3090": "RTX_3090.csv.gz"}
PROBLEM = Problem(4096, 4096, 4096)
CANDIDATES = np.round(np.geomspace(0.5, 4, 13), 2).tolist()
"""Values that the fitted constant is chosen from."""
LEAST_TAU, MOST_FIRST, MOST_OF_TEN = 0.75, 0.30, 0.12
"""What each ranking of the model must reach with nothing fitted to its own GPU."""

Spaces = dict[str, SearchSpace]


def predicted(space: SearchSpace, on: Device, known: Constants) -> Timing:
    """The predictions of a space."""
    return predict_clblast(PROBLEM, space.configurations, on, known)


def fitted(spaces: Spaces) -> Constants:
    """The constants of least mean error after a common factor, over some GPUs."""

    def error(known: Constants) -> float:
        errors = (
            Ranking(predicted(space, device(name), known).time_s, space.measured_s).scaled_mape
            for name, space in spaces.items()
        )
        return float(np.mean(list(errors)))

    tried = [replace(constants(), clocks_per_copy_request=clocks) for clocks in CANDIDATES]
    return min(tried, key=error)


def roofline_s(timing: Timing) -> np.ndarray:
    """The longest of FFMA, L2 and DRAM: what is known of a tiling without its accesses."""
    return np.max([timing.terms[name] for name in ("ffma", "l2", "dram")], axis=0)


def rankings(spaces: Spaces) -> Iterator[tuple[str, str, Ranking]]:
    """(GPU, what it is ranked by, ranking)."""
    for name, space in spaces.items():
        on = device(name)
        shipped = predicted(space, on, constants())
        yield name, "shipped constants", Ranking(shipped.time_s, space.measured_s)
        for other, theirs in spaces.items():
            if other == name:
                continue
            known = fitted({other: theirs})
            label = f"fitted to {other} alone ({known.clocks_per_copy_request:g})"
            yield name, label, Ranking(predicted(space, on, known).time_s, space.measured_s)
            yield name, f"measured on {other}", Ranking(_aligned(theirs, space), space.measured_s)
        yield name, "roofline", Ranking(roofline_s(shipped), space.measured_s)


def _aligned(theirs: SearchSpace, ours: SearchSpace) -> np.ndarray:
    """Their measured times in the order of our configurations; infinite where they have none."""
    rows = [tuple(theirs.configurations.row(number).values()) for number in range(len(theirs.configurations))]
    times = dict(zip(rows, theirs.measured_s.tolist(), strict=True))
    count = len(ours.configurations)
    return np.array([times.get(tuple(ours.configurations.row(number).values()), np.inf) for number in range(count)])


def main(arguments: list[str]) -> int:
    """Print the table; 1 if a ranking by the model misses its promise."""
    folder = arguments[0] if arguments else os.environ.get("GEMMSIM_KERNEL_TUNER_DATA")
    if folder is None or not all((Path(folder) / file).is_file() for file in FILES.values()):
        print(f"skipped: no folder with {' and '.join(FILES.values())}; give it, or set GEMMSIM_KERNEL_TUNER_DATA")
        return 0
    spaces = {name: read_search_space(Path(folder) / file) for name, file in FILES.items()}
    print(f"fitted to both: {fitted(spaces).clocks_per_copy_request:g} clocks a copy request")
    print(f"{'GPU':12} {'ranked by':36} {'tau':>6} {'first':>8} {'of ten':>8} {'error':>8}")
    missed = False
    for name, by, found in rankings(spaces):
        figures = (found.kendall_tau, found.regret(1), found.regret(10), found.scaled_mape)
        print(f"{name:12} {by:36} {figures[0]:6.3f} {figures[1]:8.1%} {figures[2]:8.1%} {figures[3]:8.1%}", flush=True)
        by_model = by.startswith(("shipped", "fitted"))
        missed |= by_model and not (figures[0] >= LEAST_TAU and figures[1] <= MOST_FIRST and figures[2] <= MOST_OF_TEN)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
