"""Hardware counters of launches, read with Nsight Compute: one profiler process for many points."""

from __future__ import annotations

import csv
import json
import math
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmsim.errors import MachineError, Warn
from gemmsim.gpu.supervisor import START_TIMEOUT_S, WORKER, end, worker_environment
from gemmsim.gpu.toolchain import ncu
from gemmsim.kernels import kernel as kernel_named
from gemmsim.records import Failure, Point

METRICS = {
    # smsp__sass_*: counted at the instructions (SASS), so exact and free of other warps' arbitration. Beside
    # the requests of the hardware, global_load_instructions shows what becomes of fully guarded-off loads.
    "ffma": "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum",
    "shared_load_requests": "smsp__sass_inst_executed_op_shared_ld.sum",
    "shared_store_requests": "smsp__sass_inst_executed_op_shared_st.sum",
    "shared_load_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "shared_store_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "global_load_instructions": "smsp__sass_inst_executed_op_global_ld.sum",
    "global_load_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ld.sum",
    # Copies from global to shared memory (LDGSTS): in no other count but the requests that the unit counts.
    "copy_requests": "smsp__sass_inst_executed_op_ldgsts.sum",
    "copy_wavefronts": "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum",
    "copy_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_access.sum",
    "copy_past_l1_sectors": "smsp__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts_cache_bypass.sum",
    # The rest: counters of the hardware units, multiprocessors' L1, L2 and memory.
    "global_load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "global_store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "global_store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "dram_read_bytes": "dram__bytes_read.sum",
}
"""Our counters and the profiler's metrics."""
CACHE_METRICS = {
    # What passes L1, L2 and memory. Requests of several multiprocessors for the same sector can travel on as one, so L2
    # can be read for less than the L1s get; and its halves read each other, which counts as reads of both.
    "l1_fill_sectors": "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l2_read_sectors_for_l1": "lts__t_sectors_srcunit_tex_op_read.sum",
    "l2_read_sectors": METRICS["l2_read_sectors"],
    "l2_sectors_for_l2": "lts__t_sectors_srcunit_ltcfabric.sum",
    "l2_write_sectors": "lts__t_sectors_op_write.sum",
    "dram_read_bytes": METRICS["dram_read_bytes"],
    "dram_write_bytes": "dram__bytes_write.sum",
}
"""The same, of caches alone."""

NO_REASON = "it gave no reason"
COUNTED_POINT_TIMEOUT_S = 120

Counters = dict[str, int]


@dataclass(frozen=True)
class Row:
    """One profiled launch: its blocks and threads a block (zeros where not said), and the metrics read."""

    extents: tuple[int, int]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Run:
    """What one profiler process left: rows, what the worker said of each point, and the log."""

    rows: list[Row]
    outcomes: dict[int, str]
    log: str


def count(points: Sequence[Point], warn: Warn, wanted: Mapping[str, str] = METRICS) -> list[Counters | Failure]:
    """The counters of one launch of each point, those of METRICS or of another such table; or why there are none.

    The kernels should have been compiled before; the profiler watches whatever the process does. A
    metric that this GPU does not have is left out, after a warning. When the process dies, what was counted
    is kept, its point fails, and another process counts the rest. Raises MachineError where there is no
    profiler, or it may not or cannot count.
    """
    metrics = dict(wanted)
    counted = _count(list(points), metrics, warn)
    seen = {name for counters in counted if not isinstance(counters, Failure) for name in counters}
    for name in metrics:
        if seen and name not in seen:
            warn(f"the profiler gave no value of {metrics[name]}; {name} is left out")
    return counted


def _count(points: list[Point], metrics: dict[str, str], warn: Warn, works: bool = False) -> list[Counters | Failure]:
    """As `count`; `works` says that the profiler has counted something before on this machine."""
    if not points:
        return []
    run = profile(points, list(metrics.values()))
    _check_permission(run.log)
    launched = sum(outcome == "launched" for outcome in run.outcomes.values())
    if not run.rows:
        unknown = [name for name, metric in metrics.items() if metric in unknown_metrics(run.log)]
        for name in unknown:
            warn(f"this GPU's profiler does not know {metrics.pop(name)}; {name} is left out")
        if unknown and metrics:
            return _count(points, metrics, warn, works)
        if not works and (launched or not run.outcomes):
            raise MachineError(f"the profiler counted nothing: {complaint(run.log) or NO_REASON}")
    if len(run.rows) < launched:  # a launch was left out, and nothing says which: halve until it is alone
        if len(points) == 1:
            return [Failure(f"not counted: {complaint(run.log) or NO_REASON}")]
        half = len(points) // 2
        return _count(points[:half], metrics, warn, True) + _count(points[half:], metrics, warn, True)
    settled = settle(points, run, metrics)
    return settled + _count(points[len(settled) :], metrics, warn, works or bool(run.rows))


def settle(points: Sequence[Point], run: Run, metrics: dict[str, str]) -> list[Counters | Failure]:
    """What a run says of the points, in order, up to the one at which its process ended, which fails.

    Rows are in the order of the launches, and so of the points that were launched. At least one point is
    settled: where the process ended before it started any, that is the first.
    """
    settled: list[Counters | Failure] = []
    rows = iter(run.rows)
    for index, point in enumerate(points):
        outcome = run.outcomes.get(index)
        if outcome == "launched":
            settled.append(_matched(point, next(rows), metrics))
        elif outcome is None and settled and isinstance(settled[-1], Failure):
            return settled  # the point before broke the context, which ended the process in good order
        elif outcome in (None, "started"):
            failure = Failure(f"not counted: the profiled process ended: {complaint(run.log) or NO_REASON}")
            return [*settled, failure]
        else:
            settled.append(Failure(f"not counted: {outcome}"))
    return settled


