"""The kernels in the order of the ladder, each with one good tiling, and what each brings at one problem."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from gemmsim.device import Device
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.predict import Prediction
from gemmsim.problem import Problem
from gemmsim.record_files import latest
from gemmsim.records import Point, Record
from gemmsim.routes import predicted_time
from gemmsim.tiling import Tiling
from gemmsim.traffic import Traffic, traffic


@dataclass(frozen=True)
class Rung:
    """One kernel at one problem: its prediction, and the measured median where there is one."""

    kernel: Kernel
    tiling: Tiling
    prediction: Prediction
    measured_s: float | None

    @property
    def described(self) -> str:
        """The tiling, written out."""
        return self.kernel.describe(self.tiling)

    @cached_property
    def traffic(self) -> Traffic:
        """Reads, requests and bytes at every level; raises InputError where these pass what is counted."""
        return traffic(self.prediction.problem, self.kernel, self.tiling)

    @property
    def measured_flop_per_s(self) -> float | None:
        """Useful FLOP, 2mnk, a second, as measured."""
        return None if self.measured_s is None else float(self.prediction.problem.flop_per_s(self.measured_s))


def default_tiling(kernel: Kernel) -> Tiling:
    """A good tiling of the kernel for large problems on any GPU."""
    return kernel.tiling(**dict(kernel.default_tile))


def ladder() -> tuple[tuple[Kernel, Tiling], ...]:
    """Every rung, from the simplest kernel to the fastest, with its default tiling."""
    return tuple((kernel, default_tiling(kernel)) for kernel in KERNELS.values())


def climb(problem: Problem, device: Device, records: Iterable[Record] = (), route: str = "auto") -> tuple[Rung, ...]:
    """Every rung that the device can run, at one problem, predicted by a route of `gemmsim.routes`; `records` of it
    bring times, and the compiler's registers.

    Raises InputError where the kernels do not take the problem, the device cannot hold a tile, or a route is asked for
    that there is not.
    """
    measured = {record.point.key: record for record in latest(records) if record.ok and record.device == device.name}

    def rung(kernel: Kernel, tiling: Tiling) -> Rung:
        record = measured.get(Point(problem, kernel.name, tiling).key)
        prediction = predicted_time(problem, kernel, tiling, device, route, **(record.compiled if record else {}))
        return Rung(kernel, tiling, prediction, record.median_s if record else None)

    return tuple(rung(kernel, tiling) for kernel, tiling in ladder() if kernel.runs_on(device.capability.name))
