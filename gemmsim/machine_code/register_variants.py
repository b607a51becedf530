"""The loop bodies that `gemmsim calibrate registers` measures: what decides how registers are read.

All but the 8x8 tiles keep to 58 registers, so that eight warps a sub-core have room.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, product

from gemmsim.machine_code.loop_bodies import GLOBAL, SHARED_SPREAD, SHARED_UNIFORM, LoopBody, register_name
from gemmsim.registers.instruction_streams import RZ

LOADED = 8
"""Loads write R8 to R15: no FFMA reads them, so nothing waits."""
WHOLE = 16
"""Whole-number instructions work in R16 to R23."""
FRAGMENTS = 24
STORED = 48
"""Stores read R48 to R55, which nothing writes."""
RESULTS = 54
"""FFMA whose results nothing reads write R54 to R57."""
POOL = 5
"""Registers of one slot and parity among which sources change."""
PERIOD = 64
"""FFMA between which other instructions are put."""

Ffma = tuple[int, int, int, int]
"""(Rd, Ra, Rb, Rc)."""
Other = Callable[[int], str]
"""The text of the n-th instruction put between the FFMA."""


def variants() -> list[LoopBody]:
    """All of them: first those of FFMA alone, then those with other instructions between."""
    return [*ffma_alone(), *with_others()]


def ffma_alone() -> Iterator[LoopBody]:
    """Parities, held operands, thread tiles, stalls and yields."""
    for parities in map("".join, product("eo", repeat=3)):
        yield _body(parities, flagged(streaming([parities])))
    yield _body("eeo, eoo in turn", flagged(streaming(["eeo", "eoo"])))
    yield _body("eee, ooo in turn", flagged(streaming(["eee", "ooo"])))
    yield _body("eez", flagged(streaming(["eez"])))
    for parities, held in (("eee", "A"), ("eee", "AB"), ("eee", "BC"), ("eeo", "C"), ("ooo", "B"), ("oeo", "AC")):
        yield _body(f"{parities} holding {held}", flagged(streaming([parities], held)))
    for order, parity in product(("rows", "serpentine", "2x2"), ("opposite B", "same as B", "checkered")):
        yield _body(f"4x4 {order}, accumulator {parity}", flagged(tile(4, 4, order, parity)))
    for order in ("rows", "serpentine"):
        yield _body(f"8x8 {order}, accumulator opposite B", flagged(tile(8, 8, order, "opposite B")))
    serpentine = flagged(tile(4, 4, "serpentine", "opposite B"))
    yield _body("4x4 serpentine, stall 2", serpentine, stall=2)
    yield _body("4x4 serpentine, yields", serpentine, yield_bit=0)
    yield _body("4x4 serpentine, flags cleared", [text.replace(".reuse", "") for text in serpentine])


def with_others() -> Iterator[LoopBody]:
    """Loads and stores of every width, whole-number instructions and moves between FFMA in good and in bad order."""
    good = flagged(tile(4, 4, "serpentine", "opposite B")) * 4
    bad = flagged(streaming(["eeo"]))[:PERIOD]
    held = flagged(streaming(["eee"], "AB"))[:PERIOD]
    for width, every in product((32, 64, 128), (4, 8, 16, 32)):
        yield _mixed(f"LDS.{width}", good, shared_load(width), every)
    for width, every in product((32, 64, 128), (8, 16)):
        yield _mixed(f"LDS.{width} spread", good, shared_load(width, SHARED_SPREAD[width]), every)
    yield _mixed("LDS.32 to odd", good, shared_load(32, first=LOADED + 1, step=2), 8)
    for first, every in product((LOADED, LOADED + 2), (8, 16)):
        yield _mixed(f"LDS.64 to R{first}", good, shared_load(64, first=first, step=4), every)
    for width, every in product((32, 64, 128), (8, 16)):
        yield _mixed(f"eeo, LDS.{width}", bad, shared_load(width), every)
    for width, every in product((32, 64, 128), (16, 32)):
        yield _mixed(f"LDG.{width}", good, global_load(width), every)
    for width, every in product((32, 64, 128), (8, 16, 32)):
        yield _mixed(f"STS.{width}", good, shared_store(width), every)
    yield _mixed("eeo, STS.128", bad, shared_store(128), 16)
    for name, whole in WHOLE_NUMBER.items():
        for every in (4, 16):
            yield _mixed(name, good, whole, every)
    for name in ("IADD3 eee", "MOV o", "LOP3 eoo"):
        yield _mixed(f"eeo, {name}", bad, WHOLE_NUMBER[name], 8)
    for name in ("IADD3 eee", "IADD3 ooo", "MOV e", "IMAD eoz"):
        yield _mixed(f"eee holding AB, {name}", held, WHOLE_NUMBER[name], 8)
    yield _mixed("eee holding AB, LDS.32", held, shared_load(32), 8)
    yield _mixed("eee holding AB, LDS.32 at odd", held, shared_load(32, SHARED_SPREAD[64]), 8)
    large = flagged(tile(8, 8, "serpentine", "opposite B"))
    yield _mixed("8x8 serpentine, LDS.128", large, shared_load(128), 16)
    yield _mixed("8x8 serpentine, LDS.64", large, shared_load(64), 8)
    yield _mixed("8x8 serpentine, LDS.128 spread", large, shared_load(128, SHARED_SPREAD[128]), 16)
    yield _mixed("8x8 rows, LDS.128", flagged(tile(8, 8, "rows", "opposite B")), shared_load(128), 16)
    step = in_turn([shared_load(128), shared_load(128), WHOLE_NUMBER["IADD3 eoz"], shared_store(32)])
    yield _mixed("8x8 serpentine, LDS.128, IADD3 and STS", large, step, 8)
    yield _mixed("LDS.128, LDG.128, STS.128 and IADD3", good, in_turn(
        [shared_load(128), global_load(128), shared_store(128), WHOLE_NUMBER["IADD3 eoz"]]), 8)  # fmt: skip


def streaming(parities: Sequence[str], held: str = "") -> list[Ffma]:
    """FFMA whose sources A, B, C have the given parities in turn (e, o, or z for RZ), over five registers a slot and
    parity; slots that are `held` keep to one. No result is read."""

    def source(number: int, slot: str) -> int:
        parity = parities[number % len(parities)]["ABC".index(slot)]
        chosen = 0 if slot in held else number % POOL
        return RZ if parity == "z" else FRAGMENTS + 2 * (POOL * "ABC".index(slot) + chosen) + (parity == "o")

    whole = POOL * len(parities)
    return [
        (RESULTS + number % 4, source(number, "A"), source(number, "B"), source(number, "C"))
        for number in range(-(-PERIOD // whole) * whole)
    ]


def tile(rows: int, columns: int, order: str, accumulator: str) -> list[Ffma]:
    """The FFMA of an outer product, A from R24 on, then B, then the accumulators, of the given parity."""
    a, b = FRAGMENTS, FRAGMENTS + rows
    first = b + columns
    found = []
    for i, j in places(rows, columns, order):
        odd = {"opposite B": 1, "same as B": 0, "checkered": i & 1}[accumulator]
        result = first + i * columns + (j ^ odd)
        found.append((result, a + i, b + j, result))
    return found


def places(rows: int, columns: int, order: str) -> list[tuple[int, int]]:
    """The places of a tile in the order in which they are multiplied."""
    if order == "2x2":
        return [
            (i + di, j + dj)
            for i, j in product(range(0, rows, 2), range(0, columns, 2))
            for di, dj in ((0, 0), (0, 1), (1, 1), (1, 0))
        ]
    backwards = order == "serpentine"
    return [(i, columns - 1 - j if backwards and i & 1 else j) for i, j in product(range(rows), range(columns))]


def flagged(ffma: Sequence[Ffma]) -> list[str]:
    """The texts, with `.reuse` on each source that the next FFMA, or the first after the last, has in the same slot."""
    texts = []
    for now, after in zip(ffma, [*ffma[1:], ffma[0]], strict=True):
        sources = [
            register_name(this) + ".reuse" * (this == that != RZ) for this, that in zip(now[1:], after[1:], strict=True)
        ]
        texts.append(f"FFMA {', '.join([register_name(now[0]), *sources])}")
    return texts


def shared_load(width: int, base: int = SHARED_UNIFORM, first: int = LOADED, step: int = 0) -> Other:
    """LDS of so many bits, to registers from `first` to R15 in turn."""
    step = step or width // 32
    targets = range(first, LOADED + 8, step)
    suffix = "" if width == 32 else f".{width}"
    return lambda n: f"LDS{suffix} R{targets[n % len(targets)]}, [R{base}+{_offset(n, width)}]"


def global_load(width: int) -> Other:
    """LDG of so many bits, each lane 16 bytes on: from L1 after the first time."""
    targets = range(LOADED, LOADED + 8, width // 32)
    suffix = "" if width == 32 else f".{width}"
    return lambda n: f"LDG.E{suffix} R{targets[n % len(targets)]}, desc[UR4][R{GLOBAL}.64+{_offset(n, width)}]"


def shared_store(width: int) -> Other:
    """STS of so many bits, lane beside lane."""
    sources = range(STORED, STORED + 8, width // 32)
    suffix = "" if width == 32 else f".{width}"
    return lambda n: f"STS{suffix} [R{SHARED_SPREAD[width]}+{_offset(n, width)}], R{sources[n % len(sources)]}"


WHOLE_NUMBER: dict[str, Other] = {
    "IADD3 eoz": lambda n: f"IADD3 R{WHOLE + n % 4}, R20, R21, RZ",
    "IADD3 eee": lambda n: f"IADD3 R{WHOLE + n % 4}, R20, R22, R48",
    "IADD3 ooo": lambda n: f"IADD3 R{WHOLE + n % 4}, R21, R23, R49",
    "IMAD eoz": lambda n: f"IMAD R{WHOLE + n % 4}, R20, R21, RZ",
    "IMAD eee": lambda n: f"IMAD R{WHOLE + n % 4}, R20, R22, R48",
    "LOP3 eoo": lambda n: f"LOP3.LUT R{WHOLE + n % 4}, R20, R21, R23, 0x96, !PT",
    "MOV e": lambda n: f"MOV R{WHOLE + n % 4}, R20",
    "MOV o": lambda n: f"MOV R{WHOLE + n % 4}, R21",
}
"""{name with the parities of its sources: the instruction}."""


def in_turn(others: Sequence[Other]) -> Other:
    """Each of these in turn."""
    return lambda n: others[n % len(others)](n // len(others))


def _mixed(name: str, ffma: Sequence[str], other: Other, every: int) -> LoopBody:
    """One other instruction before every `every` FFMA."""
    parts = [[other(number), *ffma[at : at + every]] for number, at in enumerate(range(0, len(ffma), every))]
    return _body(f"{name}, one in {every}", list(chain.from_iterable(parts)))


def _body(name: str, code: Sequence[str], stall: int = 1, yield_bit: int = 1) -> LoopBody:
    return LoopBody(name, tuple(code), (stall,) * len(code), (yield_bit,) * len(code))


def _offset(n: int, width: int) -> str:
    """An offset that differs from one access to the next: steps of 16 bytes."""
    return f"{n % 16 * 0x10:#x}"
