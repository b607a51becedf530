"""`gemmsim banks --kernel K`: every shared access of a kernel, and the layouts of its tiles that cost less."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gemmsim import answers
from gemmsim.accesses.costs import AccessCost, SharedCounts, access_costs, shared_per_tile
from gemmsim.commands.command import Answer, Document
from gemmsim.device import Device, device
from gemmsim.errors import InputError, Warn, short
from gemmsim.explain import MOST_PADDING, conflicts
from gemmsim.kernels import Kernel
from gemmsim.options import add_tiling, device_of, kernel_of, problem_of, tiling_of
from gemmsim.problem import Problem
from gemmsim.search.layouts import LAYOUT, Fixes, Layout, fixes
from gemmsim.tiling import Tiling
from gemmsim.units import count, plural

KERNEL_OPTIONS = (
    "tile", "thread", "vector", "pad_a", "pad_b", "swizzle", "stages", "warp", "split_k", "group", "traversal",
    "spread", "problem", "fix", "compile", "device",
)  # fmt: skip
"""The options that go with --kernel."""


def add_kernel_banks(parser: argparse.ArgumentParser) -> None:
    """The kernel, its tiling, and what to do about its conflicts."""
    add_tiling(parser)
    add = parser.add_argument
    add(
        "--problem",
        metavar="M|MxNxK",
        help="sizes: an operand is read in vectors where its leading dimension is a multiple of them; if left out,"
        " they are",
    )
    add("--fix", action="store_true", help="search paddings and swizzles against the conflicts of stores and loads")
    add("--compile", action="store_true", help="compile what --fix finds (needs nvcc, no GPU) and take its registers")
    add("--device", metavar="NAME|FILE.toml", help="the GPU that has to hold the tiles (default: h200)")


@dataclass(frozen=True)
class Asked:
    """The kernel as it was asked for; `sizes` says of which problems the answer speaks."""

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    device: Device
    defaults: tuple[str, ...]
    unpadded: Mapping[str, int]
    sizes: str

    @property
    def costs(self) -> tuple[AccessCost, ...]:
        """What a block pays for each shared access in one tile of k."""
        widths = self.kernel.widths(self.problem, self.tiling)
        return access_costs(self.kernel, self.tiling, widths, self.problem.element_bytes)

    @property
    def total(self) -> SharedCounts:
        """All of that together."""
        widths = self.kernel.widths(self.problem, self.tiling)
        loads, stores = shared_per_tile(self.kernel, self.tiling, widths, self.problem.element_bytes)
        return loads + stores


def run_kernel_banks(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim banks --kernel K"""
    asked = _asked(args)
    if args.compile and not args.fix:
        raise InputError("--compile takes the registers of what --fix finds; give both")
    found = _fixes(asked, args.compile, warn) if args.fix else None
    return Answer(lambda: document(asked, found), lambda _: show_kernel(asked, found))


def _asked(args: argparse.Namespace) -> Asked:
    kernel = kernel_of(args.kernel)
    tiling, defaults, unpadded = tiling_of(kernel, args)
    if args.problem is None:
        problem = Problem(tiling.block_m, tiling.block_n, tiling.block_k)
        sizes = _assumed(kernel, problem, tiling)
    else:
        problem = _problem(args.problem)
        sizes = f"at m x n x k = {problem}"
    on = device() if args.device is None else device_of(args.device)
    kernel.check(tiling, None if args.device is None else on, problem)
    return Asked(problem, kernel, tiling, on, defaults, unpadded, sizes)


def _problem(text: str) -> Problem:
    """The problem of --problem."""
    if re.fullmatch(r"[0-9]+(x[0-9]+x[0-9]+)?", text.lower()):
        return problem_of(text.lower().split("x"), "fp32")
    raise InputError(f"--problem {short(text)} is not of the form M or MxNxK, such as 4096 or 2048x1920x2304")


def _assumed(kernel: Kernel, problem: Problem, tiling: Tiling) -> str:
    """The sizes that are like those of one whole tile: those at which the accesses are as wide."""
    widths = kernel.widths(problem, tiling)
    needed = {axis: width for axis, width in (("n", widths.global_b), ("k", widths.global_a)) if width > 1}
    if not needed:
        return "at all sizes"
    if len(set(needed.values())) < len(needed):
        return f"at all sizes with n and k multiples of {widths.global_a}"
    return "at all sizes with " + " and ".join(f"{axis} a multiple of {width}" for axis, width in needed.items())


def _fixes(asked: Asked, compiles: bool, warn: Warn) -> Fixes:
    def registers_of(tiling: Tiling) -> int | None:
        from gemmsim.gpu.compile import compile_kernel

        launch = asked.kernel.launch(asked.problem, tiling)
        cubin = compile_kernel(asked.kernel, launch, asked.device.capability)
        if cubin.spill_bytes:
            layout = ", ".join(f"{name} {value}" for name, value in _layout(asked.kernel, tiling).items())
            warn(f"{layout}: the compiler spills {cubin.spill_bytes} bytes a thread to local memory")
        return cubin.registers_per_thread

    what = (asked.problem, asked.kernel, asked.tiling, asked.device)
    return fixes(*what, registers_of) if compiles else fixes(*what)


