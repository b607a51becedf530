"""The microbenchmarks on the GPU here: their results are right, their numbers plausible and repeatable."""

from __future__ import annotations

import pytest

from gemmsim.calibration import load_calibration
from gemmsim.calibration.numbers import NAMES
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.gpu.calibrate import PARTS, warm_up
from gemmsim.gpu.calibration_campaign import calibrate
from gemmsim.gpu.microbenchmarks import Bench
from gemmsim.gpu.session import Gpu

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The calibration of the GPU here."""
    out = tmp_path_factory.mktemp("calibration") / "here.toml"
    content, failures = calibrate(list(PARTS), out)
    assert failures == {}
    try:
        return load_calibration(out, device(content.device))
    except InputError:
        pytest.skip(f"{content.device} has no device file")


def test_everything_is_measured(found):
    missing = {name for name in NAMES if name in found.inherited or name not in found.numbers}
    assert missing <= {"copy_latency_cycles"}


def test_no_rate_is_beyond_what_the_hardware_can(found):
    on = device(found.device)
    assert 0.97 * on.fp32_lanes_per_sm <= found.ffma_per_cycle_per_sm <= 1.005 * on.fp32_lanes_per_sm
    assert found.shared_bytes_per_cycle <= 128.5
    assert found.l1_bytes_per_cycle <= 128.5
    assert 0.6 * on.dram_bytes_per_s <= found.dram_bytes_per_s <= 1.01 * on.dram_bytes_per_s
    assert found.dram_bytes_per_s < found.l2_bytes_per_s
    assert 0.5 * on.clock_hz <= found.clock_hz <= 1.2 * on.clock_hz


def test_latencies_grow_with_the_distance(found):
    assert 3.9 <= found.ffma_latency_cycles <= 6
    assert (
        found.ffma_latency_cycles < found.shared_load_latency_32_bit_cycles <= found.shared_load_latency_128_bit_cycles
    )
    assert found.l1_latency_cycles < found.l2_latency_near_cycles <= 1.02 * found.l2_latency_far_cycles
    assert found.l2_latency_far_cycles < found.dram_latency_cycles
    assert found.barrier_4_warps_cycles < found.barrier_32_warps_cycles


@pytest.mark.parametrize("part", ["ffma", "shared", "l1", "barrier"])
def test_two_times_are_one(part):
    values = []
    for _ in range(2):
        with Gpu() as gpu, Bench(gpu) as bench:
            warm_up(bench)
            values.append({name: finding.value for name, finding in PARTS[part](bench).items()})
    assert values[0] == pytest.approx(values[1], rel=0.02)
