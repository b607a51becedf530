"""What a block of the CLBlast kernel takes of an SM: registers as estimated, what spills, and how many blocks fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.clblast.configurations import Configurations, Numbers
from gemmsim.clblast.constants import Constants
from gemmsim.device import Capability
from gemmsim.occupancy import Occupancy, most_registers, occupancy

REGISTER_UNIT = 8
"""Registers of a thread are given out in such units."""


@dataclass(frozen=True)
class BlockResources:
    """Arrays: registers of a thread, words that it spills and loads again in a step of k, and what fits on an SM."""

    registers_per_thread: Numbers
    spilled_words: Any
    occupancy: Occupancy


def block_resources(c: Configurations, capability: Capability, known: Constants) -> BlockResources:
    """The resources of each configuration on one compute capability.

    The compiler knows the threads of a block, and keeps it within the registers of an SM; what it cannot hold it
    spills to local memory. Copies are spread out before anything of theirs spills.
    """
    most = most_registers(capability, c.threads)
    tile = c.mwi * c.nwi + known.registers_base
    step = (
        tile
        + known.registers_fragments * (c.mwi + c.nwi)
        + known.registers_vector * (c.vwm + c.vwn - 2)
        + known.registers_address * address_vectors(c)
    )
    copied = tile + known.registers_copied * (c.sa * c.mwg + c.sb * c.nwg) * c.kwg / c.threads
    wanted = np.maximum(step, np.where(copied <= most, copied, 0))
    registers = np.minimum(np.ceil(wanted / REGISTER_UNIT) * REGISTER_UNIT, most).astype(np.int64)
    return BlockResources(
        registers,
        known.spills_per_register * np.maximum(0, step - most),
        occupancy(capability, c.threads, registers, dynamic_shared_bytes=c.shared_bytes, opt_in=False),
    )


def address_vectors(c: Configurations) -> Any:
    """Vectors that a thread reads from global memory in a step of k, each of which needs an address."""
    return (1 - c.sa) * c.mwi / c.vwm + (1 - c.sb) * c.nwi / c.vwn
