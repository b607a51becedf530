"""gemmsim rearrange: the FFMA of a compiled main loop in a better order, proved, and written into a cubin."""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gemmsim.commands.command import Answer, Document
from gemmsim.compare.loop_shares import residents
from gemmsim.errors import InputError, Warn, unknown
from gemmsim.kernels import KERNELS
from gemmsim.machine_code.cubin import CubinFile, parse_cubin, read_cubin
from gemmsim.machine_code.listings import function_named
from gemmsim.machine_code.sass import Function
from gemmsim.main_loops.sub_core import Residents
from gemmsim.options import Configuration, add_device, add_launch, configuration, path_text
from gemmsim.rearrange.decode import VERIFIED, with_words
from gemmsim.rearrange.gain import Gain, gain
from gemmsim.rearrange.optimise import Rearranged, rearranged
from gemmsim.rearrange.shapes import compatible
from gemmsim.rearrange.verify import objection
from gemmsim.rearrange.verify_names import objection_to_names
from gemmsim.units import count, percent, si
from gemmsim.whole_files import check_whole, write_whole

if TYPE_CHECKING:
    from gemmsim.gpu.cubin_pair import Compared

DEFAULT_SIZES = ["4096"]
"""The problem of a kernel where none is given: it decides how wide its accesses are."""


@dataclass(frozen=True)
class Asked:
    """The cubin to rearrange, its function, who runs it; and the launch, where a kernel was named."""

    where: str
    image: CubinFile
    function: Function
    residents: Residents | None
    launch: Configuration | None = None
    registers_per_thread: int = 0


@dataclass(frozen=True)
class Done:
    """What was found, what it is worth, why it is not proved if so, what the GPU said, and where it was written."""

    asked: Asked
    found: Rearranged
    gain: Gain | None
    objection: str | None
    compared: Sequence[Compared]
    out: str | None

    @property
    def ok(self) -> bool:
        """Whether it is proved, and gave the same bits wherever it ran."""
        return self.objection is None and all(each.identical for each in self.compared)

    @property
    def speedup(self) -> float:
        """The predicted time before over that after: of the launch where it is known, else of the main loop."""
        return self.gain.speedup if self.gain else self.found.speedup


def add_rearrange(parser: argparse.ArgumentParser) -> None:
    """What to rearrange, and where to write it."""
    add = parser.add_argument
    add("what", type=path_text, metavar="KERNEL|CUBIN", help=f"one of {', '.join(KERNELS)}, or a compiled file")
    add_launch(parser)
    add_device(parser)
    add("--function", metavar="NAME", help="function of the cubin, where there are several")
    add("--out", type=path_text, metavar="CUBIN", help="where to write it")
    add("--dry-run", action="store_true", help="say what it would bring, and write nothing")
    add("--rename", action="store_true", help="give registers of the whole function other names too")
    add("--verify", action="store_true", help="run both on the GPU here: same bits at ten shapes, times of both")


