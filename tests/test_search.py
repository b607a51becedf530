"""The ranking against every configuration predicted alone, and what is said of the first."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import failed, timed

from gemmsim import search as searching
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.records import Point
from gemmsim.search import (
    LEAST_KEPT,
    Landscape,
    landscapes,
    rank,
    regret,
    search,
    sensitivities,
    spaces_of,
    why_it_loses,
)
from gemmsim.spaces import rows_of, size_of

H200 = device("h200")
CUBE = Problem(1024, 1024, 1024)
REGISTER, WARPS = kernel("register"), kernel("warp_tiled")
FEW = {
    "block_m": (64, 128), "block_n": (64, 96), "block_k": (8, 16), "thread_m": (4, 8), "thread_n": (8,),
    "pad_a": (0, 1), "pad_b": (0,), "warp_m": (16, 32, 64), "warp_n": (32, 64),
}  # fmt: skip


def every(spaces):
    """(time, what bounds it, kernel, tiling) of every configuration in its order, each predicted alone."""
    for of in spaces:
        for chunk in of.chunks():
            for at in range(size_of(chunk)):
                tiling = of.kernel.tiling(**of.kernel.tiling_dict(rows_of(chunk, at)))
                found = predict(of.problem, of.kernel, tiling, of.device)
                if found.occupancy.launches:
                    yield float(found.time_s), found.bound_by, of.kernel, tiling


@settings(max_examples=10)
@given(
    st.tuples(*(st.sampled_from([1, 100, 1024, 4097]) for _ in "mnk")),
    st.sampled_from(["h200", "rtx-3090"]),
    st.sampled_from([["register"], ["warp_tiled", "register"]]),
    st.integers(1, 6),
)
def test_the_best_is_the_least_of_all_predicted_alone(sizes, on, names, top):
    problem, kernels = Problem(*sizes), [kernel(name) for name in names]
    found = search(problem, device(on), kernels, top=top, values=FEW)
    alone = sorted(every(found.spaces), key=lambda each: each[0])
    assert found.evaluated == len(alone)
    assert [each.time_s for each in found.results] == pytest.approx([time_s for time_s, *_ in alone[:top]])
    _, bound_by, of, tiling = alone[0]
    assert (found.pick.kernel, found.pick.bound_by) == (of, bound_by)
    assert found.pick.tiling == tiling
    for each in found.results:
        assert predict(problem, each.kernel, each.tiling, device(on)).time_s == pytest.approx(each.time_s)


LARGEST_MADE = 2**31 - 1


class Made:
    """Times that are made up, so that whole spaces can be ranked: a formula of the fields, some without a launch."""

    def __init__(self, never: float = 0.1) -> None:
        self.never = never
        self.calls = 0

    def time_s(self, tilings):
        fields = [np.asarray(getattr(tilings, name)) for name in REGISTER.fields]
        mixed = sum(value * (7919 + 2 * number) ** 2 for number, value in enumerate(fields))
        return np.broadcast_to((mixed * 48271 % LARGEST_MADE + 1) * 1e-12, size_of(tilings))

    def __call__(self, problem, of, tilings, on):
        self.calls += 1
        time_s = self.time_s(tilings).copy()
        time_s[time_s > (1 - self.never) * LARGEST_MADE * 1e-12] = np.inf
        return time_s, np.where(np.isfinite(time_s), "ffma", "l2")


@pytest.fixture
def made(monkeypatch) -> Made:
    found = Made()
    monkeypatch.setattr(searching, "times", found)
    monkeypatch.setattr(searching, "times_of_many", found)
    return found


def test_a_whole_space_keeps_what_a_sort_of_all_of_it_would(made):
    found = search(CUBE, H200, [REGISTER], top=200)
    times_s = np.concatenate([made(CUBE, REGISTER, chunk, H200)[0] for chunk in found.spaces[0].chunks()])
    assert found.evaluated == np.isfinite(times_s).sum() < len(times_s)
    assert [each.time_s for each in found.results] == np.sort(times_s)[:200].tolist()
    assert len({str(each) for each in found.results}) == 200
    assert all(each.bound_by == "ffma" for each in found.results)


def test_what_is_alike_stays_in_the_order_of_enumeration(monkeypatch):
    for route in ("times", "times_of_many"):
        monkeypatch.setattr(
            searching, route, lambda problem, of, tilings, on: (np.ones(size_of(tilings)), np.array("l2"))
        )
    found = search(CUBE, H200, [WARPS], top=50)
    chunk = next(found.spaces[0].chunks())
    assert [each.tiling.pad_b for each in found.results] == np.broadcast_to(chunk.pad_b, size_of(chunk))[:50].tolist()
    assert found.alike == LEAST_KEPT
    assert found.runner_up is None
    assert why_it_loses(found) == f"the first {LEAST_KEPT} configurations are predicted alike"


def test_memory_does_not_grow_with_the_space(made):
    def peak_bytes(*where: str) -> tuple[int, int]:
        tracemalloc.start()
        found = search(Problem(4096, 4096, 4096), H200, [kernel("double_buffer")], where)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, found.evaluated

    few, many = peak_bytes("thread_m == 8"), peak_bytes()
    assert many[1] > 3 * few[1] > 10**5
    assert many[0] < few[0] + 20e6 < 100e6


def test_one_pass_serves_all_watchers(made):
    spaces = spaces_of(CUBE, H200, [REGISTER], ["block_k == 8"])
    blocks, stages = landscapes(spaces)
    found = rank(spaces, watchers=(blocks, stages))
    once = made.calls
    rank(spaces)
    assert made.calls == 2 * once
    assert blocks.best_s.min() == stages.best_s.min() == found.pick.time_s


def test_a_landscape_has_the_best_of_each_place(made):
    spaces = spaces_of(CUBE, H200, [REGISTER], ["block_k == 8", "pad_a == 0"])
    blocks = Landscape("block_n", "block_m", spaces)
    stages = landscapes(spaces)[1]
    rank(spaces, watchers=(blocks, stages))
    best: dict[tuple[int, int], float] = {}
    of_registers: dict[int, float] = {}
    for chunk in spaces[0].chunks():
        times_s = made(CUBE, REGISTER, chunk, H200)[0]
        registers = REGISTER.resources(CUBE, chunk).registers_per_thread
        m, n, r = (np.broadcast_to(each, times_s.shape) for each in (chunk.block_m, chunk.block_n, registers))
        for time_s, *place, count in zip(times_s, m.tolist(), n.tolist(), r.tolist(), strict=True):
            if np.isfinite(time_s):
                best[tuple(place)] = min(time_s, best.get(tuple(place), np.inf))
                of_registers[count] = min(time_s, of_registers.get(count, np.inf))
    for (y, m), (x, n) in itertools.product(enumerate(blocks.ys), enumerate(blocks.xs)):
        assert blocks.best_s[y, x] == best.get((m, n), np.inf)
    (column,) = [at for at, value in enumerate(stages.xs) if value == REGISTER.stages]
    assert {
        stages.ys[y]: time_s for y, time_s in enumerate(stages.best_s[:, column]) if np.isfinite(time_s)
    } == of_registers


def test_sensitivity_varies_one_parameter_at_a_time():
    found = search(CUBE, H200, [REGISTER], values=FEW)
    by_name = {each.name: each for each in sensitivities(found)}
    assert set(by_name) == set(REGISTER.fields)
    spans = [each.span for each in sensitivities(found)]
    assert spans == sorted(spans, reverse=True)
    for name, each in by_name.items():
        assert each.chosen == getattr(found.pick.tiling, name)
        assert each.chosen in each.values
        for value, time_s in zip(each.values, each.times_s, strict=True):
            changed = REGISTER.tiling(**REGISTER.tiling_dict(found.pick.tiling) | {name: value})
            assert predict(CUBE, REGISTER, changed, H200).time_s == pytest.approx(time_s)
        assert min(each.times_s) == pytest.approx(found.pick.time_s)
        assert each.span == max(each.times_s) / min(each.times_s) - 1
    assert by_name["thread_n"].values == (8,)
    assert by_name["thread_n"].span == 0
    assert by_name["block_m"].span > 0


def test_the_reason_names_what_differs_and_the_term_that_decides():
    found = search(CUBE, H200, [REGISTER], values=FEW)
    other = found.runner_up
    assert other is not None
    assert other.time_s > found.pick.time_s
    reason = why_it_loses(found)
    assert reason.startswith(f"the runner-up, {other}, takes ")
    assert " instead of " in reason
    terms = predict(CUBE, other.kernel, other.tiling, H200).terms
    assert any(f"what decides is {name.replace('_', ' ')}, " in reason for name in terms)


def test_all_kernels_that_a_device_runs_are_searched():
    assert [each.kernel.name for each in spaces_of(CUBE, H200)] == list(KERNELS)
    assert "async" not in [each.kernel.name for each in spaces_of(CUBE, device("t4"))]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"where": ["block_m > 4000"]}, r"--where block_m > 4000 leaves none of the [1-9]\d* legal configurations of "),
        (
            {"where": ["pad_a == 0", "1 == 2"], "kernels": [REGISTER], "values": FEW},
            "--where pad_a == 0 and 1 == 2 leaves none of the 32 legal configurations of register$",
        ),
        (
            {"kernels": [REGISTER], "values": {"block_m": [8], "thread_m": [16]}},
            "no configuration of register is legal for 1024 x 1024 x",
        ),
        (
            {"kernels": [kernel("async")], "device": device("t4")},
            "kernel async needs compute capability 8.0; t4 has 7.5",
        ),
        ({"problem": Problem(64, 64, 64, "fp16")}, "dtype fp16 has no kernels; allowed: fp32"),
    ],
)
def test_nothing_to_rank_is_one_line(asked, message):
    with pytest.raises(InputError, match=message):
        search(**{"problem": CUBE, "device": H200, "kernels": [WARPS, REGISTER]} | asked)


def test_regret():
    points = [Point(CUBE, "naive", kernel("naive").tiling(block_m=rows, block_n=32)) for rows in (1, 2, 4, 8)]
    predicted = [float(predict(CUBE, kernel("naive"), point.tiling, H200).time_s) for point in points]
    records = [timed(point, H200, factor, counted=False) for point, factor in zip(points, (3, 2, 1, 4), strict=True)]
    measured = [record.median_s for record in records]
    assert regret(records, 1) == pytest.approx(measured[0] / min(measured) - 1)
    assert regret(records, 2) == pytest.approx(min(measured[:2]) / min(measured) - 1)
    assert regret(records, 10) == 0
    lost = [failed(points[0], H200, "wrong result"), *records[1:]]
    assert regret(lost, 1) is None
    assert regret(lost, 2) == pytest.approx(measured[1] / min(measured[1:]) - 1)
    assert predicted[0] > 0
