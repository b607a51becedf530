"""Random loops of FFMA with loads, stores, whole-number instructions and barriers between, as compilers schedule them:
in order, each as soon as it may, with the stalls and scoreboards that it needs.

It takes nothing from gemmsim.rearrange.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from random import Random

from gemmsim.machine_code.encoding import NO_BARRIER, Control, encode
from gemmsim.machine_code.sass import Function, Instruction

ADDRESSES = (2, 3)
FRAGMENTS = range(8, 24)
SUMS = range(24, 48)
CYCLES = {"FFMA": 4, "IADD3": 6, "MOV": 6}
BOARDS = 6
SET_CYCLES = 2
"""Cycles until a wait finds a scoreboard set."""
LAST_STALL = 8


@dataclass
class Scheduler:
    """What is under way, as a simple compiler follows it: register by register."""

    ready: dict[int, int] = field(default_factory=dict)
    loads: dict[int, set[int]] = field(default_factory=dict)
    reads: dict[int, set[int]] = field(default_factory=dict)
    boards_set: dict[int, int] = field(default_factory=dict)
    now: int = 0

    def place(self, each: Instruction, control: Control, before: Control | None) -> tuple[Control, Control | None]:
        """The control of an instruction, and of the one before it, so that it waits for what it needs."""
        reads = {read.first + number for read in each.reads for number in range(read.registers)}
        writes = set(each.writes)
        queued = each.opcode in ("LDS", "STS")
        boards: set[int] = set()
        for register in reads | writes:
            boards |= self.loads.get(register, set())
        for register in writes if not queued else ():
            boards |= self.reads.get(register, set())
        for waited in (self.loads, self.reads):
            for register in [known for known, of in waited.items() if of & boards]:
                del waited[register]
        needed = [self.ready.get(register, 0) for register in reads | writes]
        late = max(needed + [self.boards_set.get(board, 0) for board in boards], default=0) - self.now
        if late > 0 and before is not None:
            before = replace(before, stall=before.stall + late)
            self.now += late
        if each.opcode in CYCLES:
            self.ready |= dict.fromkeys(writes, self.now + CYCLES[each.opcode])
        for board in (control.write_barrier, control.read_barrier):
            self.boards_set[board] = self.now + SET_CYCLES
        if control.write_barrier != NO_BARRIER:
            for register in writes:
                self.loads[register] = {control.write_barrier}
        if control.read_barrier != NO_BARRIER:
            for register in reads:
                self.reads.setdefault(register, set()).add(control.read_barrier)
        self.now += control.stall
        return replace(control, wait_mask=sum(1 << board for board in boards)), before


def function(random: Random, ffma: int = 24) -> tuple[Function, range]:
    """A function with a loop, and the numbers of the loop's instructions."""
    body = [_any(random) for _ in range(ffma + random.randrange(ffma // 2))]
    prologue = [_load(random) for _ in range(random.randrange(3))] + [("NOP", Control(stall=LAST_STALL))]
    epilogue = [(f"STS [R2+{0x40 * number:#x}], R{register}", Control(read_barrier=5)) for number, register in
                enumerate(random.sample(list(SUMS), 4))]  # fmt: skip
    loop = range(len(prologue), len(prologue) + len(body) + 1)
    branch = (f"BRA {16 * loop.start:#x}", Control(stall=LAST_STALL))
    texts = [*prologue, *body, branch, *epilogue, ("EXIT", Control(stall=5))]
    code = [_instruction(number, text, control) for number, (text, control) in enumerate(texts)]
    controls = [each.control for each in code]
    scheduler = Scheduler()
    order = [*range(loop.stop), *loop, *range(loop.start, len(code))]
    for number in order:  # once round the loop and again, so that what is left under way at its end is waited for
        before = number - 1 if number not in (0, loop.start) else None
        wanted, earlier = scheduler.place(
            code[number], controls[number], controls[before] if before is not None else None
        )
        mask = wanted.wait_mask | controls[number].wait_mask
        controls[number] = replace(wanted, wait_mask=mask)
        if before is not None and earlier is not None:
            controls[before] = earlier
    made = [_instruction(number, each.text, controls[number], each.guard) for number, each in enumerate(code)]
    return Function("f", "sm_90", tuple(made)), loop


def _instruction(number: int, text: str, control: Control, guard: str = "") -> Instruction:
    if text.startswith("BRA"):
        guard = "P0"
    word = encode((f"@{guard} " if guard else "") + text, control, 16 * number)
    target = int(text.split()[1], 16) if text.startswith("BRA") else None
    return Instruction(16 * number, re.sub(r"^@\S+ ", "", text), guard, word, target)


def _any(random: Random) -> tuple[str, Control]:
    kind = random.choices(("ffma", "load", "store", "whole", "move", "barrier"), (70, 14, 5, 5, 4, 2))[0]
    match kind:
        case "ffma":
            target, addend = random.choice(SUMS), random.choice(SUMS)
            if random.random() < 0.8:
                addend = target
            if random.random() < 0.05:
                target = random.choice(FRAGMENTS)
            a, b = random.choice(FRAGMENTS), random.choice(FRAGMENTS)
            return f"FFMA R{target}, R{a}, R{b}, R{addend}", Control()
        case "load":
            return _load(random)
        case "store":
            source = random.choice([*SUMS, *FRAGMENTS])
            return f"STS [R{random.choice(ADDRESSES)}+{16 * random.randrange(64):#x}], R{source}", Control(
                read_barrier=random.randrange(4, BOARDS)
            )
        case "whole":
            target = random.choice([*ADDRESSES, random.choice(FRAGMENTS)])
            return f"IADD3 R{target}, R{random.choice(FRAGMENTS)}, 0x{random.randrange(1, 64):x}, RZ", Control()
        case "move":
            return f"MOV R{random.choice(FRAGMENTS)}, R{random.choice([*SUMS, *FRAGMENTS])}", Control()
    return "BAR.SYNC.DEFER_BLOCKING 0x0", Control(stall=4)


def _load(random: Random) -> tuple[str, Control]:
    words = random.choice((1, 2, 4, 4))
    suffix = "" if words == 1 else f".{32 * words}"
    first = random.randrange(FRAGMENTS.start, FRAGMENTS.stop, words)
    text = f"LDS{suffix} R{first}, [R{random.choice(ADDRESSES)}+{16 * random.randrange(64):#x}]"
    return text, Control(write_barrier=random.randrange(4))
