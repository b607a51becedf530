"""Time of a great many configurations at once: `predict` with two short cuts, for rankings that are gone over again.

Wavefronts of shared memory are estimated instead of counted, and no table is asked for registers. So a configuration
takes well below a microsecond; what leads a ranking is predicted in full afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gemmsim.analytic.demands import SharedWork
from gemmsim.analytic.rounds import launch_rounds
from gemmsim.calibration import calibration
from gemmsim.device import Device
from gemmsim.kernels import Kernel, Widths
from gemmsim.occupancy import blocks_that_fit
from gemmsim.predict import LAUNCH_OVERHEAD_S
from gemmsim.problem import Problem, ceil_div, common_power
from gemmsim.search.tables import AXES
from gemmsim.tiling import WARP_SIZE, Tiling

BANKS = 32
WORTH_CHOOSING = 4
"""Layouts of a run, on average, from which on it takes less to choose one of each than to go on with all."""
FEWEST_LAYOUTS = 16
"""Layouts of a row from which on runs can be as long."""


def quick_times(problem: Problem, kernel: Kernel, tilings: Tiling, device: Device) -> Any:
    """Seconds of each configuration, infinite where it does not launch. Legality is not checked.

    Fields of the tilings are numbers or arrays that broadcast; each term is computed on the axes on which it differs.
    """
    widths = Widths(*map(_once, vars(kernel.widths(problem, tilings)).values()))
    resources = kernel.estimated(tilings, widths)
    fit = blocks_that_fit(device.capability, resources.threads, resources.registers_per_thread, resources.shared_bytes)
    shared = estimated_shared(kernel, tilings, widths)
    taken = resources.registers_per_thread, resources.spilled
    # where registers lack, it matters too whether tiles are swizzled, and what shared memory leaves of L1
    lacking = (resources.spilled > 0) * (1 + resources.shared_bytes) * np.where(tilings.swizzle > 0, -1, 1)
    known = calibration(device)

    def seconds(chosen: Callable[[Any], Any]) -> Any:
        """Of those that are chosen of every array."""
        of = Tiling.unchecked(**{name: chosen(value) for name, value in vars(tilings).items()})
        wide, blocks = Widths(*map(chosen, vars(widths).values())), chosen(fit)
        accesses = SharedWork(*map(chosen, shared))
        rounds = launch_rounds(problem, kernel, of, wide, device, accesses, blocks, *map(chosen, taken))
        time_s = rounds.cycles / (known.clock_hz or device.clock_hz) + (known.launch_overhead_s or LAUNCH_OVERHEAD_S)
        return np.where(blocks > 0, time_s, np.inf)

    return _run_by_run(seconds, tilings, (fit, lacking, *taken, *shared, *vars(widths).values()))


def _run_by_run(seconds: Callable[[Callable[[Any], Any]], Any], tilings: Tiling, deciding: Sequence[Any]) -> Any:
    """The same once for each run of neighbouring layouts of a table that are alike in all that decides."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in vars(tilings).values()))
    if len(shape) < AXES or shape[2] < FEWEST_LAYOUTS:
        return seconds(lambda value: value)
    begins = np.zeros((shape[0], 1, shape[2]), bool)
    begins[..., 0] = True
    for value in deciding:
        if np.ndim(value) and value.shape[2] > 1:
            begins[..., 1:] |= value[..., 1:] != value[..., :-1]
    if WORTH_CHOOSING * np.count_nonzero(begins) > begins.size:
        return seconds(lambda value: value)
    rows, _, layouts = np.nonzero(begins)

    def chosen(value: Any) -> Any:
        if not np.ndim(value):
            return value
        return value[rows if value.shape[0] > 1 else 0, :, layouts if value.shape[2] > 1 else 0]

    found = seconds(chosen).reshape(len(rows), -1)
    return np.moveaxis(found[np.cumsum(begins).reshape(shape[0], shape[2]) - 1], 2, 1)


def _once(values: Any) -> Any:
    """The same once along the last axis, if all is alike along it."""
    if np.ndim(values) < 2 or not np.array_equal(values[..., 1:], values[..., :-1]):
        return values
    return values[..., :1]


def estimated_shared(kernel: Kernel, tiling: Tiling, widths: Widths) -> SharedWork:
    """The shared accesses of a block for a tile of k, estimated; numbers or arrays.

    Loads: 128-bit loads take two passes where neighbouring lanes read the same vector and four where they do not, times
    the conflicts of vectors that lie several of their size apart. Stores of transposed tiles: as many lanes meet in a
    bank as rows of the tile begin in it, where a swizzle moves each row further. Neither knows uneven layouts, so
    single kernels can be far off.
    """
    if not kernel.staged:
        return SharedWork(0.0, 0.0, 0.0, 0.0)
    warps = ceil_div(tiling.threads, WARP_SIZE)
    across = np.minimum(WARP_SIZE, tiling.block_n // tiling.thread_n)
    width_a, width_b = widths.shared_a, widths.shared_b
    rows = np.maximum(1, BANKS // width_a // across)  # of threads, of the lanes that fill all banks
    if not kernel.thread_tiled:
        of_a, of_b = tiling.block_k * warps / width_a, tiling.block_k * warps
        passes_a, passes_b = np.maximum(1, width_a / 2) * in_one_place(rows, kernel.pitches(tiling)[0], width_a), 1.0
    else:
        width_a = np.minimum(4, tiling.thread_m) if kernel.warp_tiled else width_a
        of_a = tiling.block_k * warps * tiling.thread_m / width_a
        of_b = tiling.block_k * warps * tiling.thread_n / width_b
        passes_a, passes_b = np.maximum(1, width_a / 2), np.maximum(1, width_b / 2)
        if not kernel.warp_tiled:
            apart_a = tiling.thread_m * (1 if kernel.transposed else kernel.pitches(tiling)[0])
            moved = (tiling.swizzle > 0) & (tiling.thread_n & (tiling.thread_n - 1) == 0)
            apart_b = np.where(moved, width_b, tiling.thread_n)
            passes_a = passes_a * in_one_place(rows, apart_a, width_a)
            passes_b = np.where(across > 2, width_b, passes_b) * in_one_place(across, apart_b, width_b)
    wavefronts, loads = of_a * passes_a + of_b * passes_b, of_a + of_b
    pitch_a = tiling.block_m + tiling.pad_a
    stores_a = tiling.block_m * tiling.block_k / WARP_SIZE
    along_k = np.minimum(WARP_SIZE, np.maximum(1, tiling.block_k // widths.global_a))
    if kernel.copies:  # element by element, in runs
        along_k = np.where(tiling.block_k % 8, 4, 8)
    if kernel.transposed:
        spacing = common_power(BANKS, widths.global_a * pitch_a + tiling.swizzle)
        places = np.minimum(along_k, BANKS // spacing)
        rows = np.maximum(1, WARP_SIZE // along_k)
        degree = along_k / places * np.maximum(1.0, rows * places / BANKS * (rows > spacing))
        degree = np.minimum(degree, along_k)
    else:
        degree = 1.0
    stores_b = tiling.block_k * tiling.block_n / WARP_SIZE / widths.global_b
    return SharedWork(wavefronts, loads, stores_a * degree + stores_b * widths.global_b, stores_a + stores_b)


def in_one_place(read: Any, apart: Any, width: Any) -> Any:
    """How many of so many vectors of `width` words meet in the same banks, each `apart` words from the one before."""
    places = BANKS // width
    return np.maximum(1, np.minimum(read, places) * common_power(places, apart // width) / places)
