"""What the instructions of sm_70 and later read and write in the register file, as a table.

Each row: a kind, the registers that are written (`d` one, `D` two, `m` as many as the access is wide, `-` none),
the slot of each source in the order of the text (small: one register, capital: two, `m`: slot B, as many as the
access is wide), and the opcodes. A source in slot A stands in bits 24-31 of the instruction word, one in B in bits
32-39, or in 64-71 where a constant takes its place, one in C in bits 64-71; D is where results are named, bits 16-23.
The tests hold the table against the words of compiled instructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "ffma", "float", "double", "integer", "move", "convert", "shared_load", "shared_store", "global_load",
    "global_store", "global_copy", "atomic", "local", "constant", "special", "uniform", "control", "barrier",
]  # fmt: skip

_ROWS = """
ffma          d abc  FFMA
float         d ab   FADD FMUL FMNMX FSEL HADD2 HMUL2
float         d abc  HFMA2
float         - ab   FSETP
double        D ABC  DFMA
double        D AC   DADD
double        D AB   DMUL
double        - AB   DSETP
integer       d abc  IADD3 IMAD LOP3 SHF LEA PRMT IDP VABSDIFF VIADDMNMX
integer       d ab   IADD VIADD VIMNMX IMNMX SEL
integer       d b    FLO POPC BREV IABS
integer       - ab   ISETP
move          d b    MOV
special       d b    MUFU
special       d abc  SHFL
special       d -    S2R P2R VOTE B2R
special       D -    CS2R
special       d a    R2UR
special       - a    R2P
special       - -    PLOP3 R2B
convert       d b    F2I I2F I2FP F2F I2I FRND
convert       d ab   F2FP
constant      m a    LDC
shared_load   m a    LDS
shared_store  - am   STS
global_load   m a    LDG LD
global_store  - am   STG ST
global_copy   - da   LDGSTS
atomic        m amc  ATOMG ATOMS ATOM
atomic        - am   RED REDG
local         m a    LDL
local         - am   STL
control       - -    BRA EXIT BSSY BSYNC BREAK CALL NOP WARPSYNC YIELD BPT KILL NANOSLEEP BMOV
control       - A    RET
barrier       - -    BAR MEMBAR ERRBAR DEPBAR LDGDEPBAR
uniform       - -    S2UR ULDC LDCU UMOV UIADD3 UIMAD ULEA ULOP3 USHF UISETP UPLOP3 USEL UPRMT UP2UR UR2UP UFLO UPOPC
uniform       - -    VOTEU UI2F UF2I UIADD UVIADD UCS2R USGXT UBMSK UIMNMX UVIMNMX UBREV UIABS UI2FP UF2FP
"""


@dataclass(frozen=True)
class Opcode:
    """One row for one opcode: its kind, the registers written, the slots of its sources."""

    kind: Kind
    destination: str
    sources: str


def _table() -> dict[str, Opcode]:
    table: dict[str, Opcode] = {}
    for row in _ROWS.split("\n"):
        if row:
            kind, destination, sources, *names = row.split()
            opcode = Opcode(kind, "" if destination == "-" else destination, sources.strip("-"))  # type: ignore[arg-type]
            table |= dict.fromkeys(names, opcode)
    return table


OPCODES: Mapping[str, Opcode] = _table()
"""{opcode without modifiers: its row}."""
