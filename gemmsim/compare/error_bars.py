"""How far off a predicted time may be: factors that hold nine of ten measured times, by kernel and kind of launch.

Each factor is a quantile of |log(predicted / measured)| over points that the model was not made with, and that are not
held out either (`gemmsim/held_out.py`): split conformal prediction, which supposes of a new point only that it is like
those (Vovk, Gammerman, Shafer: "Algorithmic Learning in a Random World", 2005; Lei et al., JASA 113, 2018). It covers
what the model gets wrong, bias included.
`campaigns/accuracy.py` writes the factors. All points are of one GPU. Others have no numbers of their own, so their
bars are those of that GPU predicted without its own: wider, and a guess where their errors are of another kind.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from gemmsim.calibration import calibration
from gemmsim.device import DATA
from gemmsim.errors import reading
from gemmsim.predict import Prediction
from gemmsim.routes import route_of
from gemmsim.toml_files import read_toml

FILE = DATA / "error_bars.toml"
PROMISED = 0.90
"""Share of measured times that shall lie inside."""
AIMED = 0.93
"""Share that the quantile is taken at: that of some hundred new points scatters by one or two per cent."""
FEWEST_POINTS = 28
"""With fewer points of a kernel and regime those of the kernel and those of the regime count, then all. Of 27 or fewer
the quantile is the largest miss, so that a single point would decide."""
FEWEST_OF_REGIME = 9
"""With fewer points of all kernels a regime has no factor. A new miss is larger than all of n one time in n + 1, so of
eight not even the largest holds as many as are promised."""
ANY = "all"

SMALL_S = 20e-6
FEW_WAVES = 4
REGIMES = ("small", "part of a wave", "few waves", "many waves")


class Factor(NamedTuple):
    """Measured times lie within predicted / factor and predicted x factor, as of so many points."""

    factor: float
    points: int


Factors = dict[str, dict[str, Factor]]
"""By kernel and regime, ANY for all of them."""


@dataclass(frozen=True)
class ErrorBar:
    """Where the measured time shall lie, `promised` of the time; `basis` says what that is from."""

    low_s: float
    high_s: float
    basis: str
    promised: float = PROMISED

    def holds(self, measured_s: float) -> bool:
        """Whether a measured time lies inside."""
        return self.low_s <= measured_s <= self.high_s


def regime(time_s: float, waves: float) -> str:
    """The kind of a launch, one of REGIMES, by its predicted time and waves: "small" below 20 microseconds, whatever
    its waves; then by whether it fills the GPU once, up to four times, or more often."""
    if time_s < SMALL_S:
        return "small"
    if waves <= 1:
        return "part of a wave"
    return "few waves" if waves <= FEW_WAVES else "many waves"


def regime_of(found: Prediction) -> str:
    """The regime of one predicted launch."""
    return regime(float(found.time_s), float(found.waves))


def error_bar(found: Prediction) -> ErrorBar | None:
    """The error bar of one predicted launch; None where it does not launch, or nothing was measured of its route."""
    time_s = float(found.time_s)
    known = _shipped().get(set_name(route_of(found), calibration(found.device).own))
    if not known or not math.isfinite(time_s):
        return None
    (factor, points), basis = chosen(known, found.kernel.name, regime_of(found))
    return ErrorBar(time_s / factor, time_s * factor, f"{points} points, {basis}")


def set_name(route: str, own: bool) -> str:
    """The name of a set of factors: a route, of a GPU that was calibrated or of one that was not."""
    return f"{route}_{'calibrated' if own else 'inherited'}"


def chosen(known: Mapping[str, Mapping[str, Factor]], kernel: str, kind: str) -> tuple[Factor, str]:
    """(factor, what it is of) of a kernel and regime; where these have too few points the larger one of what all of the
    kernel and all of the regime have, else that of all points."""
    if kind in known.get(kernel, {}):
        return known[kernel][kind], f"{kernel}, {kind}"
    wider = [
        (known[of][what], name)
        for of, what, name in ((kernel, ANY, kernel), (ANY, kind, f"all kernels, {kind}"))
        if what in known.get(of, {})
    ]
    return max(wider, default=(known[ANY][ANY], "all kernels"), key=lambda each: each[0].factor)


def fitted(residuals: Iterable[tuple[str, str, float]]) -> Factors:
    """Factors from (kernel, regime, predicted / measured) of points; groups with too few points have none."""
    groups: dict[tuple[str, str], list[float]] = {}
    for kernel, kind, ratio in residuals:
        for group in ((kernel, kind), (kernel, ANY), (ANY, kind), (ANY, ANY)):
            groups.setdefault(group, []).append(abs(math.log(ratio)))
    found: Factors = {}
    for (kernel, kind), misses in sorted(groups.items()):
        if len(misses) >= (FEWEST_OF_REGIME if kernel == ANY else FEWEST_POINTS):
            found.setdefault(kernel, {})[kind] = Factor(round(math.exp(conformal(misses, AIMED)), 4), len(misses))
    return found


def conformal(misses: Iterable[float], share: float) -> float:
    """What a new miss, exchangeable with these, stays below with at least this probability: the one of rank
    ceil((n + 1) share), or the largest where there are too few for that."""
    ordered = sorted(misses)
    rank = math.ceil((len(ordered) + 1) * share - 1e-9)
    return ordered[min(rank, len(ordered)) - 1]


def as_toml(sets: Mapping[str, Factors], source: str) -> str:
    """The file of the factors, `source` as its first lines say it."""
    return "\n".join(_lines(sets, source)) + "\n"


def _lines(sets: Mapping[str, Factors], source: str) -> Iterator[str]:
    yield from (f"# {line}".rstrip() for line in source.splitlines())
    yield f"aimed = {AIMED}"
    for name, kernels in sets.items():
        for kernel, kinds in kernels.items():
            yield f"\n[{name}.{kernel}]"
            for kind, (factor, points) in kinds.items():
                yield f'"{kind}" = {{ factor = {factor}, points = {points} }}'


def read_factors(path: Path = FILE) -> dict[str, Factors]:
    """The sets of factors of a file; none where there is no file. InputError for one that is damaged."""
    if not path.is_file():
        return {}
    content = read_toml(path)
    with reading(path):
        return {
            name: {kernel: {kind: Factor(**each) for kind, each in kinds.items()} for kernel, kinds in kernels.items()}
            for name, kernels in content.items()
            if isinstance(kernels, dict)
        }


def forget() -> None:
    """Read the file anew when it is asked for next."""
    _shipped.cache_clear()


@cache
def _shipped() -> dict[str, Factors]:
    return read_factors()
