"""The process that touches the GPU, so that a kernel that breaks or hangs it takes only this process along.

`python -m gemmsim.gpu.worker POINTS.jsonl` launches the kernel of each point exactly once, in order: what
a profiler or compute-sanitizer watches. `--serve` measures the points that arrive on standard input,
one JSON request a line. Both answer on standard output, one JSON object a line.

Exit status: 0 done, 1 a launch failed, 2 unusable points, 3 no GPU.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, NoReturn

from gemmsim.errors import GemmsimError, InputError
from gemmsim.gpu.run import PointError, launch_once, measure_point
from gemmsim.gpu.session import Gpu
from gemmsim.record_files import read_points
from gemmsim.records import Point


def launch_all(path: str) -> int:
    """Launch every point of a file once; says before and after each which one it is. Returns the exit status."""
    points = read_points(path)
    failed = False
    with Gpu() as gpu:
        for index, point in enumerate(points):
            answer({"started": index})
            try:
                launch_once(gpu, point)
            except PointError as error:
                failed = True
                answer({"failed": index, "reason": str(error)})
                if not gpu.alive():
                    leave(1)
            else:
                answer({"launched": index})
    return int(failed)


def serve() -> int:
    """Say which GPU this is, then measure what is asked, until the input ends or the context breaks."""
    with Gpu() as gpu:
        answer({"gpu": asdict(gpu.facts)})
        for line in sys.stdin:
            request = json.loads(line)
            record = measure_point(gpu, Point.from_dict(request["point"]), request["device"], request["flush"])
            usable = record.ok or gpu.alive()
            answer({"record": record.to_dict(), "usable": usable})
            if not usable:
                leave(1)
    return 0


def answer(message: dict[str, Any]) -> None:
    """One line of JSON on standard output, at once."""
    print(json.dumps(message), flush=True)


def leave(status: int) -> NoReturn:
    """End here and now: a broken context cannot be taken down in order."""
    sys.stdout.flush()
    os._exit(status)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given == ["--serve"]:
            return serve()
        if len(given) != 1 or given[0].startswith("-"):
            raise InputError("usage: python -m gemmsim.gpu.worker POINTS.jsonl | --serve")
        return launch_all(given[0])
    except GemmsimError as error:
        answer({"error": str(error), "exit_status": error.exit_status})
        print(error, file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
