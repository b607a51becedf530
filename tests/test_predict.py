"""The first model of time: each term by its own arithmetic, and what holds between them."""

from __future__ import annotations

import numpy as np
import pytest
from examples import TILE, example
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import device, devices
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.predict import predict
from gemmsim.problem import LARGEST_SIZE, Problem
from gemmsim.roofline import attainable, bandwidths, floor_s, ridge
from gemmsim.traffic import traffic

H200 = device("h200")
SIZES = st.integers(1, 6000)


def test_the_terms_by_hand():
    # 4096^3 with 128x128x8 tiles, 8x8 a thread: 1024 blocks on 132 SMs, so 8 on the busiest
    terms = predict(Problem(4096, 4096, 4096), kernel("register"), example("register"), H200).terms
    clock = 1980e6
    assert terms["ffma"] == pytest.approx(8 * 128 * 128 * 4096 / 128 / clock)
    # a tile of k: 8 warps x 8 k x (A: 8 rows, read as runs of 4 along k, 2 wavefronts each; B: 2 runs of 8)
    loads = 8 * 8 * (8 / 4 * 2 + 2 * 8)
    stores = 2 * 128 * 8 / 32
    assert terms["shared_memory"] == pytest.approx(8 * 512 * (loads + stores) / clock)
    assert terms["dram"] == pytest.approx(3 * 4096**2 * 4 / 4.8e12)
    # warp instructions of a block and tile, one a cycle on each of 4 schedulers: 512 FFMA a thread, reads from
    # shared memory (8 rows and 2 runs a k for A and B, A 4 k at once), stores and loads of 32 x 8 lanes each
    instructions = 8 * 512 + 8 * 8 * (8 / 4 + 2) + 2 * 2 * 128 * 8 / 32
    assert terms["issue"] == pytest.approx(8 * 512 * instructions / 4 / clock)
    assert terms["l2"] == pytest.approx((2 * 4096**3 / 128 + 4096**2) * 4 / H200.l2_bytes_per_s)
    assert terms["l1"] == pytest.approx(8 / 1024 * 2 * 4096**3 / 128 / 32 / clock)


@pytest.mark.parametrize("name", KERNELS)
@given(m=SIZES, n=SIZES, k=SIZES)
def test_no_prediction_beats_the_roofline(name, m, n, k):
    problem = Problem(m, n, k)
    prediction = predict(problem, kernel(name), example(name), H200)
    by_hand = max(problem.flop / H200.fp32_flop_per_s, problem.compulsory_bytes / H200.dram_bytes_per_s)
    assert floor_s(problem, H200) == pytest.approx(by_hand)
    assert prediction.time_s >= by_hand * (1 - 1e-12)
    terms = dict(prediction.terms)
    idle = {each: terms.pop(each) for each in ("latency", "launch")}
    stage = "shared_memory", "l1"  # one stage does what both ask for
    busy = terms | {max(stage, key=terms.get): sum(terms[each] for each in stage)}
    if max(busy.values()) >= 0.6 * (prediction.time_s - idle["launch"]):
        assert busy[prediction.bound_by] == max(busy.values())
    else:
        assert idle[prediction.bound_by] == max(idle.values())
    assert prediction.flop_per_s == pytest.approx(problem.flop / prediction.time_s)
    assert prediction.cycles == pytest.approx(prediction.time_s * H200.clock_hz)


@pytest.mark.parametrize("name", KERNELS)
@given(m=SIZES, n=SIZES, k=SIZES, axis=st.sampled_from("mnk"), more=st.integers(1, 2000))
def test_more_work_never_takes_less_time(name, m, n, k, axis, more):
    small = {"m": m, "n": n, "k": k}
    # A leading dimension that is no multiple of 4 needs more requests, so compare like with like; and copies beyond the
    # columns of B all read the last ones, one lane after the other, so there whole tiles.
    each = {"m": 4, "n": example(name).block_n if kernel(name).copies else 4, "k": 4}
    small = {key: each[key] * size for key, size in small.items()}
    large = small | {axis: small[axis] + each[axis] * more}
    before, after = (predict(Problem(**s), kernel(name), example(name), H200).time_s for s in (small, large))
    assert after >= before * (1 - 1e-12)


@pytest.mark.parametrize("name", KERNELS)
@given(sizes=st.lists(st.tuples(SIZES, SIZES, SIZES), min_size=1, max_size=4))
def test_arrays_predict_like_numbers(name, sizes):
    many = predict(Problem(*map(np.array, zip(*sizes, strict=True))), kernel(name), example(name), H200)
    for i, size in enumerate(sizes):
        alone = predict(Problem(*size), kernel(name), example(name), H200)
        assert many.time_s[i] == pytest.approx(alone.time_s)
        assert many.bound_by[i] == alone.bound_by
        assert many.waves[i] == pytest.approx(alone.waves)


def test_arrays_of_tilings():
    vectorized = kernel("vectorized")
    pads = np.array([0, 4, 8])
    many = predict(Problem(1000, 1000, 1000), vectorized, vectorized.tiling(**TILE, pad_a=pads), H200)
    for i, pad in enumerate(pads):
        alone = predict(Problem(1000, 1000, 1000), vectorized, vectorized.tiling(**TILE, pad_a=int(pad)), H200)
        assert many.terms["shared_memory"][i] == alone.terms["shared_memory"]
    assert many.terms["shared_memory"][0] > many.terms["shared_memory"][1]  # padding clears the stores


