"""What each access of a warp costs on a multiprocessor, instruction by instruction, by the rules of banks and of L1."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gemmsim.accesses.classes import LaneAddresses, lane_addresses
from gemmsim.accesses.shared_memory import shared_accesses
from gemmsim.coalescing import SECTOR_BYTES, l1_wavefronts, transactions
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.pipeline.timing import MOVED
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling

BITS_OF_REGISTER = 32
MEMORY_BYTES = 64
"""What memory sends at once: on an H200 each second tile of 32 bytes a row waits for the other operand alone."""
SHARED = {"load": "shared_load", "store": "shared_store", "copy": "global_copy"}
GLOBAL = {"load": "global_load", "store": "global_store", "copy": "global_copy_source"}
"""What costs are named after accesses; a copy has two, what it writes to shared memory and what it reads."""


class Cost(NamedTuple):
    """What a warp that makes an access asks for, on average over those of a block that do.

    lookups       of L1's tags
    wavefronts    of its data stage
    bytes         of whole sectors
    places        runs of bytes with gaps between them
    operand       the matrix: "a", "b" or "c"
    passes_apart  it meets what memory has not sent yet in one pass in so many
    again         further writes of a copy, of lanes that read the same place, one after the other
    warps         of a block, whether they have a lane that takes part; empty where all have
    """

    lookups: float = 1.0
    wavefronts: float = 1.0
    bytes: float = 0.0
    places: float = 1.0
    operand: str = "b"
    passes_apart: int = 1
    again: float = 0.0
    warps: tuple[bool, ...] = ()


Costs = Mapping[tuple[str, int], tuple[Cost, ...]]
"""By action and registers moved: those of the accesses that a thread makes for one tile of k, one after the other."""


def costs(problem: Problem, kernel: Kernel, tiling: Tiling, slowest: float = 0.0) -> Costs:
    """What the accesses of each kind and width cost, where lanes beyond the matrix ask for nothing.

    Shared accesses by the bank rule; global ones by what hardware showed of L1, wherever its hash is known. A copy that
    reads the same place for several lanes writes one of these after the other, as at edges, where lanes beyond the
    matrix read its last row or column again: on average over all blocks, or over those of a multiprocessor of which at
    least the share `slowest` are blocks that do so most.

    Accesses to A and to B alternate evenly, as compilers mix them more or less. Plain numbers, no arrays.
    """
    found: dict[tuple[str, int], list[tuple[float, Cost]]] = defaultdict(list)
    for name, width_bits, asked in (*_shared(problem, kernel, tiling), *_global(problem, kernel, tiling)):
        each = list(asked)
        found[name, width_bits // BITS_OF_REGISTER] += [(turn / len(each), cost) for turn, cost in enumerate(each)]
    ordered = {of: tuple(cost for _, cost in sorted(each, key=lambda turn: turn[0])) for of, each in found.items()}
    for width, alike in _alike(problem, kernel, tiling, slowest).items() if kernel.copies else ():
        of = "global_copy", width
        ordered[of] = tuple(cost._replace(again=max(0.0, alike - cost.wavefronts)) for cost in ordered[of])
    names = {name for name, _ in ordered}
    others = {(name, width): next(ordered[of] for of in ordered if of[0] == name) for name in names for width in MOVED}
    return others | ordered


def _shared(problem: Problem, kernel: Kernel, tiling: Tiling) -> Iterator[tuple[str, int, Iterator[Cost]]]:
    """(what it is, bits of a lane, costs of its instructions) of each access to shared memory."""
    for each in shared_accesses(kernel, tiling, kernel.widths(problem, tiling), every=True):
        wavefronts = each.passes(problem.element_bytes).wavefronts
        active = np.broadcast_to(each.active, (*wavefronts.shape, each.active.shape[-1])).any(axis=-1)
        nothing = np.zeros_like(wavefronts)
        of = _by_instruction(each.name[-1], 1, active, nothing, wavefronts, nothing, nothing)
        yield SHARED[each.direction], 8 * each.width * problem.element_bytes, of


def _global(problem: Problem, kernel: Kernel, tiling: Tiling) -> Iterator[tuple[str, int, Iterator[Cost]]]:
    """The same of each access to global memory."""
    apart = max(1, MEMORY_BYTES // (tiling.block_k * problem.element_bytes)) if kernel.staged else 1
    for access in _of_one_class(problem, kernel, tiling):
        along_k = access.name.endswith("a")
        # Of neighbours along k that are loaded one after the other the first alone misses L1.
        missed = problem.element_bytes / SECTOR_BYTES if along_k and not kernel.staged else 1.0
        asked = _asked_of_l1(access, missed)
        of = _by_instruction(access.name[-1], apart if along_k else 1, access.active.any(axis=-1), *asked)
        yield GLOBAL[access.direction], access.width_bits, of


def _by_instruction(operand: str, apart: int, active: Any, *asked: NDArray[Any]) -> Iterator[Cost]:
    """The cost of each instruction, from who takes part and what each asks for, of the shape (instructions, warps)."""
    taking = active.sum(axis=-1)
    means = [(each * active).sum(axis=-1) / np.maximum(1, taking) for each in asked]
    for warps, *mean in zip(active.tolist(), *(mean.tolist() for mean in means), strict=True):
        lookups, wavefronts, bytes_, places = mean
        taking_part = () if all(warps) else tuple(warps)
        yield Cost(lookups, wavefronts, bytes_, places, operand, apart, warps=taking_part)


def _of_one_class(problem: Problem, kernel: Kernel, tiling: Tiling) -> list[LaneAddresses]:
    """The global accesses of the first class of blocks, interior where there are such; along k whole tiles."""
    found: list[LaneAddresses] = []
    for access in lane_addresses(problem, kernel, tiling):
        if access.memory == "global" and access.step in ("whole", "once a block", "last partial"):
            if found and access.blocks != found[0].blocks:
                break
            if access.step != "last partial" or all(other.step != "whole" for other in found):
                found.append(access)
    return found


def _alike(problem: Problem, kernel: Kernel, tiling: Tiling, slowest: float) -> dict[int, float]:
    """{registers moved: lanes of a copy that read the same place, at most}, on average over copies and blocks; at least
    as where so large a share are `slowest` blocks, and the others those with the fewest."""
    sums: dict[int, dict[str, np.ndarray]] = defaultdict(lambda: defaultdict(lambda: np.zeros(2)))
    for access in lane_addresses(problem, kernel, tiling):
        if access.direction == "copy" and access.memory == "global":
            places = np.where(access.active, access.byte_addresses, -1 - np.arange(access.active.shape[-1]))
            same = (places[..., :, None] == places[..., None, :]).sum(axis=-1).max(axis=-1)
            width = access.width_bits // BITS_OF_REGISTER
            sums[width][access.blocks] += access.times * np.array([same.sum(), same.size])
    found = {}
    for width, by in sums.items():
        lanes, copies = sum(by.values(), np.zeros(2))
        of_blocks = [each[0] / each[1] for each in by.values()]
        found[width] = max(lanes / copies, slowest * max(of_blocks) + (1 - slowest) * min(of_blocks))
    return found


def _asked_of_l1(access: LaneAddresses, missed: float) -> tuple[NDArray[Any], ...]:
    """(lookups, wavefronts, bytes, places of the share of requests that misses L1) of each warp's instruction."""
    width = access.width_bits // 8
    addresses = np.where(access.active, access.byte_addresses, 0)
    asked = transactions(addresses, access.active, width)
    ordered = np.sort(np.where(access.active, access.byte_addresses, -1), axis=-1)
    runs = (ordered[..., 1:] - ordered[..., :-1] > width) & (ordered[..., :-1] >= 0)
    places = missed * (runs.sum(axis=-1) + access.active.any(axis=-1))
    try:
        found = l1_wavefronts(addresses, access.active, width)
        return found.tag, found.data, SECTOR_BYTES * asked.sectors, places
    except InputError:  # rows so far apart that the hash is not known: as if every line took a lookup
        return asked.lines, asked.lines, SECTOR_BYTES * asked.sectors, places
