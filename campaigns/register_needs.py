"""Fit the coefficients of `gemmsim/kernels/registers.py`; prints how far off they are.

python -m campaigns.register_needs             as they are
python -m campaigns.register_needs --write     fits them; writes gemmsim/data/register_needs.toml

Fitted to the kernels of shipped records that are not held out. Registers that a launch does not have count as words of
local memory; a thread that has all that its block allows, and no such words, needed anything up to that: it is left
out. Coefficients are not negative. Errors are relative; large ones weigh less; tilings that somebody chose weigh as
much together as those drawn at random.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from campaigns.accuracy import DEVICE, records
from gemmsim.device import Device, device
from gemmsim.held_out import held_out
from gemmsim.kernels import KERNELS, MOST_REGISTERS, REGISTER_BYTES, most_registers
from gemmsim.kernels import kernel as kernel_named
from gemmsim.kernels.registers import FILE, held, needs
from gemmsim.register_table import key_of
from gemmsim.units import percent

LEAST, TOLERATED = 60, 0.6
"""Registers below which errors count as if there were so many; a relative error from which on they weigh less."""
PASSES, SWEEPS = 6, 2000
SOURCE = """# Registers of a thread for what it holds (gemmsim/kernels/registers.py says what that is).
# Written by `python -m campaigns.register_needs --write`, from what nvcc 13.0 made of kernels for sm_90.
"""

Row = tuple[dict[str, float], float, bool, bool]
"""What a thread holds, the registers it needs, whether it has all of them, and whether somebody chose the tiling."""


def rows(on: Device) -> dict[str, list[Row]]:
    """The rows of each kernel, one for each compilation."""
    found: dict[str, dict[Any, Row]] = {name: {} for name in KERNELS}
    for campaign, record in records(on, own=True):
        point = record.point
        if held_out(point) or record.resources is None:
            continue
        kernel, tiling = kernel_named(point.kernel), point.tiling
        widths = kernel.widths(point.problem, tiling)
        registers, words = record.resources["registers_per_thread"], record.resources["local_bytes"] // REGISTER_BYTES
        if words or registers < min(MOST_REGISTERS, int(most_registers(tiling))) - 7:
            holds = {name: float(amount) for name, amount in held(kernel, tiling, widths).items()}
            key = key_of(kernel.name, kernel.macros(point.problem, tiling))
            found[kernel.name][key] = holds, float(registers + words), not words, campaign != "random"
    return {name: list(of.values()) for name, of in found.items()}


def fitted(of: Sequence[Row]) -> dict[str, float]:
    """Coefficients that are not negative with the least squares of relative errors, by coordinate descent."""
    names = [name for name in of[0][0] if any(row[0][name] for row in of)]
    matrix = np.array([[row[0][name] for name in names] for row in of])
    needed, picked = (np.array([row[column] for row in of]) for column in (1, 3))
    least = np.where(picked, np.sqrt(max(1, (~picked).sum()) / max(1, picked.sum())), 1) / np.maximum(needed, LEAST)
    weights, found = least, np.zeros(len(names))
    for _ in range(PASSES):
        square, product = (matrix * weights[:, None] ** 2).T @ matrix, (matrix * weights[:, None] ** 2).T @ needed
        for _ in range(SWEEPS):
            for each in range(len(names)):
                step = (product[each] - square[each] @ found) / square[each, each]
                found[each] = max(0.0, found[each] + step)
        errors = np.abs(matrix @ found - needed) / np.maximum(needed, LEAST)
        weights = least / np.sqrt(1 + (errors / TOLERATED) ** 2)
    return {name: round(float(value), 3) for name, value in zip(names, found, strict=True) if value > 0.0005}


def table(on: Device) -> Iterator[str]:
    """The errors of the present coefficients as lines."""
    for name, of in rows(on).items():
        coefficients = needs()[name]
        estimated = [sum(coefficients.get(what, 0) * amount for what, amount in row[0].items()) for row in of]
        needed, whole = (np.array([row[column] for row in of]) for column in (1, 2))
        errors = np.abs(estimated / needed - 1)
        spilled = f"; {(~whole).sum()} that spill {percent(float(errors[~whole].mean()))}" if not whole.all() else ""
        yield f"{name}: {whole.sum()} kernels are {percent(float(errors[whole].mean()))} off{spilled}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status 0."""
    parser = argparse.ArgumentParser(prog="campaigns.register_needs", description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--write", action="store_true", help="fit and write")
    asked = parser.parse_args(arguments)
    on = device(DEVICE)
    if asked.write:
        text = SOURCE
        for name, of in rows(on).items():
            lines = (f"{what} = {value:g}\n" for what, value in fitted(of).items())
            text += f"\n[{name}]\n{''.join(lines)}"
        FILE.write_text(text, encoding="utf-8")
        needs.cache_clear()
    print("\n".join(table(on)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
