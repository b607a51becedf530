"""The pictures of the page: what is drawn of the findings, and what it says without being seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from gemmsim.explain.narrate import hiding
from gemmsim.held_out import held_out
from gemmsim.ladder import Rung
from gemmsim.occupancy.cliffs import Cliff
from gemmsim.plots import LIGHT, Theme, figures
from gemmsim.report.findings import Findings
from gemmsim.units import count, duration, percent, plural, si, words

Draw = Callable[[Findings, Theme, bool], Figure]


@dataclass(frozen=True)
class Picture:
    """One picture: how it is drawn, wide or narrow, its words for those who do not see it, and whether there is
    anything to draw. One with a field of colors cannot take those of the page, and is drawn in each theme."""

    name: str
    draw: Draw
    alt: Callable[[Findings], str]
    has_data: Callable[[Findings], bool]
    is_field: bool = False


def _has_rungs(of: Findings) -> bool:
    return bool(of.rungs)


def _of_rungs(of: Findings, say: Callable[[Rung], str]) -> str:
    return "; ".join(f"{rung.kernel.name} {rung.described} {say(rung)}" for rung in of.rungs)


def _say_reads(rung: Rung) -> str:
    reads = rung.traffic.reads
    levels = {"global": reads.global_memory, "shared": reads.shared_memory, "register": reads.register}
    return ", ".join(f"{si(number, '').strip()} {level}" for level, number in levels.items())


def _say_rate(rung: Rung) -> str:
    predicted = f"predicted {si(float(rung.prediction.flop_per_s), 'FLOP/s')}"
    measured = rung.measured_flop_per_s
    return predicted if measured is None else f"{predicted}, measured {si(measured, 'FLOP/s')}"


def _say_time(rung: Rung) -> str:
    predicted = f"predicted {duration(float(rung.prediction.time_s))} by {words(rung.prediction.bound_by)}"
    return predicted if rung.measured_s is None else f"{predicted}, measured {duration(rung.measured_s)}"


READS = Picture(
    "reads",
    lambda of, theme, narrow: figures.reads(of.rungs, theme, narrow),
    lambda of: f"Reads, in elements, at {of.problem}: {_of_rungs(of, _say_reads)}.",
    _has_rungs,
)
ROOFLINE = Picture(
    "roofline",
    lambda of, theme, narrow: figures.roofline(of.rungs, theme, narrow),
    lambda of: f"Rooflines of {of.device.title} at {of.problem}: {_of_rungs(of, _say_rate)}.",
    _has_rungs,
)
TERMS = Picture(
    "terms",
    lambda of, theme, narrow: figures.terms(of.rungs, theme, narrow),
    lambda of: f"Times of each resource at {of.problem}: {_of_rungs(of, _say_time)}.",
    _has_rungs,
)


def _draw_comparison(of: Findings, theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    assert of.comparison is not None, "drawn only where something was measured"
    return figures.compare(of.comparison, theme, narrow, held_out)


def _alt_comparison(of: Findings) -> str:
    assert of.comparison is not None, "described only where something was measured"
    parts = (f"{name} {percent(part.mape)}" for name, part in of.comparison.by_kernel().items())
    return (
        f"Predicted over measured time of {plural(len(of.comparison.points), 'point')}, mean absolute error"
        f" {percent(of.comparison.mape)}: {'; '.join(parts)}."
    )


COMPARE = Picture("compare", _draw_comparison, _alt_comparison, lambda of: of.comparison is not None)


def _draw_banks(of: Findings, theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    accesses = {f"{name}: {each}": each.access for name, each in of.banked.items() if each.access}
    return figures.banks(accesses, theme, narrow)


def _alt_banks(of: Findings) -> str:
    said = (
        f"{name}: {each}, {percent(each.excess_fraction)} of its wavefronts are conflicts; {each.access}"
        for name, each in of.banked.items()
    )
    return f"Lanes of a warp over the {32} banks. {'. '.join(said)}."


BANKS = Picture("banks", _draw_banks, _alt_banks, lambda of: bool(of.banked))


def _draw_registers(of: Findings, theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    assert of.orders is not None, "drawn only where the register file is known"
    return figures.registers(of.orders, theme, narrow)


def _alt_registers(of: Findings) -> str:
    assert of.orders is not None, "described only where the register file is known"
    found = of.orders
    return (
        f"Thread tile {found.tile} in the registers: row by row {found.report.cycles_per_ffma:.3f} cycles per FFMA,"
        f" {percent(found.report.peak_fraction)} of the peak; in the best order found"
        f" {found.best.report.cycles_per_ffma:.3f}, {percent(found.best.report.peak_fraction)}."
    )


REGISTERS = Picture(
    "registers", _draw_registers, _alt_registers, lambda of: of.orders is not None and of.orders.tile.ffma > 1
)


def block_title(of: Findings) -> str:
    """The configuration whose block is looked at, and what that takes."""
    assert of.best is not None, "asked only where there is one"
    block = of.block
    assert block is not None, "asked only where there is one"
    return (
        f"{of.device.title}, {of.best.kernel.name} {of.best.kernel.describe(of.best.tiling)}:"
        f" {plural(block.threads, 'thread')}, {plural(block.registers, 'register')} each,"
        f" {plural(block.shared_bytes, 'byte')} of shared memory"
    )


def _draw_occupancy(of: Findings, theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    return figures.occupancy(of.sweeps, of.device.capability, block_title(of), theme, narrow)


def _alt_occupancy(of: Findings) -> str:
    assert of.best is not None, "described only where there is a configuration"
    now = of.best.occupancy
    return (
        f"{block_title(of)}. {plural(now.blocks_per_sm, 'block')} on a multiprocessor,"
        f" {percent(now.occupancy)} of its warps; nearest cliffs: {'; '.join(_cliffs(of)) or 'none'}."
    )


def _cliffs(of: Findings) -> list[str]:
    def said(resource: str, cliff: Cliff) -> str:
        return f"{words(resource)} {count(cliff.value)}: {plural(cliff.blocks_per_sm, 'block')}"

    return [
        said(name, cliff)
        for name, sweep in of.sweeps.items()
        for cliff in (sweep.fewer, sweep.more)
        if cliff is not None
    ]


OCCUPANCY = Picture("occupancy", _draw_occupancy, _alt_occupancy, lambda of: bool(of.sweeps))


def _draw_landscape(of: Findings, theme: Theme = LIGHT, narrow: bool = False) -> Figure:
    assert of.landscape is not None, "drawn only where something was searched"
    found, maps = of.landscape
    title = f"Best predicted time, {found.spaces[0].kernel.name}, {found.problem} on {of.device.title}"
    return figures.landscape(maps, found.pick, title, theme, narrow)


def _alt_landscape(of: Findings) -> str:
    assert of.landscape is not None, "described only where something was searched"
    found, maps = of.landscape
    return (
        f"Best predicted time over {' and '.join(f'{words(each.x)} and {words(each.y)}' for each in maps)} of"
        f" {plural(found.evaluated, 'configuration')} at {found.problem}: the fastest is {found.pick.kernel.name}"
        f" {found.pick.kernel.describe(found.pick.tiling)} with {duration(found.pick.time_s)}."
    )


LANDSCAPE = Picture("landscape", _draw_landscape, _alt_landscape, lambda of: of.landscape is not None, is_field=True)
TIMELINE = Picture(
    "timeline",
    lambda of, theme, narrow: figures.timeline(of.timelines, theme, narrow),
    lambda of: f"What the warps of a sub-core do over two large iterations at {of.problem}. {hiding(of.timelines)}",
    lambda of: bool(of.timelines),
)
