"""Thread tiles: orders on paper, registers that keep to alignment and banks, flags against a cache run by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.registers.reads import simulate
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import (
    ACCUMULATORS,
    Allocation,
    Placement,
    Runs,
    ThreadTile,
    allocate,
    placement,
    with_run,
)
from gemmsim.registers.tile_order import FLAGS, ORDERS, Plan, drawing, keeps, order_of, order_text, waits

DATA = Path(__file__).parent / "data"
HOPPER, MAXWELL = register_file("sm_90"), register_file("sm_52")
FILES = {2: HOPPER, 4: MAXWELL}

sides = st.integers(1, 9)
tiles = st.builds(ThreadTile, sides, sides)


@st.composite
def laid_out(draw: st.DrawFn) -> tuple[Allocation, Placement, Runs, int]:
    """(allocation, what was wanted, runs, banks) of any tile."""
    tile = draw(tiles)
    vector_c = draw(st.sampled_from([v for v in (1, 2, 4) if tile.thread_n % v == 0]))
    runs = Runs.widest(tile, draw(st.sampled_from((1, 2, 4))), vector_c)
    banks = draw(st.sampled_from(sorted(FILES)))
    places = placement(tile, draw(st.sampled_from(sorted(ACCUMULATORS))), runs, banks)
    return allocate(places, runs, banks, draw(st.integers(1, 2))), places, runs, banks


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any order of a small tile, with any flags and slots."""
    tile = draw(st.builds(ThreadTile, st.integers(1, 4), st.integers(1, 4)))
    runs = Runs.widest(tile)
    places = placement(tile, draw(st.sampled_from(sorted(ACCUMULATORS))), runs, 2)
    order = draw(st.permutations(ORDERS["row"](tile.thread_m, tile.thread_n)))
    return Plan(
        allocate(places, runs, 2, draw(st.integers(1, 2))),
        tuple(order),
        draw(st.sampled_from(sorted(FLAGS))),
        draw(st.booleans()),
    )


# Orders


@given(tiles, st.sampled_from(sorted(ORDERS)))
def test_every_order_has_every_cell_once(tile, name):
    order = ORDERS[name](tile.thread_m, tile.thread_n)
    assert sorted(order) == [(i, j) for i in range(tile.thread_m) for j in range(tile.thread_n)]
    assert order_of(name.replace("_", "-").upper(), tile) == order
    assert order_of(order_text(order, tile), tile) == order


def numbers(name: str, m: int, n: int) -> str:
    """The order as cells, "00 01 11 10" for rows and columns."""
    return " ".join(f"{i}{j}" for i, j in ORDERS[name](m, n))


@pytest.mark.parametrize(
    ("name", "m", "n", "cells"),
    [
        ("row", 2, 3, "00 01 02 10 11 12"),
        ("column", 2, 3, "00 10 01 11 02 12"),
        ("serpentine", 3, 2, "00 01 11 10 20 21"),
        ("serpentine_column", 2, 3, "00 10 11 01 02 12"),
        ("blocks2x2", 4, 4, "00 01 11 10 02 03 13 12 22 23 33 32 20 21 31 30"),
        ("blocks2x2", 3, 3, "00 01 11 10 02 12 22 20 21"),
        ("pairs", 4, 2, "00 10 11 01 21 31 30 20"),
        ("pairs", 3, 2, "00 10 11 01 21 20"),
        ("pairs_column", 2, 4, "00 01 11 10 12 13 03 02"),
    ],
)
def test_orders_on_paper(name, m, n, cells):
    assert numbers(name, m, n) == cells


def test_rows_of_8x8_on_paper():
    # A fragments in R0 to R7, B in R8 to R15, accumulators from R16 on, row by row
    runs = Runs(4, 4, 1)
    plan = Plan(allocate(placement(ThreadTile(8, 8), "consecutive", runs, 2), runs, 2), ORDERS["row"](8, 8))
    rows = plan.stream(HOPPER).instructions
    assert [(each.sources, each.destination, each.reuse) for each in rows[:9]] == [
        ((0, 8, 16), 16, "A"),
        ((0, 9, 17), 17, "A"),
        ((0, 10, 18), 18, "A"),
        ((0, 11, 19), 19, "A"),
        ((0, 12, 20), 20, "A"),
        ((0, 13, 21), 21, "A"),
        ((0, 14, 22), 22, "A"),
        ((0, 15, 23), 23, ""),
        ((1, 8, 24), 24, "A"),
    ]
    (report,) = simulate([plan.stream(HOPPER)], HOPPER)
    assert (report.ffma, report.reuse_hits) == (64, 8 * 7)


