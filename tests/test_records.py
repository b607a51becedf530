"""Points and records: the same after a round trip through JSON, and nothing lost by damage."""

from __future__ import annotations

import codecs
import errno
import json
import math
from dataclasses import replace
from typing import Any

import pytest
from examples import example
from hypothesis import given
from hypothesis import strategies as st

from gemmsim import record_files, records
from gemmsim.errors import InputError, MachineError
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.record_files import append_record, latest, read_points, read_records, scan_records, shipped_records
from gemmsim.records import Failure, Point, Record, Resources

POINT = Point(Problem(512, 384, 96), "register", example("register"))
RESOURCES = Resources(registers_per_thread=96, shared_bytes=8192, local_bytes=0, blocks_per_sm=2)
SAMPLES_S = (2e-4, 1e-4, 3e-4)
RECORD = Record(
    POINT,
    "h200",
    "ok",
    resources=RESOURCES,
    samples_s=SAMPLES_S,
    median_s=2e-4,
    verification_error=1e-7,
    counters={"ffma": 2**62},
    environment={"gpu": "NVIDIA H200", "l2_flushed": True},
)

sizes = st.integers(1, 5000)
points = st.builds(
    lambda name, m, n, k: Point(Problem(m, n, k), name, example(name)),
    st.sampled_from(list(KERNELS)),
    sizes,
    sizes,
    sizes,
)
seconds = st.floats(1e-9, 1e3)
counts = st.integers(0, records.MOST_COUNTED)
json_values = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
environments = st.dictionaries(st.text(), json_values, max_size=5)
limited = {name: st.integers(0, most) for name, most in records.MOST.items()}
resources = st.fixed_dictionaries({**limited, "blocks_per_sm": st.none() | limited["blocks_per_sm"]})
measured = st.builds(
    lambda point, samples, **rest: Record(
        point, "h200", "ok", samples_s=samples, median_s=sorted(samples)[len(samples) // 2], **rest
    ),
    points,
    st.lists(seconds, min_size=1, max_size=5).map(tuple),
    resources=st.none() | resources,
    verification_error=st.floats(0, 1),
    counters=st.none() | st.dictionaries(st.text(), counts, max_size=3),
    environment=environments,
)
refused = st.builds(Record.failed, points, st.just("h100-sxm"), st.builds(Failure, st.text()), environments)
any_record = measured | refused


@given(points)
def test_a_point_comes_back_from_json(point):
    assert Point.from_dict(json.loads(json.dumps(point.to_dict()))) == point


@given(any_record)
def test_a_record_comes_back_from_json(record):
    line = json.dumps(record.to_dict(), allow_nan=False)
    assert Record.from_dict(json.loads(line)) == record


@given(points, points)
def test_keys_are_equal_exactly_for_equal_points(one, other):
    assert (one.key == other.key) == (one == other)


def test_key_of_another_padding_is_another():
    padded = replace(POINT, tiling=replace(POINT.tiling, pad_a=4))
    assert padded.key != POINT.key


def test_unknown_keys_are_ignored():
    data = POINT.to_dict()
    data["comment"] = "mine"
    data["tiling"] = {**data["tiling"], "colour": "red", "vector": None}
    assert Point.from_dict(data) == POINT
    assert Record.from_dict({**RECORD.to_dict(), "mood": 1}) == RECORD


def test_dtype_is_optional():
    data = POINT.to_dict()
    del data["dtype"]
    assert Point.from_dict(data) == POINT


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"m": None}, "m None"),
        ({"m": 0}, "m 0 is out of range"),
        ({"m": 1.5}, "m 1.5"),
        ({"m": "12"}, "m '12'"),
        ({"m": [1, 2]}, "m [1, 2]"),
        ({"kernel": "registr"}, "nearest: register"),
        ({"kernel": ["register"]}, "unknown kernel"),
        ({"dtype": "fp8"}, "unknown dtype 'fp8'"),
        ({"tiling": 8}, "tiling must be an object"),
        ({"tiling": {"block_m": 128}}, "needs block_n"),
        ({"tiling": {**POINT.to_dict()["tiling"], "thread_m": 7}}, "thread_m 7 does not divide"),
        ({"tiling": {**POINT.to_dict()["tiling"], "vector": 4}}, "no vector"),
        ({"tiling": {**POINT.to_dict()["tiling"], "split_k": 4}}, "no split_k"),
    ],
)
def test_a_bad_point_names_the_place_and_the_value(change, said):
    with pytest.raises(InputError, match=r"^points\.jsonl, line 3: ") as caught:
        Point.from_dict({**POINT.to_dict(), **change}, "points.jsonl, line 3")
    assert said in str(caught.value)


