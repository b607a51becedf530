"""The FFMA of a compiled main loop in another order: found, proved to compute the same, and put into the cubin."""
