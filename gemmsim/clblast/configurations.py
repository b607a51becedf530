"""Configurations of the CLBlast kernel, many at once: its parameters, what follows from them, and which are legal.

The kernel is Xgemm of CLBlast (Nugteren, "CLBlast: A Tuned OpenCL BLAS Library", IWOCL 2018). A lies as A[k M + m],
B as B[k N + n], C as C[n M + m]. A work-group, here a block, of MDIMC x NDIMC threads computes MWG x NWG of C; thread
(x, y), number x + MDIMC y, computes MWI x NWI of it, neighbours in both dimensions. Where SA is 1 the block copies
KWG rows of its tile of A to shared memory, as MDIMA threads along m and the rest along k, and reads it there; else
every step reads global memory. SB and NDIMB likewise for B.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.errors import InputError, require
from gemmsim.problem import Problem, whole_number
from gemmsim.tiling import LARGEST_BLOCK, WARP_SIZE

Numbers = NDArray[np.int64]
WIDEST = 4
"""Elements of the widest access, 128 bits; a vector of 8 is two of them."""
WIDTHS = (1, 2, 4, 8)
LARGEST_PARAMETER = 1024
SECTOR_ELEMENTS = 8
"""Elements of a sector of 32 bytes."""


@dataclass(frozen=True)
class Configurations:
    """Parameters by the tuner's names, in lower case; arrays of one length.

    Raises InputError for numbers that are not whole or out of range, and for arrays of several lengths. What the
    kernel demands of them together, `check` says.
    """

    mwg: Numbers
    nwg: Numbers
    kwg: Numbers
    mdimc: Numbers
    ndimc: Numbers
    mdima: Numbers
    ndimb: Numbers
    kwi: Numbers
    vwm: Numbers
    vwn: Numbers
    strm: Numbers
    strn: Numbers
    sa: Numbers
    sb: Numbers

    def __post_init__(self) -> None:
        sizes = set()
        for name in (item.name for item in fields(self)):
            least, most = (0, 1) if name in FLAGS else (1, LARGEST_PARAMETER)
            value = np.atleast_1d(np.asarray(getattr(self, name)))
            object.__setattr__(self, name, whole_number(value, name.upper(), least, most))
            sizes.add(value.shape)
        if len(sizes) > 1 or len(next(iter(sizes))) != 1:
            raise InputError(f"parameters of the shapes {', '.join(map(str, sorted(sizes)))}; allowed: one length")

    @classmethod
    def of(cls, columns: Mapping[str, Any]) -> Configurations:
        """From arrays or numbers by the tuner's names, such as MWG; raises InputError that names what is missing."""
        missing = [name for name in PARAMETERS if name not in columns]
        if missing:
            raise InputError(f"parameters {', '.join(missing)} of kernel clblast are missing")
        arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(columns[name])) for name in PARAMETERS))
        return cls(*arrays)

    def __len__(self) -> int:
        return len(self.mwg)

    def __getitem__(self, rows: Any) -> Configurations:
        return Configurations(*(np.atleast_1d(getattr(self, item.name)[rows]) for item in fields(self)))

    def row(self, number: int) -> dict[str, int]:
        """The parameters of one configuration by the tuner's names."""
        return {name: int(getattr(self, name.lower())[number]) for name in PARAMETERS}

    @property
    def threads(self) -> Numbers:
        """Threads of a block."""
        return self.mdimc * self.ndimc

    @property
    def warps(self) -> Numbers:
        """Warps of a block, the last one possibly not full."""
        return -(-self.threads // WARP_SIZE)

    @property
    def mwi(self) -> Numbers:
        """Elements of C of a thread along m."""
        return self.mwg // self.mdimc

    @property
    def nwi(self) -> Numbers:
        """Elements of C of a thread along n."""
        return self.nwg // self.ndimc

    @property
    def shared_bytes(self) -> Numbers:
        """Shared memory of a block."""
        return 4 * self.kwg * (self.sa * self.mwg + self.sb * self.nwg)

    def blocks(self, problem: Problem) -> Numbers:
        """Blocks of a launch."""
        return np.asarray((problem.m // self.mwg) * (problem.n // self.nwg))

    def steps(self, problem: Problem) -> Numbers:
        """Tiles of k that each block goes through."""
        return np.asarray(problem.k // self.kwg)

    def rules(self) -> Iterator[tuple[Any, str]]:
        """What the kernel demands, as (condition, words)."""
        for name in ("vwm", "vwn"):
            yield np.isin(getattr(self, name), WIDTHS), f"{name.upper()} is one of {', '.join(map(str, WIDTHS))}"
        for tile in ("mwg", "nwg"):
            yield getattr(self, tile) % SECTOR_ELEMENTS == 0, f"{tile.upper()} is a multiple of {SECTOR_ELEMENTS}"
        yield self.threads <= LARGEST_BLOCK, f"MDIMC x NDIMC is at most {LARGEST_BLOCK}"
        for tile, along, vector in (
            ("mwg", "mdimc", "vwm"), ("nwg", "ndimc", "vwn"), ("mwg", "mdima", "vwm"), ("nwg", "ndimb", "vwn"),
        ):  # fmt: skip
            yield (
                getattr(self, tile) % (getattr(self, along) * getattr(self, vector)) == 0,
                f"{tile.upper()} is a multiple of {along.upper()} x {vector.upper()}",
            )
        for along in ("mdima", "ndimb"):
            lanes = getattr(self, along)
            others = np.maximum(self.threads // lanes, 1)
            yield (
                (self.threads % lanes == 0) & (self.kwg % others == 0),
                f"KWG is a multiple of MDIMC x NDIMC / {along.upper()}, which is whole",
            )
        yield self.kwg % self.kwi == 0, "KWG is a multiple of KWI"
        yield (self.strm | self.strn) == 0, "STRM and STRN are 0: strided threads are not modelled"

    def broken_rules(self) -> list[str]:
        """For each configuration the first rule that it breaks, empty if it is legal."""
        found = np.full(len(self), "", object)
        for holds, words in self.rules():
            found[~np.asarray(holds) & (found == "")] = words
        return list(found)

    def check(self, problem: Problem) -> None:
        """Raise InputError unless every configuration is legal and its tiles divide the problem."""
        for number, broken in enumerate(self.broken_rules()):
            if broken:
                raise InputError(f"configuration {number + 1}, {describe(self.row(number))}: {broken}")
        for size, tile in (("m", "mwg"), ("n", "nwg"), ("k", "kwg")):
            require(
                getattr(problem, size) % getattr(self, tile) == 0,
                f"{size} {{size}} is no multiple of {tile.upper()} {{tile}}; the kernel takes whole tiles",
                size=getattr(problem, size), tile=getattr(self, tile),
            )  # fmt: skip


FLAGS = ("strm", "strn", "sa", "sb")
PARAMETERS = tuple(item.name.upper() for item in fields(Configurations))
"""The tuner's names, in its order."""


def widest(run: Numbers) -> Numbers:
    """Elements of the widest access that a run of neighbours can be cut into: 4, 2 or 1."""
    return np.where(run % 4 == 0, 4, np.where(run % 2 == 0, 2, 1))


def describe(row: Mapping[str, int]) -> str:
    """One configuration in words: tile, threads, vectors, what is staged."""
    staged = {(0, 0): "nothing", (1, 0): "A", (0, 1): "B", (1, 1): "A and B"}[row["SA"], row["SB"]]
    return (
        f"tile {row['MWG']}x{row['NWG']}, threads {row['MDIMC']}x{row['NDIMC']}, vectors {row['VWM']} and"
        f" {row['VWN']}, {staged} staged"
    )
