"""Verify every kernel, in tilings of every kind, at random shapes: each result against a float64 product.

python -m campaigns.shapes [--out reports/shapes.jsonl]      on a GPU, under a minute once compiled
python -m campaigns.shapes --compile                         compiles for an H200, without a GPU

The product and the comparison run on the GPU (`gemmsim/gpu/reference.py`), where C and what surrounds it was poisoned.
The same kernel serves all shapes whose rows are aligned alike, so that a few dozen are compiled for thousands of
launches; where k is split it is compiled with room for the largest shape. Exit status 1 when a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gemmsim.device import Capability, capability, device
from gemmsim.errors import GemmsimError, MachineError, one_line
from gemmsim.gpu.compile import Cubin, Job, compile_all
from gemmsim.gpu.reference import Judge, job
from gemmsim.gpu.run import Buffers, LoadedKernel, load
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.verify import fresh_seed, random_operands
from gemmsim.kernels import KERNELS, Kernel, Launch
from gemmsim.problem import Problem, ceil_div
from gemmsim.record_files import check_writable
from gemmsim.records import Point
from gemmsim.streams import say
from gemmsim.tiling import Tiling

SHAPES, LARGEST, SEED = 210, 3000, 20261
THREADED = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
OF_WARPS = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")

TILINGS: dict[str, tuple[tuple[str, dict[str, int]], ...]] = {
    "naive": (("8x32", {}), ("1x96", {})),
    "shared": (("32x32x32", {}), ("16x8x64", {"pad_a": 1}), ("16x32x12", {"pad_a": 2, "pad_b": 1})),
    "register": (("128x128x8x8x8", {}), ("64x64x16x4x4", {"pad_a": 1}), ("96x48x6x6x3", {"pad_b": 2})),
    "vectorized": (
        ("128x128x8x8x8", {"swizzle": 16}),
        ("64x64x16x4x4", {"pad_a": 4, "pad_b": 4}),
        ("64x32x8x4x2", {"vector": 2, "swizzle": 4}),
        ("48x40x5x3x5", {"vector": 1}),
    ),
    "double_buffer": (
        ("128x128x16x8x8", {"pad_a": 4}),
        ("64x128x16x4x8", {"swizzle": 8}),
        ("32x48x2x2x3", {"vector": 1, "pad_b": 1}),
    ),
    "warp_tiled": (
        ("128x128x8x64x64x16x8", {"pad_a": 4}),
        ("64x64x16x32x32x8x4", {"pad_a": 4, "pad_b": 4}),
        ("32x32x12x16x16x4x2", {}),
    ),
    "async": (
        ("128x256x8x64x64x16x8", {"pad_a": 4, "group": 8}),
        ("64x128x8x32x64x8x8", {"stages": 5, "pad_a": 4, "pad_b": 4}),
        ("32x32x16x16x16x4x2", {"stages": 2}),
        ("96x128x8x48x64x12x8", {"pad_a": 8, "split_k": 3}),
        ("64x64x8x32x32x8x4", {"stages": 4, "split_k": 2, "group": 3}),
        ("32x64x8x8x16x4x1", {"split_k": 7}),
        ("64x64x12x32x64x8x8", {"pad_a": 4, "split_k": 20}),
    ),
}


@dataclass(frozen=True)
class Outcome:
    """What became of a point: the largest error of an element over its norms, or what is wrong."""

    point: Point
    error: float
    failure: str | None


def shapes(count: int = SHAPES, largest: int = LARGEST) -> list[Problem]:
    """Random problems, always the same: no size occurs twice."""
    sizes = np.random.default_rng(SEED).permutation(np.arange(1, largest + 1))[: 3 * count].reshape(count, 3)
    return [Problem(int(m), int(n), int(k)) for m, n, k in sizes]


def tilings(kernel: Kernel) -> list[Tiling]:
    """The tilings of a kernel that are verified."""
    names = OF_WARPS if kernel.warp_tiled else THREADED
    return [
        kernel.tiling(**dict(zip(names, map(int, text.split("x")), strict=False)), **more)
        for text, more in TILINGS[kernel.name]
    ]


def points(problem: Problem) -> list[Point]:
    """Every kernel in every one of its tilings at one problem."""
    return [Point(problem, kernel.name, tiling) for kernel in KERNELS.values() for tiling in tilings(kernel)]


def launch(point: Point, largest: int = LARGEST) -> Launch:
    """The launch of a point, of a kernel with room for the partial sums of the largest problem."""
    tiling = point.tiling
    found = KERNELS[point.kernel].launch(point.problem, tiling)
    if tiling.split_k == 1:
        return found
    room = ceil_div(largest, tiling.block_m) * ceil_div(largest, tiling.block_n)
    return replace(found, macros={**found.macros, "TILES": room})


def jobs(problems: Iterable[Problem], on: Capability) -> dict[tuple[object, ...], Job]:
    """What the launches of all problems need compiled, each once."""
    return {
        key(point, of): Job(KERNELS[point.kernel], of, on)
        for problem in problems
        for point in points(problem)
        if KERNELS[point.kernel].runs_on(on.name)
        for of in [launch(point)]
    }


def key(point: Point, of: Launch) -> tuple[object, ...]:
    """The same for launches of the same compiled kernel."""
    return (point.kernel, *sorted(of.macros.items()))


def verified(gpu: Gpu, problems: Sequence[Problem]) -> Iterator[Outcome]:
    """The outcome of every point of the problems that this GPU can run.

    Raises InputError where a kernel does not compile, MachineError where a launch fails.
    """
    on = capability(gpu.facts.capability)
    wanted = jobs(problems, on)
    cubins = dict(zip(wanted, compiled(list(wanted.values())), strict=True))
    judge, kernels = Judge(gpu), dict[tuple[object, ...], LoadedKernel]()
    for number, problem in enumerate(problems):
        say(f"{problem}: {number + 1} of {len(problems)}")
        runnable = [point for point in points(problem) if KERNELS[point.kernel].runs_on(on.name)]
        a, b = random_operands(problem, fresh_seed())
        with Buffers(gpu, runnable[0], a, b) as buffers, judge.reference(problem, buffers, a, b) as reference:
            for point in runnable:
                of = launch(point)
                name = key(point, of)
                try:
                    if name not in kernels:
                        kernels[name] = load(gpu, cubins[name], of)
                    buffers.poison_c()
                    buffers.launcher(replace(kernels[name], launch=of))()()
                    found = reference.verdict()
                except gpu.driver.Error as error:
                    raise MachineError(f"{point}: launch failed: {one_line(error)}") from None
                yield Outcome(point, found.error, found.failure)


def compiled(wanted: Sequence[Job]) -> list[Cubin]:
    """The cubins of all. Raises InputError where one does not compile."""
    return compile_all(wanted, progress=lambda done, of: say(f"compiled {done} of {of}"))


def summary(outcomes: Iterable[Outcome]) -> list[tuple[str, ...]]:
    """Of every kernel and tiling, in words: how many shapes, how many right, and the largest error."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for each in outcomes:
        found.setdefault((each.point.kernel, KERNELS[each.point.kernel].describe(each.point.tiling)), []).append(each)
    return [
        (*name, str(len(some)), str(sum(each.failure is None for each in some)), f"{worst(some):.1e}")
        for name, some in found.items()
    ]


