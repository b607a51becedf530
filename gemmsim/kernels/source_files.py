"""Where the CUDA sources lie, and which headers each takes."""

from __future__ import annotations

import re
from pathlib import Path


def sources() -> Path:
    """The folder of the CUDA sources: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).parent.parent
    inside = package / "data" / "kernels"
    return inside if inside.is_dir() else package.parent / "kernels"


def headers(source: Path) -> tuple[Path, ...]:
    """The headers that a source includes, and those that they include, by name."""
    seen, new = set(), {source}
    while new:
        seen |= new
        included = {name for path in new for name in re.findall(r'^#include "(.+)"', path.read_text(), re.MULTILINE)}
        new = {source.parent / name for name in included} - seen
    return tuple(sorted(seen - {source}))