@pytest.mark.parametrize("name", devices())
def test_every_device_predicts(name):
    prediction = predict(Problem(1024, 1024, 1024), kernel("shared"), example("shared"), device(name))
    assert 0 < prediction.time_s < 1
    assert prediction.calibrated == (name == "h200")


def test_a_launch_that_does_not_fit_takes_for_ever():
    prediction = predict(Problem(64, 64, 64), kernel("shared"), example("shared"), H200, registers_per_thread=128)
    assert prediction.occupancy.blocks_per_sm == 0
    assert prediction.time_s == prediction.waves == np.inf


def test_tiles_that_the_device_cannot_hold():
    with pytest.raises(InputError, match="allowed on t4: up to 65536 bytes"):
        predict(
            Problem(64, 64, 64),
            kernel("shared"),
            kernel("shared").tiling(block_m=32, block_n=32, block_k=512),
            device("t4"),
        )


def test_without_staging_a_warp_with_one_lane_is_a_warp():
    naive = kernel("naive")

    def ffma_s(m, n, **block):
        return predict(Problem(m, n, 64), naive, naive.tiling(**block), H200).terms["ffma"]

    whole = ffma_s(8, 32, block_m=8, block_n=32)
    assert ffma_s(8, 1, block_m=8, block_n=32) == whole  # every row is a warp
    assert ffma_s(1, 32, block_m=8, block_n=32) == pytest.approx(whole / 8)  # the other rows' warps leave
    assert ffma_s(1, 8, block_m=32, block_n=8) == ffma_s(4, 8, block_m=32, block_n=8)  # four rows share a warp


def test_the_tail_shows():
    shared = kernel("shared")
    tiling = shared.tiling(block_m=32, block_n=32, block_k=32)
    full = predict(Problem(32 * 132, 32, 1024), shared, tiling, H200)
    one_more = predict(Problem(32 * 133, 32, 1024), shared, tiling, H200)
    assert one_more.terms["ffma"] == pytest.approx(2 * full.terms["ffma"])


def test_published_rooflines():
    assert attainable(2.584785579, 7068.86e9, 828.758e9) == pytest.approx(2142.16e9, rel=1e-5)
    assert 2085.756683e9 / attainable(2.584785579, 7068.86e9, 828.758e9) == pytest.approx(0.9737, abs=5e-5)
    assert ridge(7068.86e9, 828.758e9) == pytest.approx(8.529, abs=5e-4)
    assert ridge(3535.79e9, 828.758e9) == pytest.approx(4.266, abs=5e-4)
    assert attainable(0.25, 19.5e12, 1555e9) == 388.75e9
    assert attainable(0.25, 19.5e12, 1555e9) / 19.5e12 == pytest.approx(0.0199, abs=5e-5)
    gib_per_s = 1555e9 / 2**30
    assert gib_per_s == pytest.approx(1448.2, abs=0.05)


@given(peak=st.floats(1e9, 1e15), rate=st.floats(1e9, 1e13), intensity=st.floats(1e-3, 1e4))
def test_the_ceilings_meet_at_the_ridge(peak, rate, intensity):
    at_ridge = ridge(peak, rate)
    assert attainable(at_ridge, peak, rate) == pytest.approx(peak)
    assert attainable(intensity, peak, rate) <= min(peak, intensity * rate) * (1 + 1e-12)
    assert (attainable(intensity, peak, rate) < peak) == (intensity * rate < peak)


def test_nearer_memory_is_faster():
    rates = list(bandwidths(H200).values())
    assert rates == sorted(rates)


LIMITS = st.sampled_from([1, 2, 1000, 2**20, 2**24, 2**30, LARGEST_SIZE])


@pytest.mark.parametrize("name", KERNELS)
@given(m=LIMITS, n=LIMITS, k=LIMITS)
def test_huge_sizes_are_the_same_as_arrays_or_refused_in_both(name, m, n, k):
    def predicted(*sizes):
        try:
            return predict(Problem(*sizes), kernel(name), example(name), H200)
        except InputError as error:
            return str(error)

    alone, array = predicted(m, n, k), predicted(*(np.array([size]) for size in (m, n, k)))
    if isinstance(alone, str):
        assert array == alone
        return
    for term, time_s in alone.terms.items():
        assert array.terms[term] == pytest.approx(time_s)
        assert time_s >= 0


def test_arrays_that_do_not_go_together():
    two, three = np.arange(1, 3), np.arange(1, 4)
    with pytest.raises(InputError, match=r"arrays of shapes \(2,\), \(3,\) do not go together"):
        Problem(two, three, 1)
    with pytest.raises(InputError, match=r"arrays of shapes \(2,\), \(3,\) do not go together"):
        predict(Problem(two, 1, 1), kernel("naive"), kernel("naive").tiling(block_n=three), H200)


def test_dtypes_without_kernels():
    with pytest.raises(InputError, match="dtype fp16 has no kernels; allowed: fp32"):
        predict(Problem(64, 64, 64, "fp16"), kernel("naive"), example("naive"), H200)
    with pytest.raises(InputError, match="dtype fp16 has no kernels; allowed: fp32"):
        traffic(Problem(64, 64, 64, "fp16"), kernel("naive"), example("naive"))


def test_gpus_that_take_two_cycles_for_a_request():
    problem, naive = Problem(1024, 1024, 1024), kernel("naive")
    slow, fast = (predict(problem, naive, example("naive"), device(name)) for name in ("rtx-3090", "a100-40gb-sxm"))
    cycles = [p.terms["l1"] * p.device.clock_hz / -(-4096 // p.device.sms) for p in (slow, fast)]
    assert cycles[0] == pytest.approx(2 * cycles[1])
