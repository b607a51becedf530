"""The two ways to a predicted time behind one call, so that each checks the other.

The analytic route takes closed forms and any number of launches at once. The simulated one runs the program of one
launch's warps, where there is one: shipped, or just compiled. What bounds a launch the analytic one says for both.

The two share what was measured of the GPU and little else, and on an H200 their errors are far from alike. So both
together are right more often than either: their geometric mean, each weighed by the inverse of the mean square that the
logarithm of predicted over measured has for the kernel, as of any two independent estimates. `campaigns/accuracy.py`
writes these weights, of points that neither route was made with, and that are not held out either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from gemmsim.analytic.load_schedules import schedule_of
from gemmsim.calibration import calibration
from gemmsim.device import DATA, Device
from gemmsim.errors import InputError, unknown
from gemmsim.kernels import Kernel
from gemmsim.main_loops.port_shares import PortShare
from gemmsim.predict import Prediction, predict
from gemmsim.problem import Problem
from gemmsim.simulated_times import simulated_s
from gemmsim.tiling import Tiling
from gemmsim.toml_files import read_toml

if TYPE_CHECKING:
    from gemmsim.pipeline.program import Program

ROUTES = ("auto", "both", "simulated", "analytic")
"""What can be asked for; auto is both where there is a program, else analytic."""
WEIGHTS = DATA / "route_weights.toml"
"""Of the simulated route beside the analytic one, by kernel."""
DESCRIBED = 1 / 2
"""Share of that weight that is left where the program is told from the kernel's description: of what leads searches its
errors vary by 11 % instead of 9 % then, and their correlation with those of the analytic route is 0.5 instead of 0.2.
So of eight problems beside those that accuracy is judged by, what comes first takes the least time
(`campaigns/finalists.py`)."""


@dataclass(frozen=True)
class SimulatedPrediction(Prediction):
    """A prediction whose time is simulated; its terms, and what bounds it, are those of the analytic one."""

    simulated_s: float = math.inf

    @property
    def time_s(self) -> Any:
        """The simulated time."""
        return self.simulated_s if self.occupancy.blocks_per_sm else math.inf

    @property
    def analytic_s(self) -> Any:
        """What the analytic route says."""
        return super().time_s


@dataclass(frozen=True)
class CombinedPrediction(SimulatedPrediction):
    """A prediction whose time is the weighed mean of what both routes say."""

    @property
    def time_s(self) -> Any:
        """The mean."""
        return both_s(super().time_s, self.analytic_s, self.kernel.name)


def both_s(simulated_s: float, analytic_s: float, kernel: str, share: float = 1.0) -> float:
    """Seconds that both routes say together of a launch of a kernel; `share` of its weight the simulation has."""
    weight = share * weights().get(kernel, 0.5)
    return float(simulated_s**weight * analytic_s ** (1 - weight))


@cache
def weights() -> dict[str, float]:
    """{kernel: the simulated route's weight}, from 0 to 1; both count alike for one that is missing. InputError for a
    file that says anything else."""
    found = read_toml(WEIGHTS)
    for name, value in found.items():
        if not isinstance(value, int | float) or not 0 <= value <= 1:
            raise InputError(f"{WEIGHTS}: {name} {value!r}; allowed: 0 to 1")
    return found


def predicted_time(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    route: str = "auto",
    registers_per_thread: int | None = None,
    ports: PortShare | None = None,
    program: Program | None = None,
    local_bytes: int = 0,
) -> Prediction:
    """The prediction of `predict`, its time by the route that is asked for; `program` is that of the compiled kernel,
    the shipped one if left out.

    Raises InputError for what `predict` refuses, for an unknown route, and where a simulation is asked for of which
    there is no program, or of many launches at once.
    """
    schedule = schedule_of(program, tiling) if program and kernel.staged else None
    analytic = predict(problem, kernel, tiling, device, registers_per_thread, ports, local_bytes, schedule)
    return by_route(analytic, route, program)


def route_named(name: str) -> str:
    """The same name; InputError unless it is a route."""
    if name not in ROUTES:
        raise unknown("route", name, ROUTES)
    return name


def by_route(analytic: Prediction, route: str, program: Program | None = None) -> Prediction:
    """The prediction by a route, given the analytic one; a launch that does not fit is not simulated."""
    if route_named(route) == "analytic":
        return analytic
    problem, kernel, tiling, device = analytic.problem, analytic.kernel, analytic.tiling, analytic.device
    if not isinstance(problem.m + problem.n + problem.k + tiling.threads, int):
        if route != "auto":
            raise InputError("many launches at once are not simulated; give one, or the route analytic")
        return analytic
    if not analytic.occupancy.launches:
        return analytic
    from gemmsim.pipeline.programs import program_for  # closed forms need none

    program = program or program_for(kernel, problem, tiling, device)
    if program is None:
        if route != "auto":
            raise InputError(
                f"no program of {kernel.name} {kernel.describe(tiling)} is shipped for {device.capability.sm}: predict"
                " --compile makes it, with nvcc; or take the route analytic"
            )
        return analytic
    blocks = int(analytic.occupancy.blocks_per_sm)
    time_s = simulated_s(problem, kernel, tiling, device, program, blocks, calibration(device))
    kind = SimulatedPrediction if route == "simulated" else CombinedPrediction
    return kind(**{each.name: getattr(analytic, each.name) for each in fields(analytic)}, simulated_s=time_s)


def route_of(found: Prediction) -> str:
    """The route by which a prediction's time was found: both, simulated or analytic."""
    if isinstance(found, CombinedPrediction):
        return "both"
    return "simulated" if isinstance(found, SimulatedPrediction) else "analytic"


def analytic_s(found: Prediction) -> Any:
    """What the analytic route says, whichever the prediction's is."""
    return found.analytic_s if isinstance(found, SimulatedPrediction) else found.time_s
