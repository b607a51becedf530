"""The FFMA of a compiled main loop in a better order: searched for, written down as instruction words, simulated.

What is not an FFMA keeps its place, and every place its stall and yield. An FFMA goes to another place, flags are set
anew, and wait masks follow those who need them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import WAIT_MASK, WORD_BYTES, with_field
from gemmsim.machine_code.main_loop import MainLoop, main_loop
from gemmsim.machine_code.sass import Function
from gemmsim.main_loops.port_streams import stream_of_loop
from gemmsim.main_loops.sub_core import Residents, latencies, loop_cycles_per_ffma
from gemmsim.rearrange.beam import Beam, Choice, Style
from gemmsim.rearrange.decode import (
    VERIFIED,
    Operation,
    Span,
    basic_blocks,
    ffma_word,
    operations,
    unknown_reasons,
    with_words,
)
from gemmsim.rearrange.dependences import Dependences, dependences
from gemmsim.rearrange.flags import useful_flags, with_flags
from gemmsim.rearrange.name_search import best_names
from gemmsim.rearrange.renaming import exchangeable, with_names
from gemmsim.rearrange.waits import Known, compiled_waits, with_waits
from gemmsim.registers.reads import simulate
from gemmsim.registers.register_files import RegisterFile, register_file

WIDTH = 32
"""Orders that the search carries along."""
LATE = 10**6
"""In place of places behind a load: never sooner than the compiler asks for it."""
LEAST_GAIN = 0.005
"""A loop whose predicted time shrinks by no more is left as it is."""


@dataclass(frozen=True)
class Trial:
    """One search: what it may do, the places behind a load where its result is first asked for, and its random
    numbers."""

    style: Style
    load_places: int
    seed: int


STYLES = (
    Style(),
    Style(long_holds=False),
    Style(over_others=False),
    Style(over_others=False, window_cycles=2),
    Style(window_cycles=1),
)
LOAD_PLACES = (48, LATE, 96)


def trials(count: int) -> tuple[Trial, ...]:
    """The first so many searches, each unlike those before."""
    styles, places = len(STYLES), len(LOAD_PLACES)
    return tuple(Trial(STYLES[seed % styles], LOAD_PLACES[seed % places], seed) for seed in range(count))


TRIALS = tuple(Trial(Style(window_cycles=1), places, seed) for seed, places in enumerate((LATE, 96) * 3))
"""Those of which the command takes the best: on an H200 orders that need no window were the fastest on average, of 114
orders of six kernels, and the more so the later they ask for what is loaded."""

Tell = Callable[[int, int], None]
"""Gets (steps done, all steps)."""


@dataclass(frozen=True)
class LoopCost:
    """Cycles per FFMA of a main loop: what register ports and issue slots take, and what the warps of a sub-core take,
    which wait for what they load too."""

    ports: float
    running: float

    @property
    def waiting(self) -> float:
        """What latencies, barriers and the banks of shared memory cost beyond ports and issue slots."""
        return self.running - self.ports


@dataclass(frozen=True)
class Rearranged:
    """A function before and after, as instruction words, and what each costs; and what came between, where registers
    have other names after."""

    before: MainLoop
    after: MainLoop
    words: tuple[int, ...]
    cost_before: LoopCost
    cost_after: LoopCost
    residents: Residents
    under_old_names: Rearranged | None = None

    @property
    def changed(self) -> int:
        """Instructions that are others than before."""
        return sum(word != each.word for word, each in zip(self.words, self.before.function.instructions, strict=True))

    @property
    def ordered(self) -> Rearranged:
        """The same under the compiler's names: another order alone."""
        return self.under_old_names or self

    @property
    def speedup(self) -> float:
        """The time of the main loop before over that after."""
        return self.cost_before.running / self.cost_after.running

    @property
    def others(self) -> float:
        """Issue slots of the instructions beside the FFMA, for each FFMA: what no order of FFMA changes."""
        return len(self.before.instructions) / self.before.ffma - 1


def rearranged(
    function: Function,
    residents: Residents | None = None,
    width: int = WIDTH,
    searches: Sequence[Trial] = TRIALS,
    tell: Tell | None = None,
    rename: bool = False,
) -> Rearranged:
    """The best order of the main loop's FFMA that was found, perhaps the compiler's own; with `rename`, under other
    names. Always the same for the same function.

    Raises InputError for an architecture that is not verified, a function without a main loop, a text without words,
    and instructions whose registers are not known: in the loop, or anywhere with `rename`.
    """
    source = Source.of(function)
    if rename:
        exchangeable(function)  # refuses what it refuses before the search
    steps = len(searches) * len(source.code)
    best = compiled = source.as_compiled(residents or Residents(warps=2))
    least = compiled.cost_before.running * (1 - LEAST_GAIN)
    for number, trial in enumerate(searches):
        found = source.tried(trial, compiled, width, _telling(tell, number * len(source.code), steps))
        if found is not None and found.cost_after.running < min(least, best.cost_after.running):
            best = found
    return renamed(best) if rename else best


