"""Programs of other makers: found in the right order, and one clear line where there is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gemmsim.errors import MachineError
from gemmsim.gpu import toolchain


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch, tmp_path):
    """A machine with no wheels, no toolkit, and nothing on PATH."""
    empty = tmp_path / "empty"
    empty.mkdir()
    for name, value in (("LOCAL", tmp_path / "local"), ("NSIGHT", tmp_path / "nsight")):
        monkeypatch.setattr(toolchain, name, value)
    monkeypatch.setattr(toolchain, "_wheel_toolkits", lambda: iter(()))
    monkeypatch.setenv("PATH", str(empty))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)


def program(path: Path, text: str = "release 13.0, V13.0.88", status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{text}'\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("find", "name", "remedy"),
    [
        (toolchain.nvcc, "nvcc", "gemmsim[compile]"),
        (toolchain.nvdisasm, "nvdisasm", "gemmsim[compile]"),
        (toolchain.ncu, "ncu", "Nsight Compute"),
        (toolchain.compute_sanitizer, "compute-sanitizer", "CUDA toolkit"),
    ],
)
def test_a_missing_program_is_one_line_with_a_remedy(find, name, remedy):
    with pytest.raises(MachineError) as caught:
        find()
    assert str(caught.value).startswith(f"{name}, needed to ")
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_best_place_wins(monkeypatch, tmp_path):
    places = [
        tmp_path / "local/cuda-12.9/bin",
        tmp_path / "local/cuda-13.1/bin",
        tmp_path / "home/bin",
        tmp_path / "path",
    ]
    found = []
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"), prepend=os.pathsep)
    for place in places:  # each better than the one before
        program(place / "nvcc")
        found.append(toolchain.nvcc().path)
    wheels = tmp_path / "wheels"
    program(wheels / "bin/nvcc")
    monkeypatch.setattr(toolchain, "_wheel_toolkits", lambda: iter([wheels]))
    found.append(toolchain.nvcc().path)  # a part of a toolkit is none
    for part in toolchain.TOOLKIT_PARTS[1:]:
        program(wheels / part)
    found.append(toolchain.nvcc().path)
    assert found == [*(place / "nvcc" for place in places), places[-1] / "nvcc", wheels / "bin/nvcc"]


def test_the_newest_profiler_wins(tmp_path):
    for version in ("2024.1.0", "2025.3.1", "2025.10.0"):
        program(tmp_path / "nsight" / version / "ncu", f"Version {version}.0 (build 1) (public-release)")
    assert toolchain.ncu().version == "2025.10.0.0"


def test_a_file_that_cannot_be_executed_is_no_program(tmp_path):
    program(tmp_path / "local/cuda/bin/nvcc").chmod(0o644)
    with pytest.raises(MachineError, match="not on this machine"):
        toolchain.nvcc()


def test_a_program_that_does_not_run_says_why(tmp_path):
    broken = program(tmp_path / "local/cuda/bin/nvcc", "cannot load libfoo.so", status=127)
    with pytest.raises(MachineError, match=r"nvcc does not run: cannot load libfoo\.so"):
        toolchain.nvcc()
    broken.write_bytes(b"\x00\x01")
    with pytest.raises(MachineError, match="does not run"):
        toolchain.nvcc()


@pytest.mark.parametrize(
    ("says", "version"),
    [
        ("Cuda compilation tools, release 13.0, V13.0.88", "13.0.88"),
        ("Version 2025.3.1.0 (build 36398880) (public-release)", "2025.3.1.0"),
        ("Version 2025.3.1", "2025.3.1"),
        ("hello", "unknown"),
    ],
)
def test_versions(tmp_path, says, version):
    assert toolchain.version_of(program(tmp_path / "tool", says)) == version


def test_every_candidate_is_absolute_or_of_path(monkeypatch):
    monkeypatch.setenv("CUDA_HOME", "")  # set but empty counts for nothing
    assert all(path.is_absolute() for path in toolchain._candidates("nvcc"))
