"""A launch taken apart, two of them side by side, and both in sentences.

`decomposition` says how the work is divided and where bank conflicts are from (`edges`: what ragged sizes cost), `why`
which difference between two configurations (`sides`) decides; `narrate` and `narrate_why` write them out.
"""

from gemmsim.explain.decomposition import MOST_PADDING, Decomposition, clearing_padding, conflicts, explain

__all__ = ["MOST_PADDING", "Decomposition", "clearing_padding", "conflicts", "explain"]
