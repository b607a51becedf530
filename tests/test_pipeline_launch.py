"""The time of a launch: its waves, how many cycles are simulated for it, and what these add up to."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.caches.traffic import cache_traffic
from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.ladder import default_tiling
from gemmsim.occupancy import occupancy
from gemmsim.pipeline import launch
from gemmsim.pipeline.costs import costs
from gemmsim.pipeline.launch import MOST_PASSES, LaunchTime, below, simulate_launch
from gemmsim.pipeline.multiprocessor import Ran
from gemmsim.pipeline.program import Program, Step
from gemmsim.pipeline.programs import program_for
from gemmsim.pipeline.timing import ALL, Shares, Timing, timing
from gemmsim.pipeline.waves import ROUNDS, UNEVEN, Wave, busiest, drawn_together
from gemmsim.pipeline.work import Work
from gemmsim.problem import Problem
from gemmsim.register_table import resources
from gemmsim.traffic import ffma

H200 = device("h200")
SOME = Shares(0.3, 0.6)


def simulated(name: str, m: int, n: int, k: int, blocks_per_sm: int = 0) -> LaunchTime:
    """A launch of a kernel's default tiling, with as many blocks as fit."""
    of, problem = kernel(name), Problem(m, n, k)
    tiling = default_tiling(of)
    program = program_for(of, problem, tiling, H200)
    assert program is not None
    taken = resources(of, problem, tiling, H200.capability)
    fit = occupancy(
        H200.capability, taken.threads, taken.registers_per_thread, dynamic_shared_bytes=taken.shared_bytes
    )  # fmt: skip
    return simulate_launch(problem, of, tiling, H200, program, blocks_per_sm or int(fit.blocks_per_sm))


@cache
def of_4000_cubed(name: str) -> tuple[LaunchTime, float]:
    """The launch, and the seconds that its simulation took."""
    program_for(kernel(name), Problem(4000, 4000, 4000), default_tiling(kernel(name)), H200)  # the table is read once
    took_s: list[float] = []
    while not took_s or (min(took_s) >= 1 and len(took_s) < 5):  # other work on the machine slows the first ones
        before = time.process_time()
        found = simulated(name, 4000, 4000, 4000)
        took_s.append(time.process_time() - before)
    return found, min(took_s)


@pytest.fixture
def same_loads(monkeypatch) -> None:
    """All loads of all waves fare alike, whatever the sizes."""
    at = replace(timing(H200, calibration(H200)), l1_misses=0.5)
    monkeypatch.setattr(launch, "below", lambda *_: at)
    monkeypatch.setattr(launch, "costs", lambda _, of, tiling, slowest: costs(Problem(4096, 4096, 4096), of, tiling))


# Waves


def spread_ends(work: Work, *_) -> Ran:
    """Blocks that end one after the other at equal distances, a wave in 1000 cycles."""
    ends = tuple(1000.0 * (number + 1) / work.resident for number in range(work.blocks))
    return Ran(ends[-1], ends)


