"""Files that are written whole or not at all: beside their place first, then put there in one step."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from gemmsim.errors import cannot_write
from gemmsim.record_files import check_writable


def check_whole(path: Path) -> None:
    """Raise InputError unless `write_whole` can write there: to be asked before the work, not after."""
    check_writable(path)
    check_writable(_part(path))


def write_whole(content: bytes, path: Path) -> None:
    """Write a file whole or not at all; InputError for a path that cannot take it, MachineError where the disk is
    full."""
    part = _part(path)
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise cannot_write(path, error) from None
    finally:
        if part != path:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _part(path: Path) -> Path:
    """Where the file is written before it takes the place of `path`; a device takes what is written itself."""
    return path.with_name(f".{path.name}.part") if path.is_file() or not path.exists() else path
