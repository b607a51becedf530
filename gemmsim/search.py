"""Every legal configuration ranked by predicted time, in chunks, and what the ranking says about the first.

Only the best are kept, so memory does not grow with the space. Configurations that are predicted alike stay in the
order of enumeration: less padding, fewer stages and parts come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, MOST_REGISTERS, Kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem, ceil_div
from gemmsim.quick_times import quick_times
from gemmsim.records import Record
from gemmsim.spaces import Space, rows_of, size_of, space
from gemmsim.tiling import FIELDS, Tiling
from gemmsim.units import duration, percent, words
from gemmsim.why import SAME, Side, Why

LARGEST_TOP = 10_000
"""Results that can be asked for."""
REFINED = 4
"""How many configurations are predicted in full for each that is kept: the quick route errs."""
LEAST_KEPT = 64
"""Results that are kept at least, so that a slower one is among them to compare the first with."""
REGISTER_STEP = 8
"""Registers of a thread that a landscape takes together; estimates are multiples of it."""

Floats = NDArray[np.float64]


Times = Callable[[Problem, Kernel, Tiling, Device], tuple[Any, Any]]
"""What gives (seconds, what bounds them) of many configurations, each an array; infinite where one does not launch."""


def times(problem: Problem, kernel: Kernel, tilings: Tiling, device: Device) -> tuple[Any, Any]:
    """As predicted in full, for some configurations."""
    found = predict(problem, kernel, tilings, device)
    return found.time_s, found.bound_by


def times_of_many(problem: Problem, kernel: Kernel, tilings: Tiling, device: Device) -> tuple[Any, Any]:
    """By the quick route, which does not say what bounds them, for millions."""
    return quick_times(problem, kernel, tilings, device), ""


@dataclass(frozen=True)
class Result:
    """One configuration, its predicted time, and the name of the term that bounds it."""

    kernel: Kernel
    tiling: Tiling
    time_s: float
    bound_by: str

    def __str__(self) -> str:
        return f"{self.kernel.name} {self.kernel.describe(self.tiling)}"


@dataclass(frozen=True)
class Scored:
    """A chunk of configurations of one kernel, all of which launch, with their times."""

    problem: Problem
    kernel: Kernel
    tilings: Tiling
    time_s: Floats
    bound_by: Any


class Watcher(Protocol):
    """What sees every chunk that a search goes through."""

    def take(self, scored: Scored) -> None:
        """Look at one chunk."""
        ...


@dataclass(frozen=True)
class Found:
    """What a search has found: the best first; `evaluated` legal configurations took `seconds`, their enumeration,
    their legality and their ranking."""

    problem: Problem
    device: Device
    spaces: tuple[Space, ...]
    results: tuple[Result, ...]
    beyond: tuple[Result, ...]
    evaluated: int
    seconds: float

    @property
    def pick(self) -> Result:
        """The configuration with the shortest predicted time."""
        return self.results[0]

    @property
    def alike(self) -> int:
        """How many of those kept are predicted as fast as the pick, itself included."""
        return sum(not _slower(each, self.pick) for each in (*self.results, *self.beyond))

    @property
    def runner_up(self) -> Result | None:
        """The first of those kept that is predicted to be slower; None if all are alike."""
        return next((each for each in (*self.results, *self.beyond) if _slower(each, self.pick)), None)


def search(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel] | None = None,
    where: Iterable[str] = (),
    top: int = 10,
    values: Mapping[str, Iterable[int]] | None = None,
    watchers: Sequence[Watcher] = (),
) -> Found:
    """The `top` legal configurations of `kernels` (default: all that the device runs) with the shortest predicted time.

    where     conditions that they must meet, such as "block_m >= 64 and stages == 2"
    values    what fields are varied over instead of `gemmsim.spaces.VALUES`; kernels use those that they have
    watchers  see every chunk, so that one pass serves them all

    Raises InputError for an unknown name in a condition, and where nothing is left to rank.
    """
    return rank(spaces_of(problem, device, kernels, tuple(where), values), top, watchers)


def rank(spaces: Sequence[Space], top: int = 10, watchers: Sequence[Watcher] = (), keep: int = 0) -> Found:
    """As `search`, of spaces of one problem and device; `keep` so many configurations at least, `beyond` the first."""
    start_s = perf_counter()
    kept = max(top, keep, LEAST_KEPT)
    best = Best(kept * REFINED)
    for scored in scores(spaces):
        for watcher in (best, *watchers):
            watcher.take(scored)
    if not best.results:
        raise InputError(_nothing_left(spaces))
    results = refined(best.results, spaces[0].problem, spaces[0].device)[:kept]
    seconds = perf_counter() - start_s
    return Found(spaces[0].problem, spaces[0].device, tuple(spaces), results[:top], results[top:], best.seen, seconds)


def refined(results: Sequence[Result], problem: Problem, device: Device) -> tuple[Result, ...]:
    """The same configurations as predicted in full, the fastest first."""
    found = []
    for each in results:
        time_s, bound_by = times(problem, each.kernel, each.tiling, device)
        (seconds,), (bound,) = np.ravel(time_s), np.ravel(bound_by)
        if np.isfinite(seconds):
            found.append(replace(each, time_s=float(seconds), bound_by=str(bound)))
    return tuple(sorted(found, key=lambda each: each.time_s))


def spaces_of(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel] | None = None,
    where: Sequence[str] = (),
    values: Mapping[str, Iterable[int]] | None = None,
) -> tuple[Space, ...]:
    """The space of each kernel. Raises InputError for a kernel that the device does not run, and for a dtype."""
    if problem.dtype != "fp32":
        raise InputError(f"dtype {problem.dtype} has no kernels; allowed: fp32")
    capability = device.capability.name
    if kernels is None:
        kernels = [each for each in KERNELS.values() if each.runs_on(capability)]
    for each in kernels:
        if not each.runs_on(capability):
            raise InputError(
                f"kernel {each.name} needs compute capability {each.least_capability}; {device.name} has {capability}"
            )
    given = values or {}
    return tuple(
        space(each, problem, device, where, {name: given[name] for name in each.fields if name in given})
        for each in kernels
    )


def scores(spaces: Iterable[Space], by: Times | None = None) -> Iterator[Scored]:
    """Every configuration of the spaces that launches with its time, chunk by chunk; by the quick route if no other is
    given."""
    by = by or times_of_many
    for each in spaces:
        for tilings in each.chunks():
            time_s, bound_by = by(each.problem, each.kernel, tilings, each.device)
            time_s, bound_by = (np.broadcast_to(array, size_of(tilings)) for array in (time_s, bound_by))
            launches = np.isfinite(time_s)
            if not launches.all():
                tilings, time_s, bound_by = rows_of(tilings, launches), time_s[launches], bound_by[launches]
            if time_s.size:
                yield Scored(each.problem, each.kernel, tilings, time_s, bound_by)


class Best:
    """The `most` fastest configurations of those seen, the fastest first; `seen` is how many these were."""

    def __init__(self, most: int) -> None:
        self.most, self.seen = most, 0
        self._kernels: list[Kernel] = []
        self._time_s: Floats = np.empty(0)
        self._rows = np.empty((0, 1 + len(FIELDS)), np.int64)  # which kernel, and the fields of the tiling
        self._bound_by: Any = np.empty(0, object)

    def take(self, scored: Scored) -> None:
        """Let the configurations of a chunk in that are faster than the slowest kept, or for which there is room."""
        self.seen += len(scored.time_s)
        faster = np.arange(len(scored.time_s))
        if len(self._time_s) == self.most:
            faster = np.flatnonzero(scored.time_s < self._time_s[-1])
        if not len(faster):
            return
        first = faster[np.argsort(scored.time_s[faster], kind="stable")[: self.most]]
        if scored.kernel not in self._kernels:
            self._kernels.append(scored.kernel)
        chosen = vars(rows_of(scored.tilings, first))
        columns = [np.broadcast_to(self._kernels.index(scored.kernel), first.shape)]
        columns += [np.broadcast_to(chosen[name], first.shape) for name in FIELDS]
        time_s = np.concatenate([self._time_s, scored.time_s[first]])
        order = np.argsort(time_s, kind="stable")[: self.most]  # what was seen earlier stays before what takes as long
        self._time_s = time_s[order]
        self._rows = np.concatenate([self._rows, np.stack(columns, axis=1)])[order]
        self._bound_by = np.concatenate([self._bound_by, scored.bound_by[first].astype(object)])[order]

    @property
    def results(self) -> tuple[Result, ...]:
        """Those that were kept, the fastest first."""
        return tuple(
            Result(self._kernels[row[0]], Tiling(**dict(zip(FIELDS, row[1:], strict=True))), time_s, bound_by)
            for row, time_s, bound_by in zip(
                self._rows.tolist(), self._time_s.tolist(), self._bound_by.tolist(), strict=True
            )
        )


class Landscape:
    """The best time for each pair of values of two quantities over all else: `best_s`, a row for each value of y,
    infinite where there is no configuration; by the quick route. A quantity is a field of tilings or "registers", those
    of a thread."""

    def __init__(self, x: str, y: str, spaces: Sequence[Space]) -> None:
        self.x, self.y = x, y
        self.xs, self.ys = (_values(name, spaces) for name in (x, y))
        self.best_s: Floats = np.full((len(self.ys), len(self.xs)), np.inf)

    def take(self, scored: Scored) -> None:
        """Look at one chunk."""
        x, y = (
            np.broadcast_to(np.searchsorted(values, _quantity(name, scored)), scored.time_s.shape)
            for name, values in ((self.x, self.xs), (self.y, self.ys))
        )
        np.minimum.at(self.best_s, (y, x), scored.time_s)


def landscapes(spaces: Sequence[Space]) -> tuple[Landscape, Landscape]:
    """The two that say most, to be filled by a search: of the tile of a block, and of stages and registers."""
    return Landscape("block_n", "block_m", spaces), Landscape("stages", "registers", spaces)


def _quantity(name: str, scored: Scored) -> Any:
    """What a landscape is drawn over. Registers are the estimate, in steps of 8 up to 255."""
    if name != "registers":
        return getattr(scored.tilings, name)
    registers = scored.kernel.resources(scored.problem, scored.tilings).registers_per_thread
    return np.minimum(ceil_div(registers, REGISTER_STEP) * REGISTER_STEP, MOST_REGISTERS)


def _values(name: str, spaces: Sequence[Space]) -> tuple[int, ...]:
    if name == "registers":
        return (*range(REGISTER_STEP, MOST_REGISTERS, REGISTER_STEP), MOST_REGISTERS)
    return tuple(sorted({value for each in spaces for value in each.values.get(name, (each.fixed.get(name, 1),))}))


@dataclass(frozen=True)
class Sensitivity:
    """What becomes of the pick's time when one parameter alone changes: `times_s` of the legal `values`.

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
    """Each parameter of the pick varied alone over the values of its space, what matters most first."""
    pick = found.pick
    of = next(each for each in found.spaces if each.kernel is pick.kernel)
    return tuple(sorted((_sensitivity(of, pick, name) for name in of.kernel.fields), key=lambda each: -each.span))


