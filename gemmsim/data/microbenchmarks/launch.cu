// What launches and blocks cost beyond their work.
#include "rows.cuh"

extern "C" __global__ void empty(u64 *) {}

// Every block waits until so many cycles have passed, and says on which multiprocessor.
extern "C" __global__ void spin(u64 *rows, unsigned cycles)
{
    const Stopwatch watch;
    while (clock_now() - watch.start < cycles) {
    }
    unsigned multiprocessor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(multiprocessor));
    watch.stop(rows, multiprocessor);
}
