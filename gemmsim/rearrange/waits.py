"""Which scoreboards the instructions of a loop have to wait for, wherever its FFMA stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmsim.machine_code.encoding import NO_BARRIER, WAIT_MASK, with_field
from gemmsim.rearrange.decode import Operation

LOADED, USED = "loaded", "used"
"""What an entry is about: a register that a load writes, or one that an access still reads."""
PASSES = 2
"""Passes through the loop: what the code before it left under way, and what the pass before did."""

Entry = tuple[int, int, str]
"""(instruction, register, LOADED or USED)."""
SET_CYCLES = 4
"""Cycles behind an access from which on a wait is sure to find its scoreboard set: two more than it takes."""
QUEUE = ("shared_load", "shared_store")
COPY = "global_copy"
UNORDERED = ("ffma", "float", "integer", "move", "uniform", "shared_load")
"""Kinds before which nothing more needs to have ended than what they use."""
SLOW = ("global_load", "local", "atomic")


@dataclass
class Underway:
    """What is under way at cycle `now`, and the scoreboards that tell its end, in the order in which they should be
    asked, each with the cycle from which on it does."""

    entries: dict[Entry, dict[int, int]] = field(default_factory=dict)
    slow: set[int] = field(default_factory=set)
    now: int = 0

    def wait(self, mask: int, trusted: bool = False) -> list[Entry]:
        """Wait for these scoreboards; what has ended. Where the compiler waits, they are `trusted` to be set."""
        ended = [
            entry
            for entry, boards in self.entries.items()
            if any(mask >> board & 1 and (trusted or since <= self.now) for board, since in boards.items())
        ]
        for entry in ended:
            del self.entries[entry]
        self.slow = {board for board in self.slow if not mask >> board & 1}
        return ended

    def issue(self, number: int, each: Operation) -> None:
        """An instruction issues, and the next one can."""
        if each.variable and each.executed:
            self._begin(number, each)
        self.now += max(each.control.stall, 1)

    def _begin(self, number: int, each: Operation) -> None:
        control = each.control
        done = () if control.write_barrier == NO_BARRIER else (control.write_barrier,)
        read = done if control.read_barrier == NO_BARRIER else (control.read_barrier, *done)
        for entry, boards in self.entries.items():
            queue = self._queues[entry]
            if entry[2] == USED and (
                (queue in QUEUE and each.kind in QUEUE) or (queue == COPY and each.kind in ("shared_load", COPY))
            ):
                self._tell(boards, read)
            elif queue in QUEUE and each.kind == "shared_load":
                self._tell(boards, done)
        if each.kind in SLOW:
            self.slow.update(done)
        for register in each.reads:
            self._put((number, register, USED), read, each.kind)
        for register in each.writes:
            self._put((number, register, LOADED), done, each.kind if each.kind == "shared_load" else "")

    def _tell(self, boards: dict[int, int], more: Sequence[int]) -> None:
        """Scoreboards that are set now tell of something too."""
        for board in more:
            boards.setdefault(board, self.now + SET_CYCLES)

    def _put(self, entry: Entry, boards: Sequence[int], queue: str) -> None:
        self.entries[entry] = {}
        self._tell(self.entries[entry], boards)
        self._queues[entry] = queue

    def __post_init__(self) -> None:
        self._queues: dict[Entry, str] = {}

    def before(self, each: Operation) -> list[Entry]:
        """What must have ended before an instruction issues."""
        reads, writes = set(each.reads), set(each.writes)
        return [
            entry
            for entry in self.entries
            if (entry[1] in writes and not (entry[2] == USED and self._queues[entry] in QUEUE and each.kind in QUEUE))
            or (entry[2] == LOADED and entry[1] in reads)
        ]

    def board(self, entry: Entry) -> int | None:
        """The scoreboard to ask for an entry: of those that are set its own, or one that no slower load keeps; where
        none is set yet, its own."""
        boards = self.entries[entry]
        ready = [board for board, since in boards.items() if since <= self.now]
        quick = [board for board in ready if board not in self.slow]
        return next(iter(quick or ready or boards), None)


def _walk(code: Sequence[Operation], loop: range) -> Iterator[tuple[int, int]]:
    """(pass, instruction): the code before the loop, pass -1, then the passes."""
    yield from ((-1, number) for number in range(loop.start))
    for turn in range(PASSES):
        yield from ((turn, number) for number in loop)


@dataclass(frozen=True)
class Known:
    """What the compiler's own waits tell: where in the loop a load is first waited for, counted on through the passes
    from the beginning of the last; and what is under way at each instruction that order matters to."""

    waited: Mapping[int, int]
    under_way: Mapping[int, frozenset[Entry]]


def compiled_waits(code: Sequence[Operation], loop: range) -> Known:
    """What is waited for where, in the steady state."""
    state = Underway()
    waited: dict[int, int] = {}
    under_way: dict[int, frozenset[Entry]] = {}
    for turn, number in _walk(code, loop):
        each = code[number]
        for entry in state.wait(each.control.wait_mask, trusted=True):
            if turn == PASSES - 1 and entry[2] == LOADED and entry[0] in loop:
                waited.setdefault(entry[0], number - loop.start)
        if turn >= 0 and each.kind not in UNORDERED:
            under_way[number] = under_way.get(number, frozenset()) | frozenset(state.entries)
        state.issue(number, each)
    return Known(waited, under_way)


def with_waits(code: Sequence[Operation], loop: range, known: Known) -> list[Operation]:
    """The instructions of the loop with wait masks: those of FFMA anew, those of others with what they lack now."""
    masks = {number: 0 if code[number].ffma is not None else code[number].control.wait_mask for number in loop}
    state = Underway()
    for turn, number in _walk(code, loop):
        each = code[number]
        if turn < 0 or each.ffma is None:
            state.wait(each.control.wait_mask, trusted=True)
        state.wait(masks.get(number, 0))
        if turn >= 0:
            needed = state.before(each)
            if each.ffma is None and each.kind not in UNORDERED:
                needed += [entry for entry in state.entries if entry not in known.under_way[number]]
            for entry in needed:
                board = state.board(entry) if entry in state.entries else None
                if board is not None:
                    masks[number] |= 1 << board
                    state.wait(1 << board)
        state.issue(number, each)
    return [_with_mask(code[number], masks[number]) for number in loop]


def _with_mask(each: Operation, mask: int) -> Operation:
    word = with_field(each.instruction.word or 0, WAIT_MASK, mask)
    return replace(each, instruction=replace(each.instruction, word=word))
