"""Both routes behind one call: which is taken when, that one is the simulation, and what is kept of it."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim import routes, simulated_times
from gemmsim.calibration import as_if_uncalibrated, calibration
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.pipeline.launch import simulate_launch
from gemmsim.pipeline.programs import program_for
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.routes import ROUTES, analytic_s, both_s, predicted_time, route_of, weights
from gemmsim.simulated_times import DIGITS, code, key_of, read_times, simulated_s, write_times

H200 = device("h200")
PROBLEM, KERNEL = Problem(512, 512, 512), kernel("double_buffer")
TILING = KERNEL.tiling(block_m=128, block_n=128, block_k=8, thread_m=8, thread_n=8, pad_a=4)
LAUNCH = (PROBLEM, KERNEL, TILING, H200)
WITHOUT = KERNEL.tiling(block_m=96, block_n=160, block_k=8, thread_m=4, thread_n=20)
"""A tiling that nobody compiled."""


@pytest.fixture(autouse=True)
def apart(monkeypatch, tmp_path):
    """No file of times but one that holds none, so that all is simulated here."""
    file = tmp_path / "times.json"
    write_times({}, file)
    monkeypatch.setattr(simulated_times, "_times", dict)


def test_a_tiling_that_nobody_compiled_has_no_program():
    assert program_for(KERNEL, PROBLEM, WITHOUT, H200) is None
    assert program_for(KERNEL, PROBLEM, TILING, H200) is not None


def test_the_simulated_time_is_that_of_the_simulation():
    found = predicted_time(*LAUNCH, "simulated")
    program = program_for(KERNEL, PROBLEM, TILING, H200)
    blocks = int(found.occupancy.blocks_per_sm)
    expected = simulate_launch(PROBLEM, KERNEL, TILING, H200, program, blocks)
    assert found.time_s == pytest.approx(expected.time_s, rel=10 ** (1 - DIGITS))
    assert found.cycles == pytest.approx(found.time_s * H200.clock_hz)
    assert found.flop_per_s == pytest.approx(PROBLEM.flop / found.time_s)


def test_what_bounds_it_is_what_the_analytic_route_says():
    found, closed = predicted_time(*LAUNCH, "simulated"), predict(*LAUNCH)
    assert (found.terms, found.bound_by, found.waves) == (closed.terms, closed.bound_by, closed.waves)
    assert analytic_s(found) == closed.time_s == analytic_s(closed)
    assert found.time_s != closed.time_s
    assert (route_of(found), route_of(closed)) == ("simulated", "analytic")


def test_both_together_are_the_weighed_mean():
    found, alone, closed = (predicted_time(*LAUNCH, route) for route in ("both", "simulated", "analytic"))
    assert route_of(found) == "both"
    weight = weights()[KERNEL.name]
    assert 0 < weight < 1
    assert found.time_s / closed.time_s == pytest.approx((alone.time_s / closed.time_s) ** weight)
    assert (found.simulated_s, analytic_s(found)) == (alone.time_s, closed.time_s)
    assert (found.terms, found.bound_by) == (closed.terms, closed.bound_by)


@given(st.floats(1e-9, 10), st.floats(1e-9, 10), st.floats(0.1, 10), st.sampled_from([*KERNELS, "another"]))
def test_the_mean_lies_between_and_scales(one, other, factor, kernel):
    mean = both_s(one, other, kernel)
    assert min(one, other) * (1 - 1e-9) <= mean <= max(one, other) * (1 + 1e-9)
    assert both_s(factor * one, factor * other, kernel) == pytest.approx(factor * mean, rel=1e-9)


def test_a_route_of_smaller_errors_weighs_more():
    """Of a kernel of which no weight is known both weigh alike."""
    assert both_s(1.0, 4.0, "another") == pytest.approx(2.0)
    assert set(weights()) == set(KERNELS)


@pytest.mark.parametrize("text", ["async = 7", "async = nan", 'async = "half"', "async ="])
def test_weights_that_are_none(monkeypatch, tmp_path, text: str):
    file = tmp_path / "route_weights.toml"
    file.write_text(text)
    monkeypatch.setattr(routes, "WEIGHTS", file)
    weights.cache_clear()
    with pytest.raises(InputError, match="route_weights"):
        weights()
    weights.cache_clear()


def test_auto_asks_both_where_there_is_a_program():
    assert route_of(predicted_time(*LAUNCH)) == "both"
    assert route_of(predicted_time(PROBLEM, KERNEL, WITHOUT, H200)) == "analytic"
    assert route_of(predicted_time(*LAUNCH[:3], device("rtx-3090"))) == "analytic"
    assert predicted_time(*LAUNCH, "analytic") == predict(*LAUNCH)


def test_a_program_that_was_just_compiled_is_taken():
    program = program_for(KERNEL, PROBLEM, TILING, H200)
    longer = replace(program, loop=program.loop + program.loop)  # half as many passes, each twice as long
    assert route_of(predicted_time(PROBLEM, KERNEL, WITHOUT, H200, program=program)) == "both"
    one, other = (predicted_time(*LAUNCH, "simulated", program=of).time_s for of in (program, longer))
    assert one == pytest.approx(other, rel=0.1)


def test_many_launches_at_once_go_the_analytic_way():
    sizes = np.array([256, 512])
    found = predicted_time(Problem(sizes, sizes, sizes), KERNEL, TILING, H200)
    assert route_of(found) == "analytic"
    assert found.time_s.shape == (2,)


def test_what_does_not_launch_is_not_simulated():
    found = predicted_time(*LAUNCH, "simulated", registers_per_thread=255)
    large = replace(TILING, thread_m=4, thread_n=4)
    assert route_of(found) == "simulated"
    assert predicted_time(PROBLEM, KERNEL, large, H200, "simulated", registers_per_thread=200).time_s == np.inf


@pytest.mark.parametrize(
    ("launch", "route", "message"),
    [
        (LAUNCH, "simulatd", "unknown route 'simulatd'; nearest: simulated"),
        ((PROBLEM, KERNEL, WITHOUT, H200), "simulated", "no program of double_buffer .* for sm_90: predict --compile"),
        ((PROBLEM, KERNEL, WITHOUT, H200), "both", "no program of double_buffer .* for sm_90: predict --compile"),
        ((Problem(np.array([64, 65]), 64, 64), KERNEL, TILING, H200), "simulated", "many launches at once"),
        ((Problem(np.array([64, 65]), 64, 64), KERNEL, TILING, H200), "both", "many launches at once"),
    ],
)
def test_refusals(launch, route, message):
    with pytest.raises(InputError, match=message):
        predicted_time(*launch, route)
    assert "auto" in ROUTES


def test_it_follows_what_the_gpu_is_known_to_do():
    own = predicted_time(*LAUNCH, "simulated")
    with as_if_uncalibrated():
        assert not calibration(H200).own
        lent = predicted_time(*LAUNCH, "simulated")
    assert calibration(H200).own
    assert lent.time_s != own.time_s
    assert lent.time_s == pytest.approx(own.time_s, rel=0.5)


# What is kept


def test_a_time_is_simulated_once(monkeypatch):
    times = {}
    monkeypatch.setattr(simulated_times, "_times", lambda: times)
    asked = (*LAUNCH, program_for(KERNEL, PROBLEM, TILING, H200), 2, calibration(H200))
    first = simulated_s(*asked)
    assert times == {key_of(*asked): first}

    def never(*_):
        raise AssertionError("simulated again")

    monkeypatch.setattr("gemmsim.pipeline.launch.simulate_launch", never)
    assert simulated_s(*asked) == first


def test_keys_tell_apart_all_that_decides():
    program, known = program_for(KERNEL, PROBLEM, TILING, H200), calibration(H200)
    step = program.loop[0]
    asked = [
        (*LAUNCH, program, 2, known),
        (*LAUNCH, program, 1, known),
        (Problem(512, 512, 520), *LAUNCH[1:], program, 2, known),
        (*LAUNCH[:2], replace(TILING, pad_b=4), H200, program, 2, known),
        (*LAUNCH[:3], replace(H200, sms=131), program, 2, known),
        (
            *LAUNCH,
            replace(program, loop=(step._replace(issue_cycles=step.issue_cycles + 1), *program.loop[1:])),
            2,
            known,
        ),
        (*LAUNCH, program, 2, replace(known, launch_overhead_s=2e-6)),
    ]
    assert len({key_of(*each) for each in asked}) == len(asked)
    assert key_of(*asked[0]) == key_of(*asked[0])


def test_the_file_reads_back_and_holds_for_its_code_alone(tmp_path, monkeypatch):
    file = tmp_path / "times.json"
    write_times({"b": 2.5e-5, "a": 1e-3}, file)
    assert read_times(file) == {"a": 1e-3, "b": 2.5e-5}
    content = json.loads(file.read_text())
    assert list(content["times"]) == ["a", "b"]
    monkeypatch.setattr(simulated_times, "code", lambda: "another")
    assert read_times(file) == {}
    assert read_times(file, of_other_code=True) == {"a": 1e-3, "b": 2.5e-5}
    file.write_text("[]")
    with pytest.raises(InputError, match=r"times\.json: not a file of simulated times"):
        read_times(file)
    assert read_times(tmp_path / "none.json") == {}


def test_comments_and_docstrings_are_not_code():
    essence = simulated_times._essence
    plain = 'def f(x):\n    return g(x, "text")\n'
    assert essence(plain) == essence(
        '"""Module."""\n\n\ndef f(x):  # why\n    """What."""\n    return g(x,\n        "text")\n'
    )
    assert essence(plain) != essence(plain.replace("text", "other"))
    assert len(code()) == simulated_times.HEX_DIGITS


def test_shipped_times_are_what_the_simulation_gives():
    times = read_times()
    if not times:
        pytest.skip("no simulated times are shipped, or they are of other code: python -m campaigns.accuracy --write")
    found = predicted_time(*LAUNCH, "simulated")
    key = key_of(
        *LAUNCH, program_for(KERNEL, PROBLEM, TILING, H200), int(found.occupancy.blocks_per_sm), calibration(H200)
    )
    assert times[key] == found.time_s
