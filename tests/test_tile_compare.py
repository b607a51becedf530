"""A compiler's main loop against the best plan of its tile."""

from __future__ import annotations

import random

import pytest

from gemmsim.errors import InputError
from gemmsim.registers.reads import Instruction, Stream
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import Runs, ThreadTile, allocate, placement
from gemmsim.registers.tile_compare import compare_with, outer_products
from gemmsim.registers.tile_order import ORDERS, Plan
from gemmsim.registers.tile_search import best_plan

HOPPER = register_file("sm_90")
TILE = ThreadTile(4, 6)


def plan(order: str = "serpentine", swapped: bool = False) -> Plan:
    runs = Runs.widest(TILE)
    return Plan(
        allocate(placement(TILE, "consecutive", runs, 2), runs, 2, sets=2), ORDERS[order](4, 6), "next", swapped
    )


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("order", ORDERS)
def test_tile_and_orders_are_read_back(order, swapped):
    made = plan(order, swapped)
    tile, orders = outer_products(made.stream(HOPPER))
    if swapped:  # what slot A holds are rows then
        assert (tile.thread_m, tile.thread_n) == (6, 4)
        orders = tuple(tuple((i, j) for j, i in step) for step in orders)
    else:
        assert tile == TILE
    assert orders == (made.order, made.order)


def test_rows_are_what_slot_a_holds_more_often():
    first, *rest = plan().stream(HOPPER).instructions
    a, b, c = first.sources
    tile, orders = outer_products(Stream((Instruction((b, a, c), destination=c), *rest)))
    assert (tile, orders) == (TILE, (plan().order,) * 2)


def test_accumulators_may_move_from_register_to_register():
    stream, chance = plan().stream(HOPPER).instructions, random.Random(1)
    free, now, moved = list(range(100, 140)), {}, []
    for each in stream:
        a, b, c = each.sources
        read = now.get(c, c)
        written = free.pop(chance.randrange(len(free)))
        free.append(read)
        now[c] = written
        moved.append(Instruction((a, b, read), each.reuse, written))
    tile, orders = outer_products(Stream(tuple(moved)))
    assert (tile, orders) == (TILE, (plan().order,) * 2)


def test_the_best_plan_has_nothing_to_gain():
    best = best_plan(ThreadTile(4, 4)).plan
    other = Instruction((0, None, None), kind="IADD3", destination=200)
    found = compare_with(Stream((*best.stream(HOPPER).instructions, other)))
    assert (found.tile, found.gain, found.emitted.ffma) == (ThreadTile(4, 4), 0, 16)


def test_gains_of_a_bad_order():
    found = compare_with(plan("column").stream(HOPPER))
    assert found.gain == found.emitted.cycles_per_ffma / found.best.report.cycles_per_ffma - 1
    assert 0 < found.gain_of_registers <= found.gain


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ([[9, 0, 1, 9], [8, 2, 3, 8]], "4 registers are multiplied"),
        ([[9, 0, 1, 9], [8, 1, 0, 8], [7, 0, 0, 7]], "registers are multiplied"),
        ([[9, 0, 1, 9], [8, 0, 2, 8], [9, 3, 1, 9]], "k step 1 has 1 of 2 accumulators"),
        ([[9, 0, 2, 9], [8, 1, 3, 8], [7, 1, 2, 7]], "some of 2x2 are missing|registers are multiplied"),
    ],
)
def test_what_is_no_outer_product_is_refused(rows, why):
    with pytest.raises(InputError, match=why):
        outer_products(Stream.of(rows))


def test_ffma_without_a_register_are_refused():
    with pytest.raises(InputError, match="no outer products: sources"):
        outer_products(Stream((Instruction((0, None, 2), destination=2),)))
