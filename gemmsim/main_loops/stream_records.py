"""Measured instruction streams, shipped as records, and what the simulator says of them.

A record has the cycles of loops in which a stream stands several times, run for few and for many trips, with 1, 2, 4
and 8 warps a sub-core. What a loop takes beyond its stream is taken from the fastest stream of FFMA alone in the same
file, which takes a cycle an instruction: the same loop around other instructions.
"""

from __future__ import annotations

import hashlib
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmsim.device import DATA
from gemmsim.errors import InputError
from gemmsim.machine_code.loop_bodies import LoopBody, loop_body_of
from gemmsim.main_loops.port_streams import MixedReport, simulate_bodies
from gemmsim.units import plural

SHIPPED = DATA / "records" / "register_streams_h200.jsonl"
LOOP_INSTRUCTIONS = 256
"""A loop about so long is judged: a longer one waits for its instructions to be fetched where there is one warp, and
a shorter one is more loop than stream."""

Samples = Mapping[tuple[int, int], Sequence[int]]
"""{(copies of the stream in the loop, trips): cycles of each run}."""


@dataclass(frozen=True)
class StreamRecord:
    """A stream and its samples by warps a sub-core."""

    body: LoopBody
    samples: Mapping[int, Samples]

    @property
    def mixed(self) -> bool:
        """Whether it has other instructions than FFMA."""
        return self.body.ffma < len(self.body.code)

    @property
    def plain(self) -> bool:
        """Whether every instruction is issued as soon as can be, as compilers have it within a main loop."""
        return set(self.body.stalls) == {1} and set(self.body.yield_bits) == {1}

    @property
    def held_out(self) -> bool:
        """Whether it took no part in finding the rules: a half of all, by the hash of the name."""
        return hashlib.sha256(self.body.name.encode()).digest()[0] % 2 == 1

    def loop_cycles(self, warps: int) -> tuple[float, int]:
        """(cycles of a trip of the loop for each warp, copies of the stream in it); start and end are taken off."""
        samples = self.samples[warps]
        copies = min({each for each, _ in samples}, key=lambda c: abs(c * len(self.body.code) - LOOP_INSTRUCTIONS))
        trips = [trips for each, trips in samples if each == copies]
        few, many = min(trips), max(trips)
        taken = statistics.median(samples[copies, many]) - statistics.median(samples[copies, few])
        return taken / (many - few) / warps, copies


@dataclass(frozen=True)
class Judged:
    """A stream: the cycles that a pass takes for each warp, predicted and measured, by the number of warps."""

    record: StreamRecord
    reports: Mapping[int, MixedReport]
    measured_cycles: Mapping[int, float]

    @property
    def errors(self) -> Mapping[int, float]:
        """{warps: predicted over measured, minus 1}."""
        return {warps: self.reports[warps].cycles / cycles - 1 for warps, cycles in self.measured_cycles.items()}


def read_streams(path: str | Path = SHIPPED) -> list[StreamRecord]:
    """The records of a file, those that failed left out; InputError, with its number, for a line that is none."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path}: {getattr(error, 'strerror', None) or 'it is no text'}") from None
    found = []
    for number, line in enumerate(lines, 1):
        try:
            data = json.loads(line)
            if "failure" not in data:
                found.append(StreamRecord(loop_body_of(data, f"{path}, line {number}"), _samples(data["samples"])))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InputError(f"{path}, line {number}: not the record of a stream") from None
    if not found:
        raise InputError(f"{path}: no stream in it")
    return found


def _samples(data: Mapping[str, Any]) -> dict[int, Samples]:
    return {
        int(warps): {(int(each["copies"]), int(each["trips"])): each["cycles"] for each in rows}
        for warps, rows in data.items()
    }


def judge(records: Sequence[StreamRecord]) -> list[Judged]:
    """Each record beside its simulation, for each number of warps: more than one change nothing where nothing stalls.

    Raises InputError where no stream of FFMA alone is among them.
    """
    warps = sorted({each for record in records for each in record.samples})
    overhead = {each: loop_overhead_cycles(records, each) for each in warps}
    alone = simulate_bodies([record.body for record in records])
    stalling = [number for number, record in enumerate(records) if not record.plain]
    reports = {each: list(alone) for each in warps}
    for each in warps:
        for number, report in zip(
            stalling, simulate_bodies([records[number].body for number in stalling], warps=each), strict=True
        ):
            reports[each][number] = report
    return [
        Judged(
            record,
            {each: reports[each][number] for each in record.samples},
            {each: _pass_cycles(record, each, overhead[each]) for each in record.samples},
        )
        for number, record in enumerate(records)
    ]


def loop_overhead_cycles(records: Sequence[StreamRecord], warps: int) -> float:
    """Cycles of a trip that are the loop's own, for each warp: what the fastest stream of FFMA alone takes beyond a
    cycle an instruction."""
    alone = [record for record in records if not record.mixed and warps in record.samples]
    if not alone:
        raise InputError(
            f"no stream of FFMA alone was measured with {plural(warps, 'warp')}, so the loop's own time is not known"
        )
    return min(
        cycles - copies * len(record.body.code) for record in alone for cycles, copies in [record.loop_cycles(warps)]
    )


def _pass_cycles(record: StreamRecord, warps: int, overhead_cycles: float) -> float:
    cycles, copies = record.loop_cycles(warps)
    return (cycles - overhead_cycles) / copies
