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
"""Terms of the prediction that the main loop, as the warps run it, waits included, takes the place of."""


@dataclass(frozen=True)
class Gain:
    """Seconds of a launch, by the pace of its main loop, before and after; `bound_by` is what takes longest after: the
    main loop, or another term that then no order of FFMA changes."""

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
    """The gain of one launch: the FFMA of the busiest multiprocessor at the pace of the main loop, unless another
    resource needs longer. What comes before and after the main loop is left out."""
    terms = predict(problem, kernel, tiling, on, registers_per_thread).terms
    others = {name: float(seconds) for name, seconds in terms.items() if name not in REPLACED}
    slowest = max(others, key=lambda name: others[name])
    ffma_s = float(terms["ffma"])
    before_s, after_s = (ffma_s * cost.running for cost in (found.cost_before, found.cost_after))
    return Gain(
        max(before_s, others[slowest]),
        max(after_s, others[slowest]),
        LOOP if after_s >= others[slowest] else slowest,
    )
