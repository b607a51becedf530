"""Totals of a launch over its classes of tiles: requests, sectors and passes, exact for every size.

Within a class the guards are alike, and where a tile starts matters only modulo a sector. So a few representatives
are looked at, each as often as it occurs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np

from gemmsim.accesses.classes import Segment, extents, of_lanes, segments, stride
from gemmsim.accesses.copies import copies_through_l1, copy_passes, past_l1_sectors
from gemmsim.accesses.global_memory import GlobalAccess, LaneAccess
from gemmsim.accesses.lane_runs import LANE
from gemmsim.accesses.shared_memory import SharedAccess
from gemmsim.banks import PASS_BYTES, Lanes, Mask
from gemmsim.coalescing import SECTOR_BYTES, transactions
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling


def count_global(access: GlobalAccess | LaneAccess, problem: Problem, tiling: Tiling) -> tuple[int, int]:
    """(requests, sectors) of one access over the whole launch, exact for every size.

    A request is a warp instruction with an active lane; sectors are the distinct ones of 32 bytes that its active
    lanes touch. The classes of blocks and steps are looked at in turn, with how often each alignment occurs.
    """
    alignments = SECTOR_BYTES // problem.element_bytes
    along = {axis: segments(*extents(problem, tiling)[axis]) for axis in ("mn" if access.once_per_block else "mnk")}
    first, second = access.matrix if isinstance(access, LaneAccess) else (access.down, access.across)
    requests = sectors = 0
    for down, across in product(along[first], along[second]):
        starts = _starts(access, problem, tiling, along | {first: [down], second: [across]}, alignments)
        if isinstance(access, LaneAccess):
            element, active = of_lanes(access, problem, {first: down, second: across})
            requests += sum(starts) * int(active.any(axis=-1).sum())
            for start, times in enumerate(starts):
                if times:
                    addresses = problem.element_bytes * (element + start)
                    touched = transactions(addresses, active, problem.element_bytes * access.width)
                    sectors += times * int(touched.sectors.sum())
        else:
            of_block = _Block.of(access, problem, down.left, across.left, alignments)
            requests += sum(starts) * of_block.requests
            sectors += of_block.sectors(starts)
    return requests, sectors


def count_copy_passes(access: LaneAccess, into: SharedAccess, problem: Problem, tiling: Tiling) -> tuple[int, int]:
    """(wavefronts, ideal wavefronts) of a copy over the whole launch, tiles past the end of k among them.

    Past L1 they depend on where in a line of L1 the tile starts, and where its stage in a row of the banks, as
    conjectured: see `gemmsim.accesses.copies.copy_passes`.
    """
    alignments = PASS_BYTES // problem.element_bytes
    along = {axis: segments(*extents(problem, tiling)[axis]) for axis in "mn"}
    width_bytes = problem.element_bytes * access.width
    step = tiling.block_k * stride(access, problem, "k")
    counts = np.zeros(2, np.int64)
    for kind in along[access.clamped]:
        of_blocks = _starts(access, problem, tiling, along | {access.clamped: [kind]}, alignments)
        left = {"k": tiling.block_k, access.clamped: kind.left}
        if access.guarded:  # zeros are written in place of what is not read
            left[access.clamped] = getattr(tiling, f"block_{access.clamped}")
        rows, columns, active = access.within(*(left[axis] for axis in access.matrix))
        element = rows * stride(access, problem, access.matrix[0]) + columns
        for stage, turns in enumerate(_turns_by_stage(problem, tiling, alignments)):
            of_steps = [0] * alignments
            for number, times in enumerate(turns.tolist()):
                of_steps[number * step % alignments] += times
            starts = _added(of_blocks, of_steps)
            if copies_through_l1(width_bytes):  # then only the target counts, up to a move
                starts = [sum(starts)]
            target = into.elements + into.start + stage * into.stage_elements
            for start, times in enumerate(starts):
                if times:
                    passes = copy_passes(target, element + start, active, width_bytes, problem.element_bytes)
                    counts += times * np.array([passes.wavefronts.sum(), passes.ideal_wavefronts.sum()])
    return int(counts[0]), int(counts[1])


def count_past_l1_sectors(access: LaneAccess, into: SharedAccess, problem: Problem, tiling: Tiling) -> int:
    """Sectors of a copy past L1 over the whole launch, as hardware counts them: see `gemmsim.accesses.copies`.

    They depend on where in a sector the tile starts, and where in 32 bytes its stage does.
    """
    alignments = SECTOR_BYTES // problem.element_bytes
    along = {axis: segments(*extents(problem, tiling)[axis]) for axis in "mnk"}
    step = tiling.block_k * stride(access, problem, "k")
    sectors = 0
    for kind, steps in product(along[access.clamped], along["k"]):
        of_blocks = _starts(
            access, problem, tiling, {"m": along["m"], "n": along["n"], access.clamped: [kind]}, alignments
        )
        element, active = of_lanes(access, problem, {access.clamped: kind, "k": steps})
        for stage, turns in enumerate(_turns_of(steps, problem, tiling, alignments)):
            of_steps = [0] * alignments
            for number, times in enumerate(turns.tolist()):
                of_steps[number * step % alignments] += times
            target = into.elements + into.start + stage * into.stage_elements
            for start, times in enumerate(_added(of_blocks, of_steps)):
                if times:
                    sectors += times * int(
                        past_l1_sectors(target, element + start, active, problem.element_bytes).sum()
                    )
    return sectors


def _turns_of(steps: Segment, problem: Problem, tiling: Tiling, modulus: int) -> Lanes:
    """As `_turns_by_stage`, of the whole tiles of k or of the partial one alone."""
    tiles, rest = divmod(problem.k, tiling.block_k)
    partial = np.zeros((tiling.stages, modulus), np.int64)
    if rest:  # it belongs to the last part
        first = (tiles + 1) * (tiling.split_k - 1) // tiling.split_k
        partial[(tiles - first) % tiling.stages, tiles % modulus] = 1
    return partial if steps.left < tiling.block_k else _turns_by_stage(problem, tiling, modulus, past=0) - partial


def _turns_by_stage(problem: Problem, tiling: Tiling, modulus: int, past: int | None = None) -> Lanes:
    """How often the blocks of a tile of C fetch into each stage the tile of k with each number modulo `modulus`:
    (stages, modulus). A block goes round its ring, through its own tiles and then `past` more: by default as many
    as it fetches ahead."""
    tiles, split, stages = ceil_div(problem.k, tiling.block_k), tiling.split_k, tiling.stages
    bounds = [tiles * part // split for part in range(split + 1)]
    turns = np.zeros((stages, modulus), np.int64)
    period = math.lcm(stages, modulus)
    for first, last in pairwise(bounds):
        count = last - first + (int(tiling.tiles_ahead) if past is None else past)
        turn = np.arange(min(count, period))
        np.add.at(turns, (turn % stages, (first + turn) % modulus), (count - turn - 1) // period + 1)
    return turns


def _starts(
    access: GlobalAccess | LaneAccess, problem: Problem, tiling: Tiling, along: dict[str, list[Segment]], modulus: int
) -> list[int]:
    """How many of the tiles along all axes start at each place of the matrix, modulo a number of elements."""
    starts = [1] + [0] * (modulus - 1)
    for axis, kinds in along.items():
        step = extents(problem, tiling)[axis][1] * stride(access, problem, axis)
        starts = _added(starts, _alignments(kinds, step, modulus))
    return starts


def _alignments(kinds: Sequence[Segment], step: int, modulus: int) -> list[int]:
    """How many tiles start at each offset modulo `modulus`, tiles being `step` apart."""
    counts = [0] * modulus
    for kind in kinds:
        for phase in range(min(modulus, kind.count)):
            counts[(kind.first + phase) * step % modulus] += (kind.count - phase - 1) // modulus + 1
    return counts


def _added(some: Sequence[int], others: Sequence[int]) -> list[int]:
    """How often each sum of two offsets occurs, modulo their number."""
    counts = [0] * len(some)
    for (offset, times), (other, of_other) in product(enumerate(some), enumerate(others)):
        counts[(offset + other) % len(some)] += times * of_other
    return counts


@dataclass(frozen=True)
class _Block:
    """One access in one block and step: its different warp instructions, and how often each occurs at each
    alignment. The first axes of all arrays are kinds of rows and of columns that lanes have."""

    width_bytes: int
    byte_offsets: Lanes
    active: Mask
    times: Lanes

    @classmethod
    def of(cls, access: GlobalAccess, problem: Problem, left_down: int, left_across: int, alignments: int) -> _Block:
        """The block whose tile reaches so far along both axes of the access.

        Instructions are of one kind if their runs start at the same place of a row and have as many lanes, rows and
        columns within the tile.
        """
        runs, size = access.runs, WARP_SIZE + 1
        stride_down, stride_across = (stride(access, problem, axis) for axis in (access.down, access.across))
        move_down, move_across = np.array(access.moves_down)[:, None], np.array(access.moves_across)
        columns = np.clip(ceil_div(left_across - move_across, access.step_across), 0, runs.per_row)
        first, lanes = runs.written_down()
        row, number = np.divmod(first, runs.per_row)
        covered = (number + lanes - 1) // runs.per_row + 1
        some = (lanes > 0) & ((number < columns.max()) | (covered > 1))
        row, number, covered, lanes = row[some], number[some], covered[some], lanes[some]
        rows = np.clip(ceil_div(left_down - move_down, access.step_down) - row, 0, covered)
        # A run that is whole and within a row is the same wherever in the row it starts.
        moved = np.where(number + lanes <= columns.min(), number, 0)
        shift = (row * access.step_down + move_down) * stride_down + moved * access.step_across * stride_across
        kinds_down, times_down = _kinds(((number - moved) * size + lanes) * size + rows, shift, alignments)
        kinds_across, times_across = _kinds(columns, move_across * stride_across, alignments)

        kinds_down, rows = np.divmod(kinds_down[:, None, None], size)
        number, lanes = np.divmod(kinds_down, size)
        row, number = np.divmod(number + LANE, runs.per_row)
        element = row * access.step_down * stride_down + number * access.step_across * stride_across
        active = (lanes > LANE) & (row < rows) & (number < kinds_across[:, None])
        times = sum(
            times_down[:, None, [offset]] * np.roll(times_across, offset, axis=1) for offset in range(alignments)
        )
        return cls(access.width * problem.element_bytes, element * problem.element_bytes, active, np.asarray(times))

    @property
    def requests(self) -> int:
        """Warp instructions with an active lane."""
        return int((self.times.sum(axis=-1) * self.active.any(axis=-1)).sum())

    def sectors(self, starts: Sequence[int]) -> int:
        """Sectors that they touch in so many tiles for each alignment of a tile's start."""
        modulus = len(starts)
        here = [offset for offset in range(modulus) if self.times[..., offset].any()]
        tiles = [start for start in range(modulus) if starts[start]]
        needed = sorted({(start + offset) % modulus for start, offset in product(tiles, here)})
        shifts = np.array(needed)[:, None, None, None] * (SECTOR_BYTES // modulus)
        touched = transactions(self.byte_offsets + shifts, self.active, self.width_bytes).sectors
        at = dict(zip(needed, touched, strict=True))
        return sum(
            starts[start] * int((self.times[..., offset] * at[(start + offset) % modulus]).sum())
            for start, offset in product(tiles, here)
        )


def _kinds(kinds: Lanes, shifts: Lanes, modulus: int) -> tuple[Lanes, Lanes]:
    """The different kinds, and how often each occurs with each shift."""
    both, times = np.unique(kinds * modulus + shifts % modulus, return_counts=True)
    found, which = np.unique(both // modulus, return_inverse=True)
    counts = np.zeros((len(found), modulus), np.int64)
    counts[which, both % modulus] = times
    return found, counts
