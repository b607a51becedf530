"""`gemmsim search` as it is typed."""

from __future__ import annotations

import json
import re
from typing import ClassVar

import numpy as np
import pytest

from gemmsim.commands import search as commands
from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.expressions import parse_condition
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.toolchain import nvcc, nvdisasm
from gemmsim.kernels import KERNELS, UNSAID, kernel
from gemmsim.predict import predict
from gemmsim.problem import Problem
from gemmsim.record_files import read_records
from gemmsim.routes import DESCRIBED, both_s
from gemmsim.search.spaces import space as space_of
from gemmsim.search.tables import size_of
from gemmsim.search.tuner import _parameters

WHERE = (
    "block_k == 8 and pad_a <= 1 and pad_b == 0 and block_m >= 64 and block_n >= 64 and thread_m == 8 and thread_n == 8"
)
NAIVE = kernel("naive")
FEW = ("search 1000 900 800 --kernel register --simulate 0", "--where", WHERE)


def test_the_keys_of_the_document(answer):
    found = answer(*FEW, "--top", "3")
    assert found["evaluated"] > 3
    assert found["seconds"] > 0 < found["refined_s"]
    assert (found["device"], found["kernels"], found["where"]) == ("h200", ["register"], [WHERE])
    assert len(found["results"]) == 3
    times_s = [each["time_s"] for each in found["results"]]
    assert times_s == sorted(times_s)
    for each in found["results"]:
        assert set(each) == {"kernel", "tiling", "time_s", "analytic_s", "simulated_s", "compiled", "bound_by"}
        assert each["simulated_s"] is None
        assert each["compiled"] is False
        assert set(each["tiling"]) == {*kernel("register").fields} - {*UNSAID}
    assert {each["name"] for each in found["sensitivity"]} == {*kernel("register").fields} - {*UNSAID}
    assert found["runner_up"]["time_s"] > times_s[0]
    assert "instead of" in found["runner_up"]["reason"]
    assert found["measured"] is None


def test_the_first_result_is_what_predict_says(answer):
    best = answer(*FEW)["results"][0]
    tile = best["tiling"]
    predicted = answer(
        "predict 1000 900 800 --route analytic --kernel register"
        f" --tile {tile['block_m']}x{tile['block_n']}x{tile['block_k']}"
        f" --thread {tile['thread_m']}x{tile['thread_n']} --pad-a {tile['pad_a']} --pad-b {tile['pad_b']}"
    )
    assert predicted["time_s"] == pytest.approx(best["time_s"])
    assert predicted["bound_by"] == best["bound_by"]


def test_the_first_are_simulated(answer):
    results = answer(*FEW, "--simulate", "2", "--top", "3")["results"]
    both = [each for each in results if each["simulated_s"] is not None]
    assert len(both) == 2
    for each in both:
        share = 1.0 if each["compiled"] else DESCRIBED
        assert each["time_s"] == both_s(each["simulated_s"], each["analytic_s"], "register", share)
    assert [each["time_s"] for each in results] == sorted(each["time_s"] for each in results)


def test_the_first_are_compiled(answer):
    try:
        nvcc(), nvdisasm()
    except MachineError as error:
        pytest.skip(str(error))
    (found,) = answer("search 64 --kernel naive --compile --simulate 1", "--where", "block_m == 8 and block_n == 32")[
        "results"
    ]
    assert found["compiled"]
    cubin = compile_kernel(NAIVE, NAIVE.launch(Problem(64, 64, 64), NAIVE.tiling()), device("h200").capability)
    alone = predict(Problem(64, 64, 64), NAIVE, NAIVE.tiling(), device("h200"), cubin.registers_per_thread)
    assert found["analytic_s"] == pytest.approx(float(alone.time_s))
    assert found["time_s"] == both_s(found["simulated_s"], found["analytic_s"], "naive")


def test_one_that_is_left_alone(gemmsim):
    result = gemmsim("search 64 --kernel naive --simulate 1", "--where", "block_m == 8 and block_n == 32")
    assert (result.status, result.err) == (0, "")
    for text in (
        "1 legal configuration of 1 kernel",
        "their weighed mean counts. No other tiles",
        "No other tiles, threads or parts of k are legal.",
        "No other value of any one parameter is legal.",
    ):
        assert text in " ".join(result.out.split())
    assert "What matters" not in result.out


def test_several_kernels_in_either_form(answer):
    naive = ("--simulate", "0", "--where", "block_m <= 4 and stages == 1 and threads == 32")
    one = answer("search 64 --kernel naive --kernel warp_tiled", *naive)
    other = answer("search 64 --kernel naive,warp_tiled,naive", *naive)
    assert one["kernels"] == other["kernels"] == ["naive", "warp_tiled"]
    assert [each["kernel"] for each in one["results"]] == ["naive"] * one["evaluated"]


