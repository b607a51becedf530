"""The GPU side: compile, run, verify, time and profile the kernels. Nothing here is imported by the model.

PyCUDA is imported when a GPU is first asked for, by `session` alone; compiling needs no GPU.
"""