def worst(outcomes: Iterable[Outcome]) -> float:
    """The largest error of those that are right; 0 where there are none."""
    return max((each.error for each in outcomes if each.failure is None), default=0.0)


def main() -> int:
    """Exit status 0, 1 when a result is wrong, 2 for unusable input, 3 where this machine cannot."""
    parser = argparse.ArgumentParser(prog="campaigns.shapes", description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help="a line of JSON for every launch")
    parser.add_argument("--device", default="h200", help="what --compile compiles for (default: h200)")
    parser.add_argument("--compile", action="store_true", help="compile the kernels, and stop")
    arguments = parser.parse_args()
    problems = shapes()
    try:
        if arguments.compile:
            on = device(arguments.device).capability
            compiled([*jobs(problems, on).values(), job(on)])
            return 0
        if arguments.out:
            check_writable(arguments.out)
        outcomes = []
        with ExitStack() as stack:
            file = stack.enter_context(open(arguments.out, "w", encoding="utf-8")) if arguments.out else None
            for outcome in verified(stack.enter_context(Gpu()), problems):
                outcomes.append(outcome)
                if file:
                    print(json.dumps(line_of(outcome)), file=file, flush=True)
    except GemmsimError as error:
        print(f"campaigns.shapes: {error}", file=sys.stderr)
        return error.exit_status
    from gemmsim.console import line, table

    columns = ("kernel", "tiling", "shapes", "right", "largest error")
    table(f"{len(problems)} random shapes up to {LARGEST}", columns, summary(outcomes), text=(0, 1))
    wrong = [each for each in outcomes if each.failure]
    for each in wrong:
        line(f"{each.point}: {each.failure}")
    return int(bool(wrong))


def line_of(outcome: Outcome) -> dict[str, object]:
    """An outcome as JSON has it."""
    error = None if outcome.failure else outcome.error
    return {"point": outcome.point.to_dict(), "error": error, "failure": outcome.failure}


if __name__ == "__main__":
    sys.exit(main())
