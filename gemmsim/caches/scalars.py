"""The named scalars of the model of caches, as data."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.caches.reuse import Capacity
from gemmsim.device import Device
from gemmsim.kernels import Kernel
from gemmsim.tiling import Tiling

FILE = Path(__file__).parents[1] / "data" / "caches.toml"


@cache
def scalars() -> dict[str, dict[str, Any]]:
    """The tables of data/caches.toml."""
    return tomllib.loads(FILE.read_text(encoding="utf-8"))


def l2_parts(capability: str) -> int:
    """Parts of L2 that each keep what their own multiprocessors read."""
    return int(scalars()["l2_parts"].get(capability, 1))


def l2_capacity(device: Device) -> Capacity:
    """What L2 holds: at least what is left if all is there once for each part; at most so much more of the rest."""
    least = device.l2_bytes / l2_parts(device.capability.name)
    return Capacity(least, least + scalars()["l2_capacity"]["besides"] * (device.l2_bytes - least))


def apart(kernel: Kernel, tiling: Tiling, resident: Any) -> Any:
    """To which degree the `resident` blocks of a multiprocessor fall out of step with each other, from 0 to 1."""
    values = scalars()["apart"]
    if not kernel.staged:
        return values["unstaged"]
    if not kernel.thread_tiled:
        return values["thread_an_element"]
    many = resident * tiling.stages >= values["many"]
    return np.where(many, values["many_tiles"], values["few_tiles"])[()]


def merged_share(kernel: Kernel, blocks_of_sm: Any, waves: Any, resident: Any) -> Any:
    """Share of the reads of the operand that consecutive blocks have in common which travel on to L2 as one.

    They do if they meet on the way: neighbours of the first wave, which start at once, the more the fewer are resident
    on a multiprocessor; later ones as long as all wait for what they load, else the less the more blocks it has had.
    """
    values = scalars()["merged"]
    first = values["first"] / resident
    ahead = values["ahead"] * np.maximum(1, blocks_of_sm) ** -values["ahead_exponent"]
    later = ahead if kernel.prefetches else values["waiting"] / resident
    share = waves**-0.5
    return first * share + later * (1 - share)
