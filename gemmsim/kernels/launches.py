"""What a kernel is given and takes for one launch: widths of its accesses, blocks and macros, resources of a block."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmsim.problem import Count

REGISTER_BYTES = 4


@dataclass(frozen=True)
class Widths:
    """Elements that each access of a launch moves."""

    global_a: Count
    global_b: Count
    global_c: Count
    shared_a: Count
    shared_b: Count


@dataclass(frozen=True)
class Launch:
    """All that a launch needs: how many blocks of how many threads, and the macros of the compiler."""

    blocks: int
    threads: int
    shared_bytes: int
    macros: Mapping[str, int]


@dataclass(frozen=True)
class Resources:
    """What one block takes. `source` says where the register count is from; `spilled` words of each thread lie in local
    memory beside."""

    threads: Count
    registers_per_thread: Count
    shared_bytes: Count
    source: str
    spilled: Count = 0
