// What every microbenchmark writes: a row of four 64-bit words for each warp.
//
//   start, end   the multiprocessor's clock before and after the work
//   elapsed_ns   the same by the GPU's timer, which all multiprocessors share
//   result       what the work must have led to: the host knows it, so nothing can be optimised away unseen
#pragma once
typedef unsigned long long u64;

__device__ __forceinline__ u64 timer_ns()
{
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    return now;
}

// The clock as an instruction that stays where it is written. What is timed is loops of two lengths, so that all that
// a single reading includes or misses cancels out.
__device__ __forceinline__ u64 clock_now()
{
    u64 now;
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(now)::"memory");
    return now;
}

struct Stopwatch
{
    u64 start_ns = timer_ns();
    u64 start = clock_now();

    __device__ __forceinline__ void stop(u64 *rows, u64 result) const
    {
        const u64 end = clock_now();
        const u64 end_ns = timer_ns();
        if (threadIdx.x % 32 == 0) {
            u64 *row = rows + 4 * (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32);
            row[0] = start;
            row[1] = end;
            row[2] = end_ns - start_ns;
            row[3] = result;
        }
    }
};
