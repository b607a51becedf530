"""Instruction streams of every kind, as the register simulator takes them: what an instruction beside the FFMA reads,
how long it keeps the others waiting, and what the four sub-cores of a multiprocessor share.

Each instruction takes an issue slot. Its registers are read through the same banks as those of the FFMA, all those of
a wide operand too. What is not in the data of an architecture costs nothing more: latencies, scoreboards, barriers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np

from gemmsim.banks import passes
from gemmsim.device import Capability, capability
from gemmsim.errors import require
from gemmsim.machine_code.encoding import Control
from gemmsim.machine_code.loop_bodies import SHARED_SPREAD, LoopBody
from gemmsim.machine_code.main_loop import MainLoop
from gemmsim.machine_code.sass import Instruction as Code
from gemmsim.main_loops.port_shares import PortShare, share_of_loop
from gemmsim.registers.reads import Instruction, PortReport, Stream, simulate
from gemmsim.registers.register_files import RegisterFile, _rows, register_file
from gemmsim.tiling import WARP_SIZE

SLOTS = "ABC"


@dataclass(frozen=True)
class OtherInstructions:
    """What instructions beside the FFMA cost, as `data/register_files.toml` explains field by field."""

    multiply_cycles: int = 1
    memory_ends_kept: bool = True
    merged_load_registers: int = 4
    source: str = ""

    def __post_init__(self) -> None:
        require(1 <= self.multiply_cycles <= 15, "{c} cycles; allowed: 1 to 15", c=self.multiply_cycles)
        require(
            self.merged_load_registers in (1, 2, 4), "{n} registers; allowed: 1, 2, 4", n=self.merged_load_registers
        )


@cache
def other_instructions(file: RegisterFile) -> OtherInstructions:
    """Those of an architecture; where nothing is known, each takes its issue slot and its reads alone."""
    row = _rows().get(file.name, {}).get("others", {})
    return OtherInstructions(**{each.name: row[each.name] for each in fields(OtherInstructions) if each.name in row})


@dataclass(frozen=True)
class MixedReport:
    """What a pass through a stream costs. `ports` is the simulation of a sub-core, issue slots and register reads;
    `shared_cycles` what its shared accesses keep the data stage busy, which all sub-cores share. The larger counts.
    """

    ports: PortReport
    instructions: int
    shared_cycles: int = 0

    @property
    def cycles(self) -> float:
        """Cycles a pass."""
        return max(self.ports.cycles, float(self.shared_cycles))

    @property
    def cycles_per_ffma(self) -> float:
        """The same for each FFMA, with all that stands between them."""
        return self.cycles / self.ports.ffma

    def share(self, file: RegisterFile) -> PortShare:
        """What it leaves of the FFMA peak."""
        return share_of_loop((self.ports.ffma, self.instructions, self.cycles), file)


def simulate_bodies(bodies: Sequence[LoopBody], of: str | Capability = "sm_90", warps: int = 1) -> list[MixedReport]:
    """A report for each loop body, in order: all sub-cores run it in step, from the addresses that a body has."""
    on = of if isinstance(of, Capability) else capability(of)
    file = register_file(on)
    reports = simulate([stream_of_body(body, file) for body in bodies], file, warps)
    return [
        MixedReport(report, len(body.code), on.sub_partitions * sum(map(wavefronts, body.instructions)))
        for body, report in zip(bodies, reports, strict=True)
    ]


def simulate_loops(loops: Sequence[MainLoop], file: RegisterFile | None = None, warps: int = 1) -> list[MixedReport]:
    """A report for each main loop, in order, as `stream_of_loop`; the banks of shared memory are left out."""
    file = file or register_file()
    reports = simulate([stream_of_loop(loop, file) for loop in loops], file, warps)
    return [MixedReport(report, len(loop.instructions)) for loop, report in zip(loops, reports, strict=True)]


def stream_of_body(body: LoopBody, file: RegisterFile) -> Stream:
    """The stream of a loop body, with the stalls and yields that it has."""
    rules = other_instructions(file)
    return Stream(
        tuple(
            port_instruction(each, control, rules, merged=_merges(each))
            for each, control in zip(body.instructions, body.controls, strict=True)
        )
    )


def stream_of_loop(loop: MainLoop, file: RegisterFile) -> Stream:
    """The stream of a main loop, as if there were always another warp to issue while one stalls.

    So a stall costs nothing, but nothing is kept over it: another warp reads its own operands then. A shared load
    is taken to be merged by nobody, since its addresses are not known.
    """
    rules = other_instructions(file)
    return Stream(tuple(_among_warps(each, rules) for each in loop.instructions))


def _among_warps(each: Code, rules: OtherInstructions) -> Instruction:
    found = port_instruction(each, Control(), rules)
    stays = each.control.stall <= 1 and each.control.yield_bit == 1
    return found if stays else replace(found, reuse="")


def port_instruction(each: Code, control: Control, rules: OtherInstructions, merged: bool = False) -> Instruction:
    """One instruction as the simulator takes it: its reads in the slots that it names them in, the further registers
    of wide ones behind slot C, where nothing is kept; `merged` says of a shared load that its lanes merge."""
    slots: list[int | None] = [None] * len(SLOTS)
    further: list[int] = []
    memory = each.access is not None and not rules.memory_ends_kept
    for read in each.reads:
        registers = list(range(read.first, read.first + read.registers))
        if not memory:
            slots[SLOTS.index(read.slot)] = registers.pop(0)
        further += registers
    return Instruction(
        (*slots, *further),
        "".join(read.slot for read in each.reads if read.reuse and not memory),
        each.writes[0] if each.writes else None,
        kind="FFMA" if each.kind == "ffma" else each.opcode,
        stall=max(control.stall, held_cycles(each, rules, merged)),
        yield_bit=control.yield_bit,
    )


def held_cycles(each: Code, rules: OtherInstructions, merged: bool) -> int:
    """Cycles from the issue of an instruction to the next issue, ports apart; `merged` says that its lanes merge."""
    if each.opcode == "IMAD":
        return rules.multiply_cycles
    return -(-each.data_registers // rules.merged_load_registers) if merged else 1


def wavefronts(each: Code) -> int:
    """Passes of an instruction of a loop body through the banks of shared memory, 0 where it has none there."""
    if each.kind not in ("shared_load", "shared_store"):
        return 0
    base = next(read.first for read in each.reads if read.slot == "A")
    pitch_bytes = {register: bits // 8 for bits, register in SHARED_SPREAD.items()}.get(base, 0)
    addresses = np.arange(WARP_SIZE) * pitch_bytes
    counted = passes(addresses, np.ones(WARP_SIZE, bool), 4 * each.data_registers, each.kind == "shared_store")
    return int(counted.wavefronts)


def _merges(each: Code) -> bool:
    """Whether the lanes of a shared load are served in fewer passes than it brings registers."""
    return each.kind == "shared_load" and wavefronts(each) < each.data_registers
