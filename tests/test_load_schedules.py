"""How a loop waits for its loads, read off programs: small ones by hand, and the shipped ones beside the table."""

from __future__ import annotations

import math

import numpy as np
import pytest

from campaigns.loads import rows
from gemmsim.analytic import load_schedules
from gemmsim.analytic.load_schedules import COLUMNS, SHIPPED, UNKNOWN, LoadSchedule, load_schedule, schedule_of
from gemmsim.analytic.spills import spills
from gemmsim.device import device
from gemmsim.kernels import KERNELS
from gemmsim.pipeline import programs
from gemmsim.pipeline.program import Program, Step
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.register_table import write_table
from gemmsim.routes import predicted_time
from gemmsim.tiling import Tiling

H200 = device("h200")
TILING = Tiling(64, 64, block_k=4, thread_m=2, thread_n=2)
FFMA = 16
"""Of a thread, in a tile of k of this tiling."""


def load(scoreboard, waits=()):
    return Step(1.0, 1.0, waits, "global_load", written=scoreboard)


def store(waits):
    return Step(1.0, 1.0, waits, "shared_store")


def multiply(cycles, ffma=FFMA):
    return Step(cycles, cycles, ffma=ffma)


def schedule(*loop):
    return schedule_of(Program((), loop, (), ()), TILING)


def test_loads_that_go_together_are_one_batch():
    assert schedule(load(0), load(1), store((0,)), store((1,)), multiply(16)).batches == 1


def test_what_is_asked_for_after_a_wait_is_another_batch():
    assert schedule(load(0), store((0,)), load(0), store((0,)), load(1), store((1,)), multiply(16)).batches == 3


def test_two_tiles_of_a_pass_share_a_latency_where_their_loads_go_together():
    found = schedule(load(0), load(1), store((0,)), multiply(16), store((1,)), multiply(16))
    assert found.batches == 0.5


def test_the_share_that_hides_no_latency_is_what_is_not_between_load_and_wait():
    at_the_top = schedule(load(0), multiply(97), store((0,)), Step(1.0, 1.0, (), "barrier"))
    assert (at_the_top.batches, at_the_top.exposed) == (1, pytest.approx(0.03))  # load, store, barrier of 100 cycles
    moved_down = schedule(multiply(97), load(0), store((0,)), Step(1.0, 1.0, (), "barrier"))
    assert (moved_down.batches, moved_down.exposed) == (1, 1)


def test_a_load_may_be_waited_for_in_the_next_pass():
    found = schedule(store((0,)), load(0), multiply(98))
    assert (found.batches, found.exposed) == (1, pytest.approx(0.02))


def test_other_waits_and_loops_without_loads_tell_nothing():
    reads = Step(1.0, 1.0, (), "shared_load", written=0), Step(16.0, 16.0, (0,), ffma=FFMA)
    assert schedule(*reads) is UNKNOWN
    assert schedule(load(1), *reads, store((1,))).batches == 1


def test_the_shipped_table_is_what_the_shipped_programs_say(tmp_path):
    found = list(rows(programs.read_rows(programs.shipped_file("sm_90")), "9.0"))
    write_table(tmp_path / "loads.jsonl", found, COLUMNS)
    assert (tmp_path / "loads.jsonl").read_bytes() == SHIPPED.read_bytes()
    assert {row.kernel for row in found} == {of.name for of in KERNELS.values() if of.staged and not of.copies}
    shares = np.array([row.loads["9.0"] for row in found])
    assert (shares[:, 0] > 0).all()
    assert ((shares[:, 1] >= 0) & (shares[:, 1] <= 1)).all()


def test_the_table_is_asked_for_numbers_and_arrays_alike():
    of = KERNELS["double_buffer"]
    tiling = of.tiling(block_m=128, block_n=128, block_k=8, thread_m=8, thread_n=8)
    sizes = [(512, 512, 512), (512, 510, 512), (300, 1001, 77)]
    each = [load_schedule(of, Problem(*size), tiling, H200.capability) for size in sizes]
    many = load_schedule(of, Problem(*np.array(sizes).T), tiling, H200.capability)
    np.testing.assert_array_equal(np.array(each), np.stack(many, axis=-1))
    assert each[0] != each[2]  # accesses are of other widths
    assert math.isnan(load_schedule(of, Problem(512, 512, 512), tiling, device("a100-40gb-sxm").capability).batches)


def test_late_waits_and_more_batches_take_longer():
    of = KERNELS["vectorized"]
    tiling = of.tiling(**dict(of.default_tile))

    def time_s(batches, exposed):
        found = predict(Problem(1024, 1024, 1024), of, tiling, H200, 100, schedule=LoadSchedule(batches, exposed))
        return float(found.time_s)

    assert time_s(1, 0.2) < time_s(1, 0.9) < time_s(2, 0.9) < time_s(3, 0.9)
    usual = spills(of, tiling, of.widths(Problem(1024, 1024, 1024), tiling), 100, 0).batches
    assert time_s(*UNKNOWN) == time_s(usual, 1.0)


def test_the_program_of_a_compiled_kernel_says_its_own():
    of, problem = KERNELS["vectorized"], Problem(1024, 1024, 1024)
    tiling = of.tiling(**dict(of.default_tile))
    ffma = tiling.block_k * tiling.thread_m * tiling.thread_n
    loop = (load(0), store((0,)), load(0), store((0,)), load(1), store((1,)), multiply(2.0 * ffma, ffma))
    found = predicted_time(problem, of, tiling, H200, "analytic", 100, program=Program((), loop, (), ()))
    expected = predict(problem, of, tiling, H200, 100, schedule=schedule_of(Program((), loop, (), ()), tiling))
    assert found.time_s == expected.time_s > predict(problem, of, tiling, H200, 100).time_s


@pytest.mark.parametrize("content", [b'{"kernel": "async", "macros"', b"\xff", b"[]", b'{"kernel": "async"}'])
def test_a_damaged_table_is_named(tmp_path, monkeypatch, gemmsim, content):
    path = tmp_path / "loads.jsonl"
    path.write_bytes(content)
    monkeypatch.setattr(load_schedules, "SHIPPED", path)
    result = gemmsim("predict 512 --kernel double_buffer")
    assert (result.status, result.out) == (2, "")
    assert result.err.startswith(f"gemmsim: error: {path} is damaged: ")
    assert result.err.count("\n") == 1
