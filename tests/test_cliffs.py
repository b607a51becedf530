"""Cliffs and the most shared memory, against a walk from value to value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import slow_occupancy
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmsim.device import capabilities, capability
from gemmsim.occupancy.cliffs import SWEPT, Block, largest_dynamic_shared, shared_steps, sweep, sweeps

any_capability = st.sampled_from(capabilities())
blocks = st.builds(
    Block,
    threads=st.integers(1, 1024) | st.sampled_from([0, 1025, 2000]),
    registers=st.integers(0, 255) | st.just(300),
    static_shared_bytes=st.integers(0, 49_152),
    dynamic_shared_bytes=st.integers(0, 240_000) | st.just(0),
    carveout=st.none() | st.integers(0, 100),
    barriers=st.integers(0, 16) | st.just(1),
    opt_in=st.booleans(),
)


def resident(cc, block):
    """(blocks, warps) on an SM, by the plain route."""
    fit, _ = slow_occupancy.blocks_per_sm(capability(cc), *vars(block).values())
    return fit, fit * -(-block.threads // 32)


def walked(cc, block, name, values):
    """The first of the values, from the near one on, at which something else is resident, and what."""
    now = resident(cc, block)
    for value in values:
        there = resident(cc, replace(block, **{name: value}))
        if there != now:
            return value, *there
    return None


def found(cliff):
    return cliff and (cliff.value, cliff.blocks_per_sm, cliff.warps_per_sm)


@settings(max_examples=40)
@given(any_capability, blocks, st.sampled_from(["registers", "threads", "barriers"]))
def test_no_cliff_is_nearer(cc, block, resource):
    chip = capability(cc)
    least, most = {
        "registers": (0, chip.registers_per_thread_launchable + 1),
        "threads": (1, 1025),
        "barriers": (0, 16),
    }[resource]
    present = getattr(block, resource)
    swept = sweep(chip, block, resource)
    below, above = range(min(present - 1, most), least - 1, -1), range(max(present + 1, least), most + 1)
    assert found(swept.fewer) == walked(cc, block, resource, below)
    assert found(swept.more) == walked(cc, block, resource, above)


@settings(max_examples=60)
@given(any_capability, blocks)
def test_no_cliff_of_shared_memory_is_nearer(cc, block):
    chip = capability(cc)
    every = np.arange(chip.shared_bytes_per_block_optin + 2)
    there = block.with_shared(every).on(chip).blocks_per_sm
    differs = there != block.on(chip).blocks_per_sm
    below, above = every[differs & (every < block.shared_bytes)], every[differs & (every > block.shared_bytes)]
    swept = sweep(chip, block, "shared_bytes")
    for cliff, nearest in ((swept.fewer, below[-1:]), (swept.more, above[:1])):
        assert ([cliff.value] if cliff else []) == nearest.tolist()
        if cliff:
            assert cliff.blocks_per_sm == there[cliff.value]


@given(any_capability, blocks)
def test_a_cliff_says_what_is_there(cc, block):
    chip = capability(cc)
    for resource, swept in sweeps(chip, block).items():
        for cliff in (swept.fewer, swept.more):
            if cliff is None:
                continue
            there = (
                block.with_shared(cliff.value)
                if resource == "shared_bytes"
                else replace(block, **{resource: cliff.value})
            ).on(chip)
            assert (cliff.blocks_per_sm, cliff.warps_per_sm, cliff.occupancy) == (
                there.blocks_per_sm, there.warps_per_sm, there.occupancy,
            )  # fmt: skip
            assert cliff.change == cliff.value - swept.present
        assert not (swept.fewer and swept.fewer.change >= 0)
        assert not (swept.more and swept.more.change <= 0)


def test_one_register_too_many():
    # 168 registers: 5376 a warp, 3 warps in each of 4 partitions, 3 blocks; 169 are rounded to 176, 5632: 2 warps
    chip = capability("8.6")
    more = sweep(chip, Block(128, 168, dynamic_shared_bytes=16_384), "registers").more
    assert (more.value, more.change, more.blocks_per_sm, more.occupancy) == (169, 1, 2, pytest.approx(1 / 6))
    fewer = sweep(chip, Block(128, 173, dynamic_shared_bytes=16_640), "registers").fewer
    assert (fewer.value, fewer.change, fewer.blocks_per_sm, fewer.occupancy) == (168, -5, 3, 0.25)


def test_a_few_bytes_too_many():
    swept = sweep(capability("8.0"), Block(128, 32, dynamic_shared_bytes=82_936), "shared_bytes")
    assert (swept.more.change, swept.more.blocks_per_sm) == (9, 1)  # 82,944 are the last with two
    assert (swept.fewer.value, swept.fewer.blocks_per_sm) == (54_912, 3)  # 437 units of 128, less the reserve


def test_nothing_limits_what_is_not_near():
    swept = sweeps(capability("8.0"), Block(1024, 32))
    assert swept["shared_bytes"].fewer is None
    assert swept["barriers"].fewer is swept["barriers"].more is None  # not counted before 9.0
    assert (swept["threads"].more.value, swept["threads"].more.blocks_per_sm) == (1025, 0)


def test_what_does_not_launch_has_the_cliff_at_which_it_does():
    chip = capability("8.9")
    swept = sweeps(chip, Block(512, 162))
    assert (swept["registers"].fewer.value, swept["registers"].fewer.blocks_per_sm) == (128, 1)
    assert (swept["threads"].fewer.value, swept["threads"].fewer.blocks_per_sm) == (384, 1)
    assert swept["registers"].more is None


@pytest.mark.parametrize(("cc", "most"), [("8.0", 82_944), ("8.6", 50_176), ("9.0", 115_712)])
def test_the_most_shared_memory_for_two_blocks(cc, most):
    # (164, 100, 228 KB) / 2, less the reserved kilobyte of each block
    assert largest_dynamic_shared(capability(cc), Block(128, 32))[2] == most


@settings(max_examples=60)
@given(any_capability, blocks)
def test_no_more_shared_memory_keeps_so_many_blocks(cc, block):
    chip = capability(cc)
    every = np.arange(chip.shared_bytes_per_block_optin + 2)
    there = replace(block, dynamic_shared_bytes=every).on(chip).blocks_per_sm
    expected = {n: int(every[there >= n].max()) for n in range(1, int(there.max()) + 1)}
    assert largest_dynamic_shared(chip, block) == expected


def test_no_shared_memory_makes_it_launch():
    assert largest_dynamic_shared(capability("8.9"), Block(512, 162)) == {}


@pytest.mark.parametrize("cc", capabilities())
def test_between_two_steps_nothing_changes(cc):
    chip = capability(cc)
    steps = shared_steps(chip)
    every = np.arange(chip.shared_bytes_per_block_optin + 2)
    by_step = Block(32, 16).with_shared(steps).on(chip).blocks_per_sm
    assert steps[0] == 0
    assert steps[-1] > chip.shared_bytes_per_block_optin
    expected = by_step[np.searchsorted(steps, every)]  # that of the next step
    assert (Block(32, 16).with_shared(every).on(chip).blocks_per_sm == expected).all()


def test_every_range_ends_where_nothing_launches():
    for cc in capabilities():
        chip = capability(cc)
        for resource in SWEPT.keys() - {"barriers"}:
            ended = sweep(chip, Block(32, 16), resource).swept.blocks_per_sm
            assert ended[-1] == 0, resource
            assert ended[-2] > 0, resource
