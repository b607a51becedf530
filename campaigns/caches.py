"""Points that hold the traffic below L1 against the hardware's counters; counts them; tells which are held out.

python campaigns/caches.py > campaigns/caches.jsonl
python campaigns/caches.py count OUT.jsonl     on a machine with a GPU and the profiler: counts what OUT does not have

Sizes on both sides of an H200's L2, tilings from bad to good, every kernel. A line of OUT is {point, device,
blocks_per_sm, counters, environment}. Only what caches do is counted, nothing timed or verified, so that few replays
do. The profiler flushes all caches before each replay: what is counted begins with nothing in L1 and L2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

CHUNK = 40
"""Points of one profiler process: what is counted is on disk after each."""

LARGE = (
    (4096, 4096, 4096),
    (2048, 2048, 8192),  # deep
    (1024, 1024, 16384),  # deeper: all blocks run at once
    (8192, 1024, 4096),  # A does not fit, B does
    (1024, 8192, 4096),  # the other way about
    (8192, 8192, 1024),  # most of it is C
    (3072, 5120, 4096),
    (2048, 16384, 1024),  # wide
    (16384, 2048, 1024),  # tall
    (4096, 4096, 2048),
    (512, 4096, 8192),
    (3001, 2999, 4003),  # no row starts with a sector
    (4100, 4100, 2052),  # every second row does
)
SMALL = (
    (512, 512, 512),
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (2048, 2048, 512),
    (512, 512, 8192),
    (1536, 1792, 1280),
    (4096, 512, 1024),
    (512, 4096, 1024),
    (1001, 1903, 2107),
    (2052, 1300, 1028),
)
WARPED = ("block_m", "block_n", "block_k", "warp_m", "warp_n", "thread_m", "thread_n")
PLAIN = ("block_m", "block_n", "block_k", "thread_m", "thread_n")
TILINGS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("double_buffer", "128x128x8x8x8", {"vector": 4, "pad_a": 4}),
    ("async", "128x256x8x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 8}),
    ("vectorized", "128x128x8x8x8", {"vector": 4, "pad_a": 4}),
    ("warp_tiled", "128x128x8x64x64x16x8", {"pad_a": 4}),
    ("shared", "32x32x32", {}),
    ("register", "64x64x8x4x4", {"pad_a": 0}),
    ("async", "64x64x8x32x32x8x4", {"stages": 3, "pad_a": 4, "group": 16}),
    ("naive", "8x32", {}),
    ("double_buffer", "64x64x16x8x4", {"vector": 4, "pad_a": 4}),
    ("warp_tiled", "64x128x8x32x64x8x8", {"pad_a": 4, "pad_b": 4}),
    ("async", "128x256x8x64x64x16x8", {"stages": 3, "pad_a": 4, "group": 1}),
    ("vectorized", "32x64x16x4x4", {"vector": 4}),
    ("register", "128x64x16x8x4", {"pad_a": 4}),
    ("naive", "32x8", {}),
    ("async", "64x128x8x32x64x8x8", {"stages": 4, "pad_a": 4, "pad_b": 4, "split_k": 2}),
    ("shared", "16x16x16", {"pad_a": 1, "pad_b": 1}),
    ("double_buffer", "128x64x8x8x4", {"vector": 4, "pad_a": 4, "swizzle": 0}),
    ("warp_tiled", "64x64x8x32x32x8x4", {}),
    ("vectorized", "64x64x8x4x4", {"vector": 4}),
    ("async", "96x128x8x48x64x12x8", {"stages": 3, "pad_a": 8, "split_k": 4, "group": 4}),
    ("register", "128x128x8x8x8", {"pad_a": 4}),
    ("naive", "16x16", {}),
    ("double_buffer", "128x128x16x8x8", {"vector": 4, "swizzle": 16}),
    ("async", "64x64x16x32x32x8x4", {"stages": 2, "group": 4}),
)
MORE_LARGE = (
    (4096, 4096, 4096),
    (2048, 2048, 8192),
    (8192, 8192, 1024),
    (3000, 5000, 4000),
    (5120, 5120, 5120),
    (5000, 3000, 4000),
    (2560, 2560, 2560),  # not much more than L2 holds
    (4096, 4096, 8192),
    (6144, 2048, 6144),
    (2048, 6144, 6144),
    (1536, 1536, 12288),
    (3584, 3584, 3584),
    (12288, 1536, 2048),
    (1536, 12288, 2048),
    (4608, 4608, 1536),
    (4001, 3203, 2999),
)
MORE_SMALL = (
    (768, 768, 768),
    (1280, 1280, 2560),
    (1792, 1792, 1792),
    (640, 2560, 2048),
    (2560, 640, 2048),
    (384, 384, 6144),
    (3072, 3072, 256),
    (1408, 2000, 1500),
)
MORE_TILINGS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("double_buffer", "64x128x8x8x8", {"vector": 4, "pad_a": 4}),
    ("naive", "8x32", {}),
    ("async", "128x128x8x64x64x16x8", {"stages": 3, "pad_a": 4}),
    ("register", "128x64x8x8x4", {"pad_a": 4}),
    ("warp_tiled", "128x64x8x64x32x8x8", {"pad_a": 4}),
    ("shared", "16x32x16", {}),
    ("vectorized", "128x64x8x8x4", {"vector": 4, "pad_a": 4}),
    ("double_buffer", "64x64x8x4x4", {"vector": 4, "pad_a": 4}),
    ("async", "64x128x8x32x64x8x8", {"stages": 2, "pad_a": 4, "group": 4}),
    ("naive", "16x16", {}),
    ("register", "64x64x16x8x8", {"pad_a": 4}),
    ("warp_tiled", "128x256x8x64x64x16x8", {"pad_a": 4}),
    ("double_buffer", "128x64x16x8x8", {"vector": 4, "pad_a": 4}),
    ("vectorized", "64x128x16x8x8", {"vector": 4, "pad_a": 4}),
    ("async", "64x64x8x32x32x8x4", {"stages": 4, "pad_a": 4}),
    ("shared", "32x16x32", {}),
    ("warp_tiled", "64x64x16x32x32x8x4", {"pad_a": 4}),
    ("double_buffer", "128x256x8x16x8", {"vector": 4, "pad_a": 4}),
    ("naive", "4x64", {}),
    ("async", "128x128x16x64x32x8x8", {"stages": 2, "pad_a": 4, "group": 8}),
    ("vectorized", "64x64x16x8x4", {"vector": 4, "pad_a": 4}),
    ("register", "128x128x16x8x8", {"pad_a": 4}),
    ("async", "128x64x8x64x32x8x8", {"stages": 4, "pad_a": 4}),
)
ROUNDS = (
    (TILINGS, 0, ((LARGE, 6), (SMALL, 5))),
    (MORE_TILINGS, 0, ((MORE_LARGE, 4), (MORE_SMALL, 3))),
    (TILINGS, 18, ((MORE_LARGE, 4), (MORE_SMALL, 1))),
    (MORE_TILINGS, 5, ((LARGE, 4), (SMALL, 1))),
)
"""Tilings, which of them is the first, and at how many each size is counted: the next ones, round and round."""


def points() -> Iterator[dict[str, Any]]:
    """The points: at each size the next few tilings."""
    for tilings, turn, groups in ROUNDS:
        for (m, n, k), each in ((size, each) for sizes, each in groups for size in sizes):
            for kernel, extents, more in (tilings[(turn + i) % len(tilings)] for i in range(each)):
                names = WARPED if kernel in ("warp_tiled", "async") else PLAIN
                tiling = dict(zip(names, map(int, extents.split("x")), strict=False)) | more
                yield {"m": m, "n": n, "k": k, "kernel": kernel, "tiling": tiling}
            turn += each


def held_out(key: str) -> bool:
    """Whether a point, by its key, judges the model and must not shape it: one in four, by a hash."""
    return sha256(key.encode()).digest()[0] % 4 == 0


def count(out: Path, given: Sequence[dict[str, Any]]) -> None:
    """Count the points that the file does not have yet, and append them."""
    from gemmsim.gpu.compile import compile_kernel
    from gemmsim.gpu.counters import CACHE_METRICS
    from gemmsim.gpu.machine import GpuMachine
    from gemmsim.kernels import kernel
    from gemmsim.predict import resident_blocks
    from gemmsim.records import Failure, Point

    def warn(text: str) -> None:
        print(text, file=sys.stderr)

    def blocks_per_sm(point: Point) -> int:
        compiled = kernel(point.kernel)
        launch = compiled.launch(point.problem, point.tiling)
        registers = compile_kernel(compiled, launch, machine.device.capability).registers_per_thread
        return int(
            resident_blocks(compiled.resources(point.problem, point.tiling, registers), machine.device).blocks_per_sm
        )

    done = {json.dumps(json.loads(line)["point"]) for line in out.read_text().splitlines()} if out.exists() else set()
    todo = [point for point in map(Point.from_dict, given) if json.dumps(point.to_dict()) not in done]
    with GpuMachine(warn=warn) as machine:
        environment = machine.environment()
        failures = machine.prepare(todo, lambda done, of: None)
        ready = [point for point, failure in zip(todo, failures, strict=True) if failure is None]
        for failure in filter(None, failures):
            warn(failure.reason)
        for start in range(0, len(ready), CHUNK):
            chunk = ready[start : start + CHUNK]
            with out.open("a") as file:
                for point, counted in zip(chunk, machine.count(chunk, CACHE_METRICS), strict=True):
                    if isinstance(counted, Failure):
                        warn(f"{point}: {counted.reason}")
                        continue
                    line = {
                        "point": point.to_dict(),
                        "device": machine.device.name,
                        "blocks_per_sm": blocks_per_sm(point),
                        "counters": counted,
                        "environment": environment,
                    }
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")
            warn(f"counted {start + len(chunk)} of {len(ready)}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["count"]:
        count(Path(sys.argv[2]), list(points()))
    else:
        for point in points():
            print(json.dumps(point))
