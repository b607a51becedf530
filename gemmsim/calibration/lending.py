"""Whose numbers a GPU gets: its own, else the nearest GPU's that has one, scaled, else the datasheet's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from os import PathLike

from gemmsim.banks import PASS_BYTES
from gemmsim.calibration.files import CalibrationFile, Entry, read_calibration_file, read_tables
from gemmsim.calibration.numbers import NAMES, Calibration
from gemmsim.device import DATA, Device, capability, device, devices
from gemmsim.errors import InputError, unknown

FOLDER = DATA / "calibration"
PUBLISHED = FOLDER / "architectures.toml"
COMPANIONS = {
    "l2_latency_far_cycles": "l2_latency_near_cycles",
    "l2_latency_spread_cycles": "l2_latency_near_cycles",
}
"""Numbers that are taken from where another is from: an L2 has two halves, or it has not."""


def calibration(of: Device) -> Calibration:
    """What is known of a GPU: its own numbers where it was calibrated, else inherited ones.

    A device that was made by hand counts as the shipped one of its name only if all of its numbers are the same.
    """
    return _calibration(of, _OWN_COUNT.get())


@cache
def _calibration(of: Device, own_count: bool) -> Calibration:
    return _assembled(of, tuple(each for each in lenders() if own_count or each.device != of))


def load_calibration(path: str | PathLike[str], of: Device) -> Calibration:
    """What a file of `gemmsim calibrate` says of a GPU, the rest inherited. Raises InputError, naming file and key."""
    own = Lender.of_file(of, _checked(read_calibration_file(str(path)), str(path)))
    return _assembled(of, (own, *lenders()))


_OWN_COUNT: ContextVar[bool] = ContextVar("_OWN_COUNT", default=True)


@contextmanager
def as_if_uncalibrated() -> Iterator[None]:
    """Inside, no GPU has numbers of its own, all have those of others: what changes is what a calibration is worth."""
    before = _OWN_COUNT.set(False)
    try:
        yield
    finally:
        _OWN_COUNT.reset(before)


def calibrated() -> tuple[str, ...]:
    """Names of the shipped GPUs that were calibrated."""
    return tuple(each.device.name for each in lenders() if each.device is not None)


@dataclass(frozen=True)
class Lender:
    """A GPU whose numbers are known, measured here (`device`) or published, and what they are scaled by."""

    title: str
    capability: str
    clock_hz: float
    entries: Mapping[str, Entry] = field(hash=False)
    device: Device | None = None

    @classmethod
    def of_file(cls, of: Device, content: CalibrationFile) -> Lender:
        """The lender that a calibration file makes of a GPU."""
        return cls(of.title, of.capability.name, of.clock_hz, content.entries, of)

    def value(self, name: str, default: float = math.nan) -> float:
        """One of its numbers."""
        return self.entries[name].value if name in self.entries else default

    def distance(self, to: Device) -> tuple[bool, bool, float, bool, str]:
        """What orders lenders, the nearest first: the same GPU, generation, capability; measured before published."""
        apart = abs(float(self.capability) - float(to.capability.name))
        generations = self.capability.split(".")[0] != to.capability.name.split(".")[0]
        return (self.device != to, generations, round(apart, 1), self.device is None, self.title)


@cache
def lenders() -> tuple[Lender, ...]:
    """All GPUs of which numbers are known. Raises InputError for files that are unusable."""
    return (*_measured(), *_published())


def _measured() -> Iterator[Lender]:
    for name in devices():
        path = FOLDER / f"{name}.toml"
        if path.is_file():
            yield Lender.of_file(device(name), _checked(read_calibration_file(path), str(path)))


def _published() -> Iterator[Lender]:
    for name, table in read_tables(PUBLISHED).items():
        entries = {key: Entry.from_toml(key, value) for key, value in table.items() if key not in ("gpu", "clock_hz")}
        content = _checked(CalibrationFile(table["gpu"], entries), str(PUBLISHED))
        yield Lender(table["gpu"], capability(name).name, table["clock_hz"], content.entries)


def _checked(content: CalibrationFile, path: str) -> CalibrationFile:
    """The same; InputError where a number is not known or out of range."""
    try:
        for key in content.entries:
            if key not in NAMES:
                raise unknown("key", key, NAMES)
        Calibration(content.device, **{key: entry.value for key, entry in content.entries.items()})  # type: ignore[arg-type]
    except InputError as error:
        raise InputError(f"calibration file {path}: {error}") from None
    return content


def _assembled(of: Device, among: tuple[Lender, ...]) -> Calibration:
    """The calibration of a GPU: each number from the nearest lender that has it, else the datasheet's."""
    values: dict[str, float] = {}
    sources: dict[str, str] = {}
    inherited: list[str] = []
    nearest = sorted((*among, *_of_device_file(of)), key=lambda lender: lender.distance(of))
    peaks = datasheet(of)
    for name in NAMES:
        lender = next((each for each in nearest if COMPANIONS.get(name, name) in each.entries), None)
        if lender is None or name not in lender.entries:
            if name in peaks:
                values[name], sources[name] = peaks[name]
                inherited.append(name)
            continue
        entry = lender.entries[name]
        if lender.device == of:
            values[name], sources[name] = entry.value, entry.source
            continue
        values[name] = scaled(name, entry.value, lender, of, values)
        kind = "inherited from" if lender.device else "published for"
        sources[name] = f"{kind} the {lender.title} (compute capability {lender.capability}): {entry.source}"
        inherited.append(name)
    own = any(lender.device == of for lender in among)
    return Calibration(of.name, own, **values, sources=sources, inherited=tuple(inherited))


