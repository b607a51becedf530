"""Compiling without a GPU: what the compiler says, the cache, and errors as values."""

from __future__ import annotations

import json
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from examples import example

from gemmsim.device import capability
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu import compile as compiling
from gemmsim.gpu import toolchain
from gemmsim.gpu.compile import Cubin, Job, cache_folder, compile_kernel, compile_many
from gemmsim.gpu.toolchain import Tool
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.records import Failure

SAID = """\
ptxas info    : 8 bytes gmem, 4 bytes cmem[3]
ptxas info    : Compiling entry function 'gemm' for 'sm_90'
ptxas info    : Function properties for gemm
    48 bytes stack frame, 40 bytes spill stores, 36 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 512 bytes smem, 564 bytes cmem[0]
"""


def job(name: str = "naive", m: int = 64, sm: str = "9.0") -> Job:
    kernel = KERNELS[name]
    return Job(kernel, kernel.launch(Problem(m, 64, 64), example(name)), capability(sm))


def broken() -> Job:
    """A job that the source's static_assert refuses."""
    good = job("double_buffer")
    return replace(good, launch=replace(good.launch, macros={**good.launch.macros, "BLOCK_K": 7}))


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("GEMMSIM_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def fake_compiler(tmp_path, script: str) -> Tool:
    """A compiler that runs a line of shell; `$out` is the file it should write."""
    path = tmp_path / "nvcc"
    path.write_text(f"#!/bin/sh\nfor out; do :; done\n{script}\n")
    path.chmod(0o755)
    return Tool(path, "13.0")


@pytest.fixture
def use(monkeypatch, tmp_path):
    """Makes a line of shell the compiler."""

    def chosen(script: str) -> Tool:
        compiler = fake_compiler(tmp_path, script)
        monkeypatch.setattr(compiling, "nvcc", lambda: compiler)
        return compiler

    return chosen


GOOD = f'echo run >>"$0.runs"; printf cubin >"$out"; cat >&2 <<\'END\'\n{SAID}END'


def runs(compiler: Tool) -> int:
    log = Path(f"{compiler.path}.runs")
    return len(log.read_text().splitlines()) if log.exists() else 0


class TestWithAFakeCompiler:
    def test_resources_are_read_and_spills_are_kept(self, use, own_cache):
        use(GOOD)
        cubin = compile_kernel(job().kernel, job().launch, job().capability)
        assert cubin.path.parent == own_cache
        assert cubin.path.read_bytes() == b"cubin"
        assert replace(cubin, path=Path()) == Cubin(Path(), 255, 512, 48, 76, "nvcc 13.0")

    def test_the_second_time_it_comes_from_the_cache(self, use):
        compiler = use(GOOD)
        assert compile_many([job()]) == compile_many([job()])
        assert runs(compiler) == 1

    def test_jobs_with_the_same_macros_are_compiled_once(self, use):
        compiler = use(GOOD)
        seen = []
        found = compile_many(
            [job(m=64), job(m=128), job("register")], progress=lambda done, of: seen.append((done, of))
        )
        assert found[0] == found[1] != found[2]
        assert runs(compiler) == 2
        assert seen == [(1, 2), (2, 2)]

    def test_whatever_decides_the_cubin_changes_the_key(self, tmp_path):
        compiler = fake_compiler(tmp_path, "")
        keys = {
            job().key(compiler),
            job("register").key(compiler),
            job(sm="8.0").key(compiler),
            broken().key(compiler),
            job("double_buffer").key(compiler),
            job().key(replace(compiler, version="13.1")),
        }
        assert len(keys) == 6

    def test_a_changed_header_changes_the_key(self, monkeypatch, tmp_path):
        compiler = fake_compiler(tmp_path, "")
        for path in job().kernel.source.parent.iterdir():
            (tmp_path / path.name).write_bytes(path.read_bytes())
        monkeypatch.setattr("gemmsim.kernels.traits.sources", lambda: tmp_path)
        before = job().key(compiler)
        with open(tmp_path / "common.cuh", "a") as header:
            header.write("// changed\n")
        assert job().key(compiler) != before

    @pytest.mark.parametrize("suffix", [".cubin", ".json"])
    @pytest.mark.parametrize("damage", [b"", b"x", b"[]", b'{"sha256": 1}', None])
    def test_a_damaged_entry_is_made_anew(self, use, suffix, damage):
        compiler = use(GOOD)
        (cubin,) = compile_many([job()])
        assert isinstance(cubin, Cubin)
        damaged = cubin.path.with_suffix(suffix)
        damaged.unlink()
        if damage is not None:
            damaged.write_bytes(damage)
        assert compile_many([job()]) == [cubin]
        assert cubin.path.read_bytes() == b"cubin"
        assert runs(compiler) == 2

    def test_an_error_in_the_source_is_a_value_with_its_first_line(self, use):
        use("echo note >&2; echo \"$9/common.cuh(9): error: no such thing\" >&2; echo 'error: more' >&2; exit 1")
        (found,) = compile_many([job()])
        assert isinstance(found, Failure)
        assert found.reason.startswith("naive does not compile: ")
        assert found.reason.endswith("error: no such thing")
        with pytest.raises(InputError, match="does not compile"):
            compile_kernel(job().kernel, job().launch, job().capability)

    @pytest.mark.parametrize(
        "says",
        [
            "gcc: No such file or directory",
            "nvcc fatal   : Failed to preprocess host compiler properties.",
            "nvcc fatal   : Unsupported gpu architecture 'sm_70'",
            "ptxas fatal   : Memory allocation failure",
            "",
        ],
    )
    def test_an_error_of_the_compiler_itself_is_the_machines(self, use, says):
        use(f'echo "{says}" >&2; exit 1')
        with pytest.raises(MachineError, match=r"^nvcc 13\.0 ") as caught:
            compile_many([job()])
        assert "\n" not in str(caught.value)

    def test_a_compiler_that_is_killed_is_the_machines_error(self, use):
        use("kill -9 $$")
        with pytest.raises(MachineError, match="exit status -9"):
            compile_many([job()])

    def test_one_failure_leaves_the_others(self, use):
        use(f"case \"$*\" in *BLOCK_K=7*) echo 'error: static assertion failed' >&2; exit 1;; esac\n{GOOD}")
        first, second, third = compile_many([job(), broken(), job("register")])
        assert isinstance(first, Cubin)
        assert isinstance(second, Failure)
        assert isinstance(third, Cubin)

    def test_an_endless_compilation_is_a_failure(self, use, monkeypatch):
        monkeypatch.setattr(compiling, "TIMEOUT_S", 0.2)
        use("exec sleep 60")
        (found,) = compile_many([job()])
        assert isinstance(found, Failure)
        assert "longer than" in found.reason

    def test_flags_of_the_surroundings_do_not_count(self, use, monkeypatch):
        monkeypatch.setenv("NVCC_APPEND_FLAGS", "-O0")
        monkeypatch.setenv("NVCC_PREPEND_FLAGS", "-G")
        use(f'test -z "$NVCC_APPEND_FLAGS$NVCC_PREPEND_FLAGS" || exit 1\n{GOOD}')
        assert isinstance(compile_many([job()])[0], Cubin)

    def test_many_at_once_share_the_cache(self, use, own_cache):
        use(GOOD)
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda _: compile_kernel(job().kernel, job().launch, job().capability), range(16)))
        assert len(set(found)) == 1
        assert sorted(path.suffix for path in own_cache.iterdir()) == [".cubin", ".json"]  # nothing left over


