"""Compiles kernels to cubins, without a GPU, and keeps them by content: the same source is compiled once."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from gemmsim.device import Capability
from gemmsim.errors import InputError, MachineError
from gemmsim.gpu.toolchain import Tool, nvcc
from gemmsim.kernels import Kernel, Launch
from gemmsim.records import Failure

FLAGS = ("-cubin", "-std=c++17", "-Xptxas=-v")
TIMEOUT_S = 600
MORE_FLAGS = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
"""Variables from which nvcc takes flags; a cubin depends on nothing that is not in its key, so not on these."""


@dataclass(frozen=True)
class Cubin:
    """A compiled kernel and what its compiler said of it, per thread and per block.

    shared_bytes  static shared memory; the tiles are dynamic and not in it
    local_bytes   stack frame in local memory
    spill_bytes   stored and loaded again because registers ran out; no reason to discard a kernel
    """

    path: Path
    registers_per_thread: int
    shared_bytes: int
    local_bytes: int
    spill_bytes: int
    compiler: str


@dataclass(frozen=True)
class Job:
    """One compilation: a kernel with the macros of a launch, for one compute capability."""

    kernel: Kernel
    launch: Launch
    capability: Capability

    def command(self, compiler: Tool, output: Path) -> list[str]:
        """The compiler's command line."""
        macros = [f"-D{name}={value}" for name, value in sorted(self.launch.macros.items())]
        source = str(self.kernel.source)
        return [str(compiler.path), *FLAGS, f"-arch={self.capability.sm}", *macros, source, "-o", str(output)]

    def key(self, compiler: Tool) -> str:
        """Hash of all that decides the cubin: sources, macros, flags, capability and compiler."""
        digest = hashlib.sha256()
        for path in self.kernel.files:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
        rest = (sorted(self.launch.macros.items()), FLAGS, self.capability.sm, str(compiler))
        digest.update(json.dumps(rest).encode())
        return digest.hexdigest()


def compile_kernel(kernel: Kernel, launch: Launch, capability: Capability) -> Cubin:
    """The cubin of a kernel with the macros of a launch, from the cache if it is there.

    Raises InputError with the compiler's first error for source that does not compile, MachineError
    where there is no compiler or it does not work.
    """
    return _compiled(Job(kernel, launch, capability), nvcc(), cache_folder())


def compile_many(
    jobs: Sequence[Job], processes: int | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Cubin | Failure]:
    """Compile all, several at once (one a core unless told otherwise); a Failure where a job does not compile.

    Jobs with the same result are compiled once. `progress` gets (done, all) after each compilation.
    Raises MachineError where there is no compiler or it does not work.
    """
    compiler, folder = nvcc(), cache_folder()
    keys = [job.key(compiler) for job in jobs]
    different = dict(zip(keys, jobs, strict=True))
    done: dict[str, Cubin | Failure] = {}
    with ThreadPoolExecutor(processes or available_cores()) as pool:
        futures = {pool.submit(_attempt, job, compiler, folder): key for key, job in different.items()}
        try:
            for future in as_completed(futures):
                done[futures[future]] = future.result()
                if progress:
                    progress(len(done), len(different))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done[key] for key in keys]


def compile_all(
    jobs: Sequence[Job], processes: int | None = None, progress: Callable[[int, int], None] | None = None
) -> list[Cubin]:
    """As `compile_many`, where every job is to compile: InputError for the first that does not."""
    cubins = []
    for result in compile_many(jobs, processes, progress):
        if isinstance(result, Failure):
            raise InputError(result.reason)
        cubins.append(result)
    return cubins


