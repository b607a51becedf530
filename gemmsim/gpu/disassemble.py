"""The disassembler: machine code of a cubin as text with its instruction words, for `gemmsim.machine_code.listings`."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from gemmsim.errors import InputError, MachineError, one_line
from gemmsim.gpu.toolchain import nvdisasm
from gemmsim.machine_code.cubin import parse_cubin, read_cubin
from gemmsim.machine_code.listings import parse_listing
from gemmsim.machine_code.sass import Function

TIMEOUT_S = 120


def disassembled(image: bytes, name: str = "cubin") -> tuple[Function, ...]:
    """The functions of a cubin, called `name` in errors.

    Raises InputError for bytes that are no cubin of sm_70 or later, MachineError where there is no disassembler
    or it does not know the architecture.
    """
    arch = parse_cubin(image, name).arch
    tool = nvdisasm()
    with tempfile.TemporaryDirectory(prefix="gemmsim-") as folder:
        path = Path(folder) / "code.cubin"
        path.write_bytes(image)
        command = [str(tool.path), "-c", "-hex", str(path)]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise InputError(f"{name}: the disassembler took longer than {TIMEOUT_S} s") from None
        except OSError as error:
            raise MachineError(f"{tool.path} does not run: {error.strerror or error}") from None
    if answer.returncode != 0:
        reason = one_line(answer.stderr or f"exit status {answer.returncode}").replace(str(path), name)
        raise MachineError(f"{tool} does not read {name} ({arch}): {reason}")
    return parse_listing(answer.stdout, name)


def disassembled_file(path: str | Path) -> tuple[Function, ...]:
    """The functions of a file that holds a cubin; InputError too where it cannot be read."""
    return disassembled(read_cubin(path).image, str(path))
