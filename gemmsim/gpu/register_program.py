"""The machine code of one register microbenchmark, put into a compiled cubin in place of its own.

The program sets registers and addresses, waits until all warps of the block are there, reads the clock, runs the
body again and again, reads the clock, and stores both; or, to see that it does what it says, all registers. All
but the body is written so that it cannot go wrong rather than fast: each instruction waits for everything before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmsim.errors import InputError, MachineError
from gemmsim.machine_code.cubin import CubinFile
from gemmsim.machine_code.encoding import ALL_BARRIERS, GUARD, OPCODE, WORD_BYTES, Control, encode, field
from gemmsim.machine_code.loop_bodies import ADDRESS_REGISTERS, GLOBAL, SHARED_SPREAD, SHARED_UNIFORM, LoopBody
from gemmsim.machine_code.sass import Instruction
from gemmsim.registers.instruction_streams import RZ

ARCH = "sm_90"
"""Whose encoding, constant bank and shared window these programs have."""
KERNEL = "bench"
OUT, BUFFER, TRIPS = 0x210, 0x218, 0x220
"""Where the arguments of a launch are in constant bank 0."""
DESCRIPTOR = 0x208
"""Where the descriptor of global memory is in it."""
SHARED_START = 0x400
"""The first shared address of a block: those below are the system's."""
END_CLOCKS = 0x1000
"""Bytes from the start clocks to the end clocks."""
DUMP_BYTES = 0x400
"""Bytes of a thread's registers in a dump."""
SCOREBOARDS = 5
"""Loads of a body take these in turn; the last one is the program's."""
EXIT, ALWAYS = 0x94D, 7

WAIT = Control(stall=11, yield_bit=0, wait_mask=ALL_BARRIERS)
LOAD = Control(stall=11, yield_bit=0, write_barrier=SCOREBOARDS, wait_mask=ALL_BARRIERS)
"""The controls of the program's own instructions, as compilers pair stalls with yields."""


@dataclass(frozen=True)
class Spare:
    """Registers that the body leaves to the program: a counter, two clocks, a lane's number, an address (a pair)."""

    counter: int
    start: int
    end: int
    lane: int
    address: int


def spare(body: LoopBody, registers: int) -> Spare:
    """The registers of a thread with so many that the body leaves alone, the last ones.

    Raises InputError when there are too few.
    """
    free = [number for number in range(registers) if number not in body.registers]
    pair = next((number for number in reversed(free) if number % 2 == 0 and number + 1 in free), None)
    rest = [number for number in free if pair is None or number not in (pair, pair + 1)]
    if pair is None or len(rest) < 4 or max(body.registers) >= registers:
        raise InputError(f"{body.name}: {registers} registers a thread are too few for it and six more")
    counter, start, end, lane = rest[-4:]
    return Spare(counter, start, end, lane, pair)


def program(body: LoopBody, copies: int, template: CubinFile, registers: int, dump: bool = False) -> list[int]:
    """The instruction words: `copies` of the body in the loop; at the end clocks, or with `dump` all registers.

    The end is the template's own EXIT, so that what the compiler says of it in the file remains true. Raises
    InputError where the code does not fit before that.
    """
    if copies * len(body.code) < 16:
        raise InputError(
            f"{body.name}: {copies} copies are {copies * len(body.code)} instructions; at least 16 are needed"
        )
    free = spare(body, registers)
    words = [encode(text, control) for text, control in _prologue(body, free)]
    top = len(words) * WORD_BYTES
    words += [
        encode(f"IADD3 R{free.counter}, R{free.counter}, -0x1, RZ", Control(stall=6)),
        encode(f"ISETP.NE.AND P0, PT, R{free.counter}, RZ, PT"),
        *(encode(text, control) for text, control in unrolled(body, copies)),
        encode(f"@P0 BRA {top:#x}", Control(stall=5), (len(words) + 2 + copies * len(body.code)) * WORD_BYTES),
    ]
    words += [encode(text, control) for text, control in _epilogue(body, free, dump)]
    exit_at = compiled_exit(template)
    words.append(encode(f"BRA {exit_at * WORD_BYTES:#x}", WAIT, len(words) * WORD_BYTES))
    if len(words) > exit_at:
        raise InputError(f"{body.name}: {len(words)} instructions do not fit before the {exit_at} of the template")
    return words


def compiled_exit(template: CubinFile) -> int:
    """The index of the last EXIT in the template."""
    found = [
        index
        for index, word in enumerate(template.words(KERNEL))
        if field(word, OPCODE) == EXIT and field(word, GUARD) == ALWAYS
    ]
    if not found:
        raise MachineError("the compiled template has no EXIT; nvcc 13.0 leaves one")
    return found[-1]


def unrolled(body: LoopBody, copies: int) -> list[tuple[str, Control]]:
    """The body so many times; its loads take the scoreboards in turn, which nothing waits for before the loop's end."""
    found, loads = [], 0
    for instruction, control in zip(body.instructions * copies, body.controls * copies, strict=True):
        if instruction.kind in ("shared_load", "global_load"):
            control = Control(control.stall, control.yield_bit, write_barrier=loads % SCOREBOARDS)
            loads += 1
        found.append((instruction.text, control))
    return found


def initial(register: int) -> int:
    """The bits that a register has at first: those of a small whole number as a float, so that sums stay exact."""
    return int(np.float32(register * 7 % 5 - 2).view(np.uint32))


