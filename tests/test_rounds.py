"""Time in closed form, by what must hold whatever its scalars are, and the short cut for a great many."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from campaigns import rounds as campaign
from campaigns.rounds import FILE, values, with_value, written
from gemmsim.analytic.demands import scalars, served
from gemmsim.analytic.rounds import launch_rounds, write_cycles
from gemmsim.calibration import Calibration, calibration
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.ladder import default_tiling
from gemmsim.pipeline.timing import timing
from gemmsim.predict import counted_shared, predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.search.quick_times import estimated_shared, quick_times
from gemmsim.search.spaces import space
from gemmsim.search.tables import size_of
from gemmsim.tiling import Tiling

H200 = device("h200")
kernels = st.sampled_from(sorted(KERNELS))
sizes = st.integers(1, 5000)


def cycles(problem, name, of=None, resident=2, spilled=0, registers=128):
    kernel, tiling = KERNELS[name], default_tiling(KERNELS[name])
    widths = kernel.widths(problem, tiling)
    shared = counted_shared(kernel, tiling, widths, 4)
    return launch_rounds(problem, kernel, tiling, widths, H200, shared, resident, registers, spilled, of)


@given(kernels, sizes, sizes, sizes)
def test_more_work_takes_no_less_time(name, m, n, k):
    here = cycles(Problem(m, n, k), name)
    deeper = cycles(Problem(m, n, k + 4 * 64), name)
    taller = cycles(Problem(2 * m, n, k), name)
    assert 0 < here.latency <= here.cycles
    assert deeper.cycles >= here.cycles * (1 - 1e-9)
    assert taller.cycles >= here.cycles * (1 - 1e-9)


@pytest.mark.parametrize("name", KERNELS)
def test_time_is_linear_in_the_depth_once_the_place_of_the_data_is_the_same(name):
    depths = [4096 * step for step in (10, 20, 30)]  # nothing stays in L2
    short, middle, long = (float(cycles(Problem(4096, 4096, k), name).cycles) for k in depths)
    assert long - middle == pytest.approx(middle - short, rel=1e-6)


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize(
    "scalar", ["shared_request_cycles", "global_load_cycles", "tile_cycles", "unhidden_share", "unstaged_latencies",
               "split_cycles"]
)  # fmt: skip
def test_no_demand_makes_a_launch_faster(name, scalar):
    problem = Problem(1000, 1900, 2100)
    more = replace(scalars(), **{scalar: 2 * getattr(scalars(), scalar)})
    assert cycles(problem, name, more).cycles >= cycles(problem, name).cycles


@pytest.mark.parametrize("name", [name for name in KERNELS if KERNELS[name].staged])
def test_spilled_registers_cost(name):
    problem = Problem(2048, 2048, 2048)
    assert cycles(problem, name, spilled=200).cycles > cycles(problem, name).cycles


@pytest.mark.parametrize("name", [name for name in KERNELS if KERNELS[name].staged])
def test_what_spills_costs_more_once_l1_cannot_hold_it(name):
    """The same words of a thread, once of few blocks and once of many that L1 does not hold together."""
    problem = Problem(8192, 8192, 512)
    costs = []
    for resident in (1, 16):
        free, spilled = (
            float(cycles(problem, name, resident=resident, registers=255, spilled=each).cycles) for each in (0, 400)
        )
        costs.append(spilled / free)
    assert costs[0] < costs[1]


def test_a_thread_with_fewer_registers_waits_more():
    problem = Problem(1024, 1024, 4096)
    for name in (name for name, kernel in KERNELS.items() if kernel.thread_tiled and not kernel.copies):
        few, many = (cycles(problem, name, spilled=100, registers=each).cycles for each in (64, 128))
        assert few > many


@given(st.integers(1, 1000))
def test_a_few_blocks_write_as_fast_as_a_multiprocessor_can_and_many_share_the_rate(blocks):
    known = calibration(H200)
    alone = 1 / known.l2_write_bytes_per_cycle_per_sm
    shared = H200.sms * H200.clock_hz / known.l2_write_bytes_per_s
    found = write_cycles(blocks, H200, known)
    assert found == pytest.approx(max(alone, shared * min(blocks, H200.sms) / H200.sms))
    assert write_cycles(1, H200, known) == pytest.approx(alone)
    assert write_cycles(H200.sms, H200, known) == pytest.approx(shared)
    nobody_measured = Calibration("none")
    assert write_cycles(blocks, H200, nobody_measured) == pytest.approx(
        2 * min(blocks, H200.sms) * H200.clock_hz / H200.l2_bytes_per_s
    )


@given(kernels, st.integers(2, 9))
def test_waves_of_one_block_follow_each_other(name, waves):
    """Nothing of a wave hides behind the next where a multiprocessor has one block at a time: each takes the same, and
    a turnover."""
    tiling = default_tiling(KERNELS[name])
    problem = [Problem(tiling.block_m, H200.sms * number * tiling.block_n, 40_000) for number in (1, waves, waves + 1)]
    first, several, more = (cycles(each, name, resident=1) for each in problem)
    later = more.cycles - several.cycles
    assert several.cycles - first.cycles == pytest.approx((waves - 1) * later, rel=1e-9)
    assert later > timing(H200, calibration(H200)).block_turnover_cycles


@given(st.integers(1, 32), st.floats(1, 1e4), st.floats(1, 1e4), st.sampled_from([0.0, 0.25, 0.5]))
def test_users_of_one_resource(users, demand, elsewhere, over):
    """What waiting for each other takes: nothing for one user, at least its service for each, at most one after the
    other."""
    alone = demand + elsewhere
    found = served(users, demand, alone, over)
    assert max(users * demand, alone) * (1 - 1e-9) <= found <= (users * demand + elsewhere) * (1 + 1e-9)
    assert served(1, demand, alone, over) == pytest.approx(alone)
    assert served(users, demand, demand, over) == pytest.approx(users * demand)
    queue = (users - 1) * demand * (found - elsewhere - over * demand) / found  # that it finds, what is over taken off
    assert found == pytest.approx(max(users * demand, alone + queue))
    assert found <= served(users, demand, alone) * (1 + 1e-9)


def test_two_of_the_few_blocks_behind_a_first_wave_in_step_meet():
    """Ten more than fill the GPU once take as long as two more for each multiprocessor, but where a sub-core has two
    warps of a block."""
    kernel = KERNELS["async"]

    def of(blocks, thread_m):
        tiling = kernel.tiling(
            block_m=64, block_n=256, block_k=8, warp_m=4 * thread_m, warp_n=64, thread_m=thread_m, thread_n=8
        )
        problem = Problem(64 * blocks, 256, 40_000)
        widths = kernel.widths(problem, tiling)
        shared = counted_shared(kernel, tiling, widths, 4)
        return float(launch_rounds(problem, kernel, tiling, widths, H200, shared, 2, 255).cycles)

    few, many = (2 * H200.sms + more for more in (10, H200.sms + 10))
    assert of(few, 16) == pytest.approx(of(many, 16), rel=1e-3)
    assert of(few, 8) < 0.95 * of(many, 8)


def test_no_scalar_is_chosen_on_what_judges_formulas_or_fits_error_bars():
    used = {str(name) for each in campaign.measured(H200) for name in each.campaign}
    assert used == set(campaign.CHOSEN_ON)
    assert used.isdisjoint({"third", "fourth"})


def test_a_few_last_blocks_find_more_in_l2_than_many(monkeypatch):
    """Loads from memory that take 20,000 cycles: the second wave waits for them the less the fewer blocks it has."""
    far = replace(calibration(H200), cold_latency_cycles=2e4, cold_slowest_cycles=2e4)
    monkeypatch.setattr("gemmsim.analytic.rounds.calibration", lambda _: far)
    of = KERNELS["register"]
    tiling = default_tiling(of)

    def of_wave(blocks: int) -> float:
        problem = Problem(tiling.block_m * blocks, tiling.block_n, 64)
        return float(predict(problem, of, tiling, H200).time_s)

    first, few, many = (of_wave(count) for count in (264, 264 + 20, 264 + 132))  # one for a multiprocessor, at most
    assert 0 < few - first < 0.8 * (many - first)


@given(kernels, st.lists(st.tuples(sizes, sizes, sizes), min_size=1, max_size=5))
def test_arrays_go_through_the_same_formulas(name, triples):
    kernel, tiling = KERNELS[name], default_tiling(KERNELS[name])
    many = predict(Problem(*np.array(triples).T), kernel, tiling, H200, registers_per_thread=64)
    each = [predict(Problem(*triple), kernel, tiling, H200, registers_per_thread=64) for triple in triples]
    assert np.allclose(many.time_s, [one.time_s for one in each], rtol=1e-12)
    assert list(np.broadcast_to(many.bound_by, len(each))) == [one.bound_by for one in each]


def test_the_scalars_say_where_they_are_from():
    assert "held out" in scalars().source
    assert set(scalars().pace) == {name for name, kernel in KERNELS.items() if kernel.thread_tiled}


def test_the_script_that_chooses_them_writes_numbers_and_leaves_words():
    text = FILE.read_text(encoding="utf-8")
    assert written(text, values(scalars())) == text
    before = f"async = {scalars().pace['async']:g}"
    assert written(text, {**values(scalars()), "async": 2.0}) == text.replace(before, "async = 2")
    more = with_value(with_value(scalars(), "async", 2.0), "split_cycles", 3.0)
    assert (more.pace["async"], more.split_cycles) == (2.0, 3.0)
    assert more.pace["register"] == scalars().pace["register"]


# The short cut


@pytest.mark.parametrize("name", ["shared", "register", "vectorized", "double_buffer", "warp_tiled", "async"])
def test_estimated_wavefronts_are_mostly_those_that_are_counted(name):
    """Half of the shipped configurations exactly; on average within a third; requests within 1 %."""
    kernel = KERNELS[name]
    of, requests = [], []
    points = {record.point for set_ in ("", "times") for record in read_records(shipped_records(set_))[0]}
    for point in (each for each in points if each.kernel == name):
        widths = kernel.widths(point.problem, point.tiling)
        estimated, counted = (
            estimated_shared(kernel, point.tiling, widths),
            counted_shared(kernel, point.tiling, widths, 4),
        )
        of.append(float(estimated.wavefronts) / counted.wavefronts)
        requests.append(float(estimated.requests) / counted.requests)
    assert np.median(of) == pytest.approx(1, abs=0.02)
    assert np.mean(np.abs(np.log(of))) < np.log(4 / 3)
    assert np.mean(np.abs(np.log(requests))) < 0.01


@pytest.mark.parametrize("name", KERNELS)
def test_the_short_cut_is_close_to_the_prediction_in_full(name):
    kernel, problem = KERNELS[name], Problem(1024, 2048, 512)
    tilings = next(space(kernel, problem, H200).chunks(512))
    quick = np.broadcast_to(quick_times(problem, kernel, tilings, H200), size_of(tilings))
    columns = {field: np.broadcast_to(value, quick.shape) for field, value in vars(tilings).items()}
    step = max(1, len(quick) // 16)
    rows = [
        Tiling(**{field: int(column[row]) for field, column in columns.items()}) for row in range(0, len(quick), step)
    ]
    full = np.array([float(predict(problem, kernel, tiling, H200).time_s) for tiling in rows])
    ratio = quick[::step] / full
    assert np.median(np.abs(np.log(ratio[np.isfinite(ratio)]))) < np.log(1.25)


@pytest.mark.parametrize("name", KERNELS)
def test_a_product_of_axes_takes_the_times_of_its_configurations(name):
    kernel, problem = KERNELS[name], Problem(1000, 1900, 2100)
    for table in islice(space(kernel, problem, H200).tables(100), 0, 40, 13):
        times_s = np.broadcast_to(quick_times(problem, kernel, table.tilings, H200), table.shape)
        listed = quick_times(problem, kernel, table.flat(np.arange(times_s.size)), H200)
        assert times_s.ravel() == pytest.approx(np.broadcast_to(listed, times_s.size), rel=1e-12)


@settings(max_examples=30)
@given(sizes, sizes, sizes)
def test_the_short_cut_takes_numbers_too(m, n, k):
    kernel, tiling = KERNELS["async"], default_tiling(KERNELS["async"])
    assert 0 < float(quick_times(Problem(m, n, k), kernel, tiling, H200)) < 100


def test_splitting_k_costs_a_meeting_of_its_blocks():
    kernel, tiling = KERNELS["async"], replace(default_tiling(KERNELS["async"]), split_k=4)
    problem = Problem(256, 256, 65536)
    widths = kernel.widths(problem, tiling)
    arguments = problem, kernel, tiling, widths, H200, counted_shared(kernel, tiling, widths, 4), 1, 128, 0
    free = launch_rounds(*arguments, replace(scalars(), split_cycles=0.0)).cycles
    assert launch_rounds(*arguments).cycles == pytest.approx(free + scalars().split_cycles)  # a single wave
