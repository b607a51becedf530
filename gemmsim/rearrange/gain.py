"""What another order of the main loop's FFMA is worth for a whole launch."""

from __future__ import annotations

from dataclasses import dataclass

from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.rearrange.optimise import Rearranged
from gemmsim.tiling import Tiling

LOOP = "main loop"
REPLACED = ("ffma", "register_ports", "issue", "latency")
"""Terms of the prediction that the main loop stands for."""
PASSED_ON = 0.15
"""Share of the cycles saved at the register ports, as simulated, by which a launch gets shorter. Fitted to other orders
of four kernels (`campaigns/measured/orders.jsonl`), of which none is among those that it is judged by: the port rule is
too kind to orders that were searched for with it, and stalls at the ports hide the write-back of shared loads and let
another warp issue its loads."""


@dataclass(frozen=True)
class Gain:
    """Seconds of a launch before and after; `bound_by` is what takes longest after: the main loop, or another term,
    which then no order of FFMA changes."""

    before_s: float
    after_s: float
    bound_by: str

    @property
    def speedup(self) -> float:
        """The time before over the time after."""
        return self.before_s / self.after_s


def gain(
    found: Rearranged, problem: Problem, kernel: Kernel, tiling: Tiling, on: Device, registers_per_thread: int
) -> Gain:
    """The gain of one launch: what the ports spare its FFMA, as far as that is passed on, unless another resource
    needs longer."""
    prediction = predict(problem, kernel, tiling, on, registers_per_thread)
    others = {name: float(seconds) for name, seconds in prediction.terms.items() if name not in REPLACED}
    slowest = max(others, key=lambda name: others[name])
    before_s = float(prediction.time_s)
    spared_s = float(prediction.terms["ffma"]) * (found.cost_before.ports - found.cost_after.ports)
    after_s = max(before_s - PASSED_ON * spared_s, min(others[slowest], before_s))
    return Gain(before_s, after_s, LOOP if after_s > others[slowest] else slowest)