class TestCacheFolder:
    def test_order_of_the_variables(self, monkeypatch, tmp_path, own_cache):
        assert cache_folder() == own_cache
        monkeypatch.delenv("GEMMSIM_CACHE")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        assert cache_folder() == tmp_path / "xdg/gemmsim"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert cache_folder() == tmp_path / "home/.cache/gemmsim"

    def test_where_nothing_can_be_written_it_is_temporary(self, monkeypatch, tmp_path):
        (tmp_path / "file").write_text("in the way")
        monkeypatch.setenv("GEMMSIM_CACHE", str(tmp_path / "file/cache"))
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        found = cache_folder()
        assert found.parent == tmp_path
        assert cache_folder() == found
        assert found.stat().st_mode & 0o077 == 0

    def test_where_not_even_that_it_is_one_for_the_process(self, monkeypatch, tmp_path):
        monkeypatch.setenv("GEMMSIM_CACHE", str(tmp_path / "file/cache"))
        (tmp_path / "file").write_text("in the way")
        (tmp_path / f"gemmsim-{os.getuid()}").write_text("in the way too")
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        compiling._folder_of_this_process.cache_clear()
        try:
            found = cache_folder()
            assert found.parent == tmp_path
            assert cache_folder() == found
        finally:
            compiling._folder_of_this_process.cache_clear()


def test_without_a_compiler_the_error_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(toolchain, "_candidates", lambda name: iter(()))
    with pytest.raises(MachineError, match=r"gemmsim\[compile\]"):
        compile_many([job()])


class TestWithTheRealCompiler:
    @pytest.fixture(autouse=True)
    def real(self):
        try:
            return toolchain.nvcc()
        except MachineError as error:
            pytest.skip(str(error))

    def test_a_cubin_and_its_registers(self):
        first, same, third = compile_many([job("naive"), job("naive", m=65), broken()])
        assert isinstance(first, Cubin)
        assert same == first
        assert first.path.read_bytes().startswith(b"\x7fELF")
        assert 16 <= first.registers_per_thread <= 64
        assert (first.shared_bytes, first.local_bytes, first.spill_bytes) == (0, 0, 0)
        assert first.compiler == str(toolchain.nvcc())
        assert (
            json.loads(first.path.with_suffix(".json").read_text())["registers_per_thread"]
            == first.registers_per_thread
        )
        assert isinstance(third, Failure)
        assert "double_buffer does not compile: double_buffer.cu(" in third.reason
        assert "error" in third.reason
