"""Campaigns of microbenchmarks: body after body, each record on disk at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gemmsim.errors import InputError, MachineError, Warn, one_line
from gemmsim.gpu.environment import software
from gemmsim.gpu.register_bench import WARPS_PER_SUB_CORE, Bench, Samples, looped_cycles, self_check, steady_cycles
from gemmsim.gpu.session import Gpu
from gemmsim.machine_code.loop_bodies import LoopBody
from gemmsim.record_files import writing

Tell = Callable[[str, int, int], None]
"""What to tell of the work: (phase, done, of how many)."""


def measure_bodies(
    bodies: Sequence[LoopBody],
    out: str | Path,
    done: Iterable[Mapping[str, Any]] = (),
    tell: Tell = lambda phase, done, of: None,
    warn: Warn = lambda text: None,
) -> list[dict[str, Any]]:
    """The records of the bodies, each appended to `out` as soon as it is there; those among `done` are not run again.

    A body that breaks the context becomes a record with a `failure`, and the next gets a new context. Raises
    MachineError without a GPU, or another GPU than sm_90, or where the self-check fails.
    """
    kept = {_key(each): dict(each) for each in done if "failure" not in each}
    records = {_key(body.to_dict()): kept.get(_key(body.to_dict())) for body in bodies}
    waiting = [body for body in bodies if records[_key(body.to_dict())] is None]
    checked = False
    while waiting:
        with Gpu() as gpu, Bench(gpu) as bench:
            environment = software(gpu.facts)
            if not checked:
                _check(bench, gpu, bodies, tell)
                checked = True
            while waiting:
                body = waiting.pop(0)
                found = _measured(bench, gpu, body, environment)
                if "failure" in found:
                    warn(f"{body.name}: {found['failure']}")
                records[_key(body.to_dict())] = found
                append(out, found)
                tell("measured", len(bodies) - len(waiting), len(bodies))
                if not gpu.alive():
                    break
    return [each for each in records.values() if each is not None]


def _check(bench: Bench, gpu: Gpu, bodies: Sequence[LoopBody], tell: Tell) -> None:
    """Tell what the self-check says; MachineError where it fails or does not run."""
    try:
        for line in self_check(bench, checks(bodies)):
            tell(f"checked {line}", 1, 1)
    except gpu.driver.Error as error:
        raise MachineError(f"the self-check of the microbenchmarks does not run: {one_line(error)}") from None


def checks(bodies: Sequence[LoopBody]) -> list[LoopBody]:
    """Bodies whose results can be held against paper: accumulators that are read long after they were written.

    Of these the first few, and the first with each opcode.
    """
    good = [body for body in bodies if set(body.stalls) == {1} and _settled(body)]
    chosen: dict[str, LoopBody] = {body.name: body for body in good[:3]}
    seen = {instruction.mnemonic for body in chosen.values() for instruction in body.instructions}
    for body in good:
        if {instruction.mnemonic for instruction in body.instructions} - seen:
            seen |= {instruction.mnemonic for instruction in body.instructions}
            chosen[body.name] = body
    return list(chosen.values())


def _settled(body: LoopBody, least: int = 6) -> bool:
    """Whether no register is read, or written by another kind, sooner than `least` instructions after its writing."""
    code = body.instructions * 2
    for number, instruction in enumerate(code):
        recent = {register for each in code[max(0, number - least) : number] for register in each.writes}
        if any(recent & set(range(read.first, read.first + read.registers)) for read in instruction.reads):
            return False
        if instruction.kind not in ("ffma", "shared_load", "global_load") and recent & set(instruction.writes):
            return False
    return True


def _measured(bench: Bench, gpu: Gpu, body: LoopBody, environment: Mapping[str, Any]) -> dict[str, Any]:
    try:
        found = {warps: bench.time(body, warps) for warps in WARPS_PER_SUB_CORE}
    except (InputError, MachineError) as error:
        return body.to_dict() | {"failure": str(error), "environment": dict(environment)}
    except gpu.driver.Error as error:
        return body.to_dict() | {"failure": f"launch failed: {one_line(error)}", "environment": dict(environment)}
    timed = {warps: samples for warps, samples in found.items() if samples is not None}
    return record(body, timed, environment)


def read_done(path: str | Path) -> list[dict[str, Any]]:
    """The records of a file so far; a damaged line, such as the last of an interrupted run, is skipped."""
    try:
        lines = Path(path).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}") from None
    found = []
    for line in lines:
        try:
            data = json.loads(line)
        except ValueError:
            continue
        if isinstance(data, dict) and "code" in data:
            found.append(data)
    return found


def append(path: str | Path, found: Mapping[str, Any]) -> None:
    """Add one record; InputError or MachineError when the path cannot be written."""
    with writing(path), open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(found, separators=(",", ":")) + "\n")


def _key(data: Mapping[str, Any]) -> str:
    """What tells one measurement from another: the instructions and how they are issued."""
    return json.dumps([data.get("code"), data.get("stall"), data.get("yield_bit")])


def record(body: LoopBody, by_warps: Mapping[int, Samples], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What is written of a body that was measured. Per FFMA and warp, all of the period's instructions in it:

    cycles_per_ffma                   with one warp a sub-core
    steady_cycles_per_ffma_by_warps   the same with each number of warps
    cycles_per_ffma_by_warps          with the loop's own instructions in it too, and so larger
    """
    steady = {str(warps): round(steady_cycles(each, body.ffma, warps), 5) for warps, each in by_warps.items()}
    looped = {str(warps): round(looped_cycles(each, body.ffma, warps), 5) for warps, each in by_warps.items()}
    raw = {
        str(warps): [{"copies": key[0], "trips": key[1], "cycles": cycles} for key, cycles in each.items()]
        for warps, each in by_warps.items()
    }
    return body.to_dict() | {
        "period_ffma": body.ffma,
        "cycles_per_ffma": steady.get("1"),
        "steady_cycles_per_ffma_by_warps": steady,
        "cycles_per_ffma_by_warps": looped,
        "samples": raw,
        "environment": dict(environment),
    }
