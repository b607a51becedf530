"""Ceilings of a machine, and what they allow at an arithmetic intensity.

Williams, Waterman, Patterson: "Roofline: an insightful visual performance model", CACM 52(4), 2009.
Rates are decimal: GB/s is 10^9 bytes a second, as vendors state them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmsim.banks import BANK_BYTES, PASS_BYTES
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.problem import Problem
from gemmsim.registers.register_files import register_file
from gemmsim.tiling import WARP_SIZE
from gemmsim.traffic import Traffic

OPERANDS_BYTES = 3 * 4
"""Bytes of the registers that an FFMA names as sources, a lane."""


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
    """Bytes a second of each level of the memory of a device, the nearest level last: the banks of the register files
    where these are known, each serving so many warp-wide registers a cycle."""
    rates = {
        "dram": device.dram_bytes_per_s,
        "l2": device.l2_bytes_per_s,
        "shared_memory": PASS_BYTES * device.sms * device.clock_hz,
    }
    try:
        file = register_file(device.capability)
    except InputError:
        return rates
    registers_per_cycle = file.banks * file.reads_per_cycle * device.capability.sub_partitions * device.sms
    return rates | {"registers": registers_per_cycle * WARP_SIZE * BANK_BYTES * device.clock_hz}


def intensities(counted: Traffic) -> dict[str, float]:
    """FLOP, 2mnk, for each byte at every level that the launch uses, by the names of `bandwidths`.

    Each FFMA counts with three registers there. What an operand cache keeps need not be read, so with it a kernel can
    be faster than the banks alone would let it.
    """
    return counted.flop_per_byte | {"registers": counted.problem.flop / (OPERANDS_BYTES * counted.ffma)}
