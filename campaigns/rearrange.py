"""Rearrange the main loops of our kernels and hold the predicted gain against the measured one.

python -m campaigns.rearrange FOLDER --prepare [--processes N]   compiles and searches, without a GPU; minutes
python -m campaigns.rearrange FOLDER --prepare --fastest         the same for the fastest kernels alone
python -m campaigns.rearrange FOLDER --choose                    on a GPU: the fastest order of each kernel
python -m campaigns.rearrange FOLDER --out FILE.jsonl            on a GPU: bits at ten shapes, times beside cuBLAS

Exit status 1 where an output differs or a launch fails.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmsim.compare.loop_shares import residents
from gemmsim.device import device
from gemmsim.errors import GemmsimError
from gemmsim.gpu.compile import Cubin, compile_kernel
from gemmsim.gpu.cubin_pair import Compared, Request, compared
from gemmsim.gpu.disassemble import disassembled
from gemmsim.kernels import Kernel
from gemmsim.kernels import kernel as kernel_named
from gemmsim.machine_code.cubin import parse_cubin
from gemmsim.problem import Problem
from gemmsim.rearrange.gain import gain
from gemmsim.rearrange.optimise import Source, trials
from gemmsim.rearrange.shapes import compatible
from gemmsim.rearrange.verify import objection
from gemmsim.records import Point
from gemmsim.tiling import Tiling

NAMES = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")
BEST, OTHERS = range(16), range(8)
"""Searches, by number: for kernels that are held against cuBLAS at both sizes, and for others."""
NO_WINDOW = range(4, 64, 5)
"""Those for orders that need no window of the ports, which were the fastest of others on average."""
Description = tuple[str, str, dict[str, int], tuple[int, ...], range]
CASES: tuple[Description, ...] = (
    ("async", "128x256x8x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096, 8192), BEST),
    ("async", "96x128x8x48x64x12x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096, 8192), BEST),
    ("async", "96x128x8x48x64x12x8", {"stages": 3, "pad_a": 4}, (4096, 8192), BEST),
    ("async", "64x256x8x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096, 8192), OTHERS),
    ("async", "128x128x8x64x32x8x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096,), OTHERS),
    ("warp_tiled", "128x128x8x64x64x16x8", {"pad_a": 4}, (4096,), OTHERS),
    ("warp_tiled", "128x128x8x64x32x8x8", {"pad_a": 4}, (4096,), OTHERS),
    ("double_buffer", "128x128x8x8x8", {"pad_a": 4}, (4096,), OTHERS),
    ("double_buffer", "64x64x16x8x4", {"pad_a": 4}, (4096,), OTHERS),
    ("vectorized", "128x128x8x8x8", {}, (4096,), OTHERS),
    ("vectorized", "128x64x8x8x4", {"pad_a": 4, "pad_b": 4}, (4096,), OTHERS),
)
"""(kernel, extents, more of the tiling, sizes at which it is timed, searches)."""
RING = {"stages": 3, "pad_a": 4, "group": 8}
FASTEST: tuple[Description, ...] = (
    ("async", "128x256x16x64x64x16x8", {**RING, "traversal": 1, "spread": 3}, (4096, 8192), NO_WINDOW),
    ("async", "96x128x16x48x64x12x8", {**RING, "traversal": 4, "spread": 3}, (8192, 4096), NO_WINDOW),
    ("async", "64x256x16x64x64x16x8", {**RING, "traversal": 1, "spread": 4}, (4096, 8192), NO_WINDOW),
    ("async", "96x128x16x48x64x12x8", {**RING, "traversal": 4, "spread": 2}, (8192, 4096), NO_WINDOW),
)
"""The same of those of a sweep over 150 tilings with spread copies that were fastest beside cuBLAS."""
DEVICE = "h200"
PREDICTED_AT = 4096
PREDICTED, CHOSEN = "predicted.json", "chosen.json"
"""Files of the folder: what is known of each order, and {case: number of its fastest}."""


@dataclass(frozen=True)
class Case:
    """One kernel and tiling, and the cubes at which it is timed."""

    number: int
    kernel: Kernel
    tiling: Tiling
    timed: tuple[int, ...]
    searches: range

    @property
    def name(self) -> str:
        """Kernel and tiling in words."""
        return f"{self.kernel.name} {self.kernel.describe(self.tiling)}"

    def compiled(self, folder: Path) -> Path:
        """The cubin as compiled."""
        return folder / f"{self.number:02d}-compiled.cubin"

    def rearranged(self, folder: Path, order: int) -> Path:
        """The cubin with one of the orders found."""
        return folder / f"{self.number:02d}-{order:02d}.cubin"

    def point(self, problem: Problem) -> Point:
        """The point of a problem."""
        return Point(problem, self.kernel.name, self.tiling)


def cases() -> Iterator[Case]:
    """All cases, by number, the fastest behind the others."""
    for number, (name, extents, more, timed, searches) in enumerate((*CASES, *FASTEST)):
        sizes = tuple(map(int, extents.split("x")))
        names = NAMES if len(sizes) == len(NAMES) else tuple(each for each in NAMES if not each.startswith("warp"))
        kernel = kernel_named(name)
        tiling = kernel.tiling(**dict(zip(names, sizes, strict=True)), **more)
        yield Case(number, kernel, tiling, timed, searches)


def prepare(folder: Path, processes: int, fastest: bool = False) -> None:
    """Compile the cases, or the fastest, into a folder and search for orders, with the predictions in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(processes) as pool:
        jobs = [
            pool.submit(_prepared, case.number, folder, number)
            for case in cases()
            if fastest is (case.number >= len(CASES))
            for number in case.searches
        ]  # fmt: skip
        predicted = [row for job in jobs if (row := job.result()) is not None]
    (folder / PREDICTED).write_text(json.dumps(predicted, indent=1) + "\n")


