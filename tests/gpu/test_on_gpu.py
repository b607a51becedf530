"""Every kernel on the present GPU: right for every size, and as the driver and the compiler say."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from examples import TILE

from gemmsim.device import Capability
from gemmsim.gpu.compile import Cubin, Job, compile_many
from gemmsim.gpu.counters import parse_outcomes
from gemmsim.gpu.machine import GpuMachine
from gemmsim.gpu.run import LEAST_SAMPLES, MOST_SAMPLES
from gemmsim.gpu.supervisor import WORKER, worker_environment
from gemmsim.gpu.verify import TOLERANCE
from gemmsim.kernels import KERNELS
from gemmsim.measure import measure
from gemmsim.occupancy import occupancy
from gemmsim.problem import Problem
from gemmsim.record_files import read_records
from gemmsim.records import Point, Record

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # PyCUDA's own warnings are not ours


def tile(block: tuple[int, int, int], thread: tuple[int, int], **more: int) -> dict[str, int]:
    names = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
    return dict(zip(names, (*block, *thread), strict=True)) | more


TILINGS = {
    "naive": [{}, {"block_m": 16, "block_n": 16}, {"block_m": 1, "block_n": 96}],
    "shared": [
        {"block_m": 32, "block_n": 32, "block_k": 32},
        {"block_m": 16, "block_n": 8, "block_k": 64},
        {"block_m": 16, "block_n": 32, "block_k": 12, "pad_a": 2, "pad_b": 1},
    ],
    "register": [TILE, tile((64, 64, 16), (4, 4)), tile((96, 48, 6), (6, 3), pad_a=1, traversal=3)],
    "vectorized": [
        TILE,
        tile((64, 64, 16), (4, 4), pad_a=4, pad_b=4),
        tile((64, 32, 8), (4, 2), vector=2, pad_a=2),
        tile((48, 40, 5), (3, 5), vector=1, traversal=1),
        tile((64, 64, 8), (8, 4), traversal=8),
    ],
    "double_buffer": [
        {**TILE, "pad_a": 4},
        tile((64, 128, 16), (4, 8), vector=4),
        tile((128, 128, 32), (8, 8)),  # more than 48 KB of shared memory, which a launch has to ask for
        tile((32, 48, 2), (2, 3), vector=1),
        tile((64, 64, 8), (8, 4), traversal=2),
    ],
    "warp_tiled": [
        tile((128, 128, 8), (16, 8), warp_m=64, warp_n=64, pad_a=4),
        tile((32, 32, 12), (4, 2), warp_m=16, warp_n=16, traversal=4),
    ],
    "async": [
        tile((128, 256, 8), (16, 8), warp_m=64, warp_n=64, pad_a=4, group=2),
        tile((96, 128, 8), (12, 8), warp_m=48, warp_n=64, pad_a=8, stages=4, split_k=3),
        tile((32, 32, 12), (4, 2), warp_m=16, warp_n=16, stages=2, split_k=7, group=3),
        tile((64, 64, 16), (8, 4), warp_m=32, warp_n=32, pad_b=4),
        tile((96, 128, 16), (12, 8), warp_m=48, warp_n=64, pad_a=4, traversal=4, spread=3),
        tile((32, 64, 8), (4, 4), warp_m=32, warp_n=16, stages=2, split_k=3, spread=7, traversal=2),
        tile((64, 64, 16), (8, 4), warp_m=32, warp_n=32, stages=4, spread=1, group=2),
    ],
}
SIZES = [(1, 1, 1), (130, 67, 3), (257, 132, 68), (515, 1001, 333), (512, 512, 512)]
POINTS = [
    Point(Problem(*size), name, KERNELS[name].tiling(**values))
    for name, tilings in TILINGS.items()
    for values in tilings
    for size in SIZES
]


@pytest.fixture(scope="module")
def campaign(tmp_path_factory) -> dict[Point, Record]:
    """All points, measured once."""
    out = tmp_path_factory.mktemp("campaign") / "records.jsonl"
    records = measure(POINTS, out)
    assert read_records(out) == (records, [])
    return {record.point: record for record in records}


@pytest.fixture(scope="module")
def on() -> Capability:
    """The compute capability of the present GPU."""
    with GpuMachine() as machine:
        return machine.device.capability


@pytest.fixture(scope="module")
def cubins(on) -> dict[Point, Cubin]:
    """What the compiler says of all points."""
    jobs = [Job(KERNELS[p.kernel], KERNELS[p.kernel].launch(p.problem, p.tiling), on) for p in POINTS]
    compiled = compile_many(jobs)
    return {point: cubin for point, cubin in zip(POINTS, compiled, strict=True) if isinstance(cubin, Cubin)}


def test_there_are_enough_points():
    assert len(set(POINTS)) >= 40
    assert {point.kernel for point in POINTS} == set(KERNELS)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_the_result_is_right(campaign, point):
    record = campaign[point]
    assert record.failure is None
    assert record.verification_error is not None
    assert 0 <= record.verification_error <= TOLERANCE / 4


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_the_driver_agrees_with_the_compiler_and_the_model(campaign, cubins, on, point):
    resources, kernel = campaign[point].resources, KERNELS[point.kernel]
    assert resources is not None
    assert resources["registers_per_thread"] == cubins[point].registers_per_thread
    assert resources["shared_bytes"] == kernel.shared_bytes(point.tiling) + cubins[point].shared_bytes
    assert resources["local_bytes"] >= cubins[point].local_bytes
    expected = occupancy(
        on,
        point.tiling.threads,
        resources["registers_per_thread"],
        cubins[point].shared_bytes,
        kernel.shared_bytes(point.tiling),
    )
    assert resources["blocks_per_sm"] == expected.blocks_per_sm


def test_samples_and_environment_are_kept(campaign):
    for record in campaign.values():
        assert LEAST_SAMPLES <= len(record.samples_s) <= MOST_SAMPLES
        assert all(0 < sample < 1 for sample in record.samples_s)
        environment = record.environment
        for name in ("gpu", "driver", "cuda", "compiler", "python", "numpy", "pycuda", "gemmsim", "time", "seed"):
            assert environment[name], name
        assert environment["l2_flushed"] is True
        assert 0 < environment["sm_clock_hz"] <= environment["max_sm_clock_hz"]
        assert environment["power_w"] > 0


def test_a_larger_problem_takes_longer(campaign):
    for name in ("naive", "shared", "register"):
        tiling = KERNELS[name].tiling(**TILINGS[name][0])
        small, large = (campaign[Point(Problem(*size), name, tiling)] for size in (SIZES[1], SIZES[-1]))
        assert small.median_s < large.median_s


def test_without_flushing_it_is_no_slower():
    point = Point(Problem(512, 512, 512), "register", KERNELS["register"].tiling(**TILE))
    (cold,), (warm,) = measure([point]), measure([point], flush=False)
    assert warm.environment["l2_flushed"] is False
    assert warm.median_s is not None
    assert cold.median_s is not None
    assert warm.median_s < 1.1 * cold.median_s


def test_the_worker_launches_every_point_once(tmp_path):
    points = [Point(Problem(33, 34, 35), name, KERNELS[name].tiling(**TILINGS[name][0])) for name in TILINGS]
    path = tmp_path / "points.jsonl"
    path.write_text("".join(json.dumps(point.to_dict()) + "\n" for point in points))
    answer = subprocess.run(
        [*WORKER, str(path)], capture_output=True, text=True, env=worker_environment(), timeout=300, check=False
    )
    assert answer.returncode == 0, answer.stderr
    assert parse_outcomes(answer.stdout) == dict.fromkeys(range(len(points)), "launched")


WRONG_ADDRESS = """
import os
from gemmsim.device import capability
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.run import load
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem

kernel, problem = KERNELS["naive"], Problem(64, 64, 64)
launch = kernel.launch(problem, kernel.tiling())
with Gpu() as gpu:
    print(gpu.alive())
    loaded = load(gpu, compile_kernel(kernel, launch, capability(gpu.facts.capability)), launch)
    try:
        loaded.function.prepared_timed_call((launch.blocks, 1), (launch.threads, 1, 1), 16, 16, 16, 64, 64, 64)()
    except gpu.driver.Error as error:
        print("illegal" in str(error))
    print(gpu.alive(), flush=True)
    os._exit(0)
"""


def test_a_kernel_that_touches_a_wrong_address_breaks_the_context():
    answer = subprocess.run(
        [sys.executable, "-c", WRONG_ADDRESS], capture_output=True, text=True, env=worker_environment(), timeout=300
    )
    assert answer.stdout.split() == ["True", "True", "False"], answer.stderr
