"""Files of records as commands read them: the shipped ones where none is named, and a word on files of points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from gemmsim.errors import InputError
from gemmsim.record_files import read_points, read_records, shipped_records
from gemmsim.records import Record


def read(path: str | None) -> tuple[list[Record], list[str]]:
    """(records, warnings) of the file, or of the shipped one."""
    with refusing_points(path):
        return read_records(shipped_records() if path is None else path)


@contextmanager
def refusing_points(path: str | None) -> Iterator[None]:
    """Says of a file that has no record whether it is one of points."""
    try:
        yield
    except InputError:
        if path is None or not _holds_points(path):
            raise
        raise InputError(
            f"{path} is a file of points, not of records; on a machine with a GPU, `gemmsim measure --points {path}"
            " --out RECORDS.jsonl` makes records of them"
        ) from None


def _holds_points(path: str) -> bool:
    try:
        return bool(read_points(path))
    except InputError:
        return False


def only_device(records: Sequence[Record]) -> str:
    """The device that all records are of; InputError where there are several to choose from."""
    names = list(dict.fromkeys(record.device for record in records))
    if len(names) > 1:
        raise InputError(f"records of {len(names)} devices: {', '.join(names)}; choose one with --device")
    return names[0]
