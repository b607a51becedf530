"""From the words of a command line to the nouns of the model, each refusal in one clear line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gemmsim.device import Device, device
from gemmsim.errors import InputError, short
from gemmsim.kernels import KERNELS, MOST_REGISTERS, Kernel, kernel
from gemmsim.problem import LARGEST_SIZE, Problem, nearest_whole, whole_number
from gemmsim.routes import ROUTES
from gemmsim.tiling import LARGEST_TILE, RANGES, Tiling, parse_extents


def path_text(text: str) -> str:
    """The text of a path, refused where the system would take it for the current folder, or for nothing."""
    if not text.strip() or "\0" in text:
        raise argparse.ArgumentTypeError(f"{short(text)} is no path; allowed: the name of a file or folder")
    return text


def add_problem(parser: argparse.ArgumentParser) -> None:
    """The sizes, none of them required here, so that what is missing is said below; and the type."""
    parser.add_argument("sizes", nargs="*", metavar="M [N K]", help="A is m x k, B is k x n; one number means a cube")
    parser.add_argument("--dtype", default="fp32", metavar="T", help="element type (default: fp32)")


def add_launch(parser: argparse.ArgumentParser) -> None:
    """The options that describe one launch; again, none is required here."""
    add_problem(parser)
    add_tiling(parser)


def add_tiling(parser: argparse.ArgumentParser) -> None:
    """The kernel and its tiling."""
    parser.add_argument("--kernel", metavar="K", help=f"one of {', '.join(KERNELS)}")
    add = parser.add_argument_group("tiling").add_argument
    add(
        "--tile",
        metavar="BMxBNxBK",
        help="tile of a block (naive: BMxBN); if left out, the kernel's default tile, with the padding that suits it",
    )
    add("--thread", metavar="RMxRN", help="results of a thread; 8x8 if left out")
    add("--vector", metavar="V", help="elements of the widest access: 1, 2 or 4")
    add(
        "--pad-a",
        metavar="P",
        help="unused elements at the end of a row of the shared tile of A; if left out, the default tile's, and 0 with"
        " --tile",
    )
    add("--pad-b", metavar="P", help="the same of B")
    add("--swizzle", metavar="S", help="swizzle of the shared tiles: a power of two up to 16; 0, none, if left out")
    add(
        "--stages",
        metavar="S",
        help="tiles held in shared memory at once; only async has a choice",
    )
    add("--warp", metavar="WMxWN", help="tile of a warp, 32 thread tiles (warp_tiled, async)")
    add("--split-k", metavar="P", help="blocks that share the k dimension of a tile of C (async); 1 if left out")
    add(
        "--group",
        metavar="G",
        help="rows of tiles that blocks go down before they go on along n (async); if left out, the default tile's",
    )
    add(
        "--traversal",
        metavar="R",
        help="rows of the thread tile that are multiplied together, there and back; the kernel's own order if left out;"
        " compiled code differs, closed forms do not",
    )
    add(
        "--spread",
        metavar="G",
        help="groups in which the copies of a tile are issued (async); 0, at once, if left out; closed forms tell no"
        " difference",
    )


def add_device(parser: argparse.ArgumentParser) -> None:
    """The GPU that a model speaks of."""
    parser.add_argument(
        "--device",
        default="h200",
        metavar="NAME|FILE.toml",
        help="GPU, as `gemmsim devices` lists them (default: h200)",
    )


def add_run(parser: argparse.ArgumentParser) -> None:
    """What a GPU is to run besides, and how."""
    add = parser.add_argument
    add(
        "--points",
        type=path_text,
        metavar="FILE.jsonl",
        help="points to run instead of one, each a JSON object on a line",
    )
    add(
        "--out", type=path_text, metavar="RECORDS.jsonl", help="append every record to this file as soon as it is there"
    )
    add("--resume", action="store_true", help="take from that file what is done already")
    add("--counters", action="store_true", help="count with Nsight Compute as well")
    add("--no-flush", action="store_true", help="leave in the L2 cache what the launch before left")
    add("--workers", metavar="N", help="share the points among N processes, the i-th with the i-th GPU (needs Dask)")
    add("--scheduler", metavar="ADDRESS", help="share them among the workers of a Dask scheduler: tcp://HOST:8786")
    add("--device", metavar="NAME|FILE.toml", help="what the GPU here is, where its own name does not say")


def add_registers(parser: argparse.ArgumentParser) -> None:
    """Where the registers of a thread are from, if not from the estimate."""
    add = parser.add_argument
    add("--registers", metavar="R", help="registers a thread as a compiler gave them, instead of the estimate")
    add("--compile", action="store_true", help="compile the kernel (needs nvcc, no GPU) and take its registers")


def add_route(parser: argparse.ArgumentParser) -> None:
    """By which route times are predicted."""
    parser.add_argument(
        "--route",
        default="auto",
        metavar="ROUTE",
        help=f"{', '.join(ROUTES)}: the program of a warp simulated, closed forms, or the weighed mean of both; auto"
        " (the default) is both where there is a program",
    )


def add_records(parser: argparse.ArgumentParser) -> None:
    """The records to read, and those of which GPU."""
    parser.add_argument(
        "records",
        nargs="?",
        type=path_text,
        metavar="RECORDS.jsonl",
        help="records to read (default: the shipped ones)",
    )
    parser.add_argument("--device", metavar="NAME|FILE.toml", help="the GPU whose records count, if there are several")


def add_edges(parser: argparse.ArgumentParser) -> None:
    """Whether to speak of kernels that guard less."""
    parser.add_argument(
        "--edges", action="store_true", help="say what the same tiling would do in kernels that guard less"
    )


def add_measured(parser: argparse.ArgumentParser) -> None:
    """Where measured times are from."""
    parser.add_argument(
        "--records",
        type=path_text,
        metavar="RECORDS.jsonl",
        help="where measured times are from (default: the shipped records)",
    )


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Where to write."""
    parser.add_argument(
        "--out", required=True, type=path_text, metavar="DIR", help="folder to write into; made if it is not there"
    )


