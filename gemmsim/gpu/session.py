"""The present GPU: one context, made in the calling thread and given back when done.

The only place that imports PyCUDA, and only when a GPU is asked for.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass
from types import ModuleType, TracebackType
from typing import Any

from gemmsim.errors import MachineError, one_line


@dataclass(frozen=True)
class GpuFacts:
    """What the driver says of the GPU. `cuda` is the newest CUDA that the driver takes."""

    title: str
    capability: str
    sms: int
    l2_bytes: int
    memory_bytes: int
    pci_bus_id: str
    cuda: str
    pycuda: str


class Gpu:
    """`with Gpu() as gpu:` makes a context current in this thread; at the end it is popped and destroyed,
    also after an error, and whatever context was current before is current again.

    Raises MachineError without PyCUDA, driver or GPU, and when used from another thread or outside `with`.
    """

    def __init__(self, ordinal: int = 0) -> None:
        self.ordinal = ordinal
        self._driver: Any = None
        self._context: Any = None
        self._thread: int | None = None
        self._facts: GpuFacts | None = None

    def __enter__(self) -> Gpu:
        if self._context is not None:
            raise MachineError("this Gpu has a context already; make a second Gpu instead")
        driver = _pycuda_driver()
        try:
            driver.init()
            count = driver.Device.count()
            if self.ordinal >= count:
                raise MachineError(f"no GPU number {self.ordinal}: the driver shows {count}; run this on a GPU machine")
            device = driver.Device(self.ordinal)
            self._facts = _facts(driver, device)
            self._context = device.make_context()
        except driver.Error as error:
            raise MachineError(f"no usable NVIDIA GPU: {one_line(error)}; run this on a GPU machine") from None
        self._driver, self._thread = driver, threading.get_ident()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        driver, context = self.driver, self._context
        self._driver = self._context = self._thread = None
        with contextlib.suppress(driver.Error):  # a kernel may have broken the context; then there is no more to do
            if driver.Context.get_current() == context:
                driver.Context.pop()
            context.detach()

    @property
    def driver(self) -> Any:
        """The module `pycuda.driver`, with this GPU's context current.

        Raises MachineError from another thread: CUDA contexts belong to the thread that made them.
        """
        if self._driver is None:
            raise MachineError("this Gpu has no context: use it inside `with Gpu() as gpu:`")
        if threading.get_ident() != self._thread:
            raise MachineError(
                "this Gpu was entered in another thread, and its CUDA context is current only there;"
                " enter a Gpu of its own in each thread"
            )
        return self._driver

    @property
    def facts(self) -> GpuFacts:
        """What the driver says of this GPU."""
        if self._facts is None:
            raise MachineError("this Gpu has no context: use it inside `with Gpu() as gpu:`")
        return self._facts

    def alive(self) -> bool:
        """Whether the context still works: a kernel that touches a wrong address ends it for good."""
        try:
            self.driver.Context.synchronize()
        except self.driver.Error:
            return False
        return True


def _pycuda_driver() -> ModuleType:
    try:
        import pycuda.driver
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("pycuda"):
            raise MachineError(f"PyCUDA lacks a package: {one_line(error)}; pip install 'gemmsim[gpu]'") from None
        raise MachineError(
            "running kernels needs an NVIDIA GPU, a CUDA toolkit and PyCUDA:"
            " `make measure` in a checkout builds it, or pip install '.[gpu]'"
        ) from None
    except ImportError as error:
        raise MachineError(
            f"PyCUDA does not load: {one_line(error)}; it needs an NVIDIA driver (libcuda) no older than the CUDA that"
            " it was built with, so run this on a GPU machine or build PyCUDA again"
        ) from None
    return pycuda.driver  # type: ignore[no-any-return]


def _facts(driver: Any, device: Any) -> GpuFacts:
    import pycuda

    attribute = driver.device_attribute
    number = driver.get_driver_version()
    return GpuFacts(
        title=device.name(),
        capability="{}.{}".format(*device.compute_capability()),
        sms=int(device.get_attribute(attribute.MULTIPROCESSOR_COUNT)),
        l2_bytes=int(device.get_attribute(attribute.L2_CACHE_SIZE)),
        memory_bytes=int(device.total_memory()),
        pci_bus_id=device.pci_bus_id(),
        cuda=f"{number // 1000}.{number % 1000 // 10}",
        pycuda=pycuda.VERSION_TEXT,
    )