def _prologue(body: LoopBody, free: Spare) -> Iterable[tuple[str, Control]]:
    yield f"S2R R{free.lane}, SR_TID.X", LOAD
    yield f"LDC R{free.counter}, c[0x0][{TRIPS:#x}]", LOAD
    yield f"ULDC.64 UR4, c[0x0][{DESCRIPTOR:#x}]", WAIT
    yield "NOP", WAIT
    for register in sorted(body.registers):
        yield f"MOV R{register}, {initial(register):#x}", WAIT
    if body.touches_memory:
        yield f"MOV R{SHARED_UNIFORM}, {SHARED_START:#x}", WAIT
        for bits, register in SHARED_SPREAD.items():
            yield f"IMAD R{register}, R{free.lane}, {bits // 8:#x}, R{SHARED_UNIFORM}", WAIT
        yield f"LDC.64 R{GLOBAL}, c[0x0][{BUFFER:#x}]", LOAD
        yield f"IMAD.WIDE.U32 R{GLOBAL}, R{free.lane}, 0x10, R{GLOBAL}", WAIT
        for instruction in body.instructions:
            if instruction.kind == "global_load":  # what the body reads is in L1 before the clock starts
                yield instruction.text, LOAD
    yield "BAR.SYNC.DEFER_BLOCKING 0x0", WAIT
    yield f"CS2R.32 R{free.start}, SR_CLOCKLO", WAIT


def _epilogue(body: LoopBody, free: Spare, dump: bool) -> Iterable[tuple[str, Control]]:
    yield f"CS2R.32 R{free.end}, SR_CLOCKLO", WAIT
    yield f"S2R R{free.lane}, SR_TID.X", LOAD
    yield f"LDC.64 R{free.address}, c[0x0][{OUT:#x}]", LOAD
    pitch = DUMP_BYTES if dump else 4
    yield f"IMAD.WIDE.U32 R{free.address}, R{free.lane}, {pitch:#x}, R{free.address}", WAIT
    stored = {4 * number: number for number in body.registers} if dump else {0: free.start, END_CLOCKS: free.end}
    for offset, register in sorted(stored.items()):
        yield f"STG.E desc[UR4][R{free.address}.64+{offset:#x}], R{register}", WAIT


def patched(body: LoopBody, copies: int, template: CubinFile, registers: int, dump: bool = False) -> CubinFile:
    """The template with the program in it."""
    return template.patched(program(body, copies, template, registers, dump), KERNEL)


def same_code(body: LoopBody, copies: int, instructions: Sequence[Instruction]) -> str | None:
    """Where disassembled instructions are not the body's, in one sentence; None where they are, flags and all."""
    wanted = unrolled(body, copies)
    start = 1 + next(number for number, each in enumerate(instructions) if each.mnemonic == "ISETP.NE.AND")
    found = instructions[start : start + len(wanted)]
    for (text, control), each in zip(wanted, found, strict=False):
        if each.word != encode(text, control) or _plain(text) != _plain(each.text):
            return f"at {each.address:#x} {each.text} instead of {text}"
    after = instructions[start + len(wanted)]
    if len(found) != len(wanted) or after.opcode != "BRA" or after.guard != "P0":
        return f"{after.text} instead of the loop's branch"
    return None


def _plain(text: str) -> str:
    """The text without an offset of zero, and without flags: an instruction that yields is printed without them."""
    return text.replace("+0x0]", "]").replace(".reuse", "")


def run_on_paper(body: LoopBody, trips: int, copies: int = 1) -> Mapping[int, int]:
    """{register: its bits at the end} as whole passes through the body leave them, but for those that loads write and
    those that hold addresses.

    Good for results that are read no sooner than the pipeline has written them.
    """
    bits: dict[int, Any] = {number: np.uint32(initial(number)) for number in body.registers} | {RZ: np.uint32(0)}
    unknown = set(ADDRESS_REGISTERS) if body.touches_memory else set()
    for instruction in body.instructions * (copies * trips):
        if instruction.kind in ("shared_load", "global_load"):
            unknown.update(instruction.writes)
        elif instruction.writes:
            bits[instruction.writes[0]] = _result(instruction, bits)
    return {number: int(value) for number, value in bits.items() if number != RZ and number not in unknown}


def _result(instruction: Instruction, bits: Mapping[int, np.uint32]) -> np.uint32:
    """The bits that an instruction writes."""
    values = [_value(text, bits) for text in instruction.operands[1:4]]
    if instruction.opcode == "FFMA":
        x, y, z = (value.reshape(1).view(np.float32) for value in values)
        return np.uint32((x * y + z).view(np.uint32)[0])
    a, b, c = [*map(int, values), 0, 0][:3]
    match instruction.opcode:
        case "MOV":
            whole = a
        case "IADD3":
            whole = a + b + c
        case "IMAD":
            whole = a * b + c
        case _:
            whole = _lop3(a, b, c, int(instruction.operands[4], 16))
    return np.uint32(whole & 0xFFFFFFFF)


def _lop3(a: int, b: int, c: int, table: int) -> int:
    """Bit by bit, the bit of the table at the place 4a + 2b + c (PTX ISA, lop3)."""
    found = 0
    for place in range(8):
        if table >> place & 1:
            found |= (a if place & 4 else ~a) & (b if place & 2 else ~b) & (c if place & 1 else ~c)
    return found


def _value(text: str, bits: Mapping[int, np.uint32]) -> np.uint32:
    if text.startswith("0x"):
        return np.uint32(int(text, 16))
    name = text.removesuffix(".reuse")
    return bits[RZ if name == "RZ" else int(name[1:])]
