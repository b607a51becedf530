"""The kernels against cuBLAS in true FP32, in the same run: verified against float64, then timed in turn.

python -m benchmarks.cublas --out reports/cublas.jsonl        on a GPU (`make bench-gpu`)
python -m benchmarks.cublas --compile                         compiles for an H200, without a GPU

Each problem has its candidate tilings in `campaigns/cublas.jsonl`. Records are appended as soon as a problem is done
(`gemmsim/gpu/versus.py` says what is in them), and another run goes on from there. Exit status 1 when a promise is
missed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmsim.device import Capability, Device, device
from gemmsim.errors import GemmsimError, InputError, MachineError, one_line
from gemmsim.gpu.compile import Cubin, Job, compile_all
from gemmsim.gpu.cublas import Cublas
from gemmsim.gpu.reference import job
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.versus import Versus
from gemmsim.kernels import kernel as kernel_named
from gemmsim.problem import Problem
from gemmsim.record_files import append_record, check_writable, latest, read_points, scan_records
from gemmsim.records import Point, Record
from gemmsim.streams import say
from gemmsim.units import duration

POINTS = Path(__file__).parent.parent / "campaigns" / "cublas.jsonl"
LEAST_RATIO, LEAST_MEAN_RATIO, LEVEL = 0.85, 1.0, 1.0
LEVEL_AT = (Problem(2048, 2048, 2048), Problem(4096, 4096, 4096), Problem(8192, 8192, 8192))
"""What is promised of cuBLAS's time over ours: of every problem, of their geometric mean, and of these problems."""


@dataclass(frozen=True)
class Result:
    """One candidate beside cuBLAS."""

    record: Record
    cublas_s: float
    cublas_error: float

    @classmethod
    def of(cls, record: Record) -> Result:
        """The result that a record holds."""
        cublas = record.environment["cublas"]
        return cls(record, cublas["median_s"], cublas["verification_error"])

    @property
    def problem(self) -> Problem:
        """The problem of both."""
        return self.record.point.problem

    @property
    def median_s(self) -> float:
        """Our time."""
        assert self.record.median_s is not None
        return self.record.median_s

    @property
    def ratio(self) -> float:
        """cuBLAS's time over ours: more than 1 where ours is faster."""
        return self.cublas_s / self.median_s


def results(records: Iterable[Record]) -> dict[Problem, list[Result]]:
    """Of each problem all that was timed beside cuBLAS, the fastest first."""
    found: dict[Problem, list[Result]] = {}
    for record in latest(records):
        if record.ok and "cublas" in record.environment:
            found.setdefault(record.point.problem, []).append(Result.of(record))
    return {problem: sorted(some, key=lambda each: each.median_s) for problem, some in found.items()}


