"""What is measured of L2, of memory, and of the first accesses of a launch, as parts of `calibrate.py`."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import numpy as np

from gemmsim.coalescing import LINE_BYTES
from gemmsim.errors import MachineError
from gemmsim.gpu.microbenchmarks import WARP, Bench
from gemmsim.gpu.paired_runs import (
    HALF,
    ONE,
    READERS,
    SIXTEEN_BITS,
    Finding,
    Findings,
    bytes_per_s,
    chase,
    chunk_bytes,
    chunks_of,
    last_of_chain,
    ones_summed,
    pairs,
    per_unit,
    random_order,
    side_by_side,
    stream,
    timed,
)
from gemmsim.machine_code.encoding import WORD_BYTES

GATHERERS, GATHERING_BLOCKS = 64, 32
LINE_GATHERERS = 256, 1024
"""Threads of a block that each follow a chain of their own."""
ROW_BYTES = 16 * 1024
NEAR, INSIDE, FAR = 1 / 16, 0.4, 0.7
"""Working sets as shares of L2: small; less than a half; more than a half."""
LARGEST_STREAM_BYTES = 4 * 2**30
MEMORY_CHAIN_BYTES = 256 * 2**20


def l2(bench: Bench) -> Findings:
    """Latency and rates of L2: near and far, read and written, by all SMs and by one."""
    size, sms = bench.facts.l2_bytes, bench.sms
    _check_past_l1(bench)
    near, spread = _l2_latency(bench, NEAR)
    far, _ = _l2_latency(bench, FAR)
    _l2_latency(bench, INSIDE)
    memory = bench.memory(chunks_of(FAR, size, READERS) * chunk_bytes(READERS))
    rates = {share: stream(bench, "read_past_l1", memory, chunks_of(share, size, READERS)) for share in (INSIDE, FAR)}
    same = stream(bench, "read_past_l1", memory, chunks_of(INSIDE, size, READERS), first=0)
    written = stream(bench, "write_global", memory, chunks_of(INSIDE, size, READERS))
    alone = chunks_of(NEAR, size, 1024)
    bench.run("read_past_l1", sms, 1024, memory, alone, 1, 1, alone)
    cycles = pairs(
        bench, "read_past_l1", 1, 1024, (memory, alone, 0, 1), (2 * alone, 6 * alone), ones_summed
    )  # fmt: skip
    one_sm = tuple(chunk_bytes(1024) / each for each in per_unit(*cycles, 4 * alone))
    cycles = pairs(
        bench, "write_global", 1, 1024, (memory, alone, 0, 1), (2 * alone, 6 * alone), lambda steps: steps
    )  # fmt: skip
    one_writes = tuple(chunk_bytes(1024) / each for each in per_unit(*cycles, 4 * alone))
    blocks = f"{4 * sms} blocks of {READERS} threads"
    return {
        "l2_latency_near_cycles": Finding(near, f"random chain past L1 in {NEAR:.0%} of L2, one warp on every SM"),
        "l2_latency_far_cycles": Finding(far, f"random chain past L1 in {FAR:.0%} of L2, one warp on every SM"),
        "l2_latency_spread_cycles": Finding(spread, "slowest SM less fastest, of the near one"),
        "l2_bytes_per_s": Finding(rates[INSIDE], f"128-bit loads past L1 in {INSIDE:.0%} of L2, {blocks}"),
        "l2_far_bytes_per_s": Finding(rates[FAR], f"the same in {FAR:.0%} of L2"),
        "l2_same_lines_bytes_per_s": Finding(same, f"the same in {INSIDE:.0%} of L2, all blocks at one place"),
        "l2_write_bytes_per_s": Finding(written, f"128-bit stores to {INSIDE:.0%} of L2, {blocks}"),
        "l2_bytes_per_cycle_per_sm": Finding(one_sm, f"128-bit loads past L1 in {NEAR:.0%} of L2, one block of 1024"),
        "l2_write_bytes_per_cycle_per_sm": Finding(
            one_writes, f"128-bit stores to {NEAR:.0%} of L2, one block of 1024"
        ),
    }


def dram(bench: Bench) -> Findings:
    """Latency and rates of memory: L2 is read full of other data before."""
    size = min(LARGEST_STREAM_BYTES, bench.free_bytes // 2)
    blocks, chunk = 4 * bench.sms, chunk_bytes(READERS)
    steps = size // (blocks * chunk)
    if blocks * chunk * (steps // 2) < 4 * bench.facts.l2_bytes:
        raise MachineError(f"{size / 1e9:.3g} GB are half of what is free, too little to stream past L2")
    memory = bench.memory(blocks * chunk * steps)
    flushing = -(-4 * bench.facts.l2_bytes // (blocks * chunk))

    def flush() -> None:
        bench.queue("read_past_l1", blocks, READERS, memory, flushing * blocks, 1, blocks, flushing)

    lines, taken = MEMORY_CHAIN_BYTES // LINE_BYTES, (64, 576)
    _, places = bench.chain(lines, random_order(lines, bench.sms * 640))
    latency, _ = chase(bench, "chase_l2", places, taken, flush, "in memory")
    how = "random chain through 256 MiB, L2 read full of other data before, one warp on every SM"
    found = {"dram_latency_cycles": Finding(latency, how)}
    for name, kernel in (("dram_bytes_per_s", "read_past_l1"), ("dram_write_bytes_per_s", "write_global")):
        taken_s = timed(bench, kernel, blocks, (memory, blocks * steps, 1, blocks), (steps // 2, steps))
        rates = bytes_per_s(taken_s, blocks * chunk * (steps - steps // 2))
        what = "loads" if kernel == "read_past_l1" else "stores"
        found[name] = Finding(rates, f"128-bit {what}, {blocks} blocks side by side through {size / 2**30:.3g} GiB")
    return found


def cold(bench: Bench) -> Findings:
    """What the first accesses of a launch cost when L2 has been written over: loads line after line, as tiles are
    loaded, and code."""
    lines = MEMORY_CHAIN_BYTES // LINE_BYTES
    _, places = bench.chain(lines, np.arange(lines))
    latency, _ = chase(bench, "chase_l2", places, (64, 576), bench.write_over_l2, "written over")
    rows_lines = GATHERING_BLOCKS * GATHERERS * ROW_BYTES // LINE_BYTES
    _, along_rows = bench.chain(rows_lines, np.arange(rows_lines))
    _, places = bench.chain(lines, side_by_side(lines, GATHERERS))
    found = {
        "cold_slowest_cycles": _slowest(
            bench, places, bench.write_over_l2, "side by side through 256 MiB, zeros written over L2 before"
        ),
        "cold_rows_slowest_cycles": _slowest(
            bench, along_rows, bench.write_over_l2, "each along a row of 16 KiB, zeros written over L2 before"
        ),
        "l2_slowest_cycles": _slowest_in_l2(bench),
    }
    taken: tuple[list[float], list[float]] = ([], [])
    lengths = (512, 2048)
    for _ in range(bench.repeats):
        for length, cycles in zip(lengths, taken, strict=True):
            bench.write_over_l2()
            rows = bench.run(f"straight_{length}", bench.sms, WARP, HALF, ONE, expected=SIXTEEN_BITS)
            cycles.append(float(np.median(rows.cycles)))
            bench.keep(f"straight_{length} cycles", rows.cycles)
    in_line = LINE_BYTES // WORD_BYTES
    fetches = per_unit(*taken, (lengths[1] - lengths[0]) / in_line)
    return found | {
        "cold_latency_cycles": Finding(
            latency, "line after line through 256 MiB, zeros written over L2 before, one warp on every SM"
        ),
        "code_line_cycles": Finding(
            fetches, "FFMA that run once, 8 of them in 128 bytes, zeros written over L2 before, one warp on every SM"
        ),
    }


def lines(bench: Bench) -> Findings:
    """What a line costs that an SM asks L2 for, however little of it: threads that each load from a line of its own."""
    read_all, places = _in_l2(bench)
    few, many = LINE_GATHERERS
    found = {}
    for name, blocks, who in (("l2_line_alone_cycles", 1, "one SM"), ("l2_line_cycles", bench.sms, "every SM")):
        short, long = (_gathered(bench, places, read_all, who, blocks, threads) for threads in LINE_GATHERERS)
        samples = tuple((more - less) / (many - few) for less, more in zip(short, long, strict=True))
        how = f"a block of {many} threads on {who}, less one of {few}: loads of 8 bytes, random in {INSIDE:.0%} of L2"
        found[name] = Finding(samples, how)
    return found


def _slowest(bench: Bench, places: Any, before: Callable[[], None], where: str) -> Finding:
    """The slowest of 64 loads, one of each thread of a block, on a few SMs: too few for any rate to matter."""
    samples = _gathered(bench, places, before, where, min(GATHERING_BLOCKS, bench.sms), GATHERERS)
    return Finding(samples, f"loads and a barrier, {GATHERERS} threads, each its own chain, {where}")


def _gathered(
    bench: Bench, places: Any, before: Callable[[], None], where: str, blocks: int, threads: int
) -> tuple[float, ...]:
    """Cycles of a step in which every thread of a block loads along a chain of its own, and waits for all others."""
    steps = (8, 32)
    starts = np.arange(blocks * threads) * (len(places) // (blocks * threads))
    address = bench.uploaded(places[starts])
    samples = []
    for _ in range(bench.repeats):
        taken = []
        for count in steps:
            before()
            ends = last_of_chain(places, starts[::threads], count)
            rows = bench.run("gather", blocks, threads, address, count, expected=ends)
            taken.append(float(np.median(rows.cycles)))
            bench.keep(f"gather {where}, threads={threads}, steps={count} cycles", rows.cycles)
        samples.append((taken[1] - taken[0]) / (steps[1] - steps[0]))
    return tuple(samples)


def _slowest_in_l2(bench: Bench) -> Finding:
    read_all, places = _in_l2(bench)
    return _slowest(bench, places, read_all, f"random in {INSIDE:.0%} of L2, read before")


def _in_l2(bench: Bench) -> tuple[Callable[[], None], Any]:
    """(what brings a chain into L2, its places): random in a share of it."""
    chunks = chunks_of(INSIDE, bench.facts.l2_bytes, READERS)
    lines = chunks * chunk_bytes(READERS) // LINE_BYTES
    memory, places = bench.chain(lines, random_order(lines, lines))

    def read_all() -> None:
        bench.queue("read_past_l1", 4 * bench.sms, READERS, memory, chunks, 1, 1, chunks)

    return read_all, places


def _check_past_l1(bench: Bench) -> None:
    """Raise MachineError where loads that are to pass L1 come back as fast from 16 KB as loads that hit it."""
    lines = 128
    _, places = bench.chain(lines, random_order(lines, lines))
    start = bench.uploaded(places[:1])

    def end(steps: int) -> Any:
        return last_of_chain(places, np.array([0]), 2 * lines + steps)

    hit, past = (
        statistics.median(per_unit(*pairs(bench, kernel, 1, WARP, (start, 2 * lines), (256, 1280), end), 1024))
        for kernel in ("chase_l1", "chase_l2")
    )
    if past < 2 * hit:
        raise MachineError(f"loads past L1 take {past:.4g} cycles and those that hit it {hit:.4g}: they do not pass it")


def _l2_latency(bench: Bench, share: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(cycles of a step, slowest SM less fastest) of chases through a share of L2 that all SMs have read before."""
    blocks = 4 * bench.sms
    chunks = chunks_of(share, bench.facts.l2_bytes, READERS)
    lines = chunks * chunk_bytes(READERS) // LINE_BYTES
    memory, places = bench.chain(lines, random_order(lines, lines))

    def read_all() -> None:
        bench.queue("read_past_l1", blocks, READERS, memory, chunks, 1, 1, chunks)

    return chase(bench, "chase_l2", places, (64, 2112), read_all, f"in {share:.2g} of L2")