def available_cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def cache_folder() -> Path:
    """Where cubins are kept: $GEMMSIM_CACHE, else gemmsim/ in $XDG_CACHE_HOME, else in ~/.cache.

    Where that cannot be written, a folder among the temporary files that is this user's alone, or in the end
    this process's.
    """
    chosen = os.environ.get("GEMMSIM_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    wanted = Path(chosen) if chosen else Path(base) / "gemmsim"
    if _takes_files(wanted):
        return wanted
    user = os.getuid() if hasattr(os, "getuid") else 0
    temporary = Path(tempfile.gettempdir()) / f"gemmsim-{user}"
    if _takes_files(temporary) and temporary.stat().st_uid == user:
        return temporary
    return _folder_of_this_process()


@cache
def _folder_of_this_process() -> Path:
    return Path(tempfile.mkdtemp(prefix="gemmsim-"))


def _takes_files(folder: Path) -> bool:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _attempt(job: Job, compiler: Tool, folder: Path) -> Cubin | Failure:
    try:
        return _compiled(job, compiler, folder)
    except InputError as error:
        return Failure(str(error))


def _compiled(job: Job, compiler: Tool, folder: Path) -> Cubin:
    path = folder / f"{job.kernel.name}-{job.key(compiler)}.cubin"
    return _kept(path) or _compile(job, compiler, path)


def _kept(path: Path) -> Cubin | None:
    """The cubin of the cache, or None where there is none or it is damaged."""
    try:
        facts = json.loads(path.with_suffix(".json").read_bytes())
        if hashlib.sha256(path.read_bytes()).hexdigest() != facts.pop("sha256"):
            return None
        return Cubin(path=path, **facts)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _compile(job: Job, compiler: Tool, path: Path) -> Cubin:
    """Run the compiler; its output gets its name in one step, so that no other process sees half of it."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix="compiling-") as folder:
        output = Path(folder) / "kernel.cubin"
        try:
            answer = subprocess.run(
                job.command(compiler, output),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=TIMEOUT_S,
                env={name: value for name, value in os.environ.items() if name not in MORE_FLAGS},
            )
        except subprocess.TimeoutExpired:
            raise InputError(f"{job.kernel.name}: the compiler took longer than {TIMEOUT_S} s") from None
        except OSError as error:
            raise MachineError(f"{compiler.path} does not run: {error.strerror or error}") from None
        text = answer.stderr + answer.stdout
        if answer.returncode != 0 or not output.is_file():
            raise _refusal(job, compiler, text, answer.returncode)
        facts = Cubin(path, **_resources(text), compiler=str(compiler))
        kept = {name: value for name, value in asdict(facts).items() if name != "path"}
        kept["sha256"] = hashlib.sha256(output.read_bytes()).hexdigest()
        description = Path(folder) / "kernel.json"
        description.write_text(json.dumps(kept))
        os.replace(output, path)
        os.replace(description, path.with_suffix(".json"))
    return facts


def _resources(text: str) -> dict[str, int]:
    """Registers and bytes from what `ptxas -v` prints of the kernel."""

    def number(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, text))

    return {
        "registers_per_thread": number(r"Used (\d+) registers"),
        "shared_bytes": number(r"(\d+) bytes smem"),
        "local_bytes": number(r"(\d+) bytes stack frame"),
        "spill_bytes": number(r"(\d+) bytes spill (?:stores|loads)"),
    }


def _refusal(job: Job, compiler: Tool, text: str, status: int) -> InputError | MachineError:
    """The error in one line: the machine's where the compiler itself does not work, else the source's."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    host = next((line for line in lines if re.search(r"host compiler|: No such file|unsupported GNU", line)), None)
    if host:
        return MachineError(f"{compiler} needs a C++ compiler of the host that it knows, such as g++ ({host})")
    fatal = next((line for line in lines if re.match(r"\w+ fatal", line)), None)
    if fatal or status < 0 or not lines:
        return MachineError(f"{compiler} does not work for {job.capability.sm}: {fatal or f'exit status {status}'}")
    first = next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)), lines[0])
    return InputError(f"{job.kernel.name} does not compile: {first.replace(f'{job.kernel.source.parent}/', '')}")
