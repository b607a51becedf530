"""Points that hold the predicted times against measured ones, and what measures many of them in little time.

python -m campaigns.times                     print the points, as campaigns/times.jsonl has them
python -m campaigns.times --draw NUMBER       the second, third or fourth as many, as campaigns/times_again.jsonl,
                                              times_third.jsonl and times_fourth.jsonl have them
python -m campaigns.times --random            print random legal configurations, as campaigns/random.jsonl has them
python -m campaigns.times --measure FILE --out RECORDS.jsonl

Kernels in good tilings and bad, problems from 64 to 8192: square, ragged, tall, wide, deep, and such as leave a wave
almost empty. The second draw was made when the model had been tuned on the first, and the third when it had been on
both. The fourth is for error bars and weights alone: no part of the model is made with it. Random are 250
configurations of each of four problems, out of all that `gemmsim search` considers. The same are drawn every time.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from campaigns.registers import common
from gemmsim.device import capability, device
from gemmsim.errors import GemmsimError, InputError
from gemmsim.gpu.compile import Cubin, Job, compile_many
from gemmsim.gpu.environment import QUERIES, software, under_load
from gemmsim.gpu.reference import Judge, Reference, job
from gemmsim.gpu.run import Buffers, Launcher, flusher, load
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.verify import fresh_seed, random_operands
from gemmsim.gpu.versus import verdict, worse
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.problem import Problem
from gemmsim.record_files import append_record, check_writable, read_points, scan_records
from gemmsim.records import Failure, Point, Record
from gemmsim.search.spaces import space
from gemmsim.tiling import Tiling

SIZES = (
    (64, 64, 64), (128, 192, 320), (256, 256, 256), (384, 512, 640), (512, 512, 512), (768, 768, 768),
    (1024, 1024, 1024), (1536, 1536, 1536), (2048, 2048, 2048), (4096, 4096, 4096),
    (333, 777, 555), (1000, 1900, 2100), (2049, 1023, 1537), (4099, 2050, 1027),
    (64, 8192, 4096), (128, 8192, 2048), (8192, 64, 4096), (4096, 4096, 64), (256, 256, 16384), (100, 3000, 7000),
    (1408, 1536, 1024), (2176, 2112, 512),
)  # fmt: skip
SLOW_FLOP = {"naive": 3e10, "shared": 6e10}
"""Work beyond which a kernel would take too much of a GPU's time."""
POINTS_OF_KERNEL = {"naive": 36, "shared": 42, "register": 66, "vectorized": 80, "double_buffer": 80,
                    "warp_tiled": 66, "async": 90}  # fmt: skip
BAD = {
    "naive": ("32x32", "1x64", "16x8"),
    "shared": ("8x32x8", "32x8x16"),
    "register": ("32x32x8x2x2", "64x32x32x4x4", "128x32x8x8x2"),
    "vectorized": ("32x32x8x4x4", "64x64x32x8x8", "128x32x16x8x4"),
    "double_buffer": ("32x32x8x4x4", "64x64x32x8x8", "128x32x16x8x4"),
}
MORE: dict[str, tuple[dict[str, int], ...]] = {
    "vectorized": ({"swizzle": 16}, {"vector": 1}),
    "double_buffer": ({"swizzle": 16}, {"vector": 2}),
    "async": ({"stages": 4, "group": 4}, {"stages": 5}, {"stages": 2}, {"split_k": 2}, {"split_k": 4, "stages": 4}),
}
DRAWS = {1: 7, 2: 8, 3: 9, 4: 10}
"""The seed of each draw."""
NAMES = ("block_m", "block_n", "block_k", "thread_m", "thread_n")

SEARCHED = ((1024, 1024, 1024), (1000, 1900, 2100), (4096, 128, 2048), (256, 256, 16384))
RANDOM_POINTS = 250

WARM_UP_LAUNCHES, LEAST_SAMPLES, MOST_SAMPLES, SAMPLING_S = 3, 15, 60, 0.02


def tilings(kernel: Kernel) -> list[Tiling]:
    """Tilings of a kernel, from bad to good."""
    found = list(common(kernel))
    for text in BAD.get(kernel.name, ()):
        found.append(kernel.tiling(**dict(zip(NAMES, map(int, text.split("x")), strict=False))))
    for more, base in itertools.product(MORE.get(kernel.name, ()), found[:6]):
        try:
            found.append(kernel.tiling(**{**kernel.tiling_dict(base), **more}))
            kernel.check(found[-1], device("h200"))
        except InputError:
            found.pop()
    return list(dict.fromkeys(found))


def points(draw: int = 1) -> list[Point]:
    """The points of a draw of the campaign, each out of those that the ones before have left."""
    drawn = [random.Random(seed) for number, seed in DRAWS.items() if number <= draw]
    found: list[Point] = []
    for kernel in KERNELS.values():
        left = [
            Point(problem, kernel.name, tiling)
            for problem in (Problem(*size) for size in SIZES)
            for tiling in tilings(kernel)
            if problem.flop <= SLOW_FLOP.get(kernel.name, 2e11) and _is_legal(kernel, tiling, problem)
        ]
        for chance in drawn:
            taken = chance.sample(left, POINTS_OF_KERNEL[kernel.name])
            left = [point for point in left if point not in taken]
        found += taken
    return found


