"""What can go wrong in the timing of machine code that computes the right thing on paper: results used too early,
operands overwritten too early, operands kept that have changed.

Every rule is checked against the compiler's own code too, and what breaks a rule there already, between the same
instructions and no closer, is not held against the rearranged code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gemmsim.machine_code.encoding import REUSE, field
from gemmsim.rearrange.decode import IN_QUEUE, PLAIN, Operation, Span
from gemmsim.rearrange.scoreboards import Pending, State, in_the_way, states

FFMA_CYCLES = 4
"""From an FFMA until another can read its result; compiled code goes as low as this, and never lower."""
MIXED_CYCLES = 8
"""The same between an FFMA and another instruction of fixed latency, either way: more than any of them takes."""
BANKS = 2
MOST_STALL = 11
"""The longest stall beside a flag. With a longer one, none, or a yield, no compiled code has flags, and their bits are
taken to mean something else."""
SLOTS = "ABCD"
"""Their flags, from the lowest bit on; what the last one does is not known."""
FREE = ("ffma", "float", "integer", "move", "uniform", "shared_load")
"""Kinds that no memory access of others depends on: what is under way when they issue may be more than it was."""

Violation = tuple[int, int]
"""(instruction that is no FFMA, register)."""


def hazard(before: Sequence[Operation], after: Sequence[Operation], blocks: Sequence[Span]) -> str | None:
    """The first thing that `after` does too early and `before`, the same function as compiled, does not; None where
    there is none."""
    return _scoreboards(before, after, blocks) or _latencies(before, after, blocks)


def _scoreboards(before: Sequence[Operation], after: Sequence[Operation], blocks: Sequence[Span]) -> str | None:
    """Every result is waited for before use; and where order matters to others, no more is under way than was."""
    was = dict(states(before, blocks))
    for number, state in states(after, blocks):
        each, old = after[number], was.get(number, State())
        broken = in_the_way(each, state)
        if each.ffma == before[number].ffma:
            broken -= in_the_way(before[number], old)
        if broken:
            return _too_early(each, after, min(broken))
        if each.ffma is None and each.kind not in FREE:
            more = state.pending.keys() - old.pending.keys()
            if more:
                return f"{_named(each)} no longer waits for {_named(after[min(more).by])}"
    return None


def _too_early(each: Operation, code: Sequence[Operation], pending: Pending) -> str:
    doing = "writes" if pending.what == "write" else "reads"
    return f"{_named(each)} does not wait until {_named(code[pending.by])} {doing} R{pending.register}"


def _latencies(before: Sequence[Operation], after: Sequence[Operation], blocks: Sequence[Span]) -> str | None:
    allowed = dict(_close(before, blocks))
    for key, cycles, text in _close_pairs(after, blocks):
        if key is None or cycles < allowed.get(key, MIXED_CYCLES):
            return text
    return None


def _close(code: Sequence[Operation], blocks: Sequence[Span]) -> Iterator[tuple[Violation, int]]:
    closest: dict[Violation, int] = {}
    for key, cycles, _ in _close_pairs(code, blocks):
        if key is not None:
            closest[key] = min(closest.get(key, cycles), cycles)
    yield from closest.items()


Ages = Mapping[int, tuple[int, int]]
"""{register: (instruction that wrote it last, cycles ago)}."""


def _close_pairs(code: Sequence[Operation], blocks: Sequence[Span]) -> Iterator[tuple[Violation | None, int, str]]:
    """(the other instruction and the register, or None between two FFMA; cycles; in words) of each FFMA that is too
    close to an instruction of fixed latency, before or after it."""
    entries: dict[int, set[tuple[int, int, int]]] = {number: set() for number in range(len(blocks))}
    todo = list(range(len(blocks)))
    while todo:  # what was written at most MIXED_CYCLES ago, along all paths into each block
        at = todo.pop(0)
        left = _written_last(code, blocks[at], entries[at])
        for following in blocks[at].following:
            if not left <= entries[following]:
                entries[following] |= left
                todo.append(following)
    for at, span in enumerate(blocks):
        recent = set(entries[at])
        for number in range(span.first, span.last):
            each = code[number]
            for producer, register, cycles in recent:
                pair = _pair(code, number, producer, register, cycles)
                if pair is not None:
                    yield pair
            recent = _next(each, number, recent)


def _written_last(
    code: Sequence[Operation], span: Span, recent: set[tuple[int, int, int]]
) -> set[tuple[int, int, int]]:
    for number in range(span.first, span.last):
        recent = _next(code[number], number, recent)
    return recent


def _next(each: Operation, number: int, recent: set[tuple[int, int, int]]) -> set[tuple[int, int, int]]:
    """(instruction, register, cycles ago) of recent writes, when the next instruction issues."""
    stall = max(each.control.stall, 1)
    kept = {(by, register, cycles + stall) for by, register, cycles in recent if register not in each.writes}
    if not each.variable:
        kept |= {(number, register, stall) for register in each.writes}
    return {one for one in kept if one[2] < MIXED_CYCLES}


def _pair(
    code: Sequence[Operation], number: int, producer: int, register: int, cycles: int
) -> tuple[Violation | None, int, str] | None:
    each, by = code[number], code[producer]
    if each.ffma is None and by.ffma is None:
        return None
    if register not in each.reads and register not in each.writes:
        return None
    text = f"{_named(each)} comes {cycles} cycles after {_named(by)}, which writes R{register}"
    if each.ffma is not None and by.ffma is not None:
        return (None, cycles, text) if cycles < FFMA_CYCLES else None
    return (producer if by.ffma is None else number, register), cycles, text


def stale_flag(code: Sequence[Operation], span: Span) -> str | None:
    """The first `.reuse` flag in a basic block whose register is not what the next read of that slot and bank reads, or
    is overwritten before; None where all are right."""
    for number in range(span.first, span.last):
        each = code[number]
        flags = field(each.instruction.word or 0, REUSE)
        if flags >> len(PLAIN):
            return f"{_named(each)} has a flag of unknown meaning"
        if flags and not (each.control.yield_bit and 1 <= each.control.stall <= MOST_STALL):
            return f"{_named(each)} has a flag beside a yield, or a stall that allows none"
        for slot, register in each.slots:
            if flags >> SLOTS.index(slot) & 1 and not _kept(code, number, span.last, slot, register):
                return f"{_named(each)} keeps R{register} for nobody who reads it so"
    return None


def _kept(code: Sequence[Operation], number: int, last: int, slot: str, register: int) -> bool:
    """Whether the next read of the slot in the register's bank is of this register, not written in between."""
    if register in code[number].writes:
        return False
    for each in code[number + 1 : last]:
        if each.kind not in IN_QUEUE:
            for other_slot, other in each.slots:
                if other_slot == slot and other % BANKS == register % BANKS:
                    return other == register
        if register in each.writes:
            return False
    return False


def _named(each: Operation) -> str:
    return f"{each.instruction.text} at {each.instruction.address:#x}"