@pytest.mark.parametrize("key", ["m", "n", "k", "kernel"])
def test_a_missing_key_is_named(key):
    data = POINT.to_dict()
    del data[key]
    with pytest.raises(InputError, match=f"{key} is missing"):
        Point.from_dict(data)


@pytest.mark.parametrize(
    "change",
    [
        {"status": "fine"},
        {"status": "failed"},
        {"failure": "but it failed"},
        {"median_s": None},
        {"median_s": -1.0},
        {"median_s": math.inf},
        {"median_s": 1.0},
        {"median_s": 1e308, "samples_s": (1e308,)},
        {"median_s": 5e-324, "samples_s": (5e-324,)},
        {"samples_s": ()},
        {"samples_s": (1e-4, 0)},
        {"counters": {"ffma": -1}},
        {"counters": {"ffma": 1.5}},
        {"counters": {"ffma": 2**64}},
        {"samples_s": (10**400,)},
        {"samples_s": (True,)},
        {"verification_error": -1e-9},
        {"verification_error": math.nan},
        {"verification_error": math.inf},
        {"verification_error": "small"},
        {"verification_error": True},
        {"verification_error": 10**400},
        {"status": "failed", "failure": "timeout", "median_s": math.nan},
        {"resources": {**RESOURCES, "registers_per_thread": 256}},
        {"resources": {**RESOURCES, "registers_per_thread": 31.5}},
        {"resources": {**RESOURCES, "registers_per_thread": None}},
        {"resources": {**RESOURCES, "shared_bytes": -1}},
        {"resources": {**RESOURCES, "shared_bytes": 2**40}},
        {"resources": {**RESOURCES, "local_bytes": 2**40}},
        {"resources": {**RESOURCES, "blocks_per_sm": 1000}},
        {"resources": 7},
        {"device": ""},
    ],
    ids=str,
)
def test_a_record_that_contradicts_itself_is_refused(change):
    with pytest.raises(InputError):
        replace(RECORD, **change)


def test_an_environment_has_few_levels(tmp_path):
    deep: Any = 1
    for _ in range(600):
        deep = {"a": [deep]}
    with pytest.raises(InputError, match=r"environment is nested too deep; allowed: up to 16 levels"):
        replace(RECORD, environment=deep)
    assert replace(RECORD, environment={"a": {"b": [1, {"c": 2}]}}).environment["a"] == {"b": [1, {"c": 2}]}


def test_a_record_of_a_later_schema_is_refused():
    with pytest.raises(InputError, match="update gemmsim"):
        Record.from_dict({**RECORD.to_dict(), "schema": records.SCHEMA + 1})


def test_a_failure_is_one_line():
    assert Failure("two\nlines\t of it ").reason == "two lines of it"
    assert Failure(" \n").reason


