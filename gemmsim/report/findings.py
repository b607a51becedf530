"""What the records of one device say: the points that answer, the ladder at one size, the configuration to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from gemmsim.accesses.costs import shared_per_tile
from gemmsim.compare import ComparedPoint, Comparison, compare, counter_differences
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.kernels import kernel as kernel_named
from gemmsim.ladder import Rung, ladder
from gemmsim.occupancy.cliffs import Block, Sweep, sweeps
from gemmsim.pipeline.timeline import Timeline
from gemmsim.predict import Prediction, predict
from gemmsim.problem import Problem
from gemmsim.record_files import latest
from gemmsim.records import Record
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import ThreadTile
from gemmsim.scenes import TileOrders, WarpAccess, around, same_tiling, tile_orders, timeline_of, worst_access
from gemmsim.search import Found
from gemmsim.search.landscapes import Landscape
from gemmsim.tiling import Tiling

WORST, BEST = "most conflicts", "fewest conflicts"


@dataclass(frozen=True)
class Banked:
    """A launch as the banks of shared memory see it; `shown` names the access to look at, if it has it."""

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    shown: str | None = None

    @cached_property
    def excess_fraction(self) -> float:
        """The share of its wavefronts, loads and stores together, that conflicts cause; 0 without any wavefront."""
        widths = self.kernel.widths(self.problem, self.tiling)
        loads, stores = shared_per_tile(self.kernel, self.tiling, widths, self.problem.element_bytes)
        both = loads + stores
        return both.excess / both.wavefronts if both.wavefronts else 0.0

    @cached_property
    def access(self) -> WarpAccess | None:
        """The warp that shows it best."""
        return worst_access(self.problem, self.kernel, self.tiling, self.shown)

    def __str__(self) -> str:
        return f"{self.kernel.name} {self.kernel.describe(self.tiling)}"


@dataclass(frozen=True)
class Findings:
    """The records of one device. `comparison` is None where no point has a time; a rung is a kernel in its fastest
    measured tiling, or in its default one where none was measured."""

    device: Device
    comparison: Comparison | None
    failed: tuple[Record, ...]
    problem: Problem
    rungs: tuple[Rung, ...]

    @cached_property
    def fastest(self) -> list[ComparedPoint]:
        """The fastest measured point of each size, the smallest size first."""
        return fastest(self.comparison.points) if self.comparison else []

    @property
    def _points(self) -> tuple[ComparedPoint, ...]:
        return self.comparison.points if self.comparison else ()

    @property
    def tilings(self) -> str:
        """Which tilings the rungs have."""
        measured = [rung.measured_s is not None for rung in self.rungs]
        if all(measured):
            return "each kernel in its fastest measured tiling"
        if not any(measured):
            return "each kernel in its default tiling"
        return "each kernel in its fastest measured tiling, or its default one where none was measured"

    @property
    def records(self) -> list[Record]:
        """The records behind it: with a time first, then those without."""
        return (
            [*(point.record for point in self.comparison.points), *self.failed] if self.comparison else [*self.failed]
        )

    @property
    def counts(self) -> tuple[int, int]:
        """(equal, all) counts of the model that hardware counted too."""
        agreements = self.comparison.counters.values() if self.comparison else ()
        return sum(each.equal for each in agreements), sum(each.total for each in agreements)

    @cached_property
    def differences(self) -> list[tuple[Record, str, int, int]]:
        """(record, counter, model, hardware) of every count of a measured point."""
        return [
            (point.record, name, *pair)
            for point in self._points
            for name, pair in counter_differences(point.record).items()
        ]

    @property
    def best(self) -> Prediction | None:
        """The prediction of the answer, the fastest point of the largest size; where nothing was measured, of the rung
        predicted fastest. None where there is neither."""
        if self.fastest:
            return self.fastest[-1].prediction
        predicted = [rung.prediction for rung in self.rungs if rung.prediction.occupancy.launches]
        return min(predicted, key=lambda prediction: float(prediction.time_s), default=None)

    @cached_property
    def banked(self) -> Mapping[str, Banked]:
        """The tiling with the largest and with the smallest share of conflicts, by WORST and BEST: of those measured,
        else of the rungs; of several as good the one that does most FLOP a second. Empty where none has a map."""
        rates = [(point.flop_per_s, point.point.problem, point.prediction) for point in self._points]
        if not rates:
            rates = [(float(rung.prediction.flop_per_s), self.problem, rung.prediction) for rung in self.rungs]
        # the last of a tiling counts, at its largest problem
        found = {
            (of.kernel.name, of.tiling): (rate, Banked(problem, of.kernel, of.tiling))
            for rate, problem, of in sorted(rates, key=lambda each: (each[1].flop, each[0]))
        }
        mapped = [(rate, each) for rate, each in found.values() if each.access]
        if not mapped:
            return {}
        _, worst = max(mapped, key=lambda each: (each[1].excess_fraction, each[0]))
        _, best = max(mapped, key=lambda each: (-each[1].excess_fraction, each[0]))
        if worst == best or worst.access is None:
            return {WORST: worst}
        return {WORST: worst, BEST: replace(best, shown=worst.access.name)}

    @cached_property
    def orders(self) -> TileOrders | None:
        """The thread tile of the best configuration in its registers; None where the register file is not known."""
        if self.best is None:
            return None
        tile = ThreadTile(int(self.best.tiling.thread_m), int(self.best.tiling.thread_n))
        try:
            return tile_orders(tile, register_file(self.device.capability))
        except InputError:
            return None

    @property
    def block(self) -> Block | None:
        """What a block of the best configuration takes."""
        if self.best is None:
            return None
        taken = self.best.resources
        return Block(int(taken.threads), int(taken.registers_per_thread), 0, int(taken.shared_bytes))

    @cached_property
    def sweeps(self) -> dict[str, Sweep]:
        """What more or less of each resource of that block would change."""
        return sweeps(self.device.capability, self.block) if self.block else {}

    @cached_property
    def landscape(self) -> tuple[Found, tuple[Landscape, ...]] | None:
        """(the search around the best configuration, its landscapes); None where there is none."""
        if self.best is None:
            return None
        try:
            return around(self.best.problem, self.best.kernel, self.best.tiling, self.device)
        except InputError:
            return None

    @cached_property
    def timelines(self) -> tuple[Timeline, ...]:
        """Single and double buffering side by side, in the tiling of the double_buffer rung; empty without such a rung,
        or where one of the two does not launch."""
        for rung in self.rungs:
            if rung.kernel.name == "double_buffer":
                single = kernel_named("vectorized")
                try:
                    launches = ((single, same_tiling(single, rung.tiling)), (rung.kernel, rung.tiling))
                    return tuple(timeline_of(self.problem, *each, self.device) for each in launches)
                except InputError:
                    return ()
        return ()


def findings(records: Iterable[Record], device: Device) -> Findings:
    """What there is to say of the records of a device; of a point measured twice the later one counts.

    Raises InputError when none of them is of this device.
    """
    own = [record for record in latest(records) if record.device == device.name]
    if not own:
        raise InputError(f"no record of {device.name} among the records")
    comparison = compare(own, device) if any(record.ok for record in own) else None
    failed = tuple(record for record in own if not record.ok)
    points = comparison.points if comparison else ()
    problem = _most_telling([point.point.problem for point in fastest(points, by_kernel=True)]) or max(
        (record.point.problem for record in own), key=lambda problem: int(problem.flop)
    )
    return Findings(device, comparison, failed, problem, rungs_at(problem, points, device))


def fastest(points: Iterable[ComparedPoint], by_kernel: bool = False) -> list[ComparedPoint]:
    """The fastest measured point of each problem, or of each problem and kernel, the smallest size first."""

    def group(point: ComparedPoint) -> tuple[Any, ...]:
        problem = point.point.problem
        return int(problem.flop), str(problem), point.point.kernel if by_kernel else ""

    grouped = groupby(sorted(points, key=group), key=group)
    return [min(of_group, key=lambda point: point.measured_s) for _, of_group in grouped]


def rungs_at(problem: Problem, points: Iterable[ComparedPoint], device: Device) -> tuple[Rung, ...]:
    """The ladder at one problem, each kernel in its fastest measured tiling, else in its default one; kernels that do
    not take the problem or the device are left out."""
    return tuple(_rungs(problem, points, device))


def _rungs(problem: Problem, points: Iterable[ComparedPoint], device: Device) -> Iterator[Rung]:
    measured = {p.point.kernel: p for p in fastest((p for p in points if p.point.problem == problem), by_kernel=True)}
    for kernel, tiling in ladder():
        point = measured.get(kernel.name)
        try:
            if point:
                rung = Rung(kernel, point.point.tiling, point.prediction, point.measured_s)
            else:
                rung = Rung(kernel, tiling, predict(problem, kernel, tiling, device), None)
            _ = rung.traffic  # counted here, where a refusal means something
        except InputError:
            continue  # a size or device that the kernel does not take has no rung
        yield rung


def _most_telling(problems: Sequence[Problem]) -> Problem | None:
    """The problem that most kernels were measured at, the largest of several."""
    return max(problems, key=lambda problem: (problems.count(problem), int(problem.flop)), default=None)
