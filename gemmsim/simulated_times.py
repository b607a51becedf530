"""Simulated times that are kept: in this process, and of the shipped records in a file.

A simulation takes up to a second, and the shipped records are many. `campaigns/accuracy.py` writes the file. A time is
found by a hash of all that the simulation is given, and the file holds for the code that it carries the hash of: what
has changed is simulated anew.
"""

from __future__ import annotations

import io
import json
import tokenize
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from gemmsim.calibration import Calibration
from gemmsim.device import DATA, Device
from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling

if TYPE_CHECKING:
    from gemmsim.pipeline.program import Program

SHIPPED = DATA / "simulated_times.json"
CODE = ("pipeline", "caches")
NOT_ITS_CODE = ("programs.py", "described.py", "writer.py", "timeline.py", "trace.py")
"""The packages whose modules decide what a simulation gives; those of them that do not: a program goes in as such."""
HEX_DIGITS = 16
DIGITS = 6
"""Digits of a time that are kept: a millionth, where the simulation is right within some per cent."""


def simulated_s(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    program: Program,
    blocks_per_sm: int,
    known: Calibration,
) -> float:
    """Seconds of a launch as `pipeline.launch.simulate_launch` gives them, looked up where they are known."""
    key = key_of(problem, kernel, tiling, device, program, blocks_per_sm, known)
    times = _times()
    if key not in times:
        from gemmsim.pipeline.launch import simulate_launch  # what is kept needs no simulation

        found = simulate_launch(problem, kernel, tiling, device, program, blocks_per_sm, known)
        times[key] = float(f"{found.time_s:.{DIGITS}g}")
    return times[key]


def key_of(
    problem: Problem,
    kernel: Kernel,
    tiling: Tiling,
    device: Device,
    program: Program,
    blocks_per_sm: int,
    known: Calibration,
) -> str:
    """A hash of what decides a simulation: the launch, the program, and the numbers of the device."""
    launch = (str(problem), kernel.name, sorted(kernel.tiling_dict(tiling).items()), blocks_per_sm)
    machine = _numbers(device), sorted(known.numbers.items())
    return _digest(repr((launch, _digest_of_program(program), machine)))


def read_times(path: Path = SHIPPED, of_other_code: bool = False) -> dict[str, float]:
    """The times of a file; none where there is no file, or it is of other code and those are not asked for. Raises
    InputError for another kind of file."""
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        times = {str(key): float(time_s) for key, time_s in content["times"].items()}
        return times if of_other_code or content["code"] == code() else {}
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise InputError(f"{path}: not a file of simulated times ({error}); campaigns/accuracy.py writes it") from None


def write_times(times: Mapping[str, float], path: Path = SHIPPED) -> None:
    """Write one time a line, ordered, so that a change shows as one."""
    content = {"code": code(), "times": dict(sorted(times.items()))}
    path.write_text(json.dumps(content, indent=0) + "\n", encoding="utf-8")


@cache
def code() -> str:
    """A hash of the modules that simulate, but for their comments, docstrings and layout."""
    modules = sorted(path for part in CODE for path in (Path(__file__).parent / part).glob("*.py"))
    texts = [path.read_text(encoding="utf-8") for path in modules if path.name not in NOT_ITS_CODE]
    return _digest("\n".join(map(_essence, texts)))


def _essence(source: str) -> str:
    """The tokens of a module that decide what it does, one after the other."""
    kept, begins = [], True
    layout = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.NL):
            continue
        if token.type not in layout and not (begins and token.type == tokenize.STRING):  # that is a docstring
            kept.append(token.string)
        begins = token.type in layout
    return "".join(kept)


def forget() -> None:
    """Read the file anew when it is asked for next."""
    _times.cache_clear()


@cache
def _times() -> dict[str, float]:
    """All that is known in this process; grows."""
    return read_times()


@cache
def _digest_of_program(program: Program) -> str:
    return _digest(repr(program))


@cache
def _numbers(device: Device) -> tuple[tuple[str, float], ...]:
    """The numbers of a device, whoever says them, and those of its capability."""
    of = {**vars(device.capability), **vars(device)}
    return tuple(sorted((name, value) for name, value in of.items() if isinstance(value, int | float)))


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:HEX_DIGITS]
