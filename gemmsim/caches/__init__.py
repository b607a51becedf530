"""What passes L1, L2 and memory: which blocks share what, while it is still there."""
