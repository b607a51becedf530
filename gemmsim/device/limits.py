"""What a compute capability allows, as data: `data/capabilities.toml`, read when first asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gemmsim.errors import InputError, require, short

DATA = Path(__file__).parent.parent / "data"
LARGEST_FILE_BYTES = 1_000_000


@dataclass(frozen=True)
class L2Reference:
    """A GPU whose L2 read rate was measured; it lends its bytes per clock and SM to GPUs without a figure."""

    title: str
    capability: str
    sms: int
    clock_hz: float
    bytes_per_s: float
    source: str

    @property
    def bytes_per_clock_per_sm(self) -> float:
        """What each SM reads from L2 in a clock while all SMs read."""
        return self.bytes_per_s / (self.sms * self.clock_hz)


@dataclass(frozen=True)
class Capability:
    """The limits that one compute capability sets, per SM, block, warp or thread as the names say.

    `registers_per_thread` is the most that an instruction can name; `registers_per_thread_launchable`
    what NVIDIA's occupancy header accepts. Registers are given out in units of
    `register_allocation_unit` a warp, shared memory in units of `shared_allocation_unit` bytes a block.
    `carveouts_bytes` are the sizes that shared memory can take; `request_interval_cycles` lie between two
    global loads that hit L1. Raises InputError where these clash.
    """

    name: str
    source: str
    max_threads_per_block: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    registers_per_thread: int
    registers_per_thread_launchable: int
    register_allocation_unit: int
    warps_rounded_at_launch: int
    sub_partitions: int
    shared_bytes_per_sm: int
    shared_bytes_per_block: int
    shared_bytes_per_block_optin: int
    shared_bytes_reserved_per_block: int
    shared_allocation_unit: int
    carveouts_bytes: tuple[int, ...]
    fp32_lanes_per_sm: int
    barriers_per_sm: int
    barriers_limit_blocks: bool
    request_interval_cycles: int
    l2_reference: L2Reference
    unified_cache_bytes: int | None = None

    def __post_init__(self) -> None:
        sizes, optin = self.carveouts_bytes, self.shared_bytes_per_block_optin
        require(
            sizes == tuple(sorted(sizes)) and sizes[-1] == self.shared_bytes_per_sm,
            "compute capability {name}: carve-outs {sizes} must ascend to the {whole} bytes of an SM",
            name=self.name, sizes=sizes, whole=self.shared_bytes_per_sm,
        )  # fmt: skip
        require(
            self.shared_bytes_per_block <= optin <= self.shared_bytes_per_sm - self.shared_bytes_reserved_per_block,
            "compute capability {name}: {optin} bytes a block must lie from {default} to {whole} - {reserved}",
            name=self.name, optin=optin, default=self.shared_bytes_per_block,
            whole=self.shared_bytes_per_sm, reserved=self.shared_bytes_reserved_per_block,
        )  # fmt: skip

    @property
    def sm(self) -> str:
        """The compiler's name for it, such as sm_90."""
        return "sm_" + self.name.replace(".", "")

    @property
    def max_warps_per_sm(self) -> int:
        """Warps that can be resident on one SM."""
        return self.max_threads_per_sm // 32


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; InputError, naming the file, if it is none or larger than 1 MB."""
    import tomllib  # only now: most uses of the package read no file at all

    try:
        if not path.is_file():
            raise InputError(f"device file {path} {'is not a file' if path.exists() else 'does not exist'}")
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise InputError(f"device file {path} is larger than {LARGEST_FILE_BYTES} bytes; is it a device file?")
        return tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except InputError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"device file {path} is not readable as TOML: {' '.join(reason.split())}") from None


def capability(text: Any) -> Capability:
    """The compute capability written as 9.0, sm_90 or 90 (the last digit is the minor one).

    Raises InputError, with those supported, for any other.
    """
    form = re.fullmatch(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)[af]?", str(text).strip().lower())
    name = f"{int(form[1])}.{form[2]}" if form else ""
    known = capabilities()
    if name not in known:
        raise InputError(
            f"compute capability {short(text)} is not supported; supported: {known[0]} to {known[-1]}"
            f" ({', '.join(known)}), written as 9.0 or sm_90"
        )
    return _capability(name)


@cache
def capabilities() -> tuple[str, ...]:
    """Names of the compute capabilities known, ascending."""
    return tuple(name for name in _tables() if name not in ("common", "l2_references"))


@cache
def _capability(name: str) -> Capability:
    tables = _tables()
    row = {**tables["common"], **tables[name]}
    row["carveouts_bytes"] = tuple(row["carveouts_bytes"])
    row["l2_reference"] = L2Reference(**tables["l2_references"][row["l2_reference"]])
    return Capability(name=name, **row)


@cache
def _tables() -> dict[str, Any]:
    return read_toml(DATA / "capabilities.toml")
