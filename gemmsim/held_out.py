"""Which measured points took no part in anything: a quarter, by a hash of the point, whoever measures it and when.

Nothing may be tuned or fitted to them, error bars neither; they judge.
"""

from __future__ import annotations

from hashlib import sha256

from gemmsim.records import Point

ONE_IN = 4
HEX_DIGITS = 8


def held_out(point: Point) -> bool:
    """Whether the point is held out: the first digits of the SHA-256 of its key, as a number, are divisible by four."""
    return int(sha256(point.key.encode()).hexdigest()[:HEX_DIGITS], 16) % ONE_IN == 0
