"""What is measured of a GPU, part by part, L2 and beyond in `calibrate_memory.py`.

`paired_runs.py` says how numbers come of it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

import numpy as np

from gemmsim.calibration.numbers import BARRIER_WARPS, WIDTHS_BITS
from gemmsim.coalescing import LINE_BYTES
from gemmsim.gpu.calibrate_memory import cold, dram, l2, lines
from gemmsim.gpu.microbenchmarks import WARP, Bench
from gemmsim.gpu.paired_runs import (
    HALF,
    ONE,
    SIXTEEN_BITS,
    TWO_BITS,
    VECTOR_BYTES,
    VECTORS,
    Finding,
    Findings,
    chunk_bytes,
    gaps,
    last_of_chain,
    ones_summed,
    pairs,
    per_instruction,
    per_unit,
    random_order,
)

LAUNCHES = 60
"""Launches of empty kernels: events count in half microseconds."""
WARM_UP_S = 0.05
SHARED_ROWS = 15
"""Rows of the array that chases in shared memory go round."""


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


PARTS: Mapping[str, Callable[[Bench], Findings]] = {
    "ffma": ffma,
    "shared": shared,
    "l1": l1,
    "l2": l2,
    "dram": dram,
    "cold": cold,
    "lines": lines,
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
