"""The traffic below L1: closed forms against caches run sector by sector, and against what an H200 counted."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cache_simulator import Machine, run
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gemmsim.caches.company import company
from gemmsim.caches.dram import dram_reads, passes
from gemmsim.caches.merging import crossing_share, merged_sectors, strides
from gemmsim.caches.panels import panels, sectors_of_runs
from gemmsim.caches.reuse import Capacity
from gemmsim.caches.scalars import apart, in_step, l2_capacity, lag, scalars
from gemmsim.caches.traffic import cache_traffic, l1_bytes, l1_fills, past_l1
from gemmsim.device import capability, device
from gemmsim.kernels import KERNELS, kernel
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.tiling import Tiling

H200 = device("h200")
SECTOR = 8
"""Elements."""


@st.composite
def launches(draw, ragged=False):
    """(problem, tiling, machine of the slow route) small enough for that."""
    unit = 1 if ragged else SECTOR
    sizes = st.integers(24 // unit, 72 // unit).map(lambda size: size * unit)
    tiles = st.sampled_from([8, 16, 24])
    tiling = Tiling(
        draw(tiles), draw(tiles), draw(st.sampled_from([8, 16])),
        split_k=draw(st.sampled_from([1, 1, 2])), group=draw(st.sampled_from([1, 1, 2, 3])),
    )  # fmt: skip
    machine = Machine(draw(st.integers(1, 5)), draw(st.integers(1, 2)), 10**6, 10**6)
    return Problem(draw(sizes), draw(sizes), draw(sizes)), tiling, machine


def slow(problem, tiling, machine, **options):
    """The slow route: sectors."""
    return run(problem.m, problem.n, problem.k, tiling, machine, **options)


def closed(problem, tiling, machine, apart=0.0):
    """Sectors that the closed form reads from memory, each block a convoy of its own."""
    l2 = Capacity(32 * machine.l2_sectors, 32 * machine.l2_sectors)
    slots = machine.sms * machine.blocks_per_sm
    a, b = dram_reads(problem, tiling, company(problem, tiling, slots), l2, slots, apart)
    return (problem.m * problem.k * a + problem.k * problem.n * b) / SECTOR


@given(st.integers(1, 40), st.integers(1, 40))
def test_sectors_of_runs_are_an_average_over_starts(elements, spacing):
    starts = range(0, SECTOR * spacing, spacing)
    each = [(start % SECTOR + elements - 1) // SECTOR + 1 for start in starts]
    assert sectors_of_runs(elements, spacing, 4) == pytest.approx(np.mean(each))


@given(launches())
def test_panels_are_what_blocks_read_without_sharing(launch):
    problem, tiling, _ = launch
    alone = Machine(1, 1, 0, 10**6)
    assert panels(problem, tiling).total == slow(problem, tiling, alone)["l1_fills"]


@given(launches(ragged=True))
def test_panels_of_ragged_rows_are_off_by_their_ends_alone(launch):
    problem, tiling, _ = launch
    assume(tiling.split_k == 1)
    counted = 0
    for row, column in itertools.product(range(0, problem.m, tiling.block_m), range(0, problem.n, tiling.block_n)):
        rows = range(row, min(problem.m, row + tiling.block_m))
        right = min(problem.n, column + tiling.block_n) - 1
        counted += sum((i * problem.k + problem.k - 1) // 8 - i * problem.k // 8 + 1 for i in rows)
        counted += sum((p * problem.n + right) // 8 - (p * problem.n + column) // 8 + 1 for p in range(problem.k))
    assert panels(problem, tiling).total == pytest.approx(counted, rel=0.03)


@given(launches())
def test_all_that_fits_is_read_once(launch):
    problem, tiling, machine = launch
    compulsory = (problem.m * problem.k + problem.k * problem.n) / SECTOR
    assert slow(problem, tiling, machine)["dram_reads"] == compulsory
    assert closed(problem, tiling, machine) == compulsory


@given(launches())
@example((Problem(32, 24, 24), Tiling(8, 24, 8, group=2), Machine(3, 1, 0, 1)))  # cuts a band of a single column
def test_where_nothing_fits_each_block_reads_for_itself(launch):
    problem, tiling, machine = launch
    assume(tiling.split_k == 1)
    nothing = Machine(machine.sms, machine.blocks_per_sm, 0, 1)
    everything = panels(problem, tiling).total
    assert closed(problem, tiling, nothing) == pytest.approx(everything)
    assert slow(problem, tiling, nothing)["dram_reads"] == everything


@given(launches(), st.floats(0, 1))
def test_between_these_bounds_whatever_fits(launch, apart):
    problem, tiling, machine = launch
    compulsory = (problem.m * problem.k + problem.k * problem.n) / SECTOR
    sizes = [1, 20, 100, 200, 400, 800, 10**5]
    found = [
        closed(problem, tiling, Machine(machine.sms, machine.blocks_per_sm, 0, sectors), apart) for sectors in sizes
    ]
    assert compulsory <= found[-1] + 1e-6
    assert found[0] <= 2 * panels(problem, tiling).total + compulsory * tiling.split_k  # a burst is two sectors
    assert all(small >= large - 1e-6 for small, large in itertools.pairwise(found))


def drawn(seed, count):
    """Launches of a scaled-down device, with an L2 from a tenth of A and B to half as much again."""
    chance = np.random.default_rng(seed)
    for _ in range(count):
        tiling = Tiling(
            *(int(chance.choice([8, 16])) for _ in range(3)),
            group=int(chance.choice([1, 1, 2, 3])), split_k=int(chance.choice([1, 1, 1, 2])),
        )  # fmt: skip
        problem = Problem(*(int(size) * SECTOR for size in chance.integers(6, 16, 3)))
        compulsory = (problem.m * problem.k + problem.k * problem.n) / SECTOR
        l2 = int(compulsory * chance.uniform(0.1, 1.5))
        slots = Machine(int(chance.integers(2, 9)), int(chance.choice([1, 2])), 0, l2)
        together = company(problem, tiling, slots.sms * slots.blocks_per_sm)
        turn = tiling.split_k * tiling.block_k * (together.rows * tiling.block_m + together.columns * tiling.block_n)
        if turn / SECTOR < 0.7 * l2:  # what is read at the same time fits in every L2
            yield problem, tiling, slots


@pytest.mark.parametrize("spread", [0.0, 1.0])
def test_in_between_the_closed_form_is_near_and_often_exact(spread):
    errors = []
    for problem, tiling, machine in drawn(seed=7, count=50):
        if tiling.split_k == 1 or not spread:
            counted = slow(problem, tiling, machine, spread=spread)["dram_reads"]
            errors.append(abs(closed(problem, tiling, machine, apart=spread) / counted - 1))
    assert len(errors) > 25
    assert np.mean(errors) < 0.13
    assert np.mean(np.array(errors) < 1e-9) > 0.4


def test_blocks_that_start_apart_read_more():
    """With starts spread over a whole life the slow route reads far more, and so does the closed form."""
    problem, tiling, machine = Problem(128, 64, 64), Tiling(8, 16, 8), Machine(8, 2, 0, 350)
    for found in (
        [slow(problem, tiling, machine, spread=spread)["dram_reads"] for spread in (0.0, 1.0)],
        [closed(problem, tiling, machine, spread) for spread in (0.0, 1.0)],
    ):
        assert found[1] > 1.5 * found[0]


@given(st.integers(1, 500), st.floats(1, 500))
def test_passes_by_counting_waves(tiles, together):
    whole, rest = divmod(tiles, together)
    expected = whole + min(1, rest)
    assert passes(tiles, together) == pytest.approx(max(1, expected), abs=1.01e-6 * tiles) or rest > together - 1e-6


@given(launches(), st.integers(1, 40))
def test_company_by_listing_blocks(launch, slots):
    """Where waves are whole bands, or whole columns of one, rows and columns are those of the first wave."""
    problem, tiling, _ = launch
    assume(tiling.split_k == 1)
    down, across = -(-problem.m // tiling.block_m), -(-problem.n // tiling.block_n)
    group = min(tiling.group, down)
    assume(down % group == 0)
    slots = min(slots, down * across)
    assume(slots % (group * across) == 0 or (slots < group * across and slots % group == 0))
    order = [(band * group + i, j) for band in range(down // group) for j in range(across) for i in range(group)]
    found = company(problem, tiling, slots)
    assert found.rows == len({i for i, _ in order[:slots]})
    assert found.columns == len({j for _, j in order[:slots]})
    assert found.waves == pytest.approx(down * across / slots)


@given(st.integers(100, 1000), st.integers(2, 1000), st.floats(0.5, 3000))
def test_kept_on_the_way_is_the_mean_of_kept(least, more, between):
    l2 = Capacity(least, least + more)
    steps = np.linspace(0, between, 20001)
    assert l2.kept_on_the_way(between) == pytest.approx(np.mean(l2.kept(steps)), abs=5e-3)


def test_a_capacity_between_two_bounds():
    l2 = Capacity(100, 200)
    assert l2.kept(np.array([0, 100, 150, 200, 900])).tolist() == [1, 1, 0.5, 0, 0]
    assert Capacity(100, 100).kept(np.array([99, 100, 101])).tolist() == [1, 0, 0]


def test_one_launch_on_paper():
    """4096 cubed in tiles of 128 x 128, 2 blocks an SM: 264 run at once, 8.25 rows of 32 tiles."""
    traffic = cache_traffic(Problem(4096, 4096, 4096), kernel("vectorized"), tiling_128(), H200, 2)
    assert traffic.l1_fill_sectors == 32 * 2 * 4096 * 4096 / 8  # every column of tiles reads A, every row B
    # lanes have 8 columns, and store 4 at a time: each sector twice, and half of them through both parts of L2
    assert traffic.l2_write_sectors == 1.5 * 2 * 4096 * 4096 / 8
    # A once, and once more the 3 of 32 rows that one wave begins and the next one ends; B, 67 MB, for each of 4 waves
    assert traffic.dram_read_bytes == pytest.approx((1 + 3 / 32 + 4) * 4 * 4096**2)
    assert traffic.bytes["dram"] == round(float(traffic.dram_read_bytes)) + 4 * 4096**2


def test_code_is_counted_beside_the_matrices():
    """One block: what is counted of so small a launch is mostly code, from memory once, from L2 for each GPC."""
    traffic = cache_traffic(Problem(17, 19, 23), kernel("vectorized"), tiling_128(), H200, 2)
    code = 6500 + 25 * 8 * 8 * 8
    assert traffic.counters["dram_read_bytes"] == pytest.approx(4 * (17 * 23 + 23 * 19) + code, abs=64)
    assert traffic.code_sectors * 32 == pytest.approx(code * (132 / 16 + 1), rel=0.01)
    assert traffic.bytes["dram"] < code


def test_blocks_of_a_gpc_read_as_one():
    """8 x 16 tiles at once, 1 block an SM: a GPC has a row of tiles, whose 16 blocks read the same rows of A."""
    problem, ladder = Problem(1024, 1024, 1024), kernel("register")
    tiling = ladder.tiling(block_m=128, block_n=64, block_k=16, thread_m=8, thread_n=4)
    fills = panels(problem, tiling)
    assert merged_sectors(problem, ladder, tiling, fills, H200, 1, 1) == pytest.approx(fills.a * (1 - 1 / 3.6))
    # a line of A is used in one GPC, so in one half of L2: every second crosses; one of B in 8, so nearly all do
    a, b = strides(problem, tiling).a, strides(problem, tiling).b
    assert (a, b) == (1, 16)
    assert crossing_share(16, a, 1, 2) == 0.5
    assert crossing_share(8, b, 1, 2) == 1 - 0.5**8
    assert crossing_share(16, a, 1, 1) == 0


def test_how_well_blocks_keep_step():
    """4 blocks a multiprocessor, 9 waves; where a thread has one element the fourth root of 36 of them counts."""
    problem, values = Problem(2048, 2048, 1024), scalars()["in_step"]
    found = {
        name: in_step(problem, kernel(name), kernel(name).tiling(**dict(kernel(name).default_tile)), H200, 4, 9)
        for name in KERNELS
    }
    waiting = 4 ** -values["blocks"] * 9 ** -values["waves"]
    assert found["register"] == found["vectorized"] == found["warp_tiled"] == waiting
    assert found["double_buffer"] == found["async"] == waiting**2
    assert found["shared"] == pytest.approx(6**-0.5)
    naive = kernel("naive").tiling(block_m=16, block_n=16)  # 2 cycles of 128 multiply-adds for every k
    assert in_step(problem, kernel("naive"), naive, H200, 4, 9) == pytest.approx(7e3 / (36 * 2 * 1024))
    assert all(in_step(problem, ladder, tiling_128(), H200, 1, 1) == 1 for ladder in map(kernel, ("register", "async")))


def test_how_far_blocks_fall_apart():
    """64 x 64 tiles: 512 bytes of A and B for every k, which takes 32 cycles to multiply, so 16 bytes a cycle."""
    problem, waiting, ahead = Problem(4096, 4096, 4096), kernel("register"), kernel("double_buffer")
    tiling = replace(tiling_128(), block_m=64, block_n=64)
    assert [apart(problem, waiting, tiling, H200, blocks) for blocks in (1, 5, 8)] == [0, 0, 1]  # 16, 80, 128
    assert apart(problem, ahead, replace(tiling, stages=2), H200, 3) == pytest.approx((96 - 90) / (125 - 90))
    assert apart(problem, ahead, replace(tiling, stages=2), H200, 4) == 1
    # tiles of 128 x 128 need half of it
    assert apart(problem, ahead, replace(tiling_128(), stages=2), H200, 4) == 0
    assert apart(problem, kernel("shared"), Tiling(32, 32, 32), H200, 2) == 1
    # of copies one more tile is under way than the ring has stages
    assert apart(problem, kernel("async"), replace(tiling, stages=2), H200, 2) == pytest.approx((96 - 90) / (125 - 90))
    # who waits for a tile and transposes it begins earlier
    assert apart(problem, kernel("vectorized"), tiling, H200, 5) == pytest.approx((80 - 30) / (150 - 30))
    sizes = [Problem(4096, 4096, k) for k in (1000, 8000)]
    assert [lag(size, kernel("vectorized")) for size in sizes] == [1000 / 4000, 1]
    assert [lag(size, waiting) for size in sizes] == [1, 1]
    # a row of B is read a sector at a time, or in bursts
    naive = kernel("naive")
    assert [apart(problem, naive, Tiling(256 // columns, columns), H200, 8) for columns in (8, 16)] == [1, 0.2]


def test_blocks_that_take_turns_share_rows_in_l1():
    """4096 cubed, 2 blocks of 128 x 128 an SM: 2 in 5 of all but the first wave's 264 of 1024 have a neighbour."""
    problem, ladder = Problem(4096, 4096, 4096), kernel("warp_tiled")
    tiling = ladder.tiling(block_m=128, block_n=128, block_k=8, warp_m=64, warp_n=64, thread_m=16, thread_n=8)
    once = panels(problem, tiling)
    found = l1_fills(problem, ladder, tiling, H200, 2, 2, 0.0)
    assert found.a == pytest.approx(once.a * (1 - (1 - 264 / 1024) * 2 / 5 / 2))
    assert found.b == once.b
    assert l1_fills(problem, ladder, tiling, H200, 2, 2, 1.0) == once
    assert l1_fills(problem, kernel("vectorized"), tiling_128(), H200, 2, 2, 0.0) == once  # 256 threads


