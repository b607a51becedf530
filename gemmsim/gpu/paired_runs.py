"""Runs of two lengths: the arithmetic that makes numbers of clocks, and the runs themselves.

Every number is the difference between a long and a short run of the same kernel, divided by the difference of their
work: what it takes to start, to end and to read clocks cancels out. Each is the median of several such differences.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.errors import MachineError
from gemmsim.gpu.microbenchmarks import WARP, Bench, Rows

VECTOR_BYTES, VECTORS = 16, 8
READERS = 256
"""Threads of a block that reads or writes; four such blocks to an SM."""

Runs = tuple[list[float], list[float]]
"""What short runs took, and what long ones."""
HALF, ONE = 0.5, 1.0
"""The operands of FFMA: x / 2 + 1 comes to rest at 2, whatever x was."""
TWO_BITS, SIXTEEN_BITS = 0x40000000, 0x41800000
"""2 and 8 times 2 as float32: what the chains of FFMA must end with."""


@dataclass(frozen=True)
class Finding:
    """One number of a calibration: the median of its samples, and what was done."""

    samples: tuple[float, ...]
    how: str

    @property
    def value(self) -> float:
        """The median."""
        return statistics.median(self.samples)


Findings = dict[str, Finding]


def per_unit(few: Sequence[float], many: Sequence[float], units: float) -> tuple[float, ...]:
    """What each of `units` of work takes, that the long runs have more than the short ones: a sample for each pair.

    Raises MachineError where a long run is not longer than its short one.
    """
    samples = tuple((long - short) / units for short, long in zip(few, many, strict=True))
    if min(samples) <= 0:
        raise MachineError(f"a long run was no longer than a short one: {few[0]:.6g} and {many[0]:.6g}")
    return samples


def chunk_bytes(threads: int) -> int:
    """Bytes that a block reads or writes in a step."""
    return threads * VECTORS * VECTOR_BYTES


def chunks_of(share: float, l2_bytes: int, threads: int) -> int:
    """Chunks of a working set that is so large a share of L2, one at least."""
    return max(1, int(share * l2_bytes) // chunk_bytes(threads))


def last_of_chain(places: NDArray[np.uint64], starts: NDArray[np.int64], steps: int) -> NDArray[np.uint64]:
    """The addresses at which chases end that begin at these numbers of the chain and take so many steps."""
    return places[(starts + steps) % len(places)]


def gaps(rows: Rows) -> NDArray[np.float64]:
    """Cycles between the end of each block and the start of the next on the same SM; results are the SMs' numbers.

    Meant for blocks that run one at a time on each SM. Raises MachineError where they overlap, or nothing follows.
    """
    found: list[float] = []
    for sm in np.unique(rows.results):
        here = rows.results == sm
        order = np.argsort(rows.starts[here])
        starts, ends = rows.starts[here][order].astype(np.int64), rows.ends[here][order].astype(np.int64)
        found += (starts[1:] - ends[:-1]).tolist()
    if not found or min(found) < 0:
        raise MachineError("blocks that were to follow one another ran at the same time, or there was one for each SM")
    return np.array(found, np.float64)


def pairs(
    bench: Bench,
    kernel: str,
    blocks: int,
    threads: int,
    arguments: tuple[Any, ...],
    steps: tuple[int, int],
    expected: Callable[[int], Any],
) -> Runs:
    """Cycles of short and long runs, the median of the blocks of each, after one that brings the code into caches."""
    bench.run(kernel, blocks, threads, *arguments, steps[0], expected=expected(steps[0]))
    taken: Runs = ([], [])
    for _ in range(bench.repeats):
        for count, cycles in zip(steps, taken, strict=True):
            rows = bench.run(kernel, blocks, threads, *arguments, count, expected=expected(count))
            cycles.append(float(np.median(rows.cycles)))
            sizes = " ".join(str(each) for each in arguments if isinstance(each, int) and each < 2**31)
            bench.keep(f"{kernel} {sizes} blocks={blocks} threads={threads} steps={count} cycles", rows.cycles)
    return taken


def per_instruction(
    bench: Bench, kernel: str, lengths: tuple[int, int], blocks: int, threads: int, *arguments: Any, result: Any = None
) -> tuple[float, ...]:
    """Cycles of each instruction of loops of two lengths, those of the loop itself taken off.

    `kernel` is their name but for the length. The result is that of all runs; without one, the passes of the loop.
    """
    passes = (64, 576)
    short, long = (
        per_unit(
            *pairs(bench, f"{kernel}_{length}", blocks, threads, arguments, passes, partial(_result, result)),
            passes[1] - passes[0],
        )
        for length in lengths
    )
    return per_unit(short, long, lengths[1] - lengths[0])


def _result(result: Any, passes: int) -> Any:
    return passes if result is None else result


def timed(bench: Bench, kernel: str, blocks: int, arguments: tuple[Any, ...], steps: tuple[int, int]) -> Runs:
    """Seconds of short and long runs, after one that brings data into the caches."""
    expected = ones_summed if kernel == "read_past_l1" else lambda count: count
    bench.run(kernel, blocks, READERS, *arguments, steps[0], expected=expected(steps[0]))
    taken: Runs = ([], [])
    for _ in range(bench.repeats):
        for count, seconds in zip(steps, taken, strict=True):
            taken_s, _ = bench.seconds(kernel, blocks, READERS, *arguments, count, expected=expected(count))
            seconds.append(taken_s)
            sizes = " ".join(map(str, arguments[1:]))
            bench.keep(f"{kernel} chunks, first, stride={sizes} blocks={blocks} steps={count} seconds", taken_s)
    return taken


def bytes_per_s(taken_s: Runs, more_bytes: float) -> tuple[float, ...]:
    """Bytes a second, of each pair of runs."""
    return tuple(more_bytes / each for each in per_unit(*taken_s, 1))


def stream(bench: Bench, kernel: str, memory: int, chunks: int, first: int | None = None) -> tuple[float, ...]:
    """Bytes a second of all SMs that go round a working set, a quarter of its chunks at least and a whole round more.

    Blocks begin `first` chunks apart; where it is None, spread over all of them.
    """
    blocks = 4 * bench.sms
    apart = max(1, chunks // blocks) if first is None else first
    few, many = chunks, chunks + max(chunks, 512)
    taken_s = timed(bench, kernel, blocks, (memory, chunks, apart, 1), (few, many))
    return bytes_per_s(taken_s, blocks * chunk_bytes(READERS) * (many - few))


def chase(
    bench: Bench,
    kernel: str,
    places: NDArray[np.uint64],
    steps: tuple[int, int],
    before: Callable[[], None],
    where: str,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean cycles of a step, slowest SM less fastest) of chases from every SM, begun in different parts of a chain."""
    starts = np.arange(bench.sms) * (len(places) // bench.sms)
    address = bench.uploaded(places[starts])
    means, spreads = [], []
    for _ in range(bench.repeats):
        taken = []
        for count in steps:
            before()
            rows = bench.run(
                kernel, bench.sms, WARP, address, 0, count, expected=last_of_chain(places, starts, count)
            )  # fmt: skip
            taken.append(rows.cycles)
            bench.keep(f"{kernel} {where}, steps={count} cycles", rows.cycles)
        each = (taken[1] - taken[0]) / (steps[1] - steps[0])
        means.append(float(each.mean()))
        spreads.append(float(each.max() - each.min()))
        bench.keep(f"{kernel} {where}, cycles a step, fastest SM", each.min())
        bench.keep(f"{kernel} {where}, cycles a step, slowest SM", each.max())
    return tuple(means), tuple(spreads)


def random_order(lines: int, taken: int) -> NDArray[np.int64]:
    """`taken` different lines of `lines`, in a random order that is always the same."""
    order: NDArray[np.int64] = np.random.default_rng(1).permutation(lines)[:taken].astype(np.int64)
    return order


def side_by_side(lines: int, threads: int) -> NDArray[np.int64]:
    """All lines, in an order whose equal parts, one for each thread, go through memory next to each other: a block of
    so many threads reads as many neighbouring lines at each step, and those behind them at the next."""
    steps = lines // (32 * threads)
    return np.arange(32 * steps * threads).reshape(32, steps, threads).transpose(0, 2, 1).ravel()


def ones_summed(steps: int) -> int:
    """What a thread's sum of the ones that it reads in so many steps is."""
    return VECTORS * VECTOR_BYTES // 4 * steps
