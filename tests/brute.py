"""The kernels of kernels/*.cu run on paper: every thread, every address, one by one.

Nothing here is taken from the model. Loops follow the sources line by line, and every warp access is
noted as {lane: byte address}; counts are made from those notes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class Notes:
    """What a launch did, warp access by warp access."""

    ffma: int = 0
    lanes: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    sectors: Counter[str] = field(default_factory=Counter)
    wavefronts: Counter[str] = field(default_factory=Counter)
    ideal: Counter[str] = field(default_factory=Counter)

    def access(self, kind: str, width: int, lanes: dict[int, int]) -> None:
        """One warp instruction of `kind`; `lanes` maps a lane to the element that it starts at."""
        if not lanes:
            return
        self.requests[kind] += 1
        self.lanes[kind] += width * len(lanes)
        if kind.startswith("global"):
            self.sectors[kind] += len({(e + i) // 8 for e in lanes.values() for i in range(width)})
        else:
            wavefronts, ideal = slow_passes({lane: 4 * e for lane, e in lanes.items()}, 4 * width, "store" in kind)
            self.wavefronts[kind] += wavefronts
            self.ideal[kind] += ideal


def slow_passes(addresses: dict[int, int], width_bytes: int, store: bool) -> tuple[int, int]:
    """(wavefronts, ideal) of one access, word by word."""
    size = {8: 16, 16: 8}.get(width_bytes, 32)
    if not store and size < 32:
        for step in (1, 2):
            if all(addresses.get(lane ^ step, address) == address for lane, address in addresses.items()):
                size *= 2
                break
    total = ideal = 0
    for first in range(0, 32, size):
        words: dict[int, set[int]] = defaultdict(set)
        for lane in range(first, first + size):
            if lane in addresses:
                for byte in range(addresses[lane], addresses[lane] + width_bytes):
                    words[byte // 4 % 32].add(byte // 4)
        if words:
            total += max(len(distinct) for distinct in words.values())
            ideal += 1
    return total, ideal


def launch(kernel: str, m: int, n: int, k: int, tiling) -> Notes:
    """Everything that the kernel does for one problem; `tiling` has the names of `Tiling`."""
    notes = Notes()
    across = -(-n // tiling.block_n)
    for block in range(-(-m // tiling.block_m) * across):
        _Block(notes, kernel, m, n, k, tiling, block // across * tiling.block_m, block % across * tiling.block_n).run()
    return notes


class _Block:
    def __init__(self, notes, kernel, m, n, k, t, row, column):
        self.notes, self.kernel, self.m, self.n, self.k, self.t = notes, kernel, m, n, k, t
        self.row, self.column = row, column
        self.columns_of_threads = t.block_n // t.thread_n
        self.threads = self.columns_of_threads * (t.block_m // t.thread_m)
        self.vector = kernel in ("vectorized", "double_buffer")
        self.vector_a = t.vector if self.vector and k % t.vector == 0 else 1
        self.vector_b = t.vector if self.vector and n % t.vector == 0 else 1

    def each_warp(self, kind, width, address):
        """`address(thread)` is an element, or None where the thread does not take part."""
        for first in range(0, self.threads, 32):
            lanes = {}
            for thread in range(first, min(first + 32, self.threads)):
                element = address(thread)
                if element is not None:
                    assert element % width == 0, "a vector access is aligned"
                    lanes[thread - first] = element
            self.notes.access(kind, width, lanes)

    def run(self):
        if self.kernel == "naive":
            self.naive()
            return
        for start in range(0, self.k, self.t.block_k):
            self.stage(start)
            self.multiply()
        self.write()

    def naive(self):
        def inside(thread):
            y, x = self.row + thread // self.t.block_n, self.column + thread % self.t.block_n
            return (y, x) if y < self.m and x < self.n else None

        for i in range(self.k):
            self.each_warp("global_load", 1, lambda th, i=i: at and at[0] * self.k + i if (at := inside(th)) else None)
            self.each_warp("global_load", 1, lambda th, i=i: i * self.n + at[1] if (at := inside(th)) else None)
        self.each_warp("global_store", 1, lambda th: at[0] * self.n + at[1] if (at := inside(th)) else None)
        self.notes.ffma += self.k * sum(inside(thread) is not None for thread in range(self.threads))

    def stage(self, start):
        t = self.t
        transposed = self.vector
        pitch_a = (t.block_m if transposed else t.block_k) + t.pad_a
        pitch_b = t.block_n + t.pad_b
        self.carry(t.block_m, t.block_k, self.vector_a, self.m - self.row, self.k - start,
                   self.row * self.k + start, self.k, pitch_a, transposed)  # fmt: skip
        self.carry(t.block_k, t.block_n, self.vector_b, self.k - start, self.n - self.column,
                   start * self.n + self.column, self.n, pitch_b, False)  # fmt: skip

    def carry(self, rows, columns, width, rows_left, columns_left, base, leading, pitch, transposed):
        per_row = columns // width
        for step in range(-(-rows * per_row // self.threads)):

            def item(thread, step=step):
                i = thread + step * self.threads
                return (i // per_row, i % per_row * width) if i < rows * per_row else None

            def source(thread):
                at = item(thread)
                if at is None or at[0] >= rows_left or at[1] >= columns_left:
                    return None
                return base + at[0] * leading + at[1]

            self.each_warp("global_load", width, source)
            if transposed:
                for i in range(width):
                    self.each_warp(
                        "shared_store", 1, lambda th, i=i: (at[1] + i) * pitch + at[0] if (at := item(th)) else None
                    )
            else:
                self.each_warp("shared_store", width, lambda th: at[0] * pitch + at[1] if (at := item(th)) else None)

    def multiply(self):
        t = self.t
        row = lambda th: th // self.columns_of_threads * t.thread_m  # noqa: E731
        column = lambda th: th % self.columns_of_threads * t.thread_n  # noqa: E731
        pitch_b = t.block_n + t.pad_b
        if self.vector:
            pitch_a, start_b = t.block_m + t.pad_a, t.block_k * (t.block_m + t.pad_a)
            for i in range(t.block_k):
                for j in range(0, t.thread_m, t.vector):
                    self.each_warp("shared_load", t.vector, lambda th, i=i, j=j: i * pitch_a + row(th) + j)
                for j in range(0, t.thread_n, t.vector):
                    self.each_warp("shared_load", t.vector, lambda th, i=i, j=j: start_b + i * pitch_b + column(th) + j)
        else:
            pitch_a = t.block_k + t.pad_a
            start_b = t.block_m * pitch_a
            run_a = max(w for w in (1, 2, 4) if t.block_k % w == 0 and pitch_a % w == 0)
            run_b = max(w for w in (1, 2, 4) if t.thread_n % w == 0 and pitch_b % w == 0 and start_b % w == 0)
            for i in range(0, t.block_k, run_a):
                for j in range(t.thread_m):
                    self.each_warp("shared_load", run_a, lambda th, i=i, j=j: (row(th) + j) * pitch_a + i)
                for inner in range(i, i + run_a):
                    for j in range(0, t.thread_n, run_b):
                        self.each_warp(
                            "shared_load",
                            run_b,
                            lambda th, inner=inner, j=j: start_b + inner * pitch_b + column(th) + j,
                        )
        self.notes.ffma += self.threads * t.thread_m * t.thread_n * t.block_k

    def write(self):
        t = self.t
        width = t.vector if self.vector and self.n % t.vector == 0 else 1
        for i in range(t.thread_m):
            for j in range(0, t.thread_n, width):

                def target(thread, i=i, j=j):
                    y = self.row + thread // self.columns_of_threads * t.thread_m + i
                    x = self.column + thread % self.columns_of_threads * t.thread_n + j
                    return y * self.n + x if y < self.m and x < self.n else None

                self.each_warp("global_store", width, target)
