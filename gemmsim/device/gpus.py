"""One frozen row for each GPU, every number with its source, and the files that hold them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

from gemmsim.device.limits import DATA, Capability, capability, read_toml
from gemmsim.errors import InputError, require, short, unknown, visible

PEAK_TOLERANCE = 0.03
"""How far a published FP32 peak may lie from sms, lanes and clock before a file must say why."""


@dataclass(frozen=True)
class Device:
    """One GPU. Rates are per second and for the whole GPU; `clock_hz` is the boost clock.

    `dram_bytes` and `measured_l2_bytes_per_s` are None where no figure is known. `sources` says for
    each field where its number is from, `notes` what to know about it. `published_fp32_flop_per_s`
    takes part in nothing; it checks the other numbers. Raises InputError for values out of range,
    and for a published peak over 3 % off the computed one without a note that says why.
    """

    name: str
    title: str
    capability: Capability
    sms: int
    clock_hz: float
    dram_bytes_per_s: float
    l2_bytes: int
    dram_bytes: int | None = None
    measured_l2_bytes_per_s: float | None = None
    published_fp32_flop_per_s: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    notes: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for key, (least, most, unit) in RANGES.items():
            value = getattr(self, key)
            if value is not None or key not in OPTIONAL:
                object.__setattr__(self, key, _quantity(value, key, least, most, unit))
        published = self.published_fp32_flop_per_s
        if published is not None and "published_fp32_flop_per_s" not in self.notes:
            require(
                abs(published / self.fp32_flop_per_s - 1) <= PEAK_TOLERANCE,
                "published_fp32_flop_per_s {published:.4g} is not within {tolerance:.0%} of the {computed:.4g} that"
                " {sms} SMs of {lanes} lanes make at {clock:.4g} Hz; correct one of them or add a note",
                published=published, tolerance=PEAK_TOLERANCE, computed=self.fp32_flop_per_s,
                sms=self.sms, lanes=self.fp32_lanes_per_sm, clock=self.clock_hz,
            )  # fmt: skip

    @property
    def fp32_lanes_per_sm(self) -> int:
        """FFMA that one SM starts in a clock."""
        return self.capability.fp32_lanes_per_sm

    @property
    def schedulers_per_sm(self) -> int:
        """Warp schedulers of one SM, one a sub-partition; each issues one warp instruction a clock."""
        return self.capability.sub_partitions

    @property
    def fp32_flop_per_s(self) -> float:
        """Peak of FP32 arithmetic; an FMA is two FLOP."""
        return 2 * self.sms * self.fp32_lanes_per_sm * self.clock_hz

    @property
    def l2_is_inherited(self) -> bool:
        """Whether the L2 rate is another GPU's, scaled by SMs and clock."""
        return self.measured_l2_bytes_per_s is None

    @property
    def l2_bytes_per_s(self) -> float:
        """Read rate of L2: as measured on this GPU, else the capability's reference scaled by SMs and clock."""
        if self.measured_l2_bytes_per_s is not None:
            return self.measured_l2_bytes_per_s
        return self.capability.l2_reference.bytes_per_clock_per_sm * self.sms * self.clock_hz

    @property
    def l2_bytes_per_clock(self) -> float:
        """Bytes that the whole GPU reads from L2 in one clock."""
        return self.l2_bytes_per_s / self.clock_hz

    @property
    def l2_bytes_per_s_source(self) -> str:
        """Where `l2_bytes_per_s` is from, and from which GPU if it is inherited."""
        if not self.l2_is_inherited:
            return self.sources.get("measured_l2_bytes_per_s", "not given")
        lender = self.capability.l2_reference
        return (
            f"inherited: {lender.bytes_per_clock_per_sm:.1f} bytes per clock and SM of the {lender.title}"
            f" (compute capability {lender.capability}), {lender.source}"
        )


