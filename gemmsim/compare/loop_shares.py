"""Main loops beside records: the share of the FFMA peak that ports and issue slots allow, the share that warps reach
in the simulation of a sub-core, and the one that was measured."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from gemmsim.accesses.costs import access_costs
from gemmsim.device import Capability, Device
from gemmsim.kernels import Kernel
from gemmsim.kernels import kernel as kernel_named
from gemmsim.main_loops.sub_core import Residents
from gemmsim.occupancy import occupancy
from gemmsim.pipeline.programs import merged_loads
from gemmsim.predict import Prediction, predict
from gemmsim.problem import Count, Problem
from gemmsim.records import Record
from gemmsim.register_table import row_of
from gemmsim.tiling import Tiling

BITS_OF_REGISTER = 32


@dataclass(frozen=True)
class LoopShare:
    """One kernel with one tiling at its largest measured problem. `measured` is the time that the FFMA of the busiest
    multiprocessor need at peak rate over the measured time, so that padding and tail are no loss; `running` the share
    that the warps of a sub-core reach, which wait for what they load; not a number where the table does not have it.
    """

    LEAST_WAVES: ClassVar[int] = 3
    """Launches that fill the GPU less often are half tail."""

    prediction: Prediction
    measured_s: float
    running: float

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return self.prediction.kernel.name

    @property
    def tiling(self) -> str:
        """The tiling in words."""
        return self.prediction.kernel.describe(self.prediction.tiling)

    @property
    def problem(self) -> str:
        """The sizes."""
        return str(self.prediction.problem)

    @property
    def ports(self) -> float:
        """Share of the peak that ports and issue slots allow."""
        return float(self.prediction.ports.fraction)

    @property
    def ideal(self) -> float:
        """The same if no read conflicted."""
        return float(self.prediction.ports.ideal_fraction)

    @property
    def measured(self) -> float:
        """Measured share of the peak."""
        return float(self.prediction.terms["ffma"]) / self.measured_s

    @property
    def bound_by(self) -> str:
        """The resource that takes longest, waits left out."""
        terms = {name: seconds for name, seconds in self.prediction.terms.items() if name not in ("latency", "launch")}
        return max(terms, key=lambda name: float(terms[name]))

    @property
    def ffma_bound(self) -> bool:
        """Whether the model holds the FFMA, at the pace of the register ports, for what takes longest."""
        return self.bound_by in ("ffma", "register_ports") and bool(self.prediction.waves >= self.LEAST_WAVES)


def loop_shares(records: Iterable[Record], on: Device) -> list[LoopShare]:
    """Each kernel and tiling of a device's records at the problem with the most FLOP, in the order of the records."""
    largest: dict[tuple[str, str], Record] = {}
    for record in records:
        if record.ok and record.device == on.name:
            point = record.point
            key = point.kernel, kernel_named(point.kernel).describe(point.tiling)
            if key not in largest or point.problem.flop > largest[key].point.problem.flop:
                largest[key] = record
    return [_share(record, on) for record in largest.values()]


def _share(record: Record, on: Device) -> LoopShare:
    point = record.point
    kernel = kernel_named(point.kernel)
    prediction = predict(point.problem, kernel, point.tiling, on, **record.compiled)
    row = row_of(kernel, point.problem, point.tiling)
    cycles = row.running.get(on.capability.name) if row else None
    return LoopShare(prediction, float(record.median_s or 0), 1 / cycles if cycles else math.nan)


def residents(kernel: Kernel, problem: Problem, tiling: Tiling, on: Capability, registers_per_thread: int) -> Residents:
    """The warps of a launch that find room on a sub-core, those of a block spread evenly, and what their shared
    accesses take on average."""
    taken = kernel.resources(problem, tiling, registers_per_thread)
    fit = occupancy(on, taken.threads, registers_per_thread, dynamic_shared_bytes=taken.shared_bytes)
    blocks = max(1, int(fit.blocks_per_sm))
    warps = max(blocks, blocks * tiling.warps // on.sub_partitions)
    if not kernel.staged:
        return Residents(warps, blocks)
    costs = access_costs(kernel, tiling, kernel.widths(problem, tiling), problem.element_bytes)
    loads = [cost for cost in costs if cost.op == "load"]
    stores = [cost for cost in costs if cost.op != "load"]  # a copy stores too
    return Residents(
        warps,
        blocks,
        _mean((cost.requests, cost.wavefronts) for cost in loads),
        _mean((cost.requests, cost.wavefronts) for cost in stores),
        merged_loads(kernel, problem, tiling),
    )


def _mean(of: Iterable[tuple[Count, Count]]) -> float:
    """What a request takes on average, of pairs (requests, what they take)."""
    requests, taken = (sum(column) for column in zip(*of, strict=True))
    return float(taken / requests)