def _matched(point: Point, row: Row, metrics: dict[str, str]) -> Counters | Failure:
    """The row's values by our names, if it is a row of this point's launch."""
    launch = kernel_named(point.kernel).launch(point.problem, point.tiling)
    if row.extents not in ((launch.blocks, launch.threads), (0, 0)):
        return Failure(
            f"not counted: the profiler's row has {row.extents[0]} blocks of {row.extents[1]} threads,"
            f" the launch {launch.blocks} of {launch.threads}"
        )
    return {name: round(row.metrics[metric]) for name, metric in metrics.items() if metric in row.metrics}


def command(points_file: Path, log_file: Path, launches: int, metrics: Sequence[str]) -> list[str]:
    """The profiler's command line: the clocks are left alone, caches are flushed before every pass."""
    return [
        str(ncu().path),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", str(log_file)),
        *("--clock-control", "none", "--cache-control", "all", "--target-processes", "all"),
        *("--kernel-name", "gemm", "--launch-count", str(launches), "--metrics", ",".join(metrics)),
        *(*WORKER, str(points_file)),
    ]


def profile(points: Sequence[Point], metrics: Sequence[str]) -> Run:
    """Run the profiler over a worker that launches each point once."""
    with tempfile.TemporaryDirectory(prefix="gemmsim-") as folder:
        points_file, log_file = Path(folder) / "points.jsonl", Path(folder) / "ncu.log"
        points_file.write_text("".join(json.dumps(point.to_dict()) + "\n" for point in points))
        output_file = Path(folder) / "output"
        with open(output_file, "wb") as stdout:  # a pipe could not be read to its end if a process never ended
            process = subprocess.Popen(
                command(points_file, log_file, len(points), metrics),
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=subprocess.STDOUT,
                env={**worker_environment(), "LC_ALL": "C"},  # numbers in one known form
                start_new_session=True,
            )
        late = ""
        try:
            process.wait(START_TIMEOUT_S + COUNTED_POINT_TIMEOUT_S * len(points))
        except subprocess.TimeoutExpired:
            late = "\n==ERROR== the profiler took too long"
        finally:
            end(process)
        output = output_file.read_text(errors="replace") + late
        log = log_file.read_text(errors="replace") if log_file.is_file() else ""
    return Run(parse_rows(log) or parse_rows(output), parse_outcomes(output), f"{log}\n{output}")


def parse_outcomes(output: str) -> dict[int, str]:
    """What the worker said last of each point: "started", "launched", or why it failed.

    Raises MachineError when the worker itself says that it cannot run here.
    """
    outcomes: dict[int, str] = {}
    for line in output.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if not isinstance(said, dict):
            continue
        if "error" in said:
            raise MachineError(said["error"])
        for state in ("started", "launched", "failed"):
            if state in said:
                outcomes[said[state]] = said.get("reason", state)
    return outcomes


def parse_rows(text: str) -> list[Row]:
    """The launches of the profiler's CSV ("raw" page): a header, a row of units, a row for each launch.

    Lines of the profiler's log may stand anywhere between. Values may have thousands separators; one
    that is no number, such as "n/a", is left out.
    """
    rows: list[Row] = []
    header: list[str] = []
    for cells in csv.reader(line for line in text.splitlines() if line.startswith('"')):
        if cells[0] == "ID":
            header = cells
            continue
        if cells[0].isdigit():
            named = dict(zip(header, cells, strict=False))
            extents = _extent(named.get("Grid Size", "")), _extent(named.get("Block Size", ""))
            rows.append(Row(extents, dict(_numbers(named))))
    return rows


def _numbers(named: dict[str, str]) -> Iterator[tuple[str, float]]:
    for name, text in named.items():
        cleaned = text.replace(",", "").strip()
        if "__" in name and cleaned.isdecimal():
            yield name, int(cleaned)
        elif "__" in name and re.fullmatch(r"\d+\.\d*([eE][+-]?\d+)?", cleaned):
            yield name, float(cleaned)


def _extent(text: str) -> int:
    """128 for "(32, 4, 1)", 1024 for "(1,024, 1, 1)"; 0 where that is no extent."""
    numbers = [number.replace(",", "") for number in text.strip(" ()").split(", ")]
    return math.prod(map(int, numbers)) if len(numbers) == 3 and all(map(str.isdecimal, numbers)) else 0


def unknown_metrics(log: str) -> set[str]:
    """Metrics that the profiler says it cannot find."""
    complaints = re.findall(r"==(?:ERROR|WARNING)==.*(?:find|found|known|valid|support|available).*", log)
    return {name.rstrip(".") for line in complaints for name in re.findall(r"\b\w+__\w[\w.]*", line)}


def complaint(log: str) -> str | None:
    """Why it went wrong, in one line: the profiler's first error, the worker's exception, or its exit status."""
    errors = re.findall(r"==ERROR== *(.*\S)", log)
    exceptions = re.findall(r"^[\w.]*(?:Error|Exception|Interrupt)\b.*", log, re.MULTILINE)
    own = [line for line in errors if not line.startswith("The application returned")]
    return next(iter([*own, *exceptions[-1:], *errors]), None)


def _check_permission(log: str) -> None:
    if "ERR_NVGPUCTRPERM" in log:
        raise MachineError(
            "this user may not read the GPU's hardware counters: run as root, or allow everybody with the driver option"
            " NVreg_RestrictProfilingToAdminUsers=0 (https://developer.nvidia.com/ERR_NVGPUCTRPERM)"
        )
