// Rates: as many loads, stores or FFMA as a multiprocessor, or all of them, can take.
#include "rows.cuh"

constexpr int VECTORS = 8;

__device__ __forceinline__ unsigned sum_of(const uint4 &v) { return (v.x + v.y) + (v.z + v.w); }

template <bool THROUGH_L1> __device__ __forceinline__ void load(uint4 &v, const uint4 *at)
{
    if constexpr (THROUGH_L1)
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at)
                     : "memory");
    else
        asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(at)
                     : "memory");
}

// EIGHT independent chains a thread. The two operands that stay are kept by the operand cache, so each FFMA reads one
// register. Loops of two lengths, so that the loop's own instructions cancel out too.
template <int FFMA> __device__ __forceinline__ void multiply(u64 *rows, float x, float y, unsigned steps)
{
    constexpr int EIGHT = 8;
    float sums[EIGHT];
    for (int i = 0; i < EIGHT; ++i)
        sums[i] = threadIdx.x + i;
    __syncthreads();
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step)
#pragma unroll
        for (int i = 0; i < FFMA; ++i)
            sums[i % EIGHT] = fmaf(sums[i % EIGHT], x, y);
    float sum = 0;
    for (int i = 0; i < EIGHT; ++i)
        sum += sums[i];
    watch.stop(rows, __float_as_uint(sum));
}

extern "C" __global__ void __launch_bounds__(1024, 1) ffma_128(u64 *rows, float x, float y, unsigned steps)
{
    multiply<128>(rows, x, y, steps);
}

extern "C" __global__ void __launch_bounds__(1024, 1) ffma_384(u64 *rows, float x, float y, unsigned steps)
{
    multiply<384>(rows, x, y, steps);
}

// Every warp reads 512 neighbouring bytes at a time, VECTORS times a step, from 32 KB that hold ones.
extern "C" __global__ void __launch_bounds__(1024, 1) read_shared(u64 *rows, unsigned steps)
{
    __shared__ uint4 words[32 * VECTORS * 8];
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < sizeof words / sizeof *words; i += blockDim.x)
        words[i] = make_uint4(1, 1, 1, 1);
    __syncthreads();
    const unsigned warp_at = threadIdx.x / 32 % 8 * 32 * VECTORS + threadIdx.x % 32;
    const unsigned at = static_cast<unsigned>(__cvta_generic_to_shared(words + warp_at));
    unsigned sum = 0;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        uint4 v[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                         : "r"(at + i * 512)
                         : "memory");
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            sum += sum_of(v[i]);
    }
    watch.stop(rows, sum);
}

// A step of a block is a chunk: VECTORS vectors of 16 bytes for each thread. Block b begins at chunk b * `first`, and
// goes on by `stride` chunks, round the `chunks` that there are. The memory holds ones. Past L1.
extern "C" __global__ void __launch_bounds__(1024, 1) read_past_l1(
    u64 *rows, const uint4 *memory, unsigned chunks, unsigned first, unsigned stride, unsigned steps)
{
    unsigned chunk = blockIdx.x * first % chunks, sum = 0;
    stride %= chunks;
    __syncthreads();
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        const uint4 *at = memory + static_cast<u64>(chunk) * VECTORS * blockDim.x + threadIdx.x;
        uint4 v[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            load<false>(v[i], at + i * blockDim.x);
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            sum += sum_of(v[i]);
        chunk += stride;
        chunk -= chunk >= chunks ? chunks : 0;
    }
    watch.stop(rows, sum);
}

// The same walk, writing ones.
extern "C" __global__ void __launch_bounds__(1024, 1) write_global(
    u64 *rows, uint4 *memory, unsigned chunks, unsigned first, unsigned stride, unsigned steps)
{
    unsigned chunk = blockIdx.x * first % chunks;
    stride %= chunks;
    __syncthreads();
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        uint4 *at = memory + static_cast<u64>(chunk) * VECTORS * blockDim.x + threadIdx.x;
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            asm volatile("st.global.v4.u32 [%0], {%1, %1, %1, %1};" ::"l"(at + i * blockDim.x), "r"(1) : "memory");
        chunk += stride;
        chunk -= chunk >= chunks ? chunks : 0;
    }
    watch.stop(rows, steps);
}

// Hits in L1: all warps read the same 16 KB, which hold ones, in the same order.
extern "C" __global__ void __launch_bounds__(1024, 1) read_l1(u64 *rows, const uint4 *memory, unsigned steps)
{
    constexpr unsigned QUARTERS = 4;
    unsigned sum = 0;
    __syncthreads();
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        const uint4 *at = memory + step % QUARTERS * 32 * VECTORS + threadIdx.x % 32;
        uint4 v[VECTORS];
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            load<true>(v[i], at + 32 * i);
#pragma unroll
        for (int i = 0; i < VECTORS; ++i)
            sum += sum_of(v[i]);
    }
    watch.stop(rows, sum);
}
