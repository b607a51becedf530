"""What register ports leave of the FFMA peak: by hand, from the table, and where it does not know."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmsim import register_table
from gemmsim.compare.loop_shares import loop_shares, residents
from gemmsim.device import device
from gemmsim.errors import InputError
from gemmsim.kernels import kernel
from gemmsim.ladder import default_tiling
from gemmsim.main_loops import port_shares
from gemmsim.main_loops.port_shares import PortShare, port_share, share_of_loop
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records
from gemmsim.register_table import SHIPPED, Row, read_table, sources_hash, write_table
from gemmsim.registers.register_files import register_file

H200 = device("h200")
DOUBLE = kernel("double_buffer")
TILING = default_tiling(DOUBLE)
PROBLEM = Problem(4096, 4096, 4096)


@pytest.fixture
def table(monkeypatch, tmp_path):
    """A table of rows that are derived from one that fits."""

    def use(*changes):
        macros = DOUBLE.launch(PROBLEM, TILING).macros
        row = Row("double_buffer", macros, {"9.0": 77}, {}, sources_hash(DOUBLE), "nvcc", {"9.0": (512, 600, 800.0)})
        path = tmp_path / f"{len(changes)}.jsonl"
        write_table(path, [replace(row, **changed) for changed in changes])
        monkeypatch.setattr(register_table, "SHIPPED", path)
        clear()

    yield use
    clear()


def clear():
    for cached in (register_table._fresh, port_shares._medians):
        cached.cache_clear()


def test_the_shares_of_a_loop():
    found = share_of_loop((512, 640, 800.0), register_file("sm_90"))
    assert (found.fraction, found.ideal_fraction) == (0.64, 0.8)
    assert found.gain == pytest.approx(0.25)
    wide = share_of_loop((512, 640, 1100.0), register_file("sm_80"))  # an FFMA every two cycles: 1024 at least
    assert (wide.fraction, wide.ideal_fraction) == (1024 / 1100, 1.0)
    with pytest.raises(InputError, match="shares 0 and 1 of the peak"):
        PortShare(0, 1, "table")


def test_the_table_knows(table):
    table({})
    found = port_share(DOUBLE, PROBLEM, TILING, H200.capability)
    assert found == PortShare(512 / 800, 512 / 600, "table")
    # 8.6 has such a register file too, and 8.0 another
    assert port_share(DOUBLE, PROBLEM, TILING, device("rtx-3090").capability) == found
    assert port_share(DOUBLE, PROBLEM, TILING, device("a100-80gb-sxm").capability) == PortShare(1, 1, "none")
    assert port_share(kernel("register"), PROBLEM, default_tiling(kernel("register")), H200.capability).source == "none"


def test_what_the_table_does_not_know_is_as_usual(table):
    small = {**DOUBLE.launch(PROBLEM, TILING).macros, "THREAD_M": 4, "THREAD_N": 4}
    loops = [{"9.0": (100, 100, cycles)} for cycles in (125.0, 200.0, 400.0)]
    table(
        {}, {"macros": {**small, "PAD_A": 1}, "loops": loops[0]}, {"macros": {**small, "PAD_A": 2}, "loops": loops[1]},
        {"macros": {**small, "PAD_A": 3}, "loops": loops[2], "sources": "of old"},
    )  # fmt: skip
    other = DOUBLE.tiling(block_m=64, block_n=64, block_k=8, thread_m=4, thread_n=4)
    found = port_share(DOUBLE, PROBLEM, other, H200.capability)
    assert (found.fraction, found.ideal_fraction, found.source) == (0.5, 1.0, "typical")  # 0.8, 0.5 and 0.25
    of_no_tile = DOUBLE.tiling(block_m=64, block_n=64, block_k=8, thread_m=8, thread_n=4)
    assert port_share(DOUBLE, PROBLEM, of_no_tile, H200.capability).fraction == pytest.approx((0.5 + 0.64) / 2)


def test_arrays_are_looked_up_like_numbers(table):
    small = {**DOUBLE.launch(PROBLEM, TILING).macros, "THREAD_M": 4, "THREAD_N": 4, "PAD_A": 9}
    table({}, {"macros": small, "loops": {"9.0": (100, 110, 125.0)}})
    sizes, sides = np.array([4096, 1001, 64]), np.array([[8], [4], [16]])
    tilings = replace(TILING, thread_m=sides, thread_n=sides)
    many = port_share(DOUBLE, Problem(sizes, sizes, sizes), tilings, H200.capability)
    times = predict(Problem(sizes, sizes, sizes), DOUBLE, tilings, H200).terms["register_ports"]
    assert many.fraction.shape == times.shape == (3, 3)
    for row, side in enumerate(sides[:, 0].tolist()):
        for column, size in enumerate(sizes.tolist()):
            one = Problem(size, size, size), DOUBLE, replace(TILING, thread_m=side, thread_n=side)
            alone = port_share(one[1], one[0], one[2], H200.capability)
            assert many.fraction[row, column] == alone.fraction
            assert many.ideal_fraction[row, column] == alone.ideal_fraction
            assert times[row, column] == pytest.approx(predict(*one, H200).terms["register_ports"])


def test_the_term_of_a_prediction(table):
    table({})
    found = predict(PROBLEM, DOUBLE, TILING, H200)
    assert found.terms["register_ports"] == pytest.approx(found.terms["ffma"] * 800 / 512)
    given = predict(PROBLEM, DOUBLE, TILING, H200, ports=PortShare(0.5, 0.75, "compiled"))
    assert given.terms["register_ports"] == pytest.approx(2 * found.terms["ffma"])


@pytest.mark.parametrize("command", ["explain", "predict"])
def test_commands_say_what_an_ideal_order_would_gain(table, gemmsim, answer, command):
    table({})
    ports = answer(f"{command} 4096 --kernel double_buffer")["register_ports"]
    assert ports == {
        "peak_fraction": 0.64, "ideal_fraction": pytest.approx(512 / 600), "gain": pytest.approx(1 / 3),
        "source": "table",
    }  # fmt: skip
    text = " ".join(gemmsim(f"{command} 4096 --kernel double_buffer").out.split())
    assert "64.0 % of the FFMA peak by register ports and issue slots (the compiled code, as in the table)" in text
    assert "an ideal order would reach 85.3 %: +33.3 % speed" in text
    table()
    text = " ".join(gemmsim(f"{command} 4096 --kernel double_buffer").out.split())
    assert "nothing is known of its register reads" in text


# What is shipped


def test_shipped_loops_make_sense():
    rows = read_table(SHIPPED)
    assert any(row.loops for row in rows), "`make registers` compiles them anew"
    for row in rows:
        for name, (ffma, instructions, cycles) in row.loops.items():
            assert 0 < ffma < instructions <= cycles * (1 + 1e-9), (row.kernel, row.macros, name)
        for cycles_per_ffma in row.running.values():
            ffma, _, cycles = row.loops["9.0"]
            assert cycles_per_ffma >= 0.97 * cycles / ffma


def test_warps_and_wavefronts_of_a_launch():
    """128x128x8 with 8x8 a thread: two blocks of 256 threads; for each k a thread reads two runs of A, which lie in
    common for half of a warp and merge (2 wavefronts), and two of B, 8 elements apart (8 wavefronts)."""
    tiling = DOUBLE.tiling(block_m=128, block_n=128, block_k=8, thread_m=8, thread_n=8)
    found = residents(DOUBLE, PROBLEM, tiling, H200.capability, 128)
    assert (found.warps, found.blocks) == (4, 2)
    assert (found.load_wavefronts, found.merged) == (5, 0.5)
    naive = kernel("naive")
    assert residents(naive, PROBLEM, default_tiling(naive), H200.capability, 32).load_wavefronts == 1


def test_main_loops_come_close_to_what_was_measured():
    """Shares of the peak where the model holds the FFMA for the bound: ports and issue slots alone are an upper bound;
    with what the warps wait for they are off by 5 points at most, on average."""
    records, _ = read_records(shipped_records())
    found = loop_shares(records, H200)
    assert len(found) == 25
    bound = [each for each in found if each.ffma_bound]
    assert len(bound) >= 14
    assert all(each.ports > each.measured for each in bound)
    assert sum(abs(each.running - each.measured) for each in bound) <= 0.05 * len(bound)
    tiled = [each for each in found if each.prediction.kernel.thread_tiled]
    assert sum(abs(each.running - each.measured) for each in tiled) <= 0.05 * len(tiled)
