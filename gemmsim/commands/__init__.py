"""What each command of the command line does: options in, an answer out."""

from __future__ import annotations

import argparse

from gemmsim import answers
from gemmsim.commands.banks import add_banks, run_banks
from gemmsim.commands.calibrate import add_calibrate, run_calibrate
from gemmsim.commands.coalescing import add_coalescing, run_coalescing
from gemmsim.commands.command import Answer, Command
from gemmsim.commands.completion import add_completion, run_completion
from gemmsim.commands.launches import run_explain, run_ladder, run_predict, run_traffic
from gemmsim.commands.measurements import run_compare, run_measure, run_report, run_validate
from gemmsim.commands.occupancy import add_occupancy, run_occupancy
from gemmsim.commands.plot import add_plot, run_plot
from gemmsim.commands.rank import add_rank, run_rank
from gemmsim.commands.rearrange import add_rearrange, run_rearrange
from gemmsim.commands.registers import add_registers as add_register_forms
from gemmsim.commands.registers import run_registers
from gemmsim.commands.search import add_search, run_search
from gemmsim.commands.timeline import add_timeline, run_timeline
from gemmsim.commands.why import add_why
from gemmsim.device import device, devices
from gemmsim.errors import Warn
from gemmsim.options import (
    add_device,
    add_edges,
    add_folder,
    add_launch,
    add_measured,
    add_name,
    add_problem,
    add_records,
    add_registers,
    add_route,
    add_run,
    device_of,
)


def run_devices(args: argparse.Namespace, warn: Warn) -> Answer:
    """gemmsim devices"""
    if args.name is not None:
        one = device_of(args.name)
        return Answer(lambda: answers.devices([one]), lambda show: show.device(one))
    found = [device(name) for name in devices()]
    return Answer(lambda: answers.devices(found), lambda show: show.devices(found))


_TEXTBOOK = "2048 --kernel double_buffer --tile 128x128x8 --thread 8x8"
_ONE = "M [N K] --kernel K [options]"
_ONE_OR_MANY = "(M [N K] --kernel K | --points FILE.jsonl) [options]"

COMMANDS: dict[str, Command] = {
    "ladder": Command(
        "all kernels at one problem, predicted and where known measured",
        "M [N K] [options]",
        "4096 --device h200",
        (add_problem, add_device, add_measured, add_route),
        run_ladder,
    ),
    "explain": Command(
        "how a launch divides the work, step by step, and what it takes",
        "M [N K] (--kernel K | --why A B) [options]",
        _TEXTBOOK,
        (add_launch, add_device, add_registers, add_edges, add_why),
        run_explain,
    ),
    "traffic": Command(
        "reads, requests and bytes at every level of the memory", _ONE, _TEXTBOOK, (add_launch, add_device), run_traffic
    ),
    "predict": Command(
        "time of a launch, and what bounds it",
        _ONE,
        "4096 --kernel vectorized --device h200",
        (add_launch, add_device, add_registers, add_route),
        run_predict,
    ),
    "search": Command(
        "every legal configuration ranked by predicted time, and why the first is first",
        "M [N K] [options]",
        "4096 --kernel warp_tiled --where block_k==8 --where thread_m==16 --top 5",
        (add_search,),
        run_search,
    ),
    "timeline": Command(
        "what the warps of a multiprocessor do over two large iterations",
        "M [N K] --kernel K [options]",
        "2048 --kernel vectorized --tile 128x128x8 --beside double_buffer --picture timeline.svg",
        (add_launch, add_device, add_timeline),
        run_timeline,
    ),
    "measure": Command(
        "run kernels on the GPU here: verified, timed, recorded",
        _ONE_OR_MANY,
        "--points points.jsonl --out records.jsonl --resume",
        (add_launch, add_run),
        run_measure,
    ),
    "validate": Command(
        "predict, run on the GPU here, compare",
        _ONE_OR_MANY,
        "4096 --kernel vectorized --counters",
        (add_launch, add_run, add_route),
        run_validate,
    ),
    "compare": Command(
        "predictions against measured records",
        "[RECORDS.jsonl] [options]",
        "records.jsonl --device h200",
        (add_records, add_route),
        run_compare,
    ),
    "report": Command(
        "a page with pictures of records",
        "[RECORDS.jsonl] --out DIR [options]",
        "--out reports",
        (add_records, add_folder),
        run_report,
    ),
    "plot": Command(
        "one picture of the model or of records, as a file",
        "NAME [M [N K]] --out FILE [options]",
        "roofline 4096 --out roofline.pdf --style paper",
        (add_plot,),
        run_plot,
    ),
    "occupancy": Command(
        "what fits on a multiprocessor, what limits it, and the nearest cliffs",
        "(--threads T --registers R | M [N K] --kernel K | --batch FILE.csv) [options]",
        "--cc 9.0 --threads 256 --registers 122 --dynamic-shared 16384",
        (add_occupancy,),
        run_occupancy,
    ),
    "banks": Command(
        "passes of a warp through the banks of shared memory, and why",
        "(EXPR [options] | --batch FILE.jsonl | --kernel K [options])",
        "lane//2%4 --width 128",
        (add_banks,),
        run_banks,
    ),
    "coalescing": Command(
        "sectors and lines of global memory that a warp touches",
        "(EXPR [options] | --batch FILE.jsonl)",
        "tx+ty*100 --block 16x16",
        (add_coalescing,),
        run_coalescing,
    ),
    "registers": Command(
        "register ports of an FFMA stream: a thread tile, compiled code, a file of streams",
        "(--thread RMxRN | --sass FILE | --cubin FILE | --batch FILE.jsonl) [options]",
        "--thread 8x8 --order serpentine",
        (add_register_forms,),
        run_registers,
    ),
    "rearrange": Command(
        "the FFMA of a compiled main loop in a better order, proved, as a cubin",
        "(KERNEL [M [N K]] | CUBIN) (--out CUBIN | --dry-run) [options]",
        "async --dry-run",
        (add_rearrange,),
        run_rearrange,
    ),
    "rank": Command(
        "a search space that others measured, ranked without measuring",
        "[M [N K]] --kernel-tuner FILE [options]",
        "--kernel-tuner RTX_3090.csv.gz --device rtx-3090",
        (add_rank,),
        run_rank,
    ),
    "calibrate": Command(
        "microbenchmarks on the GPU here: what it does, where nobody says",
        "([PART…] --out FILE.toml | registers --out FILE.jsonl) [options]",
        "--out my-gpu.toml",
        (add_calibrate,),
        run_calibrate,
    ),
    "devices": Command(
        "the GPUs known, each number with its source", "[NAME|FILE.toml] [options]", "h200", (add_name,), run_devices
    ),
    "completion": Command(
        "a script that lets a shell complete commands, options and names",
        "bash|zsh|fish",
        "bash",
        (add_completion,),
        lambda args, _: run_completion(args, COMMANDS),
    ),
}
