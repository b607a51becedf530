"""Timelines in the Chrome trace format, as chrome://tracing and Perfetto read it.

Described in "Trace Event Format" (Google, docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU):
an object with `traceEvents`; complete events ("X") have a start and a duration in microseconds; metadata events ("M")
name and order processes and threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gemmsim.pipeline.timeline import BUSY, Timeline

Event = dict[str, Any]
ON_THE_WAY = "on the way"
DIGITS = 9
"""Of microseconds: far below a cycle."""


def chrome_trace(timelines: Sequence[Timeline]) -> dict[str, Any]:
    """The timelines as one JSON object: a process for each block, a thread for each warp, and below it one for what is
    on its way to the warp. All begin at 0 microseconds; cycles are in `args`."""
    events: list[Event] = []
    first = 0
    for each in timelines:
        events += [*_names(each, first), *_events(each, first)]
        first += 1 + max(block for block, _ in each.warps)
    shown = {f"{each.kernel.name} {each.kernel.describe(each.tiling)}": _said(each) for each in timelines}
    return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": shown}


def _names(of: Timeline, first: int) -> Iterator[Event]:
    for block in sorted({block for block, _ in of.warps}):
        yield _named("process", f"{of.kernel.name} {of.kernel.describe(of.tiling)}, block {block}", first + block, 0)
    for (block, warp), intervals in of.warps.items():
        text = f"warp {warp}, sub-core {intervals[0].sub_core}"
        yield _named("thread", text, first + block, 2 * warp)
        yield _named("thread", f"{text}: {ON_THE_WAY}", first + block, 2 * warp + 1)


def _named(what: str, name: str, pid: int, tid: int) -> Event:
    return {"ph": "M", "name": f"{what}_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _events(of: Timeline, first: int) -> Iterator[Event]:
    for each in of.intervals:
        category = "issue" if each.kind in BUSY else "wait"
        span = of, each.start_cycles, each.end_cycles
        yield _complete(each.kind, category, *span, first + each.block, 2 * each.warp) | {
            "args": {"start_cycles": each.start_cycles, "cycles": each.cycles, "pass": each.lap}
        }
    for flight in of.flights:
        span = of, flight.start_cycles, flight.end_cycles
        yield _complete(ON_THE_WAY, "memory", *span, first + flight.block, 2 * flight.warp + 1) | {
            "args": {"start_cycles": flight.start_cycles, "cycles": flight.end_cycles - flight.start_cycles}
        }


def _complete(name: str, category: str, of: Timeline, start: float, end: float, pid: int, tid: int) -> Event:
    """One event; its end is rounded like the start of the next, so that neighbours touch and never overlap."""
    starts, ends = (round(1e6 * cycles / of.clock_hz, DIGITS) for cycles in (start, end))
    return {
        "ph": "X", "name": name, "cat": category, "ts": starts, "dur": round(ends - starts, DIGITS), "pid": pid,
        "tid": tid,
    }  # fmt: skip


def _said(of: Timeline) -> dict[str, Any]:
    return {
        "problem": str(of.problem),
        "device": of.device.title,
        "program": of.program,
        "iterations": of.iterations,
        "cycles": of.cycles,
        "clock_hz": of.clock_hz,
    }
