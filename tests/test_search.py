"""The ranking against every configuration predicted alone, and what is said of the first."""

from __future__ import annotations

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import failed, timed

from gemmsim.analytic.load_schedules import schedule_of
from gemmsim.caches.traffic import cache_traffic
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, UNSAID, kernel
from gemmsim.pipeline.described import described_program
from gemmsim.pipeline.launch import simulate_launch
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.records import Point
from gemmsim.routes import both_s, weights
from gemmsim.search import LEAST_KEPT, rank, refinement, regret, scoring, search, spaces_of
from gemmsim.search.known_code import Compiled, known_code
from gemmsim.search.landscapes import Landscape, landscapes
from gemmsim.search.refinement import refined, simulated_too, suited
from gemmsim.search.scoring import TELLING, Result
from gemmsim.search.sensitivity import sensitivities, why_it_loses
from gemmsim.search.tables import rows_of, size_of

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


def tile(of, tiling):
    return of.name, *(getattr(tiling, name) for name in TELLING)


@settings(max_examples=10)
@given(
    st.tuples(*(st.sampled_from([1, 100, 1024, 4097]) for _ in "mnk")),
    st.sampled_from(["h200", "rtx-3090"]),
    st.sampled_from([["register"], ["warp_tiled", "register"]]),
    st.integers(1, 6),
)
def test_the_best_is_the_least_of_all_predicted_alone(sizes, on, names, top):
    problem, kernels = Problem(*sizes), [kernel(name) for name in names]
    found = search(problem, device(on), kernels, top=top, values=FEW, simulated=0)
    alone = sorted(every(found.spaces), key=lambda each: each[0])
    assert found.evaluated == len(alone)
    assert found.pick.time_s == pytest.approx(alone[0][0])
    best = {}
    for time_s, _, of, tiling in alone:
        best.setdefault(tile(of, tiling), time_s)
    assert [each.time_s for each in found.results] == pytest.approx(sorted(best.values())[:top])
    for each in found.results:
        assert best[tile(each.kernel, each.tiling)] == pytest.approx(each.time_s)
        assert predict(problem, each.kernel, each.tiling, device(on)).time_s == pytest.approx(each.time_s)
    bounds = {bound_by for time_s, bound_by, *_ in alone if time_s == pytest.approx(alone[0][0])}
    assert found.pick.bound_by in bounds


LARGEST_MADE = 2**31 - 1


class Made:
    """Times that are made up, so that whole spaces can be ranked: a formula of the fields, some without a launch."""

    def __init__(self, never: float = 0.1) -> None:
        self.never = never
        self.calls = 0

    def time_s(self, tilings):
        fields = [np.asarray(getattr(tilings, name)) for name in REGISTER.fields]
        mixed = sum(value * (7919 + 2 * number) ** 2 for number, value in enumerate(fields))
        return (mixed * 48271 % LARGEST_MADE + 1) * 1e-12

    def __call__(self, problem, of, tilings, on):
        self.calls += 1
        time_s = self.time_s(tilings)
        return np.where(time_s > (1 - self.never) * LARGEST_MADE * 1e-12, np.inf, time_s)


@pytest.fixture
def made(monkeypatch) -> Made:
    found = Made()
    monkeypatch.setattr(scoring, "quick_times", found)
    return found


def best_of(spaces, most):
    best = scoring.Best(most)
    for scored in scoring.scores(*spaces):
        best.take(scored)
    return best


def test_a_whole_space_keeps_what_a_sort_of_all_of_it_would(made):
    spaces = spaces_of(CUBE, H200, [REGISTER])
    best = best_of(spaces, 200)
    of_row: dict[tuple[int, ...], float] = {}
    seen = 0
    for chunk in spaces[0].chunks():
        times_s = made(CUBE, REGISTER, chunk, H200)
        seen += np.isfinite(times_s).sum()
        rows = np.stack([np.broadcast_to(getattr(chunk, name), times_s.shape) for name in TELLING], axis=1)
        order = np.argsort(times_s)
        for first in order[np.unique(rows[order], axis=0, return_index=True)[1]]:
            key = tuple(rows[first].tolist())
            of_row[key] = min(of_row.get(key, np.inf), times_s[first])
    assert best.seen == seen
    assert [each.time_s for each in best.results] == sorted(of_row.values())[:200]
    assert all(made.time_s(each.tiling) == each.time_s for each in best.results)
    assert len({str(each) for each in best.results}) == 200


