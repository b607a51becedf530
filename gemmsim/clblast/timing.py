"""Time of the CLBlast kernel, for many configurations at once, from what each resource of an SM has to do.

A block goes through the tiles of k one after the other: it copies what is staged, then steps through the tile. Its
steps keep the FFMA pipes and schedulers busy, and the banks, which are those of L1; resources of one phase overlap
(`overlapped`), but a copy and the steps that wait for it do not: nothing is fetched ahead. The copies of other blocks
of the SM contend for the same banks, so that they do not hide either. Beside that stand the levels below,
L2 and DRAM, and the time that a block alone would take, shared out among the blocks that are resident: latency that
they do not hide. docs/clblast.md derives the terms.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.analytic.launch_waves import Waves
from gemmsim.clblast.accesses import Accesses, accesses
from gemmsim.clblast.configurations import Configurations
from gemmsim.clblast.constants import Constants, constants
from gemmsim.clblast.resources import BlockResources, address_vectors, block_resources
from gemmsim.device import Device
from gemmsim.errors import InputError
from gemmsim.problem import Problem, ceil_div
from gemmsim.tiling import WARP_SIZE

OLDEST = (7, 0)
"""Before this compute capability, banks and L1 work otherwise."""


@dataclass(frozen=True)
class Timing:
    """Predicted seconds of each configuration, infinite where a block does not fit, and why.

    `terms` has the seconds that each resource would need alone: `ffma` and `issue` (the schedulers), `banks` (L1 and
    shared memory, in the steps), `copies` (of tiles to shared memory), `spills`, `l2`, `dram`, and `latency`, a
    block alone, shared out among those that are resident.
    """

    problem: Problem
    configurations: Configurations
    device: Device
    time_s: Any
    terms: dict[str, Any]
    resources: BlockResources
    accesses: Accesses

    @property
    def bound_by(self) -> Any:
        """The name of the longest term of each configuration."""
        return np.array(list(self.terms))[np.argmax(list(self.terms.values()), axis=0)]


def predict_clblast(
    problem: Problem, configurations: Configurations, device: Device, known: Constants | None = None
) -> Timing:
    """Predict every configuration; thousands take less than a second.

    Raises InputError for a configuration that is not legal, a problem of other than whole tiles or not of fp32,
    and a device older than compute capability 7.0.
    """
    if problem.dtype != "fp32":
        raise InputError(f"dtype {problem.dtype} has no model of kernel clblast; allowed: fp32")
    if tuple(map(int, device.capability.name.split("."))) < OLDEST:
        raise InputError(
            f"{device.name} has compute capability {device.capability.name}; the model of kernel clblast is for"
            f" {OLDEST[0]}.{OLDEST[1]} and later"
        )
    configurations.check(problem)
    known = known or constants()
    resources = block_resources(configurations, device.capability, known)
    asked = accesses(configurations)
    demand = tile_demand(configurations, device, known, resources, asked)
    fits = resources.occupancy.blocks_per_sm > 0
    resident = np.maximum(1, resources.occupancy.blocks_per_sm)
    waves = Waves(configurations.blocks(problem), device.sms, resident)
    dram = dram_clocks(problem, configurations, device, known, resident)

    def tile_clocks(blocks: Any) -> Any:
        """Clocks of an SM for a tile of a block, where so many are resident."""
        return overlapped(known, demand.steps + demand.copies, demand.l2, dram, demand.alone / blocks)

    # whole waves, then the rest, spread over the SMs
    whole = waves.blocks // waves.slots
    rest = ceil_div(waves.blocks - whole * waves.slots, device.sms)
    per_tile = whole * resident * tile_clocks(resident) + rest * tile_clocks(np.maximum(rest, 1))
    tiles = configurations.steps(problem)
    clocks = per_tile * tiles + known.block_clocks * waves.blocks / device.sms
    scale = waves.blocks / device.sms * tiles / device.clock_hz
    terms = {
        "ffma": demand.ffma, "issue": demand.issue, "banks": demand.banks, "copies": demand.copies,
        "spills": demand.spills, "l2": demand.l2, "dram": dram, "latency": demand.alone / resident,
    }  # fmt: skip
    return Timing(
        problem,
        configurations,
        device,
        np.where(fits, clocks / device.clock_hz, np.inf),
        {name: value * scale for name, value in terms.items()},
        resources,
        asked,
    )


@dataclass(frozen=True)
class TileDemand:
    """Clocks of an SM that a block needs of each resource for one tile of k; `steps` are all steps of the tile, their
    resources overlapped, and `alone` is how long the tile takes a block that has the SM for itself."""

    ffma: Any
    issue: Any
    banks: Any
    spills: Any
    copies: Any
    l2: Any
    steps: Any
    alone: Any


def tile_demand(
    c: Configurations, device: Device, known: Constants, resources: BlockResources, asked: Accesses
) -> TileDemand:
    """The demand of each configuration."""
    schedulers, warps = device.schedulers_per_sm, c.warps
    l2_bytes_per_clock = known.l2_share * device.l2_bytes_per_clock / device.sms
    wavefront_clocks = known.pass_clocks(device.capability)

    # one step of k
    ffma_instructions = warps * c.mwi * c.nwi
    ffma = ffma_instructions * WARP_SIZE / device.fp32_lanes_per_sm
    lanes_per_scheduler = device.fp32_lanes_per_sm // schedulers
    port_share = known.port_share if lanes_per_scheduler == WARP_SIZE else 1.0  # slower pipes leave the ports time
    spill_requests = 2 * warps * resources.spilled_words
    loads = asked.shared_step.requests + asked.global_step.requests + spill_requests
    other_instructions = loads + warps * (known.step_instructions + known.address_instructions * address_vectors(c))
    issue = (ffma_instructions / port_share + other_instructions) / schedulers
    wavefronts = asked.shared_step.wavefronts + asked.global_step.wavefronts + spill_requests
    banks = (
        np.maximum(wavefront_clocks * wavefronts, device.capability.request_interval_cycles * loads)
        + known.clocks_per_lookup * asked.global_step.lookups
    )
    spills = warps * resources.spilled_words * WARP_SIZE * 4 / l2_bytes_per_clock  # stores go through to L2
    step = overlapped(known, np.maximum(ffma, issue), banks, spills)

    copies = (
        wavefront_clocks * (asked.copy_load.wavefronts + asked.copy_store.wavefronts)
        + known.clocks_per_lookup * asked.copy_load.lookups
        + known.clocks_per_copy_request * asked.copy_load.requests
    )
    # A block of fewer warps than schedulers leaves some idle; the warps of one scheduler hide each other's waits.
    own = np.maximum(ffma, issue) * schedulers / np.minimum(warps, schedulers)
    of_a_warp = own / np.maximum(1, warps / schedulers)
    waits = np.where((c.sa & c.sb) == 1, 0.0, known.step_latency_clocks)
    return TileDemand(
        ffma=c.kwg * ffma,
        issue=c.kwg * issue,
        banks=c.kwg * banks,
        spills=c.kwg * spills,
        copies=copies,
        l2=c.kwg * (c.mwg + c.nwg) * 4 / l2_bytes_per_clock,
        steps=c.kwg * step,
        alone=c.kwg * overlapped(known, own, banks, of_a_warp + waits) + copies,
    )


def dram_clocks(problem: Problem, c: Configurations, device: Device, known: Constants, resident: Any) -> Any:
    """Clocks of an SM in which DRAM delivers what a block needs for a tile.

    Blocks that run together, which follow each other along m, go through k in step: L2 gives their shared rows and
    columns to all.
    """
    together = resident * device.sms
    along_m = problem.m // c.mwg
    rows = np.minimum(together, along_m)
    columns = np.maximum(1, together / along_m)
    tile_bytes = 4 * c.kwg * (rows * c.mwg + columns * c.nwg) / together
    return tile_bytes * device.sms * device.clock_hz / (known.dram_share * device.dram_bytes_per_s)


def overlapped(known: Constants, *clocks: Any) -> Any:
    """How long resources take together that work at the same time, each so long alone: a power mean, from their sum
    (exponent 1) to the longest (infinity)."""
    alone = np.stack(np.broadcast_arrays(*clocks))
    longest = alone.max(axis=0)
    return longest * ((alone / longest) ** known.overlap_exponent).sum(axis=0) ** (1 / known.overlap_exponent)