def renamed(found: Rearranged) -> Rearranged:
    """The same with the names of registers that suit the register ports better, in the order that was found; unchanged
    where no others do, or where the warps of a sub-core do not gain.

    Raises InputError for functions whose registers have to keep their names.
    """
    file = register_file(found.after.function.arch)
    names = best_names(found.after.function)
    after = main_loop(with_names(found.after.function, names))
    costs = cost(after, found.residents, file)
    if not names or costs.running >= found.cost_after.running:
        return found
    words = tuple(each.word or 0 for each in after.function.instructions)
    return replace(found, after=after, words=words, cost_after=costs, under_old_names=found)


def _telling(tell: Tell | None, begun: int, steps: int) -> Callable[[int], None] | None:
    """What tells of a search that begins after so many steps."""
    return None if tell is None else lambda at: tell(begun + at + 1, steps)


def cost(loop: MainLoop, residents: Residents, file: RegisterFile) -> LoopCost:
    """What a main loop costs."""
    (report,) = simulate([stream_of_loop(loop, file)], file)
    return LoopCost(report.cycles_per_ffma, loop_cycles_per_ffma(loop, residents, file, latencies()))


@dataclass(frozen=True)
class Source:
    """The compiler's main loop with all that decides where its FFMA may go. `places` are its instructions, by number in
    the function."""

    function: Function
    loop: MainLoop
    places: range
    code: tuple[Operation, ...]
    spans: tuple[Span, ...]
    known: Known
    file: RegisterFile

    @classmethod
    def of(cls, function: Function) -> Source:
        """That of a function; raises InputError as `rearranged`."""
        if function.arch not in VERIFIED:
            raise InputError(
                f"{function.name} is for {function.arch}, whose rules are not verified; allowed: {', '.join(VERIFIED)}"
            )
        if not function.encoded:
            raise InputError(f"{function.name} has no instruction words; give the cubin itself")
        loop = main_loop(function)
        places = range(loop.start // WORD_BYTES, loop.end // WORD_BYTES)
        everything = operations(function)
        code = everything[places.start : places.stop]
        unknown = unknown_reasons(code)
        if unknown:
            raise InputError(
                f"the main loop of {function.name} has instructions that are not known: {', '.join(unknown)}"
            )
        if not any(each.ffma is not None for each in code):
            raise InputError(f"the main loop of {function.name} has no FFMA of registers alone, which could move")
        spans = tuple(span for span in basic_blocks(function) if span.first in places)
        known = compiled_waits(everything, places)
        return cls(function, loop, places, code, spans, known, register_file(function.arch))

    def found(self, load_places: int) -> Dependences:
        """Where its FFMA may go, what a load brings not sooner than so many places behind it."""
        return dependences(self.code, self.places.start, self.spans, self.known, load_places)

    def as_compiled(self, residents: Residents) -> Rearranged:
        """The function as it is."""
        known = cost(self.loop, residents, self.file)
        return Rearranged(self.loop, self.loop, self.words, known, known, residents)

    def tried(
        self, trial: Trial, compiled: Rearranged, width: int = WIDTH, tell: Callable[[int], None] | None = None
    ) -> Rearranged | None:
        """What one search has found, better than as compiled or not; None where it found nothing."""
        words = self.searched(trial, width, tell)
        if words is None:
            return None
        after = main_loop(with_words(self.function, words))
        return replace(compiled, after=after, words=words, cost_after=cost(after, compiled.residents, self.file))

    def searched(
        self, trial: Trial, width: int = WIDTH, tell: Callable[[int], None] | None = None
    ) -> tuple[int, ...] | None:
        """The words of the function with the order that one search has found; None where it found none."""
        stream = stream_of_loop(self.loop, self.file).instructions
        beam = Beam(self.code, stream, self.found(trial.load_places), self.file, trial.style)
        choices = beam.search(width, trial.seed, tell)
        return None if choices is None else self.with_order(choices)

    @property
    def words(self) -> tuple[int, ...]:
        """The words of the function as compiled."""
        return tuple(each.word or 0 for each in self.function.instructions)

    def with_order(self, choices: Sequence[Choice]) -> tuple[int, ...]:
        """The words of the function with its FFMA in this order."""
        words = list(self.words)
        movable = [place for place, each in enumerate(self.code) if each.ffma is not None]
        for place, choice in zip(movable, choices, strict=True):
            moved = self.code[movable[choice.ffma]].ffma
            assert moved is not None
            at = self.places.start + place
            words[at] = ffma_word(with_field(words[at], WAIT_MASK, 0), moved, choice.flags)
        flagged = operations(with_words(self.function, words))
        for span in self.spans:
            inside = slice(span.first, span.last)
            words[inside] = map(with_flags, words[inside], useful_flags(flagged[inside]))
        code = operations(with_words(self.function, words))
        for at, each in zip(self.places, with_waits(code, self.places, self.known), strict=True):
            words[at] = each.instruction.word or 0
        return tuple(words)