class TestFiles:
    @pytest.fixture
    def path(self, tmp_path):
        return tmp_path / "records.jsonl"

    def test_appended_records_are_read_in_order(self, path):
        other = replace(RECORD, median_s=1e-4)
        append_record(path, RECORD)
        append_record(path, other)
        assert read_records(path) == ([RECORD, other], [])

    def test_a_cut_last_line_is_survived_and_loses_nothing(self, path):
        append_record(path, RECORD)
        append_record(path, RECORD)
        whole = path.read_bytes()
        start = whole.index(b"\n") + 1
        for length in range(start + 1, len(whole) - 1):  # the crash may come after any byte
            path.write_bytes(whole[:length])
            found, warnings = read_records(path)
            assert found == [RECORD]
            assert len(warnings) == 1
            assert "line 2" in warnings[0]
            assert "cut off" in warnings[0]
        append_record(path, replace(RECORD, device="h100-sxm"))
        found, warnings = read_records(path)
        assert [record.device for record in found] == ["h200", "h100-sxm"]
        assert len(warnings) == 1
        assert "cut off" not in warnings[0]

    def test_points_are_no_records(self):
        with pytest.raises(InputError, match="point is missing; needed: a record, as `gemmsim measure` writes it"):
            Record.from_dict(RECORD.point.to_dict())

    def test_a_record_without_the_end_of_its_line_counts(self, path):
        append_record(path, RECORD)
        path.write_bytes(path.read_bytes().rstrip(b"\n"))
        append_record(path, RECORD)
        assert read_records(path) == ([RECORD, RECORD], [])

    @pytest.mark.parametrize(
        "damage",
        [b"{", b"nonsense", b"\xff\xfe\x00", b"[" * 100_000, b"[]", b"3", b'{"point": {}}', b'{"m": NaN}', b"9" * 5000],
        ids=lambda damage: damage[:12].decode("latin1"),
    )
    def test_a_damaged_line_is_skipped_with_its_number(self, path, damage):
        append_record(path, RECORD)
        line = path.read_bytes()
        path.write_bytes(line + damage + b"\n\n" + line)
        found, warnings = read_records(path)
        assert found == [RECORD, RECORD]
        assert len(warnings) == 1
        assert f"{path}, line 2: " in warnings[0]
        assert "\n" not in warnings[0]

    @pytest.mark.parametrize(
        ("change", "said"),
        [
            ({"verification_error": "none"}, "verification_error 'none' is not a number from 0"),
            (
                {"resources": {**RESOURCES, "registers_per_thread": 999}},
                "999 is not a whole number from 0 to 255",
            ),
            ({"resources": {**RESOURCES, "blocks_per_sm": -1}}, "blocks_per_sm -1"),
            ({"samples_s": [10**400]}, "samples_s 1000"),
            ({"median_s": "fast"}, "median_s 'fast'"),
        ],
    )
    def test_a_record_with_a_number_of_no_measurement_is_skipped_as_damage_is(self, path, change, said):
        append_record(path, RECORD)
        with open(path, "a") as file:
            file.write(json.dumps({**RECORD.to_dict(), **change}) + "\n")
        append_record(path, RECORD)
        found, (warning,) = read_records(path)
        assert found == [RECORD, RECORD]
        assert f"{path}, line 2: " in warning
        assert said in warning

    def test_asking_whether_it_can_be_written_changes_nothing(self, path):
        record_files.check_writable(path)
        assert not path.exists()
        append_record(path, RECORD)
        record_files.check_writable(path)
        assert read_records(path) == ([RECORD], [])

    @pytest.mark.parametrize("content", [b"", b"\n\n", b"damaged\n", b'{"schema": 99}\n'])
    def test_nothing_usable_is_an_error(self, path, content):
        path.write_bytes(content)
        with pytest.raises(InputError, match="no record"):
            read_records(path)
        assert scan_records(path)[0] == []

    def test_a_missing_file_is_an_error(self, path):
        with pytest.raises(InputError, match="cannot read"):
            read_records(path)
        with pytest.raises(InputError, match="cannot read"):
            read_points(path)

    def test_a_path_that_cannot_be_written_is_unusable_and_a_full_disk_the_machines(self, tmp_path, path, monkeypatch):
        with pytest.raises(InputError, match="cannot write"):
            append_record(tmp_path / "missing" / "records.jsonl", RECORD)
        with pytest.raises(InputError, match="cannot write"):
            record_files.check_writable(tmp_path)

        def full(_):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(record_files.os, "fsync", full)
        with pytest.raises(MachineError, match="No space left"):
            append_record(path, RECORD)

    def test_what_json_lacks_is_no_record(self, path):
        for odd in (math.nan, {1, 2}):
            with pytest.raises(InputError, match="cannot be written as JSON"):
                append_record(path, replace(RECORD, environment={"odd": odd}))
        assert not path.exists()

    def test_a_mark_before_the_first_line_is_passed_over(self, path):
        append_record(path, RECORD)
        path.write_bytes(codecs.BOM_UTF8 + path.read_bytes())
        assert read_records(path) == ([RECORD], [])
        path.write_bytes(codecs.BOM_UTF8 + json.dumps(POINT.to_dict()).encode())
        assert read_points(path) == [POINT]

    def test_of_many_damaged_lines_the_first_are_told(self, path):
        append_record(path, RECORD)
        path.write_bytes(path.read_bytes() + b"damaged\n" * 1000)
        _, warnings = read_records(path)
        assert len(warnings) == 21
        assert "line 2: " in warnings[0]
        assert warnings[-1] == f"{path}: and 980 more"

    def test_a_value_of_a_file_is_told_in_short_and_without_what_steers_terminals(self, path):
        for change in (
            {"point": {**POINT.to_dict(), "m": "\x1b" * 100_000}},
            {"status": "\x1b" * 100_000},
            {"samples_s": "\x1b" * 100_000},
            {"schema": "\x1b" * 100_000},
            {"environment": [[1] * 999] * 9},
        ):
            append_record(path, RECORD)
            with open(path, "a") as file:
                file.write(json.dumps({**RECORD.to_dict(), **change}) + "\n")
            _, (warning,) = read_records(path)
            assert len(warning) < 300
            assert "\x1b" not in warning
            path.unlink()

    def test_points_are_read_and_a_broken_one_is_named(self, path):
        good = json.dumps(POINT.to_dict())
        path.write_text(f"{good}\n\n{good}\n")
        assert read_points(path) == [POINT, POINT]
        path.write_text(f"{good}\n\n{good[:-1]}\n")
        with pytest.raises(InputError, match=r"line 3: not readable as JSON"):
            read_points(path)
        path.write_text("\n")
        with pytest.raises(InputError, match="no point"):
            read_points(path)


