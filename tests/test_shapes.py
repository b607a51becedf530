"""The campaign of random shapes on a GPU that is made up: what is launched, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from fake_gpu import POISON, FakeGpu

from campaigns import shapes as campaign
from campaigns.shapes import LARGEST, jobs, key, launch, points, shapes, summary, tilings, verified
from gemmsim.device import capability
from gemmsim.gpu import reference, run
from gemmsim.gpu.compile import Cubin
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem, ceil_div

SMALL = [Problem(5, 6, 7), Problem(16, 12, 8)]


@pytest.fixture(autouse=True)
def compiled(monkeypatch, tmp_path):
    """Nothing is compiled; the jobs that would be."""
    (tmp_path / "cubin").write_bytes(b"cubin")
    cubin, wanted = Cubin(tmp_path / "cubin", 32, 0, 0, 0, "nvcc 13.0"), []
    monkeypatch.setattr(reference, "compile_kernel", lambda *_: cubin)
    monkeypatch.setattr(campaign, "compile_all", lambda of, **_: wanted.extend(of) or [cubin] * len(of))
    monkeypatch.setattr(run, "blocks_per_sm", lambda *_: 8)
    return wanted


def test_tilings_are_of_every_kind():
    assert all(len(tilings(kernel)) >= 2 for kernel in KERNELS.values())
    copying = tilings(KERNELS["async"])
    assert {tiling.split_k > 1 for tiling in copying} == {False, True}
    assert {tiling.group > 1 for tiling in copying} == {False, True}
    assert len({tiling.stages for tiling in copying}) >= 4
    swizzled = [tiling for name in ("vectorized", "double_buffer") for tiling in tilings(KERNELS[name])]
    assert {tiling.swizzle > 0 for tiling in swizzled} == {False, True}
    assert any(tiling.pad_a > 0 for tiling in swizzled)


def test_shapes_bring_out_every_width_of_every_tiling():
    widths = {
        (
            point.kernel,
            KERNELS[point.kernel].describe(point.tiling),
            KERNELS[point.kernel].widths(problem, point.tiling),
        )
        for problem in shapes()
        for point in points(problem)
    }
    copying = [each for each in widths if each[0] == "async" and "96x128x8" in each[1]]
    assert {each[2].global_b for each in copying} == {1, 2, 4}
    tiled = [each for each in widths if each[0] == "warp_tiled" and "128x128x8" in each[1]]
    assert len({(each[2].global_a, each[2].global_b) for each in tiled}) == 9


def test_one_compiled_kernel_serves_shapes_that_are_aligned_alike():
    wanted = jobs(shapes(), capability("9.0"))
    assert len(wanted) <= 100
    for problem in shapes():
        for point in points(problem):
            of = launch(point)
            tiles = ceil_div(problem.m, point.tiling.block_m) * ceil_div(problem.n, point.tiling.block_n)
            assert of.blocks == tiles * point.tiling.split_k
            assert key(point, of) in wanted
            assert point.tiling.split_k == 1 or tiles <= of.macros["TILES"]


def test_no_kernel_runs_where_it_cannot():
    names = {job.kernel.name for job in jobs(SMALL, capability("7.5")).values()}
    assert names == set(KERNELS) - {"async"}


def test_every_point_is_launched_and_judged(compiled):
    gpu = FakeGpu()
    outcomes = list(verified(gpu, SMALL))
    assert [each.point for each in outcomes] == [point for problem in SMALL for point in points(problem)]
    assert all(each.failure is None and 0 < each.error < 1e-6 for each in outcomes)
    assert gpu.blocks == [launch(each.point).blocks for each in outcomes]
    assert len(compiled) == len(jobs(SMALL, capability("9.0")))
    assert gpu.live == 0


def test_what_another_left_is_no_result():
    outcomes = list(verified(FakeGpu(idle=[4]), SMALL))
    assert [number for number, each in enumerate(outcomes, 1) if each.failure] == [4]
    assert "30 of 30 elements never written" in str(outcomes[3].failure)


def test_a_wrong_result_is_said_of_its_point_alone():
    def spoil(launch, words):
        if launch == 3:
            words[2] = POISON
        elif launch == 4:
            words.view(np.float32)[1] += 1e-3

    outcomes = list(verified(FakeGpu(spoil), SMALL))
    wrong = [each for each in outcomes if each.failure]
    assert [each.point for each in wrong] == [outcomes[2].point, outcomes[3].point]
    assert "never written" in str(wrong[0].failure)
    rows = summary(outcomes)
    assert [row[:1] + row[2:4] for row in rows[:4]] == [
        ("naive", "2", "2"), ("naive", "2", "2"), ("shared", "2", "1"), ("shared", "2", "1"),
    ]  # fmt: skip
    assert all(row[3] == "2" for row in rows[4:])
    line = json.loads(json.dumps(campaign.line_of(wrong[0])))
    assert line["error"] is None
    assert line["point"]["kernel"] == "shared"


def test_it_exits_with_1_when_a_result_is_wrong(monkeypatch, tmp_path, capsys):
    class Session:
        def __enter__(self):
            return FakeGpu(lambda launch, words: words.fill(POISON) if launch == 1 else None)

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(campaign, "Gpu", Session)
    monkeypatch.setattr(campaign, "shapes", lambda: SMALL)
    monkeypatch.setattr("sys.argv", ["shapes", "--out", str(tmp_path / "out.jsonl")])
    assert campaign.main() == 1
    assert "naive 5 x 6 x 7 fp32 8x32: wrong result: 30 of 30" in capsys.readouterr().out
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 2 * len(points(SMALL[0]))


def test_sizes_are_within_bounds():
    assert all(1 <= size <= LARGEST for problem in shapes() for size in (problem.m, problem.n, problem.k))
