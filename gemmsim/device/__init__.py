"""GPUs as data: what a compute capability allows, and one frozen row for each GPU, every number with its source.

The tables lie in `data/capabilities.toml` and `data/devices/*.toml` and are read when first asked for.
"""

from gemmsim.device.gpus import Device, device, devices, load_device
from gemmsim.device.limits import DATA, Capability, L2Reference, capabilities, capability

__all__ = [
    "DATA", "Capability", "Device", "L2Reference", "capabilities", "capability", "device", "devices", "load_device",
]  # fmt: skip
