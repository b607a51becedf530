"""Calibrations: what files hold, what a GPU without one inherits, and what is refused."""

from __future__ import annotations

import dataclasses
import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim.calibration import Calibration, calibrated, calibration, load_calibration
from gemmsim.calibration import lending as module
from gemmsim.calibration.files import (
    CalibrationFile,
    Entry,
    read_calibration_file,
    toml_text,
    write_calibration_file,
)
from gemmsim.calibration.lending import Lender, lenders, scaled
from gemmsim.calibration.numbers import NAMES, range_of
from gemmsim.device import device, devices
from gemmsim.errors import InputError, MachineError

H200 = device("h200")
PUBLISHED = tomllib.loads(module.PUBLISHED.read_text(encoding="utf-8"))
MEASURED = {  # of a GPU like the H200, made up
    "clock_hz": 1.9e9,
    "ffma_per_cycle_per_sm": 127.0,
    "l1_latency_cycles": 31.5,
    "l2_latency_near_cycles": 260.0,
    "l2_latency_spread_cycles": 40.0,
    "l2_bytes_per_s": 6e12,
    "l2_far_bytes_per_s": 4.5e12,
    "dram_latency_cycles": 660.0,
    "dram_bytes_per_s": 4.32e12,
    "launch_s": 2e-6,
}


@pytest.fixture
def only(monkeypatch):
    """Makes these lenders the only ones there are."""

    def use(*known: Lender) -> None:
        monkeypatch.setattr(module, "lenders", lambda: known)
        module._calibration.cache_clear()

    yield use
    module._calibration.cache_clear()


def measured(name: str, **changed: float) -> Lender:
    entries = {key: Entry(value, f"measured on {name}") for key, value in (MEASURED | changed).items()}
    return Lender.of_file(device(name), CalibrationFile(name, entries))


def published(capability: str, clock_hz: float, **numbers: float) -> Lender:
    entries = {key: Entry(value, "a paper") for key, value in numbers.items()}
    return Lender("a GPU", capability, clock_hz, entries)


@pytest.mark.parametrize("name", devices())
def test_every_gpu_has_numbers_and_each_its_source(name):
    found = calibration(device(name))
    assert found.device == name
    assert found.own == (name in calibrated())
    assert set(found.sources) == set(found.numbers)
    assert set(found.inherited) <= set(found.numbers)
    for needed in ("l1_latency_cycles", "l2_latency_near_cycles", "dram_latency_cycles", "dram_bytes_per_s"):
        assert needed in found.numbers
    assert found.l1_latency_cycles < found.l2_latency_near_cycles < found.dram_latency_cycles
    if not found.own:
        assert all(
            found.sources[each].startswith(("inherited", "published", "not measured")) for each in found.inherited
        )


def test_what_is_published_is_what_the_literature_says():
    # gpu-benches, gpu-latency: L1, L2, memory
    rows = {
        "7.0": (28, 212, 425),
        "8.0": (33, 206, 550),
        "8.6": (33, 250, 550),
        "8.9": (34, 274, 624),
        "9.0": (32, 280, 685),
    }
    for name, row in rows.items():
        table = PUBLISHED[name]
        assert (
            tuple(table[f"{key}_cycles"]["value"] for key in ("l1_latency", "l2_latency_near", "dram_latency")) == row
        )
    for table in PUBLISHED.values():
        assert all(entry["source"] for key, entry in table.items() if key not in ("gpu", "clock_hz"))


def test_own_numbers_come_before_all_others(only):
    only(
        published("9.0", 1980e6, l1_latency_cycles=99, copy_latency_cycles=500), measured("h100-pcie"), measured("h200")
    )
    found = calibration(H200)
    assert found.own
    assert {name: getattr(found, name) for name in MEASURED} == MEASURED
    assert found.sources["launch_s"] == "measured on h200"
    assert "launch_s" not in found.inherited
    assert found.copy_latency_cycles == 500
    assert found.inherited == ("shared_bytes_per_cycle", "dram_write_bytes_per_s", "copy_latency_cycles")


