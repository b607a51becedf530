"""The program as tests run it: within the process or as one of its own, on a machine that is made up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import synthetic

from gemmsim import cli
from gemmsim.device import Device, device
from gemmsim.errors import MachineError
from gemmsim.kernels import kernel
from gemmsim.records import Failure, Point, Record
from gemmsim.traffic import traffic

ROOT = Path(__file__).resolve().parent.parent
TEXTBOOK = "2048 --kernel double_buffer --tile 128x128x8 --thread 8x8"
SHARED = "2048 --kernel shared --tile 32x32x32"


@dataclass(frozen=True)
class Result:
    """What one run of the command left."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output, which must be one JSON document."""
        return json.loads(self.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


@pytest.fixture
def gemmsim(capsys) -> Callable[..., Result]:
    """Runs the command within this process; words of one string are separated by blanks."""

    def run(line: str, *more: str) -> Result:
        capsys.readouterr()
        status = cli.main([*line.split(), *more])
        return Result(status, *capsys.readouterr())

    return run


@pytest.fixture
def answer(gemmsim) -> Callable[..., Any]:
    """The JSON document of a command that must succeed and print nothing else."""

    def run(line: str, *more: str) -> Any:
        result = gemmsim(line, *more, "--json")
        assert (result.status, result.err) == (0, "")
        return result.document

    return run


@pytest.fixture
def refusal(gemmsim) -> Callable[..., str]:
    """The one line of a command that must fail with this exit status; nothing on standard output."""

    def run(line: str, *more: str, status: int = 2) -> str:
        result = gemmsim(line, *more)
        assert result.out == ""
        assert result.err.startswith("gemmsim: error: ")
        assert result.err.count("\n") == 1
        assert result.status == status
        message: str = result.err.removeprefix("gemmsim: error: ").rstrip("\n")
        return message

    return run


def process(*words: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """`python -m gemmsim` in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings.pop("environment", {})}
    environment.pop("PYTHONUNBUFFERED", None)  # what is left in a buffer must not fail at the very end
    return subprocess.run(
        [sys.executable, "-m", "gemmsim", *words], text=True, stderr=subprocess.PIPE, env=environment, **settings
    )


class Machine:
    """A GPU that answers as predicted, times 1.25; points of kernel `fails` fail."""

    fails = ""
    lacks = ""

    def __init__(self, as_device: Device | None = None, warn: Callable[[str], None] = print) -> None:
        if self.lacks:
            raise MachineError(self.lacks)
        self.device = as_device or device("h200")

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def prepare(self, points: Sequence[Point], progress: Callable[[int, int], None]) -> list[Failure | None]:
        progress(len(points), len(points))
        return [None] * len(points)

    def count(self, points: Sequence[Point]) -> list[dict[str, int] | Failure]:
        return [traffic(point.problem, kernel(point.kernel), point.tiling).counters for point in points]

    def measure(self, point: Point, flush: bool) -> Record:
        if point.kernel == self.fails:
            return synthetic.failed(point, self.device, "wrong result: C[0, 3] is 1.5 instead of 2.5")
        return synthetic.timed(point, self.device, 1.25, counted=False)

    def environment(self) -> dict[str, Any]:
        return {}


@pytest.fixture
def machine(monkeypatch) -> type[Machine]:
    class Mine(Machine):
        pass

    monkeypatch.setattr("gemmsim.gpu.machine.GpuMachine", Mine)
    monkeypatch.setattr("gemmsim.gpu.register_campaign.measure_bodies", lambda *_: [])
    return Mine


@pytest.fixture
def points(tmp_path) -> Path:
    path = tmp_path / "points.jsonl"
    lines = [
        {"m": 300, "n": 200, "k": 100, "kernel": "naive", "tiling": {}, "color": "red"},
        {"m": 64, "n": 64, "k": 64, "kernel": "shared", "tiling": {"block_m": 16, "block_n": 16, "block_k": 16}},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture
def drawn(monkeypatch) -> list[Any]:
    """What a report was asked for, by a stand-in that draws nothing: the real one takes seconds."""
    seen: list[Any] = []

    def write_report(records: Path | None, out: Path, on: Device | None, warn: Callable[[str], None]) -> list[Path]:
        seen.append((records, out, on and on.name))
        return [out / "index.html", out / "reads.svg"]

    monkeypatch.setattr("gemmsim.report.write_report", write_report)
    return seen


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("records") / "records.jsonl", synthetic.campaign())
