"""Times the search of a whole space, on one core, against predicting one configuration after the other.

Exit status 1 when a promise is missed. Each figure is processor time, the best of several runs, since others on the
machine can only add to it. Memory is that of a process of its own, from its start to its end.
"""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from time import perf_counter, process_time
from typing import Any

from gemmsim.device import device
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.search import LEAST_KEPT, MARGIN, rank, spaces_of
from gemmsim.search.scoring import Best, scores
from gemmsim.search.spaces import Space
from gemmsim.search.tables import rows_of, size_of

H200 = device("h200")
CUBE = Problem(4096, 4096, 4096)
EVERYTHING = spaces_of(CUBE, H200)
LEAST_PER_S = 3_000_000
"""Configurations a second on one core that the ranking must reach."""
MOST_BYTES = 200_000_000
"""Most memory of a process that ranks, whatever the size of the space."""
LONGEST_S = 30.0
"""The ranking whose memory is taken goes no further, in seconds of processor time."""
LOOPED = 200
ORIGAMI_S = 0.4e-6
"""An estimate of ROCm's Origami, as its authors publish it."""
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def best_cpu_s(work: Callable[[], object], runs: int) -> float:
    """Seconds of processor time that the fastest of the runs took; nothing here uses more than one core."""
    times_s = []
    for _ in range(runs):
        start_s = process_time()
        work()
        times_s.append(process_time() - start_s)
    return min(times_s)


def enumeration() -> None:
    """Print how many configurations a second are enumerated and found legal, their launch left to the ranking."""
    total = sum(table.count for of in EVERYTHING for table in of.tables())
    time_s = best_cpu_s(lambda: [table for of in EVERYTHING for table in of.tables()], 3)
    print(f"{'enumerated and legal':46} {total / time_s:12,.0f} a second, of {total:,}")


def ranking() -> float:
    """How many configurations a second are ranked, printed kernel by kernel and beside a plain loop."""
    total, total_s = 0, 0.0
    for of in EVERYTHING:
        best = ranked(of)
        time_s = best_cpu_s(partial(ranked, of), 3)
        total, total_s = total + best.seen, total_s + time_s
        if best.seen > 10**5:
            print(f"{f'ranked, {of.kernel.name}':46} {best.seen / time_s:12,.0f} a second, of {best.seen:,}")
    start_s = perf_counter()
    found = rank(EVERYTHING)
    wall_s = perf_counter() - start_s
    loop_s = best_cpu_s(lambda: plain_loop(EVERYTHING), 2) / LOOPED
    per_s = total / total_s
    print(
        f"{'ranked, all kernels':46} {per_s:12,.0f} a second, at least {LEAST_PER_S:,}, of {total:,}; a plain loop"
        f" {1 / loop_s:,.0f}: ratio {per_s * loop_s:.0f}; Origami, as published, {1 / ORIGAMI_S:,.0f}: ratio"
        f" {per_s * ORIGAMI_S:.2f}"
    )
    print(
        f"{'a whole search, by the clock':46} {wall_s:12.1f} s: ranking {found.seconds:.1f} s, a closer look at the"
        f" first {found.refined_s:.1f} s"
    )
    return per_s


def ranked(of: Space) -> Best:
    """The best of a space by the quick route: enumeration, legality and ranking."""
    best = Best(LEAST_KEPT + MARGIN)
    for scored in scores(of):
        best.take(scored)
    return best


def plain_loop(spaces: Any) -> list[float]:
    """The times of the first configurations of a space, each predicted alone."""
    of = next(each for each in spaces if each.kernel.name == "warp_tiled")
    chunk = next(of.chunks())
    first = range(min(LOOPED, size_of(chunk)))
    tilings = [of.kernel.tiling(**of.kernel.tiling_dict(rows_of(chunk, at))) for at in first]
    return [float(predict(CUBE, of.kernel, tiling, H200).time_s) for tiling in tilings]


MEMORY = """
import resource, sys
from benchmarks.search import EVERYTHING, through
count = through(EVERYTHING, float(sys.argv[1]))
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""


def through(spaces: Any, longest_s: float) -> int:
    """Rank chunk after chunk for so many seconds at most; how many configurations that were."""
    start_s, best = process_time(), Best(LEAST_KEPT + MARGIN)
    for scored in (each for of in spaces for each in scores(of)):
        best.take(scored)
        if process_time() - start_s > longest_s:
            break
    return best.seen


def memory() -> bool:
    """Print the most memory that a ranking takes; whether that is as little as promised."""
    words = [sys.executable, "-c", MEMORY, str(LONGEST_S)]
    done = subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, **ONE_THREAD})
    count, peak_bytes = map(int, done.stdout.split())
    print(
        f"{f'most memory of a process that ranks {count:,}':46} {peak_bytes / 1e6:12.0f} MB, at most"
        f" {MOST_BYTES / 1e6:.0f}"
    )
    return peak_bytes <= MOST_BYTES


HEURISTICS = """
import ctypes
import nvMatmulHeuristics as nv
from benchmarks.search import CUBE, best_cpu_s
target = nv.NvMatmulHeuristicsTarget.GENERIC
asked = nv.NvMatmulHeuristicsInterface(target, precision="SSS")
gpu, layout = asked.createHardwareDescriptor(), nv.NvMatmulHeuristicsMatmulLayout.NN_ROW_MAJOR
asked.setHardwarePredefinedGpu(gpu, nv.NvMatmulHeuristicsNvidiaGpu.H200_SXM)
asked.loadInternalDiscoverySet(layout, gpu)
problem = asked.makeNvMatmulHeuristicsProblem(CUBE.m, CUBE.n, CUBE.k, layout)
found = asked.get(problem, 64, gpu)
kernels = [ctypes.byref(each["nvmmhKernelConfiguration"]) for each in found]
calls = [(asked.handle, b"SSS", ctypes.c_int(target), ctypes.byref(problem), each, gpu) for each in kernels]
estimate = asked.nvMatmulHeuristicsEstimateRuntime
assert [estimate(*call) for call in calls] == [each["runtime"] for each in found]
once = lambda: [estimate(*call) for call in calls * 100]
print(len(found), best_cpu_s(once, 5) / (100 * len(found)), flush=True)
"""
"""In a process of its own, because a library that fails there takes its process along."""


def heuristics(ours_per_s: float) -> None:
    """Print how long an estimate of NVIDIA's matmul heuristics takes, where these are installed."""
    try:
        version = importlib.metadata.version("nvidia-matmul-heuristics")
    except importlib.metadata.PackageNotFoundError:
        print(f"{'nvidia-matmul-heuristics':46} not installed (pip install nvidia-matmul-heuristics)")
        return
    done = subprocess.run([sys.executable, "-c", HEURISTICS], capture_output=True, text=True)
    if not done.stdout:
        print(f"{'nvidia-matmul-heuristics':46} does not run here: {done.stderr.strip().splitlines()[-1:]}")
        return
    kernels, each_s = done.stdout.split()
    print(
        f"{f'nvidia-matmul-heuristics {version}, runtime of {kernels}':46} {1 / float(each_s):12,.0f} a second,"
        f" {1e6 * float(each_s):.2f} us each: ratio {ours_per_s * float(each_s):.1f}"
    )


def main() -> int:
    """Print all of it, and say whether promises are kept."""
    enumeration()
    per_s = ranking()
    heuristics(per_s)
    kept = [per_s >= LEAST_PER_S, memory()]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
