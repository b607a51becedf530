"""Times occupancy, many cases at once and a file of them, against a plain Python loop in the same run.

Exit status 1 when a promise is missed. Each figure is the best of several runs, since others on the machine can only
add to it; both sides are held equal before either is timed.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.speed import best_s
from gemmsim.device import Capability, capabilities, capability
from gemmsim.occupancy import RESOURCES, occupancies, occupancy
from gemmsim.occupancy.batch import COLUMNS

CASES, LOOPED = 1_000_000, 20_000
LEAST_PER_S = 2_000_000
"""Cases a second on one core that the arrays must reach."""
ROWS = (100_000, 400_000)
"""Of two files; the longer must take no more memory."""
MOST_MORE_BYTES = 20e6
CHIPS = [capability(name) for name in capabilities()]

Case = tuple[int, int, int, int, int, int]


def plain(chip: Capability, threads: int, registers: int, static: int, dynamic: int, percent: int) -> dict[str, int]:
    """The limits of one case as one writes them down for numbers alone, without checks and reasons."""
    warps = max(1, (threads + 31) // 32)
    of_warp = (32 * registers + 255) // 256 * 256
    checked = of_warp * ((warps + chip.warps_rounded_at_launch - 1) // chip.warps_rounded_at_launch)
    by_registers = 2**31 - 1
    if checked * chip.warps_rounded_at_launch > chip.registers_per_block:
        by_registers = 0
    elif of_warp:
        by_registers = chip.registers_per_sm // chip.sub_partitions // of_warp * chip.sub_partitions // warps
    reserved, unit = chip.shared_bytes_reserved_per_block, chip.shared_allocation_unit
    of_block = (static + dynamic + reserved + unit - 1) // unit * unit
    by_shared = 0 if of_block > reserved + chip.shared_bytes_per_block_optin else 2**31 - 1
    if by_shared and of_block:
        wanted = max(of_block, percent * chip.shared_bytes_per_sm // 100)
        by_shared = next(size for size in chip.carveouts_bytes if size >= wanted) // of_block
    return {
        "warps": chip.max_threads_per_sm // 32 // warps if 0 < threads <= chip.max_threads_per_block else 0,
        "registers": by_registers,
        "shared_memory": by_shared,
        "blocks": chip.max_blocks_per_sm,
        "barriers": chip.barriers_per_sm if chip.barriers_limit_blocks else 2**31 - 1,
    }


def random_cases(count: int) -> np.ndarray:
    """So many cases, a column each: which capability, threads, registers, static, dynamic, carve-out."""
    random = np.random.default_rng(0)
    most = (len(CHIPS), 1025, 256, 49_153, 200_000, 101)
    return np.stack([random.integers(0, end, count) for end in most])


def loop(cases: list[Case]) -> Iterator[tuple[int, list[str]]]:
    """(blocks, limiters) of each case, one after the other."""
    for which, *block in cases:
        limits = plain(CHIPS[which], *block)
        fewest = min(limits.values())
        yield fewest, [name for name, limit in limits.items() if limit == fewest]


def arrays() -> bool:
    """Print how many cases a second arrays take, of one capability and of all; whether that is as many as promised."""
    which, *block = random_cases(CASES)
    some: list[Case] = [tuple(case) for case in np.stack([which, *block])[:, :LOOPED].T.tolist()]
    found = occupancies(CHIPS, which, *block)
    assert not isinstance(found.limiters, tuple)
    limiters = np.stack([found.limiters[name][:LOOPED] for name in RESOURCES], axis=1)
    assert [blocks for blocks, _ in loop(some)] == found.blocks_per_sm[:LOOPED].tolist()
    assert [[name in of for name in RESOURCES] for _, of in loop(some)] == limiters.tolist()

    loop_s = best_s(lambda: list(loop(some)), 3) / LOOPED
    kept = True
    for what, ours_s in (
        ("of one capability", best_s(lambda: occupancy(CHIPS[-1], *block), 5) / CASES),
        (f"of {len(CHIPS)} capabilities", best_s(lambda: occupancies(CHIPS, which, *block), 5) / CASES),
    ):
        kept &= ours_s <= 1 / LEAST_PER_S
        print(
            f"{f'{CASES:,} random cases {what}':46} {1e-6 / ours_s:6.1f} million a second, at least"
            f" {LEAST_PER_S / 1e6:.0f}; a plain loop {1e-6 / loop_s:.3f}: ratio {loop_s / ours_s:.0f}"
        )
    return kept


def write_cases(path: Path, rows: int) -> None:
    """A file of so many random cases."""
    with open(path, "w", newline="") as file:
        write = csv.writer(file)
        write.writerow(COLUMNS)
        for which, *block in random_cases(rows).T.tolist():
            write.writerow([CHIPS[which].name, *block])


def plain_batch(path: Path) -> str:
    """The results of a file as a plain script gets them: row after row, in the end as one document."""
    results = []
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            limits = plain(capability(row["cc"]), *(int(row[name]) for name in COLUMNS[1:]))
            fewest = min(limits.values())
            limiters = [name for name, limit in limits.items() if limit == fewest]
            results.append({"blocks_per_sm": fewest, "limiters": limiters})
    return json.dumps({"results": results})


MEASURED = """
import os, sys, time
start_s = time.perf_counter()
with open(sys.argv[1], "wb") as out:
    pid = os.posix_spawn(sys.executable, [sys.executable, *sys.argv[2:]], os.environ,
                         file_actions=[(os.POSIX_SPAWN_DUP2, out.fileno(), 1)])
    _, status, used = os.wait4(pid, 0)
assert status == 0
print(time.perf_counter() - start_s, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024))
"""
"""A process counts what its parent held when it was made as its own memory, so a small one makes it."""


def command(path: Path, out: Path) -> tuple[float, int]:
    """(seconds, most bytes of memory) of the command on a file, its start included."""
    words = [str(out), "-m", "gemmsim", "occupancy", "--batch", str(path), "--json"]
    done = subprocess.run([sys.executable, "-c", MEASURED, *words], check=True, capture_output=True, text=True)
    time_s, peak_bytes = done.stdout.split()
    return float(time_s), int(peak_bytes)


def batches() -> bool:
    """Print how many rows a second the command takes, and its memory; whether that stays as the file grows."""
    with tempfile.TemporaryDirectory() as folder:
        path, out = Path(folder) / "cases.csv", Path(folder) / "out.json"
        peaks = []
        for rows in ROWS:
            write_cases(path, rows)
            runs = [command(path, out) for _ in range(2)]
            ours_s = min(time_s for time_s, _ in runs)
            peaks.append(max(peak for _, peak in runs))
            if rows == ROWS[0]:
                assert json.loads(out.read_text()) == json.loads(plain_batch(path))
                loop_s = best_s(lambda: plain_batch(path), 2) / rows
            print(
                f"{f'gemmsim occupancy --batch, {rows:,} rows':46} {rows / ours_s:8,.0f} rows a second; a plain loop"
                f" {1 / loop_s:,.0f}: ratio {loop_s * rows / ours_s:.1f}; most memory {peaks[-1] / 1e6:.0f} MB"
            )
    return peaks[-1] - peaks[0] <= MOST_MORE_BYTES


def main() -> int:
    """Print both, and say whether they keep what is promised."""
    kept = [arrays(), batches()]
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
