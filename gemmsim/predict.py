"""Time of a launch, from what each resource of the GPU has to do, and which of them decides.

This is the analytic route: closed forms, the same for one launch and for a million. Each term is the time that one
resource would need if nothing else cost anything, or that latencies and the launch itself cost. They overlap, so the
time is neither their sum nor the longest: `analytic/rounds.py` joins them. docs/theory.md derives it all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim import register_table
from gemmsim.accesses.costs import shared_per_tile
from gemmsim.analytic.demands import SharedWork, lanes_at_work
from gemmsim.analytic.launch_waves import Waves
from gemmsim.analytic.load_schedules import LoadSchedule, load_schedule
from gemmsim.analytic.rounds import launch_rounds
from gemmsim.banks import PASS_BYTES
from gemmsim.calibration import calibration
from gemmsim.device import Device
from gemmsim.elementwise import either, larger, some_array
from gemmsim.kernels import Kernel, Resources, Widths
from gemmsim.main_loops.port_shares import PortShare, port_share
from gemmsim.notebook import as_table
from gemmsim.occupancy import Occupancy, occupancy
from gemmsim.problem import Count, Problem, ceil_div, numbered, require_one_shape
from gemmsim.tiling import FIELDS, WARP_SIZE, Tiling, grid
from gemmsim.traffic import block_reads, partial_sums

UNBUSY = ("latency", "launch")
"""Terms that are no resource's."""
BUSY = 0.6
"""Share of the time of a launch's blocks from which on its busiest resource bounds it, as Nsight Compute has it."""
LAUNCH_OVERHEAD_S = 3e-6
"""What events measure beyond the blocks' time, where nobody measured it."""


@dataclass(frozen=True)
class Prediction:
    """Predicted time of one launch, or of many where the inputs are arrays, and its reasons.

    `terms` names the seconds that each resource needs on its own; `joint_s` is what they take together; `waves` is how
    many times the launch fills the GPU; `ports` is what register ports and issue slots leave of the FFMA peak. A launch
    that does not fit on the device takes infinite time and waves. `calibrated` says whether latencies and rates were
    measured on this very GPU.
    """

    problem: Problem
    kernel: Kernel
    tiling: Tiling
    device: Device
    terms: dict[str, Any]
    resources: Resources
    occupancy: Occupancy
    waves: Any
    ports: PortShare
    joint_s: Any
    calibrated: bool = False

    _repr_html_ = as_table

    @property
    def time_s(self) -> Any:
        """Seconds that events around the launch measure."""
        return np.where(np.equal(self.occupancy.blocks_per_sm, 0), np.inf, self.joint_s)[()]

    @property
    def bound_by(self) -> Any:
        """The name of the resource that is busiest, if it is busy for `BUSY` of the time; else of the longer of what is
        none, `latency` and `launch`. What shared memory and global loads do counts together, as one stage does both; it
        has the name of the longer. So do profilers tell bounds by throughput from bounds by latency."""
        terms = dict(zip(self.terms, np.broadcast_arrays(*self.terms.values()), strict=True))
        idle = np.stack([terms.pop(name) for name in UNBUSY])
        both = terms["shared_memory"] + terms["l1"]
        for name, other in (("shared_memory", "l1"), ("l1", "shared_memory")):
            terms[name] = np.where(self.terms[name] >= self.terms[other], both, 0)
        busy = np.stack(list(terms.values()))
        working_s = self.time_s - self.terms["launch"]
        names = np.where(
            busy.max(axis=0) >= BUSY * working_s,
            np.array(list(terms))[busy.argmax(axis=0)],
            np.array(UNBUSY)[idle.argmax(axis=0)],
        )
        return names if names.ndim else str(names)

    @property
    def cycles(self) -> Any:
        """The time in cycles of the multiprocessors' clock."""
        return self.time_s * self.device.clock_hz

    @property
    def flop_per_s(self) -> Any:
        """Useful FLOP, 2mnk, a second."""
        return self.problem.flop_per_s(self.time_s)


def predict(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    registers_per_thread: Count | None = None,
    ports: PortShare | None = None,
    local_bytes: Count = 0,
    schedule: LoadSchedule | None = None,
) -> Prediction:
    """Predict the time of a launch; its cost does not grow with m, n and k.

    `registers_per_thread` is the compiler's count where known, and `local_bytes` the local memory of a thread that goes
    with it; without them those of the shipped table are used, or where it has none an estimate, and marked; `ports`
    likewise is of the compiled kernel where known, else from the table or what is usual, and so is the `schedule` by
    which its loop waits for loads. Raises InputError when the kernel does not take the tiling or the device cannot hold
    its tiles. Sizes and tiling fields may be int64 arrays that broadcast together.
    """
    require_one_shape(problem.m, problem.n, problem.k, *vars(tiling).values())
    kernel.check(tiling, device, problem)
    resources = register_table.resources(kernel, problem, tiling, device.capability, registers_per_thread, local_bytes)
    resident = resident_blocks(resources, device)
    ports = ports or port_share(kernel, problem, tiling, device.capability)
    known = calibration(device)
    widths = kernel.widths(problem, tiling)
    shared = counted_shared(kernel, tiling, widths, problem.element_bytes)
    taken = resources.registers_per_thread, resources.spilled
    schedule = schedule or load_schedule(kernel, problem, tiling, device.capability)
    rounds = launch_rounds(
        problem, kernel, tiling, widths, device, shared, resident.blocks_per_sm, *taken, schedule=schedule
    )
    clock_hz = known.clock_hz or device.clock_hz
    overhead_s = known.launch_overhead_s or LAUNCH_OVERHEAD_S
    terms = resource_times(problem, kernel, tiling, device, ports, shared)
    terms |= {"latency": rounds.latency / clock_hz, "launch": overhead_s}
    spread = Waves(grid(problem, tiling).blocks, device.sms, larger(1, resident.blocks_per_sm))
    return Prediction(
        problem,
        kernel,
        tiling,
        device,
        terms,
        resources,
        resident,
        either(resident.launches, spread.count, np.inf),
        ports,
        rounds.cycles / clock_hz + overhead_s,
        known.own,
    )