def geometric_mean(ratios: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(statistics.fmean(map(math.log, ratios)))


def missed(fastest: Sequence[Result]) -> list[str]:
    """What was promised and did not come true, a sentence each."""
    found = [
        f"{result.problem}: {result.ratio:.3f} of cuBLAS's speed, promised {promised:.2f}"
        for result in fastest
        if result.ratio < (promised := LEVEL if result.problem in LEVEL_AT else LEAST_RATIO)
    ]
    mean = geometric_mean([result.ratio for result in fastest])
    return found + ([f"geometric mean {mean:.3f}, promised {LEAST_MEAN_RATIO:.2f}"] if mean < LEAST_MEAN_RATIO else [])


def jobs(points: Sequence[Point], on: Capability) -> list[Job]:
    """What the points need compiled."""
    named = [(kernel_named(point.kernel), point) for point in points]
    return [Job(kernel, kernel.launch(point.problem, point.tiling), on) for kernel, point in named]


def compiled(points: Sequence[Point], on: Capability) -> dict[Point, Cubin]:
    """The cubins of the points, and on the way that of the judge. Raises InputError where one does not compile."""
    cubins = compile_all([*jobs(points, on), job(on)], progress=lambda done, of: say(f"compiled {done} of {of}"))
    return dict(zip(points, cubins, strict=False))


def measure(points: Sequence[Point], out: Path) -> list[Record]:
    """Measure the points that the file lacks, and append their records. Returns those of all points.

    Raises MachineError where there is no GPU or no cuBLAS, or a launch fails.
    """
    check_writable(out)
    kept, warnings = scan_records(out) if out.exists() else ([], [])
    for warning in warnings:
        say(f"warning: {warning}")
    done = {each.record.point for some in results(kept).values() for each in some}
    todo: dict[Problem, list[Point]] = {}
    for point in points:
        if point not in done:
            todo.setdefault(point.problem, []).append(point)
    if todo:
        with Gpu() as gpu, Cublas(gpu) as cublas:
            for record in _measured(gpu, cublas, todo):
                append_record(out, record)
                kept.append(record)
    wanted = set(points)
    return [record for record in kept if record.point in wanted]


def _measured(gpu: Gpu, cublas: Cublas, todo: Mapping[Problem, Sequence[Point]]) -> Iterator[Record]:
    """The records of problem after problem."""
    on, points = device(gpu.facts.title), [point for candidates in todo.values() for point in candidates]
    for point in points:
        kernel_named(point.kernel).check(point.tiling, on, point.problem)
    cubins = compiled(points, on.capability)
    versus = Versus(gpu, cublas, on.name)
    for number, (problem, candidates) in enumerate(todo.items()):
        say(f"{problem}: {number + 1} of {len(todo)}")
        try:
            yield from versus.records(problem, {point: cubins[point] for point in candidates})
        except gpu.driver.Error as error:
            raise MachineError(f"{problem}: {one_line(error)}; another run goes on from here") from None


def show(found: Mapping[Problem, Sequence[Result]], on: Device, every: bool) -> None:
    """The table for people: the fastest candidate of each problem, or all of them."""
    from gemmsim.console import line, table

    columns = ("problem", "tiling", "time", "TFLOP/s", "of peak", "cuBLAS", "ratio", "error", "cuBLAS's")
    rows = [row(each, on) for some in found.values() for each in (some if every else some[:1])]
    title = "all candidates" if every else "the fastest candidates"
    table(f"{on.title}, FP32: {title} beside cuBLAS", columns, rows, text=(0, 1))
    mean = geometric_mean([some[0].ratio for some in found.values()])
    line("")
    line(
        f"Ratio: cuBLAS's time over ours; the geometric mean of the best over {len(found)} problems is {mean:.3f}."
        " Error: the largest of any element, over the norms of its row of A and column of B."
        f" Peak: {on.fp32_flop_per_s / 1e12:.1f} TFLOP/s."
    )


def row(result: Result, on: Device) -> tuple[str, ...]:
    """A line of the table."""
    point, problem = result.record.point, result.problem
    flop_per_s = problem.flop / result.median_s
    return (
        f"{problem.m} x {problem.n} x {problem.k}",
        kernel_named(point.kernel).describe(point.tiling),
        duration(result.median_s),
        f"{flop_per_s / 1e12:.2f}",
        f"{flop_per_s / on.fp32_flop_per_s:.1%}",
        duration(result.cublas_s),
        f"{result.ratio:.3f}",
        f"{result.record.verification_error:.1e}",
        f"{result.cublas_error:.1e}",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0; 1 when a promise is missed or a result wrong; 2 for unusable input; 3 where the machine cannot."""
    parser = argparse.ArgumentParser(prog="benchmarks.cublas", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--points", type=Path, default=POINTS, help="the candidates (default: campaigns/cublas.jsonl)")
    parser.add_argument("--out", type=Path, default=Path("reports/cublas.jsonl"), help="records; goes on from them")
    parser.add_argument("--device", default="h200", help="what --compile compiles for (default: h200)")
    parser.add_argument("--compile", action="store_true", help="compile the candidates, and stop")
    parser.add_argument("--all", action="store_true", help="show every candidate, not the fastest alone")
    chosen = parser.parse_args(arguments)
    try:
        points = read_points(chosen.points)
        if chosen.compile:
            compiled(points, device(chosen.device).capability)
            return 0
        records = measure(points, chosen.out)
        found, wrong = results(records), [record for record in latest(records) if not record.ok]
        if not found:
            raise InputError(f"{chosen.out}: no candidate was right; {wrong[0].point}: {wrong[0].failure}")
        show(found, device(records[0].device), chosen.all)
    except GemmsimError as error:
        print(f"benchmarks.cublas: {error}", file=sys.stderr)
        return error.exit_status
    complaints = [f"{record.point}: {record.failure}" for record in wrong]
    complaints += missed([some[0] for some in found.values()])
    for complaint in complaints:
        print(f"missed: {complaint}", file=sys.stderr)
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
