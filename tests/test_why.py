"""Two configurations side by side: the differences, and which of them decides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from examples import example, tilings
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.explain.narrate_why import reasons
from gemmsim.explain.sides import Side, option_of
from gemmsim.explain.why import SAME, Quantity, Why
from gemmsim.kernels import KERNELS, kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.traffic import traffic

CUBE = Problem(2048, 2048, 2048)
H200 = device("h200")
TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}


def side(name, problem=CUBE, on=H200, registers=None, **values):
    tiling = kernel(name).tiling(**values) if values else example(name)
    return Side(predict(problem, kernel(name), tiling, on, registers), registers)


@st.composite
def sides(draw, problem):
    """Any small configuration of any kernel."""
    name = draw(st.sampled_from(sorted(KERNELS)))
    tiling = draw(tilings(name))
    return Side(predict(problem, kernel(name), tiling, H200))


@st.composite
def of_one_problem(draw):
    problem = draw(st.builds(Problem, *[st.integers(1, 300)] * 3))
    return Why(draw(sides(problem)), draw(sides(problem)))


def test_a_side_says_what_the_model_says():
    of = side("double_buffer")
    counted = traffic(CUBE, of.kernel, of.tiling)
    assert of.counts["global_reads"] == 2048**3 // 64  # m n k (1/128 + 1/128)
    assert of.counts["shared_reads"] == 2048**3 // 4  # m n k (1/8 + 1/8)
    assert of.counts["register_reads"] == 2 * 2048**3
    assert counted.counters.items() <= of.counts.items()
    assert of.counts["shared_load_excess"] == counted.shared_load.excess > 0
    assert of.residence["blocks"] == 256
    assert of.residence["shared_bytes"] == 16_384
    assert of.time_s == of.prediction.time_s


def test_a_ratio_needs_something_to_divide_by():
    assert Quantity("x", 6, 4).ratio == 1.5
    assert Quantity("x", 6, 0).ratio is None
    assert not Quantity("x", 4, 4).differs


@given(of_one_problem())
def test_it_does_not_matter_which_comes_first(why):
    other = Why(why.b, why.a)
    assert {id(other.slower), id(other.faster)} == {id(why.slower), id(why.faster)}
    assert other.tie == why.tie
    assert [(q.name, q.a, q.b) for q in why.terms] == [(q.name, q.b, q.a) for q in other.terms]
    if not why.tie:
        assert other.slower is why.slower
        assert (other.deciding_term, other.too_long, other.swaps) == (why.deciding_term, why.too_long, why.swaps)
        assert other.names == tuple({"A": "B", "B": "A"}[name] for name in why.names)


@given(of_one_problem())
def test_terms_that_take_too_long_are_those_that_had_to_go(why):
    slower, faster = why.slower.prediction, why.faster.prediction
    assert why.speedup >= 1 or why.tie
    if not why.tie:
        for name, seconds in slower.terms.items():
            assert (name in why.too_long) == bool(seconds > faster.time_s * (1 + SAME))
        assert why.deciding_term in slower.terms
    else:
        assert (why.too_long, why.deciding_term, why.swaps, why.deciding_option) == ((), None, (), None)


@given(of_one_problem())
def test_swaps_are_predictions_of_one_change(why):
    """By hand: put the other's values into the tiling, and predict that."""
    slower, faster = why.slower, why.faster
    for swap in why.swaps:
        of = faster.kernel if swap.option == "--kernel" else slower.kernel
        values = {}
        for name in of.fields:
            theirs = name not in slower.kernel.fields or (swap.option == option_of(name))
            values[name] = getattr((faster if theirs else slower).tiling, name)
        if swap.time_s is None:
            with pytest.raises(InputError) as refused:
                predict(slower.problem, of, of.tiling(**values), H200)
            assert (swap.closes, swap.reason) == (None, str(refused.value))
            continue
        expected = predict(slower.problem, of, of.tiling(**values), H200)
        assert swap.time_s == expected.time_s
        gap_s = slower.time_s - faster.time_s
        assert swap.closes == pytest.approx((slower.time_s - expected.time_s) / gap_s)
    closing = [swap.closes for swap in why.swaps if swap.closes is not None]
    assert closing == sorted(closing, reverse=True)


@given(of_one_problem())
def test_the_options_are_all_that_differs(why):
    """Who takes over all options of the other has its tiling; and nothing is listed that both have alike."""
    listed = {option for option, _, _ in why.options}
    if why.a.kernel is why.b.kernel:
        for name in why.a.kernel.fields:
            if getattr(why.a.tiling, name) != getattr(why.b.tiling, name):
                assert option_of(name) in listed
        assert bool(listed) == (why.a.tiling != why.b.tiling)
    else:
        assert "--kernel" in listed
    assert all(a != b for _, a, b in why.options)


@given(of_one_problem())
def test_there_is_a_sentence_for_every_pair(why):
    told = list(reasons(why))
    assert (told[0][0], told[-1][0]) == ("time", "decides")
    assert all(text and "None" not in text and "nan" not in text for _, text in told)


def test_one_difference_decides():
    padded = side("vectorized", **TILE, pad_a=4, swizzle=0)
    why = Why(side("vectorized", **TILE, pad_a=0), padded)
    assert why.options == (("--pad-a", "0", "4"),)
    if not why.tie:
        (swap,) = why.swaps
        assert (swap.option, swap.closes) == ("--pad-a", pytest.approx(1))


