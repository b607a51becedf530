"""The space of legal configurations: nothing missing, nothing illegal, whatever the chunks."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from examples import tilings
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.device import Device, device
from gemmsim.errors import InputError
from gemmsim.expressions import parse_condition
from gemmsim.kernels import KERNELS, Kernel, kernel
from gemmsim.occupancy import occupancy
from gemmsim.problem import Problem
from gemmsim.rules import Symbol, legal
from gemmsim.search.constraints import NAMES, constraint
from gemmsim.search.sensible import VALUES
from gemmsim.search.spaces import LISTED, Space, space
from gemmsim.search.tables import rows_of, size_of
from gemmsim.tiling import FIELDS, RANGES, TILING_RULES, Tiling

H200, T4 = device("h200"), device("t4")
CUBE = Problem(512, 512, 512)
LARGEST = {"block_m": 300, "block_n": 300, "thread_m": 17, "thread_n": 17, "block_k": 70, "stages": 8, "vector": 5,
           "pad_a": 9, "pad_b": 9, "swizzle": 16, "warp_m": 130, "warp_n": 130, "split_k": 140, "group": 9,
           "traversal": 17, "spread": 20}  # fmt: skip


def scalar_legal(of: Kernel, values: dict[str, int], problem: Problem, on: Device) -> bool:
    """By the checks of one configuration alone, as `predict` and a launch make them."""
    try:
        tiling = of.tiling(**values)
        of.check(tiling, on, problem)
        of.launch(problem, tiling)
    except InputError:
        return False
    block = of.resources(problem, tiling)
    found = occupancy(on.capability, block.threads, block.registers_per_thread, dynamic_shared_bytes=block.shared_bytes)
    return bool(found.launches)


def configurations(of: Space, rows: int = LISTED) -> list[tuple[int, ...]]:
    """Every configuration of a space, in its order, as the values of the kernel's fields."""
    found: list[tuple[int, ...]] = []
    for chunk in of.chunks(rows):
        columns = [np.broadcast_to(getattr(chunk, name), size_of(chunk)).tolist() for name in of.kernel.fields]
        found += zip(*columns, strict=True)
    return found


@st.composite
def spaces(draw: st.DrawFn):
    """Small spaces of odd values, some legal, most not, on a new and an old GPU."""
    of = draw(st.sampled_from([*KERNELS.values()]))
    nice = {name: draw(st.lists(st.sampled_from(VALUES[name]), min_size=1, max_size=2)) for name in of.fields}
    legal_one = fields_of(of, draw(tilings(of.name)))
    values = {
        name: tuple(sorted({*nice[name], legal_one[name], *draw(st.lists(_any(name), max_size=1))}))
        for name in of.fields
    }
    m, n, k = (draw(st.sampled_from([1, 63, 512, 4095, 1_000_000])) for _ in "mnk")
    problem = Problem(m, n, k)
    return Space(of, problem, draw(st.sampled_from([H200, T4])), values)


def default_tiling(name: str) -> Tiling:
    return kernel(name).tiling(**dict(kernel(name).default_tile))


def fields_of(of: Kernel, tiling: Tiling) -> dict[str, int]:
    return {name: getattr(tiling, name) for name in of.fields}


def _any(name: str) -> st.SearchStrategy[int]:
    return st.integers(RANGES.get(name, (1, 0))[0], LARGEST[name])


@given(spaces())
def test_a_space_is_what_the_checks_of_each_configuration_leave(of):
    names = of.kernel.fields
    product = itertools.islice(itertools.product(*(of.values[name] for name in names)), 600)
    expected = {
        each for each in product if scalar_legal(of.kernel, dict(zip(names, each, strict=True)), of.problem, of.device)
    }
    found = configurations(of)
    assert len(found) == len(set(found)) == of.count()
    assert set(itertools.islice(itertools.product(*(of.values[name] for name in names)), 600)) & set(found) == expected


@given(spaces(), st.integers(1, 40))
def test_chunks_change_nothing_but_the_size(of, rows):
    assert configurations(of, rows) == configurations(of)
    assert all(size_of(chunk) <= rows for chunk in of.chunks(rows))


@given(spaces(), st.integers(1, 40))
def test_tables_hold_the_configurations_that_lists_hold(of, rows):
    """A table is a product, so it may have cells that are none; what launches is asked of lists alone."""
    found = []
    for table in of.tables(rows):
        assert table.shape[0] <= rows
        legal = np.broadcast_to(table.legal & of._launches(table.tilings), table.shape)
        chosen = table.flat(np.flatnonzero(legal))
        columns = [np.broadcast_to(getattr(chosen, name), legal.sum()).tolist() for name in of.kernel.fields]
        found += zip(*columns, strict=True)
        assert table.count == np.broadcast_to(table.legal, table.shape).sum() > 0
    assert len(found) == len(set(found))
    assert set(found) == set(configurations(of))


