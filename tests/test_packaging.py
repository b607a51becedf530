"""The package from outside: what an import costs, who may import whom, and what a wheel holds."""

from __future__ import annotations

import ast
import email
import gzip
import importlib.metadata
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import gemmsim
from gemmsim.kernels import KERNELS
from gemmsim.record_files import read_points, read_records, shipped_records

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "gemmsim"

HEAVY = {"pandas", "matplotlib", "pycuda", "rich", "jinja2"}
PACKED = {".gz": gzip.decompress, ".xz": lzma.decompress}
MAY_BE_HEAVY = {"console", "show", "plots", "report"}

LAYERS = (
    "streams", "errors", "toml_files", "expressions", "units", "notebook", "elementwise", "problem", "rules", "tiling",
    "device", "occupancy", "kernels", "register_table", "banks", "older_banks", "calibration", "coalescing", "patterns",
    "pattern_files", "accesses", "traffic", "caches", "registers", "machine_code", "main_loops", "roofline", "pipeline",
    "analytic", "predict", "simulated_times", "routes", "explain", "rearrange", "records", "record_files", "held_out",
    "compare", "clblast", "whole_files", "ladder", "search", "scenes", "options", "answers", "gpu", "measure",
    "cluster", "console", "show", "plots", "report", "commands", "cli", "__main__",
)  # fmt: skip
"""The modules from the bottom up: each may import those before it, none after it."""


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The finished command; its output goes into the failure if there is one."""
    # A make that runs the tests hands down its own options.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        command, cwd=cwd, env=inherited | environment, capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    if done.returncode:
        pytest.fail(f"{command} exited {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


# Imports


@cache
def module_names() -> dict[str, Path]:
    """{dotted name: file} of every module of the package."""
    names = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def layer(module: str) -> str:
    """The part of the package that a module belongs to; empty for the package itself."""
    return module.partition(".")[2].partition(".")[0]


def imported(module: str) -> Iterator[str]:
    """The modules of the package that `module` imports, within functions too."""
    path = module_names()[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) + 1 - node.level]) if node.level else ""
            base = ".".join(part for part in (above, node.module) if part)
            names = [f"{base}.{alias.name}" for alias in node.names]
            names = [name if name in module_names() else base for name in names]
        else:
            continue
        yield from (name for name in names if name in module_names() and name != module)


def test_every_module_has_its_layer():
    assert {layer(module) for module in module_names()} - {""} <= set(LAYERS)


@pytest.mark.parametrize("module", module_names())
def test_no_module_imports_a_higher_layer(module):
    allowed = {"", *LAYERS[: LAYERS.index(layer(module)) + 1]} if layer(module) else set()
    assert {layer(name) for name in imported(module)} <= allowed


def test_imports_form_no_circle():
    # Within a package too; graphlib raises CycleError, which names the circle.
    order = list(TopologicalSorter({module: set(imported(module)) for module in module_names()}).static_order())
    assert order.index("gemmsim.errors") < order.index("gemmsim.kernels")


def test_importing_the_package_is_light():
    done = run(sys.executable, "-X", "importtime", "-c", "import gemmsim")
    microseconds = {
        name.strip(): int(cumulative)
        for _, cumulative, name in (line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2)
        if cumulative.strip().isdigit()
    }
    assert "gemmsim" in microseconds
    assert not HEAVY & {name.partition(".")[0] for name in microseconds}
    beyond_numpy = microseconds["gemmsim"] - microseconds.get("numpy", 0)
    assert beyond_numpy <= 150_000


def test_the_model_imports_light_packages_only():
    light = [module for module in module_names() if layer(module) not in MAY_BE_HEAVY]
    code = f"""
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    print(module, *sorted({HEAVY} & {{name.partition(".")[0] for name in sys.modules}}))
"""
    done = run(sys.executable, "-c", code, *light)
    assert done.stdout.splitlines() == light  # a line with more than its module names the heavy packages


# Wheel and source distribution


def contents(wheel: Path) -> dict[str, bytes]:
    """{name: bytes} of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def build(tree: Path, out: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution made from a tree, in folder `out`."""
    run(sys.executable, "-m", "hatchling", "build", "-d", str(out), cwd=tree)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the unpacked wheel, away from the checkout."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(built[0]) as archive:
        archive.extractall(site)
    return site


def test_the_wheel_holds_the_package_its_data_and_the_kernels(built):
    expected = {
        str(Path(target) / path.relative_to(ROOT / source)): path.read_bytes()
        for source, target in (("gemmsim", "gemmsim"), ("kernels", "gemmsim/data/kernels"))
        for path in (ROOT / source).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    for part in ("data/devices/h200.toml", "data/capabilities.toml", "data/kernels/naive.cu", "py.typed"):
        assert f"gemmsim/{part}" in expected
    found = {name: data for name, data in contents(built[0]).items() if ".dist-info/" not in name}
    assert sorted(found) == sorted(expected)
    assert found == expected


def test_the_source_distribution_builds_the_same_wheel(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.iterdir()
    again, _ = build(tree, tmp_path / "dist")
    assert contents(again) == contents(built[0])


def test_the_installed_package_finds_its_kernels(installed):
    code = """
from gemmsim.kernels import KERNELS, sources
print(sources(), all(kernel.source.is_file() for kernel in KERNELS.values()))
"""
    done = run(sys.executable, "-c", code, cwd=installed, PYTHONPATH=str(installed))
    assert done.stdout.split() == [str(installed / "gemmsim" / "data" / "kernels"), "True"]


@pytest.mark.parametrize(
    "command", ["devices", "explain 64 --kernel naive", "traffic 64 --kernel naive", "predict 64 --kernel naive",
                "compare", "report --out reports"]
)  # fmt: skip
def test_the_installed_package_needs_no_checkout(installed, tmp_path, command):
    run(sys.executable, "-m", "gemmsim", *command.split(), cwd=tmp_path, PYTHONPATH=str(installed))


def test_the_metadata(built):
    (text,) = (data for name, data in contents(built[0]).items() if name.endswith(".dist-info/METADATA"))
    metadata = email.message_from_bytes(text)
    assert (metadata["Name"], metadata["Version"]) == ("gemmsim", gemmsim.__version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("MIT", ">=3.11")
    assert {"gpu", "compile"} <= set(metadata.get_all("Provides-Extra", []))


def test_the_installed_version_is_that_of_the_code():
    try:
        version = importlib.metadata.version("gemmsim")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("gemmsim is not installed here")
    assert version == gemmsim.__version__


# Locks and make


@cache
def locked(name: str) -> dict[str, str]:
    """{package: version} of a lock file; each has hashes, and there is nothing else in it."""
    pins = {}
    text = re.sub(r"\\\n *", " ", (ROOT / "requirements" / f"{name}.txt").read_text())
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            pin = re.fullmatch(r"([a-z0-9-]+)==(\S+)( ; [^-]+?)?((?: +--hash=sha256:[0-9a-f]{64})+)", line)
            assert pin, f"{name}.txt: not a pin with hashes: {line[:80]}"
            pins[pin[1]] = pin[2]
    return pins


def wanted(*extras: str) -> set[str]:
    """The packages that pyproject.toml asks for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in extras:
        asked += project["optional-dependencies"][extra]
    return {re.split(r"[^A-Za-z0-9-]", requirement)[0].lower() for requirement in asked}


@pytest.mark.parametrize(
    ("lock", "extras"),
    [
        ("core", []),
        ("dev", ["compile", "test", "check"]),
        ("gpu", ["compile", "gpu"]),
        ("beside", ["cublas", "heuristics", "cluster"]),
    ],
)
def test_the_locks_hold_what_the_project_asks_for(lock, extras):
    assert wanted(*extras) <= set(locked(lock))
    assert locked("core").items() <= locked(lock).items()


def test_every_extra_is_in_a_lock():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert wanted(*extras) <= set().union(*(locked(path.stem) for path in (ROOT / "requirements").glob("*.txt")))


def test_only_the_gpu_environment_has_pycuda():
    assert "pycuda" in locked("gpu")
    assert "pycuda" not in locked("core") | locked("dev")
    if shutil.which("make"):
        assert "gpu.txt" not in run("make", "--dry-run", "demo", "test", "check").stdout
        assert "gpu.txt" in run("make", "--dry-run", "--always-make", "measure").stdout


# The tree


def test_no_file_names_a_place_that_only_one_machine_has():
    if not (ROOT / ".git").exists():
        pytest.skip("not a checkout: the list of files is git's")
    own_places = re.compile(
        rb"(?<![\w.<}-])/(?:root|home|work|farm|Users)/" rb"|\b(?:pypi|pythonhosted|npmjs|debian)\.(?:org|com)\b"
    )
    found = []
    for name in run("git", "ls-files", "-z").stdout.split("\0"):
        path = ROOT / name
        if path.is_file():
            data = PACKED.get(path.suffix, bytes)(path.read_bytes())
            found += [f"{name}: {match[0].decode()}" for match in own_places.finditer(data) if b"\0" not in data]
    assert found == []


def test_the_files_of_campaigns_are_points():
    files = sorted((ROOT / "campaigns").glob("*.jsonl"))
    assert len(files) > 5
    for path in files:  # what was measured without being a record is in campaigns/measured/
        assert read_points(path), path


DRAWN = ("times", "times_again", "times_third", "times_fourth")


def test_the_draws_of_the_campaign_share_no_point():
    draws = [read_points(ROOT / "campaigns" / f"{name}.jsonl") for name in DRAWN]
    first, *others = (Counter(point.kernel for point in draw) for draw in draws)
    assert others == [first] * 3
    keys = [point.key for draw in draws for point in draw]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("draw", ["third", "fourth"])
def test_all_of_a_draw_is_measured(draw):
    records, _ = read_records(shipped_records(draw))
    wanted = read_points(ROOT / "campaigns" / f"times_{draw}.jsonl")
    assert sorted(record.point.key for record in records if record.ok) == sorted(point.key for point in wanted)


def test_those_of_the_fourth_draw_that_a_model_has_seen_are_told_apart():
    wanted, seen = (read_points(ROOT / "campaigns" / f"times_fourth{of}.jsonl") for of in ("", "_seen"))
    assert {point.key for point in seen} < {point.key for point in wanted}


def test_the_campaign_of_make_measure_can_be_read():
    points = read_points(ROOT / "campaigns" / "small.jsonl")
    assert {point.kernel for point in points} == set(KERNELS)
    assert any(point.problem.m % 2 or point.problem.k % 2 for point in points)
