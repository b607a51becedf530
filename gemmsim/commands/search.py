"""`gemmsim search`: every legal configuration ranked, what matters around the first, and the first ones measured."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gemmsim.commands.command import Answer, Document
from gemmsim.commands.pictures import picture_path, write_picture
from gemmsim.errors import InputError, Warn
from gemmsim.kernels import KERNELS, Kernel
from gemmsim.kernels import kernel as kernel_named
from gemmsim.measure import measure
from gemmsim.options import add_device, add_problem, device_of, path_text, problem_of, whole
from gemmsim.record_files import check_writable
from gemmsim.records import Point, Record
from gemmsim.search import COMPILED, LARGEST_TOP, SIMULATED, Found, rank, regret, spaces_of
from gemmsim.search.constraints import NAMES
from gemmsim.search.landscapes import Landscape, landscapes
from gemmsim.search.refinement import Compiler, deeper
from gemmsim.search.scoring import Result
from gemmsim.search.sensitivity import Sensitivity, sensitivities, why_it_loses
from gemmsim.search.tuner import write_tuner_space
from gemmsim.units import count, duration, percent, plural, short_percent, si, words
from gemmsim.whole_files import check_whole

MOST_SIMULATED = 100
"""Each takes some tenths of a second."""
MOST_VALUES = 8
"""Values of a parameter that the table of sensitivities shows."""


def add_search(parser: argparse.ArgumentParser) -> None:
    """What is searched, what is kept, and what becomes of it."""
    add_problem(parser)
    add_device(parser)
    add = parser.add_argument
    add("--top", default="10", metavar="N", help="configurations to list (default: 10)")
    add(
        "--kernel",
        action="append",
        metavar="K[,K]",
        help=f"kernels to choose among, all that the device runs if left out: {', '.join(KERNELS)}",
    )
    add(
        "--where",
        action="append",
        metavar="CONDITION",
        help=f'what a configuration must meet, such as "block_m >= 64 and stages == 2", over {", ".join(NAMES)}',
    )
    add(
        "--simulate",
        metavar="N",
        help="of how many of the first the time is simulated too, not analytic alone (default:"
        f" {SIMULATED}, with --compile {COMPILED})",
    )
    add(
        "--compile",
        action="store_true",
        help="compile these, and simulate what the compiler made of them (needs nvcc, no GPU, and a minute)",
    )
    add(
        "--picture", type=path_text, metavar="FILE", help="draw the landscape around the first into a .png or .svg file"
    )
    add("--measure", metavar="N", help="run the first N on the GPU here, verified and timed, and say what was missed")
    add("--out", type=path_text, metavar="RECORDS.jsonl", help="append the records of --measure to this file")
    add(
        "--export-kernel-tuner",
        type=path_text,
        metavar="FILE.json",
        help="write parameters, restrictions and ranking for Kernel Tuner (needs one --kernel)",
    )


@dataclass(frozen=True)
class Searched:
    """The answer to one search."""

    found: Found
    sensitivities: tuple[Sensitivity, ...]
    reason: str
    records: tuple[Record, ...] | None
    files: tuple[str, ...]


def run_search(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim search"""
    from gemmsim.console import progress

    top = whole(args.top, "--top", 1, LARGEST_TOP)
    measured = 0 if args.measure is None else whole(args.measure, "--measure", 1, LARGEST_TOP)
    usual = COMPILED if args.compile else SIMULATED
    simulated = usual if args.simulate is None else whole(args.simulate, "--simulate", 0, MOST_SIMULATED)
    compiler = _compiler(simulated) if args.compile else None
    if args.out is not None and not measured:
        raise InputError(f"--out {args.out} is for the records of --measure N; give both")
    picture = None if args.picture is None else picture_path(args.picture)
    kernels = _kernels(args.kernel)
    tuner = args.export_kernel_tuner
    if tuner is not None and (kernels is None or len(kernels) > 1):
        raise InputError("--export-kernel-tuner writes the space of one kernel; name it with --kernel")
    if args.out is not None:
        check_writable(args.out)
    if tuner is not None:
        check_whole(Path(tuner))
    problem, on = problem_of(args.sizes, args.dtype), device_of(args.device)
    spaces = spaces_of(problem, on, kernels, args.where or ())
    maps = landscapes(spaces) if picture else ()
    with progress(lines=False) as tell:
        found = rank(spaces, top, maps, keep=measured, simulated=simulated, tell=tell, compiler=compiler)
    if picture:
        _draw(found, maps, picture)
    if tuner is not None:
        write_tuner_space(spaces[0], found.results, Path(tuner))
    records = _measured(found, measured, args.out, warn) if measured else None
    files = tuple(str(path) for path in (picture, tuner, args.out) if path is not None)
    answer = Searched(found, sensitivities(found), why_it_loses(found), records, files)
    ok = records is None or all(record.ok for record in records)
    return Answer(lambda: document(answer), lambda show: show_search(answer), ok)


def document(searched: Searched) -> Document:
    """The ranking, the best first, and what is said of the first; `measured` is null where nothing was run."""
    found = searched.found
    return {
        "problem": asdict(found.problem),
        "device": found.device.name,
        "kernels": [each.kernel.name for each in found.spaces],
        "where": [condition.text for condition in found.spaces[0].where],
        "evaluated": found.evaluated,
        "seconds": found.seconds,
        "refined_s": found.refined_s,
        "results": [result(each) for each in found.results],
        "alike": found.alike,
        "runner_up": (result(found.runner_up) if found.runner_up else {}) | {"reason": searched.reason},
        "sensitivity": [{**asdict(each), "span": each.span} for each in searched.sensitivities],
        "measured": None if searched.records is None else measurements(searched.records),
        "files": searched.files,
    }


