"""Files that are written whole or not at all, and who writes them so."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from gemmsim.device import device
from gemmsim.errors import MachineError
from gemmsim.kernels import KERNELS
from gemmsim.problem import Problem
from gemmsim.search.spaces import space
from gemmsim.search.tuner import write_tuner_space
from gemmsim.whole_files import write_whole


def test_what_is_written_takes_the_place_of_what_was_there(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old and longer")
    write_whole(b"new", path)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "write",
    [
        lambda path: write_whole(b"new", path),
        lambda path: write_tuner_space(space(KERNELS["naive"], Problem(64, 64, 64), device("h200")), (), path),
    ],
    ids=["bytes", "a space for Kernel Tuner"],
)
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, write):
    """Of what was to be written some bytes are on disk when there is no more room."""
    path, all_of_it = tmp_path / "file", Path.write_bytes

    def some_of_it(self: Path, content: bytes) -> int:
        all_of_it(self, content[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    path.write_bytes(b"old")
    monkeypatch.setattr(Path, "write_bytes", some_of_it)
    with pytest.raises(MachineError, match="No space left"):
        write(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
