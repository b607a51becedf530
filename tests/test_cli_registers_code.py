"""Register reads of compiled code on the command line: a text or a cubin in, the main loop out."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
from examples import example

from gemmsim import show
from gemmsim.commands.registers_code import add_code, run_code
from gemmsim.device import capability
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu import disassemble
from gemmsim.gpu.compile import compile_kernel
from gemmsim.kernels import kernel
from gemmsim.problem import Problem

DATA = Path(__file__).parent / "data" / "sass"


def asked(*words: str) -> tuple[Any, list[str]]:
    """(answer, warnings)"""
    parser = argparse.ArgumentParser()
    add_code(parser)
    warnings: list[str] = []
    return run_code(parser.parse_args(list(words)), warnings.append), warnings


def test_a_text_with_words(capsys):
    answer, warnings = asked("--sass", str(DATA / "dot_sm_90.hex.txt"), "--function", "dot")
    assert warnings == []
    document = json.loads(json.dumps(answer.document()))
    assert (document["function"], document["arch"], document["ffma"]) == ("dot", "sm_90", 4)
    assert document["loop"] | {"kinds": None} == {
        "start": "0x160", "end": "0x230", "instructions": 13, "branches": 0, "kinds": None,
        "accesses": {"LDG.32": 1, "LDS.128": 1}, "unknown": {},
    }  # fmt: skip
    assert sum(document["loop"]["kinds"].values()) == 13
    ffma = document["instructions"][8]
    assert (ffma["text"], ffma["stall"], ffma["yield_bit"]) == ("FFMA R5, R5, R9.reuse, R12", 1, 1)
    assert ffma["reads"][1] == {"slot": "B", "register": 9, "registers": 1, "reuse": True}
    answer.show(show)
    out = capsys.readouterr().out
    assert "13 instructions from 0x160 to 0x230" in out
    assert "LDS.128" in out


def test_a_text_without_words_says_what_it_takes_for_granted():
    answer, warnings = asked("--sass", str(DATA / "dot_sm_90.txt"), "--function", "dot")
    assert len(warnings) == 1
    assert "every instruction is taken to be issued after one cycle" in warnings[0]
    assert answer.document()["encoded"] is False
    assert answer.document()["warnings"] == warnings


def test_unknown_instructions_are_a_warning(tmp_path):
    path = tmp_path / "listing.txt"
    text = (DATA / "dot_sm_90.hex.txt").read_text()
    path.write_text(text.replace("VIADD R11, R11, 0x20", "WONDER R11, R11, 0x20"))
    answer, warnings = asked("--sass", str(path), "--function", "dot")
    assert warnings == ["registers of these instructions are not known, and not counted: WONDER (1)"]
    assert answer.document()["loop"]["unknown"] == {"WONDER": 1}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give one file of compiled code"),
        (("--sass", "a", "--cubin", "b"), "give one file of compiled code"),
        (("--sass", str(DATA / "dot_sm_90.txt")), "has 2 functions: fill, dot; choose one with --function"),
        (("--sass", str(DATA / "dot_sm_90.txt"), "--function", "gemm"), "no function 'gemm' in .*; it has: fill, dot"),
        (("--sass", str(DATA / "dot_sm_90.txt"), "--function", "fill"), "function fill has no loop with an FFMA in it"),
        (("--sass", str(DATA / "none.txt")), "cannot read"),
        (("--cubin", str(DATA / "dot_sm_90.txt")), "no cubin: it does not begin as an ELF file"),
    ],
    ids=range(7),
)
def test_what_is_unusable_is_refused(words, message):
    with pytest.raises(InputError, match=message):
        asked(*words)


def test_a_cubin_and_the_disassembler_that_is_missing(monkeypatch):
    each = kernel("shared")
    launch = each.launch(Problem(256, 256, 256), example("shared"))
    try:
        cubin = compile_kernel(each, launch, capability("8.6"))
        answer, _ = asked("--cubin", str(cubin.path))
    except MachineError as error:
        pytest.skip(str(error))
    assert (answer.document()["function"], answer.document()["arch"], answer.document()["ffma"]) == (
        "gemm",
        "sm_86",
        32,
    )

    def missing() -> None:
        raise MachineError("nvdisasm, needed to read machine code, is not on this machine")

    monkeypatch.setattr(disassemble, "nvdisasm", missing)
    with pytest.raises(MachineError, match="nvdisasm, needed to read machine code, is not on this machine"):
        asked("--cubin", str(cubin.path))