def add_name(parser: argparse.ArgumentParser) -> None:
    """One GPU."""
    parser.add_argument(
        "name", nargs="?", metavar="NAME|FILE.toml", help="one GPU, each of its numbers with its source"
    )


@dataclass(frozen=True)
class Configuration:
    """One launch as it was asked for.

    `defaults` are the options that were not given, as they were filled in; `unpadded` the paddings of the
    kernel's default tile that were not, because a tile was given, such as {"pad_a": 4}.
    """

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    device: Device
    defaults: tuple[str, ...]
    unpadded: Mapping[str, int] = field(default_factory=dict)


def configuration(args: argparse.Namespace) -> Configuration:
    """The launch that the options describe; where no device is asked for, the default one.

    Raises InputError where one of them is unusable, the kernel does not take the tiling, or the device
    that was asked for cannot hold its tiles.
    """
    problem = problem_of(args.sizes, args.dtype)
    chosen = kernel_of(args.kernel)
    on = device() if args.device is None else device_of(args.device)
    tiling, defaults, unpadded = tiling_of(chosen, args)
    chosen.check(tiling, None if args.device is None else on)
    chosen.launch(problem, tiling)
    return Configuration(problem, chosen, tiling, on, defaults, unpadded)


def problem_of(sizes: Sequence[str], dtype: str) -> Problem:
    """The problem of `M [N K]`; one number means a cube."""
    if not sizes:
        raise InputError("sizes are missing; give M, or M N K")
    if len(sizes) not in (1, 3):
        raise InputError(f"sizes {' '.join(map(short, sizes[:4]))}: {len(sizes)} numbers; allowed: M, or M N K")
    m, n, k = (whole(text, name) for text, name in zip([*sizes] * (3 // len(sizes)), "mnk", strict=True))
    return Problem(m, n, k, dtype)


def kernel_of(name: str | None) -> Kernel:
    """The kernel of that name; InputError when none is given, or an unknown one."""
    if name is None:
        raise InputError(f"--kernel is missing; known: {', '.join(KERNELS)}")
    return kernel(name)


def device_of(name: str) -> Device:
    """The GPU of that name or file, as `gemmsim.device.device`; InputError for a file of another kind."""
    if re.search(r"[/\\]|\.[a-z]\w*$", name, re.IGNORECASE) and not name.lower().endswith(".toml"):
        raise InputError(f"{name}: a device file ends in .toml")
    return device(name)


def tiling_of(of: Kernel, args: argparse.Namespace) -> tuple[Tiling, tuple[str, ...], dict[str, int]]:
    """(tiling, defaults that took part, paddings that did not) from --tile, --thread and the options beyond.

    Padding belongs to the default tile: where a tile is given, it is dropped.
    """
    values: dict[str, int] = {}
    if args.tile is not None:
        text = args.tile.lower()
        names = ("bm", "bn", "bk") if of.staged or text.count("x") == 2 else ("bm", "bn")
        values |= _renamed(parse_extents(text, names, "--tile"), "b", "block_")
    if args.thread is not None:
        values |= _renamed(parse_extents(args.thread.lower(), ("rm", "rn"), "--thread"), "r", "thread_")
    if args.warp is not None:
        values |= _renamed(parse_extents(args.warp.lower(), ("wm", "wn"), "--warp"), "w", "warp_")
    for name in ("stages", "vector", "pad_a", "pad_b", "swizzle", "split_k", "group", "traversal", "spread"):
        text = getattr(args, name)
        if text is not None:
            values[name] = whole(text, f"--{name.replace('_', '-')}", *RANGES.get(name, (1, LARGEST_TILE)))
    left_out = {name: value for name, value in of.default_tile if name not in values}
    unpadded = {name: value for name, value in left_out.items() if args.tile is not None and name.startswith("pad_")}
    filled = {name: value for name, value in left_out.items() if name not in unpadded}
    return of.tiling(**filled, **values), _as_options(filled), unpadded


def registers_of(args: argparse.Namespace) -> int | None:
    """The registers a thread that --registers gives, if it does; InputError together with --compile."""
    if args.registers is None:
        return None
    if args.compile:
        raise InputError(f"--registers {args.registers} and --compile are two answers to one question; give one")
    return whole(args.registers, "--registers", 1, MOST_REGISTERS)


def whole(text: str, name: str, least: int = 1, most: int = LARGEST_SIZE) -> int:
    """The whole number that `text` writes; InputError, with the nearest that is allowed, if it is none."""
    if re.fullmatch(r"[+-]?[0-9]{1,30}", text):
        return int(whole_number(int(text), name, least, most))
    try:
        near = float(text)
    except ValueError:
        near = float("nan")
    raise InputError(f"{name} {short(text)} is not a whole number; {nearest_whole(near, least, most)}")


def _renamed(extents: dict[str, int], old: str, new: str) -> dict[str, int]:
    return {new + name.removeprefix(old): value for name, value in extents.items()}


def _as_options(filled: dict[str, int]) -> tuple[str, ...]:
    """The options that would have given these values, such as "--tile 128x128x8"."""
    options = []
    for option, prefix in (
        ("--tile", "block_"), ("--warp", "warp_"), ("--thread", "thread_"), ("--pad-a", "pad_a"), ("--pad-b", "pad_b"),
        ("--group", "group"),
    ):  # fmt: skip
        extents = [str(value) for name, value in filled.items() if name.startswith(prefix)]
        if extents:
            options.append(f"{option} {'x'.join(extents)}")
    return tuple(options)
