"""What kernels demand of their tilings beyond what every tiling must obey."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Any

import numpy as np

from gemmsim.elementwise import some_array
from gemmsim.problem import Count, Problem, ceil_div
from gemmsim.rules import Rule
from gemmsim.tiling import (
    FIELDS,
    LARGEST_SWIZZLE,
    SWIZZLED_COLUMNS,
    WARP_SIZE,
    Tiling,
    grid,
    nearest_divisor,
    nearest_multiple,
)

GRID_LIMIT = 2**31 - 1
"""Blocks of a launch along x (CUDA Programming Guide, Technical Specifications)."""
MOST_OFFSET = 2**30
"""Elements within a tile's rows of a matrix whose bytes asynchronous copies count in 32 bits."""
MOST_PARTIAL_BYTES = 2**31
"""What the partial sums of a split launch may take; they are part of the loaded kernel."""
PIECE = 4
"""Neighbouring elements that a thread has at most, where lanes of a warp share out its tile: a 128-bit access."""
PAD_OF = {"m": "pad_a", "n": "pad_b"}
NEUTRAL = {name: getattr(Tiling, name) for name in FIELDS if hasattr(Tiling, name)}
"""Values that say that nothing is done: no kernel minds them."""


def stage_rules(kernel: str, stages: int, chooses: bool) -> Iterator[Rule]:
    """How many tiles are held at once: two and more where a tiling chooses, else the kernel's `stages`."""
    if chooses:
        yield Rule(
            lambda of: of.stages >= 2,
            f"stages {{stages}}: kernel {kernel} needs one to fill and one to read; allowed: 2 and more",
            lambda of: {"stages": of.stages},
        )
    else:
        yield Rule(
            lambda of: of.stages == stages,
            f"stages {{stages}}: kernel {kernel} holds {stages} in shared memory; allowed: {stages}",
            lambda of: {"stages": of.stages},
        )


def neutral_rules(kernel: str, fields: Collection[str]) -> Iterator[Rule]:
    """Nothing is asked for that the kernel does not have."""
    for name in NEUTRAL:
        if name != "stages" and name not in fields:
            yield _is_neutral(kernel, name)


def _is_neutral(kernel: str, name: str) -> Rule:
    value, neutral = attrgetter(name), NEUTRAL[name]
    return Rule(
        lambda of: value(of) == neutral,
        f"kernel {kernel} has no {name}, not {{value}}",
        lambda of: {"value": value(of)},
    )


def traversal_rules() -> Iterator[Rule]:
    """A thread tile is whole bands of rows."""
    yield Rule(
        lambda of: (of.traversal <= of.thread_m) & (of.thread_m % _one_for_none(of.traversal, of.thread_m) == 0),
        lambda traversal, rows: (
            f"traversal {traversal}: the rows of a thread tile are multiplied in bands of as many;"
            f" allowed: 0, and what divides thread_m {rows}, nearest {nearest_divisor(rows, traversal)}"
        ),
        lambda of: {"traversal": of.traversal, "rows": of.thread_m},
    )


def _one_for_none(number: Any, most: Any) -> Any:
    """A number from 0 to `most`, with 1 for 0."""
    return number + 1 - (number + most - 1) // most


def spread_rules() -> Iterator[Rule]:
    """There is a small iteration for each group of copies, and all threads together copy whole runs of rows of A, and
    of all rows of B."""
    yield Rule(
        lambda of: of.spread < of.block_k,
        "spread {spread}: groups of copies go with the small iterations of a tile but its last;"
        " allowed with block_k {block_k}: 0 to {most}",
        lambda of: {"spread": of.spread, "block_k": of.block_k, "most": of.block_k - 1},
    )
    yield _shared_out("threads", lambda of: of.block_k, "a run of each of the block_k {unit} rows of B")
    yield _shared_out("block_n", lambda of: PIECE * ceil_div(of.threads, of.block_k), "{unit} columns of each row of B")
    yield _shared_out(
        "block_m", lambda of: ceil_div(of.threads, 2 * PIECE - of.block_k % (2 * PIECE)), "{unit} rows of A"
    )


def _shared_out(name: str, unit: Callable[[Any], Any], what: str) -> Rule:
    value = attrgetter(name)
    return Rule(
        lambda of: (of.spread == 0) | (value(of) % unit(of) == 0),
        f"spread {{spread}}: threads copy {what} at a time, and {name} {{value}} is no multiple of {{unit}};"
        " allowed: 0, or such a tile",
        lambda of: {"spread": of.spread, "value": value(of), "unit": unit(of)},
    )


