"""The loops of `core_loops.py`: what each access reads and costs, a pass in CUDA, and what it has to leave.

A pass has sixteen accesses, each with some FFMA behind it. All they read is in L1 or in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gemmsim.banks import async_copy_passes, passes
from gemmsim.coalescing import l1_wavefronts
from gemmsim.pipeline.costs import Cost, Costs
from gemmsim.pipeline.program import Action

SOURCE = Path(__file__).with_name("core_loops.cu")
"""What the generated kernels are made of."""
ACCESSES, LANES, MOST_THREADS = 16, 32, 1024
SUMS = 8
"""Registers in which a thread adds up what it loads."""
ROW_WORDS = 2048
"""From one place to the next of a copy that reads several."""
AREA_WORDS = ACCESSES * LANES * 4
STORED, COPIED, SHARED_WORDS = AREA_WORDS, 2 * AREA_WORDS, 3 * AREA_WORDS
"""Where stores write to shared memory and copies do, and its end; loads read what is before."""
GLOBAL_VALUES, SHARED_VALUES = 7, 5
"""Word i holds i modulo these: small whole numbers, whose sums are exact."""
STORED_VALUE = 1.0


@dataclass(frozen=True)
class Access:
    """One access of a warp: what it does, the registers it moves, and where its lanes read: `together` at one address,
    else lane beside lane, in so many places."""

    action: Action
    registers: int = 1
    together: bool = False
    places: int = 1

    @property
    def lane_words(self) -> NDArray[np.int64]:
        """The first word of each lane, from where the access begins."""
        place, lane = np.divmod(np.arange(LANES), LANES // self.places)
        return np.zeros(LANES, np.int64) if self.together else place * ROW_WORDS + lane * self.registers

    @property
    def step_words(self) -> int:
        """From one access of a pass to the next."""
        return self.registers * (1 if self.together else LANES)

    @property
    def costs(self) -> Costs:
        """What the simulation is told of it, by the rules of banks, of L1's tags and of copies."""
        width, lanes, addresses = 4 * self.registers, np.ones(LANES, bool), 4 * self.lane_words
        of = self.action, self.registers
        if self.action in ("shared_load", "shared_store"):
            return {of: (Cost(1, float(passes(addresses, lanes, width, self.action == "shared_store").wavefronts)),)}
        found = l1_wavefronts(addresses, lanes, width)
        asked = Cost(float(found.tag), float(found.data), 4.0 * LANES * self.registers, self.places)
        if self.action == "global_load":
            return {of: (asked,)}
        written = async_copy_passes(4 * self.registers * np.arange(LANES), lanes, width, self.registers < 4)
        return {of: (Cost(1, float(written.wavefronts)),), ("global_copy_source", self.registers): (asked,)}

    @property
    def merged(self) -> bool:
        """Whether it is a shared load whose lanes merge: served in fewer wavefronts than it has registers."""
        return self.action == "shared_load" and self.costs[self.action, self.registers][0].wavefronts < self.registers


KINDS = {
    "ldg": Access("global_load"), "ldg.64": Access("global_load", 2), "ldg.128": Access("global_load", 4),
    "ldg.one": Access("global_load", 1, True),
    "lds": Access("shared_load"), "lds.64": Access("shared_load", 2), "lds.128": Access("shared_load", 4),
    "lds.one": Access("shared_load", 1, True), "lds.64.one": Access("shared_load", 2, True),
    "lds.128.one": Access("shared_load", 4, True),
    "sts": Access("shared_store"), "sts.64": Access("shared_store", 2), "sts.128": Access("shared_store", 4),
    "cp": Access("global_copy"), "cp.2_places": Access("global_copy", 1, False, 2),
    "cp.4_places": Access("global_copy", 1, False, 4), "cp.64": Access("global_copy", 2),
    "cp.128": Access("global_copy", 4),
}  # fmt: skip
PATTERNS: Mapping[str, tuple[int, ...]] = {
    "ldg": (0, 1, 2, 4), "ldg.one": (0, 1, 2, 4), "ldg.64": (0, 4), "ldg.128": (0, 8), "lds": (0, 1, 2, 4),
    "lds.one": (0, 1, 2, 4), "lds.64": (0, 1, 2, 4), "lds.64.one": (0, 4), "lds.128": (0, 4, 8, 16),
    "lds.128.one": (0, 2, 4, 8, 16), "sts": (1, 2, 4), "sts.64": (1, 4), "sts.128": (1, 8), "ldg lds": (0, 1, 2, 4),
    "ldg ldg.one": (0, 2, 4), "ldg lds lds lds": (0, 1, 2, 4), "lds lds lds sts": (0, 1, 2, 4),
    "lds lds.128.one": (0, 2, 4, 8), "lds lds.128.one lds.128.one lds.128.one": (0, 4, 8),
    "lds.64 lds.64 lds.128.one": (0, 1, 2, 4), "ldg ldg sts": (0, 1, 2, 4), "ldg.128 lds.128.one": (0, 8),
    "lds.128 lds.64.one sts": (0, 4), "cp": (1, 4), "cp.2_places": (1, 4), "cp.4_places": (1, 4), "cp.64": (1, 4),
    "cp.128": (1, 8), "cp lds": (1, 4), "cp.128 lds.128.one": (1, 8),
    "cp cp lds lds": (1,), "cp cp cp cp lds lds lds lds": (1,), "cp lds lds lds": (1,), "cp lds.128": (1,),
    "cp lds.128.one": (1,), "cp.2_places lds": (1,), "cp.64 lds": (1,), "cp.128 lds": (1,), "cp ldg": (1,),
    "cp sts": (1,),
}  # fmt: skip
"""Kinds of access, round and round, and the numbers of FFMA behind each. Some FFMA make a loop the main one."""


