"""Where the elements of threads and of copies lie, in kernels whose warps have tiles of their own.

As kernels/warp.cuh and kernels/copies.cuh have it. The lanes of a warp lie along both axes of its tile. A thread's rows
(columns) come in pieces of at most four neighbours, and the same piece of all lanes lies side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.kernels.rules import PIECE
from gemmsim.problem import ceil_div
from gemmsim.tiling import WARP_SIZE, Tiling

Elements = NDArray[np.int64]
Mask = NDArray[np.bool_]
LANE_BITS = WARP_SIZE.bit_length() - 1
LONGEST_RUN, SHORTER_RUN = 8, 4


def piece(thread: int) -> int:
    """Neighbouring rows (columns) of a thread that has so many."""
    return min(thread, PIECE)


def lanes_along(tiling: Tiling) -> tuple[int, int]:
    """Lanes of a warp along m, and along n."""
    return int(tiling.warp_m // tiling.thread_m), int(tiling.warp_n // tiling.thread_n)


def first_elements(tiling: Tiling) -> tuple[Elements, Elements]:
    """(row, column) in the block's tile of the first element of every thread, as (warps, 32).

    The bits of a lane's number go to columns and rows in turn, as long as both have some left.
    """
    lane_rows, lane_columns = lanes_along(tiling)
    lane = np.arange(WARP_SIZE)
    row, column = np.zeros((2, WARP_SIZE), np.int64)
    rows = columns = 1
    for bit in range(LANE_BITS):
        value = lane >> bit & 1
        if columns < lane_columns and (bit % 2 == 0 or rows == lane_rows):
            column += value * columns
            columns *= 2
        else:
            row += value * rows
            rows *= 2
    warp = np.arange(tiling.warps)[:, None]
    across = tiling.block_n // tiling.warp_n
    return (
        warp // across * tiling.warp_m + row * piece(tiling.thread_m),
        warp % across * tiling.warp_n + column * piece(tiling.thread_n),
    )


def pieces(thread: int, lanes: int) -> Elements:
    """How far behind its first element each piece of a thread starts."""
    return np.arange(0, thread, piece(thread)) * lanes


def run_of_a(block_k: Any) -> Any:
    """Neighbours along k that lanes copy before they go to the next row of A; `block_k` may be an array."""
    return np.where(block_k % LONGEST_RUN, SHORTER_RUN, LONGEST_RUN)


def copies_of_a(tiling: Tiling) -> tuple[Elements, Elements, Mask]:
    """(row, place along k, whether there is one) of the element that each lane copies, as (instructions, warps, 32).

    A run of neighbours along k, then the same of the next row, and after the last row the next run. Where copies are
    spread, the runs of a row come one after the other: the same copies in another order.
    """
    run = int(run_of_a(tiling.block_k))
    item = _items(tiling.block_m * tiling.block_k, tiling)
    along = item % run + item // (run * tiling.block_m) * run
    return item // run % tiling.block_m, along, item < tiling.block_m * tiling.block_k


def copies_of_b(tiling: Tiling, width: int) -> tuple[Elements, Elements, Mask]:
    """(place along k, column, whether there is one) of the vector that each lane copies.

    Row by row; where copies are spread, a run of each row, as many vectors in all as there are threads, then the next
    run.
    """
    per_row = tiling.block_n // width
    run = tiling.threads // tiling.block_k if tiling.spread else per_row
    item = _items(tiling.block_k * per_row, tiling)
    column = item % run + item // (run * tiling.block_k) * run
    return item // run % tiling.block_k, column * width, item < tiling.block_k * per_row


def _items(count: int, tiling: Tiling) -> Elements:
    """Numbers of items, threads side by side, instruction after instruction: as many as it takes for `count`."""
    steps = ceil_div(count, tiling.threads)
    return np.arange(steps * tiling.threads, dtype=np.int64).reshape(steps, -1, WARP_SIZE)
