"""Which element every lane of a launch touches, in shared and in global memory, and what that adds up to."""
