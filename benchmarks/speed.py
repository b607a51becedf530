"""Times the program itself, as ratios against a reference in the same run; exit status 1 when a promise is missed.

Each figure is the best of several runs, since others on the machine can only add to it. A ratio is
the reference's time over ours: how many times faster ours is.
"""

from __future__ import annotations

import itertools
import os
import statistics
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

import brute

from gemmsim.accesses.costs import access_costs, operand_costs
from gemmsim.banks import passes
from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.occupancy import occupancy
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.register_table import key_of_launch
from gemmsim.tiling import Tiling
from gemmsim.traffic import traffic

CACHES = (access_costs, operand_costs, key_of_launch)
"""What is kept of tilings that have been seen; not what many tilings share, such as runs of lanes."""

EXPLAIN = ("explain", "2048", "--kernel", "double_buffer", "--tile", "128x128x8", "--thread", "8x8", "--json")
BYTECODE = TemporaryDirectory()
H200 = device("h200")
CUBE = Problem(4096, 4096, 4096)
KERNEL = kernel("double_buffer")
TILING = KERNEL.tiling(block_m=128, block_n=128, block_k=8, thread_m=8, thread_n=8)
SMALL = KERNEL.tiling(block_m=16, block_n=16, block_k=8, thread_m=4, thread_n=4)


def best_s(work: Callable[[], object], runs: int) -> float:
    """Seconds that the fastest of the runs took."""
    times_s = []
    for _ in range(runs):
        start_s = perf_counter()
        work()
        times_s.append(perf_counter() - start_s)
    return min(times_s)


def python(*arguments: str) -> None:
    """A fresh interpreter, run to its end; it keeps its bytecode, wherever this one does."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": BYTECODE.name}
    words = [sys.executable, *arguments]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env={**os.environ, **kept})


def peak_bytes(work: Callable[[], object]) -> int:
    """The most memory that Python and NumPy held at once during the work, beyond what they held before."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def ragged_problems() -> Callable[[], Problem]:
    """A source of problems that no cache has seen."""
    sizes = iter(range(1000, 10**6))
    return lambda: Problem(next(sizes), 2 * next(sizes) + 1, next(sizes))


def promises() -> list[tuple[str, float, float]]:
    """(what, seconds, seconds that it may take)."""
    fresh = ragged_problems()
    numpy_s = best_s(lambda: python("-c", "import numpy"), 10)
    return [
        ("import gemmsim, beyond NumPy", best_s(lambda: python("-c", "import numpy, gemmsim"), 10) - numpy_s, 0.150),
        ("the whole model, beyond NumPy", best_s(lambda: python("-c", "import gemmsim.compare"), 10) - numpy_s, 0.150),
        ("one prediction, size not seen before", best_s(lambda: predict(fresh(), KERNEL, TILING, H200), 200), 0.001),
        ("one prediction, tiling not seen before", unseen_tilings_s(), 0.001),
        ("one traffic, size not seen before", best_s(lambda: traffic(fresh(), KERNEL, TILING), 50), 0.050),
        ("gemmsim explain, from the shell", best_s(lambda: python("-m", "gemmsim", *EXPLAIN), 5), 1.0),
    ]


def unseen_tilings_s() -> float:
    """Seconds of a prediction in a tiling that no cache knows, so that every lane is counted: on average over some,
    each the best of several."""
    shapes = itertools.product((64, 96, 128), (64, 128), (8, 16), (4, 8), (4, 8), (0, 4))
    names = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "pad_a")
    tilings = [KERNEL.tiling(**dict(zip(names, shape, strict=True))) for shape in shapes]

    def unseen_s(tiling: Tiling) -> float:
        for cached in CACHES:
            cached.cache_clear()
        return best_s(lambda: predict(CUBE, KERNEL, tiling, H200), 1)

    return statistics.mean(min(unseen_s(tiling) for _ in range(20)) for tiling in tilings)


def ratios() -> list[tuple[str, float, float]]:
    """(what, seconds of ours, seconds of the reference), each for the same amount of work."""
    random = np.random.default_rng(0)
    sizes = random.integers(1, 10_000, (3, 1000))
    threads, registers = random.integers(1, 1025, 2000), random.integers(1, 256, 2000)
    warps = random.integers(0, 256, (1000, 32)) * 16
    lanes = [dict(enumerate(map(int, warp))) for warp in warps]
    odd, small, large = Problem(67, 45, 30), Problem(64, 64, 64), Problem(65536, 65536, 65536)

    def each_alone() -> None:
        for m, n, k in sizes.T:
            predict(Problem(m, n, k), KERNEL, TILING, H200)

    def each_occupancy() -> None:
        for t, r in zip(threads.tolist(), registers.tolist(), strict=True):
            occupancy(H200.capability, t, r)

    return [
        (
            "1000 predictions in one array / one by one",
            best_s(lambda: predict(Problem(*sizes), KERNEL, TILING, H200), 10),
            best_s(each_alone, 2),
        ),
        (
            "2000 occupancies in one array / one by one",
            best_s(lambda: occupancy(H200.capability, threads, registers), 10),
            best_s(each_occupancy, 2),
        ),
        (
            "1000 warps of 128-bit loads / word by word",
            best_s(lambda: passes(warps, True, 16, store=False), 10),
            best_s(lambda: [brute.slow_passes(lane, 16, False) for lane in lanes], 1),
        ),
        (
            "traffic of 67 x 45 x 30 / every address of it",
            best_s(lambda: traffic(odd, KERNEL, SMALL), 20),
            best_s(lambda: brute.launch("double_buffer", 67, 45, 30, SMALL), 2),
        ),
        (
            "traffic of 65536 cubed / of 64 cubed",
            best_s(lambda: traffic(large, KERNEL, TILING), 20),
            best_s(lambda: traffic(small, KERNEL, TILING), 20),
        ),
    ]


def main() -> int:
    """Print what each thing takes, what it may take, and how it compares."""
    kept = True
    for what, time_s, most_s in promises():
        kept &= time_s <= most_s
        print(f"{what:46} {time_s * 1e3:9.3f} ms, at most {most_s * 1e3:.0f} ms")
    for what, ours_s, reference_s in ratios():
        print(f"{what:46} {ours_s * 1e3:9.3f} ms / {reference_s * 1e3:9.3f} ms: ratio {reference_s / ours_s:.1f}")
    sizes = np.arange(1, 100_001)
    peak = peak_bytes(lambda: predict(Problem(sizes, sizes, sizes), KERNEL, TILING, H200))
    print(f"{'peak memory of 100,000 predictions':46} {peak / 1e6:9.3f} MB: {peak / len(sizes):.0f} bytes each")
    return int(not kept)


if __name__ == "__main__":
    sys.exit(main())
