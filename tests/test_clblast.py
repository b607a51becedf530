"""The CLBlast kernel: its counts against a run on paper of every thread, its rules, registers and time."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gemmsim.clblast.accesses import Cost, accesses
from gemmsim.clblast.configurations import PARAMETERS, Configurations, describe
from gemmsim.clblast.constants import constants
from gemmsim.clblast.resources import block_resources
from gemmsim.clblast.timing import overlapped, predict_clblast
from gemmsim.device import capability, device, devices
from gemmsim.errors import InputError
from gemmsim.problem import Problem

COMPILED = Path(__file__).parent / "data" / "clblast_registers.jsonl"
BEST = {
    "MWG": 128, "NWG": 128, "KWG": 32, "MDIMC": 16, "NDIMC": 8, "MDIMA": 16, "NDIMB": 32, "KWI": 2, "VWM": 8, "VWN": 2,
    "STRM": 0, "STRN": 0, "SA": 1, "SB": 1,
}  # fmt: skip
"""The fastest of the RTX 3090."""
CUBE = Problem(4096, 4096, 4096)


def one(**changes: int) -> Configurations:
    return Configurations.of({**BEST, **changes})


@st.composite
def legal(draw: st.DrawFn, largest: int = 128) -> dict[str, int]:
    """A legal configuration, small enough to run on paper; warps may be partial."""
    mdimc = draw(st.sampled_from([d for d in (2, 4, 8, 12, 16, 32) if 2 * d <= largest]))
    ndimc = draw(st.sampled_from([d for d in (2, 4, 8, 16) if 4 * d <= largest]))
    threads = mdimc * ndimc
    vwm, vwn = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2, 4, 8)))
    mdima, ndimb = (draw(st.sampled_from([d for d in (2, 4, 8, 16, 32) if threads % d == 0])) for _ in range(2))
    mwg, nwg = (
        np.lcm.reduce([8, along * vector, copied * vector]) * draw(st.sampled_from((1, 2)))
        for along, copied, vector in ((mdimc, mdima, vwm), (ndimc, ndimb, vwn))
    )
    kwg = np.lcm.reduce([2, threads // mdima, threads // ndimb])
    assume(max(mwg, nwg) <= largest)
    return {
        "MWG": int(mwg), "NWG": int(nwg), "KWG": int(kwg), "MDIMC": mdimc, "NDIMC": ndimc, "MDIMA": mdima,
        "NDIMB": ndimb, "KWI": 2, "VWM": vwm, "VWN": vwn, "STRM": 0, "STRN": 0,
        "SA": draw(st.integers(0, 1)), "SB": draw(st.integers(0, 1)),
    }  # fmt: skip


# The kernel on paper: what a block's threads touch, written from the description of the kernel alone.

Access = tuple[str, int, int, int, int]
"""What, which of a thread's accesses, its thread, first byte, bytes."""


