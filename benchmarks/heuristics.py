"""The problems of the cuBLAS benchmark through NVIDIA's matmul heuristics, beside measured and our predicted times.

python -m benchmarks.heuristics [RECORDS.jsonl]     the shipped records beside cuBLAS if left out, or those in reports/

The library (`pip install gemmsim[heuristics]`; it needs no GPU) proposes kernels for a single-precision product on an
H200 and says how long each takes; its first proposal is held against cuBLAS's median. Our prediction of our fastest
measured tiling is held against the median of that. Then both predict configurations for the clock, in the same run.
Where the library or the records are missing there is nothing to do. Exit status 1 when ours takes longer than promised.
"""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np

from benchmarks.cublas import Result, results
from benchmarks.search import best_cpu_s
from gemmsim.compare.ranking import kendall_tau
from gemmsim.device import Device, device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS
from gemmsim.kernels import kernel as kernel_named
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.routes import predicted_time
from gemmsim.search import spaces_of
from gemmsim.search.quick_times import quick_times

PACKAGE = "nvidia-matmul-heuristics"
MEASURED = Path(__file__).parent.parent / "reports" / "cublas.jsonl"
H200 = device("h200")
TIMED, RUNS = 100_000, 5
MOST_S = 0.33e-6
"""What a configuration may take on the analytic route, many at once."""

ASKED = """
import ctypes, json, sys
from time import process_time
import nvMatmulHeuristics as nv
target, layout = nv.NvMatmulHeuristicsTarget.GENERIC, nv.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR
asked = nv.NvMatmulHeuristicsInterface(target, precision="SSS")
gpu = asked.createHardwareDescriptor()
asked.setHardwarePredefinedGpu(gpu, nv.NvMatmulHeuristicsNvidiaGpu.H200_SXM)
asked.loadInternalDiscoverySet(layout, gpu)
estimate, proposals, spent_s, estimated = asked.nvMatmulHeuristicsEstimateRuntime, [], 0.0, 0
for m, n, k in json.load(sys.stdin):
    problem = asked.makeNvMatmulHeuristicsProblem(m, n, k, layout)
    found = asked.get(problem, 64, gpu)
    proposals.append([each["runtime"] for each in found])
    calls = [(asked.handle, b"SSS", ctypes.c_int(target), ctypes.byref(problem),
              ctypes.byref(each["nvmmhKernelConfiguration"]), gpu) for each in found] * 20
    start_s = process_time()
    for call in calls:
        estimate(*call)
    spent_s, estimated = spent_s + process_time() - start_s, estimated + len(calls)
print(json.dumps({"proposals": proposals, "each_s": spent_s / estimated}), flush=True)
"""
"""In a process of its own, because a library that fails takes its process along, as this one does when Python ends."""


@dataclass(frozen=True)
class Row:
    """One problem: seconds that the library proposes, best first, cuBLAS's median, our prediction and our median."""

    problem: Problem
    proposed_s: Sequence[float]
    cublas_s: float
    predicted_s: float
    ours_s: float

    @property
    def library_error(self) -> float:
        """The library's first proposal over cuBLAS, minus 1."""
        return self.proposed_s[0] / self.cublas_s - 1

    @property
    def our_error(self) -> float:
        """Our prediction over our median, minus 1."""
        return self.predicted_s / self.ours_s - 1


def proposals(problems: Sequence[Problem]) -> tuple[list[list[float]], float]:
    """(seconds that the library gives each of its proposals, problem by problem; seconds an estimate takes).

    Raises InputError where the library is not installed, or does not run here.
    """
    sizes = json.dumps([(each.m, each.n, each.k) for each in problems])
    done = subprocess.run([sys.executable, "-c", ASKED], input=sizes, capture_output=True, text=True)
    if not done.stdout:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise InputError(f"{PACKAGE} does not run here: {last}")
    answer = json.loads(done.stdout)
    return answer["proposals"], answer["each_s"]


def fastest(path: Path) -> dict[Problem, Result]:
    """Our fastest measured tiling of each problem, beside cuBLAS, in the order of work."""
    found = results(read_records(path)[0])
    return {problem: found[problem][0] for problem in sorted(found, key=lambda each: int(each.flop))}