def test_words_for_people(gemmsim):
    result = gemmsim(*FEW, "--top", "2")
    assert (result.status, result.err) == (0, "")
    for text in (
        "legal configuration",
        "Shortest predicted times",
        "The runner-up, ",
        "What matters around",
        "block_m",
    ):
        assert text in result.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((*FEW[:2], "blockm > 3"), "unknown variable 'blockm'; nearest: block_m, .*; allowed: .*shared_bytes"),
        (
            (*FEW[:2], "block_m > 4000"),
            r"--where block_m > 4000 leaves none of the \d+ legal configurations of register",
        ),
        ((*FEW[:2], "block_m"), "'block_m' is a number, where a condition is needed"),
        ((*FEW, "--top", "0"), "--top 0 is out of range; allowed: whole numbers from 1"),
        ((*FEW, "--measure", "x"), "--measure 'x' is not a whole number"),
        ((*FEW, "--out", "records.jsonl"), "--out records.jsonl is for the records of --measure N"),
        ((*FEW, "--compile"), "--compile is for those that are simulated; --simulate 0 says that none is"),
        ((*FEW, "--simulate", "101"), "--simulate 101 is out of range; allowed: whole numbers from 0 to 100"),
        ((*FEW, "--picture", "landscape.bmp"), "--picture 'landscape.bmp' is no picture"),
        (("search 64 --kernel nave",), "unknown kernel 'nave'; nearest: naive"),
        (("search 64 --kernel naive,",), "unknown kernel ''"),
        (("search 64 --kernel async --device t4",), "kernel async needs compute capability 8.0; t4 has 7.5"),
        (("search 64 --export-kernel-tuner x.json",), "--export-kernel-tuner writes the space of one kernel"),
        (("search --kernel naive",), "sizes are missing"),
        (("search 64 --dtype fp16",), "dtype fp16 has no kernels; allowed: fp32"),
    ],
)
def test_refusals_are_one_line(refusal, words, message):
    assert re.search(message, refusal(*words))


@pytest.mark.parametrize(
    "words",
    [
        ("--picture", "no/where.svg"),
        ("--export-kernel-tuner", "no/where.json"),
        ("--measure", "1", "--out", "no/where.jsonl"),
    ],
)
def test_a_place_that_takes_no_file_is_refused_before_the_work(refusal, monkeypatch, words):
    monkeypatch.setattr(commands, "rank", lambda *_, **__: pytest.fail("ranked in vain"))
    assert f"cannot write {words[-1]}" in refusal(*FEW, *words)


def test_without_a_gpu_measuring_is_one_line(refusal, machine):
    machine.lacks = "running kernels needs an NVIDIA GPU"
    assert refusal(*FEW, "--measure", "2", status=3) == "running kernels needs an NVIDIA GPU"


def test_the_first_are_measured_and_the_regret_is_said(gemmsim, machine, tmp_path):
    out = tmp_path / "records.jsonl"
    result = gemmsim(*FEW, "--top", "2", "--measure", "4", "--out", str(out), "--json")
    assert result.status == 0
    found = result.document
    records, _ = read_records(out)
    assert len(records) == len(found["measured"]["records"]) == 4
    assert [each["tiling"] for each in found["results"]] == [record.point.to_dict()["tiling"] for record in records[:2]]
    assert 0 == found["measured"]["top10_regret"] <= found["measured"]["top1_regret"] < 0.2  # this GPU is the model
    assert str(out) in found["files"]


def test_a_failed_verification_is_exit_1(gemmsim, machine, tmp_path):
    machine.fails = "register"
    result = gemmsim(*FEW, "--measure", "2", "--json")
    assert result.status == 1
    assert result.document["measured"]["top1_regret"] is None


def test_the_picture(gemmsim, tmp_path):
    path = tmp_path / "landscape.svg"
    assert gemmsim(*FEW, "--picture", str(path)).status == 0
    assert path.read_text().count("<svg") == 1


def legal_parameters(name: str, where: str, keys) -> set[tuple[int, ...]]:
    """These parameters of every legal configuration."""
    space = space_of(kernel(name), Problem(1000, 900, 800), device("h200"), [where])
    found: set[tuple[int, ...]] = set()
    for chunk in space.chunks():
        parameters = _parameters(space, chunk)
        found.update(zip(*(np.broadcast_to(parameters[key], size_of(chunk)).tolist() for key in keys), strict=True))
    return found


