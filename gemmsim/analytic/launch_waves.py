"""How often a launch fills the GPU, and what it costs to fill it by cutting k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.errors import require
from gemmsim.problem import ELEMENT_BYTES, Count, Problem, ceil_div, whole_number

LARGEST_LAUNCH = 2**53
"""Blocks beyond this are no longer exact in the floating-point numbers that shares are."""


@dataclass(frozen=True)
class Waves:
    """A launch of `blocks` on `sms` SMs that hold `blocks_per_sm` of them at once each.

    Supposed is that all blocks last alike, and that no SM gets a second one while another has none.
    """

    blocks: Count
    sms: Count
    blocks_per_sm: Count = 1

    @property
    def slots(self) -> Count:
        """Blocks that the GPU holds at once."""
        return self.sms * self.blocks_per_sm

    @property
    def count(self) -> Any:
        """Times that the launch fills the GPU, not rounded."""
        return self.blocks / self.slots

    @property
    def rounds(self) -> Count:
        """Rounds that it takes: the count rounded up."""
        return ceil_div(self.blocks, self.slots)

    @property
    def utilization(self) -> Any:
        """Share of the slots, over all rounds, that have a block."""
        return self.blocks / (self.rounds * self.slots)

    @property
    def tail_blocks(self) -> Count:
        """Blocks of the last round."""
        return self.blocks - (self.rounds - 1) * self.slots

    @property
    def tail_utilization(self) -> Any:
        """Share of the slots that have a block in the last round."""
        return self.tail_blocks / self.slots

    @property
    def busy_sms(self) -> Count:
        """SMs that ever have a block."""
        return np.minimum(self.blocks, self.sms)[()]

    @property
    def tail_busy_sms(self) -> Count:
        """SMs that have a block in the last round."""
        return np.minimum(self.tail_blocks, self.sms)[()]


def waves(blocks: Count, sms: Count, blocks_per_sm: Count = 1) -> Waves:
    """How a launch of `blocks` spreads over `sms` SMs that hold `blocks_per_sm` each.

    Raises InputError for numbers that are not whole or not positive: blocks that do not launch make no waves.
    """
    return Waves(
        whole_number(blocks, "blocks", most=LARGEST_LAUNCH),
        whole_number(sms, "sms"),
        whole_number(blocks_per_sm, "blocks_per_sm"),
    )


@dataclass(frozen=True)
class SplitK:
    """k cut into `slices`: each tile of C gets so many blocks, each with a part of k, and their FP32 partial
    results pass through memory to be added, in a kernel of its own or by the last block of a tile.

    Raises InputError unless every slice has at least one k.
    """

    problem: Problem
    slices: Count

    def __post_init__(self) -> None:
        object.__setattr__(self, "slices", whole_number(self.slices, "split_k"))
        require(
            self.slices <= self.problem.k,
            "split_k {slices}: k {k} has no more slices; allowed: from 1 to {k}; nearest: {k}",
            slices=self.slices, k=self.problem.k,
        )  # fmt: skip

    def blocks(self, tiles: Count) -> Count:
        """Blocks of a launch that has so many tiles of C."""
        return tiles * self.slices

    @property
    def partial_bytes_written(self) -> Count:
        """A whole C of FP32 for each slice; none where k is not cut, for then blocks write C itself."""
        c_bytes = self.problem.m * self.problem.n * ELEMENT_BYTES["fp32"]
        return (self.slices > 1) * self.slices * c_bytes

    @property
    def partial_bytes_read(self) -> Count:
        """Every partial result is read once, to be added."""
        return self.partial_bytes_written
