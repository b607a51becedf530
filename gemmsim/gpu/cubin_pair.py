"""Two cubins of one kernel on the same operands: whether both leave the same bits, and how long each takes.

`python -m gemmsim.gpu.cubin_pair --serve` answers requests on standard input, one JSON object a line, in a process of
its own, since machine code that was changed by hand may break the context; `compared` starts it, and another one where
it breaks or hangs.
"""

from __future__ import annotations

import json
import queue
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.errors import GemmsimError, MachineError
from gemmsim.gpu.compile import Cubin
from gemmsim.gpu.cublas import Cublas
from gemmsim.gpu.environment import software, under_load
from gemmsim.gpu.run import Buffers, Launcher, PointError, flusher, load, point_failures
from gemmsim.gpu.session import Gpu
from gemmsim.gpu.supervisor import end, worker_environment
from gemmsim.gpu.verify import fresh_seed, random_operands, verify
from gemmsim.gpu.versus import in_turn
from gemmsim.gpu.worker import leave
from gemmsim.kernels import kernel as kernel_named
from gemmsim.records import Point

VERIFIED_FLOP = 1e9
"""Up to here the result is held against float64 too, beside the other cubin's."""
WORKER = (sys.executable, "-m", "gemmsim.gpu.cubin_pair", "--serve")
TIMEOUT_S = 120
DIED = "the process that ran it died"
MOST_RESTARTS = 5


