"""What the warps of the best kernels wait for, read with the profiler: the stalls of docs/kernels.md.

python -m campaigns.stalls --out reports/stalls.jsonl [--records reports/cublas.jsonl]

Two launches, at 1024 and at 8192 cubed: of the tilings that were fastest in records of `benchmarks/cublas.py` where
these are given, else of those named below.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cublas import results
from gemmsim.errors import GemmsimError, InputError, MachineError
from gemmsim.gpu.counters import Run, complaint, profile, unknown_metrics
from gemmsim.gpu.machine import GpuMachine
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.record_files import check_writable, read_records
from gemmsim.records import Point
from gemmsim.streams import say
from gemmsim.units import count

SIZES = (1024, 8192)
TILES = {
    1024: {
        "block_m": 64, "block_n": 128, "block_k": 8, "warp_m": 32, "warp_n": 64, "thread_m": 8, "thread_n": 8,
        "stages": 5, "pad_a": 4,
    },
    8192: {
        "block_m": 192, "block_n": 128, "block_k": 8, "warp_m": 48, "warp_n": 64, "thread_m": 12, "thread_n": 8,
        "stages": 3, "pad_a": 4,
    },
}  # fmt: skip
REASONS = (
    "selected", "not_selected", "wait", "math_pipe_throttle", "dispatch_stall", "short_scoreboard", "mio_throttle",
    "long_scoreboard", "lg_throttle", "barrier", "branch_resolving", "no_instruction", "imc_miss", "membar", "drain",
    "sleeping", "misc", "tex_throttle",
)  # fmt: skip
"""Why a warp does not issue, in the profiler's words; "selected" is the warp that does."""
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
"""Warps that wait for a reason, for each instruction that is issued."""
REST = {
    "issue slots used": "smsp__issue_active.avg.per_cycle_active",
    "warps of a sub-core": "smsp__warps_active.avg.per_cycle_active",
    "of them ready": "smsp__warps_eligible.avg.per_cycle_active",
    "cycles of a sub-core": "smsp__cycles_active.avg",
    "cycles": "sm__cycles_elapsed.max",
    "instructions": "smsp__inst_executed.sum",
    "shared wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",
    "hits in L2, percent": "lts__t_sector_hit_rate.pct",
    "bytes read from memory": "dram__bytes_read.sum",
}
METRICS = {**{reason: STALL.format(reason) for reason in REASONS}, **REST}


def chosen(records: Path | None) -> list[Point]:
    """The points: the fastest of the records, or those named here."""
    fastest = (
        {problem: some[0].record.point for problem, some in results(read_records(records)[0]).items()}
        if records
        else {}
    )
    named = [Point(Problem(size, size, size), "async", KERNELS["async"].tiling(**TILES[size])) for size in SIZES]
    return [fastest.get(point.problem, point) for point in named]


def read(points: Sequence[Point]) -> list[dict[str, float]]:
    """The metrics of each point by our names; those that this profiler does not know are left out.

    Raises MachineError where it counted nothing.
    """
    metrics = dict(METRICS)
    for _ in range(2):
        run = profile(points, list(metrics.values()))
        if len(run.rows) == len(points):
            return named(run, metrics)
        unknown = {name for name, metric in metrics.items() if metric in unknown_metrics(run.log)}
        if not unknown:
            break
        say(f"the profiler does not know: {', '.join(sorted(unknown))}")
        metrics = {name: metric for name, metric in metrics.items() if name not in unknown}
    raise MachineError(f"the profiler counted nothing: {complaint(run.log) or 'it gave no reason'}")


def named(run: Run, metrics: Mapping[str, str]) -> list[dict[str, float]]:
    """What a run has of each launch, by our names."""
    return [
        {name: row.metrics[metric] for name, metric in metrics.items() if metric in row.metrics} for row in run.rows
    ]


def shares(values: Mapping[str, float]) -> dict[str, float]:
    """Of the time of a warp what it spends on each reason: the sum is 1."""
    found = {reason: values[reason] for reason in REASONS if reason in values}
    return {reason: value / sum(found.values()) for reason, value in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0, 2 for unusable input, 3 where this machine cannot."""
    parser = argparse.ArgumentParser(prog="campaigns.stalls", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("reports/stalls.jsonl"), help="a line of JSON for each launch")
    parser.add_argument("--records", type=Path, help="records of benchmarks/cublas.py, to take the fastest tilings of")
    options = parser.parse_args(arguments)
    try:
        check_writable(options.out)
        points = chosen(options.records)
        with GpuMachine() as machine:
            for failure in filter(None, machine.prepare(points, lambda done, of: say(f"compiled {done} of {of}"))):
                raise InputError(failure.reason)
        values = read(points)
        lines = [{"point": point.to_dict(), "metrics": each} for point, each in zip(points, values, strict=True)]
        options.out.write_text("".join(json.dumps(line) + "\n" for line in lines))
    except GemmsimError as error:
        print(f"campaigns.stalls: {error}", file=sys.stderr)
        return error.exit_status
    show(points, values)
    return 0


def show(points: Sequence[Point], values: Sequence[Mapping[str, float]]) -> None:
    """The tables for people: what a warp does with its time, and the rest."""
    from gemmsim.console import table

    of_points, titles = [shares(each) for each in values], [f"{point.problem.m} cubed" for point in points]
    reasons = [reason for reason in REASONS if any(reason in each for each in of_points)]
    rows = [[reason.replace("_", " "), *(f"{each.get(reason, 0):.1%}" for each in of_points)] for reason in reasons]
    table("; ".join(map(str, points)), ("of a warp's time", *titles), rows)
    rest = [[name, *(number(each.get(name)) for each in values)] for name in REST]
    table("", ("", *titles), rest)


def number(value: float | None) -> str:
    """A count whole, anything smaller with three digits."""
    return "-" if value is None else count(value) if value >= 1000 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
