"""A main loop as the warps of a sub-core run it: small loops, by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import Control, with_control
from gemmsim.machine_code.main_loop import MainLoop
from gemmsim.machine_code.sass import Function, Instruction
from gemmsim.main_loops.sub_core import Latencies, Residents, _SubCore, issue_cycles, latencies, loop_cycles_per_ffma
from gemmsim.registers.register_files import register_file

KNOWN = Latencies(shared_load=24, global_load=400, local=34, other=24, source_read=12)


def loop(*code):
    """A loop of (text, control) or texts, with a branch that is not counted as one of them."""
    made = tuple(
        Instruction(16 * number, text, word=with_control(0, control))
        for number, (text, control) in enumerate((each, Control()) if isinstance(each, str) else each for each in code)
    )
    return MainLoop(Function("f", "sm_90", made), made)


def cycles(body, warps=1, blocks=1, **how):
    """Cycles of a pass of one warp."""
    return body.ffma * warps * loop_cycles_per_ffma(body, Residents(warps, blocks, **how), known=KNOWN) / warps


FFMA = [f"FFMA R{54 + n % 4}, R25, R{26 + 2 * (n % 4)}, R40" for n in range(4)]


def test_what_never_waits_takes_an_issue_slot_each():
    body = loop(*["FFMA R1, R2, R3, RZ"] * 4, "NOP")
    for warps in (1, 2, 4):
        assert cycles(body, warps) == pytest.approx(5)


def test_a_stall_is_filled_by_another_warp():
    body = loop(("FFMA R1, R2, R3, RZ", Control(stall=4)), "NOP")
    assert cycles(body, 1) == pytest.approx(5)
    assert cycles(body, 2) == pytest.approx(2.5)
    assert cycles(body, 3) == pytest.approx(2)  # six slots cover it


def test_a_scoreboard_holds_until_the_load_is_there():
    load = ("LDG.E R4, desc[UR4][R6.64]", Control(write_barrier=0))
    body = loop(load, ("FFMA R1, R4, R3, RZ", Control(wait_mask=1)))
    assert cycles(body, 1) == pytest.approx(400 + 1)
    assert cycles(body, 4) == pytest.approx((400 + 1) / 4, rel=0.02)
    shared = loop(("LDS R4, [R6]", Control(write_barrier=2)), ("FFMA R1, R4, R3, RZ", Control(wait_mask=4)))
    assert cycles(shared, 1) == pytest.approx(24 + 1 + 1)
    assert cycles(shared, 1, load_wavefronts=8) == pytest.approx(4 * 8 + 24 - 3 * 8 + 1)


def test_what_is_read_from_a_register_may_be_overwritten_once_it_is_gone():
    body = loop(("STG.E desc[UR4][R6.64], R1", Control(read_barrier=1)), ("FFMA R1, R2, R3, RZ", Control(wait_mask=2)))
    assert cycles(body, 1) == pytest.approx(12 + 1)


def test_the_banks_serve_four_sub_cores():
    body = loop("LDS.128 R4, [R6]", *["FFMA R1, R2, R3, RZ"] * 4)
    for warps in (1, 4):
        assert cycles(body, warps, load_wavefronts=1) == pytest.approx(5)
        assert issue_cycles(body, register_file(), merged=1)[0] == 2
        assert cycles(body, warps, merged=1) == pytest.approx(6)


def test_a_barrier_waits_for_the_warps_of_its_block():
    slow = [("FFMA R1, R2, R3, RZ", Control(stall=15))]
    alone = loop(*slow, "BAR.SYNC.DEFER_BLOCKING 0x0")
    assert cycles(alone, 1) == pytest.approx(16)
    assert cycles(alone, 2, blocks=2) == pytest.approx(16 / 2)
    assert cycles(alone, 2, blocks=1) == pytest.approx(17 / 2)  # the second issues a cycle later, and both wait for it


def test_the_warp_that_has_waited_longest_comes_next():
    body = loop("FFMA R1, R2, R3, RZ")
    core = _SubCore(body.instructions, [1.0], Residents(4), KNOWN)
    core.now = 10
    for warp, issued, ready in zip(core.warps, (9, 5, 3, 1), (10, 10, 10, 12), strict=True):
        warp.issued, warp.ready = issued, ready
    core.current = core.warps[0]
    assert core.next_warp() is core.warps[0]  # as long as it can
    core.warps[0].ready = 11
    assert core.next_warp() is core.warps[2]  # the fourth would be, but stalls
    core.warps[1].ready = core.warps[2].ready = 20
    assert core.next_warp() is core.warps[0]
    assert core.now == 11


def test_groups_of_asynchronous_copies():
    copy = "LDGSTS.E [R4], desc[UR4][R6.64]"
    now, later = (loop(copy, "LDGDEPBAR", f"DEPBAR.LE SB0, {left:#x}", "FFMA R1, R2, R3, RZ") for left in (0, 1))
    assert cycles(now) == pytest.approx(400 + 4 - 1, abs=1)
    assert cycles(later) == pytest.approx((400 + 4) / 2, rel=0.02)  # that of the pass before


@given(st.integers(1, 8), st.lists(st.sampled_from([1, 2, 4, 9]), min_size=1, max_size=6))
def test_never_faster_than_issue_slots_nor_slower_than_one_warp(warps, stalls):
    body = loop(*[("FFMA R1, R2, R3, RZ", Control(stall=stall)) for stall in stalls])
    assert len(stalls) - 1e-9 <= cycles(body, warps) <= sum(stalls) + 1e-9


def test_nonsense():
    with pytest.raises(InputError, match="1 warps of 2 blocks"):
        Residents(1, 2)
    with pytest.raises(InputError, match="a share of 2 merges"):
        Residents(1, merged=2)
    with pytest.raises(InputError, match="no latencies of fermi; known: hopper"):
        latencies("fermi")
    with pytest.raises(InputError, match="shared_load 0; allowed"):
        Latencies(0, 1, 1, 1, 1)
