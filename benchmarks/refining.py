"""Whether looking closely at the first of a ranking orders them better: by either route, and by both.

python -m benchmarks.refining [OF_EACH]     how many of each problem, those predicted fastest (default: 50)

The shipped random configurations of four problems, and what led searches of eight others, but for those that are held
out, in the order of their measured medians. What is simulated is the program that `gemmsim search` simulates: the
shipped one of code alike, else told from the kernel's description. Some minutes.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from campaigns.finalists import DRAWS, problems
from gemmsim.compare.ranking import Ranking
from gemmsim.device import device
from gemmsim.held_out import held_out
from gemmsim.kernels import kernel
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.search import spaces_of
from gemmsim.search.refinement import deeper, in_full, simulated_too
from gemmsim.search.scoring import Result

H200 = device("h200")
ROUTES = {"analytic": "analytic_s", "simulated": "simulated_s", "mean of both": "time_s"}


def measured() -> dict[Problem, dict[Result, float]]:
    """The median seconds of every configuration that is not held out, problem by problem."""
    found: dict[Problem, dict[Result, float]] = defaultdict(dict)
    led = problems(*DRAWS[0])
    records = [record for record in read_records(shipped_records("picks"))[0] if record.point.problem in led]
    for record in (*read_records(shipped_records("random"))[0], *records):
        point = record.point
        if record.median_s is not None and not held_out(point):
            found[point.problem][Result(kernel(point.kernel), point.tiling, 0.0, 0.0)] = record.median_s
    return found


def longer_an_octave(led: Sequence[tuple[Problem, Result, float]]) -> float:
    """By how much of its time a configuration takes longer than both routes say for each doubling of block_k: the slope
    of the logarithm within problems."""
    of_problem: dict[Problem, list[tuple[float, float]]] = defaultdict(list)
    for problem, each, median_s in led:
        of_problem[problem].append((np.log2(each.tiling.block_k), np.log(median_s / each.time_s * deeper(each))))
    apart = np.concatenate([np.array(some) - np.mean(some, axis=0) for some in of_problem.values()])
    return float(apart[:, 0] @ apart[:, 1] / (apart[:, 0] @ apart[:, 0]))


def main(arguments: Sequence[str]) -> int:
    """Print Kendall's tau and the regret of the first, problem by problem; exit status 1 where the mean of both
    orders worse than the analytic route, over all problems."""
    most = int(arguments[0]) if arguments else 50
    taus: dict[str, list[float]] = defaultdict(list)
    levels: dict[str, list[float]] = defaultdict(list)
    led: list[tuple[Problem, Result, float]] = []
    for problem, times_s in measured().items():
        spaces = {of.kernel.name: of for of in spaces_of(problem, H200)}
        medians = {str(each): time_s for each, time_s in times_s.items()}
        first = in_full(list(times_s), list(spaces.values()))[:most]
        found = [simulated_too(each, spaces[each.kernel.name]) for each in first]
        print(f"{problem}: the first {len(found)} of {len(times_s)}")
        for name, route in ROUTES.items():
            ranking = Ranking(
                np.array([getattr(each, route) for each in found]), np.array([medians[str(each)] for each in found])
            )
            taus[name].append(ranking.kendall_tau)
            print(f"  {name:14} Kendall tau {ranking.kendall_tau:.3f}, regret of the first {ranking.regret(1):6.1%}")
        if problem in problems(*DRAWS[0]):
            led += [(problem, each, medians[str(each)]) for each in found if each.compiled]
        for each in found:
            levels[each.kernel.name].append(float(each.simulated_s or 0) / each.analytic_s)
    for name, of_problems in taus.items():
        print(f"{name:16} Kendall tau {statistics.mean(of_problems):.3f} on average")
    for name, ratios in levels.items():
        print(f"{name:16} simulated over analytic {statistics.median(ratios):.3f} (median of {len(ratios)})")
    print(f"of what led searches each doubling of block_k takes {longer_an_octave(led):.1%} longer than said")
    return int(statistics.mean(taus["mean of both"]) < statistics.mean(taus["analytic"]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
