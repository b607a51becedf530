"""Problems that one cubin can run: those that the kernel would be compiled for with the same macros."""

from __future__ import annotations

from gemmsim.errors import InputError
from gemmsim.kernels import Kernel
from gemmsim.problem import Problem
from gemmsim.tiling import Tiling

SHAPES = 10
"""Problems of a verification."""
SIZES = (
    (256, 256, 256),
    (1024, 1024, 1024),
    (1000, 1000, 1000),
    (131, 260, 76),
    (2048, 2048, 2048),
    (67, 2052, 516),
    (1999, 68, 44),
    (17, 20, 24),
    (1, 640, 260),
    (509, 1028, 4),
    (300, 512, 1000),
    (4099, 516, 100),
    (129, 257, 65),
    (1024, 1022, 1022),
    (255, 511, 127),
    (1023, 1026, 1030),
    (77, 1001, 1003),
    (2047, 514, 38),
    (33, 3, 7),
    (5, 1301, 301),
    (700, 2, 2),
    (513, 1025, 513),
    (64, 66, 2),
    (1001, 130, 1998),
)
"""Most of them end within a tile in every direction, or are smaller than one."""


def compatible(kernel: Kernel, problem: Problem, tiling: Tiling, most: int = SHAPES) -> list[Problem]:
    """Up to `most` problems that run with the cubin of a launch: other sizes, aligned like the launch's own."""
    wanted = kernel.launch(problem, tiling).macros
    found = []
    for sizes in SIZES:
        other = Problem(*sizes, problem.dtype)
        try:
            if kernel.launch(other, tiling).macros == wanted:
                found.append(other)
        except InputError:
            continue
    return found[:most]
