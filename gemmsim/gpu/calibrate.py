"""What is measured of a GPU, part by part; `paired_runs.py` says how numbers come of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.calibration import BARRIER_WARPS, WIDTHS_BITS
from gemmsim.coalescing import LINE_BYTES
from gemmsim.errors import MachineError
from gemmsim.gpu.microbenchmarks import WARP, Bench
from gemmsim.gpu.paired_runs import (
    READERS,
    VECTOR_BYTES,
    VECTORS,
    bytes_per_s,
    chase,
    chunk_bytes,
    chunks_of,
    gaps,
    last_of_chain,
    ones_summed,
    pairs,
    per_instruction,
    per_unit,
    random_order,
    side_by_side,
    stream,
    timed,
)
from gemmsim.machine_code.encoding import WORD_BYTES

GATHERERS, GATHERING_BLOCKS = 64, 32
ROW_BYTES = 16 * 1024
"""Threads of a block that each follow a chain of their own."""
LAUNCHES = 60
"""Launches of empty kernels: events count in half microseconds."""
WARM_UP_S = 0.05
HALF, ONE = 0.5, 1.0
"""The operands of FFMA: x / 2 + 1 comes to rest at 2, whatever x was."""
TWO_BITS, SIXTEEN_BITS = 0x40000000, 0x41800000
"""2 and 8 times 2 as float32: what the chains of FFMA must end with."""
SHARED_ROWS = 15
"""Rows of the array that chases in shared memory go round."""
NEAR, INSIDE, FAR = 1 / 16, 0.4, 0.7
"""Working sets as shares of L2: small; less than a half; more than a half."""
LARGEST_STREAM_BYTES = 4 * 2**30
MEMORY_CHAIN_BYTES = 256 * 2**20


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


def ffma(bench: Bench) -> Findings:
    """Rate and latency of FFMA, and the clock while they run."""
    threads = 1024
    cycles = per_instruction(bench, "ffma", (128, 384), bench.sms, threads, HALF, ONE, result=SIXTEEN_BITS)
    chain = per_instruction(bench, "ffma_chain", (32, 96), bench.sms, WARP, HALF, ONE, result=TWO_BITS)
    clocks = []
    for _ in range(bench.repeats):
        rows = bench.run("ffma_128", bench.sms, threads, HALF, ONE, 40_000, expected=SIXTEEN_BITS)
        bench.keep("ffma_128 steps=40000 clock_hz", rows.clock_hz)
        clocks.append(rows.clock_hz)
    return {
        "clock_hz": Finding(tuple(clocks), "clock over timer, FFMA on all SMs for tens of milliseconds"),
        "ffma_per_cycle_per_sm": Finding(
            tuple(threads / each for each in cycles), "8 chains a thread, 32 warps, two operands kept"
        ),
        "ffma_latency_cycles": Finding(chain, "one chain of FFMA, one warp"),
    }


def shared(bench: Bench) -> Findings:
    """Latency and rate of loads from shared memory."""
    found: Findings = {}
    for bits in WIDTHS_BITS:
        _shared_latency(bench, bits, apart=0)  # kept beside: all lanes at one address
        samples = _shared_latency(bench, bits, apart=1)
        how = "chain of loads, one warp, lanes at neighbouring addresses"
        found[f"shared_load_latency_{bits}_bit_cycles"] = Finding(samples, how)
    cycles = pairs(bench, "read_shared", bench.sms, 1024, (), (32, 544), ones_summed)
    rates = tuple(chunk_bytes(1024) / each for each in per_unit(*cycles, 512))
    return found | {"shared_bytes_per_cycle": Finding(rates, "128-bit loads without conflicts, 32 warps")}


def _shared_latency(bench: Bench, bits: int, apart: int) -> tuple[float, ...]:
    def end(steps: int) -> int:
        return WARP * bits // 8 * (steps % SHARED_ROWS)

    cycles = pairs(bench, f"chase_shared_{bits}", bench.sms, WARP, (apart,), (256, 2304), end)
    return per_unit(*cycles, 2048)


def l1(bench: Bench) -> Findings:
    """Latency and rate of loads that hit L1."""
    lines = 128
    _, places = bench.chain(lines, random_order(lines, lines))
    starts = bench.uploaded(np.full(bench.sms, places[0]))
    cycles = pairs(
        bench, "chase_l1", bench.sms, WARP, (starts, 2 * lines), (256, 2304),
        lambda steps: last_of_chain(places, np.array([0]), 2 * lines + steps),
    )  # fmt: skip
    memory = bench.memory(VECTORS * VECTOR_BYTES * WARP * 4)
    reads = pairs(bench, "read_l1", bench.sms, 1024, (memory,), (32, 544), ones_summed)
    rates = tuple(chunk_bytes(1024) / each for each in per_unit(*reads, 512))
    return {
        "l1_latency_cycles": Finding(per_unit(*cycles, 2048), "chain of 64-bit loads in 16 KB, one warp"),
        "l1_bytes_per_cycle": Finding(rates, "128-bit loads of the same 16 KB by 32 warps"),
    }


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


def _slowest(bench: Bench, places: Any, before: Callable[[], None], where: str) -> Finding:
    """The slowest of 64 loads, one of each thread of a block, on a few SMs: too few for any rate to matter."""
    blocks, threads, steps = min(GATHERING_BLOCKS, bench.sms), GATHERERS, (8, 32)
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
            bench.keep(f"gather {where}, steps={count} cycles", rows.cycles)
        samples.append((taken[1] - taken[0]) / (steps[1] - steps[0]))
    return Finding(tuple(samples), f"loads and a barrier, {threads} threads, each its own chain, {where}")


def _slowest_in_l2(bench: Bench) -> Finding:
    chunks = chunks_of(INSIDE, bench.facts.l2_bytes, READERS)
    lines = chunks * chunk_bytes(READERS) // LINE_BYTES
    memory, places = bench.chain(lines, random_order(lines, lines))

    def read_all() -> None:
        bench.queue("read_past_l1", 4 * bench.sms, READERS, memory, chunks, 1, 1, chunks)

    return _slowest(bench, places, read_all, f"random in {INSIDE:.0%} of L2, read before")


def barrier(bench: Bench) -> Findings:
    """The interval of barriers, by the warps of a block."""
    return {
        f"barrier_{warps}_warps_cycles": Finding(
            per_instruction(bench, "barriers", (32, 96), bench.sms, warps * WARP), "barriers in a row, one block an SM"
        )
        for warps in BARRIER_WARPS
    }


def launch(bench: Bench) -> Findings:
    """What launches and blocks cost beyond their work."""
    sms, threads = bench.sms, 256
    bench.seconds("empty", sms, threads)
    empty = [bench.seconds("empty", sms, threads)[0] for _ in range(LAUNCHES)]
    bench.raw["empty kernel, seconds"] = empty
    lengths = (20_000, 220_000)
    spins = [[bench.seconds("spin", sms, threads, cycles) for _ in range(LAUNCHES)] for cycles in lengths]
    seconds = [[taken_s for taken_s, _ in each] for each in spins]
    cycles = [[float(np.median(rows.cycles)) for _, rows in each] for each in spins]
    for name, values in zip(lengths, seconds, strict=True):
        bench.raw[f"spin for {name} cycles, seconds"] = values
    cycle_s = [  # of the SMs, as events count it
        (long_s - short_s) / (long - short) for short_s, long_s, short, long in zip(*seconds, *cycles, strict=True)
    ]
    clock_s = statistics.median(cycle_s)
    overhead = tuple(taken_s - each * clock_s for taken_s, each in zip(seconds[0], cycles[0], strict=True))
    few, many = 512, 1536
    started = [[bench.seconds("empty", sms * each, 128)[0] for _ in range(LAUNCHES)] for each in (few, many)]
    for name, values in zip((few, many), started, strict=True):
        bench.raw[f"{name} empty blocks an SM, seconds"] = values
    starts = tuple(each / clock_s for each in per_unit(started[0], started[1], many - few))
    shared_bytes = bench.capability.shared_bytes_per_block_optin
    turnovers = []
    for _ in range(bench.repeats):
        rows = bench.run("spin", 8 * sms, threads, 4000, shared_bytes=shared_bytes)
        found = gaps(rows)
        bench.keep("cycles between blocks", found)
        turnovers.append(float(np.median(found)))
    return {
        "launch_s": Finding(tuple(empty), f"an empty kernel of {sms} blocks of {threads} threads, by events"),
        "launch_overhead_s": Finding(overhead, "events' time of blocks that wait, less the time that they waited"),
        "block_start_cycles": Finding(starts, f"{many} empty blocks of 128 threads an SM, less {few}"),
        "block_turnover_cycles": Finding(tuple(turnovers), "blocks of 256 threads that take all of shared memory"),
    }


def copy(bench: Bench) -> Findings:
    """Latency of asynchronous copies; nothing where there are none."""
    if float(bench.facts.capability) < 8.0:
        return {}
    lines = 1024
    numbers = bench.uploaded(np.arange(lines * LINE_BYTES // 4, dtype=np.uint32))
    cycles = pairs(
        bench, "copies", bench.sms, WARP, (numbers, lines), (1024, 3072),
        lambda steps: (steps - 1) % lines * (LINE_BYTES // 4),
    )  # fmt: skip
    return {"copy_latency_cycles": Finding(per_unit(*cycles, 2048), "16 bytes past L1 by one lane, each waited for")}


def atomic(bench: Bench) -> Findings:
    """Latency of atomic additions whose result is used."""
    lines = 4096
    _, places = bench.chain(lines, random_order(lines, lines))
    start = bench.uploaded(places[:1])
    cycles = pairs(
        bench, "chase_atomic", 1, WARP, (start, lines), (256, 2304),
        lambda steps: last_of_chain(places, np.array([0]), lines + steps),
    )  # fmt: skip
    return {"atomic_latency_cycles": Finding(per_unit(*cycles, 2048), "chain of 64-bit additions of 0 in 512 KB")}


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


PARTS: Mapping[str, Callable[[Bench], Findings]] = {
    "ffma": ffma,
    "shared": shared,
    "l1": l1,
    "l2": l2,
    "dram": dram,
    "cold": cold,
    "barrier": barrier,
    "launch": launch,
    "copy": copy,
    "atomic": atomic,
}
"""What can be measured, in this order."""


def warm_up(bench: Bench) -> None:
    """Keep all SMs busy until their clocks have gone up."""
    until = time.perf_counter() + WARM_UP_S
    while time.perf_counter() < until:
        bench.run("ffma_128", bench.sms, 1024, HALF, ONE, 4096, expected=SIXTEEN_BITS)
