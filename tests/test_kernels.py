"""The kernel family: what each kernel takes and refuses, its launches, its resources."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from examples import TILE, example
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel, sources
from gemmsim.occupancy import occupancy
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records


def test_every_kernel_has_its_source():
    assert list(KERNELS) == ["naive", "shared", "register", "vectorized", "double_buffer"]
    for each in KERNELS.values():
        assert "gemm(" in each.source.read_text()
    assert {path.stem for path in sources().glob("*.cu")} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_launch_sets_every_macro_that_the_source_reads(name):
    text = (sources() / "common.cuh").read_text() + kernel(name).source.read_text()
    code = re.sub(r"//.*|constexpr int [A-Z_]+|template <[^>]*>|static constexpr int [A-Z_]+", "", text)
    macros = kernel(name).launch(Problem(100, 50, 20), example(name)).macros
    declared = set(re.findall(r"int ([A-Z][A-Z_]+)", text))
    read = set(re.findall(r"\b[A-Z][A-Z_]+\b", code)) - declared
    assert read <= set(macros), f"{name} reads macros that no launch sets"


def test_unknown_kernel_names_the_nearest():
    with pytest.raises(InputError, match="unknown kernel 'vectorised'; nearest: vectorized"):
        kernel("vectorised")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("naive", {"block_k": 8}, "kernel naive has no block_k; it has: block_m, block_n"),
        ("shared", {"block_m": 32, "block_n": 32, "block_k": 8, "thread_m": 4}, "kernel shared has no thread_m"),
        ("shared", {"block_m": 32, "block_n": 32}, "kernel shared needs block_k"),
        ("register", {**TILE, "vector": 4}, "kernel register has no vector"),
        ("vectorized", {**TILE, "vector": 3}, "vector 3: .*allowed: 1, 2, 4"),
        (
            "vectorized",
            {**TILE, "pad_a": 1},
            "pad_a 1 breaks the alignment of 4-element accesses; allowed: multiples of 4",
        ),
        ("vectorized", {**TILE, "thread_n": 2}, "thread_n 2 breaks the alignment"),
        ("vectorized", {**TILE, "block_k": 6}, "block_k 6 breaks the alignment"),
        ("double_buffer", {**TILE, "vector": 1, "block_k": 7}, "block_k 7: .*allowed: multiples of 2"),
        ("double_buffer", {**TILE, "stages": 3}, "stages 3: kernel double_buffer holds 2"),
        ("vectorized", {**TILE, "stages": 2}, "stages 2: kernel vectorized holds 1"),
    ],
)
def test_tilings_that_a_kernel_does_not_take(name, values, message):
    with pytest.raises(InputError, match=message):
        kernel(name).tiling(**values)


def test_defaults_and_harmless_mentions():
    assert kernel("naive").tiling() == kernel("naive").tiling(block_m=8, block_n=32, block_k=1, vector=1)
    assert kernel("double_buffer").tiling(**TILE, stages=2).stages == 2
    assert kernel("vectorized").tiling(**TILE).vector == 4


def test_shared_memory_over_the_limit_of_the_device():
    shared = kernel("shared")
    tiling = shared.tiling(block_m=32, block_n=32, block_k=1024)
    shared.check(tiling)
    with pytest.raises(InputError, match="take 262144 bytes of shared memory a block; allowed on h200: up to 232448"):
        shared.check(tiling, device("h200"))
    odd = replace(device("h200"), name="a{b}")
    with pytest.raises(InputError, match=r"allowed on a\{b\}: up to 232448"):
        shared.check(tiling, odd)
    smaller = shared.tiling(block_m=32, block_n=32, block_k=512)
    shared.check(smaller, device("h200"))
    with pytest.raises(InputError, match="allowed on rtx-3090: up to 101376"):
        shared.check(smaller, device("rtx-3090"))


@given(m=st.integers(1, 5000), n=st.integers(1, 5000), k=st.integers(1, 5000))
def test_a_launch_covers_the_problem_without_an_idle_block(m, n, k):
    double = kernel("double_buffer")
    launch = double.launch(Problem(m, n, k), double.tiling(**TILE))
    assert launch.blocks == -(-m // 128) * -(-n // 128)
    assert (launch.threads, launch.shared_bytes) == (256, 16384)
    macros = launch.macros
    assert (macros["VECTOR_A"], macros["VECTOR_B"], macros["VECTOR_C"]) == (
        4 if k % 4 == 0 else 1, 4 if n % 4 == 0 else 1, 4 if n % 4 == 0 else 1,
    )  # fmt: skip


@given(
    thread_n=st.integers(1, 16), columns=st.integers(1, 8), block_m=st.integers(1, 16), block_k=st.integers(1, 16),
    pad_a=st.integers(0, 5), pad_b=st.integers(0, 5),
)  # fmt: skip
def test_runs_from_shared_memory_stay_aligned(thread_n, columns, block_m, block_k, pad_a, pad_b):
    register = kernel("register")
    tiling = register.tiling(
        block_m=block_m,
        block_n=thread_n * columns,
        block_k=block_k,
        thread_m=1,
        thread_n=thread_n,
        pad_a=pad_a,
        pad_b=pad_b,
    )
    widths = register.widths(Problem(1, 1, 1), tiling)
    pitch_a, pitch_b = register.pitches(tiling)
    assert block_k % widths.shared_a == pitch_a % widths.shared_a == 0
    assert thread_n % widths.shared_b == pitch_b % widths.shared_b == block_m * pitch_a % widths.shared_b == 0


def test_launches_that_do_not_exist():
    with pytest.raises(InputError, match="dtype fp16 has no kernels; allowed: fp32"):
        kernel("naive").launch(Problem(8, 8, 8, "fp16"), kernel("naive").tiling())
    narrow = kernel("naive").tiling(block_m=1, block_n=1)
    with pytest.raises(InputError, match="4294967296 blocks of 1 x 1 are more than a launch takes"):
        kernel("naive").launch(Problem(2**16, 2**16, 1), narrow)


@pytest.mark.parametrize("name", KERNELS)
def test_resources(name):
    each = kernel(name)
    tiling = example(name)
    estimate = each.resources(Problem(1024, 1024, 1024), tiling)
    assert estimate.source == "estimate"
    assert 32 <= estimate.registers_per_thread <= 255
    known = each.resources(Problem(1024, 1024, 1024), tiling, 77)
    assert (known.registers_per_thread, known.source) == (77, "compiler")
    assert known.shared_bytes == {"naive": 0, "double_buffer": 16384}.get(name, 8192)


def test_the_estimate_of_registers_against_the_compiler():
    records, _ = read_records(shipped_records())
    compiled = {}
    for record in records:
        point = record.point
        widths = kernel(point.kernel).widths(point.problem, point.tiling)
        compiled[point.kernel, point.tiling, widths] = record
    errors = []
    for record in compiled.values():
        point = record.point
        estimate = kernel(point.kernel).resources(point.problem, point.tiling).registers_per_thread
        errors.append(estimate / record.resources["registers_per_thread"] - 1)
    assert len(errors) == 37
    assert np.mean(np.abs(errors)) < 0.10
    assert np.max(np.abs(errors)) < 0.29


@pytest.mark.parametrize(
    ("tile", "thread", "most"), [((256, 128, 16), (8, 4), 64), ((32, 256, 8), (8, 1), 64), ((128, 128, 8), (8, 8), 255)]
)
def test_the_estimate_never_keeps_a_block_from_starting(tile, thread, most):
    register = kernel("register")
    tiling = register.tiling(
        **dict(zip(("block_m", "block_n", "block_k", "thread_m", "thread_n"), tile + thread, strict=True))
    )
    estimate = register.resources(Problem(1024, 1024, 1024), tiling).registers_per_thread
    assert estimate <= most
    assert occupancy(device("h200").capability, tiling.threads, estimate).launches


@pytest.mark.parametrize("neutral", [{"split_k": 1}, {"swizzle": 0}, {"stages": 1}, {"vector": 1, "pad_b": 0}])
def test_values_that_demand_nothing(neutral):
    register = kernel("register")
    assert register.tiling(**TILE, **neutral) == register.tiling(**TILE)
    with pytest.raises(InputError, match="kernel register has no"):
        register.tiling(**TILE, **{next(iter(neutral)): 2} if "stages" not in neutral else {"split_k": 2})


def test_descriptions_tell_tilings_apart():
    records, _ = read_records(shipped_records())
    points = {(r.point.kernel, r.point.tiling) for r in records}
    assert len({kernel(name).describe(tiling) + name for name, tiling in points}) == len(points) == 25
    assert kernel("vectorized").describe(kernel("vectorized").tiling(**TILE, pad_a=4)) == "128x128x8/8x8 pad_a=4"
    assert kernel("naive").describe(kernel("naive").tiling()) == "8x32"


def test_many_tilings_at_once():
    vectorized = kernel("vectorized")
    many = vectorized.tiling(
        block_m=np.array([64, 128]), block_n=128, block_k=8, thread_m=8, thread_n=8, pad_a=np.array([0, 4])
    )
    assert vectorized.shared_bytes(many).tolist() == [4 * 8 * (64 + 128), 4 * 8 * (132 + 128)]
    registers = vectorized.resources(Problem(1024, 1024, 1024), many).registers_per_thread
    alone = [
        vectorized.resources(Problem(1024, 1024, 1024), vectorized.tiling(**{**TILE, "block_m": m})) for m in (64, 128)
    ]
    assert registers.tolist() == [one.registers_per_thread for one in alone]
    with pytest.raises(InputError, match="pad_a 3 breaks the alignment"):
        vectorized.tiling(**{**TILE, "pad_a": np.array([0, 3])})
