// The frame of core_blocks.py, behind core_loops.cu: blocks side by side, each row with the multiprocessor it was on.
#undef END
#define END \
    asm volatile("cp.async.wait_all;" ::: "memory"); \
    const long long end = clock64(); \
    float sum = 0; \
    for (int i = 0; i < SUMS; ++i) \
        sum += z[i]; \
    unsigned multiprocessor; \
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor)); \
    rows[blockIdx.x * blockDim.x + threadIdx.x] = {start, end, sum, __uint_as_float(multiprocessor)};
