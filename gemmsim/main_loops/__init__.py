"""The main loop of a kernel: what register ports leave of the FFMA peak, and how the warps of a sub-core run it."""