@given(st.floats(1, 100), st.floats(1, 500), st.floats(0.1, 10))
def test_apart_by_more_lives_finds_less(least, between, lives):
    l2 = Capacity(least, 1.5 * least)
    assert l2.kept_apart(between, 0) == 1
    assert l2.kept_apart(between, 1) == pytest.approx(l2.kept_on_the_way(between))
    assert l2.kept_apart(between, lives) >= l2.kept_apart(between, lives + 1) - 1e-12
    assert l2.kept_apart(between, 1e9) == pytest.approx(l2.kept(between), abs=1e-6)
    assert l2.kept_apart(between, lives, least) <= l2.kept_apart(between, lives) + 1e-12


def probed():
    """What was counted of launches that show how L2 and the way there behave."""
    compared = pytest.importorskip("campaigns.caches_compare", reason="no campaigns beside the tests")
    file = Path(compared.__file__).parent / "measured" / "caches_probe_h200.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_l2_keeps_what_an_h200_kept():
    """Data that all read, other data between, and the first again: by what these take of both halves of L2."""
    l2, errors = l2_capacity(H200), []
    for one in probed():
        if "kind" in one:
            first, between = 10**6 * one["first_megabytes"], 10**6 * one["between_megabytes"]
            users = 132 if one["kind"] == "read by all" else 1
            kept = l2.kept(l2.taken(first, 132) + l2.taken(between, users))
            once = first + (one["kind"] != "written") * between
            errors.append(abs(1 - kept - (one["dram_read_bytes"] - once) / first))
    assert len(errors) == 42
    assert np.mean(errors) < 0.05
    assert max(errors) < 0.25