def random_points() -> Iterator[Point]:
    """Random legal configurations of each searched problem, the kernels in turn."""
    drawn = random.Random(11)
    for size in SEARCHED:
        problem = Problem(*size)
        spaces = {name: space(kernel, problem, device("h200")) for name, kernel in KERNELS.items()}
        found: dict[str, Point] = {}
        for name in itertools.cycle(spaces):
            if len(found) == RANDOM_POINTS:
                break
            of, kernel = spaces[name], KERNELS[name]
            for _ in range(20_000):
                values = {field: drawn.choice(choices) for field, choices in of.values.items()}
                try:
                    tiling = kernel.tiling(**values)
                    if _is_legal(kernel, tiling, problem) and all(rule.holds(tiling) for rule in of.rules):
                        point = Point(problem, name, tiling)
                        found.setdefault(point.key, point)
                        break
                except InputError:
                    continue
        yield from found.values()


def _is_legal(kernel: Kernel, tiling: Tiling, problem: Problem) -> bool:
    try:
        kernel.check(tiling, device("h200"), problem)
    except InputError:
        return False
    return True


def measure(wanted: Sequence[Point], out: Path) -> None:
    """Append a record of each point that the file lacks: verified against float64 before and after its samples."""
    check_writable(out)
    done = {record.point.key for record in (scan_records(out)[0] if out.exists() else [])}
    todo = [point for point in wanted if point.key not in done]
    with Gpu() as gpu:
        on, judge_job = capability(gpu.facts.capability), job(capability(gpu.facts.capability))
        launches = {point.key: KERNELS[point.kernel].launch(point.problem, point.tiling) for point in todo}
        jobs = [Job(KERNELS[point.kernel], launches[point.key], on) for point in todo]
        cubins = compile_many([judge_job, *jobs], None, progress)
        of_point = dict(zip((point.key for point in todo), cubins[1:], strict=True))
        judge = Judge(gpu)
        number = 0
        for problem in dict.fromkeys(point.problem for point in todo):
            here = [point for point in todo if point.problem == problem]
            seed = fresh_seed()
            environment: dict[str, object] = {**software(gpu.facts), "l2_flushed": True, "seed": seed}
            a, b = random_operands(problem, seed)
            with (
                Buffers(gpu, here[0], a, b) as buffers,
                judge.reference(problem, buffers, a, b) as reference,
                flusher(gpu, lambda: lambda: 0.0, True) as before,
            ):
                for point in here:
                    number += 1
                    append_record(
                        out, _record(gpu, point, of_point[point.key], buffers, reference, before, environment)
                    )
            say(f"measured {number} of {len(todo)}")


def _record(
    gpu: Gpu, point: Point, cubin: Cubin | Failure, buffers: Buffers, reference: Reference,
    before: Callable[[], object], environment: dict[str, object],
) -> Record:  # fmt: skip
    if isinstance(cubin, Failure):
        return Record.failed(point, device(gpu.facts.title).name, cubin, environment)
    loaded = load(gpu, cubin, KERNELS[point.kernel].launch(point.problem, point.tiling))
    start = buffers.launcher(loaded)
    found = verdict(start, buffers, reference)
    if not found.failure:
        if not set(QUERIES) <= set(environment):  # once for each problem
            environment |= under_load(gpu.facts, lambda: start()())
        environment = environment | {"compiler": cubin.compiler}
        samples_s = timed(start, before)
        found = worse(found, verdict(start, buffers, reference))
    if found.failure:
        return Record.failed(point, device(gpu.facts.title).name, Failure(found.failure), environment)
    return Record(
        point, device(gpu.facts.title).name, "ok", resources=loaded.resources, samples_s=tuple(samples_s),
        median_s=round(statistics.median(samples_s), 10), verification_error=found.error, environment=environment,
    )  # fmt: skip


def timed(start: Launcher, before: Callable[[], object]) -> list[float]:
    """Seconds of each launch, L2 written over before it."""
    for _ in range(WARM_UP_LAUNCHES):
        before()
        start()()
    samples_s: list[float] = []
    until = time.perf_counter() + SAMPLING_S
    while len(samples_s) < LEAST_SAMPLES or (len(samples_s) < MOST_SAMPLES and time.perf_counter() < until):
        before()
        samples_s.append(round(float(start()()), 9))
    return samples_s


def progress(done: int, of: int) -> None:
    """Show how far compilation is."""
    if done % 50 == 0:
        say(f"compiled {done} of {of}")


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Exit status 0, 2 for unusable input, 3 where this machine cannot."""
    parser = argparse.ArgumentParser(prog="campaigns.times", description=__doc__.splitlines()[0])
    parser.add_argument("--draw", type=int, choices=DRAWS, default=1, help="which draw: each of what those before left")
    parser.add_argument("--random", action="store_true", help="random configurations instead")
    parser.add_argument("--measure", type=Path, metavar="POINTS", help="measure the points of a file")
    parser.add_argument("--out", type=Path, help="where the records go")
    arguments = parser.parse_args()
    try:
        if arguments.measure:
            measure(read_points(arguments.measure), arguments.out or Path("times_records.jsonl"))
            return 0
        for point in random_points() if arguments.random else points(arguments.draw):
            print(json.dumps(point.to_dict()))
    except GemmsimError as error:
        print(f"campaigns.times: {error}", file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main())
