"""Kernels beside cuBLAS, on a GPU and with a library that are made up; what is made of the records."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from fake_gpu import POISON, FakeGpu

from benchmarks import cublas as benchmark
from benchmarks.cublas import POINTS, geometric_mean, measure, missed, results, show
from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.gpu import reference, run, versus
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.versus import LEAST_ROUNDS, MOST_ROUNDS, ROUNDS_S, Versus, enough, in_turn
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.record_files import read_points, read_records
from gemmsim.records import Point, Record

PROBLEM = Problem(20, 24, 30)
TWO = [Point(PROBLEM, "naive", KERNELS["naive"].tiling(block_m=side, block_n=32)) for side in (4, 8)]
OTHER = Point(Problem(5, 6, 7), "naive", KERNELS["naive"].tiling())


class FakeCublas:
    """cuBLAS on a made-up GPU; `off` is added to every element."""

    version = "13.0.2"

    def __init__(self, gpu, off=0.0):
        self.gpu, self.off = gpu, off

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def multiply(self, problem, a, b, c):
        self.gpu.gemm(a, b, c, problem.m, problem.n, problem.k)
        self.gpu.floats(c, problem.m, problem.n)[:] += self.off


class Session:
    """`with Gpu()`."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def __enter__(self):
        return self.gpu

    def __exit__(self, *_):
        pass


@pytest.fixture(autouse=True)
def cubin(monkeypatch, tmp_path) -> Cubin:
    """Nothing is compiled, and nobody is asked for clocks."""
    (tmp_path / "cubin").write_bytes(b"cubin")
    found = Cubin(tmp_path / "cubin", 32, 0, 0, 0, "nvcc 13.0")
    monkeypatch.setattr(reference, "compile_kernel", lambda *_: found)
    monkeypatch.setattr(benchmark, "compile_all", lambda jobs, **_: [found] * len(jobs))
    monkeypatch.setattr(run, "blocks_per_sm", lambda *_: 8)
    monkeypatch.setattr(versus, "under_load", lambda facts, keep_busy: {"sm_clock_hz": 1.98e9})
    return found


def of_two(gpu, cubin, off=0.0):
    return Versus(gpu, FakeCublas(gpu, off), "h200").records(PROBLEM, dict.fromkeys(TWO, cubin))


def test_each_record_has_its_samples_and_cublas_in_the_same_rounds(cubin):
    gpu = FakeGpu()
    records = of_two(gpu, cubin)
    assert [record.point for record in records] == TWO
    for record in records:
        assert record.ok
        assert record.samples_s == (1e-3,) * MOST_ROUNDS
        assert 0 < record.verification_error < 1e-7
        environment = record.environment
        assert (environment["compiler"], environment["sm_clock_hz"], environment["l2_flushed"]) == (
            "nvcc 13.0",
            1.98e9,
            True,
        )
        assert environment["cublas"]["samples_s"] == [2e-3] * MOST_ROUNDS
        assert environment["cublas"]["median_s"] == 2e-3
        assert 0 < environment["cublas"]["verification_error"] < 1e-7
        assert Record.from_dict(json.loads(json.dumps(record.to_dict()))) == record
    assert gpu.live == 0


def test_one_that_is_wrong_is_not_timed_and_the_others_are(cubin):
    def spoil(launch, words):
        if launch == 1:
            words[3] = POISON

    wrong, right = of_two(FakeGpu(spoil), cubin)
    assert wrong.failure == "wrong result: 1 of 480 elements never written, the first at row 0, column 3"
    assert wrong.samples_s == ()
    assert right.ok


def test_what_another_left_is_no_result(cubin):
    right, idle = of_two(FakeGpu(idle=[2]), cubin)
    assert right.ok
    assert str(idle.failure).startswith("wrong result: 480 of 480 elements never written")


def test_one_that_is_wrong_after_it_was_timed_has_failed(cubin):
    last = 2 + 2 * (versus.WARM_UP_ROUNDS + MOST_ROUNDS) + 2

    def spoil(launch, words):
        if launch == last:
            words.view(np.float32)[3] += 1

    right, wrong = of_two(FakeGpu(spoil), cubin)
    assert right.ok
    assert str(wrong.failure).startswith("wrong result at row 0, column 3: got ")


def test_where_cublas_is_wrong_there_is_nothing_to_compare_with(cubin):
    with pytest.raises(MachineError, match=r"cuBLAS 13\.0\.2, 20 x 24 x 30 fp32: wrong result at row 0, column 0"):
        of_two(FakeGpu(), cubin, off=1e-3)


