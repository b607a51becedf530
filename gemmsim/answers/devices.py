"""Documents of GPUs: their numbers, and where each is from."""

from __future__ import annotations

from collections.abc import Sequence

from gemmsim.answers.document import Document
from gemmsim.device import Device

DEVICE_NUMBERS = (
    ("sms", ""),
    ("clock_hz", "Hz"),
    ("fp32_lanes_per_sm", ""),
    ("schedulers_per_sm", ""),
    ("fp32_flop_per_s", "FLOP/s"),
    ("published_fp32_flop_per_s", "FLOP/s"),
    ("dram_bytes_per_s", "B/s"),
    ("dram_bytes", "B"),
    ("l2_bytes_per_s", "B/s"),
    ("l2_bytes", "B"),
)
"""The numbers of a device that the model reads, or that check them, and their units."""


def source_of(found: Device, name: str) -> str:
    """Where a number of the device is from; "not given" where a file of one's own does not say."""
    computed = {
        "fp32_lanes_per_sm": found.capability.source,
        "schedulers_per_sm": found.capability.source,
        "fp32_flop_per_s": "computed: 2 x sms x fp32_lanes_per_sm x clock_hz",
        "l2_bytes_per_s": found.l2_bytes_per_s_source,
    }
    return computed.get(name) or found.sources.get(name, "not given")


def devices(found: Sequence[Device]) -> Document:
    """The document of `devices`."""
    return {"devices": [device(each) for each in found]}


def device(found: Device) -> Document:
    """One GPU: its numbers, and in `sources` where each is from."""
    document = {"name": found.name, "title": found.title, "capability": found.capability.name}
    return document | {
        **{name: getattr(found, name) for name, _ in DEVICE_NUMBERS},
        "sources": {name: source_of(found, name) for name in ("capability", *(name for name, _ in DEVICE_NUMBERS))},
        "notes": dict(found.notes),
    }
