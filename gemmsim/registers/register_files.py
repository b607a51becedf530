"""The register file of an architecture, as data: banks, reads a cycle, operand cache, lanes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from gemmsim.device import DATA, Capability, capability
from gemmsim.errors import InputError, require
from gemmsim.tiling import WARP_SIZE
from gemmsim.toml_files import read_toml

CACHES = ("slot", "bank and slot")
LASTING = ("instruction", "read")


@dataclass(frozen=True)
class RegisterFile:
    """How a sub-core reads source operands, as `data/register_files.toml` explains field by field.

    `lanes` are the FFMA that one sub-core starts in a cycle. The last three say for how long a yield weakens the
    operand cache, and how fast a loop is fetched that is too long to be held. Raises InputError for values that no
    rule covers.
    """

    name: str
    title: str
    banks: int
    reads_per_cycle: int
    window_cycles: int
    operand_cache: str
    cache_lasts: str
    lanes: int
    yield_weakens_instructions: int = 0
    held_instructions: int = 0
    fetch_cycles: float = 1.0
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        require(self.banks in (1, 2, 4, 8), "{banks} register banks; allowed: 1, 2, 4, 8", banks=self.banks)
        require(self.reads_per_cycle >= 1, "{reads} reads a cycle; a bank needs 1", reads=self.reads_per_cycle)
        require(1 <= self.window_cycles <= 8, "a window of {w} cycles; allowed: 1 to 8", w=self.window_cycles)
        require(self.operand_cache in CACHES, "operand cache {c}; allowed: {a}", c=self.operand_cache, a=CACHES)
        require(self.cache_lasts in LASTING, "operands last {c}; allowed: {a}", c=self.cache_lasts, a=LASTING)
        require(self.yield_weakens_instructions >= 0, "{n} instructions with a weak operand cache; allowed: 0 and more",
                n=self.yield_weakens_instructions)  # fmt: skip
        require(self.held_instructions >= 0, "{n} instructions held; allowed: 0 and more", n=self.held_instructions)
        require(self.fetch_cycles >= 1, "{c} cycles to fetch an instruction; needed: 1 at least", c=self.fetch_cycles)
        require(self.lanes in (8, 16, 32), "{lanes} lanes a sub-core; allowed: 8, 16, 32", lanes=self.lanes)

    @property
    def ffma_interval_cycles(self) -> int:
        """Cycles between two FFMA of a sub-core: the bound that registers cannot better."""
        return WARP_SIZE // self.lanes


def register_file(of: str | Capability = "sm_90") -> RegisterFile:
    """The register file of a compute capability, written as sm_90, 9.0 or 90.

    Raises InputError for a capability that is not known, and for one whose register file is not.
    """
    return _register_file(of if isinstance(of, Capability) else capability(of))


@cache
def _register_file(found: Capability) -> RegisterFile:
    for name, row in _rows().items():
        if found.name in row["capabilities"]:
            known = {key.name: row[key.name] for key in fields(RegisterFile) if key.name in row}
            lanes = found.fp32_lanes_per_sm // found.sub_partitions
            return RegisterFile(name=name, lanes=lanes, **known)
    covered = ", ".join(name for row in _rows().values() for name in row["capabilities"])
    raise InputError(f"the register file of compute capability {found.name} is not known; known: {covered}")


@cache
def _rows() -> Mapping[str, Any]:
    return read_toml(DATA / "register_files.toml")
