"""Tilings for tests: one ordinary one of each kernel, and small ones of every kind."""

from __future__ import annotations

import math

from hypothesis import assume
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.kernels import KERNELS, kernel
from gemmsim.kernels.rules import swizzles
from gemmsim.tiling import Tiling

TILE = {"block_m": 128, "block_n": 128, "block_k": 8, "thread_m": 8, "thread_n": 8}


def example(name: str) -> Tiling:
    """The textbook tile where the kernel has thread tiles, 32 x 32 x 32 where it has none."""
    if KERNELS[name].warp_tiled:
        return kernel(name).tiling(**TILE, warp_m=32, warp_n=64)
    values = {"block_m": 32, "block_n": 32, "block_k": 32} if name == "shared" else TILE if KERNELS[name].staged else {}
    return kernel(name).tiling(**values)


@st.composite
def tilings(draw: st.DrawFn, name: str):
    """Small legal tilings of the kernel, odd shapes and partial warps among them."""
    if name == "naive":
        return kernel(name).tiling(block_m=draw(st.integers(1, 12)), block_n=draw(st.integers(1, 40)))
    if name == "shared":
        values = {"block_m": draw(st.integers(1, 12)), "block_n": draw(st.integers(1, 20))}
        values["block_k"] = draw(st.integers(1, 12))
        pads = st.integers(0, 5)
    elif name == "register":
        values = {"thread_m": draw(st.integers(1, 5)), "thread_n": draw(st.integers(1, 8))}
        values |= {f"block_{a}": values[f"thread_{a}"] * draw(st.integers(1, 7)) for a in "mn"}
        values["block_k"] = draw(st.integers(1, 9))
        pads = st.integers(0, 5)
    elif KERNELS[name].warp_tiled:
        return draw(tilings_of_warps(name))
    else:
        vector = draw(st.sampled_from([1, 2, 4]))
        small = st.integers(1, 3).map(lambda i: i * vector)
        values = {"vector": vector, "thread_m": draw(small), "thread_n": draw(small)}
        values["swizzle"] = draw(st.sampled_from(swizzles(vector)) | st.just(0))
        for axis in "mn":  # swizzled rows are whole stretches of 32 columns
            unit = math.lcm(values[f"thread_{axis}"], 32 if values["swizzle"] else 1)
            values[f"block_{axis}"] = unit * draw(st.integers(1, 2 if values["swizzle"] else 7))
        assume(values["block_m"] * values["block_n"] <= 1024 * values["thread_m"] * values["thread_n"])
        values["block_k"] = vector * draw(st.integers(1, 3))
        assume(name != "double_buffer" or values["block_k"] % 2 == 0)
        pads = st.integers(0, 2).map(lambda i: i * vector)
    return kernel(name).tiling(**values, pad_a=draw(pads), pad_b=draw(pads))


@st.composite
def tilings_of_warps(draw: st.DrawFn, name: str):
    """Small legal tilings of a kernel with warp tiles."""
    values, lanes_m = {}, draw(st.sampled_from([1, 2, 4, 8, 16, 32]))
    for axis, lanes in (("m", lanes_m), ("n", 32 // lanes_m)):
        thread = values[f"thread_{axis}"] = draw(st.sampled_from([1, 2, 4, 8]))
        values[f"warp_{axis}"] = lanes * thread
        values[f"block_{axis}"] = lanes * thread * draw(st.integers(1, 2))
        values[f"pad_{'a' if axis == 'm' else 'b'}"] = draw(st.integers(0, 2)) * min(4, thread)
    assume(values["block_m"] * values["block_n"] <= 2048)
    values["block_k"] = draw(st.sampled_from([4, 8, 12, 16]))
    if name == "async":
        ranges = {"stages": (2, 4), "split_k": (1, 4), "group": (1, 3)}
        values |= {option: draw(st.integers(*ends)) for option, ends in ranges.items()}
        values["spread"] = draw(st.integers(0, values["block_k"] - 1)) if spreads(values) else 0
    return kernel(name).tiling(**values)


def spreads(values: dict[str, int]) -> bool:
    """Whether the copies of such a tile can be spread."""
    try:
        kernel("async").tiling(**values, spread=1)
    except InputError:
        return False
    return True
