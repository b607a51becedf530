"""Reads of L1s that travel on to L2 as one, and lines that pass from one part of L2 to another."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmsim.caches.panels import Panels
from gemmsim.caches.reuse import crossings
from gemmsim.caches.scalars import in_step, scalars
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling, grid


def strides(problem: Problem, tiling: Tiling) -> Panels:
    """Blocks from one to the next that shares rows of A, and columns of B, in the order of their numbers."""
    tiles = grid(problem, tiling)
    group = np.minimum(tiling.group, tiles.m)
    return Panels(group * tiling.split_k, np.where(group > 1, 1, tiles.n)[()] * tiling.split_k)


def merged_sectors(
    problem: Problem, kernel: Kernel, tiling: Tiling, fills: Panels, device: Device, resident: Any, waves: Any
) -> Any:
    """Sectors of `fills` that travel on with the request of another multiprocessor, and are not read in L2 for it.

    A coalescer in each GPC joins a read to one of the same sector that is still on its way, up to four of them. Blocks
    start GPC after GPC in the order of their numbers, `resident` on each multiprocessor, so those that share a panel in
    a GPC lie a stride apart. Counted is the operand of which more travels as one; those of the other one come too late.
    """
    values, tiles, apart = scalars()["merged"], grid(problem, tiling), strides(problem, tiling)

    def joined(users: Any, stride: Any) -> Any:
        places = values["gpc_sms"] / stride
        sharing = np.minimum(users, np.maximum(1, places) + (resident - 1) * np.minimum(1, places))
        return 1 - 1 / np.clip(1 + values["met"] * (sharing - 1), 1, values["most"])

    most = np.maximum(fills.a * joined(tiles.n, apart.a), fills.b * joined(tiles.m, apart.b))
    return most * in_step(problem, kernel, tiling, device, resident, waves) * (tiling.split_k == 1)


def crossing_share(users: Any, stride: Any, waves: Any, parts: int) -> Any:
    """Times that a line crosses to other parts of L2 if so many blocks use it. Those of the first wave are a stride
    apart in one GPC after the other, each of which belongs to one part; later ones are anywhere."""
    gpcs = np.clip(users * stride / scalars()["merged"]["gpc_sms"], 1, users)
    return crossings(gpcs, parts) / waves + crossings(users, parts) * (1 - 1 / waves)