def test_rounds_give_everyone_a_turn_in_changing_order():
    log = []

    def launcher(name):
        return lambda: log.append(name) or (lambda: float(name))

    ticks = iter(range(1000))
    samples_s = in_turn([launcher(name) for name in (1, 2, 3)], lambda: log.append(0), lambda: float(next(ticks)))
    assert samples_s == [[float(name)] * LEAST_ROUNDS for name in (1, 2, 3)]
    assert log[::2] == [0] * (len(log) // 2)  # before every launch
    rounds = np.array(log[1::2]).reshape(-1, 3)[versus.WARM_UP_ROUNDS :]
    assert (np.sort(rounds) == [1, 2, 3]).all()
    assert len({tuple(each) for each in rounds}) > 3


@pytest.mark.parametrize(
    ("rounds", "taken_s", "done"),
    [
        (MOST_ROUNDS, 0, True), (MOST_ROUNDS - 1, 0, False), (LEAST_ROUNDS, ROUNDS_S, True),
        (LEAST_ROUNDS - 1, 99, False), (LEAST_ROUNDS, ROUNDS_S - 0.1, False),
    ],
)  # fmt: skip
def test_when_rounds_are_enough(rounds, taken_s, done):
    assert enough(rounds, taken_s) is done


def record(point: Point, ours_s: float, cublas_s: float) -> Record:
    facts = {"median_s": cublas_s, "verification_error": 2e-7, "samples_s": [cublas_s]}
    return Record(
        point,
        "h200",
        "ok",
        samples_s=(ours_s,),
        median_s=ours_s,
        verification_error=1e-7,
        environment={"cublas": facts},
    )


def test_the_fastest_comes_first_and_ratios_are_above_one_where_we_are_faster():
    found = results([record(TWO[0], 2e-3, 3e-3), record(TWO[1], 1e-3, 3e-3), record(OTHER, 4e-3, 2e-3)])
    assert list(found) == [PROBLEM, OTHER.problem]
    assert [each.ratio for each in found[PROBLEM]] == [pytest.approx(3), pytest.approx(1.5)]
    assert found[OTHER.problem][0].ratio == 0.5
    assert geometric_mean([2.0, 8.0]) == pytest.approx(4)


def test_what_is_promised():
    def at(size: int, ratio: float) -> benchmark.Result:
        return results([record(replace(OTHER, problem=Problem(size, size, size)), 1e-3, ratio * 1e-3)]).popitem()[1][0]

    assert missed([at(2048, 1.01), at(8192, 1.0), at(512, 0.99)]) == ["geometric mean 1.000, promised 1.00"]
    assert missed([at(2048, 1.01), at(256, 0.86), at(512, 1.2)]) == []
    assert missed([at(4096, 0.99), at(512, 1.2)]) == ["4096 x 4096 x 4096 fp32: 0.990 of cuBLAS's speed, promised 1.00"]
    assert missed([at(256, 0.84), at(512, 1.3)]) == ["256 x 256 x 256 fp32: 0.840 of cuBLAS's speed, promised 0.85"]


@pytest.fixture
def present(monkeypatch) -> list[FakeGpu]:
    """The GPUs that the benchmark was given."""
    given = []

    def session():
        given.append(FakeGpu())
        return Session(given[-1])

    monkeypatch.setattr(benchmark, "Gpu", session)
    monkeypatch.setattr(benchmark, "Cublas", FakeCublas)
    return given


def test_another_run_measures_only_what_is_missing(present, tmp_path):
    out = tmp_path / "records.jsonl"
    first = measure(TWO[:1], out)
    assert read_records(out) == (first, [])
    both = measure([*TWO, OTHER], out)
    assert {record.point for record in both} == {*TWO, OTHER}
    assert read_records(out)[0] == both
    assert both[0] == first[0]
    assert len(present) == 2
    assert measure([*TWO, OTHER], out) == both
    assert len(present) == 2  # the GPU was not asked for again


def test_the_benchmark_as_a_whole(present, tmp_path, capsys):
    points = tmp_path / "points.jsonl"
    points.write_text("".join(json.dumps(point.to_dict()) + "\n" for point in (*TWO, OTHER)))
    arguments = ["--points", str(points), "--out", str(tmp_path / "out.jsonl")]
    assert benchmark.main(arguments) == 0
    printed = capsys.readouterr()
    assert "20 x 24 x 30" in printed.out
    assert "2.000" in printed.out  # cuBLAS takes 2 ms, we 1 ms
    assert "geometric mean of the best over 2 problems is 2.000" in " ".join(printed.out.split())
    assert "5 x 6 x 7 fp32: 2 of 2" in printed.err


def test_without_a_gpu_it_says_so_in_one_line(monkeypatch, tmp_path, capsys):
    def session():
        raise MachineError("no usable NVIDIA GPU")

    monkeypatch.setattr(benchmark, "Gpu", session)
    assert benchmark.main(["--out", str(tmp_path / "out.jsonl")]) == 3
    assert capsys.readouterr().err == "benchmarks.cublas: no usable NVIDIA GPU\n"


def test_all_candidates_can_be_shown(capsys):
    show(results([record(TWO[0], 2e-3, 3e-3), record(TWO[1], 1e-3, 3e-3)]), device("h200"), every=True)
    lines = capsys.readouterr().out.splitlines()
    assert sum("20 x 24 x 30" in line for line in lines) == 2


def test_the_candidates_cover_the_shapes_and_an_h200_takes_them():
    points = read_points(POINTS)
    assert {point.problem for point in points} == {
        *(Problem(n, n, n) for n in (256, 512, 1024, 2048, 4096, 8192, 4099)), Problem(1000, 1900, 2100),
        Problem(64, 8192, 8192), Problem(128, 8192, 8192), Problem(8192, 64, 8192), Problem(8192, 128, 8192),
        Problem(4096, 4096, 64), Problem(256, 256, 65536),
    }  # fmt: skip
    assert len({point.key for point in points}) == len(points)
    for point in points:
        KERNELS[point.kernel].check(point.tiling, device("h200"), point.problem)
