"""How a compiled main loop waits for its global loads: in how many batches, and how long it goes on meanwhile.

Which of its loads a compiler moves down to where their values are needed, and how many it leaves under way together,
follows no rule that is known here, and decides by up to a third how long a tile takes. So it is read off the compiled
loop, and shipped for common tilings beside what else the compiler decides; others have what is usual
(`gemmsim.analytic.spills`, `gemmsim.analytic.demands`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gemmsim.device import DATA, Capability
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.register_table import Row, many, row_of, rows_of
from gemmsim.tiling import Tiling

if TYPE_CHECKING:
    from gemmsim.pipeline.program import Program

SHIPPED = DATA / "registers" / "loads.jsonl"
COLUMNS = ("kernel", "loads", "macros", "sources")
"""What a row of that table has."""


class LoadSchedule(NamedTuple):
    """Of a tile of k, numbers or arrays; not a number where it is not known.

    batches   latencies that a warp waits for, one after the other; a half where the loads of two tiles go together
    exposed   share of a pass that is not between the last load of the first batch and the wait for it
    """

    batches: Any = np.nan
    exposed: Any = np.nan

    def or_else(self, batches: Any, exposed: Any) -> LoadSchedule:
        """What is known, and otherwise what is usual."""
        return LoadSchedule(_known(self.batches, batches), _known(self.exposed, exposed))


UNKNOWN = LoadSchedule()


def _known(found: Any, otherwise: Any) -> Any:
    if not np.ndim(found):
        return otherwise if np.isnan(found) else found
    return np.where(np.isnan(found), otherwise, found)


def schedule_of(program: Program, tiling: Tiling) -> LoadSchedule:
    """The schedule of a compiled kernel that stages tiles; UNKNOWN where its loop has no global loads.

    What is asked for after a wait for other loads comes a latency later than these: it is of another batch.
    """
    under_way: dict[int, tuple[int, float]] = {}  # by scoreboard: the number of the batch, and when it was asked for
    arrived, begun, now = 0, 0, 0.0
    shares: list[float] = []
    cycles = sum(step.ready_cycles for step in program.loop)
    for turn in range(2):  # what the first leaves under way the second finds
        begun = arrived if turn else 0
        for step in program.loop:
            if awaited := [under_way.pop(of) for of in set(step.waits) & under_way.keys()]:
                arrived = max(arrived, *(batch for batch, _ in awaited))
                if turn:
                    shares.append(1 - (now - max(asked for _, asked in awaited)) / cycles)
            now += step.ready_cycles
            if step.action == "global_load":
                under_way[step.written] = arrived + 1, now
    if not shares:
        return UNKNOWN
    tiles = program.loop_ffma / (tiling.block_k * tiling.thread_m * tiling.thread_n)
    return LoadSchedule((arrived - begun) / tiles, max(0.0, shares[0]))


def load_schedule(kernel: Kernel, problem: Problem, tiling: Tiling, on: Capability) -> LoadSchedule:
    """The shipped schedule of one launch, or of many where n, k or the tiling are arrays; UNKNOWN for other sources."""
    if not many(problem, tiling):
        row = row_of(kernel, problem, tiling, SHIPPED)
        return _of_row(row, on) if row else UNKNOWN
    rows, which = rows_of(kernel, problem, tiling, SHIPPED)
    found = np.array([*(_of_row(row, on) for row in rows), UNKNOWN])[which]
    return LoadSchedule(found[..., 0], found[..., 1])


def _of_row(row: Row, on: Capability) -> LoadSchedule:
    return LoadSchedule(*row.loads[on.name]) if on.name in row.loads else UNKNOWN
