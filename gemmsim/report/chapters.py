"""The chapters of the page, in order: each with how to read it, its picture, and its tables.

A chapter shows where its picture has something to draw or one of its tables a row. To add one, write its picture and
its tables, and put it into CHAPTERS; page, files and tests take it from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmsim.report import model_tables, pictures, record_tables
from gemmsim.report.findings import Findings
from gemmsim.report.pictures import Picture
from gemmsim.report.table import Table


@dataclass(frozen=True)
class Chapter:
    """One question and what answers it; `reading` says in two sentences how to read it."""

    name: str
    title: str
    reading: str
    picture: Picture | None
    tables: tuple[Callable[[Findings], Table], ...]


ANSWER = (record_tables.best, record_tables.picks)
"""The tables that stand below the answer itself."""

CHAPTERS = (
    Chapter(
        "reads",
        "Reads at every level of the ladder",
        "Each step of the ladder moves reads from a far level to a nearer one, where they cost less; the register"
        " reads stay, as every multiplication needs two. The dashed line is the fewest elements that any kernel moves.",
        pictures.READS,
        (model_tables.reads,),
    ),
    Chapter(
        "roofline",
        "Rooflines of DRAM, L2, shared memory and registers",
        "The strong slope of a panel is what that level can feed, the flat line the FP32 peak, and the gap from a"
        " hollow point (predicted) to the filled one (measured) is the model's error. Bytes count every matrix once"
        " at DRAM, every sector at L2, every pass of the banks at shared memory, three registers an FFMA; a point above"
        " a slope is served in part by what is nearer, L1 before L2 and the operand cache before registers.",
        pictures.ROOFLINE,
        (model_tables.rates,),
    ),
    Chapter(
        "terms",
        "What each resource needs, and the measured time",
        "Each lane is the time that one resource would need if nothing else cost anything; the dashed line is the"
        " prediction made of them. The full line is the measured time: what lies between is not yet in the model.",
        pictures.TERMS,
        (model_tables.terms,),
    ),
    Chapter(
        "compare",
        "Predicted against measured time",
        "Every point is one measured launch: on the line the model is right, below it the model is too fast, and a ring"
        " marks points that took no part in any fit. The bands mark 5 % and 10 % on either side; the second panel has"
        " the same points by their error, where the bands can be seen.",
        pictures.COMPARE,
        (record_tables.kernels,),
    ),
    Chapter(
        "banks",
        "Bank maps of the worst and the best tiling",
        "A cell says which pass serves a lane from a bank: one color means all at once, and a second color in a column"
        " means lanes that wait for the same bank. The first map is of the tiling with the largest share of conflict,"
        " the other of the one with the smallest, both of the access that conflicts most in the first.",
        pictures.BANKS,
        (model_tables.banks,),
    ),
    Chapter(
        "registers",
        "The order of the FFMA in the registers",
        "Each cell is one multiplication of a thread's tile, numbered in the order of execution and colored by the"
        " register bank of its accumulator; a heavy edge means that it waits. The tile is that of the best"
        " configuration, row by row and, where that is faster, in the best order that a search found.",
        pictures.REGISTERS,
        (model_tables.registers,),
    ),
    Chapter(
        "occupancy",
        "Occupancy, and how near its cliffs are",
        "The line says how many warps a multiprocessor holds if the block of the best configuration took more or less"
        " of one resource and nothing else changed. A step is a cliff: the nearest are marked, with what is there.",
        pictures.OCCUPANCY,
        (model_tables.occupancy,),
    ),
    Chapter(
        "timeline",
        "One buffer and two, cycle by cycle",
        "Each row is a warp of one sub-core over two large iterations: high bars are instructions, low ones are waits,"
        " and the line below says when loads are on their way. With one buffer the warps wait for as long as they take;"
        " with two they multiply meanwhile.",
        pictures.TIMELINE,
        (model_tables.timelines,),
    ),
    Chapter(
        "landscape",
        "The search around the best configuration",
        "Each place is the fastest configuration that the model finds with that block, over all else that was searched,"
        " as a multiple of the best; the ring is the pick. Where colors hardly change, a wrong choice costs little,"
        " and the empty places are tilings that are not legal.",
        pictures.LANDSCAPE,
        (model_tables.landscape,),
    ),
    Chapter(
        "counters",
        "Counts of the model against hardware counters",
        "Each row is one hardware counter over all points that were profiled, and equal means equal to the last digit."
        " Where counts differ, the worst one says by how much, and the list below has every one.",
        None,
        (record_tables.counters, record_tables.counts),
    ),
    Chapter(
        "points",
        "All points",
        "Each row is one configuration: what the model says, the median of what was measured, and which resource binds."
        " Points without a time take no part in any error.",
        None,
        (record_tables.points, record_tables.failures),
    ),
)
