"""Compile the kernels of the shipped records and of the table of registers, and write down what their warps do.

python -m campaigns.programs             of the shipped records but the random ones, and of the table
python -m campaigns.programs --random    of the random ones, into a file that is not shipped; three times as long

Needs nvcc and its disassembler, no GPU, and some minutes. Run it whenever the sources in `kernels/` have changed, after
`campaigns.registers` and before `campaigns.loads`: until then the programs of what has changed are not used.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from pathlib import Path

from campaigns.registers import compiled_all, hashes, launches
from gemmsim.device import Device, device
from gemmsim.gpu.compile import Cubin, Job, available_cores
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.kernels import Kernel, kernel
from gemmsim.pipeline.programs import Row, code_macros, compiled_program, rounded, shipped_file, write_rows
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.register_table import Key, key_of, sources_hash
from gemmsim.tiling import Tiling

DEVICE = "h200"
RECORDS = ("", "layouts", "copies", "counts", "times", "again", "cublas", "picks")
RANDOM = Path(__file__).parent / "measured" / "random_programs.jsonl.gz"
"""The programs of random configurations: many, and of use to `benchmarks/order.py` alone."""

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


def row(name: str, problem: Problem, tiling: Tiling, cubin: Cubin, on: Device) -> Row:
    """The row of a compiled launch of a kernel."""
    of = kernel(name)
    (function,) = disassembled_file(cubin.path)
    program = compiled_program(function, of, problem, tiling, on)
    return Row(of.name, code_macros(of, problem, tiling), sources_hash(of), cubin.compiler, rounded(program))


def main() -> None:
    """Compile all, one a core, and write the file."""
    parser = argparse.ArgumentParser(prog="campaigns.programs", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--random", action="store_true", help="the programs of random configurations instead")
    at_random = parser.parse_args().random
    on, before = device(DEVICE), hashes()
    found = list(asked(on, recorded(["random"]) if at_random else (*recorded(), *launches())).values())
    jobs = [Job(of, of.launch(problem, tiling), on.capability) for of, problem, tiling in found]
    cubins = compiled_all(jobs)
    with ProcessPoolExecutor(available_cores()) as pool:
        names, problems, tilings = zip(*((of.name, problem, tiling) for of, problem, tiling in found), strict=True)
        rows = list(pool.map(row, names, problems, tilings, cubins, repeat(on), chunksize=8))
    if hashes() != before:
        sys.exit("the sources changed while they were compiled; once more, please")
    path = RANDOM if at_random else shipped_file(on.capability.sm)
    write_rows(path, rows)
    print(f"{len(rows)} programs: {path}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
