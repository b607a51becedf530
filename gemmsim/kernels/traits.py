"""What tells kernels apart, and what follows from that: legal tilings, access widths, launch and resources.

A kernel is described by the few traits that tell the rungs of the ladder apart. Every formula of the
model reads these traits; none asks for a kernel's name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.kernels.launches import REGISTER_BYTES, Launch, Resources, Widths
from gemmsim.kernels.registers import estimated_registers
from gemmsim.kernels.rules import (
    NEUTRAL,
    all_at_once,
    alternating_rules,
    launch_rules,
    neutral_rules,
    offsets_fit,
    spread_rules,
    stage_rules,
    swizzle_rules,
    tiles_fit,
    traversal_rules,
    vector_rules,
    warp_rules,
)
from gemmsim.kernels.source_files import headers, sources
from gemmsim.problem import Count, Problem, common_power
from gemmsim.rules import Rule, check
from gemmsim.tiling import FIELDS, Tiling, grid

MACROS = ("block_m", "block_n", "block_k", "thread_m", "thread_n", "pad_a", "pad_b", "swizzle", "traversal")
"""The fields that every source reads, whether its kernel has them or not."""
UNSAID = ("traversal", "spread")
"""Fields that are not written down where they are 0: they came when points had been measured, whose keys stay."""


@dataclass(frozen=True)
class Kernel:
    """One rung of the ladder.

    staged            tiles of A and B pass through shared memory
    thread_tiled      a thread computes thread_m x thread_n elements, not one
    transposed        the tile of A lies transposed in shared memory
    prefetches        the next tile, and the next fragment, travel while the present one is multiplied
    warp_tiled        a warp computes a tile of its own, lanes along both of its axes (`gemmsim.accesses.warp_tiles`)
    copies            tiles travel by asynchronous copies past the registers, into a ring of `stages`: rows and columns
                      beyond a matrix are read as its last, and as many tiles as are fetched ahead are fetched past k
    least_capability  the first compute capability that has what it takes, "" for any
    options           what its tilings have beyond the block and thread tile, with defaults
    default_tile      a good tiling for large problems on any GPU, where nothing is asked for
    """

    name: str
    summary: str
    staged: bool = True
    thread_tiled: bool = True
    transposed: bool = False
    prefetches: bool = False
    warp_tiled: bool = False
    copies: bool = False
    least_capability: str = ""
    options: tuple[tuple[str, int], ...] = ()
    default_tile: tuple[tuple[str, int], ...] = ()

    @property
    def source(self) -> Path:
        """The CUDA source, in `kernels/`."""
        return sources() / f"{self.name}.cu"

    @property
    def files(self) -> tuple[Path, ...]:
        """The source, then the headers that it includes, and those that they include, by name."""
        return (self.source, *headers(self.source))

    @property
    def stages(self) -> int:
        """Tiles held in shared memory at once, where a tiling does not choose."""
        return 2 if self.prefetches else 1

    @cached_property
    def fields(self) -> tuple[str, ...]:
        """The names that a tiling of this kernel has."""
        block = ("block_m", "block_n") + (("block_k",) if self.staged else ())
        thread = ("thread_m", "thread_n") if self.thread_tiled else ()
        warp = ("warp_m", "warp_n") if self.warp_tiled else ()
        return block + warp + thread + tuple(name for name, _ in self.options)

    def tiling(self, **values: Any) -> Tiling:
        """The tiling with these values and the kernel's defaults for the rest.

        An unstaged kernel has a default block too. Raises InputError for a field that the kernel does not
        have, a missing one, and for whatever `Tiling` and the kernel's own rules refuse.
        """
        given = {name: value for name, value in values.items() if value is not None}
        for name in given:
            if name not in self.fields and not (name == "stages" and self.staged):
                if name in NEUTRAL and np.all(given[name] == NEUTRAL[name]):
                    continue  # saying that nothing is done is no demand
                raise InputError(f"kernel {self.name} has no {name}; it has: {', '.join(self.fields)}")
        if not self.staged:
            given = {**dict(self.default_tile), **given}
        for name in self.fields[: len(self.fields) - len(self.options)]:
            if name not in given:
                raise InputError(f"kernel {self.name} needs {name}; its tilings have: {', '.join(self.fields)}")
        known = {name: value for name, value in given.items() if name in FIELDS}
        tiling = Tiling(**{"stages": self.stages, **dict(self.options), **known})
        self.check(tiling)
        return tiling

    def check(self, tiling: Tiling, device: Device | None = None, problem: Problem | None = None) -> None:
        """Raise InputError unless this kernel takes `tiling` and `problem`, and `device` can launch it.

        The message names the numbers that clash and what is allowed.
        """
        if problem is not None and problem.dtype != "fp32":
            raise InputError(f"dtype {problem.dtype} has no kernels; allowed: fp32")
        check(self.rules, tiling)
        if device is not None:
            self.check_gpu(tiling, device.name, device.capability.name, device.sms)
            check(self.device_rules(device), tiling)
        if problem is not None:
            check(self.problem_rules(problem), tiling)

    def runs_on(self, capability: str) -> bool:
        """Whether GPUs of a compute capability, such as "8.0", have what the kernel takes."""
        return not self.least_capability or _version(capability) >= _version(self.least_capability)

    def check_gpu(self, tiling: Tiling, name: str, capability: str, sms: int) -> None:
        """Raise InputError unless a GPU has what the kernel takes, and room for all blocks that wait for each other."""
        if not self.runs_on(capability):
            raise InputError(
                f"kernel {self.name} needs compute capability {self.least_capability}; {name} has {capability}"
            )
        check((all_at_once(name, sms),), tiling)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """What its tilings must obey on any device, beyond `gemmsim.tiling.TILING_RULES`."""
        rules = [*stage_rules(self.name, self.stages, "stages" in self.fields), *neutral_rules(self.name, self.fields)]
        if self.warp_tiled:
            rules += warp_rules()
        elif self.prefetches:
            rules += alternating_rules(self.name)
        if "vector" in self.fields:
            rules += vector_rules()
        if "swizzle" in self.fields:
            rules += swizzle_rules()
        if "traversal" in self.fields:
            rules += traversal_rules()
        if "spread" in self.fields:
            rules += spread_rules()
        return tuple(rules)

    def device_rules(self, device: Device) -> Iterator[Rule]:
        """What a device holds: the tiles, in shared memory that a launch may ask for, and blocks that wait."""
        if self.staged:
            yield tiles_fit(self.shared_bytes, device.name, device.capability.shared_bytes_per_block_optin)
        yield all_at_once(device.name, device.sms)

    def problem_rules(self, problem: Problem) -> Iterator[Rule]:
        """What the sizes of a problem leave."""
        if self.copies:
            for size, tile in (("k", "block_m"), ("n", "block_k")):
                yield offsets_fit(self.name, size, getattr(problem, size), tile)

    def launch_rules(self, problem: Problem) -> Iterator[Rule]:
        """What a launch takes: so many blocks, and partial sums."""
        return launch_rules(problem, "split_k" in self.fields)

    def pitches(self, tiling: Tiling) -> tuple[Count, Count]:
        """Elements from one row of the shared tile of A (transposed or not), and of B, to the next."""
        a = tiling.block_m if self.transposed else tiling.block_k
        return a + tiling.pad_a, tiling.block_n + tiling.pad_b

    def start_b(self, tiling: Tiling) -> Count:
        """Elements of the shared tile of A with its padding: the tile of B starts behind them."""
        return (tiling.block_k if self.transposed else tiling.block_m) * self.pitches(tiling)[0]

    def shared_bytes(self, tiling: Tiling) -> Count:
        """Shared memory of a block: `stages` tiles of A and of B with their padding, of FP32."""
        if not self.staged:
            return 0 * tiling.block_m
        return 4 * tiling.stages * (self.start_b(tiling) + tiling.block_k * self.pitches(tiling)[1])

    def widths(self, problem: Problem, tiling: Tiling) -> Widths:
        """Elements of each access.

        An operand is read from global memory `vector` elements at a time where its leading dimension
        is a multiple of `vector`, else one by one; C likewise. From shared memory a thread reads runs
        of neighbours: along k for A (along m where transposed), along n for B. Kernels with the option
        `vector` read these at its width; the others at the widest of 4, 2 and 1 that divides the run,
        the pitch, and where the tile of B starts behind that of A. Kernels with warp tiles move the matrices at
        the widest of 4, 2 and 1 that divides the leading dimension and the tile, but asynchronous copies
        transpose A one by one.
        """

        def where_aligned(leading: Count) -> Count:
            return 1 + (leading % tiling.vector == 0) * (tiling.vector - 1)

        if self.warp_tiled:
            pitch_a, pitch_b = self.pitches(tiling)
            return Widths(
                1 if self.copies else _widest(problem.k, tiling.block_k),
                _widest(problem.n, tiling.block_n, pitch_b),
                _widest(problem.n, tiling.thread_n),
                _widest(tiling.thread_m, pitch_a),
                _widest(tiling.thread_n, pitch_b),
            )
        if "vector" in self.fields:
            shared = (tiling.vector, tiling.vector)
        elif self.staged:
            pitch_a, pitch_b = self.pitches(tiling)
            shared = (
                _widest(tiling.block_k, pitch_a),
                _widest(tiling.thread_n, pitch_b, self.start_b(tiling)),
            )
        else:
            shared = (1, 1)
        return Widths(
            where_aligned(problem.k), where_aligned(problem.n), where_aligned(problem.n), shared[0], shared[1]
        )

    def launch(self, problem: Problem, tiling: Tiling) -> Launch:
        """The launch of one problem in one tiling (whole numbers, no arrays).

        Raises InputError when the kernel does not take the tiling or the dtype, or the grid has more blocks
        than a launch takes.
        """
        self.check(tiling, problem=problem)
        check(self.launch_rules(problem), tiling)
        blocks, shared_bytes = grid(problem, tiling).blocks, self.shared_bytes(tiling)
        return Launch(blocks, tiling.threads, shared_bytes, self.macros(problem, tiling))

    def macros(self, problem: Problem, tiling: Tiling) -> dict[str, Count]:
        """What the source is compiled with."""
        widths = self.widths(problem, tiling)
        names = [name for name in FIELDS if name in MACROS or (name in self.fields and name != "vector")]
        macros = {name.upper(): getattr(tiling, name) for name in names}
        macros |= {"VECTOR_A": widths.global_a, "VECTOR_B": widths.global_b, "VECTOR_C": widths.global_c}
        macros |= {"READ_A": widths.shared_a, "READ_B": widths.shared_b}
        if "split_k" in self.fields:  # nothing is shared where k is whole
            macros["TILES"] = 1 + (tiling.split_k > 1) * (grid(problem, tiling).tiles - 1)
        return macros

    def resources(
        self, problem: Problem, tiling: Tiling, registers_per_thread: Count | None = None, local_bytes: Count = 0
    ) -> Resources:
        """What one block takes; registers and local memory of a thread are the compiler's where given, or estimated."""
        if registers_per_thread is None:
            return self.estimated(tiling, self.widths(problem, tiling))
        shared_bytes, words = self.shared_bytes(tiling), local_bytes // REGISTER_BYTES
        return Resources(tiling.threads, registers_per_thread, shared_bytes, "compiler", words)

    def estimated(self, tiling: Tiling, widths: Widths) -> Resources:
        """What one block takes by the estimate of `gemmsim.kernels.registers`."""
        registers, spilled = estimated_registers(self, tiling, widths)
        return Resources(tiling.threads, registers, self.shared_bytes(tiling), "estimate", spilled)

    def describe(self, tiling: Tiling) -> str:
        """The tiling as far as the kernel has it, so that no two of its tilings read the same."""
        text = "x".join(str(getattr(tiling, name)) for name in self.fields if name.startswith("block_"))
        if self.thread_tiled:
            text += f"/{tiling.thread_m}x{tiling.thread_n}"
        if self.warp_tiled:
            text += f" warp={tiling.warp_m}x{tiling.warp_n}"
        return text + "".join(
            f" {name}={getattr(tiling, name)}" for name, default in self.options if getattr(tiling, name) != default
        )

    def tiling_dict(self, tiling: Tiling) -> dict[str, int]:
        """The tiling as records and JSON have it: the fields of this kernel, no others, without those UNSAID that are
        0."""
        values = {name: int(getattr(tiling, name)) for name in self.fields}
        return {name: value for name, value in values.items() if value or name not in UNSAID}


def _version(capability: str) -> tuple[int, ...]:
    return tuple(map(int, capability.split(".")))


def _widest(*multiples: Count) -> Count:
    """The widest of 4, 2 and 1 elements that divides them all: keeps every access aligned."""
    return common_power(4, *multiples)