@dataclass(frozen=True)
class Loop:
    """A loop: its pattern, and the FFMA behind each access beside those that add up what was loaded."""

    number: int
    pattern: str
    ffma: int

    @property
    def name(self) -> str:
        """The pattern and the FFMA, such as "ldg lds +2"."""
        return f"{self.pattern} +{self.ffma}"

    @cached_property
    def accesses(self) -> list[Access]:
        """The accesses of a pass, one after the other."""
        kinds = self.pattern.split()
        return [KINDS[kinds[number % len(kinds)]] for number in range(ACCESSES)]

    @property
    def costs(self) -> Costs:
        """What its accesses cost; none has two of one action and width that differ in it."""
        return {of: cost for each in self.accesses for of, cost in each.costs.items()}

    @property
    def merged(self) -> float:
        """Share of its shared loads whose lanes merge."""
        loads = [each.merged for each in self.accesses if each.action == "shared_load"]
        return sum(loads) / len(loads) if loads else 0.0

    def left(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """(sums of a warp's lanes, words of shared memory) after so many passes."""
        sums = np.full(LANES, SUMS * (SUMS - 1) // 2 + count * ACCESSES * self.ffma)
        shared = np.where(np.arange(SHARED_WORDS) < AREA_WORDS, np.arange(SHARED_WORDS) % SHARED_VALUES, 0)
        for number, each in enumerate(self.accesses):
            words = (number * each.step_words + each.lane_words)[:, None] + np.arange(each.registers)
            written = number * each.step_words + np.arange(each.registers * LANES)
            if each.action == "shared_store":
                shared[STORED + written] = STORED_VALUE
            elif each.action == "global_copy":
                shared[COPIED + written] = words.reshape(-1) % GLOBAL_VALUES
            else:
                sums += count * (words % (GLOBAL_VALUES if each.action == "global_load" else SHARED_VALUES)).sum(axis=1)
        return sums.astype(np.float32), shared.astype(np.float32)

    def statements(self) -> Iterator[str]:
        """A pass in CUDA, with what `core_loops.cu` defines; what was loaded is added up at its end."""
        added = []
        for number, each in enumerate(self.accesses):
            of, step = f"{each.action}<{each.registers}>", number * each.step_words
            lanes = f"at[{LANES * list(KINDS.values()).index(each)} + lane]"
            to = f"shared + 4 * {each.registers} * lane + {4 * step}"
            match each.action:
                case "global_copy":
                    yield f"{of}({to} + {4 * COPIED}, memory + {lanes} + {step});"
                case "shared_store":
                    yield f"{of}({to} + {4 * STORED}, one);"
                case "global_load":
                    yield f"{of}(v[{number}], memory + {lanes} + {step});"
                case _:
                    yield f"{of}(v[{number}], shared + 4 * {lanes} + {4 * step});"
            if "load" in each.action:
                added += [(f"v[{number}][{value}]", (number + value) % SUMS) for value in range(each.registers)]
            for turn in range(self.ffma):
                yield f"ffma(z[{(number * self.ffma + turn) % SUMS}], one, also_one);"
        if any(each.action == "global_copy" for each in self.accesses):
            yield "copies_of_the_last_pass();"
        yield from (f"z[{to}] = fmaf({value}, also_one, z[{to}]);" for value, to in added)


LOOPS = [
    Loop(number, pattern, ffma)
    for number, (pattern, ffma) in enumerate((pattern, each) for pattern, of in PATTERNS.items() for each in of)
]


def source() -> str:
    """The CUDA source of all loops."""
    names = "ACCESSES", "AREA_WORDS", "SHARED_VALUES", "SHARED_WORDS", "SUMS"
    defined = [f"#define {name} {globals()[name]}" for name in names]
    kernels = []
    for loop in LOOPS:
        kernel = (
            f'extern "C" __global__ void __launch_bounds__({MOST_THREADS}) loop_{loop.number}(GIVEN) // {loop.name}'
        )
        kernels += [kernel, "{", "BEGIN {", *loop.statements(), "}", "END", "}"]
    return "\n".join([*defined, SOURCE.read_text(), *kernels])


def source_hash() -> str:
    """What tells whether a record and a program are of the loops as they are written now."""
    return sha256(source().encode()).hexdigest()[:16]
