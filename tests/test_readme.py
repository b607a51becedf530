"""What the README shows is what the program says."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median

import pytest

from gemmsim.cli import main
from gemmsim.compare import compare
from gemmsim.device import device, devices
from gemmsim.kernels import kernel
from gemmsim.problem import Problem
from gemmsim.record_files import read_records, shipped_records

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def comparison():
    records, warnings = read_records(shipped_records())
    assert not warnings
    return compare(records, device("h200"))


def test_the_table_of_errors(comparison):
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) % \| (0\.\d+) \|$", README, re.M)
    measured = comparison.by_kernel()
    assert [row[0] for row in rows] == list(measured)
    for name, points, error, tau in rows:
        of_kernel = measured[name]
        assert (int(points), int(error), float(tau)) == (
            len(of_kernel.points), round(100 * of_kernel.mape), round(of_kernel.kendall_tau, 2),
        )  # fmt: skip


def test_the_figures_in_the_text(comparison):
    text = " ".join(README.split())
    counters = comparison.counters.values()
    assert {agreement.equal for agreement in counters} == {agreement.total for agreement in counters} == {250}
    equal = sum(agreement.equal for agreement in counters)
    assert f"the model at all 250 points: {equal:,} of {equal:,}" in text
    tilings = {(point.point.kernel, point.point.tiling) for point in comparison.points}
    assert f"250 points on one H200: five kernels in {len(tilings)} tilings" in text
    assert f"the mean error is {100 * comparison.mape:.0f} %" in text
    assert f"by closed forms alone {100 * comparison.analytic_mape:.0f} %" in text
    assert f"It is largest, {100 * comparison.max_error:.0f} %, for" in text
    assert f"Kendall tau is {comparison.kendall_tau:.2f} over all sizes" in text
    assert f"and {comparison.tau_within_problems:.2f} among the tilings of one size" in text
    regrets = [pick.regret for pick in comparison.picks().values()]
    assert f"{100 * median(regrets):.0f} % longer than the best one at the median size" in text
    assert f"{100 * max(regrets):.0f} % at worst" in text
    textbook = [
        point.measured_s
        for point in comparison.points
        if (point.point.kernel, point.point.problem) == ("double_buffer", Problem(4096, 4096, 4096))
        and kernel("double_buffer").describe(point.point.tiling) == "128x128x8/8x8"
    ]
    assert f"An H200 takes {1e3 * textbook[0]:.2f} ms" in text


def test_the_picks_of_the_search():
    """The records begin with the first ten of each problem, as the search lists them."""
    every = [
        record
        for campaign in ("", "times", "layouts", "copies", "cublas", "random", "picks")
        for record in read_records(shipped_records(campaign))[0]
        if record.ok
    ]
    first, ten = [], []
    picks = [record for record in read_records(shipped_records("picks"))[0] if record.ok][:40]
    for problem in dict.fromkeys(record.point.problem for record in picks):
        best_s = min(record.median_s for record in every if record.point.problem == problem)
        of_problem = [record.median_s / best_s - 1 for record in picks if record.point.problem == problem]
        assert len(of_problem) == 10
        first.append(f"{100 * of_problem[0]:.0f}")
        ten.append(f"{100 * min(of_problem):.0f}")
    text = " ".join(README.split())
    assert f"the first pick takes {first[0]}, {first[1]}, {first[2]} and {first[3]} % longer" in text
    assert f"the best of the first ten {ten[0]}, {ten[1]}, {ten[2]} and {ten[3]} %" in text


def test_the_commands_print_what_is_shown(capsys):
    shown = re.findall(r"^    \$ gemmsim (.*)\n\n((?:    .*\n)+)", README, re.M)
    assert [command.split()[0] for command, _ in shown] == ["explain", "traffic", "predict"]
    for command, excerpt in shown:
        assert main(command.split()) == 0
        printed = capsys.readouterr().out
        for line in excerpt.splitlines():
            assert line.strip() in printed


def test_the_reason_of_the_conflicts(capsys):
    (sentence,) = re.findall(r"^    load_b .*\n.*\n", README, re.M)
    assert main(["explain", "2048", "--kernel", "double_buffer", "--tile", "128x128x8", "--thread", "8x8"]) == 0
    assert " ".join(sentence.split()) in " ".join(capsys.readouterr().out.split())


def test_the_number_of_devices():
    assert f"one of the {len(devices())} that `gemmsim devices` lists" in README


def test_the_python_example():
    code = "\n".join(re.findall(r"```python\n(.*?)```", README, re.S))
    names: dict[str, object] = {}
    exec(code, names)  # our own text
    for expression, expected in re.findall(r"^(.*?)  # (.+)$", code, re.M):
        assert repr(eval(expression, names)) == expected