def _sensitivity(of: Space, pick: Result, name: str) -> Sensitivity:
    alone = {each: (getattr(pick.tiling, each),) for each in of.kernel.fields}
    varied = replace(of, values={**alone, name: of.values[name]})
    chunks = list(scores([varied], times))
    values = [np.broadcast_to(getattr(chunk.tilings, name), chunk.time_s.shape) for chunk in chunks]
    return Sensitivity(
        name,
        getattr(pick.tiling, name),
        tuple(np.concatenate(values).tolist()),
        tuple(np.concatenate([chunk.time_s for chunk in chunks]).tolist()),
    )


def why_it_loses(found: Found) -> str:
    """One sentence that says why the runner-up is slower than the pick, by the terms in which they differ."""
    pick, other = found.pick, found.runner_up
    if other is None:
        return f"the first {found.alike} configurations are predicted alike"
    predicted = [predict(found.problem, each.kernel, each.tiling, found.device) for each in (pick, other)]
    both = Why(*map(Side, predicted))
    text = f"the runner-up, {other}, takes {percent(other.time_s / pick.time_s - 1)} longer"
    text += "".join(f", with {option} {theirs} instead of {ours}" for option, ours, theirs in both.options)
    term = both.deciding_term
    if term is None:
        return f"{text}; no term of the prediction says why"
    ours, theirs = (float(each.terms.get(term, 0.0)) for each in predicted)
    return f"{text}; what decides is {words(term)}, {duration(theirs)} there and {duration(ours)} in the first"


def regret(records: Sequence[Record], first: int) -> float | None:
    """How much longer the best of the `first` records takes than the best of all, measured; None without a time."""
    picked = [record.median_s for record in records[:first] if record.median_s is not None]
    best = [record.median_s for record in records if record.median_s is not None]
    return min(picked) / min(best) - 1 if picked else None


def _slower(one: Result, than: Result) -> bool:
    """Whether a time is longer by more than rounding."""
    return one.time_s > than.time_s * (1 + SAME)


def _nothing_left(spaces: Sequence[Space]) -> str:
    """Why there is nothing to rank."""
    kernels = ", ".join(each.kernel.name for each in spaces)
    conditions = dict.fromkeys(condition.text for each in spaces for condition in each.where)
    free = sum(replace(each, where=()).count() for each in spaces)
    if not conditions or not free:
        return f"no configuration of {kernels} is legal for {spaces[0].problem} on {spaces[0].device.name}"
    return f"--where {' and '.join(conditions)} leaves none of the {free} legal configurations of {kernels}"