def test_more_paddings_than_a_number_has_bits():
    """Rows that allow the same values go together: here padding by padding, and more than fit one word."""
    values = {name: (value,) for name, value in kernel("vectorized").tiling_dict(default_tiling("vectorized")).items()}
    of = space(kernel("vectorized"), CUBE, H200, values=values | {"vector": (1, 2, 4), "pad_a": range(100)})
    assert of.count() == 100 + 50 + 25 == sum(table.count for table in of.tables())


@given(st.sampled_from([*KERNELS.values()]), st.data())
def test_rules_say_of_arrays_what_the_checks_say_of_each(of, data):
    rows = [
        {name: data.draw(_any(name) | st.sampled_from(VALUES[name])) for name in of.fields}
        if data.draw(st.booleans())
        else fields_of(of, data.draw(tilings(of.name)))
        for _ in range(6)
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in of.fields}
    fixed = {"stages": of.stages} if "stages" not in of.fields else {}
    many = Tiling.unchecked(**{name: getattr(Tiling, name, 1) for name in FIELDS} | columns | fixed)
    rules = (*TILING_RULES, *of.rules, *of.device_rules(H200), *of.problem_rules(CUBE), *of.launch_rules(CUBE))
    found = np.broadcast_to(legal(rules, many), len(rows))
    for row, ok in zip(rows, found, strict=True):
        try:
            tiling = of.tiling(**row)
            of.check(tiling, H200, CUBE)
            of.launch(CUBE, tiling)
            alone = True
        except InputError:
            alone = False
        assert alone == ok, row