def test_a_thread_tile_needs_its_block_between_shared_and_register():
    """A kernel brings along what the other has not."""
    why = Why(side("shared", block_m=32, block_n=32, block_k=32), side("register", **TILE))
    assert why.names == ("A", "B")
    assert why.options == (
        ("--kernel", "shared", "register"),
        ("--tile", "32x32x32", "128x128x8"),
        ("--thread", "-", "8x8"),
    )
    (of_kernel,) = (swap for swap in why.swaps if swap.option == "--kernel")
    assert of_kernel.brings == ("--thread 8x8",)
    assert 0 < of_kernel.closes < 0.5  # alone it helps little: 32 x 32 elements are half a warp at 8 x 8 a thread
    assert why.deciding_option is None
    (tile,) = (swap for swap in why.swaps if swap.option == "--tile")
    assert "need 16384 threads a block" in tile.reason


def test_no_single_option_may_decide():
    """Neither change can be made alone: 1 x 1 a thread takes too many threads, 8 x 16 does not divide 24 x 24."""
    small = side("register", **{**TILE, "block_m": 24, "block_n": 24, "thread_m": 1, "thread_n": 1})
    why = Why(small, side("register", **{**TILE, "thread_n": 16}))
    assert {swap.option: swap.closes for swap in why.swaps} == {"--tile": None, "--thread": None}
    assert why.deciding_option is None
    assert dict(reasons(why))["decides"].startswith("no option alone")


def test_sizes_are_a_difference_too():
    why = Why(side("shared"), side("shared", Problem(1024, 2048, 2048)))
    assert why.options == (("sizes", "2048x2048x2048", "1024x2048x2048"),)
    (swap,) = why.swaps
    assert (swap.option, swap.time_s) == ("sizes", why.b.time_s)


def test_registers_that_were_given_are_a_difference():
    few, many = side("double_buffer", registers=96), side("double_buffer", registers=255)
    why = Why(few, many)
    assert why.options == (("--registers", "96", "255"),)
    assert {q.name: (q.a, q.b) for q in why.residence}["registers_per_thread"] == (96, 255)


def test_a_side_that_does_not_launch():
    why = Why(side("double_buffer", registers=255), side("double_buffer", **{**TILE, "thread_m": 4}, registers=255))
    assert why.names == ("B", "A")
    assert why.b.time_s == float("inf")
    assert (why.too_long, why.deciding_term, why.speedup) == ((), None, float("inf"))
    told = dict(reasons(why))
    assert told["time"].startswith("B does not launch: ")
    assert told["bound by"].startswith("A by ")
    assert "--thread 8x8 instead of 4x8" in told["decides"]


def test_neither_launches():
    both = side("double_buffer", **{**TILE, "thread_m": 4}, registers=255)
    why = Why(both, both)
    assert why.tie
    assert np.isnan(why.speedup)
    assert [topic for topic, _ in reasons(why)] == ["time"]


def test_the_same_twice():
    why = Why(side("async"), side("async"))
    assert (why.tie, why.options, why.swaps, why.speedup) == (True, (), (), 1)
    assert dict(reasons(why))["decides"].startswith("nothing")


def test_two_devices_are_no_comparison():
    with pytest.raises(InputError, match="A is on h200 and B on rtx-3090"):
        Why(side("shared"), side("shared", on=device("rtx-3090")))


def test_a_model_whose_time_is_more_than_its_longest_term():
    """Where no term alone explains the gap, that which differs most is named."""

    class Slower:
        """A prediction that takes twice its longest term."""

        def __init__(self, of):
            self.of = of

        def __getattr__(self, name):
            return 2 * self.of.time_s if name == "time_s" else getattr(self.of, name)

    one = side("vectorized").prediction
    why = Why(Side(one), Side(Slower(one)))
    assert why.names == ("B", "A")
    assert why.too_long == ()
    assert why.deciding_term in one.terms
    assert "no resource alone needs longer in B than all of A" in dict(reasons(why))["bound by"]


def test_measured_times_are_set_beside_and_contradict():
    slow, fast = side("shared"), side("register")
    told = dict(reasons(Why(replace(slow, measured_s=2e-3), replace(fast, measured_s=1e-3))))
    assert told["measured"] == "A took 2 ms, B 1 ms: B was 2 times as fast"
    told = dict(reasons(Why(replace(slow, measured_s=1e-3), replace(fast, measured_s=2e-3))))
    assert told["measured"].endswith("so the model has the two the wrong way round")
    told = dict(reasons(Why(slow, replace(fast, measured_s=2e-3))))
    assert told["measured"] == "B took 2 ms; of the other there is no record"
    assert "measured" not in dict(reasons(Why(slow, fast)))


def test_conflicts_are_told_with_their_reasons():
    tight, swizzled = side("vectorized", **TILE), side("vectorized", **TILE, swizzle=16)
    told = [text for topic, text in reasons(Why(tight, swizzled)) if topic == "conflicts"]
    if not Why(tight, swizzled).tie:
        assert len(told) == 3
        assert any(text.startswith("load_b of A: lanes lie 8 elements apart") for text in told)
        assert "none in B" in told
