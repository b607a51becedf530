"""How much of what was read is still in a cache when it is needed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Capacity:
    """Bytes that a cache of so many `parts` holds, least recently used ones leaving first: `least` in any case, `most`
    at best, and in between a share (a cubic, level at both ends), because no two of its sets have the same to hold."""

    least: Any
    most: Any
    parts: int = 1

    def taken(self, size: Any, blocks: Any, copies: Any = 1) -> Any:
        """Bytes that data of this size take of it if so many blocks use each line: at home, and this share of `copies`
        in other parts that use it."""
        return size * (1 + copies * crossings(blocks, self.parts))

    def _over(self, between: Any) -> Any:
        """How far so many bytes are on the way from `least` to `most`, from 0 to 1."""
        width = np.where(self.most > self.least, self.most - self.least, 1)
        return np.clip((between - self.least) / width, 0, 1)

    def kept(self, between: Any) -> Any:
        """Share of the reads that find what was read before `between` other bytes."""
        over = self._over(between)
        return np.where(between < self.most, 1 - over**2 * (3 - 2 * over), 0.0)[()]

    def kept_on_the_way(self, between: Any) -> Any:
        """The mean of `kept` over all distances from 0 to this one."""
        over = self._over(between)
        kept = np.minimum(between, self.least) + (self.most - self.least) * (over - over**3 + over**4 / 2)
        return np.where(between > 0, kept / np.where(between > 0, between, 1), 1.0)

    def kept_apart(self, life: Any, lives: Any, others: Any = 0) -> Any:
        """Share of the reads that find what another block has read, where blocks lag behind each other by anything up
        to so many of their lives. While one lags by a `life`, so much passes; by more than one, that and `others`."""
        within = self.kept_on_the_way(life * np.minimum(lives, 1))
        beyond = np.maximum(lives, 1)
        return (within + (beyond - 1) * self.kept(life + others)) / beyond


def crossings(blocks: Any, parts: int) -> Any:
    """Parts of a cache, other than the one where a line is at home, that so many blocks somewhere need it in."""
    return (parts - 1) * (1 - (1 - 1 / parts) ** blocks)
