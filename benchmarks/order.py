"""How well predicted times order random configurations, once they are compiled: by either route, and by both.

python -m benchmarks.order

The 250 shipped random configurations of each of four problems, in the order of their measured medians. The analytic
route knows the registers and the local memory of each, the simulated one its program
(`campaigns/measured/random_programs.jsonl.xz`); the weighed mean of both is what `gemmsim predict --compile`
goes by. Some minutes; exit status 1 where that mean orders a problem worse than promised.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

from gemmsim.analytic.load_schedules import schedule_of
from gemmsim.calibration import calibration
from gemmsim.compare.ranking import Ranking
from gemmsim.device import device
from gemmsim.held_out import held_out
from gemmsim.kernels import kernel
from gemmsim.pipeline.program import Program
from gemmsim.pipeline.programs import code_macros, read_rows
from gemmsim.predict import predict
from gemmsim.record_files import read_records, shipped_records
from gemmsim.records import Record
from gemmsim.register_table import key_of, sources_hash
from gemmsim.routes import both_s
from gemmsim.simulated_times import simulated_s

H200 = device("h200")
PROGRAMS = Path(__file__).resolve().parents[1] / "campaigns" / "measured" / "random_programs.jsonl.xz"
LEAST_TAU = 0.90
"""What the mean of both routes must reach on each problem."""
ROUTES = ("analytic", "simulated", "mean of both")
Times = list[tuple[bool, float, list[float]]]
"""Of each record: whether it is held out, its median, and what the routes say, all in seconds."""


def predicted_s(record: Record, program: Program) -> list[float]:
    """What the routes say."""
    point, of = record.point, kernel(record.point.kernel)
    launch = point.problem, of, point.tiling, H200
    schedule = schedule_of(program, point.tiling) if of.staged else None
    found = predict(*launch, **record.compiled, schedule=schedule)
    analytic_s = float(found.time_s)
    by_simulation = simulated_s(*launch, program, int(found.occupancy.blocks_per_sm), calibration(H200))
    return [analytic_s, by_simulation, both_s(by_simulation, analytic_s, of.name)]


def times() -> dict[str, Times]:
    """The records of each problem whose program is known."""
    rows = {row.key: row for row in read_rows(PROGRAMS)}
    found: dict[str, Times] = defaultdict(list)
    for record in read_records(shipped_records("random"))[0]:
        point, of = record.point, kernel(record.point.kernel)
        row = rows.get(key_of(of.name, code_macros(of, point.problem, point.tiling)))
        if record.median_s is not None and row is not None and row.sources == sources_hash(of):
            said = predicted_s(record, Program.from_dict(dict(row.program)))
            found[str(point.problem)].append((held_out(point), record.median_s, said))
    return found


def kendall_tau(of: Times, route: int) -> float:
    """Of one route."""
    return Ranking(np.array([said[route] for *_, said in of]), np.array([s for _, s, _ in of])).kendall_tau


def main() -> int:
    """Print Kendall's tau of each problem and route: of all, and of those that are held out."""
    least = 1.0
    for problem, of in times().items():
        judged = [each for each in of if each[0]]
        print(f"{problem}: {len(of)} configurations, {len(judged)} of them held out")
        for number, route in enumerate(ROUTES):
            print(f"  {route:14} {kendall_tau(of, number):.3f}, of those held out {kendall_tau(judged, number):.3f}")
        least = min(least, kendall_tau(of, ROUTES.index("mean of both")))
    return int(least < LEAST_TAU)


if __name__ == "__main__":
    sys.exit(main())
