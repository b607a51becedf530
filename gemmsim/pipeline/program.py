"""What a warp of a kernel does, in steps: what comes before its main loop, one pass of that, and what comes after.

A step is a run of instructions that ends with one that something waits for, a memory access or a barrier, or before one
that itself waits. Its plain instructions only take time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import NO_BARRIER
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.main_loops.sub_core import SCOREBOARDS, issue_cycles
from gemmsim.registers.register_files import RegisterFile

Action = Literal[
    "", "shared_load", "shared_store", "global_load", "global_store", "global_copy", "partial_store", "local", "atomic",
    "other", "fence", "barrier", "commit", "await_copies",
]  # fmt: skip
ACTIONS: dict[str, Action] = {
    "shared_load": "shared_load", "shared_store": "shared_store", "global_load": "global_load",
    "global_store": "global_store", "global_copy": "global_copy", "local": "local", "atomic": "atomic",
}  # fmt: skip
OPCODES: dict[str, Action] = {
    "BAR": "barrier", "LDGDEPBAR": "commit", "DEPBAR": "await_copies", "MEMBAR": "fence",
    "ATOMG": "atomic", "RED": "atomic",
}  # fmt: skip
NEVER = "!PT"
"""The guard of what is never executed and only takes a slot: compilers write such loads before some copies."""


class Step(NamedTuple):
    """A run of instructions of one warp.

    issue_cycles   issue slots that it takes of its sub-core, waits for register ports among them
    ready_cycles   from its first issue until the warp can go on, if it waits for nothing but itself
    waits          scoreboards that must be free before it
    action         what its last instruction does; empty for none
    registers      that the action moves, 1, 2 or 4; of await_copies the groups that may still be under way
    written, read  scoreboards that the action frees when its result is there, and when it has read its operands; -1
    ffma           FFMA in it, of a thread
    instructions   how many it is
    after_cycles   of ready_cycles, those after its last instruction has been issued, that one's own slot among them
    """

    issue_cycles: float
    ready_cycles: float
    waits: tuple[int, ...] = ()
    action: Action = ""
    registers: int = 1
    written: int = -1
    read: int = -1
    ffma: int = 0
    instructions: int = 0
    after_cycles: float = 1.0


Steps = tuple[Step, ...]


@dataclass(frozen=True)
class Program:
    """A kernel as one of its warps runs it; of branches inside none is taken that goes over loads of existing data.

    `remainder` are the FFMA that stand behind the main loop for what its passes leave over, executed where they leave
    something; `tail` is what follows. `repeated` is the loop behind it in which the blocks of one tile add up their
    partial sums. `source` is "compiled" or "described".
    """

    prologue: Steps
    loop: Steps
    remainder: Steps
    tail: Steps
    repeated: Steps = ()
    rest: Steps = ()
    source: str = "compiled"

    @cached_property
    def loop_ffma(self) -> int:
        """FFMA of a thread in a pass of the main loop."""
        return sum(step.ffma for step in self.loop)

    @cached_property
    def remainder_ffma(self) -> int:
        """FFMA of a thread in what stands for the remainder."""
        return sum(step.ffma for step in self.remainder)

    def passes(self, ffma_of_thread: float) -> tuple[float, bool]:
        """(passes of the main loop, whether something is left over) of a thread with so many FFMA."""
        inside = ffma_of_thread - sum(step.ffma for step in self.prologue)
        whole, left = divmod(inside, self.loop_ffma)
        return (whole, left > 0) if self.remainder_ffma else (inside / self.loop_ffma, False)

    def after(self, left_over: bool, repeats: int = 0) -> Steps:
        """What comes after the passes of the main loop; where partial sums are added up, what is stored before."""
        tail = self.tail
        if repeats:
            tail = tuple(
                step._replace(action="partial_store") if step.action == "global_store" else step for step in tail
            )
        return (self.remainder if left_over else ()) + tail + self.repeated * repeats + self.rest

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {name: [list(step) for step in getattr(self, name)] for name in PARTS} | {"source": self.source}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Program:
        """The program that `to_dict` wrote; InputError for anything else."""
        try:
            parts = {name: tuple(_step(*step) for step in data[name]) for name in PARTS}
            return cls(**parts, source=data["source"])
        except (KeyError, TypeError, IndexError) as error:
            raise InputError(f"not a program of a warp: {error!r}") from None


PARTS = ("prologue", "loop", "remainder", "tail", "repeated", "rest")


def _step(issue_cycles: float, ready_cycles: float, waits: Sequence[int], *rest: Any) -> Step:
    return Step(issue_cycles, ready_cycles, tuple(waits), *rest)


def program_of(function: Function, file: RegisterFile, merged: float = 0.0) -> Program:
    """The program of a compiled kernel. `merged` is the share of its shared loads whose lanes merge.

    Each instruction of the main loop takes as long to issue as the register ports make it on average, any other one
    cycle. Raises InputError where there is no loop with FFMA.
    """
    loop = main_loop(function)
    code = function.instructions
    first = next(number for number, each in enumerate(code) if each.address == loop.start)
    end = first + len(loop.instructions)
    paced = dict(zip(loop.instructions, issue_cycles(loop, file, merged), strict=True))
    executed = _straight(code, first, end)
    after = _straight(code, end, len(code))
    remainder, tail = _parted(tuple(_steps([(each, 1.0) for each in after])))
    before, repeated, rest = _around_loop(after, tail)
    return Program(
        tuple(_steps([(each, 1.0) for each in _straight(code, 0, first)])),
        tuple(_steps([(each, paced[each]) for each in executed])),
        remainder, before, repeated, rest,
    )  # fmt: skip


def _straight(code: Sequence[Instruction], first: int, end: int) -> list[Instruction]:
    """The instructions from one on as a warp meets them that takes forward branches without a condition, no other."""
    places = {each.address: number for number, each in enumerate(code)}
    found, at = [], first
    while at < end:
        each = code[at]
        found.append(each)
        if each.opcode == "EXIT" and not each.guard:
            break
        jumps = each.opcode == "BRA" and not each.guard and each.target is not None and each.target > each.address
        at = places[each.target] if jumps and each.target in places else at + 1
    return found


def _steps(code: Sequence[tuple[Instruction, float]]) -> Iterator[Step]:
    issue, ready, ffma, count = 0.0, 0.0, 0, 0
    waits: tuple[int, ...] = ()
    for each, cycles in code:
        control = each.control
        waiting = tuple(number for number in range(SCOREBOARDS) if control.wait_mask >> number & 1)
        if waiting and issue:
            yield Step(issue, ready, waits, ffma=ffma, instructions=count)
            issue, ready, ffma, count = 0.0, 0.0, 0, 0
        if waiting or not issue:
            waits = waiting
        issue += cycles
        ready += max(control.stall, cycles)
        ffma += each.kind == "ffma"
        count += 1
        written = -1 if control.write_barrier == NO_BARRIER else control.write_barrier
        read = -1 if control.read_barrier == NO_BARRIER else control.read_barrier
        action = OPCODES.get(each.opcode) or ACTIONS.get(each.kind) or ("other" if max(written, read) >= 0 else "")
        if each.guard == NEVER:
            action = ""
        if action:
            registers = _pending(each) if action == "await_copies" else each.data_registers
            after = max(control.stall, cycles)
            yield Step(issue, ready, waits, action, registers, written, read, ffma, count, after)
            issue, ready, waits, ffma, count = 0.0, 0.0, (), 0, 0
    if issue:
        yield Step(issue, ready, waits, ffma=ffma, instructions=count)


def _pending(each: Instruction) -> int:
    """Groups of copies that may be under way when a DEPBAR lets the warp go on."""
    last = each.values[-1] if each.values else ""
    return int(last, 0) if last[:1].isdigit() else 0


def _parted(after: Steps) -> tuple[Steps, Steps]:
    """What stands behind the main loop, up to its last FFMA and from there on."""
    last = max((number + 1 for number, step in enumerate(after) if step.ffma), default=0)
    return after[:last], after[last:]


def _around_loop(after: Sequence[Instruction], tail: Steps) -> tuple[Steps, Steps, Steps]:
    """The tail, parted at its loop that loads and stores: before, one pass, after; all of it before without one."""
    places = {each.address: number for number, each in enumerate(after)}
    loops = [
        (places[each.target], number)
        for number, each in enumerate(after)
        if each.opcode == "BRA" and each.target in places and places[each.target] <= number
    ]
    for first, last in sorted(loops, key=lambda loop: loop[0] - loop[1]):
        kinds = {each.kind for each in after[first : last + 1]}
        if {"global_load", "global_store"} <= kinds:
            parts = (after[:first], after[first : last + 1], after[last + 1 :])
            before, repeated, rest = (tuple(_steps([(each, 1.0) for each in part])) for part in parts)
            return before, repeated, rest
    return tail, (), ()