def resident_blocks(resources: Resources, device: Device) -> Occupancy:
    """What fits on a multiprocessor of a kernel that takes these resources; its shared memory is dynamic."""
    return occupancy(
        device.capability,
        resources.threads,
        resources.registers_per_thread,
        dynamic_shared_bytes=resources.shared_bytes,
    )


def resource_times(
    problem: Problem, kernel: Kernel, tiling: Tiling, device: Device, ports: PortShare, shared: SharedWork
) -> dict[str, Any]:
    """Seconds that each resource needs on its own; `shared` is of a block and tile.

    ffma            the FFMA pipes: one instruction a lane and cycle
    register_ports  the same at the pace of the main loop, whose FFMA wait for the ports of the register
                    file and for the issue slots that its other instructions take
    issue           the schedulers: one warp instruction each a cycle (FFMA, accesses but the stores of C)
    shared_memory   the banks: one wavefront a multiprocessor and cycle
    l1              global loads through the same stage: 128 bytes, and a request each so many cycles
    l2              a block's tiles of A and B, read once by each block, and C; partial sums twice
    dram            A, B and C once

    Partial blocks count like whole ones: a warp with idle lanes is a warp. `l2` supposes that blocks share
    nothing through L1; where they do, it is too long.
    """
    tiles = grid(problem, tiling)
    widths = kernel.widths(problem, tiling)
    rows, columns, depth = block_extents(problem, kernel, tiling)
    block_ffma = rows * columns * depth
    wavefronts, shared_requests = shared.wavefronts * tiles.steps, shared.requests * tiles.steps
    # elements loaded of A and B: their tiles, or without staging one of each for every multiplication
    loaded_a, loaded_b = (rows * depth, depth * columns) if kernel.staged else (block_ffma, block_ffma)
    global_requests = (loaded_a / widths.global_a + loaded_b / widths.global_b) / WARP_SIZE
    copied = global_requests if kernel.copies else 0  # one instruction is both the load and the store
    warp_instructions = block_ffma / WARP_SIZE + shared_requests + global_requests - copied
    # a float: its bytes can pass 2^63
    through_l2 = 1.0 * block_reads(problem, tiling) + problem.m * problem.n + 2.0 * partial_sums(problem, tiling)

    busiest_s = ceil_div(tiles.blocks, device.sms) / device.clock_hz  # for each cycle that a block costs
    ffma_s = block_ffma / device.fp32_lanes_per_sm * busiest_s
    return {
        "ffma": ffma_s,
        "register_ports": ffma_s / ports.fraction,
        "issue": warp_instructions / device.schedulers_per_sm * busiest_s,
        "shared_memory": wavefronts * busiest_s,
        "l1": larger(
            (loaded_a + loaded_b) * problem.element_bytes / PASS_BYTES,
            global_requests * device.capability.request_interval_cycles,
        )
        * busiest_s,
        "l2": through_l2 * problem.element_bytes / device.l2_bytes_per_s,
        "dram": problem.compulsory_bytes / device.dram_bytes_per_s,
    }


def block_extents(problem: Problem, kernel: Kernel, tiling: Tiling) -> tuple[Any, Any, Any]:
    """(rows, columns, depth) that a whole block works on: its padded tile; where nothing is staged, what
    the warps cover that have an element of C."""
    if kernel.staged:
        return tiling.block_m, tiling.block_n, grid(problem, tiling).steps * tiling.block_k
    return *lanes_at_work(problem, tiling), problem.k


def counted_shared(kernel: Kernel, tiling: Tiling, widths: Widths, element_bytes: int) -> SharedWork:
    """Of a block and tile of k; where arrays come in, each distinct case once."""
    given = [*(getattr(tiling, name) for name in FIELDS), *vars(widths).values()]
    if not some_array(given):
        loads, stores = shared_per_tile(kernel, tiling, widths, element_bytes)
        return SharedWork(loads.wavefronts, loads.requests, stores.wavefronts, stores.requests)
    shape = np.broadcast_shapes(*map(np.shape, given))
    columns = [np.broadcast_to(each, shape).ravel() for each in given]
    which = numbered((column for column, each in zip(columns, given, strict=True) if np.ndim(each)), math.prod(shape))
    of_each = np.empty(int(which.max(initial=-1)) + 1, np.int64)  # a place where it is
    of_each[which] = np.arange(len(which))
    cases = zip(*(column[of_each].tolist() for column in columns), strict=True)
    counts = np.array([_shared_case(kernel, case, element_bytes) for case in cases])
    return SharedWork(*counts[which].T.reshape(4, *shape))


def _shared_case(kernel: Kernel, case: tuple[int, ...], element_bytes: int) -> SharedWork:
    tiling, widths = Tiling(*case[: len(FIELDS)]), Widths(*case[len(FIELDS) :])
    return counted_shared(kernel, tiling, widths, element_bytes)
