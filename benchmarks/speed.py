"""Times the program itself against what it promises; exit status 1 when a promise is missed.

Each figure is the best of several runs, since others on the machine can only add to it.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from time import perf_counter

from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.traffic import traffic

TEXTBOOK = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}
EXPLAIN = ("explain", "2048", "--kernel", "double_buffer", "--tile", "128x128x8", "--thread", "8x8", "--json")


def best_s(work: Callable[[], object], runs: int) -> float:
    """Seconds that the fastest of the runs took."""
    times_s = []
    for _ in range(runs):
        start_s = perf_counter()
        work()
        times_s.append(perf_counter() - start_s)
    return min(times_s)


def python(*arguments: str) -> str:
    """What a fresh interpreter prints."""
    return subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.PIPE, text=True).stdout


def import_s(modules: str, runs: int) -> float:
    """Seconds that the fastest import took in a fresh interpreter, NumPy being there."""
    timed = f"import numpy, time; start_s = time.perf_counter(); import {modules}; print(time.perf_counter() - start_s)"
    return min(float(python("-c", timed)) for _ in range(runs))


def ragged_problems() -> Callable[[], Problem]:
    """A source of problems that no cache has seen."""
    sizes = iter(range(1000, 10**6))
    return lambda: Problem(next(sizes), 2 * next(sizes) + 1, next(sizes))


def main() -> int:
    """Print what each thing takes and what it may take, in milliseconds."""
    of = kernel("double_buffer")
    tiling, h200, fresh = of.tiling(**TEXTBOOK), device("h200"), ragged_problems()
    measured = (
        ("import gemmsim, beyond NumPy", import_s("gemmsim", 5), 0.150),
        ("import the whole model, beyond NumPy", import_s("gemmsim.compare", 5), 0.150),
        ("one predict call, sizes not seen before", best_s(lambda: predict(fresh(), of, tiling, h200), 200), 0.001),
        ("one traffic call, sizes not seen before", best_s(lambda: traffic(fresh(), of, tiling), 50), None),
        ("gemmsim explain, from the shell", best_s(lambda: python("-m", "gemmsim", *EXPLAIN), 5), 1.0),
    )
    for what, time_s, most_s in measured:
        print(f"{what:40} {time_s * 1e3:8.2f} ms" + (f", at most {most_s * 1e3:.0f} ms" if most_s else ""))
    return int(any(most_s is not None and time_s > most_s for _, time_s, most_s in measured))


if __name__ == "__main__":
    sys.exit(main())