def _prepared(of: int, folder: Path, number: int) -> dict[str, Any] | None:
    """What one search for a case, by number, is worth; None where it found nothing that is proved."""
    case, on = next(case for case in cases() if case.number == of), device(DEVICE)
    problem = Problem(PREDICTED_AT, PREDICTED_AT, PREDICTED_AT)
    cubin: Cubin = compile_kernel(case.kernel, case.kernel.launch(problem, case.tiling), on.capability)
    registers = cubin.registers_per_thread
    image = cubin.path.read_bytes()
    (function,) = disassembled(image)
    trial = trials(number + 1)[-1]
    source = Source.of(function)
    compiled = source.as_compiled(residents(case.kernel, problem, case.tiling, on.capability, registers))
    found = source.tried(trial, compiled)
    if found is None or objection(function, found.words):
        return None
    case.compiled(folder).write_bytes(image)
    case.rearranged(folder, number).write_bytes(parse_cubin(image).patched(found.words, function.name).image)
    worth = gain(found, problem, case.kernel, case.tiling, on, registers)
    print(f"{case.name}, order {number}: {worth.speedup - 1:+.1%}", file=sys.stderr)
    return {
        "case": case.number,
        "name": case.name,
        "order": number,
        "ports": [found.cost_before.ports, found.cost_after.ports],
        "cycles_per_ffma": [found.cost_before.running, found.cost_after.running],
        "predicted_speedup": worth.speedup,
        "bound_by": worth.bound_by,
        "changed": found.changed,
    }


def _orders(folder: Path) -> dict[int, list[dict[str, Any]]]:
    """{case: what is known of its orders}."""
    found: dict[int, list[dict[str, Any]]] = {}
    for row in json.loads((folder / PREDICTED).read_text()):
        found.setdefault(row["case"], []).append(row)
    return found


def choose(folder: Path) -> bool:
    """Time the orders of each case at its first size, and note the fastest; whether all ran well."""
    known = _orders(folder)
    chosen = [case for case in cases() if case.number in known]
    requests = []
    for case in chosen:
        first, *rivals = (str(case.rearranged(folder, row["order"])) for row in known[case.number])
        point = case.point(Problem(case.timed[0], case.timed[0], case.timed[0]))
        requests.append(Request(point, str(case.compiled(folder)), first, timed=True, rivals=tuple(rivals)))
    results = compared(requests)
    fastest = {}
    for case, result in zip(chosen, results, strict=True):
        if result.after_s:
            times = [statistics.median(samples) for samples in (result.after_s, *result.rivals_s)]
            gains = sorted((statistics.median(result.before_s) / each - 1 for each in times), reverse=True)
            fastest[case.number] = known[case.number][times.index(min(times))]["order"]
            print(case.name, f"order {fastest[case.number]};", *(f"{each:+.1%}" for each in gains))
        if not result.identical:
            print(f"FAILED {result.request.point}: {result.failure or f'{result.different} elements differ'}")
    (folder / CHOSEN).write_text(json.dumps(fastest) + "\n")
    return all(result.identical for result in results)


