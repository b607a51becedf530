"""How many blocks one SM holds, what limits them, and where that changes; files of cases."""

from gemmsim.occupancy.limits import (
    RESOURCES,
    UNLIMITED,
    Occupancy,
    blocks_that_fit,
    most_registers,
    most_threads,
    occupancies,
    occupancy,
)

__all__ = [
    "RESOURCES", "UNLIMITED", "Occupancy", "blocks_that_fit", "most_registers", "most_threads", "occupancies",
    "occupancy",
]  # fmt: skip
