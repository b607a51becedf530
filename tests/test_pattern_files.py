"""Files of warp accesses: every line in its place, broken lines by their number."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gemmsim import pattern_files
from gemmsim.banks import passes
from gemmsim.errors import InputError
from gemmsim.pattern_files import count_file

DATA = Path(__file__).parent / "data"
ROW = list(range(0, 128, 4))
GOOD = {"op": "ld", "width_bits": 32, "lane_byte_address": ROW}


def measured(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / name).read_text().splitlines()]


def write(path: Path, *accesses: Any) -> Path:
    path.write_text("".join((each if isinstance(each, str) else json.dumps(each)) + "\n" for each in accesses))
    return path


def test_shared_memory_patterns_equal_the_hardware():
    counted = count_file(DATA / "shared_memory_patterns_h200.jsonl", "banks")
    expected = [
        {"wavefronts": each["wavefronts_per_instruction"], "conflicts": each["conflicts_per_instruction"]}
        for each in measured("shared_memory_patterns_h200.jsonl")
    ]
    assert len(expected) == 213
    assert counted.results == expected


def test_other_patterns_equal_the_hardware(tmp_path):
    everything = measured("memory_patterns_h200.jsonl")
    for command, names in (("banks", ("ldmatrix", "cp.async.ca")), ("coalescing", ("global",))):
        chosen = [each for each in everything if each["op"].startswith(names)]
        results = count_file(write(tmp_path / "some.jsonl", *chosen), command).results
        assert len(results) == len(chosen) >= 80
        for result, each in zip(results, chosen, strict=True):
            if command == "banks":
                assert result["wavefronts"] == each["shared_wavefronts"]
            else:
                assert (result["requests"], result["sectors"]) == (each["requests"], each["sectors"])


@pytest.mark.parametrize("at_once", [1, 7, 100_000])
def test_results_are_in_the_order_of_the_lines(tmp_path, monkeypatch, at_once):
    accesses = measured("shared_memory_patterns_h200.jsonl")
    random.Random(1).shuffle(accesses)
    monkeypatch.setattr(pattern_files, "LINES_AT_ONCE", at_once)
    counted = count_file(write(tmp_path / "some.jsonl", *accesses), "banks")
    for place, each in enumerate(accesses):
        active = [address is not None for address in each["lane_byte_address"]]
        addresses = [address or 0 for address in each["lane_byte_address"]]
        alone = passes(addresses, active, each["width_bits"] // 8, each["op"] == "st")
        assert counted.results[place] == {"wavefronts": int(alone.wavefronts), "conflicts": int(alone.excess)}
        assert (counted.lines[place], counted.operations[place]) == (place + 1, each["op"])


def test_blank_lines_a_mark_of_the_encoding_other_keys_and_compression(tmp_path):
    text = f"\ufeff{json.dumps(GOOD | {'note': [1, {}]})}\r\n\n  \n{json.dumps(GOOD | {'op': 'st'})}"
    plain, packed = tmp_path / "some.jsonl", tmp_path / "some.jsonl.gz"
    plain.write_bytes(text.encode())
    packed.write_bytes(gzip.compress(text.encode()))
    for path in (plain, packed):
        counted = count_file(path, "banks")
        assert counted.results == [{"wavefronts": 1, "conflicts": 0}] * 2
        assert counted.lines == (1, 4)


def test_an_access_without_active_lanes_costs_nothing(tmp_path):
    nobody = write(tmp_path / "a.jsonl", GOOD | {"lane_byte_address": [None] * 32})
    assert count_file(nobody, "banks").results == [{"wavefronts": 0, "conflicts": 0}]
    nobody = write(tmp_path / "a.jsonl", GOOD | {"op": "global load", "lane_byte_address": [None] * 32})
    assert count_file(nobody, "coalescing").results == [{"requests": 0, "sectors": 0, "lines": 0}]


def test_ldmatrix_looks_at_the_lanes_of_its_matrices_alone(tmp_path):
    rows = [16 * lane for lane in range(8)] + [None, 3] * 12
    one = GOOD | {"op": "ldmatrix x1", "width_bits": 128, "lane_byte_address": rows}
    assert count_file(write(tmp_path / "a.jsonl", one), "banks").results == [{"wavefronts": 1, "conflicts": 0}]
    with pytest.raises(InputError, match=r"line 1: lane 8 is null; allowed: an address: ldmatrix x2 needs .* 0 to 15"):
        count_file(write(tmp_path / "a.jsonl", one | {"op": "ldmatrix x2"}), "banks")


def changed(lane: int, address: Any) -> dict[str, Any]:
    return GOOD | {"lane_byte_address": [address if own == lane else there for own, there in enumerate(ROW)]}


BROKEN = {
    "{": "not readable as JSON (Expecting property name",
    "nothing": "not readable as JSON (Expecting value)",
    '{"op": NaN}': "width_bits is missing",
    "[" * 5000: "not readable as JSON (RecursionError)",
    "9" * 5000: "not readable as JSON (ValueError)",
    "\ud800": "not readable as JSON (UnicodeDecodeError)",
    "[]": "[] is no JSON object; needed: op, width_bits, lane_byte_address",
    "null": "None is no JSON object",
    '"ld"': "'ld' is no JSON object",
    "{}": "op is missing; needed: op, width_bits, lane_byte_address",
    '{"op": "ld", "width_bits": 32}': "lane_byte_address is missing",
    json.dumps(GOOD | {"op": "load"}): "unknown op 'load'; ",
    json.dumps(GOOD | {"op": "LD"}): "unknown op 'LD'; nearest: ld",
    json.dumps(GOOD | {"op": 5}): "unknown op '5'; known: ld, st, ldmatrix x1",
    json.dumps(GOOD | {"op": None}): "unknown op 'None'",
    json.dumps(GOOD | {"op": ["ld"]}): "unknown op \"['ld']\"",
    json.dumps(GOOD | {"op": "global load"}): "op global load; allowed here: ld, st, ldmatrix x1, ldmatrix x2, "
    "ldmatrix x4, cp.async.ca (through L1), cp.async.cg (past L1); `gemmsim coalescing` takes global load",
    json.dumps(GOOD | {"width_bits": 48}): "width_bits 48 of ld does not exist; allowed: 8, 16, 32, 64, 128",
    json.dumps(GOOD | {"width_bits": 32.0}): "width_bits 32.0 of ld does not exist",
    json.dumps(GOOD | {"width_bits": True}): "width_bits True of ld",
    json.dumps(GOOD | {"width_bits": "32"}): "width_bits '32' of ld",
    json.dumps(GOOD | {"width_bits": None}): "width_bits None of ld",
    json.dumps(GOOD | {"op": "ldmatrix x4"}): "width_bits 32 of ldmatrix x4 does not exist; allowed: 128",
    json.dumps(GOOD | {"op": "cp.async.ca (through L1)", "width_bits": 16}): "allowed: 32, 64, 128",
    json.dumps(GOOD | {"op": "cp.async.cg (past L1)", "width_bits": 64}): "allowed: 128",
    json.dumps(GOOD | {"lane_byte_address": ROW[:31]}): "lane_byte_address is 31 entries; allowed: a list of 32",
    json.dumps(GOOD | {"lane_byte_address": [*ROW, 0]}): "lane_byte_address is 33 entries",
    json.dumps(GOOD | {"lane_byte_address": {}}): "lane_byte_address is {}; allowed: a list of 32",
    json.dumps(GOOD | {"lane_byte_address": None}): "lane_byte_address is None",
    json.dumps(GOOD | {"lane_byte_address": "0" * 32}): "lane_byte_address is '000",
    json.dumps(changed(7, -4)): "lane 7 has the byte address -4; allowed: whole numbers from 0 to 9223372036854775807",
    json.dumps(changed(31, 1.0)): "lane 31 has the byte address 1.0",
    json.dumps(changed(0, False)): "lane 0 has the byte address False",
    json.dumps(changed(3, "12")): "lane 3 has the byte address '12'",
    json.dumps(changed(3, [12])): "lane 3 has the byte address [12]",
    json.dumps(changed(5, 2**63)): "lane 5 has the byte address 9223372036854775808",
    json.dumps(changed(5, 10**300)): "lane 5 has the byte address 1000",
    json.dumps(changed(9, float("nan"))): "lane 9 has the byte address nan",
    json.dumps(changed(6, 2)): "lane 6 is misaligned: a 32-bit access at byte address 0x2 (0x2 % 4 = 2)",
    json.dumps(GOOD | {"op": "st", "width_bits": 128}): "lane 1 is misaligned: a 128-bit access at byte address 0x4",
    json.dumps(GOOD | {"op": "ldmatrix x1", "width_bits": 128}): "lane 1 is misaligned",
    json.dumps(GOOD) + json.dumps(GOOD): "not readable as JSON (Extra data)",
    " " * 200_000: "longer than 100000 bytes",
}  # fmt: skip


@pytest.mark.parametrize("line", BROKEN, ids=[f"{number}" for number in range(len(BROKEN))])
def test_a_broken_line_is_named(tmp_path, line):
    path = tmp_path / "some.jsonl"
    good = json.dumps(GOOD)
    path.write_bytes("\n".join((good, "", good, line, good)).encode(errors="surrogatepass"))
    with pytest.raises(InputError) as refusal:
        count_file(path, "banks")
    assert str(refusal.value).startswith(f"{path}, line 4: ")
    assert BROKEN[line] in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_the_other_way_round(tmp_path):
    with pytest.raises(
        InputError, match=r"line 1: op ld; allowed here: global load, global store; `gemmsim banks` takes ld"
    ):
        count_file(write(tmp_path / "a.jsonl", GOOD), "coalescing")


def test_files_that_cannot_be_read(tmp_path):
    (tmp_path / "empty.jsonl").write_text("\n \n")
    (tmp_path / "plain.gz").write_text(json.dumps(GOOD))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(bytes(range(256)) * 1000)[:-20])
    packed = bytearray(gzip.compress(json.dumps(GOOD).encode() * 50))
    packed[30:60] = bytes(30)
    (tmp_path / "damaged.gz").write_bytes(bytes(packed))
    for name, says in (
        ("nowhere.jsonl", "cannot read .*nowhere.jsonl: No such file"),
        (".", "cannot read .*: Is a directory"),
        ("empty.jsonl", "empty.jsonl: no access in it; needed: lines of op, width_bits and lane_byte_address"),
        ("plain.gz", "cannot read .*plain.gz: Not a gzipped file"),
        ("cut.gz", "cut.gz"),
        ("damaged.gz", "damaged.gz"),
    ):
        with pytest.raises(InputError, match=says):
            count_file(tmp_path / name, "banks")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
LANES = st.lists(st.none() | st.integers(0, 64).map(lambda word: 16 * word), min_size=32, max_size=32)
ACCESSES = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["ld", "st", "ldmatrix x2", "cp.async.ca (through L1)", "global load"]) | ANYTHING,
        "width_bits": st.sampled_from([8, 32, 64, 128]) | ANYTHING,
        "lane_byte_address": LANES | st.lists(ANYTHING, min_size=32, max_size=32) | ANYTHING,
    },
)


@given(st.lists(ACCESSES.map(json.dumps) | st.text(max_size=20), max_size=4), st.sampled_from(["banks", "coalescing"]))
def test_any_file_is_counted_or_one_line(tmp_path_factory, lines, command):
    path = tmp_path_factory.mktemp("any", numbered=True) / "a.jsonl"
    path.write_bytes("\n".join(lines).encode(errors="surrogatepass"))
    try:
        counted = count_file(path, command)
    except InputError as error:
        message = str(error)
    else:
        assert all(value >= 0 for result in counted.results for value in result.values())
        assert len(counted.results) == len(counted.lines) > 0
        message = ""
    assert len(message.replace(str(path), "")) < 600


def test_a_large_file_takes_little_memory_and_time(tmp_path):
    generator = np.random.default_rng(1)
    rows = (4 * generator.integers(0, 4096, (200, 32))).tolist()
    line = [json.dumps(GOOD | {"lane_byte_address": row}) + "\n" for row in rows]
    path = tmp_path / "many.jsonl"
    path.write_text("".join(line * 100))
    counted = count_file(path, "banks")
    assert len(counted.results) == 20_000
    assert counted.results[:200] == counted.results[-200:]
