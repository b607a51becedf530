"""What the verifier knows of results under way: which register waits for which instruction, at every instruction of a
function, along every path through it.

A load or store is pending until somebody has waited for a scoreboard that covers it: its own, or that of a later
shared load, since the pipe of shared memory takes its instructions, and answers loads, in order. Compilers rely on
that: of several loads in a row only the last has a scoreboard. A load may overwrite what an earlier access in the queue
reads. An asynchronous copy reads its registers when it issues: compiled code overwrites them two cycles later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gemmsim.machine_code.encoding import NO_BARRIER
from gemmsim.rearrange.decode import Operation, Span

WRITE, READ = "write", "read"
SHARED = ("shared_load", "shared_store")


@dataclass(frozen=True, order=True)
class Pending:
    """Instruction number `by` has not yet written (or read, as `what` says) this register; `queued`: in the order of
    the pipe of shared memory."""

    by: int
    register: int
    what: str
    queued: bool


State = Mapping[Pending, frozenset[int]]
"""{what is pending: the scoreboards of which each tells its end}."""


def states(code: Sequence[Operation], blocks: Sequence[Span]) -> Iterator[tuple[int, State]]:
    """(number, what is pending when it issues, its own waits done) of each instruction that can be reached."""
    entries: dict[int, State] = {0: {}}
    todo = [0]
    while todo:
        at = todo.pop(0)
        state = entries[at]
        for number in range(blocks[at].first, blocks[at].last):
            state = _issued(code[number], number, _waited(code[number], state))
        for after in blocks[at].following:
            merged = state if after not in entries else _merged(entries[after], state)
            if after not in entries or merged != entries[after]:
                entries[after] = merged
                if after not in todo:
                    todo.append(after)
    for at, state in sorted(entries.items()):
        for number in range(blocks[at].first, blocks[at].last):
            state = _waited(code[number], state)
            yield number, state
            state = _issued(code[number], number, state)


def in_the_way(each: Operation, state: State) -> frozenset[Pending]:
    """What is pending in registers that an instruction reads, or writes."""
    reads, writes = set(each.reads), set(each.writes)
    return frozenset(
        pending
        for pending in state
        if (pending.register in writes and not (pending.what == READ and pending.queued and each.kind in SHARED))
        or (pending.what == WRITE and pending.register in reads)
    )


def _waited(each: Operation, state: State) -> State:
    mask = each.control.wait_mask
    if not mask:
        return state
    return {
        pending: scoreboards
        for pending, scoreboards in state.items()
        if not any(mask >> scoreboard & 1 for scoreboard in scoreboards)
    }


def _issued(each: Operation, number: int, state: State) -> State:
    """The state behind an instruction."""
    if not each.variable or not each.executed:
        return state
    control = each.control
    writes = frozenset({control.write_barrier} - {NO_BARRIER})
    reads = writes | frozenset({control.read_barrier} - {NO_BARRIER})
    after = dict(state)
    if each.kind in SHARED:  # what is before it in the queue is done with its operands, a load with all
        for pending, scoreboards in state.items():
            if pending.queued and pending.what == READ:
                after[pending] = scoreboards | reads
            elif pending.queued and each.kind == "shared_load":
                after[pending] = scoreboards | writes
    if each.kind != "global_copy" or reads:
        for register in each.reads:
            after[Pending(number, register, READ, each.kind in SHARED)] = reads
    for register in each.writes:
        after[Pending(number, register, WRITE, each.kind == "shared_load")] = writes
    return after


def _merged(one: State, other: State) -> State:
    """What is pending on either of two paths; a scoreboard covers it only if it does on every path that has it."""
    both = dict(one)
    for pending, scoreboards in other.items():
        both[pending] = both[pending] & scoreboards if pending in both else scoreboards
    return both
