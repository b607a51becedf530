"""One multiprocessor at work: the warps of its blocks, instruction by instruction, and the time of a launch from it."""
