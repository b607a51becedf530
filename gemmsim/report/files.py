"""Files in a folder, each whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile

from gemmsim.errors import cannot_write


def check(folder: Path) -> None:
    """Sees that files can be written there, or, where there is no such folder yet, where it would be made: to be known
    before all the work. Makes nothing.

    Raises InputError, or MachineError where the disk is full.
    """
    with _writing(folder):
        TemporaryFile(
            dir=next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
        ).close()


def make(folder: Path) -> None:
    """Makes the folder. Raises InputError, or MachineError where the disk is full."""
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def write(folder: Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Every file whole or not at all, in order: so the page, which comes last, has its pictures.

    Raises InputError, or MachineError where the disk is full.
    """
    written: list[Path] = []
    part: Path | None = None
    try:
        with _writing(folder):
            for name, content in contents.items():
                part = folder / f".{name}.part"
                part.write_bytes(content)
                written.append(part.replace(folder / name))
    finally:
        if part is not None:
            _forget(part)
    return written


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """Turns the system's refusal to write into one line."""
    try:
        yield
    except OSError as error:
        raise cannot_write(f"the report into {folder}", error) from None


def _forget(part: Path) -> None:
    """Removes what an interrupted write leaves."""
    try:
        part.unlink(missing_ok=True)
    except OSError:
        return