@given(tiles, st.data())
def test_any_order_gives_the_same_bits(tile, data):
    order = data.draw(st.permutations(ORDERS["row"](tile.thread_m, tile.thread_n)))
    rng = np.random.default_rng(tile.ffma)
    a, b = (rng.standard_normal((3, size)).astype(np.float32) for size in (tile.thread_m, tile.thread_n))
    sums = [np.zeros((tile.thread_m, tile.thread_n), np.float32) for _ in range(2)]
    for step in range(3):
        for total, cells in zip(sums, (ORDERS["row"](tile.thread_m, tile.thread_n), order), strict=True):
            for i, j in cells:
                total[i, j] += a[step, i] * b[step, j]
    assert np.array_equal(*sums)


# Registers


@given(laid_out())
def test_registers_are_disjoint_aligned_and_in_their_banks(made):
    registers, places, runs, banks = made
    everything = [r for rows in (registers.a, registers.b, registers.c) for row in rows for r in row]
    assert len(everything) == len(set(everything)) == len(registers.registers)
    assert len(everything) == registers.tile.registers(len(registers.a))
    assert max(everything) < 255
    for rows, length in ((registers.a, runs.a), (registers.b, runs.b), (registers.c, runs.c)):
        for row in rows:
            for first in range(0, len(row), length):
                assert row[first] % length == 0
                assert list(row[first : first + length]) == list(range(row[first], row[first] + length))
    assert registers.placement(banks) == places


@given(tiles)
def test_named_places_of_accumulators(tile):
    parity = {
        name: placement(tile, name, Runs(), 2).c
        for name in ("opposite_b", "opposite_a", "checkered", "apart")
    }  # fmt: skip
    for i in range(tile.thread_m):
        for j in range(tile.thread_n):
            assert parity["opposite_b"][i][j] == (j + 1) % 2
            assert parity["opposite_a"][i][j] == (i + 1) % 2
            assert parity["checkered"][i][j] == (i + j) % 2
            if i % 2 == j % 2:
                assert parity["apart"][i][j] != i % 2
            of_four = placement(tile, "apart", Runs(), 4)
            assert of_four.c[i][j] not in (of_four.a[i], of_four.b[j])


def test_fragments_of_the_classic_example():
    # Maxwell: A in R64 to R71, B in R72 to R79; each A meets 2 of the 8 B in its bank of 4
    of_a, of_b = range(64, 72), range(72, 80)
    runs = Runs(4, 4, 4)
    registers = allocate(placement(ThreadTile(8, 8), "consecutive", runs, 4), runs, 4)
    assert (registers.c[0][0], registers.c[7][7]) == (0, 63)
    assert (registers.a[0], registers.b[0]) == (tuple(of_a), tuple(of_b))
    assert sum(a % 4 == b % 4 for a in registers.a[0] for b in registers.b[0]) == 16


@pytest.mark.parametrize("accumulators", ACCUMULATORS)
@pytest.mark.parametrize(
    ("m", "n", "sets"), [(1, 127, 1), (127, 1, 1), (15, 15, 1), (50, 4, 1), (15, 13, 2), (6, 35, 1)]
)
def test_full_banks_give_way(m, n, sets, accumulators):
    """So many registers that those of one bank run out: all of them are still found, in runs."""
    tile = ThreadTile(m, n)
    runs = Runs.widest(tile)
    made = allocate(placement(tile, accumulators, runs, 2), runs, 2, sets)
    assert len(made.registers) == tile.registers(sets) > 230


def test_a_run_can_be_moved():
    places = placement(ThreadTile(2, 4), "consecutive", Runs(1, 2, 1), 4)
    assert with_run(places, "b", 0, 2, (0, 1)).b == (0, 1, 0, 1)
    assert with_run(places, "c", 1, 3, (2,)).c == (places.c[0], (0, 1, 2, 2))