RANGES: Mapping[str, tuple[float, float, str]] = {
    "sms": (1, 4096, ""),
    "clock_hz": (1e8, 1e11, "Hz"),
    "dram_bytes_per_s": (1e9, 1e15, "bytes/s"),
    "l2_bytes": (1024, 2**40, "bytes"),
    "dram_bytes": (10**6, 2**50, "bytes"),
    "measured_l2_bytes_per_s": (1e9, 1e16, "bytes/s"),
    "published_fp32_flop_per_s": (1e9, 1e18, "FLOP/s"),
}
"""Least and most of each number of a device, wide enough for any GPU, too narrow for a wrong unit."""
WHOLE = ("sms", "l2_bytes", "dram_bytes")
OPTIONAL = ("dram_bytes", "measured_l2_bytes_per_s", "published_fp32_flop_per_s")
REQUIRED = ("capability", *(key for key in RANGES if key not in OPTIONAL))


def _quantity(value: Any, key: str, least: float, most: float, unit: str) -> Any:
    """`value` within its range, an int for what is counted and a float for the rest; else InputError."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and least <= value <= most and (key not in WHOLE or value == int(value))):
        kind = "whole numbers" if key in WHOLE else "numbers"
        allowed = f"allowed: {kind} from {least:.15g} to {most:.15g} {unit}".rstrip()
        if number and value == value:
            near = min(max(value, least), most)
            allowed += f"; nearest: {round(near) if key in WHOLE else near:.15g}"
        raise InputError(f"{key} must not be {short(value)}; {allowed}")
    return int(value) if key in WHOLE else float(value)


def device(name: str | PathLike[str] = "h200") -> Device:
    """The GPU of that name, or of a TOML file if `name` is a path or ends so.

    Case, spaces, hyphens and underscores do not matter; the driver's name ("NVIDIA H200") will do.
    Raises InputError with the nearest names if there is none.
    """
    if isinstance(name, PathLike):
        return load_device(name)
    if not isinstance(name, str):
        raise InputError(f"device {short(name)} is neither a name nor a path; known: {', '.join(devices())}")
    if name.lower().endswith(".toml"):
        return load_device(name)
    wanted = _key(name)
    for known in devices():
        if _key(known) == wanted:
            return _shipped(known)
    for known in devices():
        if _key(_shipped(known).title) == wanted:
            return _shipped(known)
    raise unknown("device", name, devices())


@cache
def devices() -> tuple[str, ...]:
    """Names of the GPUs known, in alphabetical order."""
    return tuple(sorted(path.stem for path in (DATA / "devices").glob("*.toml")))


@cache
def _shipped(name: str) -> Device:
    return load_device(DATA / "devices" / f"{name}.toml")


def _key(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).lower()


def load_device(path: str | PathLike[str]) -> Device:
    """The GPU that a TOML file describes, in the form of those in `data/devices`.

    A number stands as `[sms]` with `value`, `source` and perhaps `note`, or bare as `sms = 132`. The
    name defaults to the file's, the title to the name. Raises InputError, naming file and key.
    """
    path = Path(path)
    table = read_toml(path)
    try:
        return _device(table, path.stem)
    except InputError as error:
        raise InputError(f"device file {path}: {error}") from None


def _device(table: Mapping[str, Any], default_name: str) -> Device:
    known = [item.name for item in fields(Device) if item.name not in ("sources", "notes")]
    parts: dict[str, dict[str, Any]] = {"value": {}, "source": {}, "note": {}}
    for key, entry in table.items():
        if key not in known:
            raise unknown("key", key, known)
        entry = entry if isinstance(entry, dict) else {"value": entry}
        if "value" not in entry:
            raise InputError(f"{key} has no value; needed: {key} = ..., or value = ... in [{key}]")
        for part, content in entry.items():
            if part not in parts:
                raise unknown("key", f"{key}.{part}", (f"{key}.{each}" for each in parts))
            parts[part][key] = content if part == "value" else _text(content, f"{key}.{part}")
    values = parts["value"]
    for key in REQUIRED:
        if key not in values:
            raise InputError(f"{key} is missing; needed: {', '.join(REQUIRED)}")
    name = _text(values.pop("name", default_name), "name")
    title = _text(values.pop("title", name), "title")
    found = capability(values.pop("capability"))
    return Device(name=name, title=title, capability=found, sources=parts["source"], notes=parts["note"], **values)


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InputError(f"{key} must be a text that is not empty, not {short(value)}")
    return visible(value)
