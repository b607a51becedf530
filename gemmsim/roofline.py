"""Ceilings of a machine, and what they allow at an arithmetic intensity.

Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", CACM 52(4), 2009.
Rates are decimal: GB/s is 10^9 bytes a second, as vendors state them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmsim.banks import PASS_BYTES
from gemmsim.device import Device
from gemmsim.problem import Problem


def attainable(flop_per_byte: Any, peak_flop_per_s: float, bytes_per_s: float) -> Any:
    """FLOP/s under both ceilings: the bandwidth's slope up to the ridge, then the peak."""
    return np.minimum(peak_flop_per_s, np.asarray(flop_per_byte) * bytes_per_s)[()]


def ridge(peak_flop_per_s: float, bytes_per_s: float) -> float:
    """FLOP per byte at which the two ceilings meet: below it, bandwidth binds."""
    return peak_flop_per_s / bytes_per_s


def floor_s(problem: Problem, device: Device) -> Any:
    """Seconds that no kernel can beat: all FLOP at the FP32 peak, or every matrix moved once, the longer."""
    return problem.flop / attainable(problem.flop_per_byte, device.fp32_flop_per_s, device.dram_bytes_per_s)


def bandwidths(device: Device) -> dict[str, float]:
    """Bytes a second of each level of the memory of a device, the nearest level last."""
    return {
        "dram": device.dram_bytes_per_s,
        "l2": device.l2_bytes_per_s,
        "shared_memory": PASS_BYTES * device.sms * device.clock_hz,
    }
