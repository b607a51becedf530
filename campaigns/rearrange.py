"""Rearrange the main loops of our kernels and hold the predicted gain against the measured one.

python -m campaigns.rearrange FOLDER --prepare           compiles and rearranges, without a GPU; minutes
python -m campaigns.rearrange FOLDER --out FILE.jsonl    on a GPU: bits compared at ten shapes, timed beside cuBLAS

Exit status 1 where an output differs or a launch fails.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmsim.device import device
from gemmsim.errors import GemmsimError
from gemmsim.gpu.compile import Cubin, compile_kernel
from gemmsim.gpu.cubin_pair import Compared, Request, compared
from gemmsim.gpu.disassemble import disassembled
from gemmsim.kernels import Kernel
from gemmsim.kernels import kernel as kernel_named
from gemmsim.loop_shares import residents
from gemmsim.machine_code.cubin import parse_cubin
from gemmsim.problem import Problem
from gemmsim.rearrange.gain import gain
from gemmsim.rearrange.optimise import rearranged
from gemmsim.rearrange.shapes import compatible
from gemmsim.rearrange.verify import objection
from gemmsim.records import Point
from gemmsim.tiling import Tiling

NAMES = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")
CASES: tuple[tuple[str, str, dict[str, int], tuple[int, ...]], ...] = (
    ("async", "128x256x8x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096, 8192)),
    ("async", "192x128x8x48x64x12x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096, 8192)),
    ("async", "96x256x8x48x64x12x8", {"stages": 3, "pad_a": 4}, (4096, 8192)),
    ("async", "64x256x8x64x64x16x8", {"stages": 3, "pad_a": 4}, (4096, 8192)),
    ("async", "128x256x8x64x64x8x16", {"stages": 3, "pad_a": 4}, (4096,)),
    ("async", "128x128x8x64x64x16x8", {"stages": 3, "pad_a": 4}, (4096,)),
    ("async", "128x128x8x64x32x8x8", {"stages": 3, "pad_a": 4, "group": 8}, (4096,)),
    ("async", "96x128x8x48x64x12x8", {"stages": 3, "pad_a": 4}, (4096, 8192)),
    ("warp_tiled", "128x128x8x64x64x16x8", {"pad_a": 4}, (4096,)),
    ("warp_tiled", "128x128x8x64x32x8x8", {"pad_a": 4}, (4096,)),
    ("double_buffer", "128x128x8x8x8", {"pad_a": 4}, (4096,)),
    ("double_buffer", "64x64x16x8x4", {"pad_a": 4}, (4096,)),
    ("vectorized", "128x128x8x8x8", {}, (4096,)),
    ("vectorized", "128x64x8x8x4", {"pad_a": 4, "pad_b": 4}, (4096,)),
)
"""(kernel, extents, more of the tiling, sizes at which it is timed)."""
DEVICE = "h200"
PREDICTED_AT = 4096


@dataclass(frozen=True)
class Case:
    """One kernel and tiling, and the cubes at which it is timed."""

    number: int
    kernel: Kernel
    tiling: Tiling
    timed: tuple[int, ...]

    @property
    def name(self) -> str:
        """Kernel and tiling in words."""
        return f"{self.kernel.name} {self.kernel.describe(self.tiling)}"

    def paths(self, folder: Path) -> tuple[Path, Path]:
        """The cubin as compiled, and rearranged."""
        return folder / f"{self.number:02d}-compiled.cubin", folder / f"{self.number:02d}-rearranged.cubin"


def cases() -> Iterator[Case]:
    """All cases, by number."""
    for number, (name, extents, more, timed) in enumerate(CASES):
        sizes = tuple(map(int, extents.split("x")))
        names = NAMES if len(sizes) == len(NAMES) else tuple(each for each in NAMES if not each.startswith("warp"))
        kernel = kernel_named(name)
        yield Case(number, kernel, kernel.tiling(**dict(zip(names, sizes, strict=True)), **more), timed)


def prepare(folder: Path) -> None:
    """Compile and rearrange all cases into a folder, with the predictions in `predicted.json`."""
    folder.mkdir(parents=True, exist_ok=True)
    predicted = []
    for case in cases():
        started = time.perf_counter()
        predicted.append(_prepared(case, folder))
        print(f"{predicted[-1]} in {time.perf_counter() - started:.0f} s", file=sys.stderr)
        (folder / "predicted.json").write_text(json.dumps(predicted, indent=1) + "\n")


def _prepared(case: Case, folder: Path) -> dict[str, Any]:
    on = device(DEVICE)
    problem = Problem(PREDICTED_AT, PREDICTED_AT, PREDICTED_AT)
    cubin: Cubin = compile_kernel(case.kernel, case.kernel.launch(problem, case.tiling), on.capability)
    registers = cubin.registers_per_thread
    compiled, changed = case.paths(folder)
    image = cubin.path.read_bytes()
    (function,) = disassembled(image)
    found = rearranged(function, residents(case.kernel, problem, case.tiling, on.capability, registers))
    reason = objection(function, found.words)
    if reason:
        return {"case": case.number, "name": case.name, "failure": reason}
    compiled.write_bytes(image)
    changed.write_bytes(parse_cubin(image).patched(found.words, function.name).image)
    of = gain(found, problem, case.kernel, case.tiling, on, registers)
    return {
        "case": case.number,
        "name": case.name,
        "ports": [found.cost_before.ports, found.cost_after.ports],
        "cycles_per_ffma": [found.cost_before.running, found.cost_after.running],
        "predicted_speedup": of.speedup,
        "bound_by": of.bound_by,
        "changed": found.changed,
    }


def run(folder: Path, out: Path, cublas: bool = True) -> bool:
    """Run all prepared cases; whether every output was the same and every launch went well."""
    predicted = {row["case"]: row for row in json.loads((folder / "predicted.json").read_text())}
    chosen = [case for case in cases() if "failure" not in predicted.get(case.number, {"failure": ""})]
    requests: list[tuple[Case, Request]] = []
    for case in chosen:
        before, after = (str(path) for path in case.paths(folder))
        for problem in compatible(case.kernel, Problem(PREDICTED_AT, PREDICTED_AT, PREDICTED_AT), case.tiling):
            requests.append((case, Request(Point(problem, case.kernel.name, case.tiling), before, after)))
        for size in case.timed:
            point = Point(Problem(size, size, size), case.kernel.name, case.tiling)
            requests.append((case, Request(point, before, after, timed=True, cublas=cublas)))
    results = compared([request for _, request in requests], lambda done: print(done, end=" ", file=sys.stderr))
    with out.open("w") as file:
        for (case, request), result in zip(requests, results, strict=True):
            file.write(json.dumps(_row(case, request, result, predicted[case.number])) + "\n")
    return _show(requests, results, predicted)


def _row(case: Case, request: Request, result: Compared, predicted: dict[str, Any]) -> dict[str, Any]:
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


def _show(requests: Sequence[tuple[Case, Request]], results: Sequence[Compared], predicted: dict[int, Any]) -> bool:
    errors, peak = [], device(DEVICE).fp32_flop_per_s
    print("| kernel | size | same bits | ports | running | predicted | measured | TFLOP/s | peak | over cuBLAS |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for (case, request), result in zip(requests, results, strict=True):
        if result.failure:
            print(f"FAILED {request.point}: {result.failure}")
        if result.different:
            print(f"DIFFERENT {request.point}: {result.different} elements")
        if not request.timed or not result.after_s:
            continue
        row = predicted[case.number]
        same = [each.identical for (of, _), each in zip(requests, results, strict=True) if of is case]
        after_s = statistics.median(result.after_s)
        rate = request.point.problem.flop / after_s
        ratio = statistics.median(result.cublas_s) / after_s if result.cublas_s else math.nan
        errors.append(abs(result.speedup / row["predicted_speedup"] - 1))
        print(
            f"| {case.name} | {request.point.problem.m} | {sum(same)} of {len(same)}"
            f" | {row['ports'][0]:.3f} to {row['ports'][1]:.3f}"
            f" | {row['cycles_per_ffma'][0]:.3f} to {row['cycles_per_ffma'][1]:.3f}"
            f" | {row['predicted_speedup'] - 1:+.1%} | {result.speedup - 1:+.1%}"
            f" | {rate / 1e12:.2f} | {rate / peak:.3f} | {ratio:.3f} |"
        )
    if errors:
        print(f"mean absolute error of the predicted time ratio: {statistics.fmean(errors):.1%}")
    return all(result.identical for result in results)


def main() -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="campaigns.rearrange", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the cubins and predictions are")
    parser.add_argument("--prepare", action="store_true", help="compile and rearrange; needs no GPU")
    parser.add_argument("--out", type=Path, help="results, one JSON object a line")
    parser.add_argument("--no-cublas", action="store_true", help="leave cuBLAS out")
    arguments = parser.parse_args()
    try:
        if arguments.prepare:
            prepare(arguments.folder)
            return 0
        out = arguments.out or arguments.folder / "measured.jsonl"
        return 0 if run(arguments.folder, out, not arguments.no_cublas) else 1
    except GemmsimError as error:
        print(f"campaigns.rearrange: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
