"""The operand cache: which source operands an instruction finds kept from those before it.

An operand that is flagged for reuse is kept when it is read, and found again by the same slot. There is one entry for
each slot, or for each bank and slot, and it lasts for the next instruction alone, or until the next read of that slot
(and bank), which replaces it if it is flagged and ends it if not. A yield empties the cache, and for some instructions
after it an operand that is found serves once, flagged or not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gemmsim.registers.register_files import RegisterFile

Bools = NDArray[np.bool_]
Registers = NDArray[np.int32]
NO_READ = -1
NOT_EMPTIED = -1


def found_kept(registers: Registers, flags: Bools, empties: Registers, file: RegisterFile) -> Bools:
    """Whether each source is found in the operand cache, which is empty at first.

    All are (steps, streams, slots), but `empties`, which is (steps, streams): NOT_EMPTIED, or for how many steps after
    the one that empties the cache an operand that is found is not kept on. `registers` are NO_READ where a slot reads
    nothing.
    """
    by_bank = file.operand_cache == "bank and slot"
    steps, streams, slots = registers.shape
    entries = slots * (file.banks if by_bank else 1)
    reads = registers != NO_READ
    place = np.arange(streams)[:, None] * entries + np.arange(slots) + np.zeros_like(registers, np.int32)
    if by_bank:
        place += slots * (np.where(reads, registers, 0) % file.banks)
    kept = np.where(flags, registers, NO_READ)
    held = np.full(streams * entries, NO_READ, registers.dtype)
    found = np.zeros(registers.shape, bool)
    emptied = empties != NOT_EMPTIED
    some_emptied, once, lasts = emptied.any(axis=1).tolist(), _once(empties), file.cache_lasts == "read"
    for at in range(steps):
        was = held[place[at]]
        np.logical_and(was == registers[at], reads[at], out=found[at])
        new = kept[at] if once is None else np.where(found[at] & once[at, :, None], NO_READ, kept[at])
        if lasts:
            held[place[at]] = np.where(reads[at], new, was)
        else:
            held[:] = NO_READ
            held[place[at]] = new
        if some_emptied[at]:
            held.reshape(streams, entries)[emptied[at]] = NO_READ
    return found


def _once(empties: Registers) -> Bools | None:
    """Whether an operand that is found at a step serves that once, whatever its flag says; None if none does."""
    lasting = np.argwhere(empties > 0).tolist()
    if not lasting:
        return None
    once = np.zeros(empties.shape, bool)
    for step, stream in lasting:
        once[step : step + 1 + empties[step, stream], stream] = True
    return once