def alternating_rules(kernel: str) -> Iterator[Rule]:
    """Fragments take turns."""
    yield _multiple("block_k", 2, f"block_k {{value}}: kernel {kernel} alternates two fragments")


def vector_rules() -> Iterator[Rule]:
    """Which widths there are, and that all accesses of one stay aligned."""
    yield Rule(
        lambda of: (of.vector == 1) | (of.vector == 2) | (of.vector == 4),
        "vector {vector}: a 32-, 64- or 128-bit access moves 1, 2 or 4 elements; allowed: 1, 2, 4, nearest {nearest}",
        lambda of: {"vector": of.vector, "nearest": np.where(of.vector > 2, 4, 2)[()]},
    )
    for name in ("block_n", "block_k", "thread_m", "thread_n", "pad_a", "pad_b"):
        yield _aligned(name)


def _aligned(name: str) -> Rule:
    value = attrgetter(name)
    return Rule(
        lambda of: value(of) % of.vector == 0,
        f"{name} {{value}} breaks the alignment of {{vector}}-element accesses;"
        f" allowed: multiples of {{vector}}, nearest {{nearest}}",
        lambda of: {
            "value": value(of),
            "vector": of.vector,
            "nearest": nearest_multiple(value(of), of.vector, not name.startswith("pad")),
        },
    )


def _multiple(name: str, unit: int, why: str) -> Rule:
    value = attrgetter(name)
    return Rule(
        lambda of: value(of) % unit == 0,
        f"{why}; allowed: multiples of {unit}, nearest {{nearest}}",
        lambda of: {"value": value(of), "nearest": nearest_multiple(value(of), unit)},
    )


def swizzles(vector: int) -> list[int]:
    """The swizzles that keep accesses of `vector` elements whole, from none on."""
    return [0, *(2**power for power in range(LARGEST_SWIZZLE.bit_length()) if 2**power >= vector)]


def swizzle_rules() -> Iterator[Rule]:
    """What a swizzle must be, and what it demands of the tiles."""
    yield Rule(
        lambda of: (of.swizzle == 0) | ((of.swizzle & (of.swizzle - 1)) == 0) & (of.swizzle % of.vector == 0),
        _not_a_swizzle,
        lambda of: {"swizzle": of.swizzle, "vector": of.vector},
    )
    for name in ("block_m", "block_n"):
        yield _whole_stretches(name)


def _not_a_swizzle(swizzle: int, vector: int) -> str:
    allowed = swizzles(vector)
    nearest = min(allowed, key=lambda other: (abs(other - swizzle), other == 0, other))
    return (
        f"swizzle {swizzle} is not 0 or a power of two that keeps {vector}-element accesses whole;"
        f" allowed: {', '.join(map(str, allowed))}, nearest {nearest}"
    )


def _whole_stretches(name: str) -> Rule:
    value = attrgetter(name)
    return Rule(
        lambda of: (of.swizzle == 0) | (value(of) % SWIZZLED_COLUMNS == 0),
        f"{name} {{value}}: a swizzle moves elements within {SWIZZLED_COLUMNS} columns of a tile;"
        f" allowed with swizzle {{swizzle}}: multiples of {SWIZZLED_COLUMNS}, nearest {{nearest}}",
        lambda of: {
            "value": value(of), "swizzle": of.swizzle, "nearest": nearest_multiple(value(of), SWIZZLED_COLUMNS)
        },
    )  # fmt: skip


def warp_rules() -> Iterator[Rule]:
    """What a warp tile must be, and what it demands of the others."""
    yield _multiple(
        "block_k", PIECE, f"block_k {{value}}: fragments of up to {PIECE} elements stay aligned from row to row"
    )
    for axis in "mn":
        yield from _warp_rules_along(axis)
    yield Rule(
        lambda of: of.warp_m * of.warp_n == WARP_SIZE * of.thread_m * of.thread_n,
        "warp {m}x{n} holds {threads} thread tiles of {rm}x{rn};"
        f" needed: {WARP_SIZE}, one for each lane, so warp_m times warp_n of {{whole}}",
        lambda of: {
            "m": of.warp_m, "n": of.warp_n, "rm": of.thread_m, "rn": of.thread_n,
            "threads": of.warp_m * of.warp_n // (of.thread_m * of.thread_n),
            "whole": WARP_SIZE * of.thread_m * of.thread_n,
        },
    )  # fmt: skip