def result(found: Result) -> Document:
    """One configuration."""
    return {
        "kernel": found.kernel.name,
        "tiling": found.kernel.tiling_dict(found.tiling),
        "time_s": found.time_s,
        "analytic_s": found.analytic_s,
        "simulated_s": found.simulated_s,
        "compiled": found.compiled,
        "bound_by": found.bound_by,
    }


def measurements(records: Sequence[Record]) -> Document:
    """What the GPU says of the first configurations; a regret is null where none of these has a time."""
    return {
        "records": [record.to_dict() for record in records],
        "top1_regret": regret(records, 1),
        "top10_regret": regret(records, 10),
    }


def show_search(searched: Searched) -> None:
    """The ranking as a table, the reasons as sentences, what matters, and what was measured."""
    from gemmsim.console import line, table

    found = searched.found
    flop = found.problem.flop_per_s
    rate = f"{si(found.evaluated / found.seconds, 'configurations')} a second" if found.seconds else "at once"
    line(
        f"{found.problem} on {found.device.name}: {plural(found.evaluated, 'legal configuration')} of"
        f" {plural(len(found.spaces), 'kernel')}, ranked in {duration(found.seconds)} ({rate}); the first looked at"
        f" closely in {duration(found.refined_s)}"
    )
    table(
        "Shortest predicted times",
        ("", "kernel", "tiling", "time", "rate", "bound by"),
        (
            (
                count(place), each.kernel.name, each.kernel.describe(each.tiling), duration(each.time_s),
                si(flop(each.time_s), "FLOP/s"), words(each.bound_by),
            )
            for place, each in enumerate(found.results, 1)
        ),
        text=(1, 2, 5),
    )  # fmt: skip
    if found.pick.simulated_s is not None:
        code = "as compiled" if found.pick.compiled else "told from its description"
        more = deeper(found.pick)
        line(
            f"\nOf the first, {code}, the analytic route says {duration(found.pick.analytic_s)}, the simulation"
            f" {duration(found.pick.simulated_s)}; their weighed mean counts"
            + (f", and {short_percent(more - 1)} more for the depth of its tile." if more > 1 else ".")
        )
    line(f"\n{searched.reason[0].upper()}{searched.reason[1:]}.")
    varied = [each for each in searched.sensitivities if len(each.values) > 1]
    if varied:
        table(
            "What matters around the first: its time by the analytic route when one parameter alone changes",
            ("parameter", "chosen", "span", "predicted"),
            ((each.name, count(each.chosen), short_percent(each.span), ", ".join(_times(each))) for each in varied),
            text=(0, 3),
        )
    else:
        line("No other value of any one parameter is legal.")
    if searched.records is not None:
        _show_measured(found, searched.records)
    for path in searched.files:
        line(f"wrote {path}", wrap=False)


def _show_measured(found: Found, records: Sequence[Record]) -> None:
    from gemmsim.console import line, table

    first = found.kept[: len(records)]
    table(
        "Measured",
        ("", "kernel", "tiling", "predicted", "measured", "error"),
        (
            (
                count(place), each.kernel.name, each.kernel.describe(each.tiling), duration(each.time_s),
                duration(record.median_s) if record.median_s else record.failure or "failed",
                percent(each.time_s / record.median_s - 1, signed=True) if record.median_s else "-",
            )
            for place, (each, record) in enumerate(zip(first, records, strict=True), 1)
        ),
        text=(1, 2),
    )  # fmt: skip
    one, ten = regret(records, 1), regret(records, 10)
    if one is not None:
        line(f"\nThe first takes {short_percent(one)} longer than the fastest measured.")
    if ten is not None and len(records) > 1:
        line(f"The best of the first ten takes {short_percent(ten)} longer than that.")


def _times(of: Sensitivity) -> Iterator[str]:
    """Such as "64: 1.2 ms", of the first values."""
    for value, time_s in list(zip(of.values, of.times_s, strict=True))[:MOST_VALUES]:
        yield f"{value}: {duration(time_s)}"
    if len(of.values) > MOST_VALUES:
        yield "..."


def _kernels(named: Sequence[str] | None) -> list[Kernel] | None:
    """The kernels of --kernel, each once; None for all."""
    if named is None:
        return None
    return [kernel_named(name) for name in dict.fromkeys(name.strip() for text in named for name in text.split(","))]


def _compiler(simulated: int) -> Compiler:
    """What compiles the first. Raises InputError where none is simulated, MachineError without a compiler."""
    from gemmsim.gpu.launches import compiled_launches
    from gemmsim.gpu.toolchain import nvcc, nvdisasm

    if not simulated:
        raise InputError("--compile is for those that are simulated; --simulate 0 says that none is")
    nvcc(), nvdisasm()
    return compiled_launches


def _measured(found: Found, first: int, out: str | None, warn: Warn) -> tuple[Record, ...]:
    """The records of the first configurations, measured on the GPU here."""
    from gemmsim.console import progress

    points = [Point(found.problem, each.kernel.name, each.tiling) for each in found.kept[:first]]
    with progress() as tell:
        records = measure(points, out, progress=tell, warn=warn)
    if records[0].device != found.device.name:
        warn(f"predicted for {found.device.name}, measured on {records[0].device}")
    return tuple(records)


def _draw(found: Found, maps: Sequence[Landscape], path: Path) -> None:
    """Write the landscapes; InputError for a path that cannot take them."""
    from gemmsim.plots.landscape import landscape_pictures  # imports Matplotlib, which takes long
    from gemmsim.plots.style import figure

    title = f"Best predicted time, {found.problem} on {found.device.title}"
    write_picture(landscape_pictures(figure(7.2, 9.0), maps, found.pick, title), path)