def test_reads_meet_within_a_gpc_as_an_h200_counted_it():
    """Of the pairs with one multiprocessor those of its GPC read as one; and of many on it not more than about four."""
    at_once = [one for one in probed() if one.get("delay_cycles") == 0 and not one["in_l2"]]
    merged = {
        tuple(one.get("pair", ())): one["l1_fill_sectors"] / one["l2_read_sectors_for_l1"]
        for one in at_once if "pair" in one
    }  # fmt: skip
    values = scalars()["merged"]
    assert len(merged) == 131
    assert sum(times > 1.9 for times in merged.values()) == values["gpc_sms"] - 1
    assert sum(times < 1.01 for times in merged.values()) == 132 - values["gpc_sms"]
    many = [one for one in at_once if one.get("multiprocessors", 0) >= 32]
    assert values["most"] == pytest.approx(
        np.mean([one["l1_fill_sectors"] / one["l2_read_sectors_for_l1"] for one in many]), rel=0.03
    )


def tiling_128():
    return kernel("vectorized").tiling(block_m=128, block_n=128, block_k=8, thread_m=8, thread_n=8)


def test_l1_is_what_shared_memory_leaves():
    tiling = tiling_128()  # 8192 bytes, and 1024 that the system takes
    assert l1_bytes(kernel("vectorized"), tiling, H200, 1) == 262_144 - 16_384
    assert l1_bytes(kernel("vectorized"), tiling, H200, 4) == 262_144 - 65_536
    assert l1_bytes(kernel("naive"), kernel("naive").tiling(), H200, 8) == 262_144
    assert l1_bytes(kernel("vectorized"), tiling, replace(H200, capability=capability("6.1")), 1) == 0


