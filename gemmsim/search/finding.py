"""Every legal configuration ranked by predicted time, and the first of the ranking looked at more closely.

The quick route ranks them all, table by table (`scoring.py`). What leads is predicted in full, then simulated.
Those with the same block and thread tile count as one: the best of them stands for all, so that what is listed, and
may be measured, is really different.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.explain.why import SAME
from gemmsim.kernels import KERNELS, UNSAID, Kernel
from gemmsim.problem import Problem
from gemmsim.records import Record
from gemmsim.search.refinement import Compiler, Tell, in_full, refined, untold
from gemmsim.search.scoring import Best, Result, Watcher, scores
from gemmsim.search.spaces import Space, space

LARGEST_TOP = 10_000
"""Results that can be asked for."""
MARGIN = 128
"""How many configurations are predicted in full beyond those that are kept: the quick route errs."""
LEAST_KEPT = 64
"""Results that are kept at least, so that a slower one is among them to compare the first with."""
SIMULATED, COMPILED = 24, 40
"""Of the first so many at most the time is simulated too; and of how many where they are compiled for it."""


@dataclass(frozen=True)
class Found:
    """What a search has found: the best first; `evaluated` legal configurations took `seconds`, their enumeration,
    their legality and their ranking, and the first ones `refined_s` more, when they were looked at closely."""

    problem: Problem
    device: Device
    spaces: tuple[Space, ...]
    results: tuple[Result, ...]
    beyond: tuple[Result, ...]
    evaluated: int
    seconds: float
    refined_s: float

    @property
    def pick(self) -> Result:
        """The configuration with the shortest predicted time."""
        return self.results[0]

    @property
    def kept(self) -> tuple[Result, ...]:
        """All that were kept."""
        return (*self.results, *self.beyond)

    @property
    def alike(self) -> int:
        """How many of those kept are predicted as fast as the pick, itself included."""
        return sum(not _slower(each, self.pick) for each in self.kept)

    @property
    def runner_up(self) -> Result | None:
        """The first of those kept that is predicted to be slower; None if all are alike."""
        return next((each for each in self.kept if _slower(each, self.pick)), None)


def search(
    problem: Problem,
    device: Device,
    kernels: Sequence[Kernel] | None = None,
    where: Iterable[str] = (),
    top: int = 10,
    values: Mapping[str, Iterable[int]] | None = None,
    watchers: Sequence[Watcher] = (),
    simulated: int = SIMULATED,
) -> Found:
    """The `top` legal configurations of `kernels` (default: all that the device runs) with the shortest predicted time.

    where      conditions that they must meet, such as "block_m >= 64 and stages == 2"
    values     what fields are varied over instead of `gemmsim.search.sensible.VALUES`; kernels use those that they have
    watchers   see every table, so that one pass serves them all
    simulated  of the first so many the time is simulated too; 0 for the analytic route alone

    Raises InputError for an unknown name in a condition, and where nothing is left to rank.
    """
    return rank(spaces_of(problem, device, kernels, tuple(where), values), top, watchers, simulated=simulated)


def rank(
    spaces: Sequence[Space],
    top: int = 10,
    watchers: Sequence[Watcher] = (),
    keep: int = 0,
    simulated: int = SIMULATED,
    tell: Tell = untold,
    compiler: Compiler | None = None,
) -> Found:
    """As `search`, of spaces of one problem and device; `keep` so many configurations at least, `beyond` the first.
    With a `compiler` those that are simulated are compiled for it (`gemmsim.gpu.launches`).
    `tell` hears of what takes longest: (phase, done, of how many)."""
    start_s = perf_counter()
    kept = max(top, keep, LEAST_KEPT)
    best = Best(kept + MARGIN)
    for number, each in enumerate(spaces, 1):
        for scored in scores(each):
            for watcher in (best, *watchers):
                watcher.take(scored)
        tell("kernels ranked", number, len(spaces))
    ranked_s = perf_counter()
    results = in_full(best.results, spaces, tell)[:kept]
    if not results:
        raise InputError(_nothing_left(spaces))
    results = refined(results, spaces, min(simulated, len(results)), tell, compiler)
    return Found(
        spaces[0].problem, spaces[0].device, tuple(spaces), tuple(results[:top]), tuple(results[top:]), best.seen,
        ranked_s - start_s, perf_counter() - ranked_s,
    )  # fmt: skip


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
    fixed = " and ".join(name for name in UNSAID if any(name in condition for condition in conditions))
    why = f"; searches leave {fixed} at 0" if fixed else ""
    return f"--where {' and '.join(conditions)} leaves none of the {free} legal configurations of {kernels}{why}"
