"""The kernels of kernels/*.cu run on paper: every thread, every address, one by one.

Nothing here is taken from the model. Loops follow the sources line by line, and every warp access is
noted as {lane: byte address}; counts are made from those notes. What shared memory holds is noted too, so
that a load that does not find the element it is for fails.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass
class Notes:
    """What a launch did, warp access by warp access; with `trace`, each of them as (kind, bits, addresses)."""

    ffma: int = 0
    trace: list[tuple[str, int, tuple[tuple[int, int], ...]]] | None = None
    lanes: Counter[str] = field(default_factory=Counter)
    requests: Counter[str] = field(default_factory=Counter)
    sectors: Counter[str] = field(default_factory=Counter)
    wavefronts: Counter[str] = field(default_factory=Counter)
    ideal: Counter[str] = field(default_factory=Counter)

    def access(self, kind: str, width: int, lanes: dict[int, int]) -> None:
        """One warp instruction of `kind`; `lanes` maps a lane to the element that it starts at."""
        if not lanes:
            return
        if self.trace is not None:
            self.trace.append((kind, 32 * width, tuple((lane, 4 * e) for lane, e in lanes.items())))
        self.requests[kind] += 1
        self.lanes[kind] += width * len(lanes)
        if kind.startswith(("global", "workspace")):
            self.sectors[kind] += len({(e + i) // 8 for e in lanes.values() for i in range(width)})
        else:
            wavefronts, ideal = _passes(tuple(lanes.items()), width, "store" in kind)
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
                for word in range(addresses[lane] // 4, (addresses[lane] + width_bytes - 1) // 4 + 1):
                    words[word % 32].add(word)
        if words:
            total += max(len(distinct) for distinct in words.values())
            ideal += 1
    return total, ideal


@lru_cache(10_000)
def _passes(lanes: tuple[tuple[int, int], ...], width: int, store: bool) -> tuple[int, int]:
    """Of elements; block after block does the same."""
    return slow_passes({lane: 4 * element for lane, element in lanes}, 4 * width, store)


def launch(kernel: str, m: int, n: int, k: int, tiling, trace: bool = False) -> Notes:
    """Everything that the kernel does for one problem; `tiling` has the names of `Tiling`."""
    notes = Notes(trace=[] if trace else None)
    if kernel == "async":
        AsyncLaunch(notes, m, n, k, tiling).run()
        return notes
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
        self.vector = kernel in ("vectorized", "double_buffer", "warp_tiled")
        self.vector_a = t.vector if self.vector and k % t.vector == 0 else 1
        self.vector_b = t.vector if self.vector and n % t.vector == 0 else 1
        if kernel == "warp_tiled":
            self.vector_a = widest(k)
            self.vector_b = widest(n, t.block_n, t.block_n + t.pad_b)
        self.shared = {}

    def column_in_a(self, column, row):
        """In the transposed tile of A, where rows that came as one vector have one exclusive or."""
        return column ^ ((row // self.vector_a) * self.t.swizzle) % 32 if self.t.swizzle else column

    def column_in_b(self, column):
        """In the tile of B, where 32 columns have one exclusive or."""
        return column ^ ((column // 32) * self.t.vector) % 32 if self.t.swizzle else column

    def put(self, address, width, what):
        """Note that element i of a store to shared memory is `what(i)`; the address of the store."""
        self.shared.update({address + i: what(i) for i in range(width)})
        return address

    def get(self, address, width, what):
        """The address of a load from shared memory, once its element i is seen to be `what(i)`."""
        for i in range(width):
            assert self.shared[address + i] == what(i), "a load finds what was stored for it"
        return address

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
            if self.kernel == "warp_tiled":
                self.multiply_warps()
            else:
                self.multiply()
        if self.kernel == "warp_tiled":
            write_pieces(self, [(th, th) for th in range(self.threads)], self.row, self.column)
        else:
            self.write()

    def multiply_warps(self):
        t = self.t
        start_b = t.block_k * (t.block_m + t.pad_a)
        for i in range(t.block_k):
            read_fragments(self, t, i, i * (t.block_m + t.pad_a), start_b + i * (t.block_n + t.pad_b))
        self.notes.ffma += self.threads * t.thread_m * t.thread_n * t.block_k

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
        start_b = (t.block_k if transposed else t.block_m) * pitch_a
        self.shared = {}
        self.carry("a", t.block_m, t.block_k, self.vector_a, self.m - self.row, self.k - start,
                   self.row * self.k + start, self.k, 0, pitch_a, transposed)  # fmt: skip
        self.carry("b", t.block_k, t.block_n, self.vector_b, self.k - start, self.n - self.column,
                   start * self.n + self.column, self.n, start_b, pitch_b, False)  # fmt: skip

    def carry(self, name, rows, columns, width, rows_left, columns_left, base, leading, to, pitch, transposed):
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

                    def across(thread, i=i, item=item):
                        if (at := item(thread)) is None:
                            return None
                        row, column = at[1] + i, at[0]
                        address = to + row * pitch + self.column_in_a(column, row)
                        return self.put(address, 1, lambda _: (name, column, row))

                    self.each_warp("shared_store", 1, across)
            else:

                def straight(thread, item=item):
                    if (at := item(thread)) is None:
                        return None
                    address = to + at[0] * pitch + (self.column_in_b(at[1]) if name == "b" else at[1])
                    return self.put(address, width, lambda e: (name, at[0], at[1] + e))

                self.each_warp("shared_store", width, straight)

    def multiply(self):
        t = self.t
        row = lambda th: th // self.columns_of_threads * t.thread_m  # noqa: E731
        column = lambda th: th % self.columns_of_threads * t.thread_n  # noqa: E731
        pitch_b = t.block_n + t.pad_b
        if self.vector:
            pitch_a, start_b = t.block_m + t.pad_a, t.block_k * (t.block_m + t.pad_a)

            def from_a(thread, i, j):
                address = i * pitch_a + self.column_in_a(row(thread) + j, i)
                return self.get(address, t.vector, lambda e: ("a", row(thread) + j + e, i))

            def from_b(thread, i, j):
                address = start_b + i * pitch_b + self.column_in_b(column(thread) + j)
                return self.get(address, t.vector, lambda e: ("b", i, column(thread) + j + e))

            for i in range(t.block_k):
                for j in range(0, t.thread_m, t.vector):
                    self.each_warp("shared_load", t.vector, lambda th, i=i, j=j: from_a(th, i, j))
                for j in range(0, t.thread_n, t.vector):
                    self.each_warp("shared_load", t.vector, lambda th, i=i, j=j: from_b(th, i, j))
        else:
            pitch_a = t.block_k + t.pad_a
            start_b = t.block_m * pitch_a
            run_a = max(w for w in (1, 2, 4) if t.block_k % w == 0 and pitch_a % w == 0)
            run_b = max(w for w in (1, 2, 4) if t.thread_n % w == 0 and pitch_b % w == 0 and start_b % w == 0)

            def from_a(thread, i, j):
                address = (row(thread) + j) * pitch_a + i
                return self.get(address, run_a, lambda e: ("a", row(thread) + j, i + e))

            def from_b(thread, i, j):
                address = start_b + i * pitch_b + column(thread) + j
                return self.get(address, run_b, lambda e: ("b", i, column(thread) + j + e))

            for i in range(0, t.block_k, run_a):
                for j in range(t.thread_m):
                    self.each_warp("shared_load", run_a, lambda th, i=i, j=j: from_a(th, i, j))
                for inner in range(i, i + run_a):
                    for j in range(0, t.thread_n, run_b):
                        self.each_warp("shared_load", run_b, lambda th, inner=inner, j=j: from_b(th, inner, j))
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


def widest(*numbers):
    """The widest of 4, 2 and 1 that divides all."""
    return max(w for w in (1, 2, 4) if all(number % w == 0 for number in numbers))


def row_of(t, i):
    """`row_of` of kernels/warp.cuh."""
    piece = min(4, t.thread_m)
    return i // piece * piece * (t.warp_m // t.thread_m) + i % piece


def column_of(t, j):
    """`column_of` of kernels/warp.cuh."""
    piece = min(4, t.thread_n)
    return j // piece * piece * (t.warp_n // t.thread_n) + j % piece


def place(t, thread):
    """`Place` of kernels/warp.cuh: (row, column) in the block's tile."""
    lane, warp = thread % 32, thread // 32
    lane_rows, lane_columns = t.warp_m // t.thread_m, t.warp_n // t.thread_n
    row = column = 0
    rows = columns = 1
    for bit in range(5):
        value = lane >> bit & 1
        if columns < lane_columns and (bit % 2 == 0 or rows == lane_rows):
            column, columns = column + value * columns, columns * 2
        else:
            row, rows = row + value * rows, rows * 2
    warps_across = t.block_n // t.warp_n
    return (
        warp // warps_across * t.warp_m + row * min(4, t.thread_m),
        warp % warps_across * t.warp_n + column * min(4, t.thread_n),
    )


