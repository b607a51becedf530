"""What is computed: C = A B, with A m x k, B k x n and C m x n, all row-major."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import or_
from typing import Any, TypeAlias

import numpy as np

from gemmsim.elementwise import some_array
from gemmsim.errors import InputError, require, short, unknown

Count: TypeAlias = Any
"""A whole number, or an int64 array of them: the same formulas take both."""

LARGEST_SIZE = 2**31 - 2**16
"""The kernels step through a dimension in 32-bit numbers, a tile at a time."""
LARGEST_COUNT = 2**63 - 1

ELEMENT_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2}


def whole_number(value: Any, name: str, least: int = 1, most: int = LARGEST_SIZE) -> Count:
    """`value` as int, or as int64 array; InputError, with the nearest that is allowed, unless whole and within
    [least, most]."""
    if isinstance(value, np.ndarray) and value.ndim:
        if not np.issubdtype(value.dtype, np.integer):
            raise InputError(f"{name} must be an array of whole numbers, not of {value.dtype}")
        number: Any = value.astype(np.int64)
    else:
        try:
            if isinstance(value, bool | np.bool_):
                raise TypeError
            number = operator.index(value)
        except TypeError:
            allowed = nearest_whole(value if isinstance(value, float) else math.nan, least, most)
            raise InputError(f"{name} {short(value)} is not a whole number; {allowed}") from None
    require(
        (number >= least) & (number <= most),
        lambda value: f"{name} {short(value)} is out of range; {nearest_whole(value, least, most)}",
        value=number,
    )
    return number


def nearest_whole(value: float, least: int, most: int) -> str:
    """What is allowed, as messages say it, and which of that is nearest to a value unless it is NaN."""
    allowed = f"allowed: whole numbers from {least} to {most}"
    return allowed if value != value else f"{allowed}; nearest: {round(min(max(value, least), most))}"


def require_one_shape(*values: Count) -> None:
    """Raise InputError unless arrays among `values` broadcast together."""
    shapes = [np.shape(value) for value in values if not isinstance(value, int)]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        unlike = ", ".join(map(str, dict.fromkeys(shape for shape in shapes if shape)))
        raise InputError(
            f"arrays of shapes {unlike} do not go together; allowed: one shape, and plain numbers"
        ) from None


def fits(*products: tuple[Count, ...]) -> Any:
    """Whether the sum of products is a count: exactly for whole numbers, to 10 digits for arrays.

    Arrays are multiplied as floats here, because NumPy's whole numbers pass 2^63 in silence.
    """
    if some_array(chain.from_iterable(products)):
        total = sum(np.prod(np.broadcast_arrays(*factors), axis=0, dtype=float) for factors in products)
        return total < LARGEST_COUNT * (1 - 1e-10)
    return sum(math.prod(factors) for factors in products) <= LARGEST_COUNT


def ceil_div(numerator: Count, denominator: Count) -> Count:
    """The quotient of two positive counts, rounded up."""
    return -(-numerator // denominator)


def numbered(columns: Iterable[Any], rows: int) -> Any:
    """A number for each of so many rows, from 0 on, the same for rows that are the same in all columns of counts."""
    numbers, most = np.zeros(rows, np.int64), 1
    for column in columns if rows else ():
        least = int(column.min())
        span = int(column.max()) - least + 1
        if most * span > LARGEST_COUNT:
            numbers = np.unique(numbers, return_inverse=True)[1]
            most = int(numbers.max()) + 1
        numbers, most = numbers * span + (column - least), most * span
    return np.unique(numbers, return_inverse=True)[1]


def common_power(power: int, *multiples: Count) -> Count:
    """The greatest common divisor of a power of two and other counts: what lowest bit is set in any of them."""
    bits = reduce(or_, multiples, power)
    return bits & -bits


@dataclass(frozen=True)
class Problem:
    """One multiplication, or many at once where sizes are int64 arrays.

    Raises InputError for sizes that are not whole, not from 1 to LARGEST_SIZE, or whose FLOP or bytes
    pass what a signed 64-bit number counts.
    """

    m: Count
    n: Count
    k: Count
    dtype: str = "fp32"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, whole_number(getattr(self, name), name))
        if not isinstance(self.dtype, str) or self.dtype not in ELEMENT_BYTES:
            raise unknown("dtype", str(self.dtype), ELEMENT_BYTES)
        m, n, k, size = self.m, self.n, self.k, self.element_bytes
        require_one_shape(m, n, k)
        require(fits((2, m, n, k)), "m {m}, n {n}, k {k}: the count 2 m n k passes 2^63 - 1", m=m, n=n, k=k)
        require(
            fits((m, k, size), (k, n, size), (m, n, size)),
            "m {m}, n {n}, k {k}: the bytes of the three matrices pass 2^63 - 1",
            m=m, n=n, k=k,
        )  # fmt: skip

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A, B and C."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def flop(self) -> Count:
        """2 m n k: a multiplication and an addition for each term, by convention."""
        return 2 * self.m * self.n * self.k

    @property
    def compulsory_elements(self) -> Count:
        """A and B read once, C written once."""
        return self.m * self.k + self.k * self.n + self.m * self.n

    @property
    def compulsory_bytes(self) -> Count:
        """Fewest bytes between the GPU and its memory: every matrix once."""
        return self.compulsory_elements * self.element_bytes

    @property
    def flop_per_byte(self) -> Any:
        """Arithmetic intensity when every matrix moves once (Williams et al., Roofline, 2009)."""
        return self.flop / self.compulsory_bytes

    def flop_per_s(self, time_s: Any) -> Any:
        """Useful FLOP a second of a launch that takes `time_s`."""
        return self.flop / time_s

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k} {self.dtype}"
