"""Print what leads searches of many problems: points whose programs are shipped, so that searches know their code.

python -m campaigns.finalists > campaigns/finalists.jsonl

The problems are drawn at random: square, tall, wide, deep, flat and any other, small and large, their sizes multiples
of 64, of 4, or ragged. Of each come the first tiles of the ranking, in what suits them best; of several whose code is
much alike the first. A quarter of an hour; what is printed is what the model of the day takes for the best.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from campaigns.times import SEARCHED
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.pipeline.programs import code_macros
from gemmsim.problem import Problem
from gemmsim.records import Point
from gemmsim.search import LEAST_KEPT, MARGIN, spaces_of
from gemmsim.search.known_code import ways
from gemmsim.search.refinement import in_full, suited
from gemmsim.search.scoring import Best, scores

SMALL, LARGE, ANY = (64, 512), (1024, 8192), (256, 4096)
KINDS = {
    "square": (),
    "tall": (LARGE, SMALL, ANY),
    "wide": (SMALL, LARGE, ANY),
    "deep": ((64, 1024), (64, 1024), (2048, 32768)),
    "flat": (ANY, ANY, (32, 384)),
    "any": (ANY, ANY, ANY),
}
"""From where to where each size is drawn, its logarithm even."""
SQUARE = (192, 4096)
GRAINS = (64, 64, 4, 1)
"""What sizes are multiples of."""
LEAST_FLOP, MOST_FLOP = 1e8, 2e11
DRAWS = ((21, 8), (22, 72))
"""Seeds, and how many problems each gives. Finalists of the first ones were measured, and decided how searches rank."""
SUITED, FIRST = 96, 32
"""Tiles of a problem that are suited, and how many of them are taken."""


def problems(seed: int, number: int) -> list[Problem]:
    """So many problems, the kinds in turn; none of those that accuracy is judged by."""
    drawn = random.Random(seed)
    found: list[Problem] = []
    while len(found) < number:
        kind, grain = list(KINDS)[len(found) % len(KINDS)], drawn.choice(GRAINS)
        ranges = KINDS[kind] or (SQUARE,)
        m, n, k = [_size(drawn, *extent, grain) for extent in ranges] * (3 // len(ranges))
        problem = Problem(m, n, k)
        if (m, n, k) not in SEARCHED and LEAST_FLOP <= problem.flop <= MOST_FLOP and problem not in found:
            found.append(problem)
    return found


def _size(drawn: random.Random, least: int, most: int, grain: int) -> int:
    return max(grain, round(least * (most / least) ** drawn.random() / grain) * grain)


def finalists(problem: Problem) -> list[Point]:
    """The first of a search, before any is simulated."""
    best, spaces = Best(LEAST_KEPT + MARGIN), {of.kernel.name: of for of in spaces_of(problem, device("h200"))}
    for of in spaces.values():
        for scored in scores(of):
            best.take(scored)
    first = in_full(best.results, list(spaces.values()))[:SUITED]
    found = sorted((suited(each, spaces[each.kernel.name]) for each in first), key=lambda each: each.time_s)
    return [Point(problem, each.kernel.name, each.tiling) for each in found[:FIRST]]


def points() -> Iterator[Point]:
    """Those of all problems, none of code alike."""
    seen = set()
    for problem in (problem for draw in DRAWS for problem in problems(*draw)):
        for point in finalists(problem):
            of = KERNELS[point.kernel]
            _, alike, _ = ways(point.kernel, code_macros(of, problem, point.tiling))
            if alike not in seen:
                seen.add(alike)
                yield point


if __name__ == "__main__":
    for point in points():
        print(json.dumps(point.to_dict()), flush=True)