# Flags


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.sampled_from(["sm_90", "sm_52"]))
def test_held_keeps_what_a_cache_would_still_have(operands, arch):
    file = register_file(arch)
    kept = keeps(operands, "held", file)
    for place, register in enumerate(operands):
        later = [at for at in range(place + 1, len(operands)) if operands[at] == register]
        between = operands[place + 1 : later[0]] if later else []
        ends = (lambda other: other % 2 == register % 2) if arch == "sm_90" else (lambda other: True)  # noqa: B023
        assert kept[place] == (bool(later) and not any(map(ends, between)))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_next_is_part_of_held_is_part_of_all(operands):
    none, following, held, every = (keeps(operands, flags, HOPPER) for flags in ("none", "next", "held", "all"))
    assert not any(none)
    for place, flags in enumerate(zip(following, held, every, strict=True)):
        assert list(flags) == sorted(flags)
        assert flags[2] == (operands[place] in operands[place + 1 :])
        assert flags[0] == (operands[place : place + 1] == operands[place + 1 : place + 2])


@given(plans())
def test_nothing_is_kept_from_one_k_step_to_the_next(plan):
    stream = plan.stream(HOPPER).instructions
    ffma = len(plan.order)
    for first in range(0, len(stream), ffma):
        step = stream[first : first + ffma]
        for slot, name in enumerate("AB"):
            last = {each.sources[slot]: at for at, each in enumerate(step)}
            assert not any(name in step[at].reuse for at in last.values())
        assert not any("C" in each.reuse for each in step)


@given(plans())
def test_hits_are_those_of_a_cache_run_by_hand(plan):
    """Six entries, one for each bank and slot: what a flag leaves, until the next read there."""
    instructions, kept, hits = plan.stream(HOPPER).instructions, {}, 0
    for turn in range(3):
        for each in instructions:
            for slot, register in zip("ABC", each.sources, strict=True):
                hits += turn == 2 and kept.get((register % 2, slot)) == register
                kept[register % 2, slot] = register if slot in each.reuse else None
    assert simulate([plan.stream(HOPPER)], HOPPER)[0].reuse_hits == hits


@given(plans(), st.sampled_from([HOPPER, MAXWELL]))
def test_crowded_ffma_by_hand(plan, file):
    one_set = Plan(Allocation(*((rows[0],) for rows in (plan.allocation.a, plan.allocation.b)), plan.allocation.c),
                   plan.order, plan.flags, plan.swapped)  # fmt: skip
    kept, crowded = {}, 0
    for each in one_set.stream(file).instructions:
        read = [
            register % file.banks
            for slot, register in zip("ABC", each.sources, strict=True)
            if kept.get((slot, register % 2 if file is HOPPER else 0)) != register
        ]
        crowded += len(read) > len(set(read))
        if file is MAXWELL:
            kept.clear()
        for slot, register in zip("ABC", each.sources, strict=True):
            kept[slot, register % 2 if file is HOPPER else 0] = register if slot in each.reuse else None
    assert plan.crowded(file) == crowded


# Cycles


def renamed(plan: Plan, to: list[int]) -> Plan:
    """The same plan with other register numbers."""
    rows = (tuple(tuple(to[r] for r in row) for row in rows) for rows in vars(plan.allocation).values())
    return Plan(Allocation(*rows), plan.order, plan.flags, plan.swapped)


@given(plans(), st.randoms(use_true_random=False))
def test_only_parity_matters(plan, chance):
    even, odd = list(range(0, 254, 2)), list(range(1, 254, 2))
    chance.shuffle(even)
    chance.shuffle(odd)
    to = [number for pair in zip(even, odd, strict=True) for number in pair]
    flipped = [number ^ 1 for number in range(254)]
    streams = [each.stream(HOPPER) for each in (plan, renamed(plan, to), renamed(plan, flipped))]
    cycles = [report.cycles for report in simulate(streams, HOPPER)]
    assert cycles == [cycles[0]] * 3


@given(plans())
def test_a_drawing_shows_every_ffma(plan):
    (report,) = simulate([plan.stream(HOPPER)], HOPPER)
    head, *lines = drawing(plan, report, 2)
    assert head.split() == [f"R{r}{'eo'[r % 2]}" for r in plan.allocation.b[0]]
    cells = [line.split()[1:] for line in lines]
    waiting = waits(plan, report)
    for number, (i, j) in enumerate(plan.order):
        assert cells[i][j] == f"{number}{'eo'[plan.allocation.c[i][j] % 2]}{'!' * ((i, j) in waiting)}"


