"""The driver of the present GPU counts resident blocks as the model does, for every kernel of the campaigns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gemmsim.device import Capability
from gemmsim.errors import MachineError
from gemmsim.gpu.compile import Cubin, Job, compile_many
from gemmsim.gpu.libcuda import blocks_per_sm
from gemmsim.gpu.machine import GpuMachine
from gemmsim.gpu.session import Gpu
from gemmsim.kernels import KERNELS, Launch
from gemmsim.occupancy import occupancy
from gemmsim.record_files import read_points
from gemmsim.register_table import key_of

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # PyCUDA's own warnings are not ours

CAMPAIGNS = Path(__file__).resolve().parent.parent.parent / "campaigns"
LEAST_PAIRS = 200
KIB = 1024
ABOVE_DEFAULT = 48 * KIB
"""Dynamic shared memory above this a launch has to ask for."""


@dataclass(frozen=True)
class Question:
    """One kernel, as compiled, with a block size and dynamic shared memory that it could be launched with."""

    kernel: str
    cubin: Cubin
    threads: int
    dynamic_shared_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.kernel}, {self.cubin.registers_per_thread} registers: {self.threads} threads,"
            f" {self.dynamic_shared_bytes} bytes"
        )


def questions(kernel: str, launch: Launch, cubin: Cubin, on: Capability) -> Iterator[Question]:
    """The launch itself, and other block sizes and shared memory up to the most that the GPU has.

    A kernel is compiled for its own number of threads and for fewer, so none asks for more.
    """
    most = on.shared_bytes_per_block_optin - cubin.shared_bytes
    sizes = {launch.shared_bytes, 0, 1, 1025, 20_000, ABOVE_DEFAULT, ABOVE_DEFAULT + 1, 64 * KIB, 75_000, 100_000,
             on.shared_bytes_per_sm // 2 - on.shared_bytes_reserved_per_block,  # the most that two blocks can have
             on.shared_bytes_per_sm // 2 - on.shared_bytes_reserved_per_block + 1, most - 1, most}  # fmt: skip
    for threads in sorted({launch.threads, launch.threads - 1, launch.threads // 2, 33, 32, 1}):
        for dynamic in sorted(sizes):
            if 1 <= threads <= launch.threads and 0 <= dynamic <= most:
                yield Question(kernel, cubin, threads, dynamic)


@pytest.fixture(scope="module")
def on() -> Capability:
    """The compute capability of the present GPU."""
    with GpuMachine() as machine:
        return machine.device.capability


@pytest.fixture(scope="module")
def asked(on: Capability) -> list[Question]:
    """All questions of all kernels and tilings of the campaigns, each compiled once."""
    points = [point for path in sorted(CAMPAIGNS.glob("*.jsonl")) for point in read_points(path)]
    launches = {}
    for point in points:
        launch = KERNELS[point.kernel].launch(point.problem, point.tiling)
        launches[key_of(point.kernel, launch.macros)] = (point.kernel, launch)
    cubins = compile_many([Job(KERNELS[name], launch, on) for name, launch in launches.values()])
    found: list[Question] = []
    for (name, launch), cubin in zip(launches.values(), cubins, strict=True):
        assert isinstance(cubin, Cubin), f"{name} does not compile: {cubin}"
        found += questions(name, launch, cubin, on)
    return found


def test_the_driver_counts_as_many_blocks(asked, on, capsys):
    different, above = [], 0
    with Gpu():
        for question in asked:
            image = question.cubin.path.read_bytes()
            driver = blocks_per_sm(image, "gemm", question.threads, question.dynamic_shared_bytes)
            ours = occupancy(
                on,
                question.threads,
                question.cubin.registers_per_thread,
                question.cubin.shared_bytes,
                question.dynamic_shared_bytes,
            )
            above += question.dynamic_shared_bytes > ABOVE_DEFAULT
            if driver != ours.blocks_per_sm:
                different.append(f"{question}: {driver} by the driver, {ours.blocks_per_sm} by the model")
    kernels = {question.cubin.path for question in asked}
    with capsys.disabled():
        print(
            f"\noccupancy by the driver: {len(asked) - len(different)} of {len(asked)} pairs equal, {above} of them"
            f" above 48 KB, {len(kernels)} compiled kernels"
        )
    assert different == []
    assert len(asked) >= LEAST_PAIRS
    assert above >= LEAST_PAIRS // 2
    assert {question.kernel for question in asked} == set(KERNELS)


def test_the_driver_refuses_what_the_model_refuses(asked, on):
    """A block that asks for all shared memory there is, and one byte more."""
    question = asked[0]
    most = on.shared_bytes_per_block_optin - question.cubin.shared_bytes
    image, registers = question.cubin.path.read_bytes(), question.cubin.registers_per_thread
    with Gpu():
        assert blocks_per_sm(image, "gemm", 32, most) == 1 == occupancy(on, 32, registers, 0, most).blocks_per_sm
        assert not occupancy(on, 32, registers, 0, most + 1).launches
        with pytest.raises(MachineError):
            blocks_per_sm(image, "gemm", 32, most + 1)