def rows(best: Mapping[Problem, Result], proposed: Sequence[Sequence[float]], on: Device) -> list[Row]:
    """The table: problems for which the library proposes something."""
    found = []
    for (problem, result), times_s in zip(best.items(), proposed, strict=True):
        point = result.record.point
        ours = predicted_time(problem, kernel_named(point.kernel), point.tiling, on, **result.record.compiled)
        if times_s:
            found.append(Row(problem, times_s, result.cublas_s, float(ours.time_s), result.median_s))
    return found


def show(found: Sequence[Row]) -> None:
    """Print the table and what it comes to."""
    columns = ("library", "cuBLAS", "error", "alike", "ours", "measured", "error")
    print(f"{'problem':>20}" + "".join(f"{column:>11}" for column in columns))
    for row in found:
        alike = sum(abs(time_s / row.proposed_s[0] - 1) < 1e-3 for time_s in row.proposed_s)
        print(
            f"{f'{row.problem.m} x {row.problem.n} x {row.problem.k}':>20}"
            f"{row.proposed_s[0] * 1e6:11.1f}{row.cublas_s * 1e6:11.1f}{row.library_error:+11.1%}"
            f"{f'{alike} of {len(row.proposed_s)}':>11}"
            f"{row.predicted_s * 1e6:11.1f}{row.ours_s * 1e6:11.1f}{row.our_error:+11.1%}"
        )
    theirs, ours = ([abs(error) for error in errors] for errors in zip(
        *((row.library_error, row.our_error) for row in found), strict=True))  # fmt: skip
    orders = (
        kendall_tau([row.proposed_s[0] for row in found], [row.cublas_s for row in found]),
        kendall_tau([row.predicted_s for row in found], [row.ours_s for row in found]),
    )
    print("microseconds; alike: proposals whose time is that of the first within 0.1 %")
    for name, errors, order in (("library, of cuBLAS", theirs, orders[0]), ("ours, of ours", ours, orders[1])):
        print(f"{name:20} mean |error| {np.mean(errors):6.1%}, largest {max(errors):6.1%}, Kendall tau {order:.3f}")


def ours_each_s() -> tuple[float, float]:
    """Seconds of a configuration on the analytic route, the best of some runs: TIMED tilings of one problem, as a
    search goes over them; TIMED problems in one tiling, in full."""
    kernel, cube = KERNELS["warp_tiled"], Problem(4096, 4096, 4096)
    (of,) = spaces_of(cube, H200, [kernel])
    sizes_so_far = accumulate((table.count for table in of.tables()), initial=0)
    tables = [table for table, before in zip(of.tables(), sizes_so_far, strict=False) if before < TIMED]
    sizes = np.arange(1, TIMED + 1)
    problems, tiling = Problem(sizes, sizes, sizes), kernel.tiling(**dict(kernel.default_tile))
    many_s = best_cpu_s(lambda: [quick_times(cube, kernel, each.tilings, H200) for each in tables], RUNS)
    full_s = best_cpu_s(lambda: predict(problems, kernel, tiling, H200), RUNS)
    return many_s / sum(table.count for table in tables), full_s / TIMED


def main(arguments: Sequence[str]) -> int:
    """Print the table and the times; exit status 1 when a promise is missed."""
    try:
        version = importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        print(f"{PACKAGE} is not installed (pip install gemmsim[heuristics]); nothing to compare with")
        return 0
    try:
        path = Path(arguments[0]) if arguments else MEASURED if MEASURED.is_file() else shipped_records("cublas")
        best = fastest(path)
        proposed, each_s = proposals(list(best))
    except InputError as error:
        print(f"benchmarks.heuristics: {error}")
        return 0
    print(f"{PACKAGE} {version}, single precision on {H200.title}")
    show(rows(best, proposed, H200))
    ours_s, full_s = ours_each_s()
    print(
        f"a configuration: the library {each_s * 1e6:.2f} us; ours, {TIMED:,} tilings as a search goes over them"
        f" {ours_s * 1e6:.3f} us (at most {MOST_S * 1e6:.2f}), ratio {each_s / ours_s:.1f};"
        f" {TIMED:,} problems in full {full_s * 1e6:.2f} us"
    )
    return int(ours_s > MOST_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
