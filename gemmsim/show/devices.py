"""GPUs: their numbers, and where each is from."""

from __future__ import annotations

from collections.abc import Sequence

from gemmsim.answers.devices import DEVICE_NUMBERS, source_of
from gemmsim.console import line, table
from gemmsim.device import Device
from gemmsim.units import count, si


def devices(found: Sequence[Device]) -> None:
    """All devices, one line each."""
    table(
        "",
        ("name", "cc", "SMs", "clock [MHz]", "FP32 [TFLOP/s]", "DRAM [GB/s]", "L2 [GB/s]", "L2 [MiB]"),
        (
            (
                each.name,
                each.capability.name,
                count(each.sms),
                f"{each.clock_hz / 1e6:.0f}",
                f"{each.fp32_flop_per_s / 1e12:.1f}",
                f"{each.dram_bytes_per_s / 1e9:.0f}",
                f"{'~' if each.l2_is_inherited else ''}{each.l2_bytes_per_s / 1e9:.0f}",
                f"{each.l2_bytes / 2**20:.3g}",
            )
            for each in found
        ),
    )
    line("\n~ scaled from the nearest GPU that was measured; `gemmsim devices NAME` names every source")


def device(found: Device) -> None:
    """One device: every number, and below them where each is from."""
    line(f"{found.title} ({found.name})")
    sources: dict[str, int] = {}

    def row(name: str, value: str) -> tuple[str, str, str]:
        source = source_of(found, name) + (f"; {found.notes[name]}" if name in found.notes else "")
        return name, value, f"[{sources.setdefault(source, len(sources) + 1)}]"

    numbers = [(name, unit, getattr(found, name)) for name, unit in DEVICE_NUMBERS]
    rows = [row(name, _quantity(value, unit)) for name, unit, value in numbers if value is not None]
    table("", ("", "value", "source"), [row("capability", found.capability.name), *rows])
    line("")
    for source, number in sources.items():
        line(f"[{number}] {source}", indent="    ")


def _quantity(value: float, unit: str) -> str:
    """MiB where it is whole: caches are made in powers of two, memory is sold in GB."""
    if unit == "B" and value % 2**20 == 0:
        return f"{count(value / 2**20)} MiB"
    return si(value, unit) if unit else count(value)
