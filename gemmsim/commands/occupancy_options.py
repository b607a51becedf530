"""What `gemmsim occupancy` is asked: a block, the GPU that it is for, and perhaps a launch of it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

from gemmsim import register_table
from gemmsim.analytic.launch_waves import LARGEST_LAUNCH
from gemmsim.device import Capability, Device, capability
from gemmsim.errors import InputError, short
from gemmsim.occupancy.batch import amount, carveout_percent
from gemmsim.occupancy.cliffs import Block
from gemmsim.options import add_launch, configuration, device_of, path_text, problem_of, whole
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid, parse_extents

AMOUNTS: dict[str, int | None] = {
    "threads": None,
    "registers": None,
    "static_shared": 0,
    "dynamic_shared": 0,
    "barriers": 1,
}
"""Options that say what a block takes, and what they are where they are not given; None: they must be."""
OF_A_KERNEL = ("threads", "static_shared", "dynamic_shared")
"""Those of them that a kernel of the family brings itself."""
FOR_A_KERNEL = ("thread", "vector", "pad_a", "pad_b", "stages", "warp", "swizzle")
"""Options that mean nothing without one."""
ADDED = ("blocks_per_sm", "warps_per_sm", "occupancy", "limiters")
"""The columns that a batch adds to its file."""


def add_occupancy(parser: argparse.ArgumentParser) -> None:
    """What a block takes, by itself, in a file, or as a kernel of the family."""
    add_launch(parser)
    add = parser.add_argument_group("block").add_argument
    add("--threads", metavar="T", help="threads of a block")
    add("--registers", metavar="R", help="registers of a thread; with --kernel instead of those of the table")
    add("--static-shared", metavar="S", help="bytes of static shared memory of a block (default: 0)")
    add("--dynamic-shared", metavar="D", help="bytes of dynamic shared memory of a block (default: 0)")
    add("--carveout", metavar="PCT", help="shared memory preferred, 0 to 100 percent (default: default, the most)")
    add("--barriers", metavar="B", help="barriers of a block; they count from compute capability 9.0 on (default: 1)")
    add(
        "--no-opt-in",
        action="store_true",
        help="a launch that does not ask for more than 48 KB of dynamic shared memory, so gets no more",
    )
    add = parser.add_argument_group("GPU").add_argument
    add("--cc", metavar="CC", help="compute capability, such as 9.0 or sm_90")
    add("--device", metavar="NAME|FILE.toml", help="a GPU instead, as `gemmsim devices` lists them (default: h200)")
    add = parser.add_argument_group("launch, for its waves: M [N K] with --tile BMxBN or --kernel K, or").add_argument
    add("--blocks", metavar="N", help="blocks of the launch; --split-k S cuts k, so that there are S times as many")
    add("--sms", metavar="N", help="multiprocessors (default: those of the device)")
    add = parser.add_argument_group("files").add_argument
    add(
        "--batch",
        type=path_text,
        metavar="FILE.csv",
        help="a case a row, plain or .gz, with the columns cc, threads_per_block, regs_per_thread, static_smem,"
        " dynamic_smem, carveout (default, or 0 to 100) and if need be barriers, others being kept; printed is the"
        f" same file with the columns {', '.join(ADDED)}, or with --json one document of results in order",
    )
    add(
        "--picture",
        type=path_text,
        metavar="FILE",
        help="draw it against registers, shared memory, block; .png or .svg",
    )


@dataclass(frozen=True)
class Asked:
    """What is asked about.

    `source` says where the registers are from, `spill_bytes` what did not fit into them, where the table knows;
    `tiles` are the blocks of the launch before k is cut, `problem` is where sizes are given.
    """

    capability: Capability
    device: Device | None
    block: Block
    source: str
    spill_bytes: int | None
    kernel: str | None
    tiles: int | None
    sms: int | None
    slices: int
    problem: Problem | None

    @property
    def where(self) -> str:
        """The GPU, or its compute capability alone."""
        return self.device.title if self.device else f"compute capability {self.capability.name}"


def asked_of(args: argparse.Namespace) -> Asked:
    """The block, GPU and launch that the options describe; InputError where they do not say enough, or clash."""
    on, chip = _gpu(args)
    problem = problem_of(args.sizes, args.dtype) if args.sizes else None
    amounts = {name: amount(text, option(name)) for name in AMOUNTS if (text := getattr(args, name)) is not None}
    if args.kernel is None:
        source, spill_bytes, kernel, tiles = "given", None, None, _tiles(args, problem)
    else:
        source, spill_bytes, kernel, tiles = _of_kernel(args, chip, amounts)
    if args.blocks is not None:
        if problem:
            raise InputError(f"--blocks {short(args.blocks)} and sizes are two launches; give one")
        tiles = whole(args.blocks, "--blocks", most=LARGEST_LAUNCH)
    sms = whole(args.sms, "--sms") if args.sms is not None else on.sms if on else None
    if sms is None:
        if args.blocks is not None or (args.kernel is None and tiles is not None):
            raise InputError("waves need multiprocessors, which --cc does not have; give --sms N, or --device")
        tiles = None
    carveout = None if args.carveout is None else carveout_percent(args.carveout, "--carveout")
    taken = {_field(name): _required(amounts, name) for name in AMOUNTS}
    slices = 1 if args.split_k is None else whole(args.split_k, "--split-k")
    block = Block(**taken, carveout=carveout, opt_in=not args.no_opt_in)
    return Asked(chip, on, block, source, spill_bytes, kernel, tiles, sms, slices, problem)


def _gpu(args: argparse.Namespace) -> tuple[Device | None, Capability]:
    """(the device, none where --cc says of what capability alone; the capability)."""
    if args.cc is None:
        on = device_of("h200" if args.device is None else args.device)
        return on, on.capability
    if args.device is not None:
        raise InputError(f"--cc {short(args.cc)} and --device {short(args.device)} are two GPUs; give one")
    return None, capability(args.cc)


def _of_kernel(args: argparse.Namespace, chip: Capability, amounts: dict[str, int]) -> tuple[str, int | None, str, int]:
    """(source of the registers, bytes spilled, kernel and tiling, blocks) of --kernel; what its blocks take goes into
    `amounts`."""
    for name in OF_A_KERNEL:
        if name in amounts:
            raise InputError(f"--kernel {args.kernel} brings its own {name}; {option(name)} goes without it")
    # k is cut here, not by the kernel; and tiles that the device cannot hold are an answer
    asked = configuration(argparse.Namespace(**vars(args) | {"split_k": None, "device": None}))
    launch = asked.kernel, asked.problem, asked.tiling, chip
    given, known = amounts.get("registers"), register_table.compiled(*launch)
    taken = register_table.resources(*launch, given)
    amounts["threads"], amounts["registers"] = taken.threads, taken.registers_per_thread
    amounts["dynamic_shared"] = taken.shared_bytes
    described = f"{asked.kernel.name} {asked.kernel.describe(asked.tiling)}"
    blocks = grid(asked.problem, asked.tiling).blocks
    if given is not None:
        return "given", None, described, blocks
    return taken.source, known.spill_bytes if known else None, described, blocks


def option(name: str) -> str:
    """As the command line writes it."""
    return f"--{name.replace('_', '-')}"


def _field(name: str) -> str:
    """The field of a block that an option sets."""
    return f"{name}_bytes" if name.endswith("_shared") else name


def _required(amounts: dict[str, int], name: str) -> Any:
    value = amounts.get(name, AMOUNTS[name])
    if value is None:
        raise InputError(f"{option(name)} is missing; needed: --threads and --registers, or --kernel, or --batch")
    return value


def _tiles(args: argparse.Namespace, problem: Problem | None) -> int | None:
    """Tiles of C of the sizes that are given, if they are."""
    for name in FOR_A_KERNEL:
        if getattr(args, name, None) is not None:
            raise InputError(f"{option(name)} is of a kernel; give --kernel too, or leave it out")
    if (problem is None) != (args.tile is None):
        lacks = "--tile BMxBN is missing: it cuts sizes" if problem else "sizes are missing: --tile cuts them"
        raise InputError(f"{lacks} into the blocks of a launch")
    if problem is None:
        return None
    text = args.tile.lower()
    block = parse_extents(text, ("bm", "bn", "bk") if text.count("x") == 2 else ("bm", "bn"), "--tile")
    # how threads divide a tile does not matter here: one takes it whole
    tiling = Tiling(block["bm"], block["bn"], thread_m=block["bm"], thread_n=block["bn"])
    return int(grid(problem, tiling).blocks)
