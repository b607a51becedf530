"""The time of a launch: its waves, how many cycles are simulated for it, and what these add up to."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.calibration import calibration
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.ladder import default_tiling
from gemmsim.occupancy import occupancy
from gemmsim.pipeline import launch
from gemmsim.pipeline.launch import MOST_PASSES, LaunchTime, Wave, fits_in_l2, simulate_launch, waves_of
from gemmsim.pipeline.multiprocessor import run
from gemmsim.pipeline.program import Program
from gemmsim.pipeline.programs import program_for
from gemmsim.pipeline.timing import costs, timing
from gemmsim.pipeline.work import Work
from gemmsim.problem import Problem
from gemmsim.register_table import resources
from gemmsim.traffic import ffma

H200 = device("h200")


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


@pytest.fixture
def works(monkeypatch) -> list[Work]:
    """Every simulation of a multiprocessor that is made meanwhile."""
    made: list[Work] = []

    def spy(work: Work, *rest) -> float:
        made.append(work)
        return run(work, *rest)

    monkeypatch.setattr(launch, "run", spy)
    return made


@pytest.fixture
def same_loads(monkeypatch) -> None:
    """All loads of all waves fare alike, whatever the sizes."""
    at = replace(timing(H200, calibration(H200)), l1_misses=0.5)
    monkeypatch.setattr(launch, "below", lambda *_: at)
    monkeypatch.setattr(launch, "costs", lambda _, of, tiling: costs(Problem(4096, 4096, 4096), of, tiling))


# Waves


@given(st.integers(1, 10**6), st.integers(1, 32), st.booleans())
def test_waves_hold_all_blocks(blocks: int, blocks_per_sm: int, fits: bool):
    waves = waves_of(blocks, blocks_per_sm, H200, fits)
    assert sum(wave.times for wave in waves) == -(-blocks // (min(blocks_per_sm, -(-blocks // H200.sms)) * H200.sms))
    room = sum(wave.times * wave.resident * wave.active_sms for wave in waves)
    assert blocks <= room < blocks + H200.sms  # blocks of the last wave are spread evenly
    assert all(1 <= wave.resident <= blocks_per_sm and 1 <= wave.active_sms <= H200.sms for wave in waves)
    assert waves[0].cold
    assert fits or all(wave.cold for wave in waves)
    assert not fits or sum(wave.times for wave in waves if wave.cold) == 1


def test_waves_by_hand():
    assert waves_of(132 * 2 * 3 + 140, 2, H200, True) == [
        Wave(2, 1, True, 132), Wave(2, 2, False, 132), Wave(2, 1, False, 132),
    ]  # fmt: skip
    assert waves_of(132 * 2 * 3, 2, H200, False) == [Wave(2, 3, True, 132)]
    assert waves_of(7, 4, H200, True) == [Wave(1, 1, True, 7)]
    assert waves_of(133, 4, H200, True) == [Wave(2, 1, True, 132)]


def test_what_stays_in_l2():
    assert fits_in_l2(Problem(1024, 1024, 1024), H200)  # 8 MiB
    assert not fits_in_l2(Problem(8192, 8192, 8192), H200)  # 512 MiB


# What it costs


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_no_more_is_simulated_of_larger_problems(name: str, works: list[Work]):
    for size in (4096, 2**18):
        works.clear()
        simulated(name, size, size, size)
        assert len(works) <= 3 * 4  # so many kinds of waves; one or two rounds of blocks, some passes or more
        assert all(work.passes <= MOST_PASSES and work.blocks <= 2 * work.resident for work in works)


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_a_configuration_takes_less_than_a_second(name: str):
    before = time.process_time()
    simulated(name, 4000, 4000, 4000)
    assert time.process_time() - before < 1


# What it adds up to


def test_seconds_from_cycles():
    found = LaunchTime(((Wave(1, 1, True, 132), 1e6), (Wave(1, 3, False, 132), 2e6)), 1.5e9, 4e-6)
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
    assert 0.5 * one < more[1] - more[0] <= 1.02 * one  # the end of a wave overlaps the beginning of the next


@pytest.mark.usefixtures("same_loads")
@pytest.mark.parametrize("name", sorted(KERNELS))
def test_each_further_pass_takes_as_long(name: str):
    first, second, third = (simulated(name, 4096, 4096, k).cycles for k in (4096, 8192, 12288))
    assert third - second == pytest.approx(second - first)
    assert second > 1.5 * first


@pytest.mark.parametrize("name", sorted(KERNELS))
@pytest.mark.parametrize("size", [512, 2048, 8192])
def test_never_faster_than_the_ffma_of_the_busiest_multiprocessor(name: str, size: int):
    of = kernel(name)
    per_sm = ffma(Problem(size, size, size), of, default_tiling(of)) / H200.sms
    assert simulated(name, size, size, size).cycles >= per_sm / H200.capability.fp32_lanes_per_sm


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