def test_the_nearest_lends(only):
    ampere = published("8.0", 1410e6, l1_latency_cycles=8, launch_s=8e-6)
    ada = published("8.9", 2490e6, l1_latency_cycles=9)
    only(ampere, ada, measured("h200"))
    found = calibration(device("rtx-3090"))  # 8.6: 8.9 is nearer than 8.0, and its generation nearer than 9.0
    assert (found.own, found.l1_latency_cycles, found.launch_s) == (False, 9, 8e-6)
    assert found.sources["l1_latency_cycles"] == "published for the a GPU (compute capability 8.9): a paper"
    assert found.l2_latency_near_cycles == 260
    assert calibration(device("h100-pcie")).sources["launch_s"] == (
        "inherited from the NVIDIA H200 (compute capability 9.0): measured on h200"
    )


def test_measured_comes_before_published_at_the_same_distance(only):
    only(published("9.0", 1980e6, launch_s=9e-6), measured("h200"))
    assert calibration(device("h100-sxm")).launch_s == 2e-6


def test_a_capability_of_ones_own_comes_before_a_measured_gpu_of_another(only):
    only(published("8.6", 1740e6, launch_s=9e-6), measured("a100-80gb-sxm"))
    assert calibration(device("a40")).launch_s == 9e-6


def test_what_is_lent_is_scaled_where_physics_says_how(only):
    only(measured("h200"))
    to = device("h100-pcie")  # 114 SMs at 1755 MHz for 132 at 1980, 2039 GB/s for 4800
    found = calibration(to)
    faster = 1755 / 1980
    assert found.clock_hz == pytest.approx(1.9e9 * faster)
    assert found.dram_bytes_per_s == pytest.approx(4.32e12 * 2039 / 4800)
    assert found.dram_latency_cycles == pytest.approx(260 + 400 * faster)
    assert (found.l1_latency_cycles, found.ffma_per_cycle_per_sm, found.launch_s) == (31.5, 127, 2e-6)
    assert found.l2_bytes_per_s == to.measured_l2_bytes_per_s == 6950e9  # of the device file; its other rates with it
    assert found.l2_far_bytes_per_s == pytest.approx(6950e9 * 0.75)
    nvl = device("h100-nvl")
    assert nvl.l2_is_inherited
    assert calibration(nvl).l2_bytes_per_s == pytest.approx(6e12 * nvl.sms / 132 * nvl.clock_hz / 1980e6)
    assert calibration(device("t4")).ffma_per_cycle_per_sm == 63.5


@given(st.sampled_from(devices()), st.sampled_from(devices()))
def test_what_a_gpu_lends_to_itself_is_unchanged(lender, to):
    known = measured(lender)
    for name, value in MEASURED.items():
        assert scaled(name, value, known, known.device, MEASURED) == pytest.approx(value)
        there = scaled(name, value, known, device(to), MEASURED)
        back = dataclasses.replace(known, clock_hz=device(to).clock_hz, capability=device(to).capability.name,
                                   device=device(to))  # fmt: skip
        assert scaled(name, there, back, device(lender), MEASURED) == pytest.approx(value)


def test_two_halves_of_l2_are_not_lent_to_a_gpu_that_has_one(only):
    only(published("8.6", 1740e6, l2_latency_near_cycles=250), measured("h200", l2_latency_far_cycles=500))
    found = calibration(device("a40"))
    assert (found.l2_latency_near_cycles, found.l2_latency_far_cycles, found.l2_latency_spread_cycles) == (
        250,
        None,
        None,
    )
    assert found.launch_s == 2e-6


def test_rates_cannot_be_lent_by_a_gpu_that_is_not_known(only):
    only(published("9.0", 1980e6, dram_bytes_per_s=4e12))
    with pytest.raises(InputError, match="dram_bytes_per_s cannot be lent by the a GPU, whose SMs"):
        calibration(H200)