def test_latest_keeps_the_last_of_each_point_and_device():
    again, elsewhere = replace(RECORD, median_s=1e-4), replace(RECORD, device="h100-sxm")
    other = replace(RECORD, point=replace(POINT, problem=Problem(64, 64, 64)))
    assert latest([RECORD, other, elsewhere, again]) == [again, other, elsewhere]


def test_a_later_failure_hides_no_result():
    failed = Record.failed(POINT, "h200", Failure("timeout"), {})
    once_more, again = Record.failed(POINT, "h200", Failure("died"), {}), replace(RECORD, median_s=1e-4)
    assert latest([RECORD, failed]) == latest([failed, RECORD]) == [RECORD]
    assert latest([RECORD, failed, again, once_more]) == [again]
    assert latest([failed, once_more]) == [once_more]


def test_a_point_says_all_that_tells_it_from_others():
    padded = replace(POINT, tiling=replace(POINT.tiling, pad_a=4))
    assert len({str(POINT), str(padded)}) == 2
    assert str(POINT) == "register 512 x 384 x 96 fp32 128x128x8/8x8"


def test_without_shipped_records_the_error_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(record_files, "SHIPPED", tmp_path / "h200.jsonl")
    with pytest.raises(InputError, match="no shipped records"):
        shipped_records()
