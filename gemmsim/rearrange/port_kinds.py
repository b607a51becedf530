"""What an FFMA, or another instruction, asks of the register ports while a search is under way: as numbers of the
machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.registers.port_machine import Reads, port_machine
from gemmsim.registers.register_files import RegisterFile

SLOTS = 3
FLAGS = 4
"""Which of the slots A and B keep their operand: none, A, B, both."""
NO_BANK = 2
"""In place of a bank: a slot that reads nothing."""


@cache
def ffma_kinds(file: RegisterFile) -> NDArray[Any]:
    """The machine's numbers of FFMA, by banks of A, B and C, flags, and slots found kept, as bits."""
    table = np.zeros((NO_BANK + 1,) * SLOTS + (FLAGS, 1 << SLOTS), np.int64)
    for banks in product(range(NO_BANK + 1), repeat=SLOTS):
        for flags, hits in product(range(FLAGS), range(1 << SLOTS)):
            table[(*banks, flags, hits)] = port_machine(file).kind(reads(banks, flags, hits, 1))
    return table


def reads(banks: Sequence[int], flags: int, hits: int, gap: int) -> Reads:
    """What an instruction asks of the ports that reads from these banks, slot by slot."""
    slots, flagged, found = [0, 0], [0, 0], []
    for slot, bank in enumerate(banks):
        if bank == NO_BANK:
            continue
        if hits >> slot & 1:
            found.append((bank, slot))
        else:
            slots[bank] |= 1 << slot
            flagged[bank] |= flags & 1 << slot
    return Reads(tuple(slots), tuple(flagged), flags > 0, tuple(found), gap)