def read_fragments(block, t, i, row_a, row_b):
    """`read_a` and `read_b` at row i of tiles; these start at elements row_a and row_b of shared memory."""
    piece_m, piece_n = min(4, t.thread_m), min(4, t.thread_n)

    def from_a(thread, j):
        column = place(t, thread)[0] + row_of(t, j)
        return block.get(row_a + column, piece_m, lambda e: ("a", column + e, i))

    def from_b(thread, j):
        column = place(t, thread)[1] + column_of(t, j)
        return block.get(row_b + column, piece_n, lambda e: ("b", i, column + e))

    for j in range(0, t.thread_m, piece_m):
        block.each_warp("shared_load", piece_m, lambda th, j=j: from_a(th, j))
    for j in range(0, t.thread_n, piece_n):
        block.each_warp("shared_load", piece_n, lambda th, j=j: from_b(th, j))


def write_pieces(block, items, row, column, pieces=None):
    """`write_piece` for (thread that writes, thread whose results they are): all pieces of these, or the given ones."""
    t, m, n = block.t, block.m, block.n
    piece_n = min(4, t.thread_n)
    width = min(widest(n), piece_n)
    owner = dict(items)
    every = [(i, j) for i in range(t.thread_m) for j in range(0, t.thread_n, piece_n)]
    for i, j in every if pieces is None else pieces:
        for e in range(0, piece_n, width):

            def target(thread, i=i, j=j, e=e):
                if thread not in owner:
                    return None
                at = place(t, owner[thread])
                y, x = row + at[0] + row_of(t, i), column + at[1] + column_of(t, j) + e
                return y * n + x if y < m and x < n else None

            block.each_warp("global_store", width, target)


