"""What the verifier knows of results under way: which register waits for which instruction, at every instruction of a
function, along every path through it.

A load or store is pending until somebody has waited for a scoreboard that covers it: its own, or that of a later
shared load, since the pipe of shared memory takes its instructions, and answers loads, in order. Compilers rely on
that: of several loads in a row only the last has a scoreboard. A load may overwrite what an earlier access in the queue
reads. Asynchronous copies read their registers in order too, before a later shared load does; but who overwrites them,
a load too, has to wait.

A wait in the cycle behind an access does not see its scoreboard yet: no compiled code relies on less than two cycles.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gemmsim.machine_code.encoding import NO_BARRIER
from gemmsim.rearrange.decode import Operation, Span

SET_CYCLES = 2
"""Cycles from the issue of an access until a wait finds its scoreboard set."""
WRITE, READ = "write", "read"
SHARED = ("shared_load", "shared_store")
SHARED_QUEUE, COPIES, NO_QUEUE = "shared", "copies", ""
READ_BEFORE: Mapping[str, tuple[str, ...]] = {
    SHARED_QUEUE: SHARED,
    COPIES: ("shared_load", "global_copy"),
    NO_QUEUE: (),
}
"""{queue: kinds that read their registers when what is in it has read its own}."""


@dataclass(frozen=True, order=True)
class Pending:
    """Instruction number `by` has not yet written (or read, as `what` says) this register; `queue`: what it is in
    order with, SHARED_QUEUE, COPIES, or NO_QUEUE."""

    by: int
    register: int
    what: str
    queue: str


Boards = frozenset[int]


@dataclass(frozen=True)
class State:
    """What is pending, each with the scoreboards of which each tells its end; and those that will in so many cycles:
    (cycles, pending, scoreboard)."""

    pending: Mapping[Pending, Boards] = field(default_factory=dict)
    coming: frozenset[tuple[int, Pending, int]] = frozenset()

    def waited(self, mask: int) -> State:
        """The state when the scoreboards of a wait mask are free."""
        if not mask:
            return self
        left = {each: boards for each, boards in self.pending.items() if not any(mask >> one & 1 for one in boards)}
        return State(left, frozenset(each for each in self.coming if each[1] in left))

    def after(self, cycles: int) -> State:
        """The state so many cycles later."""
        if not self.coming:
            return self
        pending = dict(self.pending)
        for left, each, board in self.coming:
            if left <= cycles:
                pending[each] |= {board}
        later = frozenset((left - cycles, each, board) for left, each, board in self.coming if left > cycles)
        return State(pending, later)

    def merged(self, other: State) -> State:
        """What is pending on either of two paths; a scoreboard tells its end only if it does on every path that has
        it."""
        both = dict(self.pending)
        for each, boards in other.pending.items():
            both[each] = both[each] & boards if each in both else boards
        return State(both, self._coming_in_both(other) | other._coming_in_both(self))

    def _coming_in_both(self, other: State) -> frozenset[tuple[int, Pending, int]]:
        """What is to come here, and on the other path is there already, or comes no later, or is not needed."""
        return frozenset(
            (cycles, each, board)
            for cycles, each, board in self.coming
            if each not in other.pending
            or board in other.pending[each]
            or any((each, board) == (one, its) and left <= cycles for left, one, its in other.coming)
        )


def states(code: Sequence[Operation], blocks: Sequence[Span]) -> Iterator[tuple[int, State]]:
    """(number, what is pending when it issues, its own waits done) of each instruction that can be reached."""
    entries: dict[int, State] = {0: State()}
    todo = [0]
    while todo:
        at = todo.pop(0)
        state = entries[at]
        for number in range(blocks[at].first, blocks[at].last):
            state = _issued(code[number], number, state.waited(code[number].control.wait_mask))
        for after in blocks[at].following:
            merged = state if after not in entries else entries[after].merged(state)
            if after not in entries or merged != entries[after]:
                entries[after] = merged
                if after not in todo:
                    todo.append(after)
    for at, state in sorted(entries.items()):
        for number in range(blocks[at].first, blocks[at].last):
            state = state.waited(code[number].control.wait_mask)
            yield number, state
            state = _issued(code[number], number, state)


def in_the_way(each: Operation, state: State) -> frozenset[Pending]:
    """What is pending in registers that an instruction reads, or writes."""
    reads, writes = set(each.reads), set(each.writes)
    return frozenset(
        pending
        for pending in state.pending
        if (
            pending.register in writes
            and not (pending.what == READ and pending.queue == SHARED_QUEUE and each.kind in SHARED)
        )
        or (pending.what == WRITE and pending.register in reads)
    )


def _issued(each: Operation, number: int, state: State) -> State:
    """The state when the next instruction can issue."""
    cycles = max(each.control.stall, 1)
    if not each.variable or not each.executed:
        return state.after(cycles)
    control = each.control
    writes = frozenset({control.write_barrier} - {NO_BARRIER})
    reads = writes | frozenset({control.read_barrier} - {NO_BARRIER})
    told: dict[Pending, Boards] = {}
    for pending in state.pending:
        if pending.what == READ and each.kind in READ_BEFORE[pending.queue]:
            told[pending] = reads
        elif pending.queue == SHARED_QUEUE and each.kind == "shared_load":
            told[pending] = writes
    reading = SHARED_QUEUE if each.kind in SHARED else COPIES if each.kind == "global_copy" else NO_QUEUE
    writing = SHARED_QUEUE if each.kind == "shared_load" else NO_QUEUE
    begun = {Pending(number, register, READ, reading): reads for register in each.reads}
    begun |= {Pending(number, register, WRITE, writing): writes for register in each.writes}
    return _with(state, told, begun).after(cycles)


def _with(state: State, told: Mapping[Pending, Boards], begun: Mapping[Pending, Boards]) -> State:
    """The state with what an instruction has begun, and with what its scoreboards will tell of that and of others."""
    pending = dict(state.pending) | dict.fromkeys(begun, frozenset())
    coming = {each for each in state.coming if each[1] not in begun}
    for each, boards in {**told, **begun}.items():
        coming |= {(SET_CYCLES, each, board) for board in boards}
    return State(pending, frozenset(coming))
