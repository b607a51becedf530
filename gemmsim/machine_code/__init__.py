"""Machine code: instruction words, the cubins that hold them, their text, and the loop that does the work."""