def _warp_rules_along(axis: str) -> Iterator[Rule]:
    block, warp, thread = (attrgetter(f"{of}_{axis}") for of in ("block", "warp", "thread"))
    padding = PAD_OF[axis]
    pad = attrgetter(padding)
    yield Rule(
        lambda of: (thread(of) <= 2) | (thread(of) % PIECE == 0),
        f"thread_{axis} {{thread}}: a thread's elements come in pieces of 1, 2 or {PIECE};"
        f" allowed: 1, 2 and multiples of {PIECE}, nearest {{nearest}}",
        lambda of: {"thread": thread(of), "nearest": nearest_multiple(thread(of), PIECE)},
    )
    yield Rule(
        lambda of: (warp(of) > 0) & (warp(of) % thread(of) == 0),
        f"warp_{axis} {{warp}}: a warp tile is whole thread tiles;"
        f" allowed: multiples of thread_{axis} {{thread}}, nearest {{nearest}}",
        lambda of: {"warp": warp(of), "thread": thread(of), "nearest": nearest_multiple(warp(of), thread(of))},
    )
    yield Rule(  # no warp tile is 0 any more
        lambda of: block(of) % warp(of) == 0,
        f"block_{axis} {{block}}: a block tile is whole warp tiles;"
        f" allowed: multiples of warp_{axis} {{warp}}, nearest {{nearest}}",
        lambda of: {"block": block(of), "warp": warp(of), "nearest": nearest_multiple(block(of), warp(of))},
    )
    yield Rule(
        lambda of: (pad(of) % PIECE == 0) | ((thread(of) < PIECE) & (pad(of) % thread(of) == 0)),
        f"{padding} {{pad}} breaks the alignment of {{piece}}-element accesses;"
        f" allowed: multiples of {{piece}}, nearest {{nearest}}",
        lambda of: _padding_by_pieces(pad(of), np.minimum(thread(of), PIECE)[()]),
    )


def _padding_by_pieces(pad: Any, piece: Any) -> dict[str, Any]:
    return {"pad": pad, "piece": piece, "nearest": nearest_multiple(pad, piece, False)}


def tiles_fit(shared_bytes: Callable[[Any], Any], device: str, limit: int) -> Rule:
    """A block has no more shared memory than a launch on a device may ask for."""
    return Rule(
        lambda of: shared_bytes(of) <= limit,
        f"tiles {{tiles}} take {{taken}} bytes of shared memory a block; allowed on {{device}}: up to {limit} bytes",
        lambda of: {"tiles": _extents(of), "taken": shared_bytes(of), "device": device},
    )


def offsets_fit(kernel: str, size: str, count: Count, tile: str) -> Rule:
    """Bytes within the rows of a tile are counted in 32 bits."""
    rows = attrgetter(tile)
    return Rule(
        lambda of: MOST_OFFSET // rows(of) >= count,
        f"{size} {{count}}: kernel {kernel} counts the bytes of {tile} {{rows}} rows in 32 bits;"
        " allowed: up to {most}",
        lambda of: {"count": count, "rows": rows(of), "most": MOST_OFFSET // rows(of)},
    )


def launch_rules(problem: Problem, splits: bool) -> Iterator[Rule]:
    """A launch has so many blocks and, where it `splits` k, partial sums."""
    yield Rule(
        lambda of: grid(problem, of).blocks <= GRID_LIMIT,
        "{blocks} blocks of {m} x {n} are more than a launch takes;"
        f" allowed: up to {GRID_LIMIT}, so a larger block",
        lambda of: {"blocks": grid(problem, of).blocks, "m": of.block_m, "n": of.block_n},
    )
    if splits:
        yield Rule(
            lambda of: (of.split_k == 1) | (_partial_bytes(problem, of) <= MOST_PARTIAL_BYTES),
            "split_k {split_k}: the partial sums take {taken} bytes;"
            f" allowed: up to {MOST_PARTIAL_BYTES}, so a smaller split_k",
            lambda of: {"split_k": of.split_k, "taken": _partial_bytes(problem, of)},
        )


def _extents(tiling: Tiling) -> Any:
    if some_array(vars(tiling).values()):
        return "of one configuration"
    return f"{tiling.block_m}x{tiling.block_n}x{tiling.block_k}"


def all_at_once(name: str, sms: int) -> Rule:
    """Blocks that wait for each other all have to be resident."""
    return Rule(
        lambda of: of.split_k <= sms,
        f"split_k {{split_k}}: as many blocks wait for each other, and {{name}} is only sure to hold {sms} at once;"
        f" allowed: up to {sms}",
        lambda of: {"split_k": of.split_k, "name": name},
    )


def _partial_bytes(problem: Problem, tiling: Tiling) -> Count:
    """What the blocks of a split launch leave for each other, FP32."""
    return 4 * grid(problem, tiling).blocks * tiling.block_m * tiling.block_n
