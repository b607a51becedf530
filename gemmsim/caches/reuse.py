"""How much of what was read is still in a cache when it is needed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Capacity:
    """Bytes that a cache holds, least recently used ones leaving first: `least` in any case, `most` at best.

    Between the two it depends on what is meant by a byte: a line that both halves of L2 read is there twice.
    """

    least: Any
    most: Any

    def kept(self, between: Any) -> Any:
        """Share of the reads that find what was read before `between` other bytes."""
        width = np.maximum(self.most - self.least, 1)
        return np.clip((self.most - between) / width, 0, 1)

    def kept_on_the_way(self, between: Any) -> Any:
        """The mean of `kept` over all distances from 0 to this one."""
        width = np.maximum(self.most - self.least, 1)
        over = np.clip(between - self.least, 0, width)
        kept = np.minimum(between, self.least) + over - over**2 / (2 * width)
        return np.where(between > 0, kept / np.where(between > 0, between, 1), 1.0)
