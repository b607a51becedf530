"""The kernel family: what each kernel takes and refuses, its launches, its resources."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from examples import TILE, example
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.accesses.shared_memory import column_in_a, column_in_b
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel, sources
from gemmsim.kernels.rules import swizzles
from gemmsim.occupancy import occupancy
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records

WARPS = {**TILE, "warp_m": 32, "warp_n": 64}


def test_every_kernel_has_its_source():
    assert list(KERNELS) == ["naive", "shared", "register", "vectorized", "double_buffer", "warp_tiled", "async"]
    for each in KERNELS.values():
        assert "gemm(" in each.source.read_text()
    assert {path.stem for path in sources().glob("*.cu")} == set(KERNELS)


@pytest.mark.parametrize("name", KERNELS)
def test_a_launch_sets_every_macro_that_the_source_reads(name):
    text = "".join(path.read_text() for path in kernel(name).files)
    code = re.sub(r'//.*|".*"|constexpr int [A-Z_]+|template <[^>]*>|static constexpr int [A-Z_]+', "", text)
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
        (
            "vectorized",
            {**TILE, "swizzle": 2},
            "swizzle 2 is not 0 or a power of two that keeps 4-element accesses whole; allowed: 0, 4, 8, 16, nearest 4",
        ),
        ("vectorized", {**TILE, "swizzle": 1}, "allowed: 0, 4, 8, 16, nearest 0"),
        ("vectorized", {**TILE, "swizzle": 13}, "allowed: 0, 4, 8, 16, nearest 16"),
        ("vectorized", {**TILE, "swizzle": 17}, "swizzle 17 is out of range; .* from 0 to 16; nearest: 16"),
        ("vectorized", {**TILE, "vector": 1, "swizzle": 3}, "allowed: 0, 1, 2, 4, 8, 16, nearest 2"),
        (
            "double_buffer",
            {**TILE, "block_n": 80, "swizzle": 8},
            "block_n 80: a swizzle moves elements within 32 columns"
            " of a tile; allowed with swizzle 8: multiples of 32, nearest 96",
        ),
        ("register", {**TILE, "swizzle": 8}, "kernel register has no swizzle"),
        ("register", {**TILE, "split_k": 2}, "kernel register has no split_k"),
        ("register", {**TILE, "warp_m": 32, "warp_n": 64}, "kernel register has no warp_m"),
        ("warp_tiled", TILE, "kernel warp_tiled needs warp_m"),
        ("warp_tiled", {**WARPS, "stages": 3}, "stages 3: kernel warp_tiled holds 2 in shared memory; allowed: 2"),
        ("async", {**WARPS, "stages": 1}, "stages 1: kernel async needs one to fill and one .* allowed: 2 and more"),
        ("async", {**WARPS, "vector": 4}, "kernel async has no vector"),
        ("async", {**WARPS, "block_k": 6}, "block_k 6: .* allowed: multiples of 4, nearest 8"),
        ("async", {**WARPS, "thread_n": 6, "block_n": 96}, "thread_n 6: .* 1, 2 and multiples of 4, nearest 8"),
        ("async", {**WARPS, "warp_m": 12}, "warp_m 12: .* allowed: multiples of thread_m 8, nearest 16"),
        ("async", {**WARPS, "warp_m": 48}, "block_m 128: .* allowed: multiples of warp_m 48, nearest 144"),
        ("async", {**WARPS, "pad_a": 2}, "pad_a 2 breaks the alignment of 4-element accesses; .* nearest 4"),
        (
            "async",
            {**WARPS, "warp_n": 32},
            "warp 32x32 holds 16 thread tiles of 8x8; needed: 32, one for each lane, so warp_m times warp_n of 2048",
        ),
    ],
)
def test_tilings_that_a_kernel_does_not_take(name, values, message):
    with pytest.raises(InputError, match=message):
        kernel(name).tiling(**values)


def test_what_a_gpu_must_have_for_a_kernel():
    copies, tiling = kernel("async"), kernel("async").tiling(**WARPS, split_k=100)
    copies.check(tiling)
    copies.check(tiling, device("h200"))
    with pytest.raises(InputError, match=r"kernel async needs compute capability 8.0; t4 has 7.5"):
        copies.check(tiling, device("t4"))
    with pytest.raises(InputError, match=r"split_k 100: .* rtx-3090 is only sure to hold 82 .* up to 82"):
        copies.check(tiling, device("rtx-3090"))
    assert [name for name in ("7.5", "8.0", "9.0", "10.0") if copies.runs_on(name)] == ["8.0", "9.0", "10.0"]
    assert kernel("warp_tiled").runs_on("7.0")


def test_sizes_beyond_the_offsets_of_copies():
    copies, tiling = kernel("async"), kernel("async").tiling(**WARPS)
    copies.launch(Problem(1, 64, 2**23), tiling)
    with pytest.raises(InputError, match=r"k 8388609: .* 128 rows in 32 bits; allowed: up to 8388608"):
        copies.launch(Problem(1, 64, 2**23 + 1), tiling)
    with pytest.raises(InputError, match=r"n 134217732: .* block_k 8 rows"):
        copies.launch(Problem(1, 2**27 + 4, 64), tiling)


def test_a_split_launch_has_a_block_for_each_part():
    copies = kernel("async")
    launch = copies.launch(Problem(1000, 1900, 2100), copies.tiling(**WARPS, split_k=3))
    assert (launch.blocks, launch.macros["TILES"], launch.macros["SPLIT_K"]) == (8 * 15 * 3, 8 * 15, 3)
    assert copies.launch(Problem(1000, 1900, 2100), copies.tiling(**WARPS)).macros["TILES"] == 1
    with pytest.raises(InputError, match=r"split_k 10: .* 2684354560 bytes; allowed: up to 2147483648"):
        copies.launch(Problem(8192, 8192, 64), copies.tiling(**WARPS, split_k=10))


@pytest.mark.parametrize(
    ("leading", "widths"), [(4096, (1, 4, 4, 4, 4)), (1902, (1, 2, 2, 4, 4)), (1001, (1, 1, 1, 4, 4))]
)
def test_copies_are_as_wide_as_the_rows_allow(leading, widths):
    found = kernel("async").widths(Problem(64, leading, leading), kernel("async").tiling(**WARPS))
    assert tuple(vars(found).values()) == widths
    carried = kernel("warp_tiled").widths(Problem(64, leading, leading), kernel("warp_tiled").tiling(**WARPS))
    assert carried.global_a == widths[1]


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
    stages = {"naive": 0, "double_buffer": 2, "warp_tiled": 2, "async": 3}.get(name, 1)
    assert known.shared_bytes == 8192 * stages


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
    vectorized.tiling(**{**TILE, "block_m": np.array([72, 128]), "swizzle": np.array([0, 16])})
    with pytest.raises(InputError, match=r"block_m 72: .* allowed with swizzle 16"):
        vectorized.tiling(**{**TILE, "block_m": np.array([72, 128]), "swizzle": 16})
    with pytest.raises(InputError, match="swizzle 6 is not 0 or a power of two"):
        vectorized.tiling(**{**TILE, "swizzle": np.array([8, 6])})


def test_a_swizzle_takes_no_memory_and_shows():
    vectorized = kernel("vectorized")
    plain, swizzled = vectorized.tiling(**TILE), vectorized.tiling(**TILE, swizzle=16)
    assert vectorized.shared_bytes(plain) == vectorized.shared_bytes(swizzled)
    assert vectorized.describe(swizzled) == "128x128x8/8x8 swizzle=16"
    assert vectorized.launch(Problem(64, 64, 64), swizzled).macros["SWIZZLE"] == 16
    assert swizzles(4) == [0, 4, 8, 16]


@pytest.mark.parametrize("vector", [1, 2, 4])
def test_a_swizzle_leaves_every_element_a_place_of_its_own(vector):
    tiling = kernel("vectorized").tiling(**TILE, vector=vector)
    rows, columns = np.arange(tiling.block_k)[:, None], np.arange(tiling.block_m)
    for swizzle in swizzles(vector):
        swizzled = replace(tiling, swizzle=swizzle)
        for leading in (1024, 1023):
            widths = kernel("vectorized").widths(Problem(64, leading, leading), swizzled)
            for places in (
                column_in_a(columns + 0 * rows, rows, swizzled, widths),
                column_in_b(columns + 0 * rows, swizzled, widths),
            ):
                assert (np.sort(places, axis=1) == columns).all()  # within the row
                assert (places // 32 == columns // 32).all()
                vectors = places.reshape(len(rows), -1, vector)
                assert (vectors == vectors[..., :1] + np.arange(vector)).all()
                assert (vectors[..., 0] % vector == 0).all()
                assert swizzle or (places == columns).all()
