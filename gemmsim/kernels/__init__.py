"""The kernel family: for each kernel its source, its legal tilings, its launch and its resources."""

from gemmsim.kernels.family import KERNELS, kernel
from gemmsim.kernels.registers import MOST_REGISTERS, most_registers
from gemmsim.kernels.traits import REGISTER_BYTES, UNSAID, Kernel, Launch, Resources, Widths, sources

__all__ = [
    "KERNELS", "MOST_REGISTERS", "REGISTER_BYTES", "UNSAID", "Kernel", "Launch", "Resources", "Widths", "kernel",
    "most_registers", "sources",
]  # fmt: skip