def run_block(p: dict[str, int], m: int, n: int, group: tuple[int, int], tiles: int) -> Iterator[tuple[Access, ...]]:
    """The accesses of one block to global and shared memory, instruction by instruction, all threads of each."""
    threads = [(x, y) for y in range(p["NDIMC"]) for x in range(p["MDIMC"])]
    mwi, nwi = p["MWG"] // p["MDIMC"], p["NWG"] // p["NDIMC"]
    width_a, width_b = min(p["VWM"], 4), min(p["VWN"], 4)
    shared_b = max(width_a, width_b) if p["SA"] else width_b
    for tile in range(tiles):
        for staged, tile_rows, size, base, copied, width, wide in (
            (p["SA"], p["MWG"], m, group[0] * p["MWG"], p["MDIMA"], width_a, width_a),
            (p["SB"], p["NWG"], n, group[1] * p["NWG"], p["NDIMB"], width_b, shared_b),
        ):
            if not staged:
                continue
            others = len(threads) // copied
            run, rows = tile_rows // copied, p["KWG"] // others
            wide = max(w for w in (1, 2, 4) if w <= wide and run % w == 0)
            for row in range(rows):
                places = [((t // copied) * rows + row, t % copied * run) for t in range(len(threads))]
                for v in range(0, run, width):
                    yield tuple(
                        ("copy_load", t, 4 * ((tile * p["KWG"] + k) * size + base + first + v), 4 * width, 0)
                        for t, (k, first) in enumerate(places)
                    )
                for v in range(0, run, wide):
                    yield tuple(
                        ("copy_store", t, 4 * (k * tile_rows + first + v), 4 * wide, 0)
                        for t, (k, first) in enumerate(places)
                    )
        for k in range(p["KWG"]):
            for axis, staged, tile_rows, size, base, run, width, wide in (
                (0, p["SA"], p["MWG"], m, group[0] * p["MWG"], mwi, width_a, width_a),
                (1, p["SB"], p["NWG"], n, group[1] * p["NWG"], nwi, width_b, shared_b),
            ):
                w = max(w for w in (1, 2, 4) if w <= wide and run % w == 0) if staged else width
                start = k * tile_rows if staged else (tile * p["KWG"] + k) * size + base
                for v in range(0, run, w):
                    yield tuple(
                        ("shared_step" if staged else "global_step", t, 4 * (start + at[axis] * run + v), 4 * w, 0)
                        for t, at in enumerate(threads)
                    )
    for column in range(nwi):
        for v in range(0, mwi, width_a):
            yield tuple(
                (
                    "result",
                    t,
                    4 * ((group[1] * p["NWG"] + y * nwi + column) * m + group[0] * p["MWG"] + x * mwi + v),
                    4 * width_a,
                    0,
                )
                for t, (x, y) in enumerate(threads)
            )


def passes_on_paper(addresses: list[int], width: int, store: bool) -> int:
    """Wavefronts of a warp in shared memory, by the rule in words: lanes in groups that fill 128 bytes, neighbours
    merged for loads where lanes come in pairs of the same address; the words of a bank one after the other."""
    lanes = 32 // max(1, width // 4)
    if not store and lanes < 32:
        for step in (1, 2):
            if all(addresses[i] == addresses[i ^ step] for i in range(len(addresses)) if i ^ step < len(addresses)):
                lanes *= 2
                break
    total = 0
    for first in range(0, len(addresses), lanes):
        words = {(a // 4 + w) for a in addresses[first : first + lanes] for w in range(max(1, width // 4))}
        total += max(Counter(word % 32 for word in words).values())
    return total


def count_block(p: dict[str, int], m: int, n: int, group: tuple[int, int], tiles: int) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for instruction in run_block(p, m, n, group, tiles):
        for first in range(0, len(instruction), 32):
            warp = instruction[first : first + 32]
            kind, width = warp[0][0], warp[0][3]
            of_kind = counts.setdefault(kind, Counter())
            of_kind["elements"] += len(warp) * width // 4
            of_kind["requests"] += 1
            addresses = [access[2] for access in warp]
            if kind in ("shared_step", "copy_store"):
                of_kind["wavefronts"] += passes_on_paper(addresses, width, kind == "copy_store")
            else:
                of_kind["sectors"] += len({address // 32 for address in addresses})
    return counts


@given(legal())
def test_counts_are_those_of_a_block_on_paper(p):
    tiles, m, n = 1, 2 * p["MWG"], 2 * p["NWG"]
    paper = count_block(p, m, n, (1, 0), tiles)
    found = accesses(Configurations.of(p))
    for kind, per_tile in (
        ("global_step", p["KWG"]), ("shared_step", p["KWG"]), ("copy_load", 1), ("copy_store", 1), ("result", 1),
    ):  # fmt: skip
        expected = paper.get(kind, Counter())
        cost = getattr(found, kind)
        for name in ("elements", "requests"):
            assert per_tile * int(getattr(cost, name)[0]) == expected[name], (kind, name)
        if kind in ("shared_step", "copy_store"):
            assert per_tile * int(cost.wavefronts[0]) == expected["wavefronts"], kind
            assert int(cost.sectors[0]) == int(cost.lookups[0]) == 0
        else:
            assert per_tile * int(cost.sectors[0]) == expected["sectors"], kind


@given(legal(32), st.integers(1, 2), st.integers(1, 2), st.integers(1, 2))
def test_totals_are_those_of_every_block_on_paper(p, groups_m, groups_n, tiles):
    m, n = groups_m * p["MWG"], groups_n * p["NWG"]
    total: dict[str, Counter[str]] = {}
    for group in np.ndindex(groups_m, groups_n):
        for kind, counts in count_block(p, m, n, group, tiles).items():
            total.setdefault(kind, Counter()).update(counts)
    c = Configurations.of(p)
    problem = Problem(m, n, tiles * p["KWG"])
    launch = accesses(c).of_launch(c, c.blocks(problem), c.steps(problem))
    for name, kinds in (
        ("global_load", ("global_step", "copy_load", "result")), ("global_store", ("result",)),
        ("shared_load", ("shared_step",)), ("shared_store", ("copy_store",)),
    ):  # fmt: skip
        expected: Counter[str] = sum((total.get(kind, Counter()) for kind in kinds), Counter())
        for count in ("elements", "requests", "sectors" if "global" in name else "wavefronts"):
            assert int(getattr(launch[name], count)[0]) == expected[count], (name, count)


@given(legal(64))
def test_the_kernel_on_paper_copies_each_element_once_and_writes_each_result_once(p):
    m, n = p["MWG"], p["NWG"]
    stored: Counter[tuple[int, int]] = Counter()
    results: Counter[int] = Counter()
    for instruction in run_block(p, m, n, (0, 0), 1):
        for kind, _, address, width, _ in instruction:
            if kind == "copy_store":
                stored.update((0, byte) for byte in range(address, address + width, 4))
            elif kind == "result":
                results.update(range(address, address + width, 4))
    copies = p["SA"] + p["SB"]
    assert set(results.values()) == {1}
    assert len(results) == m * n
    assert sum(stored.values()) == p["KWG"] * (p["SA"] * m + p["SB"] * n)
    assert max(stored.values(), default=copies) <= copies


@settings(max_examples=20)
@given(st.lists(legal(), min_size=2, max_size=4))
def test_many_at_once_are_as_one_by_one(several):
    together = Configurations.of({name: np.array([p[name] for p in several]) for name in PARAMETERS})
    of_all = accesses(together)
    for number, p in enumerate(several):
        alone = accesses(Configurations.of(p))
        for kind, cost in vars(of_all).items():
            for name, counts in vars(cost).items():
                assert counts[number] == getattr(getattr(alone, kind), name)[0], (kind, name)


def test_costs_add_up():
    cost = Cost(*(np.array([number]) for number in range(5)))
    assert [int(value[0]) for value in vars(cost + cost * 2).values()] == [0, 3, 6, 9, 12]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"VWM": 3}, "VWM is one of 1, 2, 4, 8"),
        ({"MWG": 100}, "MWG is a multiple of 8"),
        ({"MDIMC": 64, "NDIMC": 32}, "MDIMC x NDIMC is at most 1024"),
        ({"MDIMC": 32, "MWG": 128, "VWM": 8}, "MWG is a multiple of MDIMC x VWM"),
        ({"NDIMB": 64, "VWN": 4}, "NWG is a multiple of NDIMB x VWN"),
        ({"MDIMA": 48, "MWG": 384}, "KWG is a multiple of MDIMC x NDIMC / MDIMA"),
        ({"KWG": 12}, "KWG is a multiple of MDIMC x NDIMC / MDIMA"),
        ({"KWI": 3}, "KWG is a multiple of KWI"),
        ({"STRM": 1}, "STRM and STRN are 0"),
    ],
)
def test_illegal_configurations_are_refused(changes, words):
    with pytest.raises(InputError, match="configuration 1, tile .*" + words):
        one(**changes).check(CUBE)


def test_tiles_must_divide_the_problem():
    with pytest.raises(InputError, match="m 4000 is no multiple of MWG 128"):
        one().check(Problem(4000, 4096, 4096))


@pytest.mark.parametrize("changes", [{"MWG": 0}, {"SA": 2}, {"VWN": 5000}])
def test_parameters_out_of_range_are_refused(changes):
    with pytest.raises(InputError, match=next(iter(changes))):
        one(**changes)


def test_missing_parameters_are_named():
    with pytest.raises(InputError, match="parameters MWG, SB of kernel clblast are missing"):
        Configurations.of({name: value for name, value in BEST.items() if name not in ("MWG", "SB")})


def test_words_of_a_configuration():
    assert describe(BEST) == "tile 128x128, threads 16x8, vectors 8 and 2, A and B staged"


# Resources


def compiled() -> list[dict[str, int]]:
    return [json.loads(line) for line in COMPILED.read_text().splitlines()]


@pytest.mark.parametrize(("sm", "most"), [("7.5", 0.10), ("8.6", 0.11)])
def test_registers_are_about_those_that_a_compiler_takes(sm, most):
    rows = compiled()
    c = Configurations.of({name: np.array([row[name] for row in rows]) for name in PARAMETERS})
    found = block_resources(c, capability(sm), constants()).registers_per_thread
    taken = np.array([row["registers_sm_" + sm.replace(".", "")] for row in rows])
    assert np.abs(found / taken - 1).mean() < most
    assert np.abs(found / taken - 1).max() < 0.5


def test_what_spills_is_what_a_compiler_spills():
    rows = compiled()
    c = Configurations.of({name: np.array([row[name] for row in rows]) for name in PARAMETERS})
    words = block_resources(c, capability("8.6"), constants()).spilled_words
    stored = np.array([row["spilled_bytes_sm_86"] for row in rows])
    assert ((words > 0) == (stored > 100)).all()  # a few bytes outside of the loop are not modelled
    assert (words > 0).any()


def test_a_block_stays_within_the_registers_and_shared_memory_that_there_are():
    c = one(MDIMC=32, NDIMC=32, MDIMA=32, VWM=2, VWN=2)
    found = block_resources(c, capability("8.6"), constants())
    assert found.registers_per_thread[0] <= 64  # 1024 threads share 65536
    assert c.shared_bytes[0] == 4 * 32 * (128 + 128)
    assert found.occupancy.blocks_per_sm[0] == 1


# Time


@pytest.mark.parametrize("name", devices())
def test_every_device_has_a_prediction(name):
    found = predict_clblast(CUBE, one(), device(name))
    assert 0 < found.time_s[0] < 1
    assert found.bound_by[0] in found.terms


@settings(max_examples=30)
@given(legal(), st.sampled_from(["rtx-2080-ti", "rtx-3090", "h200", "a100-80gb-sxm"]))
def test_no_term_exceeds_the_time(p, name):
    problem = Problem(4 * p["MWG"], 8 * p["NWG"], 2 * p["KWG"])
    found = predict_clblast(problem, Configurations.of(p), device(name))
    for term, seconds in found.terms.items():
        assert seconds[0] <= found.time_s[0] * (1 + 1e-9), term
    # all FFMA at the peak, and no faster
    padded_s = problem.flop / device(name).fp32_flop_per_s
    assert found.time_s[0] >= padded_s * (1 - 1e-9)


@settings(max_examples=30)
@given(legal())
def test_faster_memory_is_never_slower(p):
    problem = Problem(4 * p["MWG"], 4 * p["NWG"], 4 * p["KWG"])
    on = device("rtx-3090")
    faster = replace(on, dram_bytes_per_s=2 * on.dram_bytes_per_s, measured_l2_bytes_per_s=2 * on.l2_bytes_per_s)
    c = Configurations.of(p)
    assert predict_clblast(problem, c, faster).time_s[0] <= predict_clblast(problem, c, on).time_s[0]


def test_a_block_that_does_not_fit_never_ends():
    c = one(MWG=256, NWG=256, NDIMC=16)
    assert c.shared_bytes[0] > 49_152
    assert predict_clblast(CUBE, c, device("rtx-3090")).time_s[0] == np.inf


@given(st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=5))
def test_overlapped_work_takes_from_the_longest_to_the_sum(clocks):
    together = float(overlapped(constants(), *clocks))
    assert max(clocks) * (1 - 1e-9) <= together <= sum(clocks) * (1 + 1e-9)


def test_overlapped_work_by_hand():
    assert overlapped(constants(), 3.0, 3.0) == pytest.approx(3 * 2 ** (1 / 4))  # the exponent is 4
    assert overlapped(constants(), 5.0, 0.0) == 5


def test_old_devices_and_other_types_are_refused():
    old = replace(device("v100-sxm2"), capability=capability("6.1"), published_fp32_flop_per_s=None)
    with pytest.raises(InputError, match=r"compute capability 6\.1.* is for 7\.0 and later"):
        predict_clblast(CUBE, one(), old)
    with pytest.raises(InputError, match="dtype fp16"):
        predict_clblast(Problem(4096, 4096, 4096, "fp16"), one(), device("h200"))


@pytest.mark.parametrize("name", ["port_share", "clocks_per_copy_request"])
def test_constants_must_be_positive(name):
    with pytest.raises(InputError, match=name):
        replace(constants(), **{name: 0})
