"""A machine on paper that runs disassembled code: each instruction by its meaning, all threads of a block in step.

It takes nothing from the model but the disassembler's text, and refuses what it does not know, addresses outside its
memory among it. Time is one cycle an instruction.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gemmsim.machine_code.sass import Function, Instruction

Word = NDArray[np.uint32]
GLOBAL_BASE = 0x7F00_0000_0000
SHARED_BASE, SHARED_BYTES = 0x400, 32 * 1024
MOST_STEPS = 200_000


class SassMachine:
    """`threads` threads; `memory` is global memory, 32-bit words from GLOBAL_BASE on; `constants` those of bank 0."""

    def __init__(self, function: Function, threads: int, memory: Word, constants: dict[int, int]) -> None:
        self.code = {each.address: each for each in function.instructions}
        self.threads, self.memory, self.constants = threads, memory, constants
        self.registers: dict[int, Word] = {}
        self.uniform: dict[int, int] = {}
        self.predicate = np.ones(threads, bool)
        self.shared = np.zeros(SHARED_BYTES // 4, np.uint32)
        self.steps = 0
        self.ran: list[Instruction] = []

    def run(self) -> None:
        at = 0
        while True:
            each = self.code[at]
            self.ran.append(each)
            self.steps += 1
            assert self.steps < MOST_STEPS, "it does not end"
            at += 16
            if each.opcode == "EXIT":
                return
            if each.opcode == "BRA":
                assert self.predicate.all() or not self.predicate.any(), "threads part"
                assert each.guard in ("", "P0")
                if not each.guard or self.predicate.all():
                    assert each.target is not None
                    at = each.target
                continue
            assert not each.guard
            getattr(self, f"do_{each.opcode.lower()}")(each)

    def value(self, text: str) -> Word:
        name = text.removesuffix(".reuse")
        if name == "RZ":
            return np.zeros(self.threads, np.uint32)
        if re.fullmatch(r"-?0x[0-9a-f]+", name):
            return np.full(self.threads, int(name, 16) & 0xFFFFFFFF, np.uint32)
        return self.registers[int(re.fullmatch(r"R(\d+)", name)[1])]  # type: ignore[index]

    def put(self, text: str, value: Any, after: int = 0) -> None:
        self.registers[int(text[1:]) + after] = np.broadcast_to(np.asarray(value, np.uint32), self.threads).copy()

    def pair(self, number: int) -> NDArray[np.int64]:
        return self.registers[number].astype(np.int64) | self.registers[number + 1].astype(np.int64) << 32

    def address(self, text: str) -> NDArray[np.int64]:
        found = re.fullmatch(r"(?:desc\[UR\d+\])?\[R(\d+)(\.64)?(?:\+(0x[0-9a-f]+))?\]", text)
        assert found, text
        base = self.pair(int(found[1])) if found[2] else self.registers[int(found[1])].astype(np.int64)
        return base + int(found[3] or "0", 16)

    def places(self, text: str, words: int, base: int, memory: Word) -> NDArray[np.int64]:
        """Indices of the first word of each thread; every one of them is aligned and inside."""
        at = self.address(text) - base
        assert (at % (4 * words) == 0).all(), text
        assert (at >= 0).all(), text
        assert (at // 4 + words <= memory.size).all(), text
        return at // 4

    def load(self, each: Instruction, base: int, memory: Word) -> None:
        words = each.data_registers
        target, address = each.operands
        assert int(target[1:]) % words == 0
        at = self.places(address, words, base, memory)
        for number in range(words):
            self.put(target, memory[at + number], number)

    def store(self, each: Instruction, base: int, memory: Word) -> None:
        words = each.data_registers
        address, source = each.operands
        assert int(source[1:]) % words == 0
        at = self.places(address, words, base, memory)
        for number in range(words):
            memory[at + number] = self.registers[int(source[1:]) + number]

    def do_lds(self, each: Instruction) -> None:
        self.load(each, SHARED_BASE, self.shared)

    def do_sts(self, each: Instruction) -> None:
        self.store(each, SHARED_BASE, self.shared)

    def do_ldg(self, each: Instruction) -> None:
        self.load(each, GLOBAL_BASE, self.memory)

    def do_stg(self, each: Instruction) -> None:
        assert self.uniform == {4: 0xD, 5: 0xE}, "the descriptor of global memory is missing"
        self.store(each, GLOBAL_BASE, self.memory)

    def do_ffma(self, each: Instruction) -> None:
        target, *sources = each.operands
        a, b, c = (self.value(text).view(np.float32).astype(np.float64) for text in sources)
        self.put(target, (a * b + c).astype(np.float32).view(np.uint32))

    def whole(self, each: Instruction) -> list[NDArray[np.int64]]:
        return [self.value(text).astype(np.int64) for text in each.operands[1:4]]

    def do_iadd3(self, each: Instruction) -> None:
        self.put(each.operands[0], sum(self.whole(each)) & 0xFFFFFFFF)

    def do_imad(self, each: Instruction) -> None:
        a, b, c = self.whole(each)
        if "WIDE" in each.modifiers:
            wide = a * b + self.pair(int(each.operands[3][1:]))
            self.put(each.operands[0], wide >> 32, 1)
            c = wide - a * b
        self.put(each.operands[0], a * b + c & 0xFFFFFFFF)

    def do_lop3(self, each: Instruction) -> None:
        assert each.operands[4] == "0x96"  # odd parity
        a, b, c = self.whole(each)
        self.put(each.operands[0], a ^ b ^ c)

    def do_mov(self, each: Instruction) -> None:
        self.put(each.operands[0], self.value(each.operands[1]))

    def do_isetp(self, each: Instruction) -> None:
        assert each.mnemonic == "ISETP.NE.AND"
        assert each.operands[:2] + each.operands[4:] == ("P0", "PT", "PT")
        self.predicate = self.value(each.operands[2]) != self.value(each.operands[3])

    def do_s2r(self, each: Instruction) -> None:
        assert each.operands[1] == "SR_TID.X"
        self.put(each.operands[0], np.arange(self.threads))

    def do_cs2r(self, each: Instruction) -> None:
        assert each.text.startswith("CS2R.32")
        assert each.operands[1] == "SR_CLOCKLO"
        self.put(each.operands[0], self.steps)

    def constant(self, text: str) -> int:
        return self.constants[int(re.fullmatch(r"c\[0x0\]\[(0x[0-9a-f]+)\]", text)[1], 16)]  # type: ignore[index]

    def do_ldc(self, each: Instruction) -> None:
        value = self.constant(each.operands[1])
        self.put(each.operands[0], value & 0xFFFFFFFF)
        if "64" in each.modifiers:
            self.put(each.operands[0], value >> 32, 1)

    def do_uldc(self, each: Instruction) -> None:
        value = self.constant(each.operands[1])
        number = int(each.operands[0][2:])
        self.uniform = {number: value & 0xFFFFFFFF, number + 1: value >> 32}

    def do_bar(self, each: Instruction) -> None:
        assert each.text == "BAR.SYNC.DEFER_BLOCKING 0x0"

    def do_nop(self, each: Instruction) -> None:
        pass
