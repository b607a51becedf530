"""gemmsim rearrange: a compiled kernel in, a proved cubin out, each refusal in one line."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path

import pytest

from gemmsim.device import capability
from gemmsim.gpu import cubin_pair, disassemble
from gemmsim.gpu.compile import compile_kernel
from gemmsim.gpu.cubin_pair import Compared, Request
from gemmsim.gpu.disassemble import disassembled_file
from gemmsim.gpu.toolchain import nvcc
from gemmsim.kernels import kernel
from gemmsim.machine_code import opcodes
from gemmsim.machine_code.main_loop import main_loop
from gemmsim.machine_code.sass import Function
from gemmsim.main_loops.sub_core import Residents
from gemmsim.problem import Problem
from gemmsim.rearrange import optimise
from gemmsim.rearrange.optimise import Rearranged
from gemmsim.rearrange.verify import objection

TILING = {"block_m": 32, "block_n": 32, "block_k": 8, "thread_m": 4, "thread_n": 4}
DISASSEMBLED = cache(disassemble.disassembled)
"""The disassembler takes long to start."""
LAUNCH = "vectorized 1024 --tile 32x32x8 --thread 4x4"


@cache
def searched(function: Function, residents: Residents | None, rename: bool, least_gain: float) -> Rearranged:
    """A short search, once for all tests that ask for the same."""
    return optimise.rearranged(function, residents, width=16, searches=optimise.trials(2), rename=rename)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr("gemmsim.commands.rearrange.rearranged", lambda function, residents, tell, rename: searched(
        function, residents, rename, optimise.LEAST_GAIN))  # fmt: skip
    monkeypatch.setattr("gemmsim.gpu.disassemble.disassembled", DISASSEMBLED)


def compiled(of: str = "9.0") -> Path:
    chosen = kernel("vectorized")
    launch = chosen.launch(Problem(1024, 1024, 1024), chosen.tiling(**TILING))
    return compile_kernel(chosen, launch, capability(of)).path


def test_a_kernel_is_rearranged_and_written(gemmsim, tmp_path):
    out = tmp_path / "out.cubin"
    result = gemmsim(f"rearrange {LAUNCH} --out {out} --json")
    assert result.status == 0
    found = result.document
    assert found["cycles_per_ffma"]["after"] < found["cycles_per_ffma"]["before"]
    assert found["predicted_speedup"] > 1
    assert found["changed"] > 20
    assert found["proved"] is True
    assert found["out"] == str(out)
    (before,), (after,) = disassembled_file(compiled()), disassembled_file(out)
    assert objection(before, [each.word for each in after.instructions]) is None
    differing = [
        number
        for number, (one, other) in enumerate(zip(before.instructions, after.instructions, strict=True))
        if one.word != other.word
    ]
    assert len(differing) == found["changed"]
    loop = main_loop(before)
    assert loop.start // 16 <= min(differing) <= max(differing) < loop.end // 16
    assert len(out.read_bytes()) == len(compiled().read_bytes())


def test_registers_are_renamed_on_request(gemmsim, monkeypatch, tmp_path):
    monkeypatch.setattr("gemmsim.commands.rearrange.rearranged", lambda *args, **more: optimise.rearranged(
        *args, searches=(), **more))  # fmt: skip
    out = tmp_path / "out.cubin"
    words = f"rearrange vectorized 1024 --tile 64x64x8 --thread 8x4 --rename --out {out} --json"
    found = gemmsim(words).document
    assert found["ports_without_renaming"] == found["ports"]["before"]
    assert found["proved"] is True
    assert found["ports"]["after"] < found["ports_without_renaming"]
    assert out.exists()
    out.unlink()
    monkeypatch.setattr("gemmsim.commands.rearrange.objection_to_names", lambda *_: "R7 is R8 elsewhere")
    result = gemmsim(words)
    assert result.status == 1
    assert "not proved to compute the same: R7 is R8 elsewhere" in result.err
    assert not out.exists()
    monkeypatch.setattr(optimise, "best_names", lambda _: {})
    result = gemmsim(f"rearrange {LAUNCH} --rename --dry-run")
    assert "registers keep their names: no others that the search finds save cycles" in result.err


def test_parts_of_a_cycle_add_up(gemmsim):
    found = gemmsim(f"rearrange {LAUNCH} --dry-run --json").document
    for when in ("before", "after"):
        assert found["ports"][when] + found["waiting"][when] == pytest.approx(found["cycles_per_ffma"][when])
        assert found["ports"][when] >= 1 + found["other_instructions"] - 1e-9
    assert found["predicted_s"]["before"] / found["predicted_s"]["after"] == pytest.approx(found["predicted_speedup"])


def test_a_dry_run_writes_nothing_and_a_cubin_will_do(gemmsim, tmp_path):
    out = tmp_path / "out.cubin"
    result = gemmsim(f"rearrange {compiled()} --dry-run --out {out}")
    assert result.status == 0
    assert "issue slots of other instructions" in result.out
    assert not out.exists()


def test_what_is_good_already_is_left_alone(gemmsim, monkeypatch, tmp_path):
    monkeypatch.setattr(optimise, "LEAST_GAIN", 0.9)
    out = tmp_path / "out.cubin"
    result = gemmsim(f"rearrange {compiled()} --out {out}")
    assert result.status == 1
    assert "is as good as the search finds" in result.err.splitlines()[-1]  # behind the progress
    assert not out.exists()
    assert gemmsim(f"rearrange {compiled()} --dry-run").status == 0


def test_an_unwritable_place_is_noticed_before_the_work(refusal, monkeypatch, tmp_path):
    monkeypatch.setattr("gemmsim.commands.rearrange.rearranged", None)
    for dry_run in ("", "--dry-run"):
        assert "nowhere" in refusal(
            f"rearrange {LAUNCH} {dry_run} --out {tmp_path / 'nowhere' / 'out.cubin'}", status=2
        )


def test_what_is_not_proved_is_not_written(gemmsim, monkeypatch, tmp_path):
    monkeypatch.setattr("gemmsim.commands.rearrange.objection", lambda *_: "R7 holds another value")
    out = tmp_path / "out.cubin"
    result = gemmsim(f"rearrange {compiled()} --out {out} --json")
    assert result.status == 1
    assert "not written, because it is not proved to compute the same: R7 holds another value" in result.err
    assert json.loads(result.out)["out"] is None
    assert not out.exists()


def test_what_the_gpu_says(gemmsim, monkeypatch, tmp_path):
    different, after_s = 0, (1.5,)

    def compared(requests: list[Request], tell) -> list[Compared]:
        assert len(requests) == 11
        assert any(each.point.problem.m % 32 for each in requests)
        assert [each.timed for each in requests] == [False] * 10 + [True]
        assert Path(requests[0].before).read_bytes() == compiled().read_bytes() != Path(requests[0].after).read_bytes()
        return [Compared(each, different, (2.0,), after_s) if each.timed else Compared(each) for each in requests]

    monkeypatch.setattr(cubin_pair, "require_gpu", lambda: None)
    monkeypatch.setattr(cubin_pair, "compared", compared)
    out = tmp_path / "out.cubin"
    result = gemmsim(f"rearrange {LAUNCH} --out {out} --verify --json")
    assert result.status == 0
    records = result.document["records"]
    assert [each["identical"] for each in records] == [True] * 11
    assert records[-1]["before_s"] == [2.0]
    assert out.exists()
    assert "slower" not in result.err
    out.unlink()
    after_s = (2.5,)
    assert "slower on this GPU than as compiled" in gemmsim(f"rearrange {LAUNCH} --out {out} --verify").err
    out.unlink()
    different = 3
    result = gemmsim(f"rearrange {LAUNCH} --out {out} --verify")
    assert result.status == 1
    assert "not written, because its results are others" in result.err
    assert "3 differ" in result.out
    assert not out.exists()


def test_without_a_gpu_nothing_is_verified(refusal, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    refusal(f"rearrange {LAUNCH} --out {tmp_path / 'out'} --verify", status=3)
    assert not (tmp_path / "out").exists()


def test_files_that_cannot_be_rearranged(refusal, monkeypatch, tmp_path):
    out = tmp_path / "out.cubin"
    for name, content in (
        ("empty.cubin", b""),
        ("text.cubin", b"no cubin"),
        ("cut.cubin", compiled().read_bytes()[:700]),
    ):
        (tmp_path / name).write_bytes(content)
        assert name in refusal(f"rearrange {tmp_path / name} --out {out}")
    assert "No such file" in refusal(f"rearrange {tmp_path / 'none.cubin'} --out {out}")
    assert "sm_80, whose rules are not verified; allowed: sm_90" in refusal(f"rearrange {compiled('8.0')} --out {out}")
    monkeypatch.setattr("gemmsim.commands.rearrange.rearranged", optimise.rearranged)
    monkeypatch.setattr("gemmsim.gpu.disassemble.disassembled", DISASSEMBLED.__wrapped__)
    monkeypatch.setattr(opcodes, "OPCODES", {})
    monkeypatch.setattr("gemmsim.machine_code.sass.OPCODES", {
        name: row for name, row in opcodes._table().items() if name != "LDS"})  # fmt: skip
    assert "instructions that are not known: LDS" in refusal(f"rearrange {compiled()} --out {out}")
    monkeypatch.setattr("gemmsim.machine_code.sass.OPCODES", {
        name: row for name, row in opcodes._table().items() if name != "STG"})  # fmt: skip
    assert "keep their names: STG.E" in refusal(f"rearrange {compiled()} --rename --out {out}")
    assert not out.exists()


def test_code_without_a_loop(refusal, tmp_path):
    source, cubin = tmp_path / "straight.cu", tmp_path / "straight.cubin"
    source.write_text("__global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }")
    subprocess.run([str(nvcc().path), "-cubin", "-arch=sm_90", str(source), "-o", str(cubin)], check=True)
    assert "no loop with an FFMA in it" in refusal(f"rearrange {cubin} --out {tmp_path / 'out'}")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("async", "--out CUBIN is missing"),
        ("asnyc --dry-run", "unknown kernel 'asnyc'; nearest: async"),
        ("async --kernel async --dry-run", "the kernel is the first word"),
        ("some.cubin 512 --dry-run", "some.cubin is a compiled file, which has no sizes"),
        ("some.cubin --out x --verify", "cannot read some.cubin"),
        ("async --device rtx-3090 --dry-run", "whose rules are not verified"),
        ("async 0 --dry-run", "m 0"),
    ],
)
def test_refusals(refusal, words, why):
    assert why in refusal(f"rearrange {words}")


def test_a_cubin_says_nothing_of_its_launch(refusal, tmp_path):
    assert "give its name and tiling instead of" in refusal(f"rearrange {compiled()} --verify --out {tmp_path / 'x'}")