class AsyncLaunch:
    """kernels/async.cu and kernels/split.cuh, blocks in the order of their numbers."""

    def __init__(self, notes, m, n, k, t):
        self.notes, self.m, self.n, self.k, self.t = notes, m, n, k, t
        self.threads = t.block_m // t.warp_m * (t.block_n // t.warp_n) * 32
        self.vector_b = widest(n, t.block_n, t.block_n + t.pad_b)
        self.pitch_a, self.pitch_b = t.block_m + t.pad_a, t.block_n + t.pad_b
        self.tile_a = t.block_k * self.pitch_a
        self.buffer = self.tile_a + t.block_k * self.pitch_b
        self.across, self.down = -(-n // t.block_n), -(-m // t.block_m)
        self.visited = []
        self.shared = {}

    each_warp, put, get = _Block.each_warp, _Block.put, _Block.get

    def run(self):
        for number in range(self.across * self.down * self.t.split_k):
            self.block(number)
        assert sorted(self.visited) == [(y, x) for y in range(self.down) for x in range(self.across)]

    def corner(self, tile):
        """`Part`: the row and column of a tile of C."""
        t = self.t
        if t.group == 1:
            return tile // self.across, tile % self.across
        band = tile // (t.group * self.across) * t.group
        height = min(t.group, self.down - band)
        within = tile % (t.group * self.across)
        return band + within % height, within // height

    def block(self, number):
        t = self.t
        if t.split_k > 1:
            self.each_warp("shared_store", 1, lambda th: 0 if th == 0 else None)
            self.each_warp("shared_load", 1, lambda th: 0)
        split, at = number % t.split_k, self.corner(number // t.split_k)
        if split == 0:
            self.visited.append(at)
        row, column = at[0] * t.block_m, at[1] * t.block_n
        tiles = -(-self.k // t.block_k)
        first, last = tiles * split // t.split_k, tiles * (split + 1) // t.split_k
        left = min(self.k, last * t.block_k) - first * t.block_k

        self.shared, turn = {}, 0
        for stage in range(t.stages - (t.spread > 0)):
            self.copy(stage, row, column, first, turn, left)
            turn += 1
        stage = 0
        if last > first:  # the compiler moves these loads to where the loop is entered
            read_fragments(self, t, 0, 0, self.tile_a)
        for _ in range(last - first):
            for i in range(t.block_k):
                base = stage * self.buffer
                if i < t.block_k - 1:
                    where = base + (i + 1) * self.pitch_a, base + self.tile_a + (i + 1) * self.pitch_b
                    read_fragments(self, t, i + 1, *where)
                    groups = [group for group in range(t.spread) if i == group * (t.block_k - 1) // t.spread]
                    if groups and groups[-1] == t.spread - 1:  # the last: all of the tile is on its way
                        self.copy((stage - 1) % t.stages, row, column, first, turn, left)
                        turn += 1
                else:
                    if not t.spread:
                        self.copy(stage, row, column, first, turn, left)
                        turn += 1
                    stage = (stage + 1) % t.stages
                    base = stage * self.buffer
                    read_fragments(self, t, 0, base, base + self.tile_a)
            self.notes.ffma += self.threads * t.thread_m * t.thread_n * t.block_k
        if t.split_k == 1:
            write_pieces(self, [(th, th) for th in range(self.threads)], row, column)
        else:
            self.leave_and_add(split, number // t.split_k, row, column)

    def copy(self, stage, row, column, first, turn, left):
        """`Copier::next`: tile number `turn` of the block, into the buffer of a stage."""
        t, base = self.t, stage * self.buffer
        k0, left = (first + turn) * t.block_k, left - turn * t.block_k
        run = 4 if t.block_k % 8 else 8
        for step in range(-(-t.block_m * t.block_k // self.threads)):
            source, target = {}, {}
            for thread in range(self.threads):
                item = step * self.threads + thread
                if item >= t.block_m * t.block_k:
                    continue
                y, along = item // run % t.block_m, item % run + item // (run * t.block_m) * run
                target[thread] = base + along * self.pitch_a + y
                self.shared[target[thread]] = ("a", y, along)
                source[thread] = (min(row + y, self.m - 1) * self.k + k0 + along, along < left)
            self.note_copies(1, source, target)
        per_row = t.block_n // self.vector_b
        run = self.threads // t.block_k  # of `SpreadCopier`
        for step in range(-(-t.block_k * per_row // self.threads)):
            source, target = {}, {}
            for thread in range(self.threads):
                item = step * self.threads + thread
                if item >= t.block_k * per_row:
                    continue
                if t.spread:
                    along, x = thread // run, (step * run + thread % run) * self.vector_b
                else:
                    along, x = item // per_row, item % per_row * self.vector_b
                target[thread] = base + self.tile_a + along * self.pitch_b + x
                for e in range(self.vector_b):
                    self.shared[target[thread] + e] = ("b", along, x + e)
                from_x = column + x if t.spread else min(column + x, self.n - self.vector_b)
                source[thread] = ((k0 + along) * self.n + from_x, along < left and from_x < self.n)
            self.note_copies(self.vector_b, source, target)

    def note_copies(self, width, source, target):
        notes = self.notes
        for first in range(0, self.threads, 32):
            there = [thread for thread in range(first, first + 32) if thread in target]
            if not there:
                continue
            read = {thread - first: source[thread][0] for thread in there if source[thread][1]}
            into = {thread - first: target[thread] for thread in there}
            assert all(element % width == 0 for element in (*read.values(), *into.values()))
            assert all(e >= 0 and e + width <= max(self.m * self.k, self.k * self.n) for e in read.values())
            if notes.trace is not None:
                for kind, lanes in (("global_copy", read), ("shared_copy", into)):
                    if lanes:
                        lanes = {lane: e % self.buffer if kind == "shared_copy" else e for lane, e in lanes.items()}
                        notes.trace.append((kind, 32 * width, tuple((lane, 4 * e) for lane, e in lanes.items())))
            notes.requests["copy"] += 1
            notes.lanes["copy"] += width * len(read)
            notes.requests["reading_copy"] += bool(read)
            if width == 4:  # a sector counts for each 32 bytes of shared memory to which it goes in the same order
                moves = {(e // 8, into[lane] // 8, (e // 4 + into[lane] // 4) % 2) for lane, e in read.items()}
                notes.sectors["copy_past_l1"] += len(moves)
            else:
                notes.sectors["copy"] += len({(e + i) // 8 for e in read.values() for i in range(width)})
            addresses = {lane: 4 * e for lane, e in into.items()}
            if width < 4:
                wavefronts, ideal = slow_passes(addresses, 4 * width, True)
            else:
                sources = {thread - first: 4 * source[thread][0] for thread in there}
                wavefronts, ideal = slow_bypass(addresses, sources)
            notes.wavefronts["copy"] += wavefronts
            notes.ideal["copy"] += ideal

    def leave_and_add(self, split, tile, row, column):
        """`finish` of a split launch."""
        t, piece_n = self.t, min(4, self.t.thread_n)
        size = t.block_m * t.block_n
        base = tile * t.split_k * size
        for i in range(t.thread_m):
            for j in range(0, t.thread_n, piece_n):
                at = base + split * size + (i * t.thread_n + j) * self.threads
                self.each_warp("workspace_store", piece_n, lambda th, at=at: at + th * piece_n)
        warps, units = self.threads // 32, t.thread_m * t.thread_n // piece_n * self.threads // 32
        for warp in range(warps):
            for unit in range(warp * t.split_k + split, units, warps * t.split_k):
                for other in range(t.split_k):
                    at = base + other * size + unit * 32 * piece_n
                    lanes = range(32 * warp, 32 * warp + 32)

                    def sums(thread, at=at, lanes=lanes):
                        return at + thread % 32 * piece_n if thread in lanes else None

                    self.each_warp("workspace_load", piece_n, sums)
                items = [(32 * warp + lane, (unit * 32 + lane) % self.threads) for lane in range(32)]
                vector = unit * 32 // self.threads
                per_row = t.thread_n // piece_n
                write_pieces(self, items, row, column, [(vector // per_row, vector % per_row * piece_n)])


def slow_bypass(targets, sources):
    """(wavefronts, ideal) of copies past L1, lane by lane: the conjecture of docs/theory.md, told once more."""
    target = {lane: address // 16 for lane, address in targets.items()}
    source = {lane: sources[lane] // 16 for lane in targets}
    passes = set()
    for lane, place_of in target.items():
        whole = any(source[o] == source[lane] ^ 1 and target[o] == place_of ^ 1 for o in target)
        half = (source[lane] & 1, place_of & 1)
        piece = ("whole", half[0] ^ half[1]) if whole else ("half", *half)
        parity = (source[lane] // 2 + place_of // 2) % 2
        passes.add((source[lane] // 8, place_of // 8, piece, parity))
    return len(passes), len({source[lane] // 8 for lane in target})