def run(folder: Path, out: Path, cublas: bool = True) -> bool:
    """Run the chosen order of each case, or else its first; whether every output was the same and every launch well."""
    known, path = _orders(folder), folder / CHOSEN
    chosen = {int(case): order for case, order in json.loads(path.read_text()).items()} if path.exists() else {}
    predicted = {
        case: next(row for row in rows if row["order"] == chosen.get(case, rows[0]["order"]))
        for case, rows in known.items()
    }
    requests: list[tuple[Case, Request]] = []
    for case in cases():
        if case.number not in predicted:
            continue
        before, after = str(case.compiled(folder)), str(case.rearranged(folder, predicted[case.number]["order"]))
        for problem in compatible(case.kernel, Problem(PREDICTED_AT, PREDICTED_AT, PREDICTED_AT), case.tiling):
            requests.append((case, Request(case.point(problem), before, after)))
        for size in case.timed:
            point = case.point(Problem(size, size, size))
            requests.append((case, Request(point, before, after, timed=True, cublas=cublas)))
    results = compared([request for _, request in requests], lambda done: print(done, end=" ", file=sys.stderr))
    rows = [
        _row(request, result, predicted[case.number]) for (case, request), result in zip(requests, results, strict=True)
    ]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return _show(rows)


def _row(request: Request, result: Compared, predicted: dict[str, Any]) -> dict[str, Any]:
    return {
        "point": request.point.to_dict(),
        "predicted": predicted,
        "identical": result.identical,
        "different": result.different,
        "failure": result.failure,
        "before_s": result.before_s,
        "after_s": result.after_s,
        "cublas_s": result.cublas_s,
        "environment": result.environment,
    }


def table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Records in the lines of a table, those that were timed."""
    peak = device(DEVICE).fp32_flop_per_s
    lines = [
        "| kernel | size | same bits | ports | predicted | measured | TFLOP/s | peak | over cuBLAS |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        if row["after_s"]:
            of, point = row["predicted"], Point.from_dict(row["point"])
            same = [each["identical"] for each in rows if each["predicted"]["case"] == of["case"]]
            before_s, after_s = statistics.median(row["before_s"]), statistics.median(row["after_s"])
            library = f"{statistics.median(row['cublas_s']) / after_s:.3f}" if row["cublas_s"] else ""
            rate = point.problem.flop / after_s
            lines.append(
                f"| {of['name']} | {point.problem.m} | {sum(same)} of {len(same)}"
                f" | {of['ports'][0]:.3f} to {of['ports'][1]:.3f} | {of['predicted_speedup'] - 1:+.1%}"
                f" | {before_s / after_s - 1:+.1%} | {rate / 1e12:.2f} | {rate / peak:.3f} | {library} |"
            )
    return lines


def error(rows: Sequence[dict[str, Any]]) -> float:
    """Mean absolute error of the predicted ratio of times."""
    medians = [
        [statistics.median(row[name]) for name in ("before_s", "after_s")] + [row["predicted"]["predicted_speedup"]]
        for row in rows
        if row["after_s"]
    ]
    return statistics.fmean(abs(before_s / after_s / predicted - 1) for before_s, after_s, predicted in medians)


def _show(rows: Sequence[dict[str, Any]]) -> bool:
    for row in rows:
        if not row["identical"]:
            reason = row["failure"] or f"{row['different']} elements differ"
            print(f"FAILED {Point.from_dict(row['point'])}: {reason}")
    print("\n".join(table(rows)))
    if any(row["after_s"] for row in rows):
        print(f"mean absolute error of the predicted time ratio: {error(rows):.1%}")
    return all(row["identical"] for row in rows)


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="campaigns.rearrange", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the cubins and predictions are")
    parser.add_argument("--prepare", action="store_true", help="compile and rearrange; needs no GPU")
    parser.add_argument("--fastest", action="store_true", help="with --prepare: the fastest kernels alone")
    parser.add_argument("--processes", type=int, default=1, help="searches at a time")
    parser.add_argument("--choose", action="store_true", help="time the orders of each kernel and note the fastest")
    parser.add_argument("--out", type=Path, help="results, one JSON object a line")
    parser.add_argument("--no-cublas", action="store_true", help="leave cuBLAS out")
    arguments = parser.parse_args()
    try:
        if arguments.prepare:
            prepare(arguments.folder, arguments.processes, arguments.fastest)
            return 0
        if arguments.choose:
            return 0 if choose(arguments.folder) else 1
        out = arguments.out or arguments.folder / "measured.jsonl"
        return 0 if run(arguments.folder, out, not arguments.no_cublas) else 1
    except GemmsimError as error:
        print(f"campaigns.rearrange: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