@dataclass(frozen=True)
class Request:
    """The point to run with both cubins; `timed` or only compared, with cuBLAS beside them or not. `rivals` are further
    cubins, timed in the same rounds."""

    point: Point
    before: str
    after: str
    timed: bool = False
    cublas: bool = False
    rivals: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The request in one line."""
        return json.dumps({**asdict(self), "point": self.point.to_dict()})

    @classmethod
    def from_json(cls, line: str) -> Request:
        """The request of such a line."""
        values = json.loads(line)
        return cls(**{**values, "point": Point.from_dict(values["point"]), "rivals": tuple(values["rivals"])})


@dataclass(frozen=True)
class Compared:
    """What came of a request: elements of C, guard bands among them, that are not the same bits; samples of each cubin,
    of its rivals and of cuBLAS; or why there is nothing, in one line."""

    request: Request
    different: int = 0
    before_s: tuple[float, ...] = ()
    after_s: tuple[float, ...] = ()
    cublas_s: tuple[float, ...] = ()
    rivals_s: tuple[tuple[float, ...], ...] = ()
    failure: str | None = None
    environment: dict[str, Any] | None = None

    @property
    def identical(self) -> bool:
        """Whether both ran and left the same."""
        return self.failure is None and self.different == 0

    @property
    def speedup(self) -> float:
        """The median time of the first cubin over that of the second; not a number where none was taken."""
        if not (self.before_s and self.after_s):
            return float("nan")
        return statistics.median(self.before_s) / statistics.median(self.after_s)


def compared(requests: Sequence[Request], tell: Callable[[int], None] = lambda done: None) -> list[Compared]:
    """What comes of each request, in order; `tell` gets how many are done.

    Raises MachineError where no process can use a GPU.
    """
    found: list[Compared] = []
    restarts = 0
    while len(found) < len(requests):
        answers = _Process()
        try:
            for request in requests[len(found) :]:
                answer = answers.ask(request.to_json())
                found.append(_compared(request, answer))
                tell(len(found))
                if "broken" in answer:
                    break
        finally:
            answers.close()
        restarts += 1
        if restarts > MOST_RESTARTS:
            rest = requests[len(found) :]
            found += [Compared(request, failure="not run: too many before it broke the process") for request in rest]
    return found


def require_gpu() -> None:
    """Raise MachineError where no process can use a GPU."""
    _Process().close()


def _compared(request: Request, answer: dict[str, Any]) -> Compared:
    before_s, after_s, cublas_s = (tuple(answer.get(name, ())) for name in ("before_s", "after_s", "cublas_s"))
    rivals_s = tuple(map(tuple, answer.get("rivals_s", ())))
    different, failure, environment = answer.get("different", 0), answer.get("failure"), answer.get("environment")
    return Compared(request, different, before_s, after_s, cublas_s, rivals_s, failure, environment)


class _Process:
    """A process that answers requests."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            WORKER,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=worker_environment(), start_new_session=True,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        first = self._next()
        if "error" in first or "failure" in first:
            self.close()
            raise MachineError(first.get("error") or first["failure"])

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _next(self) -> dict[str, Any]:
        while True:
            try:
                line = self._lines.get(timeout=TIMEOUT_S)
            except queue.Empty:
                return {"failure": f"no answer within {TIMEOUT_S} s", "broken": True}
            if not line:
                return {"failure": DIED, "broken": True}
            with suppress(ValueError):  # a library may print what is no answer
                answer = json.loads(line)
                if isinstance(answer, dict):
                    return answer

    def ask(self, line: str) -> dict[str, Any]:
        """The answer to a request; one with "broken" where there will be no more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            return {"failure": DIED, "broken": True}
        return self._next()

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        end(self._process, 5)
        self._reader.join(5)
        if not self._reader.is_alive() and self._process.stdout is not None:
            self._process.stdout.close()


def run_pair(gpu: Gpu, request: Request) -> dict[str, Any]:
    """Run both cubins of a request; the answer as `Compared` has it. Raises PointError where one fails."""
    point = request.point
    launch = kernel_named(point.kernel).launch(point.problem, point.tiling)
    with point_failures(gpu, point), ExitStack() as stack:
        cubins = (request.before, request.after, *request.rivals)
        loaded = [load(gpu, _cubin(path), launch) for path in cubins]
        a, b = random_operands(point.problem, fresh_seed())
        buffers = stack.enter_context(Buffers(gpu, point, a, b))
        starts = [buffers.launcher(each) for each in loaded]
        left = []
        for start in starts:
            buffers.poison_c()
            start()()
            left.append(buffers.downloaded_c())
        answer: dict[str, Any] = {"different": sum(int(np.count_nonzero(left[0] != each)) for each in left[1:])}
        if point.problem.flop <= VERIFIED_FLOP:
            verdict = verify(left[1], a, b, (point.tiling.block_m, point.tiling.block_n))
            if verdict.failure:
                raise PointError(verdict.failure)
        if request.timed:
            if request.cublas:
                starts.append(_library(gpu, stack.enter_context(Cublas(gpu)), point, buffers))
            before = stack.enter_context(flusher(gpu, starts[0], True))
            samples_s = in_turn(starts, before)
            answer |= {"before_s": samples_s[0], "after_s": samples_s[1], "rivals_s": samples_s[2 : len(cubins)]}
            answer["cublas_s"] = samples_s[-1] if request.cublas else []
            answer["environment"] = software(gpu.facts) | under_load(gpu.facts, lambda: starts[1]()())
            buffers.poison_c()
            starts[1]()()
            answer["different"] += int(np.count_nonzero(left[0] != buffers.downloaded_c()))
    return answer


def _library(gpu: Gpu, cublas: Cublas, point: Point, buffers: Buffers) -> Launcher:
    """What launches cuBLAS between two events."""
    event = gpu.driver.Event

    def launch() -> Callable[[], float]:
        start, stop = event(), event()
        start.record()
        cublas.multiply(point.problem, buffers.a, buffers.b, buffers.c)
        stop.record()

        def wait() -> float:
            stop.synchronize()
            return float(start.time_till(stop)) * 1e-3

        return wait

    return launch


def _cubin(path: str) -> Cubin:
    return Cubin(Path(path), 0, 0, 0, 0, "")


def serve() -> int:
    """Answer the requests of standard input until it ends or the context breaks."""
    with Gpu() as gpu:
        _answer({"ready": gpu.facts.title})
        for line in sys.stdin:
            try:
                answer = run_pair(gpu, Request.from_json(line))
            except (PointError, GemmsimError) as error:
                answer = {"failure": str(error)}
            if not gpu.alive():
                _answer({**answer, "broken": True})
                leave(1)
            _answer(answer)
    return 0


def _answer(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


def main() -> int:
    """The command line; returns the exit status."""
    try:
        return serve()
    except GemmsimError as error:
        _answer({"error": str(error)})
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
