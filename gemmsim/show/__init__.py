"""Results as tables and a few lines for people, within 80 columns.

Commands get this package as the argument of their answer's `show`, so that `rich` is imported for tables alone.
"""

from collections.abc import Sequence
from pathlib import Path

from gemmsim.console import line
from gemmsim.show.devices import device, devices
from gemmsim.show.launches import explanation, ladder, prediction, traffic
from gemmsim.show.measurements import comparison, records

__all__ = ["comparison", "device", "devices", "explanation", "files", "ladder", "prediction", "records", "traffic"]


def files(written: Sequence[Path]) -> None:
    """The files written, one a line."""
    for path in written:
        line(str(path), wrap=False)