def _of_device_file(of: Device) -> tuple[Lender, ...]:
    """What the device file itself says was measured: the rate of L2, as far as the GPU was not calibrated."""
    if of.measured_l2_bytes_per_s is None:
        return ()
    entry = Entry(of.measured_l2_bytes_per_s, of.l2_bytes_per_s_source)
    return (Lender(of.title, of.capability.name, of.clock_hz, {"l2_bytes_per_s": entry}, of),)


def scaled(name: str, value: float, lender: Lender, to: Device, known: Mapping[str, float]) -> float:
    """A lender's number as another GPU would have it; `known` are the numbers of that GPU that stand before it.

    Cycles, and bytes or FFMA a cycle and SM, are the pipeline's and stay; so do times of launches. The rate of L2 goes
    with SMs and clock, and the other rates of L2 with it. Those of memory, and the clock under load, keep their share
    of the datasheet's. Of the latency of memory the part beyond L2 is not clocked by the SMs: it keeps its seconds.
    """
    faster = to.clock_hz / lender.clock_hz
    if name == "dram_latency_cycles":
        in_l2 = lender.value("l2_latency_near_cycles", 0.0)
        return in_l2 + (value - in_l2) * faster
    if name == "clock_hz":
        return value * faster
    if name == "ffma_per_cycle_per_sm":
        return value / capability(lender.capability).fp32_lanes_per_sm * to.fp32_lanes_per_sm
    if not name.endswith("_bytes_per_s"):
        return value
    if lender.device is None:
        raise InputError(f"{name} cannot be lent by the {lender.title}, whose SMs and memory are not known")
    if name.startswith("dram"):
        return value / lender.device.dram_bytes_per_s * to.dram_bytes_per_s
    if name != "l2_bytes_per_s" and "l2_bytes_per_s" in lender.entries:
        return value / lender.value("l2_bytes_per_s") * known["l2_bytes_per_s"]
    return value * faster * to.sms / lender.device.sms


def datasheet(of: Device) -> dict[str, tuple[float, str]]:
    """{name: (value, source)} of what stands in where nothing was measured: ceilings, of rates alone."""
    peak = "not measured; the datasheet's peak"
    return {
        "clock_hz": (of.clock_hz, "not measured; the boost clock"),
        "ffma_per_cycle_per_sm": (float(of.fp32_lanes_per_sm), "not measured; one FFMA a lane"),
        "shared_bytes_per_cycle": (float(PASS_BYTES), "not measured; 32 banks of 4 bytes, CUDA C++ Programming Guide"),
        "l2_bytes_per_s": (of.l2_bytes_per_s, of.l2_bytes_per_s_source),
        "dram_bytes_per_s": (of.dram_bytes_per_s, peak),
        "dram_write_bytes_per_s": (of.dram_bytes_per_s, peak),
    }
