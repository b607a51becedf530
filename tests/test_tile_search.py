"""The search for the best thread tile: never worse than what it is compared with, exact where it says so."""

from __future__ import annotations

import random
from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.registers.reads import simulate
from gemmsim.registers.register_files import register_file
from gemmsim.registers.tile_allocation import ACCUMULATORS, Allocation, Runs, ThreadTile, allocate, placement
from gemmsim.registers.tile_order import ORDERS, Plan
from gemmsim.registers.tile_search import best_order, best_plan, least_cycles, least_cycles_anywhere

ARCHES = ("sm_52", "sm_75", "sm_80", "sm_90")
TILES = (ThreadTile(4, 4), ThreadTile(8, 4), ThreadTile(5, 3))


def scattered(m: int, n: int, seed: int) -> Allocation:
    """Registers anywhere."""
    numbers = random.Random(seed).sample(range(m * n + m + n + 8), m * n + m + n)
    rows = [tuple(numbers[m + n + i * n :][:n]) for i in range(m)]
    return Allocation((tuple(numbers[:m]),), (tuple(numbers[m : m + n]),), tuple(rows))


def cycles(plans: list[Plan], arch: str) -> list[float]:
    file = register_file(arch)
    return [report.cycles for report in simulate([plan.stream(file) for plan in plans], file)]


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize(("m", "n"), [(8, 8), (16, 8)])
def test_large_tiles_come_to_the_peak(m, n, arch):
    found = best_plan(ThreadTile(m, n), register_file(arch))
    assert found.report.peak_fraction >= 0.98
    assert found.proven


@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("tile", TILES, ids=str)
def test_no_named_order_is_better(tile, arch):
    file, runs = register_file(arch), Runs.widest(tile)
    plans = [
        Plan(
            allocate(placement(tile, where, runs, file.banks), runs, file.banks), made(tile.thread_m, tile.thread_n), f
        )
        for where, made, f in product(ACCUMULATORS, ORDERS.values(), ("next", "held", "none"))
    ]
    found = best_plan(tile, file)
    assert found.report.cycles <= min(cycles(plans, arch)) + 1e-9
    assert cycles([found.plan], arch) == [found.report.cycles]


@pytest.mark.parametrize("tile", [ThreadTile(8, 8), ThreadTile(8, 4)], ids=str)
@pytest.mark.parametrize(("sets", "vector_c"), [(1, 4), (2, 1)])
def test_what_is_found_keeps_to_the_runs(tile, sets, vector_c):
    runs = Runs.widest(tile, 4, vector_c)
    found = best_plan(tile, runs=runs, sets=sets).plan
    assert len(found.allocation.a) == sets
    for rows, length in zip(vars(found.allocation).values(), (runs.a, runs.b, runs.c), strict=True):
        for row in rows:
            starts = row[::length]
            assert all(start % length == 0 for start in starts)
            assert list(row) == [start + offset for start in starts for offset in range(length)]


def test_free_registers_of_2x2_against_every_plan():
    """All 24 orders with all 256 parities, each on register numbers of the test's own."""
    best = float("inf")
    cells = ORDERS["row"](2, 2)
    for parities in product((0, 1), repeat=8):
        used = {0: iter(range(0, 254, 2)), 1: iter(range(1, 254, 2))}
        numbers = [next(used[parity]) for parity in parities]
        registers = Allocation((tuple(numbers[:2]),), (tuple(numbers[2:4]),), (tuple(numbers[4:6]), tuple(numbers[6:])))
        if least_cycles(registers, register_file()) > 4:
            continue  # a bank has to serve more reads than there are cycles
        orders = ((cells[0], *rest) for rest in permutations(cells[1:]))
        best = min(best, *cycles([Plan(registers, order, "held") for order in orders], "sm_90"))
        if best == 4:
            break
    assert best_plan(ThreadTile(2, 2), runs=Runs()).report.cycles == best


@pytest.mark.parametrize(("m", "n", "seed"), [(2, 2, 1), (2, 2, 5), (2, 3, 1)])
def test_orders_of_given_registers_against_every_order(m, n, seed):
    registers = scattered(m, n, seed)
    found = best_order(registers)
    orders = permutations(ORDERS["row"](m, n))
    every = cycles([Plan(registers, order, flags) for order in orders for flags in ("held", "none")], "sm_90")
    assert found.report.cycles == min(every)
    assert found.proven
    assert found.plan.allocation == registers


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 99), st.sampled_from(ARCHES), st.data())
def test_nothing_betters_the_bounds(m, n, seed, arch, data):
    registers, file = scattered(m, n, seed), register_file(arch)
    order = data.draw(st.permutations(ORDERS["row"](m, n)))
    (taken,) = cycles([Plan(registers, tuple(order), "held")], arch)
    assert taken >= least_cycles(registers, file) - 1e-9
    assert least_cycles(registers, file) >= least_cycles_anywhere(ThreadTile(m, n), file)


def test_bounds_on_paper():
    # 16 FFMA read 16 accumulators and 8 fragments, 12 of each bank; with all of them even, 24 of one
    even = Allocation(
        ((0, 2, 4, 6),), ((8, 10, 12, 14),), tuple(tuple(range(16 + 8 * i, 24 + 8 * i, 2)) for i in range(4))
    )
    assert least_cycles_anywhere(ThreadTile(4, 4), register_file("sm_90")) == 16
    assert least_cycles(even, register_file("sm_90")) == 24
    # two k steps read the accumulators twice
    assert least_cycles(Allocation(even.a * 2, even.b * 2, even.c), register_file("sm_90")) == 48
    # a sub-core of Volta starts an FFMA every other cycle
    assert least_cycles(even, register_file("sm_70")) == 32
    # one FFMA reads three registers, two of them of one bank; two sets do so twice
    assert least_cycles_anywhere(ThreadTile(1, 1), register_file("sm_90"), sets=2) == 4


def test_local_search_goes_beyond_the_named_orders(monkeypatch):
    registers = scattered(8, 8, 1)
    found = best_order(registers)
    assert best_order(registers) == found  # the same seed finds the same
    monkeypatch.setattr("gemmsim.registers.tile_search.MOST_BATCHES", 0)
    assert found.report.cycles < best_order(registers).report.cycles


def test_fewest_reads_among_the_fast():
    # 8x8: 64 accumulators, 8 A fragments once, 8 B fragments for each of 4 pairs of rows, 2 of them kept at each turn
    assert best_plan(ThreadTile(8, 8)).reads == 64 + 8 + 8 * 4 - 2 * 3


def test_a_tile_that_no_thread_holds():
    with pytest.raises(InputError, match="15x13 fits"):
        best_plan(ThreadTile(15, 14), sets=2)
