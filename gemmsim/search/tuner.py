"""A search space as Kernel Tuner takes it, with our ranking, as JSON without any Python in it.

Its parameters are the macros of the source. Those that follow from others have the values that occur, and a
restriction that says what they follow from. Restrictions are the rules of the kernel, written out.
Kernel Tuner's own files of type T1 cannot say how much dynamic shared memory a block takes, nor where headers are.

Kernel Tuner: B. van Werkhoven, "Kernel Tuner: A search-optimizing GPU code auto-tuner", Future Generation Computer
Systems 90 (2019); the form of the arguments is that of its version 1.5.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gemmsim.rules import Symbol
from gemmsim.search.scoring import Result
from gemmsim.search.spaces import Space
from gemmsim.tiling import Tiling, grid
from gemmsim.whole_files import write_whole

THREADS = "BLOCK_THREADS"
"""The parameter that is no macro: threads of a block."""
USE = (
    "kernel_tuner.tune_kernel(kernel_name, kernel_source, (problem_size, ), arguments, tune_params, grid_div_x=[],"
    " block_size_names=[block_size_name], smem_args={'size': shared_bytes}, restrictions=restrictions,"
    " compiler_options=compiler_options) with the values of this file; arguments are the matrices A, B and C as"
    " float32 arrays, row by row, then m, n and k as int32. Each of configurations has in parameters what Kernel Tuner"
    " calls a configuration; they come in the order of their predicted time, so the first can be tried first."
    " Blocks with more than 48 KB of shared memory need a back end that asks for it."
)


def tuner_space(space: Space, ranked: Sequence[Result]) -> dict[str, Any]:
    """The space of a kernel and its `ranked` configurations, for `write_tuner_space`."""
    kernel, problem = space.kernel, space.problem
    named = _tiling(space, {name: Symbol(name.upper()) for name in kernel.fields})
    follow = {name: value for name, value in _derived(space, named).items() if isinstance(value, Symbol)}
    parameters = _occurring(space)
    sources = kernel.files
    return {
        "use": USE,
        "problem": asdict(problem),
        "device": space.device.name,
        "kernel": kernel.name,
        "kernel_name": "gemm",
        "kernel_source": str(sources[0]),
        "includes": [str(path) for path in sources[1:]],
        "compiler_options": ["-std=c++17", f"-I{sources[0].parent}"],
        "problem_size": str(grid(problem, named).blocks),
        "block_size_name": THREADS,
        "shared_bytes": str(kernel.shared_bytes(named)),
        "tune_params": parameters,
        "restrictions": [*_restrictions(space, named), *map(str, _equations(follow))],
        "configurations": [_configuration(space, each) for each in ranked],
    }


def write_tuner_space(space: Space, ranked: Sequence[Result], path: Path) -> None:
    """Write the space and the ranking; InputError for a path that cannot take them."""
    write_whole((json.dumps(tuner_space(space, ranked), indent=1) + "\n").encode(), path)


def _tiling(space: Space, values: Mapping[str, Any]) -> Tiling:
    return Tiling.unchecked(**{**space.fixed, **values})


def _derived(space: Space, tiling: Tiling) -> dict[str, Any]:
    """The macros that are no fields of the kernel, and the threads of a block."""
    macros = {**space.kernel.macros(space.problem, tiling), THREADS: tiling.threads}
    return {name: value for name, value in macros.items() if name.lower() not in space.kernel.fields}


def _parameters(space: Space, tiling: Tiling) -> dict[str, Any]:
    """All parameters of a configuration, or of many."""
    return {name.upper(): getattr(tiling, name) for name in space.kernel.fields} | _derived(space, tiling)


def _occurring(space: Space) -> dict[str, list[int]]:
    """The values of each parameter that some legal configuration has."""
    seen: dict[str, set[int]] = {}
    for tilings in space.chunks():
        for name, values in _parameters(space, tilings).items():
            seen.setdefault(name, set()).update(np.unique(values).tolist())
    return {name: sorted(values) for name, values in seen.items()}


def _restrictions(space: Space, named: Tiling) -> Iterator[str]:
    """The rules that are not decided already, as text."""
    for rule in space.all_rules:
        condition = rule.holds(named)
        if isinstance(condition, Symbol):
            yield str(condition)


def _equations(follow: Mapping[str, Symbol]) -> Iterator[Symbol]:
    """That derived parameters have the values that follow. As differences, because Kernel Tuner's solver (1.5, with
    python-constraint2 2.9) finds no solution of a parameter that equals a product of quotients."""
    for name, value in follow.items():
        yield Symbol(name) - value == 0


def _configuration(space: Space, found: Result) -> dict[str, Any]:
    parameters = {name: int(value) for name, value in _parameters(space, found.tiling).items()}
    return {"parameters": parameters, "predicted_s": found.time_s, "bound_by": found.bound_by}
