"""An SM filled block by block, in plain Python: what the formulas of `gemmsim.occupancy` are held against.

Nothing here is taken from the model but the numbers of a capability. Each resource is handed out piece by piece until
the next block finds no room, instead of being divided.
"""

from __future__ import annotations

from gemmsim.device import Capability

NO_END = 2**31 - 1


def blocks_per_sm(
    chip: Capability,
    threads: int,
    registers: int,
    static: int = 0,
    dynamic: int = 0,
    carveout: int | None = None,
    barriers: int = 1,
    opt_in: bool = True,
) -> tuple[int, list[str]]:
    """(blocks, the names of all that lets no further block in)."""
    limits = {
        "warps": by_warps(chip, threads),
        "registers": by_registers(chip, threads, registers),
        "shared_memory": by_shared_memory(chip, static + dynamic, carveout, opt_in),
        "blocks": chip.max_blocks_per_sm,
        "barriers": by_barriers(chip, barriers),
    }
    fewest = min(limits.values())
    return fewest, [name for name, limit in limits.items() if limit == fewest]


def warps_of(threads: int) -> int:
    """Warps of 32, the last one perhaps not full; a block without threads is counted as one here."""
    warps = 1
    while 32 * warps < threads:
        warps += 1
    return warps


def by_warps(chip: Capability, threads: int) -> int:
    """Blocks until the threads' slots, in warps, run out."""
    if threads < 1 or threads > chip.max_threads_per_block:
        return 0
    free, blocks = chip.max_threads_per_sm, 0
    while free >= 32 * warps_of(threads):
        free -= 32 * warps_of(threads)
        blocks += 1
    return blocks


def by_registers(chip: Capability, threads: int, registers: int) -> int:
    """Blocks until no sub-partition has registers for one warp more of the next."""
    of_warp = 0
    while of_warp < 32 * registers:
        of_warp += chip.register_allocation_unit
    checked = warps_of(threads)
    while checked % chip.warps_rounded_at_launch:
        checked += 1
    if checked * of_warp > chip.registers_per_block or registers > chip.registers_per_thread_launchable:
        return 0
    if of_warp == 0:
        return NO_END
    places = 0
    for _ in range(chip.sub_partitions):
        free = chip.registers_per_sm / chip.sub_partitions
        while free >= of_warp:
            free -= of_warp
            places += 1
    blocks = 0
    while places >= warps_of(threads):
        places -= warps_of(threads)
        blocks += 1
    return blocks


def by_shared_memory(chip: Capability, used: int, carveout: int | None, opt_in: bool) -> int:
    """Blocks until the shared memory that the cache leaves runs out."""
    most = chip.shared_bytes_per_block_optin if opt_in else chip.shared_bytes_per_block
    if used > most:
        return 0
    of_block = 0
    while of_block < used + chip.shared_bytes_reserved_per_block:
        of_block += chip.shared_allocation_unit
    if of_block == 0:
        return NO_END
    wanted = chip.shared_bytes_per_sm * (100 if carveout is None else carveout) // 100
    for size in chip.carveouts_bytes:
        if size >= wanted and size >= of_block:
            break
    blocks = 0
    while size >= of_block:
        size -= of_block
        blocks += 1
    return blocks


def by_barriers(chip: Capability, barriers: int) -> int:
    """Blocks until the barriers run out; a block has at most 16."""
    if barriers > 16:
        return 0
    if barriers == 0 or not chip.barriers_limit_blocks:
        return NO_END
    free, blocks = chip.barriers_per_sm, 0
    while free >= barriers:
        free -= barriers
        blocks += 1
    return blocks
