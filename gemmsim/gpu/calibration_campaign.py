"""A calibration: part after part, each on disk at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from gemmsim.calibration import Calibration
from gemmsim.calibration.files import CalibrationFile, Entry, read_calibration_file, write_calibration_file
from gemmsim.device import device
from gemmsim.errors import GemmsimError, InputError, Warn, one_line
from gemmsim.gpu.calibrate import PARTS, warm_up
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.microbenchmarks import Bench
from gemmsim.gpu.paired_runs import Findings
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.toolchain import nvcc

Tell = Callable[[str, int, int], None]
"""What to tell of the work: (phase, done, of how many)."""


def calibrate(
    parts: Sequence[str],
    out: str | Path,
    resume: bool = False,
    tell: Tell = lambda phase, done, of: None,
    warn: Warn = lambda text: None,
) -> tuple[CalibrationFile, dict[str, str]]:
    """(the file as it is written, {part: why it failed}) after measuring these parts of the GPU here.

    The file is written anew after each part, and keeps what other parts have measured. With `resume`, parts that it
    holds already are not measured again. A part that fails is told to `warn`; each part has a context of its own.
    Raises MachineError without a GPU or a compiler, InputError for a file of another GPU.
    """
    failures: dict[str, str] = {}
    environment: dict[str, Any] = {}
    content = read_calibration_file(out) if Path(out).exists() else None
    for number, part in enumerate(parts, 1):
        if not (resume and content and part in content.parts):
            with Gpu() as gpu, Bench(gpu) as bench:
                content = _file_of(out, content, device_name(gpu.facts.title))
                environment = environment or software(gpu.facts, str(nvcc()))
                start = time.perf_counter()
                try:
                    if "driver" not in environment:
                        environment |= under_load(gpu.facts, partial(warm_up, bench))
                    warm_up(bench)
                    entries = entries_of(PARTS[part](bench), part, environment)
                    Calibration(content.device, **{key: entry.value for key, entry in entries.items()})  # type: ignore[arg-type]
                except (GemmsimError, gpu.driver.Error) as error:
                    failures[part] = one_line(error)
                    warn(f"{part}: {failures[part]}")
                    continue
                record = {
                    "seconds": round(time.perf_counter() - start, 3),
                    "environment": environment,
                    "read": bench.raw,
                }
                content = content.with_part(part, entries, record)
                write_calibration_file(out, content)
        tell(f"calibrated {part}", number, len(parts))
    assert content is not None, "there is one part at least"
    return content, failures


def _file_of(out: str | Path, content: CalibrationFile | None, name: str) -> CalibrationFile:
    """The file to go on with: what is there, or a new one; InputError where it is another GPU's."""
    if content is not None and content.device != name:
        raise InputError(f"{out} is the calibration of {content.device}, and the GPU here is {name}; give another file")
    return content or CalibrationFile(name)


def device_name(title: str) -> str:
    """The name of a GPU that the driver calls so: that of its device file, else made of the title."""
    try:
        return device(title).name
    except InputError:
        return re.sub(r"[^a-z0-9]+", "-", title.lower().removeprefix("nvidia ")).strip("-")


def entries_of(findings: Findings, part: str, environment: Mapping[str, Any]) -> dict[str, Entry]:
    """The numbers of a part, each with where it is from."""
    where = ", ".join(
        f"{label} {environment[key]}".strip()
        for key, label in (("gpu", ""), ("driver", "driver"), ("cuda", "CUDA"), ("compiler", ""), ("time", ""))
        if environment.get(key)
    )
    return {
        name: Entry(
            rounded(found.value),
            f"gemmsim calibrate, part {part}, {where}: {found.how}; median of {len(found.samples)}",
            samples=tuple(map(rounded, found.samples)),
        )
        for name, found in findings.items()
    }


def rounded(value: float) -> float:
    """The number with seven digits: more than any of them is good for."""
    return float(f"{value:.7g}")
