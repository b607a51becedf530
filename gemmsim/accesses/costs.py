"""What the accesses of a block to shared memory cost for one tile of k, by looking at every lane."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gemmsim.accesses.lane_runs import Direction
from gemmsim.accesses.shared_memory import OPERANDS, Operand, accesses_to, in_order, what_matters
from gemmsim.kernels import Kernel, Widths
from gemmsim.problem import Count
from gemmsim.tiling import Tiling


@dataclass(frozen=True)
class SharedCounts:
    """Shared-memory warp instructions and wavefronts of one direction."""

    requests: Count
    wavefronts: Count
    ideal_wavefronts: Count

    @property
    def excess(self) -> Count:
        """Wavefronts beyond the ideal: bank conflicts."""
        return self.wavefronts - self.ideal_wavefronts

    def __add__(self, other: SharedCounts) -> SharedCounts:
        return SharedCounts(
            self.requests + other.requests,
            self.wavefronts + other.wavefronts,
            self.ideal_wavefronts + other.ideal_wavefronts,
        )

    def __mul__(self, times: Count) -> SharedCounts:
        return SharedCounts(self.requests * times, self.wavefronts * times, self.ideal_wavefronts * times)

    def __floordiv__(self, parts: Count) -> SharedCounts:
        return SharedCounts(self.requests // parts, self.wavefronts // parts, self.ideal_wavefronts // parts)


@dataclass(frozen=True)
class AccessCost(SharedCounts):
    """One access to shared memory: what one block pays for it in one large iteration."""

    name: str
    op: Direction
    width_bits: int


@lru_cache(maxsize=65536)
def access_costs(kernel: Kernel, tiling: Tiling, widths: Widths, element_bytes: int = 4) -> tuple[AccessCost, ...]:
    """Every access of a block to shared memory and its cost for one tile of k, by simulating every lane."""
    if not kernel.staged:
        return ()
    each = (operand_costs(of, kernel, *what_matters(of, kernel, tiling, widths), element_bytes) for of in OPERANDS)
    return tuple(in_order(kernel, *each))


@lru_cache(maxsize=65536)
def operand_costs(
    operand: Operand, kernel: Kernel, tiling: Tiling, widths: Widths, element_bytes: int
) -> tuple[AccessCost, ...]:
    """The same of the tile of one operand."""
    costs = []
    for access in accesses_to(operand, kernel, tiling, widths):
        passes = access.passes(element_bytes)
        requests = int(((passes.ideal_wavefronts > 0) @ access.times).sum())
        wavefronts, ideal, _ = (passes.counts @ access.times).sum(axis=-1).tolist()
        width_bits = 8 * access.width * element_bytes
        costs.append(AccessCost(requests, wavefronts, ideal, access.name, access.direction, width_bits))
    return tuple(costs)


def shared_per_tile(
    kernel: Kernel, tiling: Tiling, widths: Widths, element_bytes: int = 4
) -> tuple[SharedCounts, SharedCounts]:
    """(loads, stores) of one block for one tile of k; a copy stores too."""
    loads = stores = SharedCounts(0, 0, 0)
    for cost in access_costs(kernel, tiling, widths, element_bytes):
        if cost.op == "load":
            loads += cost
        else:
            stores += cost
    return loads, stores
