"""The present GPU as a campaign sees it: compile, count, measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemmsim.device import Device, capability, device
from gemmsim.errors import InputError, Warn
from gemmsim.gpu.compile import Cubin, Job, compile_many
from gemmsim.gpu.counters import METRICS, count
from gemmsim.gpu.environment import software
from gemmsim.gpu.session import GpuFacts
from gemmsim.gpu.supervisor import Supervisor
from gemmsim.gpu.toolchain import nvcc
from gemmsim.kernels import kernel as kernel_named
from gemmsim.records import Failure, Point, Record


class GpuMachine:
    """`with GpuMachine() as machine:` measures on the present GPU, as the device that it is or that is given.

    Raises MachineError where no GPU can be used, InputError where it is no known device, or not of
    the given device's compute capability.
    """

    def __init__(self, as_device: Device | None = None, warn: Warn = lambda message: None) -> None:
        self._warn = warn
        self._supervisor = Supervisor()
        try:
            self._facts = self._supervisor.facts()
            self.device = _identified(self._facts, as_device)
        except BaseException:
            self._supervisor.close()
            raise

    def __enter__(self) -> GpuMachine:
        return self

    def __exit__(self, *_: object) -> None:
        self._supervisor.close()

    def prepare(self, points: Sequence[Point], progress: Callable[[int, int], None]) -> list[Failure | None]:
        """Compile the kernels of all points; for each, why it cannot be run on this device, or None.

        Warns of every kernel that spills registers, once for all the sizes that share it.
        """
        jobs: dict[int, Job] = {}
        failures: dict[int, Failure] = {}
        for index, point in enumerate(points):
            kernel = kernel_named(point.kernel)
            try:
                kernel.check(point.tiling, self.device)
                jobs[index] = Job(kernel, kernel.launch(point.problem, point.tiling), self.device.capability)
            except InputError as error:
                failures[index] = Failure(str(error))
        compiled = compile_many(list(jobs.values()), progress=progress)
        spills: dict[str, None] = {}
        for index, result in zip(jobs, compiled, strict=True):
            if isinstance(result, Failure):
                failures[index] = result
            elif result.spill_bytes:
                spills[_spills(points[index], result)] = None
        for text in spills:
            self._warn(text)
        return [failures.get(index) for index in range(len(points))]

    def count(self, points: Sequence[Point], wanted: Mapping[str, str] = METRICS) -> list[dict[str, int] | Failure]:
        """The hardware counters of one launch of each point: those of a table such as METRICS."""
        self._supervisor.close()  # the profiled process has the GPU to itself
        return count(points, self._warn, wanted)

    def measure(self, point: Point, flush: bool) -> Record:
        """The record of one point, without counters."""
        return self._supervisor.measure(point, self.device.name, flush, self.environment())

    def environment(self) -> dict[str, Any]:
        """What the record of a point says that does not even run. Raises MachineError where there is no compiler."""
        return software(self._facts, str(nvcc()))


def _identified(facts: GpuFacts, as_device: Device | None) -> Device:
    if as_device is None:
        return _known(facts)
    if as_device.capability != capability(facts.capability):
        raise InputError(
            f"device {as_device.name} is of compute capability {as_device.capability.name},"
            f" the {facts.title} of this machine of {facts.capability}"
        )
    return as_device


def _known(facts: GpuFacts) -> Device:
    """The device whose title is the driver's name of this GPU."""
    try:
        return device(facts.title)
    except InputError:
        raise InputError(
            f"{facts.title} is no known device; describe it in a TOML file with title = {facts.title!r},"
            f" capability = {facts.capability!r}, sms = {facts.sms}, l2_bytes = {facts.l2_bytes}, clock_hz and"
            " dram_bytes_per_s, and give it with --device FILE.toml"
        ) from None


def _spills(point: Point, cubin: Cubin) -> str:
    kernel, registers = kernel_named(point.kernel), cubin.registers_per_thread
    return (
        f"{kernel.name} {kernel.describe(point.tiling)}: its {registers} registers a thread"
        f" spill {cubin.spill_bytes} bytes; measured all the same"
    )
