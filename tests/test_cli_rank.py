"""gemmsim rank: its document, its tables, what it refuses; and how well it ranks the public search spaces."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kernel_tuner_files import cache, table, times_ms, write

PUBLIC = os.environ.get("GEMMSIM_KERNEL_TUNER_DATA")


@pytest.fixture
def space(tmp_path) -> Path:
    return write(tmp_path / "space.csv.gz", table())


def test_the_document(answer, space):
    found = answer(f"rank --kernel-tuner {space} --device rtx-3090")
    assert found["configurations"] == 40
    assert (found["failed"], found["unmodelled"]) == (0, 0)
    assert (found["kernel"], found["device"], found["m"], found["n"], found["k"]) == (
        "clblast",
        "rtx-3090",
        4096,
        4096,
        4096,
    )
    # times are made of the predictions: a perfect order, and one factor takes all errors away
    assert found["kendall_tau"] == 1
    assert found["top1_regret"] == found["top10_regret"] == 0
    assert found["scaled_mape"] == pytest.approx(0, abs=1e-12)
    assert found["scale"] == pytest.approx(1.1)
    assert found["seconds"] > 0
    assert found["best"]["place"] <= 2
    assert [pick["measured_s"] for pick in found["picks"]] == sorted(time / 1e3 for time in times_ms())[:10]
    for pick in found["picks"]:
        assert pick["bound_by"] == max(pick["terms"], key=pick["terms"].get)
        assert pick["measured_s"] == pytest.approx(1.1 * pick["predicted_s"])


def test_regrets_are_of_the_measured_times(answer, tmp_path):
    times = times_ms()
    fastest = times.index(min(times))
    best = min(times) / 2
    slowed = [5 * time if number == fastest else time for number, time in enumerate(times)]
    slowed[times.index(max(times))] = best  # that the model puts last
    found = answer(f"rank --kernel-tuner {write(tmp_path / 'space.csv', table(slowed))} --device rtx-3090")
    assert found["top1_regret"] > 1
    assert 0.9 < found["top10_regret"] < 2
    assert found["kendall_tau"] < 1
    assert found["best"]["place"] == 40
    assert found["worst_misses"][0]["parameters"] in (found["best"]["parameters"], found["picks"][0]["parameters"])


def test_a_cache_file_brings_its_device_and_problem(answer, tmp_path):
    found = answer(f"rank --kernel-tuner {write(tmp_path / 'space.json', cache(closed=False))}")
    assert (found["device"], found["m"]) == ("rtx-3090", 4096)
    found = answer(f"rank 2048 --kernel-tuner {tmp_path / 'space.json'}")
    assert (found["m"], found["k"]) == (2048, 2048)


def test_another_device_than_the_files_is_a_warning(gemmsim, tmp_path):
    path = write(tmp_path / "space.json", cache())
    result = gemmsim(f"rank --kernel-tuner {path} --device rtx-2080-ti --json")
    assert result.status == 0
    assert "was measured on rtx-3090, not on rtx-2080-ti" in result.err
    assert result.document["warnings"] == [f"{path} was measured on rtx-3090, not on rtx-2080-ti"]


def test_a_cut_file_is_a_warning(gemmsim, tmp_path):
    path = write(tmp_path / "space.json", cache()[:-90])
    result = gemmsim(f"rank --kernel-tuner {path} --json")
    assert (result.status, result.document["configurations"]) == (0, 39)
    assert "cut off in entry 40; the 39 before it are taken" in result.err


def test_failures_are_counted_not_ranked(answer, tmp_path):
    times = ["CompilationFailedConfig", *times_ms()[1:]]
    found = answer(f"rank --kernel-tuner {write(tmp_path / 'space.json', cache(times))}")
    assert (found["configurations"], found["failed"]) == (39, 1)


def test_tables_for_people(gemmsim, space):
    result = gemmsim(f"rank --kernel-tuner {space} --device rtx-3090")
    assert (result.status, result.err) == (0, "")
    for words in ("40 configurations of kernel clblast on NVIDIA GeForce RTX 3090", "Kendall's tau", "Picks", "Worst"):
        assert words in result.out


def test_help_names_the_kernel(gemmsim):
    assert "clblast" in gemmsim("rank --help").out


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rank --kernel-tuner {space}", "--device is missing, and {space} says nothing of it"),
        ("rank --kernel-tuner {space} --device rtx-9999", "unknown device 'rtx-9999'; nearest"),
        ("rank 100 --kernel-tuner {space} --device rtx-3090", "m 100 is no multiple of MWG 32"),
        ("rank 1 2 --kernel-tuner {space} --device rtx-3090", "allowed: M, or M N K"),
        ("rank --kernel-tuner nowhere.csv --device rtx-3090", "cannot read nowhere.csv"),
    ],
)
def test_refusals(refusal, space, line, words):
    assert words.format(space=space) in refusal(line.format(space=space))


@pytest.mark.skipif(not PUBLIC, reason="GEMMSIM_KERNEL_TUNER_DATA is not set")
@pytest.mark.parametrize("name", ["RTX_2080_Ti", "RTX_3090"])
def test_the_public_search_spaces_are_ranked_well(answer, name):
    path = Path(str(PUBLIC)) / f"{name}.csv.gz"
    found = answer(f"rank --kernel-tuner {path} --device {name.lower().replace('_', '-')}")
    assert found["kendall_tau"] >= 0.75
    assert found["top1_regret"] <= 0.30
    assert found["top10_regret"] <= 0.12