def test_one_stands_for_all_that_are_alike(monkeypatch):
    """The first of each block and thread tile, though orders, layouts, warps and stages have values to vary."""
    monkeypatch.setattr(scoring, "quick_times", lambda problem, of, tilings, on: 1.0 + 0.0 * tilings.warp_m)
    spaces = spaces_of(
        CUBE,
        H200,
        [kernel("async")],
        ["block_m >= 64 and block_n >= 64 and split_k == 1 and block_k == 8 and thread_m == 8"],
    )
    best = best_of(spaces, 10_000)
    tiles = [tile(each.kernel, each.tiling) for each in best.results]
    chunks = [np.stack([getattr(chunk, name) for name in TELLING]) for chunk in spaces[0].chunks()]
    assert len(set(tiles)) == len(tiles) == len(np.unique(np.concatenate(chunks, axis=1), axis=1).T)
    assert {each.tiling.group for each in best.results} == {1}
    assert {each.tiling.pad_b for each in best.results} == {0}


def test_all_alike_is_said(monkeypatch):
    found = search(CUBE, H200, [REGISTER], values=FEW, simulated=0)
    alike = replace(found, results=tuple(replace(each, time_s=1.0) for each in found.results), beyond=())
    assert (alike.alike, alike.runner_up) == (len(found.results), None)
    assert why_it_loses(alike) == f"the first {len(found.results)} configurations are predicted alike"
    assert "no other tiles" in why_it_loses(replace(alike, results=alike.results[:1]))


def test_memory_does_not_grow_with_the_space(made):
    def peak_bytes(*where: str) -> tuple[int, int]:
        tracemalloc.start()
        best = best_of(spaces_of(Problem(4096, 4096, 4096), H200, [kernel("double_buffer")], where), LEAST_KEPT)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak, best.seen

    few, many = peak_bytes("thread_m == 8"), peak_bytes()
    assert many[1] > 3 * few[1] > 10**5
    assert many[0] < few[0] + 20e6 < 100e6


def test_one_pass_serves_all_watchers(made):
    spaces = spaces_of(CUBE, H200, [REGISTER], ["block_k == 8"])
    blocks, stages = landscapes(spaces)
    best = scoring.Best(1)
    for scored in scoring.scores(*spaces):
        for watcher in (best, blocks, stages):
            watcher.take(scored)
    assert made.calls == len([*spaces[0].tables()])
    assert blocks.best_s.min() == stages.best_s.min() == best.results[0].time_s


def test_a_landscape_has_the_best_of_each_place(made):
    spaces = spaces_of(CUBE, H200, [REGISTER], ["block_k == 8", "pad_a == 0"])
    blocks = Landscape("block_n", "block_m", spaces)
    stages = landscapes(spaces)[1]
    rank(spaces, watchers=(blocks, stages), simulated=0)
    best: dict[tuple[int, int], float] = {}
    of_registers: dict[int, float] = {}
    for chunk in spaces[0].chunks():
        times_s = made(CUBE, REGISTER, chunk, H200)
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
    found = search(CUBE, H200, [REGISTER], values=FEW, simulated=0)
    by_name = {each.name: each for each in sensitivities(found)}
    assert set(by_name) == {*REGISTER.fields} - {*UNSAID}
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
    found = search(CUBE, H200, [REGISTER], values=FEW, simulated=0)
    other = found.runner_up
    assert other is not None
    assert other.time_s > found.pick.time_s
    reason = why_it_loses(found)
    assert reason.startswith(f"the runner-up, {other}, takes ")
    assert " instead of " in reason
    terms = predict(CUBE, other.kernel, other.tiling, H200).terms
    assert any(f"what decides is {name.replace('_', ' ')}, " in reason for name in terms)