def test_where_nothing_was_measured_the_datasheet_stands_in(only):
    only()
    found = calibration(H200)
    assert not found.own
    assert found.numbers == {
        "clock_hz": 1980e6, "ffma_per_cycle_per_sm": 128, "shared_bytes_per_cycle": 128, "l2_bytes_per_s": 9700e9,
        "dram_bytes_per_s": 4800e9, "dram_write_bytes_per_s": 4800e9,
    }  # fmt: skip
    assert found.sources["dram_bytes_per_s"] == "not measured; the datasheet's peak"
    assert "gpu-benches" in found.sources["l2_bytes_per_s"]
    assert found.barrier_cycles(8) is None


def test_a_device_made_by_hand_does_not_take_a_name_for_itself(only):
    only(measured("h200"))
    other = dataclasses.replace(H200, clock_hz=990e6, published_fp32_flop_per_s=None)
    assert not calibration(other).own
    assert calibration(other).clock_hz == pytest.approx(0.95e9)


def test_barriers_are_linear_between_what_was_measured():
    row = {4: 20.0, 8: 24.0, 16: 36.0, 32: 70.0}
    found = Calibration("x", **{f"barrier_{warps}_warps_cycles": cycles for warps, cycles in row.items()})
    assert [found.barrier_cycles(warps) for warps in row] == list(row.values())
    assert found.barrier_cycles(12) == 30
    assert found.barrier_cycles(1) == 20
    assert np.array_equal(found.barrier_cycles(np.array([[8, 24]])), [[24, 53]])


def test_latencies_by_width():
    found = Calibration("x", shared_load_latency_128_bit_cycles=33)
    assert (found.shared_load_latency_cycles(128), found.shared_load_latency_cycles(32)) == (33, None)
    with pytest.raises(InputError, match="16 bits; allowed: 32, 64, 128"):
        found.shared_load_latency_cycles(16)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("beyond", ["least", "most"])
def test_numbers_out_of_range_are_refused(name, beyond):
    least, most, _ = range_of(name)
    value = least - 1 if beyond == "least" else most * 1.01
    with pytest.raises(InputError, match=rf"{name} must not be .*; allowed: "):
        Calibration("x", **{name: value})
    with pytest.raises(InputError, match=rf"{name} must not be nan"):
        Calibration("x", **{name: math.nan})


def test_an_l2_that_is_faster_far_than_near_is_refused():
    with pytest.raises(InputError, match="l2_latency_far_cycles 200 is less than l2_latency_near_cycles 280"):
        Calibration("x", l2_latency_near_cycles=280, l2_latency_far_cycles=200)


# Files

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.strip)
NUMBER = st.floats(1e-9, 1e15) | st.integers(1, 10**15).map(float)
ENTRIES = st.dictionaries(
    st.sampled_from(NAMES), st.builds(Entry, NUMBER, TEXT, TEXT | st.just(""), st.lists(NUMBER, max_size=3).map(tuple))
)
RECORDS = st.dictionaries(
    TEXT,
    st.recursive(
        TEXT | NUMBER | st.booleans() | st.lists(NUMBER), lambda inner: st.dictionaries(TEXT, inner), max_leaves=5
    ),
)


@given(TEXT, ENTRIES, st.dictionaries(st.sampled_from(["ffma", "l2"]), RECORDS))
def test_files_are_read_as_they_were_written(name, entries, parts):
    read = tomllib.loads(toml_text(CalibrationFile(name, entries, parts)))
    assert read.pop("device") == name
    kept = read.pop("parts", {})
    assert same(kept, parts)
    assert {key: Entry.from_toml(key, table) for key, table in read.items()}.keys() == entries.keys()
    for key, entry in entries.items():
        again = Entry.from_toml(key, read[key])
        assert again.value == pytest.approx(entry.value, rel=1e-8)
        assert again.samples == pytest.approx(entry.samples, rel=1e-8)


