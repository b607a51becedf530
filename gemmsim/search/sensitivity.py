"""What a search says of its pick: which parameter matters, and why the runner-up loses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmsim.explain.sides import Side
from gemmsim.explain.why import Why
from gemmsim.kernels import UNSAID
from gemmsim.predict import predict
from gemmsim.search.finding import Found
from gemmsim.search.scoring import Result
from gemmsim.search.spaces import Space
from gemmsim.search.tables import rows_of, size_of
from gemmsim.tiling import Tiling
from gemmsim.units import duration, percent, plural, words


@dataclass(frozen=True)
class Sensitivity:
    """What becomes of the pick's time when one parameter alone changes: `times_s` of the legal `values`, by the
    analytic route.

    `span` is the slowest of them over the fastest, minus 1; 0 where no other value is legal alone.
    """

    name: str
    chosen: int
    values: tuple[int, ...]
    times_s: tuple[float, ...]

    @property
    def span(self) -> float:
        """How much the parameter matters."""
        return max(self.times_s) / min(self.times_s) - 1


def sensitivities(found: Found) -> tuple[Sensitivity, ...]:
    """Each parameter of the pick varied alone over the values of its space, what matters most first; an order of the
    source that is not varied is no parameter."""
    pick = found.pick
    of = next(each for each in found.spaces if each.kernel is pick.kernel)
    names = [name for name in of.kernel.fields if name not in UNSAID or len(of.values[name]) > 1]
    return tuple(sorted((_sensitivity(of, pick, name) for name in names), key=lambda each: -each.span))


def _sensitivity(of: Space, pick: Result, name: str) -> Sensitivity:
    alone = {each: (getattr(pick.tiling, each),) for each in of.kernel.fields}
    chunks = replace(of, values={**alone, name: of.values[name]}).chunks()
    varied = [rows_of(chunk, at) for chunk in chunks for at in range(size_of(chunk))]
    tilings = [Tiling(**vars(each)) for each in varied]
    times_s = (float(predict(of.problem, of.kernel, tiling, of.device).time_s) for tiling in tilings)
    values = tuple(getattr(tiling, name) for tiling in tilings)
    return Sensitivity(name, getattr(pick.tiling, name), values, tuple(times_s))


def why_it_loses(found: Found) -> str:
    """One sentence that says why the runner-up is slower than the pick, by the terms in which they differ."""
    pick, other = found.pick, found.runner_up
    if other is None:
        if len(found.kept) == 1:
            return "no other tiles, threads or parts of k are legal"
        return f"the first {plural(len(found.kept), 'configuration')} are predicted alike"
    predicted = [predict(found.problem, each.kernel, each.tiling, found.device) for each in (pick, other)]
    both = Why(*map(Side, predicted))
    text = f"the runner-up, {other}, takes {percent(other.time_s / pick.time_s - 1)} longer"
    text += "".join(f", with {option} {theirs} instead of {ours}" for option, ours, theirs in both.options)
    term = both.deciding_term
    if term is None:
        return f"{text}; no term of the prediction says why"
    ours, theirs = (float(each.terms.get(term, 0.0)) for each in predicted)
    return f"{text}; what decides is {words(term)}, {duration(theirs)} there and {duration(ours)} in the first"
