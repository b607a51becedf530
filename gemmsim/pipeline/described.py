"""What a warp of a kernel does, from the kernel's description alone: for tilings of which no compiled code is at hand.

The order is that of the sources; of each access there are as many instructions, as wide, as `gemmsim.accesses` says,
and as many FFMA as the tiles have. What compilers add is told by a few round numbers: the instructions around the loop,
and in the loop what `main_loops/port_shares.py` knows of kernels alike. All cycles of the loop together are the FFMA
over their share of the peak.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gemmsim.accesses.global_memory import global_accesses
from gemmsim.accesses.lane_runs import Direction
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.accesses.warp_tiles import piece
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.main_loops.port_shares import port_share
from gemmsim.main_loops.port_streams import other_instructions
from gemmsim.pipeline.program import Program, Steps
from gemmsim.pipeline.programs import merged_loads
from gemmsim.pipeline.writer import CHAIN_CYCLES, RESULT, Writer
from gemmsim.problem import Problem
from gemmsim.registers.register_files import register_file
from gemmsim.tiling import WARP_SIZE, Tiling

FRAGMENTS, TILE_A, TILE_B = (0, 1), 2, 3
"""Scoreboards: fragments of every other small iteration, and the tiles on their way."""
UNROLLED, TOGETHER = 16, 3
"""Small iterations in a pass of an unstaged kernel, and those whose loads are waited for together, while as many more
are on their way: what the compiler makes of its loop."""
START, START_WAITS, END = 40, 4, 60
"""Plain instructions before and after everything, and how often the first wait for what comes from no memory. These and
those below are what nvcc 13.0 wrote for the shipped records, roughly: a test holds how far off the whole is."""
OF_STORE, OF_FREED, OF_LOAD = 3, 3, 10
"""Plain instructions for each store of results, for each result that is freed first, for each load of a tile."""
SUNK_FROM = 2
"""Loads of the tile of B from which on the compiler moves those of the next tiles behind most of the FFMA, in kernels
that fetch ahead: so it is in four of five shipped programs."""
AHEAD = 0.5
"""Share of the FFMA of a small iteration that still follow the loads of the next one's fragments, where the kernel does
not itself fetch them ahead: registers become free as it goes."""


@dataclass(frozen=True)
class _Moves:
    """An access of a thread: so many instructions for one tile of k, so many registers each."""

    instructions: int
    registers: int


def described_program(problem: Problem, kernel: Kernel, tiling: Tiling, device: Device) -> Program:
    """The program of a launch (whole numbers, no arrays), told from what is known without a compiler.

    Its counts of memory accesses, FFMA and barriers are those of the compiled kernel. Raises InputError when the kernel
    does not take the tiling or the problem.
    """
    kernel.check(tiling, problem=problem)
    of = _Description(problem, kernel, tiling, device)
    repeated, rest = (of.sums(), of.exit()) if tiling.split_k > 1 else ((), ())
    left_over = problem.k % UNROLLED if not kernel.staged else 0
    remainder = of.unstaged(left_over) if left_over else ()
    return Program(of.prologue(), of.loop(), remainder, of.tail(), repeated, rest, "described")


@dataclass(frozen=True)
class _Description:
    problem: Problem
    kernel: Kernel
    tiling: Tiling
    device: Device

    # What there is

    @cached_property
    def results(self) -> int:
        """Elements of C of a thread."""
        return int(self.tiling.thread_m * self.tiling.thread_n)

    @cached_property
    def small_iterations(self) -> int:
        """Small iterations in a pass of the loop."""
        return int(self.tiling.block_k) if self.kernel.staged else UNROLLED

    def shared(self, direction: Direction) -> list[_Moves]:
        """The accesses to shared memory in one direction: of A, then of B."""
        widths = self.kernel.widths(self.problem, self.tiling)
        found = shared_accesses(self.kernel, self.tiling, widths)
        return [_Moves(each.instructions, int(each.width)) for each in found if each.direction == direction]

    @cached_property
    def fetched(self) -> list[_Moves]:
        """What brings the tiles of A and of B from global memory, loads or copies."""
        widths = self.kernel.widths(self.problem, self.tiling)
        found = global_accesses(self.kernel, self.tiling, widths)
        return [_Moves(each.instructions, int(each.width)) for each in found if each.direction != "store"]

    @cached_property
    def stored(self) -> list[_Moves]:
        return self.shared("store")

    @cached_property
    def fragments(self) -> list[_Moves]:
        return self.shared("load")

    # How fast it goes

    @cached_property
    def budget(self) -> tuple[int, float]:
        """(plain instructions of a pass, cycles of an FFMA): together they take what the share of the peak says."""
        limits = self.device.capability
        interval = WARP_SIZE * limits.sub_partitions / limits.fp32_lanes_per_sm
        share = port_share(self.kernel, self.problem, self.tiling, limits)
        ffma = self.results * self.small_iterations
        times = 1 if self.kernel.staged else UNROLLED
        moved = times * sum(each.instructions for each in (*self.fetched, *self.stored, *self.fragments))
        if share.ideal_fraction < 1:
            plain = max(0, round(ffma * interval / share.ideal_fraction - ffma - moved))
        else:
            plain = OF_LOAD * sum(each.instructions for each in self.fetched)
        cycles = ffma * interval / share.fraction - plain - moved
        return plain, max(interval, cycles / ffma)

    @cached_property
    def merged(self) -> float:
        """Share of the shared loads whose lanes merge."""
        return merged_loads(self.kernel, self.problem, self.tiling)

    def held_cycles(self, registers: int) -> int:
        """Cycles from the issue of such a load to the next issue."""
        try:
            at_once = other_instructions(register_file(self.device.capability)).merged_load_registers
        except InputError:  # nothing is known of this register file
            return 1
        return -(-registers // at_once)

    @property
    def pace(self) -> float:
        """Cycles of an FFMA."""
        return self.budget[1]

    def plain_parts(self, parts: int) -> Iterator[int]:
        """The plain instructions of a pass, in parts as equal as can be."""
        yield from _parts(self.budget[0], parts)

    # What a warp does

    def prologue(self) -> Steps:
        """Places in the matrices, and what comes before the loop of kernels that fetch ahead."""
        to = Writer()
        for count in _parts(START, START_WAITS):
            to.plain(count, 2 * CHAIN_CYCLES)
            to.result("other")
        if self.tiling.split_k > 1:
            self.take_number(to)
        to.plain(-(-self.results // 2), 1.0)
        if self.kernel.copies:
            for _ in range(self.tiling.tiles_ahead):
                self.fetch(to, OF_LOAD // 2)
            self.await_tile(to, self.tiling.tiles_ahead - 1)
        elif self.kernel.prefetches:
            self.fetch(to, OF_LOAD)
            self.store(to)
        if self.kernel.prefetches:
            self.read(to, 0)
        return to.done()

    def loop(self) -> Steps:
        """One pass of the main loop."""
        if not self.kernel.staged:
            return self.unstaged(UNROLLED)
        if self.kernel.prefetches:
            return self.fetching_ahead()
        to = Writer()
        self.fetch(to)
        self.store(to)
        last = self.small_iterations - 1
        late = int(AHEAD * self.results)
        self.read(to, 0)
        for number in range(last + 1):
            to.wait(FRAGMENTS[number % 2])
            to.multiply(self.results - late, self.pace)
            if number < last:
                self.read(to, number + 1)
            to.multiply(late, self.pace)
        to.act("barrier")
        return to.done()

    def fetching_ahead(self) -> Steps:
        """A pass of a kernel that fetches tiles and fragments ahead."""
        to = Writer()
        last = self.small_iterations - 1
        late = last - 1 if self.fetched[1].instructions >= SUNK_FROM else 0
        spread = int(self.tiling.spread)
        groups, begun = self.fetch_in_groups(to, spread), [group * last // spread for group in range(spread)]
        for number in range(last + 1):
            if number == late and not self.kernel.copies:
                self.fetch(to)
            for _ in range(begun.count(number)):
                next(groups)
            if number == last and self.kernel.copies:
                self.await_tile(to, self.tiling.stages - 2)
                if not spread:
                    self.fetch(to)
            elif number == last:
                self.store(to)
            self.read(to, (number + 1) % (last + 1))
            to.wait(FRAGMENTS[number % 2])
            to.multiply(self.results, self.pace)
        return to.done()

    def unstaged(self, iterations: int) -> Steps:
        """So many iterations of a kernel that reads global memory: a few of them loaded together, a group ahead."""
        to = Writer()
        sizes = [min(TOGETHER, iterations - start) for start in range(0, iterations, TOGETHER)]
        plain = self.plain_parts(2 * UNROLLED)

        def load(group: int) -> None:
            for _ in range(sizes[group]):
                for each in self.fetched:
                    to.plain(next(plain))
                    to.act("global_load", each.instructions, each.registers, FRAGMENTS[group % 2])

        load(0)
        for group, size in enumerate(sizes):
            if group + 1 < len(sizes):
                load(group + 1)
            to.wait(FRAGMENTS[group % 2])
            to.multiply(size, max(self.pace, CHAIN_CYCLES))
        return to.done()

    def tail(self) -> Steps:
        """The results to C, or to where the blocks of a tile add them up."""
        to, widths = Writer(), self.kernel.widths(self.problem, self.tiling)
        split = self.tiling.split_k > 1
        width = piece(self.tiling.thread_n) if split else int(widths.global_c)
        stores = self.results // width
        freed = OF_FREED * self.results // stores if self.kernel.warp_tiled else 0
        to.plain(END)
        for _ in range(stores):
            to.plain(freed + (0 if split else OF_STORE))
            to.act("global_store", registers=width)
        if split:
            self.meet(to)
        else:
            to.plain(1)
        return to.done()

    def sums(self) -> Steps:
        """A piece of the sums of all blocks of a tile, added up."""
        to, width = Writer(), piece(self.tiling.thread_n)
        to.plain(OF_LOAD)
        to.act("global_load", self.tiling.split_k, width, RESULT)
        to.wait(RESULT)
        to.plain(width * self.tiling.split_k + 2 * OF_LOAD)
        to.act("global_store", -(-width // int(self.kernel.widths(self.problem, self.tiling).global_c)), width)
        return to.done()

    def exit(self) -> Steps:
        """The end."""
        to = Writer()
        to.plain(1)
        return to.done()

    # Parts of these

    def fetch(self, to: Writer, of_load: int = -1) -> None:
        """Bring the next tiles on their way; plain instructions are those of the loop unless given for each load."""
        for _ in self.fetch_in_groups(to, 1, of_load):
            pass

    def fetch_in_groups(self, to: Writer, groups: int, of_load: int = -1) -> Iterator[None]:
        """The same, a group of the loads or copies at a time."""
        moves = [
            (each.registers, scoreboard)
            for each, scoreboard in zip(self.fetched, (TILE_A, TILE_B), strict=True)
            for _ in range(each.instructions)
        ]
        plain = self.plain_parts(len(moves) + 1) if of_load < 0 else iter([of_load] * (len(moves) + 1))
        for group in range(groups):
            for registers, scoreboard in moves[len(moves) * group // groups : len(moves) * (group + 1) // groups]:
                to.plain(next(plain))
                if self.kernel.copies:
                    to.act("global_copy", 1, registers)
                else:
                    to.act("global_load", 1, registers, scoreboard)
            if group == groups - 1:
                to.plain(next(plain))
                if self.kernel.copies:
                    to.act("commit", written=RESULT)
            yield

    def store(self, to: Writer) -> None:
        """What was fetched into shared memory, and let all warps see it."""
        for each, scoreboard in zip(self.stored, (TILE_A, TILE_B), strict=True):
            to.wait(scoreboard)
            to.act("shared_store", each.instructions, each.registers)
        to.act("barrier")

    def await_tile(self, to: Writer, pending: int) -> None:
        """Wait until no more than so many copied tiles are on their way, and let all warps see those that are there."""
        to.act("await_copies", registers=pending)
        to.act("barrier")

    def read(self, to: Writer, iteration: int) -> None:
        """The fragments of a small iteration; where those of A are runs along k, as many as they are long at once."""
        along_k = 1 if self.kernel.transposed else self.fragments[0].registers
        for each, every in zip(self.fragments, (along_k, 1), strict=True):
            if iteration % every == 0:
                times = each.instructions * every // self.small_iterations
                issue = 1 + self.merged * (self.held_cycles(each.registers) - 1)
                to.act("shared_load", times, each.registers, FRAGMENTS[iteration % 2], issue=issue)

    def take_number(self, to: Writer) -> None:
        """The block's number, which one thread asks for and all read."""
        to.result("atomic")
        to.act("shared_store")
        to.act("barrier")
        to.result("shared_load")
        to.act("barrier")

    def meet(self, to: Writer) -> None:
        """Wait for the other blocks of the tile."""
        to.act("fence")
        to.act("barrier")
        to.result("atomic")
        to.act("fence")
        to.result("atomic")
        to.result("atomic")
        to.act("fence")
        to.act("barrier")


def _parts(whole: int, parts: int) -> Iterator[int]:
    return (whole * (number + 1) // parts - whole * number // parts for number in range(parts))