def same(found: Any, expected: Any) -> bool:
    """Equal, numbers up to the digits that are written."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == (pytest.approx(expected, rel=1e-8) if isinstance(expected, float) else expected))


def test_a_file_makes_a_gpu_calibrated(tmp_path):
    path = tmp_path / "mine.toml"
    entries = {"l1_latency_cycles": Entry(30.5, "measured here", samples=(30.0, 30.5, 31.0))}
    write_calibration_file(
        path, CalibrationFile("h200", entries, {"l1": {"seconds": 0.5, "environment": {"cuda": "13.0"}}})
    )
    assert [each.name for each in tmp_path.iterdir()] == ["mine.toml"]
    assert read_calibration_file(path).entries == entries
    found = load_calibration(path, H200)
    assert (found.own, found.l1_latency_cycles) == (True, 30.5)
    assert found.sources["l1_latency_cycles"] == "measured here"
    assert found.l2_latency_near_cycles == calibration(H200).l2_latency_near_cycles


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("l1_latency_cycles = 0.5", "l1_latency_cycles must not be 0.5; allowed: 1 to 20000 cycles"),
        ("l1_latency_cycle = 30", "unknown key 'l1_latency_cycle'; nearest: l1_latency_cycles"),
        ("[launch_s]\nsource = 'x'", "launch_s has no value; needed: launch_s = ..."),
        ("launch_s = 'fast'", "launch_s must be a number, not 'fast'"),
        ("launch_s = nan", "launch_s must be a number, not nan"),
        ("[launch_s]\nvalue = 1e-6\nsauce = 'x'", "unknown key 'launch_s.sauce'; nearest: launch_s.source"),
        ("[launch_s]\nvalue = 1e-6\nsamples = 3", "launch_s.samples must be a list of numbers, not 3"),
        ("[launch_s]\nvalue = 1e-6\nsamples = ['x']", "launch_s.samples must be a number, not 'x'"),
        ("[launch_s]\nvalue = 1e-6\nsource = ''", "launch_s.source must be a text that is not empty, not ''"),
        ("device = 3", "device must be a text that is not empty, not 3"),
        ("parts = 3", "parts must be tables"),
        ("not toml", "is not readable as TOML"),
    ],
)
def test_unusable_files_are_refused_in_one_line(tmp_path, text, message):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(InputError) as refused:
        load_calibration(path, H200)
    assert str(refused.value).startswith(f"calibration file {path}")
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_files_that_are_not_there_or_too_large_are_refused(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_calibration(tmp_path / "none.toml", H200)
    with pytest.raises(InputError, match="is not a file"):
        load_calibration(tmp_path, H200)
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * 4_000_001)
    with pytest.raises(InputError, match="is larger than 4000000 bytes"):
        load_calibration(large, H200)


def test_a_file_that_cannot_be_written_is_an_error_of_one_line(tmp_path):
    with pytest.raises((InputError, MachineError), match="cannot write"):
        write_calibration_file(tmp_path / "no" / "folder.toml", CalibrationFile("x"))


def test_a_part_takes_the_place_of_what_it_measured_before():
    old = CalibrationFile("x", {"launch_s": Entry(1e-6), "clock_hz": Entry(1e9)}, {"launch": {"seconds": 1.0}})
    new = old.with_part("launch", {"launch_s": Entry(2e-6)}, {"seconds": 2.0})
    assert new.entries == {"launch_s": Entry(2e-6), "clock_hz": Entry(1e9)}
    assert new.parts == {"launch": {"seconds": 2.0}}


def test_all_shipped_files_can_be_read():
    assert {each.capability for each in lenders()} >= set(PUBLISHED)
    for path in module.FOLDER.glob("*.toml"):
        if path != module.PUBLISHED:
            assert read_calibration_file(path).device == path.stem
            assert path.stem in devices()