# Tiles of 8x8 that an H200 ran: A in R4 to R11, B in R12 to R19. In their loops the first FFMA follows the last.

MEASURED = [json.loads(line) for line in (DATA / "thread_tiles_h200.jsonl").read_text(encoding="utf-8").splitlines()]


def measured_plan(row: dict[str, Any]) -> Plan:
    """The plan of that order, flags and slots in the registers that were measured."""
    results = {}
    for _, first, second, result, _ in row["ffma"]:
        a, b = (second, first) if row["swapped"] else (first, second)
        results[a - 4, b - 12] = result
    c = tuple(tuple(results[i, j] for j in range(8)) for i in range(8))
    registers = Allocation((tuple(range(4, 12)),), (tuple(range(12, 20)),), c)
    return Plan(registers, ORDERS[row["order"]](8, 8), row["flags"], row["swapped"])


@pytest.mark.parametrize("row", MEASURED, ids=lambda row: f"{row['order']}-{row['accumulators']}-{row['flags']}")
def test_streams_are_those_that_were_measured(row):
    made = [[each.destination, *each.sources, each.reuse] for each in measured_plan(row).stream(HOPPER).instructions]
    assert made[:-1] == row["ffma"][:-1]
    assert made[-1][:-1] == row["ffma"][-1][:-1]  # its flag would reach into the next k step


def averages_out(row: dict[str, Any]) -> bool:
    """Whether conflicts of a tile average out better than the rule says."""
    return row["order"] == "blocks2x2" and row["accumulators"] in ("same_b", "rnd")


@pytest.mark.parametrize(
    "row",
    [row for row in MEASURED if not averages_out(row)],
    ids=lambda row: f"{row['order']}-{row['accumulators']}-{row['flags']}",
)
def test_cycles_are_those_that_were_measured(row):
    (report,) = simulate([measured_plan(row).stream(HOPPER)], HOPPER)
    assert report.cycles_per_ffma == pytest.approx(row["cycles_per_ffma"], rel=0.02)


# Refusals


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ThreadTile(0, 8), "thread_m 0 is out of range"),
        (
            lambda: ThreadTile(32, 32),
            "thread tile 32x32 needs 1,088 registers, 1,024 for accumulators and 64 for fragments; a thread has 255;"
            " 32x6 fits",
        ),
        (lambda: ThreadTile(300, 1), "thread_m 300 is out of range; allowed: whole numbers from 1 to 255"),
        (lambda: ThreadTile(254, 1), "thread tile 254x1 needs 509 registers.*a thread has 255$"),
        (lambda: ThreadTile(15, 14).check(2), "thread tile 15x14 needs 268 registers.*15x13 fits"),
        (lambda: order_of("zigzag", ThreadTile(2, 2)), "unknown order 'zigzag'; known: row, column, serpentine"),
        (lambda: order_of("0,1,1,3", ThreadTile(2, 2)), "order '0,1,1,3' is no permutation of 0 to 3"),
        (lambda: Runs(3, 1, 1), "runs of 3 registers for A; allowed: 1, 2, 4"),
        (lambda: Runs.widest(ThreadTile(4, 4), 8), "vectors of 8 registers; allowed: 1, 2, 4"),
        (lambda: Runs(1, 1, 4).check(ThreadTile(4, 6)), "runs of 4 registers for C do not divide the 6"),
        (lambda: placement(ThreadTile(2, 2), "here", Runs(), 2), "unknown accumulators 'here'; known: consecutive"),
        (lambda: Allocation(((0,),), ((1,),), ((1,),)), r"registers \[1\] hold two values"),
        (
            lambda: Allocation(((0,),), ((1,),), ((255,),)),
            r"registers \[255\] hold two values, or are none of 0 to 254",
        ),
        (lambda: Allocation(((0,),), ((1, 2),), ((3,),)), "for accumulators"),
        (lambda: Plan(Allocation(((0,),), ((1,),), ((2,),)), ()), "the order is no permutation of the 1 FFMA"),
        (
            lambda: Plan(Allocation(((0,),), ((1,),), ((2,),)), ((0, 0),), "some"),
            "unknown flags 'some'; known: next, held, all, none",
        ),
    ],
)
def test_refusals(make, says):
    with pytest.raises(InputError, match=says):
        make()