def document(asked: Asked, found: Fixes | None) -> Document:
    """The JSON document; what costs something is counted for one block and tile of k."""
    reasons = conflicts(asked.problem, asked.kernel, asked.tiling)
    answer = answers.launch(asked.problem, asked.kernel, asked.tiling) | {
        "defaults": asked.defaults,
        "sizes": asked.sizes,
        **_counts(asked.total),
        "accesses": [answers.access(cost) | {"reason": reasons.get(cost.name)} for cost in asked.costs],
    }
    if found is None:
        return answer
    return answer | {
        "device": asked.device.name,
        "baseline": layout_document(asked.kernel, found.baseline),
        "fixes": [layout_document(asked.kernel, each) for each in found.better],
        "padding_clears": found.padding_clears,
        "swizzle_clears": found.swizzle_clears,
        "least_excess": {"padding": found.least_excess_padded, "swizzle": found.least_excess_swizzled},
        "verdict": verdict(asked.kernel, found),
        "tried": found.tried,
    }


def layout_document(kernel: Kernel, layout: Layout) -> Document:
    """One layout: what a block pays for it in one tile of k, and what it takes."""
    return _layout(kernel, layout.tiling) | {
        **_counts(layout.both),
        "stores": _counts(layout.stores),
        "loads": _counts(layout.loads),
        "shared_bytes": layout.resources.shared_bytes,
        "registers_per_thread": answers.registers(layout.resources),
        "blocks_per_sm": layout.resident.blocks_per_sm,
        "occupancy": layout.resident.occupancy,
        "limiters": layout.resident.limiters,
    }


def _layout(kernel: Kernel, tiling: Tiling) -> dict[str, int]:
    """Where its tiles lie, as far as the kernel has a choice."""
    return {name: int(getattr(tiling, name)) for name in LAYOUT if name in kernel.fields}


def _counts(of: SharedCounts) -> Document:
    return {"wavefronts": of.wavefronts, "ideal_wavefronts": of.ideal_wavefronts, "excess": of.excess}


def verdict(kernel: Kernel, found: Fixes) -> str:
    """What can be done, in a sentence or two."""
    if not kernel.staged:
        return f"kernel {kernel.name} has no shared memory"
    if not found.baseline.both.excess:
        return "no access has bank conflicts, so there is nothing to fix"
    if found.padding_clears:
        return "padding alone clears the stores and the loads"
    padding = (
        f"no padding up to {MOST_PADDING - 1} clears both the stores and the loads: the best leaves"
        f" {count(found.least_excess_padded)} of {count(found.baseline.both.excess)} excess wavefronts"
    )
    if found.swizzle_clears:
        return f"{padding}; a swizzle clears both"
    if found.least_excess_swizzled is not None:
        return f"{padding}; nor does any swizzle, which leaves at least {count(found.least_excess_swizzled)}"
    if "swizzle" in kernel.fields:
        return f"{padding}; a swizzle needs block_m and block_n in multiples of 32"
    return f"{padding}; kernel {kernel.name} has no swizzle"


def show_kernel(asked: Asked, found: Fixes | None) -> None:
    """The accesses and the reasons of their conflicts; what --fix found."""
    from gemmsim.console import facts, line, table

    line(f"{asked.kernel.name} {asked.kernel.describe(asked.tiling)}, {asked.sizes}")
    if asked.defaults:
        line(f"by default: {' '.join(asked.defaults)}")
    for name, elements in asked.unpadded.items():
        line(f"{name} 0; the default tile has {elements}")
    if not asked.kernel.staged:
        line(f"kernel {asked.kernel.name} has no shared memory")
        return
    table(
        "Shared memory: one block, one tile of k (excess: bank conflicts)",
        ("access", "op", "width [bit]", "requests", "wavefronts", "ideal", "excess"),
        (
            *((cost.name, cost.op, count(cost.width_bits), *_row(cost)) for cost in asked.costs),
            ("all", "", "", *_row(asked.total)),
        ),
        text=(0, 1),
    )
    reasons = conflicts(asked.problem, asked.kernel, asked.tiling)
    if reasons:
        facts("Where the bank conflicts are from", reasons.items())
    if found is not None:
        show_fixes(asked, found)
    elif asked.total.excess:
        line("\n--fix searches paddings and swizzles against them")


def show_fixes(asked: Asked, found: Fixes) -> None:
    """The layouts that cost less, best first, below the present one, and what they take on the device."""
    from gemmsim.console import line, table

    names = list(_layout(asked.kernel, asked.tiling))
    if found.better:
        table(
            f"Better layouts, best first (excess of stores, of loads; blocks an SM, {asked.device.name})",
            ("", *names, "wavefronts", "stores", "loads", "bytes", "regs", "blocks"),
            _rows(asked.kernel, found),
        )
    line(f"\n{plural(found.tried, 'layout')} tried: {verdict(asked.kernel, found)}")
    if found.better and any(each.resources.source == "estimate" for each in (found.baseline, *found.better)):
        line("~ an estimate of the registers; --compile makes them, and so the blocks, exact")


def _rows(kernel: Kernel, found: Fixes) -> Iterator[tuple[str, ...]]:
    for name, layout in [("now", found.baseline), *((str(at), each) for at, each in enumerate(found.better, 1))]:
        yield (
            name,
            *(count(value) for value in _layout(kernel, layout.tiling).values()),
            *map(count, (layout.both.wavefronts, layout.stores.excess, layout.loads.excess)),
            count(layout.resources.shared_bytes),
            f"{'~' if layout.resources.source == 'estimate' else ''}{layout.resources.registers_per_thread}",
            count(layout.resident.blocks_per_sm),
        )


def _row(cost: SharedCounts) -> tuple[str, ...]:
    return tuple(map(count, (cost.requests, cost.wavefronts, cost.ideal_wavefronts, cost.excess)))
