"""Microbenchmarks on the present GPU: programs do what they say, and streams with a known time take it."""

from __future__ import annotations

import pytest

from gemmsim.errors import MachineError
from gemmsim.gpu.register_bench import CAPABILITY, Bench, room_for, self_check, steady_cycles
from gemmsim.gpu.register_campaign import checks, measure_bodies, read_done
from gemmsim.gpu.session import Gpu
from gemmsim.machine_code.loop_bodies import loop_body_of
from gemmsim.machine_code.register_variants import variants

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]

BODIES = {body.name: body for body in variants()}


@pytest.fixture(scope="module")
def bench():
    """A bench on the GPU; skipped where that is none of sm_90."""
    with Gpu() as gpu:
        if gpu.facts.capability != CAPABILITY:
            with pytest.raises(MachineError, match="written in the machine code"):
                Bench(gpu)
            pytest.skip(f"{gpu.facts.title} is no sm_90")
        with Bench(gpu) as found:
            yield found


def test_programs_do_what_they_say(bench):
    chosen = checks(list(BODIES.values()))
    assert len(self_check(bench, chosen)) == len(chosen)


# FFMA alone: a bank serves one read a cycle, an operand that is held needs none
KNOWN = [("eeo", 2.0), ("eee", 3.0), ("eee holding AB", 1.0), ("eeo, eoo in turn", 1.5)]


@pytest.mark.parametrize("warps", [1, 2, 4])
@pytest.mark.parametrize(("name", "expected"), KNOWN)
def test_known_streams_take_their_time(bench, name, expected, warps):
    body = BODIES[name]
    samples = bench.time(body, warps)
    assert steady_cycles(samples, body.ffma, warps) == pytest.approx(expected, rel=0.015)


def test_two_times_are_one(bench):
    body = BODIES["LDS.128, one in 16"]
    first, second = (steady_cycles(bench.time(body, 2), body.ffma, 2) for _ in range(2))
    assert first == pytest.approx(second, rel=0.02)


def test_what_has_no_room_is_not_run(bench):
    assert bench.time(BODIES["8x8 rows, accumulator opposite B"], 8) is None


def test_a_campaign_of_given_streams(bench, tmp_path):
    given = loop_body_of({"name": "given", "ffma": [[30, 4, 6, 9, ""], [31, 8, 10, 11, ""]] * 8}, "x")
    assert room_for(given, 8)
    out = tmp_path / "out.jsonl"
    (found,) = measure_bodies([given], out)
    assert read_done(out) == [found]
    assert found["cycles_per_ffma"] == pytest.approx(2.0, rel=0.02)  # two of each FFMA's sources are even
    assert set(found["steady_cycles_per_ffma_by_warps"]) == {"1", "2", "4", "8"}
