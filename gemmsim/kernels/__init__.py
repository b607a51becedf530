"""The kernel family: for each kernel its source, its legal tilings, its launch and its resources."""

from gemmsim.kernels.family import KERNELS, kernel
from gemmsim.kernels.launches import REGISTER_BYTES, Launch, Resources, Widths
from gemmsim.kernels.registers import MOST_REGISTERS, most_registers
from gemmsim.kernels.source_files import sources
from gemmsim.kernels.traits import UNSAID, Kernel

__all__ = [
    "KERNELS", "MOST_REGISTERS", "REGISTER_BYTES", "UNSAID", "Kernel", "Launch", "Resources", "Widths", "kernel",
    "most_registers", "sources",
]  # fmt: skip
