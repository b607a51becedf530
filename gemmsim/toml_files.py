"""Tables that come with the package, as TOML."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from gemmsim.errors import reading


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a file; InputError, which names it, where it is damaged."""
    with reading(path):
        return tomllib.loads(path.read_text(encoding="utf-8"))
