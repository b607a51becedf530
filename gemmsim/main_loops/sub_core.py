"""A main loop as the warps of one sub-core run it: issue slots, register ports, stalls, scoreboards, barriers, and the
banks of shared memory that the sub-cores of a multiprocessor share.

Every instruction takes as long to issue as the register ports make it on average (`registers.py`). Beyond that a warp
waits for its stall, for the scoreboards in its wait mask, and at a barrier for the other warps of its block. The
sub-core stays with a warp as long as that can issue, then turns to the one that has waited longest. All sub-cores do
the same at the same time, so each has its share of the banks. No constant here was fitted to a measured kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cache

from gemmsim.device import DATA
from gemmsim.errors import InputError, require
from gemmsim.machine_code.encoding import NO_BARRIER
from gemmsim.machine_code.main_loop import MainLoop
from gemmsim.machine_code.sass import Instruction
from gemmsim.main_loops.port_streams import held_cycles, other_instructions, simulate_loops, stream_of_loop
from gemmsim.registers.register_files import RegisterFile, register_file
from gemmsim.toml_files import read_toml

WARM_PASSES, PASSES = 4, 8
"""Passes of a warp, on average, before the count begins, and in it: even, since those with two stages can alternate."""
SUB_CORES = 4
SCOREBOARDS = 6


@dataclass(frozen=True)
class Latencies:
    """Cycles until a result can be used or an operand overwritten, as `data/latencies.toml` explains."""

    shared_load: int
    global_load: int
    local: int
    other: int
    source_read: int
    source: str = ""

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self) if each.name != "source"):
            require(1 <= getattr(self, name) <= 10_000, "{n} {v}; allowed: 1 to 10000", n=name, v=getattr(self, name))

    def of(self, instruction: Instruction) -> int:
        """The latency of one instruction, from its issue or, in shared memory, from its last wavefront but one on."""
        match instruction.kind:
            case "shared_load":
                return self.shared_load
            case "global_load" | "global_copy":
                return self.global_load
            case "local":
                return self.local
        return self.other


@cache
def latencies(of: str = "hopper") -> Latencies:
    """The latencies of an architecture; InputError where none are known."""
    rows = read_toml(DATA / "latencies.toml")
    if of not in rows:
        raise InputError(f"no latencies of {of}; known: {', '.join(rows)}")
    return Latencies(**rows[of])


@dataclass(frozen=True)
class Residents:
    """Who goes round the loop on a sub-core: `warps`, dealt to `blocks`. A shared load and a shared store take so many
    wavefronts on average; `merged` is the share of the loads whose lanes merge."""

    warps: int
    blocks: int = 1
    load_wavefronts: float = 1.0
    store_wavefronts: float = 1.0
    merged: float = 0.0

    def __post_init__(self) -> None:
        require(0 <= self.merged <= 1, "a share of {m} merges; allowed: 0 to 1", m=self.merged)
        require(1 <= self.blocks <= self.warps, "{w} warps of {b} blocks; a block has one", w=self.warps, b=self.blocks)

    def wavefronts(self, instruction: Instruction) -> float:
        """Wavefronts of an instruction."""
        if instruction.kind == "shared_load":
            return self.load_wavefronts
        return self.store_wavefronts if instruction.kind in ("shared_store", "global_copy") else 0.0


def loop_cycles_per_ffma(
    loop: MainLoop, residents: Residents, file: RegisterFile | None = None, known: Latencies | None = None
) -> float:
    """Cycles of a sub-core for each FFMA, in the steady state of these warps going round the loop.

    Of branches within the loop none is taken.
    """
    file = file or register_file()
    core = _SubCore(loop.instructions, issue_cycles(loop, file, residents.merged), residents, known or latencies())
    warm = loop.ffma * residents.warps * WARM_PASSES
    return core.run(warm, warm + loop.ffma * residents.warps * PASSES)


def issue_cycles(loop: MainLoop, file: RegisterFile, merged: float = 0.0) -> list[float]:
    """Cycles that the issue of each instruction takes on average, what it waits for banks in it; `merged` is the share
    of the shared loads whose lanes merge."""
    (report,) = simulate_loops([loop], file)
    cycles = [float(each.stall) for each in stream_of_loop(loop, file).instructions]
    rules = other_instructions(file)
    for number, each in enumerate(loop.instructions):
        if each.kind == "shared_load":
            cycles[number] += merged * (held_cycles(each, rules, merged=True) - 1)
    for conflict in report.ports.conflicts:
        cycles[conflict.instruction] += conflict.cycles
    return cycles


@dataclass
class _Warp:
    """A warp at instruction `at`, which can issue from cycle `ready` on, once the scoreboards it waits for are free.

    `copied` is when its asynchronous copies so far are there, `groups` the same of each group of them.
    """

    block: int
    at: int = 0
    ready: float = 0.0
    issued: float = 0.0
    waits_at_barrier: bool = False
    copied: float = 0.0
    groups: list[float] = field(default_factory=list)
    free: list[float] = field(default_factory=lambda: [0.0] * SCOREBOARDS)


class _SubCore:
    """The state of the simulation: the warps, the cycle, and when the banks of shared memory are free again."""

    def __init__(
        self, code: Sequence[Instruction], cycles: Sequence[float], residents: Residents, known: Latencies
    ) -> None:
        self.code, self.cycles, self.residents, self.known = code, cycles, residents, known
        self.masks = [[bit for bit in range(SCOREBOARDS) if each.control.wait_mask >> bit & 1] for each in code]
        self.warps = [_Warp(number % residents.blocks) for number in range(residents.warps)]
        self.current, self.now, self.banks_free = self.warps[0], 0.0, 0.0

    def run(self, first: int, last: int) -> float:
        """Cycles for each of the FFMA from number `first` to number `last`."""
        ffma, start = 0, 0.0
        while ffma < last:
            warp = self.next_warp()
            counts = self.code[warp.at].kind == "ffma"
            ffma += counts
            self.issue(warp)
            if counts and ffma == first:
                start = self.now
        return (self.now - start) / (last - first)

    def next_warp(self) -> _Warp:
        """The warp that issues next; the clock goes on to when it can."""
        while True:
            can = [(self.earliest(warp), warp) for warp in self.warps if not warp.waits_at_barrier]
            able = [warp for cycle, warp in can if cycle <= self.now]
            if self.current in able:
                return self.current
            if able:
                return min(able, key=lambda warp: warp.issued)
            self.now = float(math.ceil(min(cycle for cycle, _ in can)))

    def earliest(self, warp: _Warp) -> float:
        """The cycle from which on a warp can issue."""
        return max([warp.ready, *(warp.free[each] for each in self.masks[warp.at])])

    def issue(self, warp: _Warp) -> None:
        """Issue the instruction of a warp; the clock goes on to the next slot."""
        each, control = self.code[warp.at], self.code[warp.at].control
        wavefronts = self.residents.wavefronts(each)
        read, done = self.now + self.known.source_read, self.now + self.known.of(each)
        if wavefronts:
            self.banks_free = max(self.banks_free, self.now) + wavefronts * SUB_CORES
            read = self.banks_free
            done = max(done, self.banks_free + self.known.shared_load - (SUB_CORES - 1) * wavefronts)
        for scoreboard, cycle in ((control.write_barrier, done), (control.read_barrier, min(read, done))):
            if scoreboard != NO_BARRIER:
                warp.free[scoreboard] = max(warp.free[scoreboard], cycle)
        cycles = self.cycles[warp.at]
        warp.ready, warp.issued = self.now + max(control.stall, cycles), self.now
        self.current = warp
        self.now += cycles
        warp.at = (warp.at + 1) % len(self.code)
        match each.opcode:
            case "BAR":
                self.meet(warp)
            case "LDGSTS":
                warp.copied = self.now + self.known.global_load
            case "LDGDEPBAR":
                warp.groups.append(warp.copied)
            case "DEPBAR":
                self.wait_for_copies(warp, each)

    def wait_for_copies(self, warp: _Warp, each: Instruction) -> None:
        """Let a warp wait for all groups of copies but the last few, as many as the instruction names."""
        pending = int(each.values[-1], 0) if each.values[-1][:1].isdigit() else 0
        done = warp.groups[: len(warp.groups) - pending]
        if done:
            warp.ready = max(warp.ready, done[-1])
            del warp.groups[: len(done)]

    def meet(self, warp: _Warp) -> None:
        """Let a warp wait for those of its block, and all of them go on when the last has come."""
        warp.waits_at_barrier = True
        block = [other for other in self.warps if other.block == warp.block]
        if all(other.waits_at_barrier for other in block):
            for other in block:
                other.waits_at_barrier = False
                other.ready = max(other.ready, self.now)
