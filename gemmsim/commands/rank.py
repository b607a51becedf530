"""`gemmsim rank`: orders a search space that others measured, without measuring, and says how well."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from gemmsim.clblast.configurations import describe
from gemmsim.clblast.kernel_tuner import SearchSpace, read_search_space
from gemmsim.clblast.timing import Timing, predict_clblast
from gemmsim.commands.command import Answer, Document, warn_each
from gemmsim.compare.ranking import Ranking
from gemmsim.device import Device, device, devices
from gemmsim.errors import InputError, Warn, short
from gemmsim.options import device_of, path_text, problem_of
from gemmsim.problem import Problem
from gemmsim.units import count, duration, percent, plural, tau, words

USUAL_PROBLEM = Problem(4096, 4096, 4096)
"""That of the public search spaces, whose tables do not say."""
PICKS, WORST = 10, 5
"""Configurations that are shown."""


def add_rank(parser: argparse.ArgumentParser) -> None:
    """The file, and the GPU and the problem that it is of."""
    add = parser.add_argument
    add(
        "sizes",
        nargs="*",
        metavar="M [N K]",
        help="the problem that was measured (default: the file's where it says, else 4096)",
    )
    add(
        "--kernel-tuner",
        required=True,
        type=path_text,
        metavar="FILE",
        help="a search space of kernel clblast (the tunable GEMM of CLBlast), as a cache file of Kernel Tuner or as"
        " CSV with its parameters and median_ms; either may be compressed by gzip",
    )
    add(
        "--device",
        metavar="NAME|FILE.toml",
        help="GPU that it was measured on, as `gemmsim devices` lists them (default: the file's, where it says)",
    )


@dataclass(frozen=True)
class Ranked:
    """A search space with its predictions, and how many seconds they took."""

    space: SearchSpace
    timing: Timing
    ranking: Ranking
    seconds: float


def run_rank(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim rank"""
    space = read_search_space(args.kernel_tuner)
    warnings = list(space.warnings)
    problem = problem_of(args.sizes, "fp32") if args.sizes else space.problem or USUAL_PROBLEM
    found = rank(space, problem, _device(args.device, space, warnings))
    warn_each(warnings, warn)
    return Answer(lambda: document(found, warnings), lambda show: show_ranked(found))


def rank(space: SearchSpace, problem: Problem, on: Device) -> Ranked:
    """Predict a search space and rank it. `seconds` is the time of that alone: the file is read already."""
    start = time.perf_counter()
    timing = predict_clblast(problem, space.configurations, on)
    ranking = Ranking(timing.time_s, space.measured_s)
    ranking.order  # noqa: B018 - to be timed as well
    return Ranked(space, timing, ranking, time.perf_counter() - start)


def _device(name: str | None, space: SearchSpace, warnings: list[str]) -> Device:
    """The GPU asked for, else the file's; a warning where the file says another one."""
    said = None
    if space.device_name is not None:
        try:
            said = device(space.device_name)
        except InputError:
            said = None
    if name is None:
        if said is not None:
            return said
        of = f" {short(space.device_name)}, which is unknown" if space.device_name else " nothing of it"
        raise InputError(f"--device is missing, and {space.path} says{of}; known: {', '.join(devices())}")
    asked = device_of(name)
    if said is not None and said.name != asked.name:
        warnings.append(f"{space.path} was measured on {said.name}, not on {asked.name}")
    return asked


def document(found: Ranked, warnings: list[str]) -> Document:
    """The JSON document."""
    space, ranking, problem = found.space, found.ranking, found.timing.problem
    fastest = int(np.argmin(space.measured_s))
    place = np.flatnonzero(ranking.order == fastest)[0]
    return {
        "file": str(space.path),
        "kernel": "clblast",
        "device": found.timing.device.name,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "configurations": len(space.configurations),
        "failed": space.failed,
        "unmodelled": space.unmodelled,
        "kendall_tau": ranking.kendall_tau,
        "top1_regret": ranking.regret(1),
        "top10_regret": ranking.regret(10),
        "scaled_mape": ranking.scaled_mape,
        "scale": ranking.scale,
        "seconds": found.seconds,
        "picks": [_configuration(found, number) for number in ranking.order[:PICKS].tolist()],
        "best": {**_configuration(found, fastest), "place": int(place) + 1},
        "worst_misses": [_configuration(found, number) for number in ranking.worst[:WORST].tolist()],
        "warnings": warnings,
    }


def _configuration(found: Ranked, number: int) -> Document:
    """One configuration: parameters, times, and the reason for the prediction."""
    timing, ranking = found.timing, found.ranking
    return {
        "parameters": timing.configurations.row(number),
        "predicted_s": float(timing.time_s[number]),
        "measured_s": float(ranking.measured_s[number]),
        "scaled_error": float(ranking.scaled_errors[number]),
        "bound_by": str(timing.bound_by[number]),
        "terms": {name: float(seconds[number]) for name, seconds in timing.terms.items()},
        "registers_per_thread": int(timing.resources.registers_per_thread[number]),
        "blocks_per_sm": int(timing.resources.occupancy.blocks_per_sm[number]),
    }


def show_ranked(found: Ranked) -> None:
    """The figures, the picks with their reasons, and the worst misses."""
    from gemmsim.console import facts, line, table

    space, ranking, timing = found.space, found.ranking, found.timing
    fastest = int(np.argmin(space.measured_s))
    place = int(np.flatnonzero(ranking.order == fastest)[0]) + 1
    beside = [f"{count(space.failed)} failed"] if space.failed else []
    beside += [f"{count(space.unmodelled)} not modelled"] if space.unmodelled else []
    line(
        f"{plural(len(space.configurations), 'configuration')} of kernel clblast on {timing.device.title},"
        f" {timing.problem}" + (f" ({', '.join(beside)})" if beside else "")
    )
    facts(
        "Predicted order against the measured one",
        [
            ("Kendall's tau", tau(ranking.kendall_tau)),
            ("first pick", f"{percent(ranking.regret(1))} slower than the fastest measured"),
            ("best of ten", f"{percent(ranking.regret(10))} slower"),
            ("error", f"{percent(ranking.scaled_mape)} on average, after one common factor of {ranking.scale:.3g}"),
            ("the fastest", f"{duration(float(space.measured_s[fastest]))}, place {count(place)} of the prediction"),
            ("time taken", duration(found.seconds)),
        ],
    )
    columns = ("configuration", "predicted", "measured", "bound by", "blocks an SM", "registers")
    for title, numbers in (("Picks", ranking.order[:PICKS]), ("Worst misses", ranking.worst[:WORST])):
        table(
            f"{title}, predictions times {ranking.scale:.3g}",
            columns,
            [_row(found, number) for number in numbers.tolist()],
            text=(0, 3),
        )


def _row(found: Ranked, number: int) -> tuple[str, ...]:
    """One configuration, its prediction with the common factor."""
    timing = found.timing
    return (
        describe(timing.configurations.row(number)),
        duration(found.ranking.scale * float(timing.time_s[number])),
        duration(float(found.space.measured_s[number])),
        words(str(timing.bound_by[number])),
        str(int(timing.resources.occupancy.blocks_per_sm[number])),
        str(int(timing.resources.registers_per_thread[number])),
    )
