"""Write docs/registers.md anew: measured instruction streams beside the simulator, and main loops beside records.

python -m campaigns.register_streams [RAW.jsonl]

RAW.jsonl, what `gemmsim calibrate registers --out RAW.jsonl` leaves on an H200, is first made the shipped records.
Without it the page is of those that are shipped.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gemmsim.compare.loop_shares import LoopShare, loop_shares
from gemmsim.device import device
from gemmsim.main_loops.stream_records import SHIPPED, Judged, judge, read_streams
from gemmsim.record_files import read_records, shipped_records

PAGE = Path(__file__).parent.parent / "docs" / "registers.md"
KEPT = ("name", "code", "stall", "yield_bit", "samples", "environment")
CLOSE = 0.05
"""Error up to which a stream counts as predicted."""

INTRODUCTION = """# Register ports: measured and predicted

Written by `python -m campaigns.register_streams`; the numbers are not edited by hand.

Loops of FFMA, alone and with other instructions between them, were run on an H200 by `gemmsim calibrate registers
--out FILE.jsonl`, with 1, 2, 4 and 8 warps on each of the four sub-cores of a multiprocessor, all of which run the
same loop. Measured are the cycles of a pass of the stream, the loop's own instructions taken off, for each FFMA and
warp. Predicted is the simulation of [registers/](../gemmsim/registers/) with one warp, the other instructions
put in as [port_streams.py](../gemmsim/main_loops/port_streams.py) says and by the numbers of
[register_files.toml](../gemmsim/data/register_files.toml):

* every instruction takes an issue slot, and its registers are read through the same banks, all of a wide operand
  too;
* the reads of whole-number instructions and moves end what the operand cache holds, those of loads and stores do
  not;
* IMAD keeps the pipe of the FFMA for two cycles;
* a shared load whose lanes merge, such as of one address by all lanes, brings two registers a cycle, and each of
  these cycles beyond its issue slot is lost to others;
* the four sub-cores share the banks of shared memory, one wavefront a cycle.

The last column marks errors above 5 % with one warp. Names: *eeo* are FFMA whose sources in slots A, B and C lie in
even, even and odd registers; *holding A* keeps to one register in that slot; *one in 8* is one other instruction
for every eight FFMA of a 4x4 tile in serpentine order, which have no conflicts; *spread* addresses lie lane beside
lane, others are the same in all lanes. The rules were found with all streams in view; the three numbers in them are
those that one half of the streams, by a hash of their names, would choose alone, which a test holds.
"""

LIMITS = """
What misses: a 64-bit load of one address every 32 FFMA costs four cycles, where the same every 16 costs one; a
128-bit one every 8 FFMA costs three. Both are loads whose lanes merge; how their data find a way into the register
file beside the results of the FFMA is not modelled beyond the rule above.
"""

LOOPS = """
## Main loops of compiled kernels

For every kernel and tiling of the shipped records, at the largest problem that was measured with it, shares of the
FFMA peak:

* *no conflicts*: what issue slots alone allow the main loop, as the compiler made it;
* *ports*: with its register reads; this is `register_ports` of `gemmsim predict`;
* *running*: as the warps run it that find room on a sub-core ([sub_core.py](../gemmsim/main_loops/sub_core.py)): with
  stalls, scoreboards, barriers and the banks of shared memory, and the published latencies of
  [latencies.toml](../gemmsim/data/latencies.toml);
* *measured*: the time that the FFMA of the busiest multiprocessor need at peak rate, padding and tail in it, over
  the measured time.

A kernel counts as bound by its FFMA where `register_ports` is the longest term of `gemmsim predict` and the launch
fills the GPU at least {waves} times.

