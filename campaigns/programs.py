"""Compile kernels that are shipped with what their warps do, as far as that is not known, and write it down.

python -m campaigns.programs             of the shipped records but the random ones, of the table of registers, and of
                                         what led searches (`campaigns/finalists.jsonl`)
python -m campaigns.programs --random    of the random records, into a file that is not shipped
python -m campaigns.programs --anew      all of them, not only those that lack or whose sources have changed

Needs nvcc and its disassembler, no GPU; all of them take an hour of two cores. Run it whenever the sources in
`kernels/` have changed, after `campaigns.registers` and before `campaigns.loads`: until then the programs of what has
changed are not used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from campaigns.registers import compiled_all, hashes, launches
from gemmsim.device import Device, device
from gemmsim.gpu.compile import Cubin, Job, available_cores
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.kernels import Kernel, kernel
from gemmsim.pipeline.programs import Row, code_macros, compiled_program, read_rows, rounded, shipped_file, write_rows
from gemmsim.problem import Problem
from gemmsim.record_files import read_points, read_records, shipped_records
from gemmsim.register_table import Key, key_of, sources_hash
from gemmsim.tiling import Tiling

DEVICE = "h200"
RECORDS = ("", "layouts", "copies", "counts", "times", "again", "third", "fourth", "cublas", "picks")
RANDOM = Path(__file__).parent / "measured" / "random_programs.jsonl.xz"
"""The programs of random configurations: many, and of use to `benchmarks/order.py` alone."""
FINALISTS = Path(__file__).parent / "finalists.jsonl"

Launched = tuple[Kernel, Problem, Tiling]


def asked(on: Device, of_launches: Iterable[Launched]) -> dict[Key, Launched]:
    """The first launch of each code that a device runs."""
    found: dict[Key, Launched] = {}
    for of, problem, tiling in of_launches:
        if of.runs_on(on.capability.name):
            found.setdefault(key_of(of.name, code_macros(of, problem, tiling)), (of, problem, tiling))
    return found


def recorded(campaigns: Iterable[str] = RECORDS) -> Iterator[Launched]:
    """The launches of the shipped records that ran."""
    for campaign in campaigns:
        records, _ = read_records(shipped_records(campaign))
        for point in (record.point for record in records if record.ok):
            yield kernel(point.kernel), point.problem, point.tiling


def led() -> Iterator[Launched]:
    """The launches that led searches (`campaigns/finalists.py`)."""
    for point in read_points(FINALISTS):
        yield kernel(point.kernel), point.problem, point.tiling


def lacking(path: Path, wanted: Mapping[Key, Launched]) -> tuple[list[Row], list[Launched]]:
    """(rows of a file that are wanted and still hold, what of the wanted has none)."""
    present = hashes()
    held = [row for row in read_rows(path) if row.registers_per_thread and row.sources == present.get(row.kernel)]
    kept = {row.key: row for row in held if row.key in wanted}
    return list(kept.values()), [launched for key, launched in wanted.items() if key not in kept]


def row(name: str, problem: Problem, tiling: Tiling, cubin: Cubin, on: Device) -> Row:
    """The row of a compiled launch of a kernel."""
    of = kernel(name)
    (function,) = disassembled_file(cubin.path)
    program = compiled_program(function, of, problem, tiling, on)
    return Row(
        of.name, code_macros(of, problem, tiling), sources_hash(of), cubin.compiler, rounded(program),
        cubin.registers_per_thread, cubin.local_bytes,
    )  # fmt: skip


def main() -> None:
    """Compile all, one a core, and write the file."""
    parser = argparse.ArgumentParser(prog="campaigns.programs", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--random", action="store_true", help="the programs of random configurations instead")
    parser.add_argument("--anew", action="store_true", help="all of them, not only those that lack")
    arguments = parser.parse_args()
    on, before = device(DEVICE), hashes()
    path = RANDOM if arguments.random else shipped_file(on.capability.sm)
    wanted = asked(on, recorded(["random"]) if arguments.random else (*recorded(), *launches(), *led()))
    kept, found = ([], list(wanted.values())) if arguments.anew else lacking(path, wanted)
    cubins = compiled_all([Job(of, of.launch(problem, tiling), on.capability) for of, problem, tiling in found])
    with ProcessPoolExecutor(available_cores()) as pool:
        launched = zip(found, cubins, strict=True)
        started = [pool.submit(row, of.name, problem, tiling, cubin, on) for (of, problem, tiling), cubin in launched]
        rows = kept + [each.result() for each in started]
    if hashes() != before:
        sys.exit("the sources changed while they were compiled; once more, please")
    write_rows(path, rows)
    print(f"{len(rows)} programs, {len(found)} of them new: {path}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
