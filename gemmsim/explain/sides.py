"""One of two configurations that are compared, and its options as the command line names them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gemmsim.explain.decomposition import Decomposition, explain
from gemmsim.kernels import Kernel
from gemmsim.occupancy import Occupancy
from gemmsim.predict import Prediction
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling
from gemmsim.traffic import Traffic, traffic

GROUPS = (("--tile", "block_"), ("--thread", "thread_"), ("--warp", "warp_"))
"""Options that set several fields of a tiling, and how the names of these begin."""


@dataclass(frozen=True)
class Side:
    """One of the two. `given_registers` are a thread's, where they were given rather than looked up or estimated;
    `measured_s` is the median time that a record has of it on this device."""

    prediction: Prediction
    given_registers: int | None = None
    measured_s: float | None = None

    @property
    def problem(self) -> Problem:
        """What is multiplied."""
        return self.prediction.problem

    @property
    def kernel(self) -> Kernel:
        """The kernel that multiplies."""
        return self.prediction.kernel

    @property
    def tiling(self) -> Tiling:
        """How it cuts the work."""
        return self.prediction.tiling

    @property
    def time_s(self) -> float:
        """The predicted time; infinite where it does not launch."""
        return float(self.prediction.time_s)

    @cached_property
    def traffic(self) -> Traffic:
        """Everything counted of the launch."""
        return traffic(self.problem, self.kernel, self.tiling)

    @cached_property
    def decomposition(self) -> Decomposition:
        """The launch taken apart, its bank conflicts with their reasons."""
        registers = self.prediction.resources.registers_per_thread
        return explain(self.problem, self.kernel, self.tiling, int(registers))

    @cached_property
    def counts(self) -> dict[str, int]:
        """Counts of the whole launch: reads by level, then what hardware counts, then bank conflicts."""
        counted = self.traffic
        levels = {f"{level.removesuffix('_memory')}_reads": count for level, count in vars(counted.reads).items()}
        excess = {
            "shared_load_excess": counted.shared_load.excess,
            "shared_store_excess": counted.shared_store.excess,
        }
        return levels | counted.counters | excess

    @cached_property
    def residence(self) -> dict[str, float]:
        """What a block takes, and how many find room."""
        resources, resident = self.prediction.resources, self.prediction.occupancy
        return {
            "blocks": self.decomposition.blocks,
            "threads_per_block": int(resources.threads),
            "registers_per_thread": int(resources.registers_per_thread),
            "shared_bytes": int(resources.shared_bytes),
            "blocks_per_sm": int(resident.blocks_per_sm),
            "warps_per_sm": int(resident.warps_per_sm),
            "occupancy": float(resident.occupancy),
            "waves": float(self.prediction.waves),
        }

    @property
    def resident(self) -> Occupancy:
        """What fits on a multiprocessor."""
        return self.prediction.occupancy


def texts_of(a: Side, b: Side) -> dict[str, tuple[str, str]]:
    """{option: (A's, B's)} of the sizes, the kernel, every option that either has, and registers that were given."""
    sides = (a, b)

    def pair(texts: Iterator[str]) -> tuple[str, str]:
        first, second = texts
        return first, second

    found = {
        "sizes": pair(f"{s.problem.m}x{s.problem.n}x{s.problem.k}" for s in sides),
        "--kernel": pair(s.kernel.name for s in sides),
    }
    for option in dict.fromkeys(option_of(name) for s in sides for name in s.kernel.tiling_dict(s.tiling)):
        found[option] = pair(text_of(s, option) for s in sides)
    if None not in (a.given_registers, b.given_registers):
        found["--registers"] = pair(str(s.given_registers) for s in sides)
    return found


def option_of(field: str) -> str:
    """The option of the command line that sets a field of a tiling, such as "--tile" for block_m."""
    for option, prefix in GROUPS:
        if field.startswith(prefix):
            return option
    return f"--{field.replace('_', '-')}"


def text_of(side: Side, option: str) -> str:
    """What an option is set to, as the command line writes it; "-" where the kernel has no such option."""
    said = side.kernel.tiling_dict(side.tiling)
    values = [str(said[name]) for name in side.kernel.fields if option_of(name) == option and name in said]
    return "x".join(values) or "-"


def changes(slower: Side, faster: Side) -> Iterator[tuple[str, tuple[str, str], dict[str, Any]]]:
    """(option, its texts, what a launch of the slower one is with it) of each option that could be taken over alone.

    A kernel brings along the options that it alone has.
    """
    values = {name: getattr(slower.tiling, name) for name in slower.kernel.fields}
    for option, texts in texts_of(slower, faster).items():
        if texts[0] == texts[1]:
            continue
        if option == "sizes":
            yield option, texts, {"problem": faster.problem, "values": values}
        elif option == "--kernel":
            brought = {name: values.get(name, getattr(faster.tiling, name)) for name in faster.kernel.fields}
            yield option, texts, {"kernel": faster.kernel, "values": brought}
        elif option == "--registers":
            yield option, texts, {"registers": faster.given_registers, "values": values}
        elif "-" not in texts:
            taken = {name: getattr(faster.tiling, name) for name in values if option_of(name) == option}
            yield option, texts, {"values": values | taken}