def test_all_but_the_tiles_is_the_best_of_the_space():
    problem, of = Problem(4096, 4096, 4096), kernel("async")
    (space,) = spaces_of(problem, H200, [of])
    worst = of.tiling(**dict(of.default_tile) | {"pad_a": 0, "pad_b": 8, "group": 1})
    found = suited(Result(of, worst, 1.0, 1.0), space)
    assert tile(of, found.tiling) == tile(of, worst)
    varied = itertools.product((0, 4, 8), (0, 4), (2, 3, 4))
    others = [
        of.tiling(**of.tiling_dict(found.tiling) | {"pad_a": a, "pad_b": b, "stages": stages})
        for a, b, stages in varied
    ]
    times_s = [float(predict(problem, of, each, H200).time_s) for each in others]
    assert found.time_s == found.analytic_s == min(times_s) < float(predict(problem, of, worst, H200).time_s)
    moved = [
        cache_traffic(problem, of, replace(found.tiling, group=group), H200, 1).dram_read_bytes
        for group in (1, 2, 4, 8, 16)
    ]
    assert moved[[1, 2, 4, 8, 16].index(found.tiling.group)] == pytest.approx(min(moved), rel=0.05)
    assert min(moved) < 0.95 * max(moved)


def deeper(each):
    return {8: 1.0, 16: 2**0.03}[each.tiling.block_k]


@pytest.mark.parametrize(("block_k", "times"), [(4, 1.0), (8, 1.0), (32, 4**0.03)])
def test_deep_tiles_take_longer_shallow_ones_do_not_take_less(block_k: int, times: float):
    of = KERNELS["register"]
    tiling = of.tiling(block_m=64, block_n=64, block_k=block_k, thread_m=4, thread_n=4)
    assert refinement.deeper(Result(of, tiling, 1.0, 1.0)) == pytest.approx(times)
    naive = KERNELS["naive"]
    assert refinement.deeper(Result(naive, naive.tiling(), 1.0, 1.0)) == 1


def test_the_first_are_simulated_and_the_others_moved_by_as_much(monkeypatch):
    monkeypatch.setattr(refinement, "known_code", lambda *_: None)
    weight = weights().get("register", 0.5)
    spaces, told = spaces_of(CUBE, H200, [REGISTER], values=FEW), []
    analytic = rank(spaces, simulated=0).kept
    found = refined(analytic, spaces, 2, lambda *each: told.append(each))
    assert told[-1] == ("simulated", 2, 2)
    assert [each.time_s for each in found] == sorted(each.time_s for each in found)
    both = [each for each in found if each.simulated_s is not None]
    assert {str(each) for each in both} == {str(each) for each in analytic[:2]}
    for each in both:
        program = described_program(CUBE, REGISTER, each.tiling, H200)
        fit = int(predict(CUBE, REGISTER, each.tiling, H200).occupancy.blocks_per_sm)
        simulated_s = simulate_launch(CUBE, REGISTER, each.tiling, H200, program, fit).time_s
        assert each.simulated_s == pytest.approx(simulated_s, rel=1e-5)
        assert each.time_s == pytest.approx(
            deeper(each) * each.simulated_s ** (weight / 2) * each.analytic_s ** (1 - weight / 2)
        )
        assert not each.compiled
    moved = np.median([each.time_s / each.analytic_s for each in both])
    assert all(each.time_s == pytest.approx(moved * each.analytic_s) for each in found if each.simulated_s is None)


