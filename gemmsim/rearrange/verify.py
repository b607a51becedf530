"""Whether rearranged code is proved to do what the compiler's code does: block by block, for all inputs.

It knows nothing of how the code was rearranged, and shares with the optimiser the decoder alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from gemmsim.errors import InputError
from gemmsim.machine_code.encoding import STALL, YIELD, field
from gemmsim.machine_code.sass import Function
from gemmsim.rearrange.decode import VERIFIED, basic_blocks, operations, unknown_reasons, with_words
from gemmsim.rearrange.hazards import hazard, stale_flag
from gemmsim.rearrange.values import difference


def objection(function: Function, words: Sequence[int]) -> str | None:
    """Why these words are not proved to do what the function does, in one line; None where they are.

    Proved is, for every basic block that differs, that it computes the same values in the same registers; gives all
    instructions but the FFMA the same inputs in the same order; that along every path through the function each result
    is waited for before it is used or overwritten, by scoreboard or by cycles; and that operands are kept only for a
    read of the same, unchanged register. Assumes that the compiler's own code is right.
    """
    if function.arch not in VERIFIED:
        return f"the rules of {function.arch} are not verified; verified: {', '.join(VERIFIED)}"
    if len(words) != len(function.instructions) or not function.encoded:
        return f"{len(words)} words for {len(function.instructions)} instructions"
    try:
        blocks = basic_blocks(function)
        changed = with_words(function, words)
    except InputError as error:
        return str(error)
    before, after = operations(function), operations(changed)
    for span in blocks:
        inside = range(span.first, span.last)
        if all(words[number] == function.instructions[number].word for number in inside):
            continue
        unknown = unknown_reasons(before[span.first : span.last])
        if unknown:
            return f"the registers of {', '.join(unknown)} are not known"
        for number in inside:
            for which in (STALL, YIELD):
                if field(words[number], which) != field(function.instructions[number].word or 0, which):
                    return f"the cycles at {function.instructions[number].address:#x} are others"
        reason = difference(before[span.first : span.last], after[span.first : span.last]) or stale_flag(after, span)
        if reason:
            return reason
    return hazard(before, after, blocks)
