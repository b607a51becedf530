"""Register reads of an instruction stream: what the banks of the register file make of its order, parity and reuse.

A stream is the body of a loop, run by one warp of a sub-core. Every instruction reads its sources, slot by slot, from
the banks of the register file, each of which serves few reads a cycle; what the operand cache holds from an earlier
instruction needs no read (`operand_cache.py`), and conflicts of neighbours average out within limits
(`port_machine.py`). See docs/theory.md, "Register ports", for the rule and what it rests on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gemmsim.errors import require
from gemmsim.registers.instruction_streams import RZ, SLOTS, Instruction, Stream
from gemmsim.registers.port_runs import Conflict, Cost, run
from gemmsim.registers.register_files import RegisterFile, register_file

__all__ = ["RZ", "SLOTS", "Conflict", "Instruction", "PortReport", "Stream", "simulate"]

STEPS_AT_ONCE = 1 << 20
"""Instructions of a pass through all streams that run together; more would take more memory and no less time."""


@dataclass(frozen=True)
class PortReport:
    """What a pass through a stream costs: through its instructions, or the body of the loop where that is given.

    `peak_fraction` is against lanes that never wait; `reuse_hits` are reads that the operand cache spares, a pass.
    """

    ffma: int
    cycles: float
    cycles_per_ffma: float
    peak_fraction: float
    reuse_hits: int
    conflicts: tuple[Conflict, ...]


def simulate(streams: Iterable[Stream], file: RegisterFile | None = None, warps: int = 1) -> list[PortReport]:
    """A report for each stream, in order: its steady state on one sub-core. Many together are quickest.

    With more `warps`, in step, cycles are those for each warp's FFMA. Stalls and yields let another warp issue, which
    then empties the operand cache; how the reads of several warps conflict is left out, so this is an estimate.
    """
    file = file or register_file()
    require(type(warps) is int and warps >= 1, "{warps} warps; needed: at least 1", warps=warps)
    listed, alike = list(streams), defaultdict(list)
    for number, stream in enumerate(listed):
        alike[stream.unrolled, stream.steps].append(number)
    reports: dict[int, PortReport] = {}
    for (_, steps), numbers in alike.items():
        most = max(STEPS_AT_ONCE // steps, 1)
        for some in (numbers[first : first + most] for first in range(0, len(numbers), most)):
            reports |= zip(some, _simulate([listed[number] for number in some], file, warps), strict=True)
    return [reports[number] for number in range(len(listed))]


def _simulate(streams: Sequence[Stream], file: RegisterFile, warps: int) -> list[PortReport]:
    """Streams that are equally long."""
    alone = run(streams, file, shared=False)
    if warps == 1:
        return [_report(stream, cost, file, 1) for stream, cost in zip(streams, alone, strict=True)]
    together = run(streams, file, shared=True)
    costs = (
        replace(several, cycles=max(several.cycles, one.cycles / warps))
        for one, several in zip(alone, together, strict=True)
    )
    return [_report(stream, cost, file, warps) for stream, cost in zip(streams, costs, strict=True)]


def _report(stream: Stream, cost: Cost, file: RegisterFile, warps: int) -> PortReport:
    """The report of a stream; a loop that is too long to be held takes as long as it is fetched."""
    held = not 0 < file.held_instructions <= stream.steps
    cycles = cost.cycles if held else max(cost.cycles, stream.steps * file.fetch_cycles / warps)
    per_ffma = cycles / stream.ffma
    return PortReport(
        stream.ffma, cycles, per_ffma, file.ffma_interval_cycles / per_ffma, cost.hits, tuple(cost.conflicts)
    )
