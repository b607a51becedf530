"""The few numbers of the time model that no device file has, read from `data/clblast.toml`, which says what each is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from gemmsim.banks import PASS_BYTES
from gemmsim.device import DATA, Capability
from gemmsim.errors import InputError
from gemmsim.toml_files import read_toml

FILE = DATA / "clblast.toml"


@dataclass(frozen=True)
class Constants:
    """The constants by the names of the file. Raises InputError unless all are positive."""

    clocks_per_copy_request: float
    clocks_per_lookup: float
    step_latency_clocks: float
    port_share: float
    step_instructions: float
    address_instructions: float
    l2_share: float
    dram_share: float
    block_clocks: float
    overlap_exponent: float
    registers_base: float
    registers_fragments: float
    registers_vector: float
    registers_address: float
    registers_copied: float
    spills_per_register: float
    bank_bytes_per_clock: Mapping[str, float]

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            for number in value.values() if isinstance(value, Mapping) else (value,):
                if not number > 0:
                    raise InputError(f"{item.name} must not be {number}; allowed: positive numbers")

    def pass_clocks(self, capability: Capability) -> float:
        """Clocks in which the banks hand out a wavefront of full width."""
        return PASS_BYTES / self.bank_bytes_per_clock.get(capability.name, PASS_BYTES)


@cache
def constants() -> Constants:
    """Those that are shipped."""
    tables = read_toml(FILE)
    parts = {name: value for part in ("fitted", "compiled", "chosen") for name, value in tables[part].items()}
    return Constants(**parts, bank_bytes_per_clock=tables["bank_bytes_per_clock"])