| kernel | tiling | problem | bound by | no conflicts | ports | running | measured | ports off by | running off by |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"""

LOOPS_END = """
*Ports* is the least time: it knows no latency, so the measured share lies below it, and by how much is what waiting
costs. *Running* adds the waiting. None of its numbers was fitted to these records. Two things were chosen with them
at hand: that a sub-core that cannot go on with a warp turns to the one that has waited longest (of four orders that
were tried this and taking turns came closest, at 4.7 points in an early version; the youngest first, as has been
published for sm_86, was off by 7), and that a global load takes the mean of L2's near and far latency.
"""


def shorten(raw: Path) -> None:
    """Make a file of measured streams the shipped one: without what can be derived, and without failures."""
    kept = []
    for line in raw.read_text(encoding="utf-8").splitlines():
        data = json.loads(line)
        if "failure" not in data:
            kept.append(json.dumps({name: data[name] for name in KEPT if name in data}, separators=(",", ":")))
    SHIPPED.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def page() -> str:
    """The text of docs/registers.md."""
    judged = judge(read_streams())
    records, _ = read_records(shipped_records())
    return "\n".join(
        [INTRODUCTION, *summary(judged), *streams(judged), LIMITS, *loops(loop_shares(records, device("h200")))]
    )


def summary(judged: Sequence[Judged]) -> Iterator[str]:
    """How many are predicted, a table."""
    groups = {
        "other instructions between": [each for each in judged if each.record.mixed],
        "of these, half that chose the numbers": [
            each for each in judged if each.record.mixed and not each.record.held_out
        ],
        "of these, the other half": [each for each in judged if each.record.mixed and each.record.held_out],
        "FFMA alone": [each for each in judged if not each.record.mixed and each.record.plain],
    }
    warps = sorted(judged[0].errors)
    yield (
        "| streams | number | mean error | within 5 % with "
        + " | ".join(f"{each} warps" for each in warps).replace("1 warps", "1 warp")
        + " |"
    )
    yield "| --- |" + " ---: |" * (2 + len(warps))
    for name, group in groups.items():
        mean = sum(abs(each.errors[1]) for each in group) / len(group)
        within = []
        for count in warps:
            errors = [abs(each.errors[count]) for each in group if count in each.errors]
            within.append(f"{sum(error <= CLOSE for error in errors)} of {len(errors)}")
        yield f"| {name} | {len(group)} | {100 * mean:.2f} % | " + " | ".join(within) + " |"


def streams(judged: Sequence[Judged]) -> Iterator[str]:
    """Every stream, a row each."""
    warps = sorted(judged[0].errors)
    yield (
        "\n| stream | FFMA | others | predicted | " + " | ".join(f"measured, {each}" for each in warps) + " | error | |"
    )
    yield "| --- |" + " ---: |" * (4 + len(warps)) + " --- |"
    for each in judged:
        body = each.record.body
        measured = [
            f"{each.measured_cycles[count] / body.ffma:.3f}" if count in each.measured_cycles else "" for count in warps
        ]
        error = each.errors[1]
        cells = (
            body.name, f"{body.ffma}", f"{len(body.code) - body.ffma}", f"{each.reports[1].cycles_per_ffma:.3f}",
            *measured, f"{100 * error:+.1f} %", "miss" if abs(error) > CLOSE else "",
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"


def loops(found: Sequence[LoopShare]) -> Iterator[str]:
    """Main loops and records."""
    yield LOOPS.format(waves=LoopShare.LEAST_WAVES)
    for each in found:
        cells = (
            each.kernel, each.tiling, each.problem, "FFMA" if each.ffma_bound else each.bound_by.replace("_", " "),
            *(f"{share:.3f}" for share in (each.ideal, each.ports, each.running, each.measured)),
            *(f"{100 * (share - each.measured):+.1f}" for share in (each.ports, each.running)),
        )  # fmt: skip
        yield f"| {' | '.join(cells)} |"
    groups = {
        "bound by their FFMA": [each for each in found if each.ffma_bound],
        "with a tile for each thread": [each for each in found if each.prediction.kernel.thread_tiled],
    }
    yield "\n| mean absolute error in points | kernels | ports | running |\n| --- | ---: | ---: | ---: |"
    for name, group in groups.items():
        if group:
            ports, running = (
                100 * sum(abs(getattr(each, which) - each.measured) for each in group) / len(group)
                for which in ("ports", "running")
            )
            yield f"| {name} | {len(group)} | {ports:.1f} | {running:.1f} |"
    yield LOOPS_END


def main(words: Sequence[str]) -> None:
    """Write the page, and with a file of measured streams the records first."""
    if words:
        shorten(Path(words[0]))
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main(sys.argv[1:])