def ends_at_once(work: Work, *_) -> Ran:
    """Blocks of which all that a multiprocessor has end at once."""
    ends = tuple(1000.0 * (number // work.resident + 1) for number in range(work.blocks))
    return Ran(ends[-1], ends)


def with_ends(ran: Callable[..., Ran], blocks: int, blocks_per_sm: int) -> LaunchTime:
    """A launch of so many blocks, in a row, that end as is said."""
    of = kernel("shared")
    tiling = default_tiling(of)
    at = timing(H200, calibration(H200))
    step = Step(0.01, 0.01, ffma=1)  # next to nothing, so that waves take what `ran` says
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "run", ran)
        patch.setattr(launch, "below", lambda *_: at)
        patch.setattr(launch, "cache_traffic", lambda *_: None)
        patch.setattr(launch, "costs", lambda *_: {})
        problem = Problem(tiling.block_m, tiling.block_n * blocks, tiling.block_k)
        return simulate_launch(problem, of, tiling, H200, Program((), (step,), (), ()), blocks_per_sm)


@given(st.integers(1, 10**5), st.integers(1, 32))
def test_waves_hold_all_blocks(blocks: int, blocks_per_sm: int):
    found = with_ends(spread_ends, blocks, blocks_per_sm)
    first, *later = (wave for wave, _ in found.waves)
    resident = min(blocks_per_sm, -(-blocks // H200.sms))
    assert first._replace(cold=ALL) == Wave(resident, 1, ALL, min(blocks, H200.sms))
    # tiles are read ahead of the busiest where others have a block less
    assert (min(first.cold) < 1) == (H200.sms < blocks < resident * H200.sms and blocks % H200.sms > 0)
    assert all(wave.resident == resident and 1 <= wave.active_sms <= H200.sms for wave in later)
    # 1000 cycles a wave, each block its share of them: so many does the fastest multiprocessor get
    busiest = round(found.cycles * resident / 1000)
    assert found.cycles == pytest.approx(1000 * busiest / resident)
    even = -(-blocks // H200.sms)
    assert even <= busiest <= max(resident, even + resident * UNEVEN * (ROUNDS + 2))
    whole = sum(wave.times for wave, cycles in found.waves if cycles == pytest.approx(1000 * wave.times))
    assert busiest // resident == whole


def test_waves_by_hand():
    # two blocks on each of 132 multiprocessors, then twice as many again, then 42 more
    last = 42
    spread = with_ends(spread_ends, 132 * 2 * 3 + last, 2)
    cold = spread.waves[1][0].cold
    assert 0 <= min(cold) < max(cold) <= 1
    assert [wave for wave, _ in spread.waves] == [
        Wave(2, 1, ALL, 132), Wave(2, 2, cold, 132), Wave(2, 1, cold, last),
    ]  # fmt: skip
    assert [cycles for _, cycles in spread.waves] == pytest.approx([1000, 2000, 500])
    # where two end at once two begin, and the last wave is a whole one, on half as many multiprocessors
    at_once = with_ends(ends_at_once, 132 * 2 * 3 + last, 2)
    assert [wave for wave, _ in at_once.waves] == [
        Wave(2, 1, ALL, 132), Wave(2, 2, cold, 132), Wave(2, 1, cold, last // 2),
    ]  # fmt: skip
    assert at_once.cycles == 4000


def test_a_wave_takes_at_least_what_is_asked_most():
    """Waves that a few passes promise to take less than the issue slots of their instructions take these."""

    def hasty(work: Work, *_) -> Ran:
        ends = tuple(1000.0 + number for number in range(work.blocks))
        return Ran(ends[-1], ends)

    of, blocks = kernel("shared"), 132 * 3
    tiling = default_tiling(of)
    program, problem = Program((), (Step(64, 64, ffma=1),), (), ()), Problem(32, 32 * blocks, 32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(launch, "run", hasty)
        found = simulate_launch(problem, of, tiling, H200, program, 1)
    passes = tiling.thread_m * tiling.thread_n * problem.k
    least = 64 * passes * tiling.warps / 4
    assert (tiling.block_m, tiling.block_n) == (32, 32)
    later = found.waves[1:]
    assert later
    assert [cycles for _, cycles in later] == [wave.times * least for wave, _ in later]


@pytest.mark.parametrize(("name", "drawn"), [("vectorized", True), ("warp_tiled", False), ("shared", False)])
def test_blocks_of_thread_tiles_that_ask_for_little_end_in_step(name: str, drawn: bool, monkeypatch):
    asked: list[Ran] = []

    def spy(pair: Ran) -> Ran:
        asked.append(pair)
        return drawn_together(pair)

    monkeypatch.setattr(launch, "drawn_together", spy)
    for most in (math.inf, 0.0):
        monkeypatch.setattr(launch, "IN_STEP", most)
        simulated(name, 4096, 4096, 64, blocks_per_sm=2)
        assert len(asked) == drawn  # once where it is little, not again where it is not


def test_what_further_passes_add_holds_for_each_block(monkeypatch):
    """Ends of blocks carried on from a few passes are those of all passes, where passes take equally long."""
    pairs: list[Ran] = []

    def spy(pair: Ran, left: int, sms: int) -> int:
        pairs.append(pair)
        return busiest(pair, left, sms)

    monkeypatch.setattr(launch, "busiest", spy)
    program = Program((), (Step(16, 16, ffma=16),), (), (Step(40, 40),))
    of = kernel("shared")
    tiling = default_tiling(of)
    problem = Problem(tiling.block_m * 132, tiling.block_n * 5, 3200)  # five blocks a multiprocessor, three at once
    assert program.passes(float(tiling.thread_m * tiling.thread_n * problem.k))[0] > 2 * MOST_PASSES
    few = simulate_launch(problem, of, tiling, H200, program, 3)
    monkeypatch.setattr(launch, "MOST_PASSES", 10**9)
    monkeypatch.setattr(launch, "STEPS", 10**9)
    assert simulate_launch(problem, of, tiling, H200, program, 3).cycles == pytest.approx(few.cycles)
    assert pairs[0].block_ends == pytest.approx(pairs[1].block_ends)
    assert len(set(pairs[0].block_ends)) == 2 * 3


# Below L1


def below_of(wave: Wave, **known: Any) -> Timing:
    """The timing of a wave of a launch of `shared`."""
    problem, of = Problem(2048, 2048, 2048), kernel("shared")
    tiling = default_tiling(of)
    base = timing(H200, calibration(H200))
    moved = cache_traffic(problem, of, tiling, H200, 2)
    loaded = launch.loaded_bytes_of(problem, of, tiling)
    return below(base, wave, H200, replace(calibration(H200), **known), moved, loaded)


def test_few_multiprocessors_write_as_fast_as_each_of_them_can():
    base = timing(H200, calibration(H200))
    all_of_them = below_of(Wave(2, 1, SOME, 132), l2_write_bytes_per_cycle_per_sm=32.0).store_cycles_per_byte
    assert all_of_them == base.store_cycles_per_byte > 1 / 32
    few = below_of(Wave(2, 1, SOME, 4), l2_write_bytes_per_cycle_per_sm=16.0).store_cycles_per_byte
    assert few == 1 / 16 > base.store_cycles_per_byte * 4 / 132
    assert below_of(Wave(2, 1, SOME, 4), l2_write_bytes_per_cycle_per_sm=None).store_cycles_per_byte == 1 / 32


def test_cold_loads_have_a_latency_of_their_own():
    # of 64 loads the slowest takes as long as the mean and 3.74 times the tail beyond it, and the queue of all of them
    beyond = launch.SLOWEST_OF_64 - 1
    near = timing(H200, calibration(H200)).global_cycles
    known = {
        "l2_slowest_cycles": near + 2 * beyond,
        "cold_latency_cycles": 700.0,
        "cold_rows_slowest_cycles": 700 + 5 * beyond,
    }
    at = below_of(Wave(2, 1, SOME, 132), **known)
    assert at.cold_share == SOME
    assert (at.cold_tail_cycles, at.cold_cycles) == (pytest.approx(3), pytest.approx(700 - 3))
    assert (at.global_tail_cycles, at.global_cycles) == (pytest.approx(2), pytest.approx(near - 2))
    neighbours = below_of(
        Wave(2, 1, SOME, 132), **known | {"cold_rows_slowest_cycles": None, "cold_slowest_cycles": 700 + 4 * beyond}
    )
    assert neighbours.cold_tail_cycles == pytest.approx(2)
    nobody_said = below_of(
        Wave(2, 1, SOME, 132), cold_latency_cycles=None, dram_latency_cycles=650.0, cold_slowest_cycles=None,
        cold_rows_slowest_cycles=None,
    )  # fmt: skip
    assert (nobody_said.cold_cycles, nobody_said.cold_tail_cycles) == (650, 0)


@pytest.mark.parametrize("name", ["vectorized", "async"])
def test_loads_that_are_colder_take_longer(name: str, monkeypatch):
    """Than warm ones, some of them or all; that all do so in step may let them gain some of that back, but for copies,
    which nobody waits for one by one."""
    found = []
    for share in (0.0, 0.5, 1.0):
        monkeypatch.setattr(launch, "cold_share", lambda *_, share=share: Shares(share, share))
        found.append(simulated(name, 4096, 4096, 256).cycles)
    assert found[0] < min(found[1:])
    assert name != "async" or found == sorted(found)


def test_of_the_blocks_of_a_multiprocessor_one_may_lie_at_an_edge(monkeypatch):
    asked = []
    monkeypatch.setattr(launch, "costs", lambda *of: asked.append(of[3]) or costs(*of))
    tiling = default_tiling(kernel("async"))
    for blocks in (100, 132, 133, 264, 265):
        simulated("async", tiling.block_m, tiling.block_n * blocks, 64)
    assert asked == [1, 1, 1 / 2, 1 / 2, 1 / 3]


# What it costs


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_no_more_is_simulated_of_larger_problems(name: str, monkeypatch):
    works: list[Work] = []

    def asked(work: Work, *_) -> Ran:
        works.append(work)
        return spread_ends(work)

    monkeypatch.setattr(launch, "run", asked)
    for size in (4096, 2**18):
        works.clear()
        simulated(name, size, size, size)
        assert (
            len(works) <= 5 * 2
        )  # the first wave, one and two later ones, and the last with and without; in few passes and more
        assert all(work.passes <= MOST_PASSES and work.blocks <= 2 * work.resident for work in works)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_configuration_takes_less_than_a_second(name: str):
    assert of_4000_cubed(name)[1] < 1


# What it adds up to


def test_seconds_from_cycles():
    found = LaunchTime(((Wave(1, 1, ALL, 132), 1e6), (Wave(1, 3, SOME, 132), 2e6)), 1.5e9, 4e-6)
    assert found.cycles == 3e6
    assert found.time_s == 3e6 / 1.5e9 + 4e-6


@pytest.mark.usefixtures("same_loads")
@pytest.mark.parametrize("name", ["vectorized", "double_buffer", "async"])
def test_each_further_wave_takes_as_long(name: str):
    def cycles(waves: int) -> float:  # with two columns of 132 blocks each, both of a multiprocessor at once
        tiling = default_tiling(kernel(name))
        return simulated(name, tiling.block_m * 132 * waves, tiling.block_n * 2, 2048, blocks_per_sm=2).cycles

    one, *more = (cycles(waves) for waves in (1, 2, 3, 4))
    assert more[2] - more[1] == pytest.approx(more[1] - more[0])
    assert more[1] - more[0] == pytest.approx(more[0] - one)
    assert 0.5 * one < more[1] - more[0] <= 1.03 * one  # the end of a wave overlaps the beginning of the next


@pytest.mark.usefixtures("same_loads")
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_each_further_pass_takes_as_long(name: str):
    tiling = default_tiling(kernel(name))
    wave = tiling.block_m * H200.sms, tiling.block_n * 2
    first, second, third = (simulated(name, *wave, k, blocks_per_sm=2).cycles for k in (4096, 8192, 12288))
    assert third - second == pytest.approx(second - first)
    assert second > 1.5 * first


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_never_faster_than_the_ffma_of_the_busiest_multiprocessor(name: str):
    of = kernel(name)
    for size, found in (512, simulated(name, 512, 512, 512)), (4000, of_4000_cubed(name)[0]):
        per_sm = ffma(Problem(size, size, size), of, default_tiling(of)) / H200.sms
        assert found.cycles >= per_sm / H200.capability.fp32_lanes_per_sm


def test_a_longer_latency_takes_no_less_where_nothing_hides_it(monkeypatch):
    at = replace(timing(H200, calibration(H200)), l1_misses=1.0)
    found = []
    for latency in (300, 600, 1200):
        monkeypatch.setattr(launch, "below", lambda *_, latency=latency: at.with_(global_cycles=latency))
        found.append(simulated("shared", 4096, 4096, 1024, blocks_per_sm=1).cycles)
    assert found == sorted(found)
    assert found[-1] > 1.2 * found[0]


def test_a_tiling_of_another_kernel_is_refused():
    empty = Program((), (), (), ())
    with pytest.raises(InputError):
        simulate_launch(Problem(64, 64, 64), kernel("naive"), default_tiling(kernel("async")), H200, empty, 1)
