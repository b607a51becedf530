"""Pictures of the report that several test modules need: drawn once, whichever process comes first."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest
from markupsafe import Markup

from gemmsim.report import page
from gemmsim.report.findings import Findings
from gemmsim.report.pictures import Picture


@contextmanager
def drawn_once(factory: pytest.TempPathFactory, for_all: bool = False) -> Iterator[None]:
    """Inside, a picture of the same records is looked up where it was drawn before, by this run of the tests; `for_all`
    devices of a page the first one's is taken, where its place counts and not what it shows."""
    folder = _of_all_processes(factory) / "drawings"
    folder.mkdir(exist_ok=True)
    draw = page._drawn
    of_first: dict[str, tuple[str, page.Drawn]] = {}

    def drawn(picture: Picture, of: Findings, name: str) -> tuple[page.Drawn, dict[str, bytes]]:
        if for_all and picture.name in of_first:
            first, same = of_first[picture.name]
            versions = tuple((kind, Markup(str(svg).replace(first, name))) for kind, svg in same.versions)
            return replace(same, versions=versions), {}
        points = of.comparison.points if of.comparison else ()
        shown = name, [(str(each.point), each.predicted_s, each.measured_s) for each in points], of.rungs
        kept = folder / sha256(repr(shown).encode()).hexdigest()
        if not kept.exists():
            part = kept.with_suffix(f".{os.getpid()}")
            part.write_bytes(pickle.dumps(draw(picture, of, name)))
            part.replace(kept)
        found: tuple[page.Drawn, dict[str, bytes]] = pickle.loads(kept.read_bytes())
        of_first[picture.name] = name, found[0]
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "_drawn", drawn)
        yield


def _of_all_processes(factory: pytest.TempPathFactory) -> Path:
    """The folder that the workers of one run of the tests share."""
    own = factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
