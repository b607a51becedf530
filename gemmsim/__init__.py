"""Tells what a GPU matrix multiplication will do before it runs, and checks it on the GPU."""

__version__ = "0.1.0"
