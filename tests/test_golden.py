"""Golden predictions: nothing changes without being seen."""

from __future__ import annotations

import golden


def test_predictions_and_counts_are_what_they_were():
    expected = golden.FILE.read_text(encoding="utf-8").splitlines()
    for line, found in zip(expected, golden.lines(), strict=True):
        assert found == line, "changed; if it should have, run `make golden` and review the diff"