def test_arrays_and_numbers_alike():
    sizes = [(4096, 4096, 4096), (1000, 700, 300), (2048, 8192, 640)]
    for ladder in KERNELS.values():
        tiling = ladder.tiling(**dict(ladder.default_tile))
        alone = [cache_traffic(Problem(*size), ladder, tiling, H200, 2) for size in sizes]
        m, n, k = np.array(sizes).T
        together = cache_traffic(Problem(m, n, k), ladder, tiling, H200, np.array([2, 2, 2]))
        for name, values in vars(together).items():
            each = np.broadcast_to(values, len(sizes))  # code is the same whatever the sizes
            assert each == pytest.approx([getattr(one, name) for one in alone]), (ladder.name, name)


def test_copies_past_l1_fetch_what_shifts_in_halves():
    """Rows of B start with a sector; rows of its tile in shared memory do not, where they are padded by 4."""
    problem, ladder = Problem(512, 512, 512), kernel("async")
    plain, padded = (ladder.tiling(**dict(ladder.default_tile) | {"pad_b": pad}) for pad in (0, 4))
    assert past_l1(problem, ladder, plain) == 1
    assert past_l1(problem, ladder, padded) == 1.5
    assert past_l1(Problem(512, 516, 512), ladder, plain) == 1.5
    assert past_l1(Problem(512, 516, 512), ladder, padded) == 1
    assert past_l1(Problem(512, 514, 512), ladder, plain) == 1  # narrower copies go through L1


