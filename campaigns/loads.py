"""Write down how the loops of the shipped programs wait for their global loads.

python -m campaigns.loads

Needs neither a compiler nor a GPU, and some seconds. Run it whenever `campaigns.programs` has written programs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gemmsim.analytic.load_schedules import COLUMNS, SHIPPED, UNKNOWN, schedule_of
from gemmsim.device import device
from gemmsim.kernels import kernel
from gemmsim.pipeline import programs
from gemmsim.pipeline.program import Program
from gemmsim.register_table import Row, write_table
from gemmsim.tiling import FIELDS, Tiling

DEVICE = "h200"
DIGITS = 3


def rows(of: Iterable[programs.Row], capability: str) -> Iterator[Row]:
    """The schedules of kernels that stage tiles in registers."""
    for each in of:
        if not kernel(each.kernel).staged:
            continue
        tiling = Tiling.unchecked(**{name: each.macros.get(name.upper(), 1) for name in FIELDS})
        found = schedule_of(Program.from_dict(dict(each.program)), tiling)
        if found is not UNKNOWN:
            loads = {capability: (round(found.batches, DIGITS), round(found.exposed, DIGITS))}
            yield Row(each.kernel, each.macros, sources=each.sources, loads=loads)


def main() -> None:
    """Read the programs, write the table."""
    capability = device(DEVICE).capability
    found = list(rows(programs.read_rows(programs.shipped_file(capability.sm)), capability.name))
    write_table(SHIPPED, found, COLUMNS)
    print(f"{len(found)} rows: {SHIPPED}")


if __name__ == "__main__":
    main()
