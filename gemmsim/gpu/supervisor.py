"""Starts the process that touches the GPU, asks it for records, and starts another when it breaks or hangs."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import gemmsim
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.compile import cache_folder
from gemmsim.gpu.session import GpuFacts
from gemmsim.records import Failure, Point, Record

WORKER = (sys.executable, "-m", "gemmsim.gpu.worker")
START_TIMEOUT_S = 120
POINT_TIMEOUT_S = 300
KILL_TIMEOUT_S = 10
"""A killed process may hang in the driver for good; it is left behind then."""


def worker_environment() -> dict[str, str]:
    """This process's environment, with its cubins, and the package importable also where it is not installed."""
    root = str(Path(gemmsim.__file__).parents[1])
    paths = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if "site-packages" not in root and root not in paths:
        paths.append(root)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONUNBUFFERED": "1",
        "GEMMSIM_CACHE": str(cache_folder()),
    }


def end(process: subprocess.Popen[Any], patience_s: float = 0) -> None:
    """See a process ended that leads a group of its own, and all that it started: killed after `patience_s`,
    and given up after KILL_TIMEOUT_S more."""
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        if hasattr(os, "killpg"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(KILL_TIMEOUT_S)


class Supervisor:
    """`with Supervisor() as workers:` measures points in a process of their own, restarted as needed."""

    def __init__(self, timeout_s: float = POINT_TIMEOUT_S) -> None:
        self.timeout_s = timeout_s
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.Queue[str | None] = queue.Queue()
        self._errors: IO[bytes] | None = None
        self._facts: GpuFacts | None = None

    def __enter__(self) -> Supervisor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def facts(self) -> GpuFacts:
        """What the driver says of the GPU. Raises MachineError where none can be used."""
        if self._facts is None:
            self._start()
        assert self._facts is not None
        return self._facts

    def measure(self, point: Point, device_name: str, flush: bool, environment: Mapping[str, Any]) -> Record:
        """The record of one point; a failed one, with `environment`, when the process dies, takes too long or
        answers without a record.

        Raises MachineError where no process can be started.
        """
        answer = self._ask({"point": point.to_dict(), "device": device_name, "flush": flush})
        if isinstance(answer, Record):
            return answer
        return Record.failed(point, device_name, answer, environment)

    def close(self, patience_s: float = 10) -> None:
        """End the process, if there is one; its memory on the GPU is free again."""
        process, self._process = self._process, None
        if process is not None:
            assert process.stdin is not None
            with contextlib.suppress(OSError):
                process.stdin.close()  # the end of its input ends it
            end(process, patience_s)
        if self._errors is not None:
            self._errors.close()
            self._errors = None

    def _ask(self, request: dict[str, Any]) -> Record | Failure:
        process = self._process or self._start()
        assert process.stdin is not None
        try:
            with contextlib.suppress(OSError):  # a process that has died answers with the end of its output
                process.stdin.write(json.dumps(request) + "\n")
                process.stdin.flush()
            answer = self._answer(self.timeout_s)
        except queue.Empty:
            self.close(patience_s=0)
            return Failure(f"timeout: no result within {self.timeout_s:g} s")
        except BaseException:
            self.close(patience_s=0)
            raise
        if answer is None:
            failure = Failure(f"launch failed: the process on the GPU died: {self._last_words()}")
            self.close()
            return failure
        if not answer.get("usable"):
            self.close()
        if "record" not in answer:
            return Failure(str(answer.get("error", "the process on the GPU gave no record")))
        try:
            return Record.from_dict(answer["record"])
        except InputError as error:
            return Failure(f"the process on the GPU gave no usable record: {error}")

    def _start(self) -> subprocess.Popen[str]:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        process = subprocess.Popen(
            [*WORKER, "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=worker_environment(),
            start_new_session=True,  # so that Ctrl-C reaches this process alone, which then ends that one
        )
        self._process, self._answers = process, queue.Queue()
        threading.Thread(target=_pump, args=(process, self._answers), daemon=True).start()
        try:
            greeting = self._answer(START_TIMEOUT_S)
        except queue.Empty:
            self.close(patience_s=0)
            raise MachineError(f"the GPU did not answer within {START_TIMEOUT_S} s") from None
        except BaseException:
            self.close(patience_s=0)
            raise
        if greeting is None or "gpu" not in greeting:
            said = greeting.get("error") if greeting else None
            reason = said or f"the process on the GPU does not start: {self._last_words()}"
            self.close()
            raise MachineError(reason)
        self._facts = GpuFacts(**greeting["gpu"])
        return process

    def _answer(self, timeout_s: float) -> dict[str, Any] | None:
        """The next JSON object that the process prints, None at its end. Raises queue.Empty when it is late.

        Other lines are noise: of libraries, or the beginning of an answer at which the process died.
        """
        while True:
            line = self._answers.get(timeout=timeout_s)
            if line is None:
                return None
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                if isinstance(found, dict):
                    return found

    def _last_words(self) -> str:
        """The last line on the standard error of the process."""
        assert self._errors is not None
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._errors.seek(0)
        lines = self._errors.read()[-10_000:].decode(errors="replace").split("\n")
        said = [line.strip() for line in lines if line.strip()]
        return said[-1] if said else f"exit status {self._process.returncode}"


def _pump(process: subprocess.Popen[str], answers: queue.Queue[str | None]) -> None:
    """Carry the lines of the process's output into a queue, which can be waited for with a limit."""
    assert process.stdout is not None
    with process.stdout as output:
        for line in output:
            answers.put(line)
    answers.put(None)
