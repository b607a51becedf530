"""Tables of the package that are damaged: one line that names the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmsim.caches import scalars as caches
from gemmsim.clblast import constants as clblast
from gemmsim.errors import InputError
from gemmsim.kernels import registers as needs
from gemmsim.main_loops import sub_core
from gemmsim.registers import register_files


@pytest.mark.parametrize(
    ("module", "folder", "name", "read"),
    [
        (caches, "FILE", "caches.toml", caches.scalars),
        (clblast, "FILE", "clblast.toml", clblast.constants),
        (needs, "FILE", "register_needs.toml", needs.needs),
        (sub_core, "DATA", "latencies.toml", sub_core.latencies),
        (register_files, "DATA", "register_files.toml", register_files._rows),
    ],
)
@pytest.mark.parametrize("content", ["[cut", "a = \x00"])
def test_a_damaged_table_is_named(module, folder, name, read, content, tmp_path: Path, monkeypatch):
    path = tmp_path / name
    path.write_text(content)
    monkeypatch.setattr(module, folder, path if folder == "FILE" else tmp_path)
    with pytest.raises(InputError, match=f"{name} is damaged: "):
        read.__wrapped__()
