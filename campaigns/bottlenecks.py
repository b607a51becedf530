"""What bounds launches according to the profiler, beside what the model says.

python -m campaigns.bottlenecks --measure --out gemmsim/data/records/bottlenecks_h200.jsonl     on a GPU
python -m campaigns.bottlenecks --out gemmsim/data/records/bottlenecks_h200.jsonl               the table

The profiler's bottleneck is the unit that is busiest, if it is busy for 60 % of the time, else latency: then
nothing is busy, and warps wait.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from gemmsim.device import device
from gemmsim.errors import GemmsimError, InputError, MachineError
from gemmsim.gpu.counters import complaint, profile
from gemmsim.gpu.machine import GpuMachine
from gemmsim.kernels import KERNELS
from gemmsim.predict import BUSY
from gemmsim.record_files import check_writable, read_points
from gemmsim.records import Point
from gemmsim.routes import predicted_time
from gemmsim.streams import say

METRICS = {
    "issue": "smsp__issue_active.avg.pct_of_peak_sustained_active",
    "fma": "sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active",
    "data_stage": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_active",
    "l2": "lts__t_sectors.avg.pct_of_peak_sustained_elapsed",
    "dram": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_active": "sm__cycles_active.avg.pct_of_peak_sustained_elapsed",
    "long_scoreboard": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "barrier": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
}
UNITS = {"issue": "issue", "fma": "issue", "data_stage": "data_stage", "l2": "l2", "dram": "dram"}
"""The unit that each share speaks of; register ports are no unit of the profiler's: they show as issue slots."""
TERMS = {
    "ffma": "issue", "register_ports": "issue", "issue": "issue", "shared_memory": "data_stage", "l1": "data_stage",
    "l2": "l2", "dram": "dram", "latency": "latency", "launch": "latency",
}  # fmt: skip
POINTS_OF_KERNEL = 4


def points() -> list[Point]:
    """Some points of the timing campaign: for each kernel the first of as many sizes."""
    found: list[Point] = []
    for name in KERNELS:
        sizes: dict[str, Point] = {}
        for point in read_points(Path(__file__).parent / "times.jsonl"):
            if point.kernel == name and 1e8 < point.problem.flop < 4e10:
                sizes.setdefault(str(point.problem), point)
        found += list(sizes.values())[:POINTS_OF_KERNEL]
    return found


def bottleneck(metrics: Mapping[str, float]) -> str:
    """The unit that bounds a launch by the profiler's shares."""
    share, unit = max((metrics[name], unit) for name, unit in UNITS.items() if name in metrics)
    return unit if share >= 100 * BUSY else "latency"


def measure(out: Path) -> None:
    """Profile the points, and write a line for each."""
    check_writable(out)
    chosen = points()
    with GpuMachine() as machine:
        for failure in filter(None, machine.prepare(chosen, lambda done, of: say(f"compiled {done} of {of}"))):
            raise InputError(failure.reason)
    run = profile(chosen, list(METRICS.values()))
    if len(run.rows) != len(chosen):
        raise MachineError(f"the profiler counted nothing: {complaint(run.log) or 'it gave no reason'}")
    lines = [
        {
            "point": point.to_dict(),
            "metrics": {name: row.metrics[metric] for name, metric in METRICS.items() if metric in row.metrics},
        }
        for point, row in zip(chosen, run.rows, strict=True)
    ]
    out.write_text("".join(json.dumps(line) + "\n" for line in lines))


def rows(lines: Sequence[str]) -> list[tuple[Point, str, str, Mapping[str, float]]]:
    """(point, the model's unit, the profiler's, the metrics) of each line."""
    found = []
    for line in lines:
        data = json.loads(line)
        point = Point.from_dict(data["point"])
        said = predicted_time(point.problem, KERNELS[point.kernel], point.tiling, device("h200")).bound_by
        found.append((point, TERMS[str(said)], bottleneck(data["metrics"]), data["metrics"]))
    return found


def main() -> int:
    """Exit status 0, 2 for unusable input, 3 where this machine cannot."""
    parser = argparse.ArgumentParser(prog="campaigns.bottlenecks", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, required=True, help="where the lines are, or go to with --measure")
    parser.add_argument("--measure", action="store_true", help="profile on the GPU here")
    options = parser.parse_args()
    try:
        if options.measure:
            measure(options.out)
        found = rows(options.out.read_text().splitlines())
    except (GemmsimError, OSError) as error:
        print(f"campaigns.bottlenecks: {error}", file=sys.stderr)
        return getattr(error, "exit_status", 2)
    for point, model, profiler, metrics in found:
        shares = " ".join(f"{name} {value:.0f}" for name, value in metrics.items())
        print(f"{'' if model == profiler else 'DIFFERS '}{point}: model {model}, profiler {profiler} ({shares})")
    print(f"{sum(model == profiler for _, model, profiler, _ in found)} of {len(found)} agree")
    return 0


if __name__ == "__main__":
    sys.exit(main())
