"""Search spaces of Kernel Tuner: what is read of whole files, cut files and files of other kernels."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import pytest
from kernel_tuner_files import cache, rows, table, times_ms, write

from gemmsim.clblast.kernel_tuner import read_search_space
from gemmsim.errors import InputError
from gemmsim.problem import Problem

PUBLIC = os.environ.get("GEMMSIM_KERNEL_TUNER_DATA")


def refused(path: Path, text: str) -> str:
    with pytest.raises(InputError) as caught:
        read_search_space(write(path, text))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("name", ["space.csv", "space.csv.gz"])
def test_tables(tmp_path, name):
    found = read_search_space(write(tmp_path / name, table()))
    assert [found.configurations.row(number) for number in range(len(rows()))] == rows()
    assert found.measured_s * 1e3 == pytest.approx(times_ms())
    assert (found.failed, found.unmodelled, found.device_name, found.problem, found.warnings) == (0, 0, None, None, ())


@pytest.mark.parametrize("name", ["space.json", "space.json.gz", "space"])
@pytest.mark.parametrize("closed", [True, False])
def test_cache_files(tmp_path, name, closed):
    found = read_search_space(write(tmp_path / name, cache(closed=closed)))
    assert [found.configurations.row(number) for number in range(len(rows()))] == rows()
    assert found.measured_s * 1e3 == pytest.approx(times_ms())  # the median of its runs
    assert found.device_name == "NVIDIA GeForce RTX 3090"
    assert found.problem == Problem(4096, 4096, 4096)
    assert (found.failed, found.unmodelled, found.warnings) == (0, 0, ())


def test_a_file_as_kernel_tuner_leaves_it_when_it_is_stopped_has_no_brackets():
    assert cache(closed=False).endswith("},")


@pytest.mark.parametrize("make", [table, cache])
def test_what_failed_is_counted(tmp_path, make):
    times = [*["CompilationFailedConfig", "RuntimeFailedConfig", "InvalidConfig"], *times_ms()[3:]]
    found = read_search_space(write(tmp_path / "space", make(times)))
    assert (len(found.configurations), found.failed) == (37, 3)
    assert found.configurations.row(0) == rows()[3]


@pytest.mark.parametrize("time", ["", "nan", 1e20])
def test_what_has_no_time_failed(tmp_path, time):
    found = read_search_space(write(tmp_path / "space.csv", table([*times_ms()[:39], time])))
    assert (len(found.configurations), found.failed) == (39, 1)


@pytest.mark.parametrize("make", [table, cache])
def test_nothing_is_left_where_all_failed(tmp_path, make):
    assert "all of 40 configurations failed" in refused(tmp_path / "space", make(["InvalidConfig"] * 40))


@pytest.mark.parametrize("make", [table, cache])
def test_a_file_cut_in_an_entry_gives_those_before_it(tmp_path, make):
    text = make()
    at = len(text) - 90 if make is cache else len(text) - 45
    found = read_search_space(write(tmp_path / "space", text[:at]))
    assert len(found.configurations) == 39
    (warning,) = found.warnings
    assert "cut off in" in warning
    assert "the 39 before it are taken" in warning


def test_every_place_to_cut_a_cache_file_gives_entries_or_one_line(tmp_path):
    text = cache()
    first = text.index("},", text.index('"cache"')) + 1
    for at in range(0, len(text), 97):
        path = tmp_path / "space.json"
        if at < first:
            refused(path, text[:at])
        else:
            assert 1 <= len(read_search_space(write(path, text[:at])).configurations) <= 40


@pytest.mark.parametrize("make", [table, cache])
def test_a_compressed_file_that_is_cut_gives_what_is_there(tmp_path, make):
    data = gzip.compress(make().encode(), mtime=0)
    path = tmp_path / "space.gz"
    path.write_bytes(data[: len(data) * 3 // 4])
    found = read_search_space(path)
    assert 1 <= len(found.configurations) < 40
    assert "cut off" in found.warnings[0]
    path.write_bytes(data[:60])  # before the first configuration
    with pytest.raises(InputError, match="no configuration in it; it is cut off"):
        read_search_space(path)


def test_a_compressed_file_that_is_none_is_refused(tmp_path):
    path = tmp_path / "space.gz"
    path.write_bytes(b"\x1f\x8b" + b"no" * 100)
    with pytest.raises(InputError, match="not readable as gzip"):
        read_search_space(path)


def test_another_kernel_is_refused_by_what_it_lacks(tmp_path):
    text = table().replace("MDIMA", "block_x").replace("NDIMB", "block_y")
    assert "not of kernel clblast: column MDIMA, NDIMB is missing" in refused(tmp_path / "a.csv", text)
    text = cache(kernel_name="convolution").replace('"MDIMA"', '"block_x"')
    message = refused(tmp_path / "a.json", text)
    assert "a search space of convolution, not of kernel clblast: parameter MDIMA is missing" in message


def test_another_precision_is_refused(tmp_path):
    text = cache().replace('"MWG": 32, ', '"MWG": 32, "PRECISION": 16, ')
    assert "PRECISION 16 is another kernel than clblast, where it is 32" in refused(tmp_path / "a.json", text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("32,32,32,8", "32,32,32", "row 1: 15 columns; the header has 16"),
        ("32,32,32,8", "32,x,32,8", "row 1: NWG 'x'; allowed: whole numbers from 0 to 1024"),
        ("32,32,32,8", "32,1e9,32,8", "row 1: NWG '1e9'"),
        ("32,32,32,8", "32,-32,32,8", "row 1: NWG '-32'"),
        ("32,32,32,8", "32,0,32,8", "NWG 0 is out of range"),
    ],
)
def test_broken_rows_are_refused_by_number(tmp_path, old, new, words):
    assert words in refused(tmp_path / "space.csv", table().replace(old, new, 1))


@pytest.mark.parametrize(("time", "words"), [(0.0, "0.0"), (-1.5, "-1.5"), ("inf", "inf"), ("soon", "'soon'")])
def test_times_that_are_none_are_refused(tmp_path, time, words):
    message = refused(tmp_path / "space.csv", table([*times_ms()[:4], time, *times_ms()[5:]]))
    assert "row 5: time" in message
    assert words.strip("'") in message


def test_a_broken_entry_in_the_middle_is_refused(tmp_path):
    text = cache()
    second = text.index('\n"32,32,32,8,8,8,8,2,1,1,0,0,0,1"')
    assert "entry 2: not readable as JSON" in refused(tmp_path / "a.json", text[:second] + '\n"32: {' + text[second:])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no configuration in it"),
        ("{}", "cache is missing"),
        ('{"cache": {}}', "no configuration in it"),
        ('{"device_name": oops, "cache": {}}', "not JSON"),
        ('{"cache": {"1": 5}}', "entry '1': 5 is no JSON object"),
        ('{"cache": {"1": {"MWG": 1}}}', "entry '1': time is missing"),
        ('{"cache": {"1": {"MWG": 1, "time": [1]}}}', "time [1]"),
    ],
)
def test_files_that_are_no_search_space(tmp_path, text, words):
    assert words in refused(tmp_path / "space", text)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_search_space(tmp_path / "absent.csv")
    (tmp_path / "binary").write_bytes(bytes(range(256)))
    with pytest.raises(InputError, match="is not a text"):
        read_search_space(tmp_path / "binary")


def test_what_is_not_modelled_is_left_out(tmp_path):
    lines = table().splitlines()
    strided = lines[1].split(",")
    strided[10] = "1"
    found = read_search_space(
        write(tmp_path / "space.csv", "\n".join([lines[0], ",".join(strided), *lines[2:]]) + "\n")
    )
    assert (len(found.configurations), found.unmodelled) == (39, 1)
    assert "row 1: STRM and STRN are 0" in found.warnings[0]
    message = refused(tmp_path / "space.csv", "\n".join([lines[0], ",".join(strided)]) + "\n")
    assert "no configuration that kernel clblast is modelled for" in message


@pytest.mark.skipif(not PUBLIC, reason="GEMMSIM_KERNEL_TUNER_DATA is not set")
@pytest.mark.parametrize("name", ["RTX_2080_Ti", "RTX_3090"])
def test_the_public_tables(name):
    found = read_search_space(Path(str(PUBLIC)) / f"{name}.csv.gz")
    assert len(found.configurations) == 17_956
    assert (found.failed, found.unmodelled) == (0, 0)
    assert np.all(found.measured_s > 0)
