"""What a GPU was measured to do: latencies, rates and the cost of launches, each number with its source.

`gemmsim calibrate` measures them and writes a file; those of shipped GPUs lie in `data/calibration/`. What a GPU has no
number of its own for is taken, number by number, from the nearest that has one: another GPU of its compute capability,
what was published of that (`data/calibration/architectures.toml`), then of the same generation, then of any, scaled by
multiprocessors and clocks where physics says how. Where nobody measured, the datasheet's peak stands in for a rate.
Nothing here was fitted to the time of a GEMM.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from os import PathLike
from typing import Any

import numpy as np

from gemmsim.banks import PASS_BYTES
from gemmsim.calibration_files import CalibrationFile, Entry, read_calibration_file, read_tables
from gemmsim.device import DATA, Device, capability, device, devices
from gemmsim.errors import InputError, require, unknown

FOLDER = DATA / "calibration"
PUBLISHED = FOLDER / "architectures.toml"
BARRIER_WARPS = (4, 8, 16, 32)
WIDTHS_BITS = (32, 64, 128)
COMPANIONS = {
    "l2_latency_far_cycles": "l2_latency_near_cycles",
    "l2_latency_spread_cycles": "l2_latency_near_cycles",
}
"""Numbers that are taken from where another is from: an L2 has two halves, or it has not."""


@dataclass(frozen=True)
class Calibration:
    """What one GPU was measured to do; None where nobody knows. Cycles are those of a multiprocessor (SM).

    clock_hz                     the SMs' clock under load
    ffma_per_cycle_per_sm        FFMA of all lanes, operands that wait for no register port
    ffma_latency_cycles          from an FFMA to the next that needs it
    shared_load_latency_*        the same of a load, lanes at neighbouring addresses: 1, 2 and 4 wavefronts
    shared_bytes_per_cycle       128-bit loads without conflicts, of one SM
    l1_latency_cycles            a load of one address that hits L1
    l1_bytes_per_cycle           128-bit loads that hit, of one SM
    l2_latency_near_cycles       a load past L1 that hits a small working set; mean over addresses and SMs
    l2_latency_far_cycles        the same in 70 % of L2, more than either half holds, where L2 has two
    l2_latency_spread_cycles     slowest less fastest SM, of the near one
    l2_bytes_per_s               all SMs reading 40 % of L2, each another place
    l2_far_bytes_per_s           the same of 70 %
    l2_same_lines_bytes_per_s    all SMs reading the same addresses at about the same time
    l2_write_bytes_per_s         all SMs writing 40 % of L2
    l2_bytes_per_cycle_per_sm    one SM alone reading
    l2_write_bytes_per_cycle_per_sm   one SM alone writing
    dram_latency_cycles          a load that misses L2
    cold_latency_cycles          the same line after line, other data having been written over L2, which it must write
                                 back first
    cold_slowest_cycles          the slowest of 64 such loads, of neighbouring lines, by a block that waits for all
    cold_rows_slowest_cycles     the same of loads that go each along a row of its own
    l2_slowest_cycles            the same of loads anywhere in L2 that hit it
    code_line_cycles             128 bytes of code that run for the first time, the same done before
    dram_bytes_per_s             reads of memory by all SMs; dram_write_bytes_per_s writes
    barrier_*_warps_cycles       from one __syncthreads to the next, by warps of the block
    launch_s                     an empty kernel as events measure it
    launch_overhead_s            what events measure beyond the time of a kernel's blocks
    block_start_cycles           of an SM for each block of an endless row of empty ones
    block_turnover_cycles        from the end of a block to the start of the next in its place
    copy_latency_cycles          an asynchronous copy from L2 to shared memory, until it has been waited for
    atomic_latency_cycles        an atomic addition in L2 whose result is used

    `own` says whether this GPU itself was calibrated, `inherited` which numbers are not its own all the same, `sources`
    where each is from. Raises InputError for numbers out of range, and for an L2 that is faster far than near.
    """

    device: str
    own: bool = False
    clock_hz: float | None = None
    ffma_per_cycle_per_sm: float | None = None
    ffma_latency_cycles: float | None = None
    shared_load_latency_32_bit_cycles: float | None = None
    shared_load_latency_64_bit_cycles: float | None = None
    shared_load_latency_128_bit_cycles: float | None = None
    shared_bytes_per_cycle: float | None = None
    l1_latency_cycles: float | None = None
    l1_bytes_per_cycle: float | None = None
    l2_latency_near_cycles: float | None = None
    l2_latency_far_cycles: float | None = None
    l2_latency_spread_cycles: float | None = None
    l2_bytes_per_s: float | None = None
    l2_far_bytes_per_s: float | None = None
    l2_same_lines_bytes_per_s: float | None = None
    l2_write_bytes_per_s: float | None = None
    l2_bytes_per_cycle_per_sm: float | None = None
    l2_write_bytes_per_cycle_per_sm: float | None = None
    dram_latency_cycles: float | None = None
    cold_latency_cycles: float | None = None
    cold_slowest_cycles: float | None = None
    cold_rows_slowest_cycles: float | None = None
    l2_slowest_cycles: float | None = None
    code_line_cycles: float | None = None
    dram_bytes_per_s: float | None = None
    dram_write_bytes_per_s: float | None = None
    barrier_4_warps_cycles: float | None = None
    barrier_8_warps_cycles: float | None = None
    barrier_16_warps_cycles: float | None = None
    barrier_32_warps_cycles: float | None = None
    launch_s: float | None = None
    launch_overhead_s: float | None = None
    block_start_cycles: float | None = None
    block_turnover_cycles: float | None = None
    copy_latency_cycles: float | None = None
    atomic_latency_cycles: float | None = None
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    inherited: tuple[str, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, value in self.numbers.items():
            least, most, unit = range_of(name)
            require(
                least <= value <= most,
                "{name} must not be {value:.9g}; allowed: {least:.15g} to {most:.15g} {unit}",
                name=name, value=value, least=least, most=most, unit=unit,
            )  # fmt: skip
        near, far = self.l2_latency_near_cycles, self.l2_latency_far_cycles
        require(
            near is None or far is None or far >= 0.9 * near,
            "l2_latency_far_cycles {far} is less than l2_latency_near_cycles {near}", far=far, near=near,
        )  # fmt: skip

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers that are known, by name."""
        return {name: getattr(self, name) for name in NAMES if getattr(self, name) is not None}

    def shared_load_latency_cycles(self, width_bits: int) -> float | None:
        """The latency of a shared load of 32, 64 or 128 bits a lane; InputError for other widths."""
        require(width_bits in WIDTHS_BITS, "{w} bits; allowed: 32, 64, 128", w=width_bits)
        found: float | None = getattr(self, f"shared_load_latency_{width_bits}_bit_cycles")
        return found

    def barrier_cycles(self, warps: Any) -> Any:
        """Cycles from one barrier to the next for blocks of so many warps, a number or an array.

        Linear between 4, 8, 16 and 32 warps, constant below; None where one of these is not known.
        """
        known = [getattr(self, f"barrier_{count}_warps_cycles") for count in BARRIER_WARPS]
        return None if None in known else np.interp(warps, BARRIER_WARPS, known)[()]


NAMES = tuple(
    name for name in Calibration.__dataclass_fields__ if name not in ("device", "own", "sources", "inherited")
)


def range_of(name: str) -> tuple[float, float, str]:
    """(least, most, unit) of a number: wide enough for any GPU, too narrow for a wrong unit."""
    if name == "l2_latency_spread_cycles":
        return (0, 2000, "cycles")
    for ending, found in RANGES.items():
        if name.endswith(ending):
            return found
    raise KeyError(name)


RANGES = {
    "_hz": (1e8, 1e11, "Hz"),
    "_bytes_per_s": (1e9, 1e16, "bytes/s"),
    "_bytes_per_cycle": (1, 1024, "bytes a cycle"),
    "ffma_per_cycle_per_sm": (1, 1024, "FFMA a cycle"),
    "_bytes_per_cycle_per_sm": (1, 1024, "bytes a cycle"),
    "_cycles": (1, 20_000, "cycles"),
    "_s": (1e-8, 1e-2, "s"),
}


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