def plain_spreads(v: dict[str, int], threads: int) -> bool:
    """Whether every copy of a tile is one of all threads, and each group of them has a small iteration."""
    deep, rows = v["block_k"], threads // (4 if v["block_k"] % 8 else 8)
    if v["spread"] >= deep or threads % deep or v["block_m"] % rows:
        return False
    return v["block_n"] % (4 * (threads // deep)) == 0


def plain_legal(of: Kernel, v: dict[str, int]) -> bool:
    """What a kernel takes on an H200, written down once more: what the sources and `docs/kernels.md` demand."""
    block, thread = (v["block_m"], v["block_n"]), (v.get("thread_m", 1), v.get("thread_n", 1))
    pads, deep = (v.get("pad_a", 0), v.get("pad_b", 0)), v.get("block_k", 1)
    if any(b % t for b, t in zip(block, thread, strict=True)):
        return False
    if block[0] // thread[0] * (block[1] // thread[1]) > 1024:
        return False
    if "vector" in v:
        wide = v["vector"]
        if wide not in (1, 2, 4) or any(each % wide for each in (block[1], deep, *thread, *pads)):
            return False
        swizzle = v["swizzle"]
        if swizzle not in {0, *(each for each in (1, 2, 4, 8, 16) if each >= wide)}:
            return False
        if swizzle and any(b % 32 for b in block):
            return False
    if "warp_m" in v:
        warp = v["warp_m"], v["warp_n"]
        if deep % 4 or any(t > 2 and t % 4 for t in thread) or 0 in warp:
            return False
        if any(w % t or b % w for b, w, t in zip(block, warp, thread, strict=True)):
            return False
        if warp[0] // thread[0] * (warp[1] // thread[1]) != 32:
            return False
        if any(pad % min(t, 4) for pad, t in zip(pads, thread, strict=True)):
            return False
    elif of.prefetches and deep % 2:
        return False
    if v.get("traversal") and thread[0] % v["traversal"]:
        return False
    if v.get("spread") and not plain_spreads(v, block[0] // thread[0] * (block[1] // thread[1])):
        return False
    stages = v.get("stages", of.stages)
    if "stages" in v and stages < 2:
        return False
    rows, row = (deep, block[0]) if of.transposed else (block[0], deep)
    shared = 4 * stages * (rows * (row + pads[0]) + deep * (block[1] + pads[1])) if of.staged else 0
    return shared <= 227 * 1024 and v.get("split_k", 1) <= 132


@given(st.sampled_from([*KERNELS.values()]), st.data())
def test_the_rules_are_what_is_written_down_elsewhere(of, data):
    legal_one = fields_of(of, data.draw(tilings(of.name)))
    values = {name: data.draw(st.just(legal_one[name]) | st.sampled_from(VALUES[name])) for name in of.fields}
    for name in data.draw(st.lists(st.sampled_from(of.fields), max_size=2)):
        values[name] = data.draw(_any(name))
    try:
        of.check(of.tiling(**values), H200)
        found = True
    except InputError:
        found = False
    assert found == plain_legal(of, values)


@pytest.mark.parametrize("of", KERNELS.values(), ids=KERNELS)
def test_the_text_of_a_rule_is_the_rule(of):
    """Symbols write each rule down; read back by the parser of conditions it decides as the rule does."""
    names = of.fields
    random = np.random.default_rng(0)
    columns = {name: random.choice(VALUES[name], 500) for name in names}
    fixed = {name: getattr(Tiling, name, 1) for name in FIELDS} | {"stages": of.stages}
    symbols, many = (
        Tiling.unchecked(**(fixed | values)) for values in ({name: Symbol(name) for name in names}, columns)
    )
    rules = (*TILING_RULES, *of.rules, *of.device_rules(H200), *of.problem_rules(CUBE), *of.launch_rules(CUBE))
    written = 0
    for rule in rules:
        condition = rule.holds(symbols)
        if isinstance(condition, Symbol):
            read = parse_condition(str(condition), names)
            assert set(read.names) == condition.names
            with np.errstate(divide="ignore"):  # as `legal` asks
                decided = np.broadcast_to(rule.holds(many), 500)
            assert np.array_equal(read.evaluate(columns), decided), str(condition)
            written += 1
        else:
            assert condition, "a rule that no configuration meets"
    assert written >= 3 or not of.thread_tiled


@pytest.mark.parametrize("of", KERNELS.values(), ids=KERNELS)
def test_the_default_space_has_the_default_tile_of_the_kernel(of):
    tile = fields_of(of, of.tiling(**dict(of.default_tile)))
    here = space(of, Problem(4096, 4096, 4096), H200, values={name: (value,) for name, value in tile.items()})
    assert configurations(here) == [tuple(tile.values())]
    whole = space(of, Problem(4096, 4096, 4096), H200)
    assert all(tile[name] in whole.values[name] for name in of.fields)


def test_what_is_left_out_is_legal_but_makes_no_sense():
    of, cube = kernel("async"), Problem(1024, 1024, 1024)
    tile = {name: (value,) for name, value in of.tiling_dict(of.tiling(**dict(of.default_tile))).items()}
    for changed in ({"split_k": (128,)}, {"group": (16,)}):
        left_out = space(of, cube, H200, values=tile | changed)
        assert left_out.count() == 0
        assert replace(left_out, rules=()).count() == 1


CORE = {
    "block_m": (32, 64), "block_n": (32, 64), "block_k": (8,), "thread_m": (4,), "thread_n": (4, 8), "pad_a": (0, 1),
    "pad_b": (0,),
}  # fmt: skip


class TestConstraints:
    def of(self, *where: str) -> list[tuple[int, ...]]:
        return configurations(space(kernel("register"), CUBE, H200, where, CORE))

    @pytest.mark.parametrize(
        ("where", "holds"),
        [
            ("block_m >= 64 and pad_a == 1", lambda row: row[0] >= 64 and row[5] == 1),
            ("not block_m == block_n", lambda row: row[0] != row[1]),
            ("threads == 64 or thread_n == 8", lambda row: row[0] * row[1] // (row[3] * row[4]) == 64 or row[4] == 8),
            ("shared_bytes <= 4096", lambda row: 4 * (row[0] * (row[2] + row[5]) + row[2] * row[1]) <= 4096),
            ("stages == 1", lambda row: True),  # the kernel has no choice; this is what it has
            ("group * split_k == 1 and 1 == 1", lambda row: True),
            ("1 == 2", lambda row: False),
        ],
    )
    def test_a_constraint_leaves_what_meets_it(self, where, holds):
        assert self.of(where) == [row for row in self.of() if holds(row)]

    def test_several_all_hold(self):
        assert self.of("block_m == 64", "block_n == 32") == self.of("block_m == 64 and block_n == 32") != []

    def test_an_unknown_name_is_answered_with_all_that_are_known(self):
        with pytest.raises(InputError, match=r"unknown variable 'blockm'; nearest: block_m, .*; allowed: ") as refused:
            constraint("blockm > 3")
        assert all(name in str(refused.value) for name in NAMES)

    def test_nothing_is_executed(self):
        with pytest.raises(InputError, match="is not a condition"):
            constraint("__import__('os').system('true') == 0")

    def test_an_operation_that_fails_says_where(self):
        with pytest.raises(InputError, match=r"divides by zero at pad_a 0"):
            self.of("8 // pad_a > 1")


def test_an_unknown_parameter_and_a_value_out_of_range_are_refused():
    with pytest.raises(InputError, match="unknown parameter of kernel naive 'stages'"):
        space(kernel("naive"), CUBE, H200, values={"stages": [2]})
    with pytest.raises(InputError, match="block_m 0 is out of range"):
        space(kernel("naive"), CUBE, H200, values={"block_m": [0]})


def test_a_kernel_that_the_device_does_not_run_has_no_configuration():
    assert space(kernel("async"), CUBE, T4).count() == 0


def test_rows_of_a_chunk():
    chunk = next(space(kernel("warp_tiled"), CUBE, H200).chunks(100))
    some = rows_of(chunk, np.array([3, 5]))
    one = Tiling(**vars(rows_of(chunk, 5)))
    assert size_of(some) == 2
    assert int(np.broadcast_to(some.block_m, 2)[1]) == one.block_m
    kernel("warp_tiled").check(one, H200, CUBE)
