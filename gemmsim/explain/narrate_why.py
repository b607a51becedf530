"""Why one configuration is faster than another, in sentences: each with its name, for tables to print."""

from __future__ import annotations

from collections.abc import Iterator

from gemmsim.explain.narrate import Facts
from gemmsim.explain.sides import Side
from gemmsim.explain.why import Swap, Why
from gemmsim.occupancy import UNLIMITED
from gemmsim.units import count, duration, percent, plural, words

LEVELS = ("global", "shared", "register")
"""Where elements are read from, the slowest first."""
WORTH_A_WORD = 0.01
"""Differences below this share are left to the tables."""


def reasons(found: Why) -> Facts:
    """What differs and what decides, in the order in which one would ask."""
    yield "time", _time(found)
    yield from _measured(found)
    if not found.faster.resident.launches:
        return
    if found.tie:
        yield "decides", "nothing: by the model no difference between them matters here"
        return
    yield "bound by", _bound(found)
    yield from _reads(found)
    yield from _padding(found)
    yield from _conflicts(found)
    yield from _residence(found)
    yield "decides", _decision(found)


def described(side: Side) -> str:
    """Kernel, tiling and problem of one of the two."""
    return f"{side.kernel.name} {side.kernel.describe(side.tiling)}, m x n x k = {side.problem}"


def _time(found: Why) -> str:
    slow, fast = found.names
    slower_s, faster_s = found.slower.time_s, found.faster.time_s
    if faster_s == float("inf"):
        return f"neither launches: {found.a.resident.reason}"
    if slower_s == float("inf"):
        return f"{slow} does not launch: {found.slower.resident.reason}; {fast} takes {duration(faster_s)}"
    if found.tie:
        return f"both take {duration(faster_s)}"
    return f"{fast} takes {duration(faster_s)}, {slow} {duration(slower_s)}: {fast} is {_times(found.speedup)} as fast"


def _measured(found: Why) -> Facts:
    a_s, b_s = found.a.measured_s, found.b.measured_s
    if a_s is None or b_s is None:
        for name, side in (("A", found.a), ("B", found.b)):
            if side.measured_s is not None:
                yield "measured", f"{name} took {duration(side.measured_s)}; of the other there is no record"
        return
    slow, fast = ("B", "A") if b_s > a_s else ("A", "B")
    text = f"A took {duration(a_s)}, B {duration(b_s)}: {fast} was {_times(max(a_s, b_s) / min(a_s, b_s))} as fast"
    if not found.tie and (slow, fast) != found.names:
        text += ", so the model has the two the wrong way round"
    yield "measured", text


def _bound(found: Why) -> str:
    slow, fast = found.names
    term, in_faster = found.deciding_term, found.faster.prediction.terms
    if term is None:  # the slower one does not launch
        return f"{fast} by {words(found.faster.prediction.bound_by)}"
    slower_s, faster_s = float(found.slower.prediction.terms[term]), float(in_faster.get(term, 0.0))
    if not found.too_long:
        return (
            f"no resource alone needs longer in {slow} than all of {fast}; the largest difference is in {words(term)},"
            f" {duration(slower_s)} in {slow} and {duration(faster_s)} in {fast}"
        )
    text = f"in {slow} {words(term)} alone needs {duration(slower_s)}, longer than all of {fast}"
    if found.too_long[1:]:
        text += (
            f" (so {'do' if found.too_long[2:] else 'does'} {_listed([words(name) for name in found.too_long[1:]])})"
        )
    text += f"; in {fast} it needs {duration(faster_s)}"
    bound = found.faster.prediction.bound_by
    return text + (f", and the bound is {words(bound)}" if bound != term else " and is the bound there too")


def _reads(found: Why) -> Facts:
    """Where one reads more elements for the same multiplications."""
    slow, fast = found.names
    of_slow, of_fast = found.slower.counts, found.faster.counts
    for level in LEVELS:
        name = f"{level}_reads"
        more, less = of_slow[name], of_fast[name]
        if abs(more - less) < WORTH_A_WORD * max(more, less):
            continue
        (low, whom), (high, who) = sorted(((less, fast), (more, slow)))
        others = f"{_times(high / low)} as many as the {count(low)} in {whom}" if low else f"none in {whom}"
        yield f"{level} reads", f"{count(high)} elements in {who}, {others}"


def _padding(found: Why) -> Facts:
    """Multiplications beyond the matrices, where the two differ in them."""
    wasted = {name: _wasted(side) for name, side in (("A", found.a), ("B", found.b))}
    if abs(wasted["A"] - wasted["B"]) >= WORTH_A_WORD:
        yield "edges", "; ".join(f"{percent(share)} of {name}'s FFMA multiply zeros" for name, share in wasted.items())


def _wasted(side: Side) -> float:
    return 1 - float(side.problem.m * side.problem.n * side.problem.k / side.traffic.ffma)


def _conflicts(found: Why) -> Iterator[tuple[str, str]]:
    """Bank conflicts, each with where it is from, unless both have the same."""
    reasons_of = {name: side.decomposition.conflicts for name, side in (("A", found.a), ("B", found.b))}
    if reasons_of["A"] == reasons_of["B"]:
        return
    for name, conflicts in reasons_of.items():
        for access, reason in conflicts.items():
            yield "conflicts", f"{access} of {name}: {reason}"
        if not conflicts:
            yield "conflicts", f"none in {name}"


def _residence(found: Why) -> Facts:
    """How many blocks an SM holds, and how full the last wave is, where the two differ."""
    if found.a.residence == found.b.residence:
        return
    yield "residence", "; ".join(f"{name}: {_room(side)}" for name, side in (("A", found.a), ("B", found.b)))


def _room(side: Side) -> str:
    resident = side.resident
    if not resident.launches:
        return "no block fits"
    limits = {name: limit for name, limit in resident.limits.items() if limit != UNLIMITED}
    limiters = _listed([words(name) for name in resident.limiters if name in limits])
    blocks = plural(resident.blocks_per_sm, "block")
    return (
        f"{blocks} an SM (limited by {limiters}), occupancy {percent(resident.occupancy)},"
        f" {side.residence['waves']:.3g} waves"
    )


def _decision(found: Why) -> str:
    slow, fast = found.names
    swaps = [swap for swap in found.swaps if swap.closes is not None]
    if len(found.swaps) == 1 and swaps:
        return f"{_taken(swaps[0])}: it is the one thing in which they differ"
    best = found.deciding_option
    if best is not None:
        text = f"{_taken(best)}: alone it brings {slow} to {duration(best.time_s or 0.0)}, {_share(best)}"
        others = [swap for swap in swaps if swap is not best and (swap.closes or 0) >= WORTH_A_WORD]
        return text + (f"; next comes {others[0].option} with {percent(others[0].closes or 0)}" if others else "")
    if swaps and (swaps[0].closes or 0) > 0:
        return (
            f"no option alone: {_taken(swaps[0])} brings {slow} to {duration(swaps[0].time_s or 0.0)},"
            f" {_share(swaps[0])}; it takes several together"
        )
    return f"no option alone: none of {fast}'s, taken over by itself, makes {slow} faster"


def _taken(swap: Swap) -> str:
    brings = f" (with its {_listed(list(swap.brings))})" if swap.brings else ""
    return f"{swap.option} {swap.faster}{brings} instead of {swap.slower}"


def _share(swap: Swap) -> str:
    return f"{percent(swap.closes or 0.0)} of the gap"


def _times(ratio: float) -> str:
    return f"{ratio:.3g} times"


def _listed(names: list[str]) -> str:
    """Such as "a, b and c"."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