def test_what_is_compiled_is_predicted_as_compiled():
    spaces = spaces_of(CUBE, H200, [REGISTER], values=FEW)
    analytic = rank(spaces, simulated=0).kept

    def compiler(results, of, tell):
        tell("compiled", 2, 3)
        programs = [described_program(CUBE, REGISTER, each.tiling, H200) for each in results]
        return [Compiled(250, 40, programs[0]), None, Compiled(64, 0, programs[2])]

    found = refined(analytic, spaces, 3, compiler=compiler)
    both = {str(each): each for each in found if each.compiled}
    assert set(both) == {str(analytic[0]), str(analytic[2])}
    for at, registers, local_bytes in ((0, 250, 40), (2, 64, 0)):
        each = both[str(analytic[at])]
        program = described_program(CUBE, REGISTER, each.tiling, H200)
        taken = {"local_bytes": local_bytes, "schedule": schedule_of(program, each.tiling)}
        alone = predict(CUBE, REGISTER, each.tiling, H200, registers, **taken)
        assert each.analytic_s == alone.time_s
        fit = int(alone.occupancy.blocks_per_sm)
        simulated_s = simulate_launch(CUBE, REGISTER, each.tiling, H200, program, fit).time_s
        assert each.simulated_s == pytest.approx(simulated_s, rel=1e-5)
        assert each.time_s == deeper(each) * both_s(each.simulated_s, each.analytic_s, "register")
    moved = np.median([both[str(analytic[at])].time_s / analytic[at].analytic_s for at in (0, 2)])
    (other,) = (each for each in found if str(each) == str(analytic[1]))
    assert (other.simulated_s, other.compiled) == (None, False)
    assert other.time_s == pytest.approx(moved * other.analytic_s)


def test_what_is_known_of_the_code_is_used_without_a_compiler():
    problem, of = Problem(4096, 4096, 4096), kernel("async")
    (space,) = spaces_of(problem, H200, [of])
    tiling = of.tiling(**dict(of.default_tile))
    code = known_code(problem, of, tiling, H200)
    assert code is not None
    found = simulated_too(Result(of, tiling, 1.0, 1.0), space)
    assert found.compiled
    assert found == simulated_too(Result(of, tiling, 1.0, 1.0), space, code)
    alone = predict(problem, of, tiling, H200, code.registers_per_thread, local_bytes=code.local_bytes)
    assert found.analytic_s == alone.time_s
    assert found.time_s == both_s(found.simulated_s, found.analytic_s, "async")  # its block_k is 8


def test_tiles_are_suited_with_the_registers_that_are_known(monkeypatch):
    """A ring that would leave room for one block less, as is known of it, is not taken; the estimate would take it."""
    problem, of = Problem(4096, 4096, 4096), kernel("async")
    (space,) = spaces_of(problem, H200, [of])
    given = Result(of, of.tiling(**dict(of.default_tile)), 1.0, 1.0)
    monkeypatch.setattr(refinement, "known_registers", lambda *launch: np.zeros((2, size_of(launch[2])), np.int64))
    taken = suited(given, space).tiling.stages

    def known(problem, kernel, tilings, on):
        registers = np.where(np.broadcast_to(tilings.stages, size_of(tilings)) == taken, 255, 0)
        return np.stack([registers, 4000 * (registers > 0)])

    monkeypatch.setattr(refinement, "known_registers", known)
    assert suited(given, space).tiling.stages != taken


def test_without_a_simulation_the_analytic_route_stands_alone(monkeypatch):
    def unknown(*_):
        raise InputError("nothing is known of the device")

    spaces = spaces_of(CUBE, H200, [REGISTER], values=FEW)
    monkeypatch.setattr(refinement, "simulated_s", unknown)
    assert [each.time_s for each in rank(spaces).kept] == [each.time_s for each in rank(spaces, simulated=0).kept]


def test_all_kernels_that_a_device_runs_are_searched():
    assert [each.kernel.name for each in spaces_of(CUBE, H200)] == list(KERNELS)
    assert "async" not in [each.kernel.name for each in spaces_of(CUBE, device("t4"))]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"where": ["block_m > 4000"]}, r"--where block_m > 4000 leaves none of the [1-9]\d* legal configurations of "),
        (
            {"where": ["traversal > 0"], "kernels": [REGISTER]},
            r"leaves none of the .* of register; searches leave traversal at 0$",
        ),
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