def run_rearrange(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim rearrange"""
    if args.out is None and not args.dry_run:
        raise InputError("--out CUBIN is missing: where to write it; --dry-run writes nothing")
    if args.out is not None:
        check_whole(Path(args.out))
    asked = _asked(args)
    if args.verify:
        from gemmsim.gpu.cubin_pair import require_gpu

        if asked.launch is None:
            raise InputError(f"--verify launches a kernel, so give its name and tiling instead of {asked.where}")
        require_gpu()
    done = _done(asked, args)
    if args.rename and done.found.under_old_names is None:
        warn("registers keep their names: no others that the search finds save cycles")
    if not done.found.changed and not args.dry_run:
        cycles = done.found.cost_before.running
        warn(f"not written, because {asked.where} is as good as the search finds: {cycles:.3f} cycles per FFMA")
    elif done.objection:
        warn(f"not written, because it is not proved to compute the same: {done.objection}")
    elif not done.ok:
        warn("not written, because its results are others: " + _first_difference(done.compared))
    elif any(each.speedup < 1 for each in done.compared):
        warn("the same bits, but slower on this GPU than as compiled")
    return Answer(
        lambda: document(done), lambda show: show_done(done), done.ok and (done.out is not None or args.dry_run)
    )


def _asked(args: argparse.Namespace) -> Asked:
    if args.kernel is not None:
        raise InputError(f"--kernel {args.kernel}: the kernel is the first word of this command; drop the option")
    if args.what in KERNELS:
        return _of_kernel(args)
    if not re.search(r"[/\\.]", args.what) and not Path(args.what).exists():
        raise unknown("kernel", args.what, KERNELS)
    if args.sizes:
        raise InputError(f"{args.what} is a compiled file, which has no sizes; drop {' '.join(args.sizes[:3])}")
    from gemmsim.gpu.disassemble import disassembled

    image = read_cubin(args.what)
    _check_arch(image.arch, args.what)
    function = function_named(disassembled(image.image, args.what), args.function, args.what)
    return Asked(args.what, image, function, None)


def _of_kernel(args: argparse.Namespace) -> Asked:
    """The kernel, compiled."""
    from gemmsim.gpu.compile import compile_kernel
    from gemmsim.gpu.disassemble import disassembled

    args.kernel, args.sizes = args.what, args.sizes or DEFAULT_SIZES
    launch = configuration(args)
    _check_arch(launch.device.capability.sm, launch.device.name)
    on = launch.device.capability
    cubin = compile_kernel(launch.kernel, launch.kernel.launch(launch.problem, launch.tiling), on)
    image = parse_cubin(cubin.path.read_bytes(), args.what)
    (function,) = disassembled(image.image, args.what)
    registers = cubin.registers_per_thread
    on_core = residents(launch.kernel, launch.problem, launch.tiling, on, registers)
    return Asked(args.what, image, function, on_core, launch, registers)


def _check_arch(arch: str, where: str) -> None:
    if arch not in VERIFIED:
        raise InputError(f"{where} is for {arch}, whose rules are not verified; allowed: {', '.join(VERIFIED)}")


def _done(asked: Asked, args: argparse.Namespace) -> Done:
    from gemmsim.console import progress

    with progress() as tell:
        found = rearranged(asked.function, asked.residents, tell=_every_tenth(tell), rename=args.rename)
    on = asked.launch
    worth = gain(found, on.problem, on.kernel, on.tiling, on.device, asked.registers_per_thread) if on else None
    image = asked.image.patched(found.words, asked.function.name).image
    reason = _objection(asked, found, image) if found.changed else None
    results = _compared(asked, image) if args.verify and found.changed and reason is None else ()
    done = Done(asked, found, worth, reason, results, None if args.dry_run else args.out)
    if not done.ok or not found.changed or args.dry_run:
        return Done(asked, found, worth, reason, results, None)
    write_whole(image, Path(args.out))
    return done


def _objection(asked: Asked, found: Rearranged, image: bytes) -> str | None:
    """Why the order is not proved under the compiler's names, or the names of what would be written, disassembled."""
    reason = objection(asked.function, found.ordered.words)
    if reason or found.under_old_names is None:
        return reason
    from gemmsim.gpu.disassemble import disassembled

    after = function_named(disassembled(image, asked.where), asked.function.name, asked.where)
    return objection_to_names(with_words(asked.function, found.ordered.words), after)


def _every_tenth(tell: Callable[[str, int, int], None]) -> Callable[[int, int], None]:
    """What tells of a tenth of the search at a time."""
    return lambda done, of: tell("searched", done, of) if done % max(1, of // 10) == 0 else None


def _compared(asked: Asked, image: bytes) -> Sequence[Compared]:
    """Both cubins at ten shapes, and timed at the problem that was asked for."""
    from gemmsim.console import progress
    from gemmsim.gpu.cubin_pair import Request, compared
    from gemmsim.records import Point

    launch = asked.launch
    assert launch is not None
    with tempfile.TemporaryDirectory(prefix="gemmsim-") as folder, progress() as tell:
        before, after = Path(folder) / "before.cubin", Path(folder) / "after.cubin"
        before.write_bytes(asked.image.image)
        after.write_bytes(image)
        problems = compatible(launch.kernel, launch.problem, launch.tiling)
        points = [Point(problem, launch.kernel.name, launch.tiling) for problem in (*problems, launch.problem)]
        requests = [Request(point, str(before), str(after), timed=point is points[-1]) for point in points]
        return compared(requests, lambda done: tell("launches", done, len(requests)))


def _first_difference(results: Sequence[Compared]) -> str:
    first = next(each for each in results if not each.identical)
    return f"{first.request.point}: {first.failure or f'{first.different} elements differ'}"


def document(done: Done) -> Document:
    """The JSON document."""
    found, before, after = done.found, done.found.cost_before, done.found.cost_after
    return {
        "source": done.asked.where,
        "function": done.asked.function.name,
        "arch": done.asked.function.arch,
        "cycles_per_ffma": {"before": before.running, "after": after.running},
        "ports": {"before": before.ports, "after": after.ports},
        "other_instructions": found.others,
        "waiting": {"before": before.waiting, "after": after.waiting},
        "predicted_speedup": done.speedup,
        "bound_by": done.gain.bound_by if done.gain else None,
        "predicted_s": {"before": done.gain.before_s, "after": done.gain.after_s} if done.gain else None,
        "changed": found.changed,
        "ports_without_renaming": found.ordered.cost_after.ports,
        "proved": done.objection is None,
        "objection": done.objection,
        "records": [_record(each) for each in done.compared],
        "out": done.out,
    }


def _record(each: Compared) -> dict[str, Any]:
    return {
        "point": each.request.point.to_dict(),
        "identical": each.identical,
        "different": each.different,
        "failure": each.failure,
        "before_s": list(each.before_s),
        "after_s": list(each.after_s),
        "environment": each.environment,
    }


def show_done(done: Done) -> None:
    """What it brings, and what bounds the rest, for people."""
    from gemmsim.console import facts, table

    found, before, after = done.found, done.found.cost_before, done.found.cost_after
    named = [
        ("function", f"{done.asked.function.name} ({done.asked.function.arch}) of {done.asked.where}"),
        ("main loop", f"{count(found.before.ffma)} FFMA, {count(len(found.before.instructions))} instructions"),
        ("changed", f"{count(found.changed)} instructions"),
        ("proved", "same values, no hazard" if done.objection is None else f"no: {done.objection}"),
        ("speed", percent(done.speedup - 1, signed=True)),
    ]
    if found.under_old_names:
        ports = found.ordered.cost_after.ports
        named.append(("renaming", f"{ports:.3f} to {after.ports:.3f} cycles for each FFMA at the register ports"))
    if done.gain:
        named.append(("time", f"{si(done.gain.before_s, 's')} to {si(done.gain.after_s, 's')}, predicted"))
        named.append(("bound by", done.gain.bound_by))
    if done.out:
        named.append(("written", done.out))
    facts("Rearranged" if found.changed else "As it was", named)
    rows = [
        ("FFMA themselves", 1.0, 1.0),
        ("issue slots of other instructions", found.others, found.others),
        ("register ports", before.ports - 1 - found.others, after.ports - 1 - found.others),
        ("waiting for loads, barriers and banks", before.waiting, after.waiting),
        ("all", before.running, after.running),
    ]
    table(
        "Cycles of a sub-core for each FFMA",
        ("what for", "before", "after"),
        [(name, f"{one:.3f}", f"{other:.3f}") for name, one, other in rows],
    )
    if done.compared:
        table(
            "On this GPU",
            ("problem", "same bits", "before", "after", "speed"),
            [_shown(each) for each in done.compared],
        )


def _shown(each: Compared) -> tuple[str, ...]:
    same = "yes" if each.identical else each.failure or f"{each.different} differ"
    if not each.after_s:
        return (str(each.request.point.problem), same, "", "", "")
    times = [statistics.median(samples) for samples in (each.before_s, each.after_s)]
    speed = percent(each.speedup - 1, signed=True)
    return (str(each.request.point.problem), same, si(times[0], "s"), si(times[1], "s"), speed)