class TestKernelTuner:
    """What is written for Kernel Tuner, read back by Python alone; each space is searched once."""

    ONCE: ClassVar[dict[tuple[str, str], tuple[str, str]]] = {}

    @pytest.fixture
    def written(self, gemmsim, tmp_path):
        def write(name: str, where: str, sizes: str = "1000 900 800", top: int = 5):
            path = tmp_path / f"{name}.json"
            line = f"search {sizes} --kernel {name} --top {top} --simulate 0 --json --export-kernel-tuner"
            if (line, where) not in self.ONCE:
                result = gemmsim(line, str(path), "--where", where)
                assert (result.status, result.err) == (0, "")
                self.ONCE[line, where] = result.out, path.read_text()
            return tuple(map(json.loads, self.ONCE[line, where]))

        return write

    CASES = (
        ("register", WHERE),
        ("vectorized", f"{WHERE} and swizzle == 0 and vector >= 2"),
        ("async", f"{WHERE.replace('pad_a <= 1', 'pad_a == 4')} and warp_m == 32 and stages == 2 and split_k <= 2"),
        ("naive", "threads == 64"),
    )

    @pytest.mark.parametrize(("name", "where"), CASES)
    def test_it_is_ordered_and_has_every_macro_of_the_launch(self, written, name, where):
        found, space = written(name, where)
        assert space["kernel_name"] == "gemm"
        assert space["kernel_source"].endswith(f"{name}.cu")
        of, problem = KERNELS[name], Problem(1000, 900, 800)
        assert len(space["configurations"]) == len(found["results"])
        for each, result in zip(space["configurations"], found["results"], strict=True):
            assert each["predicted_s"] == result["time_s"]
            launch = of.launch(problem, of.tiling(**result["tiling"]))
            parameters = each["parameters"]
            assert launch.macros.items() <= parameters.items()
            assert parameters[space["block_size_name"]] == launch.threads
            assert set(parameters) == set(space["tune_params"])
            assert all(value in space["tune_params"][key] for key, value in parameters.items())
            for text, value in ((space["problem_size"], launch.blocks), (space["shared_bytes"], launch.shared_bytes)):
                assert eval(text, {}, parameters) == value
            for restriction in space["restrictions"]:
                assert eval(restriction, {}, parameters), restriction

    def test_the_restrictions_allow_what_is_legal_and_no_more(self, written):
        name, where = self.CASES[0]
        found, space = written(name, where)
        allowed = legal_parameters(name, where, space["configurations"][0]["parameters"])
        assert len(allowed) == found["evaluated"]
        keys = list(space["configurations"][0]["parameters"])
        of = KERNELS[name]
        fields = [field.upper() for field in of.fields]
        derived = space["tune_params"].keys() - set(fields)
        values = [space["tune_params"][field] for field in fields]
        columns = {f: grid.ravel() for f, grid in zip(fields, np.meshgrid(*values, indexing="ij"), strict=True)}
        of_fields = [text for text in space["restrictions"] if not derived & set(re.findall("[A-Z_]+", text))]
        ok = np.logical_and.reduce([parse_condition(text, fields).evaluate(columns) for text in of_fields])
        assert int(ok.sum()) == len(allowed)
        rows = {tuple(int(columns[field][at]) for field in fields) for at in ok.nonzero()[0]}
        assert rows == {tuple(row[keys.index(field)] for field in fields) for row in allowed}

    @pytest.mark.parametrize(("name", "where"), CASES)
    def test_what_follows_from_others_can_be_nothing_else(self, written, name, where):
        _, space = written(name, where)
        fields = {field.upper() for field in KERNELS[name].fields}
        for each in space["configurations"]:
            for parameter in each["parameters"].keys() - fields:
                for value in {1, 2, 4, 64, *space["tune_params"][parameter]} - {each["parameters"][parameter]}:
                    changed = each["parameters"] | {parameter: value}
                    listed = value in space["tune_params"][parameter]
                    assert not (listed and all(eval(text, {}, changed) for text in space["restrictions"]))

    @pytest.mark.filterwarnings("default")
    @pytest.mark.parametrize(("name", "where"), CASES[:3])
    def test_kernel_tuner_itself_finds_the_same_configurations(self, written, name, where):
        searchspace = pytest.importorskip("kernel_tuner.searchspace")
        found, space = written(name, where)
        blocks = [space["block_size_name"], "block_size_y", "block_size_z"]
        theirs = searchspace.Searchspace(space["tune_params"], space["restrictions"], 1024, block_size_names=blocks)
        ours = legal_parameters(name, where, space["tune_params"])
        assert set(theirs.list) == ours
        assert len(ours) == found["evaluated"] > 3