@pytest.fixture(scope="module")
def counted():
    """The points of the shipped campaign beside the model."""
    compared = pytest.importorskip("campaigns.caches_compare", reason="no campaigns beside the tests")
    return list(compared.compared(compared.SHIPPED))


@pytest.mark.parametrize(
    ("larger", "least", "name", "bound"),
    [
        (True, 250, "l1_fill_sectors", 0.03),
        (False, 90, "l1_fill_sectors", 0.03),
        (True, 250, "l2_read_sectors", 0.07),
        (False, 90, "l2_read_sectors", 0.083),
        (True, 250, "dram_read_bytes", 0.1),
        (False, 90, "dram_read_bytes", 0.02),
    ],
)
def test_an_h200_counted_it_so(counted, larger, least, name, bound):
    """Mean absolute errors over all points of the campaign, those that shaped nothing among them, as docs/caches.md has
    them: no better than they are, and no worse."""
    errors = [abs(point.error(name)) for point in counted if point.larger == larger]
    assert len(errors) >= least
    assert np.mean(errors) <= bound


def test_the_ladder_as_an_h200_counted_it():
    """Counts of the shipped records: what fits in L2 nearly exact, 4096 cubed with few exceptions within a third."""
    records, _ = read_records(shipped_records())
    errors = {True: [], False: []}
    for record in records:
        point = record.point
        if point.problem.compulsory_bytes > 10**7:
            found = cache_traffic(
                point.problem, kernel(point.kernel), point.tiling, H200, record.resources["blocks_per_sm"]
            )
            error = abs(found.dram_read_bytes / record.counters["dram_read_bytes"] - 1)
            errors[point.problem.compulsory_bytes > H200.l2_bytes].append(error)
    assert np.mean(errors[False]) < 0.02
    assert np.mean(errors[True]) < 0.10
    assert np.mean(np.array(errors[True]) < 0.35) > 0.9


def test_small_launches_as_an_h200_counted_them():
    """Of less than a megabyte: to a good part code, which no bound on large ones would miss."""
    records, _ = read_records(shipped_records())
    errors = []
    for record in records:
        point, known = record.point, record.counters
        if point.problem.compulsory_bytes < 10**6:
            found = cache_traffic(
                point.problem, kernel(point.kernel), point.tiling, H200, record.resources["blocks_per_sm"]
            ).counters
            errors.append([abs(found[name] / known[name] - 1) for name in ("l2_read_sectors", "dram_read_bytes")])
    assert len(errors) > 50
    of_l2, of_dram = np.mean(errors, axis=0)
    assert of_l2 < 0.15
    assert of_dram < 0.06
