"""Random loops, rearranged: proved by the verifier, and run on paper before and after, with the same result.

What a search finds is taken as it is, better or not; LOOPS loops change.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random

import pytest
from random_loops import function

from gemmsim.machine_code.sass import Function
from gemmsim.rearrange.decode import with_words
from gemmsim.rearrange.interpret import Machine, Outcome
from gemmsim.rearrange.optimise import TRIALS, Source
from gemmsim.rearrange.verify import objection

LOOPS, PARTS, PASSES = 2000, 8, 3


def outcome(of: Function, loop: range, seed: int) -> Outcome:
    """What the code before the loop, three passes of it, and the code behind it leave."""
    machine = Machine(seed)
    machine.run(of.instructions[: loop.start], 1)
    machine.run(of.instructions[loop.start : loop.stop], PASSES)
    return machine.run(of.instructions[loop.stop : -1], 1)


@pytest.mark.parametrize("part", range(PARTS))
def test_the_same_values_in_the_same_registers(part):
    done = 0
    for seed in count(part, PARTS):
        trial = TRIALS[seed % len(TRIALS)]
        trial = replace(trial, style=replace(trial.style, swaps=seed % 2 > 0), seed=seed)
        before, loop = function(Random(seed), 8 + seed % 9)
        expected = outcome(before, loop, seed)
        assert expected.rubbish == 0, "the loop itself is wrong"
        source = Source.of(before)
        words = source.searched(trial, width=4)
        if words is None or words == source.words:  # a search may run into a dead end
            continue
        assert objection(before, words) is None, seed
        assert outcome(with_words(before, words), loop, seed) == expected, seed
        done += 1
        if done == LOOPS // PARTS:
            break
    assert seed < 2 * LOOPS
