// Latencies: chains in which each step needs the result of the one before. `steps` is a multiple of UNROLLED.
#include "rows.cuh"

constexpr int UNROLLED = 32;

// Words of memory hold addresses of other words. A step loads, past L1 or through it, or adds nothing atomically.
enum class Way { L1, L2, ATOMIC };

template <Way WAY> __device__ __forceinline__ u64 next_of(u64 at)
{
    u64 next;
    if constexpr (WAY == Way::L1)
        asm volatile("ld.global.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
    else if constexpr (WAY == Way::L2)
        asm volatile("ld.global.cg.u64 %0, [%1];" : "=l"(next) : "l"(at) : "memory");
    else
        asm volatile("atom.global.add.u64 %0, [%1], %2;" : "=l"(next) : "l"(at), "l"(0ull) : "memory");
    return next;
}

// One warp a block, all its lanes at one address; block b begins at starts[b], and takes `warm` steps untimed.
template <Way WAY> __device__ __forceinline__ void chase(u64 *rows, const u64 *starts, unsigned warm, unsigned steps)
{
    u64 at = starts[blockIdx.x];
#pragma unroll 1
    for (unsigned step = 0; step < warm; ++step)
        at = next_of<WAY>(at);
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; step += UNROLLED)
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i)
            at = next_of<WAY>(at);
    watch.stop(rows, at);
}

extern "C" __global__ void __launch_bounds__(32) chase_l1(u64 *rows, const u64 *starts, unsigned warm, unsigned steps)
{
    chase<Way::L1>(rows, starts, warm, steps);
}

extern "C" __global__ void __launch_bounds__(32) chase_l2(u64 *rows, const u64 *starts, unsigned warm, unsigned steps)
{
    chase<Way::L2>(rows, starts, warm, steps);
}

// Every thread of a block follows a chain of its own, and waits at each step for all others: the slowest load decides.
extern "C" __global__ void __launch_bounds__(1024) gather(u64 *rows, const u64 *starts, unsigned steps)
{
    u64 at = starts[blockIdx.x * blockDim.x + threadIdx.x];
    __syncthreads();
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step) {
        at = next_of<Way::L2>(at);
        __syncthreads();
    }
    __shared__ u64 of_first;
    if (threadIdx.x == 0)
        of_first = at;
    __syncthreads();
    watch.stop(rows, of_first);
}

// One lane: atomics of a warp at one address would be done one after the other.
extern "C" __global__ void __launch_bounds__(32)
    chase_atomic(u64 *rows, const u64 *starts, unsigned warm, unsigned steps)
{
    if (threadIdx.x == 0)
        chase<Way::ATOMIC>(rows, starts, warm, steps);
}

// The same in shared memory, for loads of WORDS 32-bit words. A row of the array has a vector for each lane, whose
// words all hold the address of the vector below. Lanes read neighbours (apart = 1: every bank once in each pass), or
// all of them the same vector (apart = 0).
template <int WORDS> __device__ __forceinline__ unsigned next_in_shared(unsigned at)
{
    unsigned next, b, c, d;
    if constexpr (WORDS == 1)
        asm volatile("ld.volatile.shared.u32 %0, [%1];" : "=r"(next) : "r"(at) : "memory");
    else if constexpr (WORDS == 2)
        asm volatile("ld.volatile.shared.v2.u32 {%0, %1}, [%2];" : "=r"(next), "=r"(b) : "r"(at) : "memory");
    else
        asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(next), "=r"(b), "=r"(c), "=r"(d)
                     : "r"(at)
                     : "memory");
    return next;
}

template <int WORDS> __device__ __forceinline__ void chase_shared(u64 *rows, unsigned apart, unsigned steps)
{
    constexpr unsigned ROWS = 15, ROW = 32 * WORDS;
    __shared__ __align__(16) unsigned words[ROWS * ROW];
    const unsigned base = static_cast<unsigned>(__cvta_generic_to_shared(words));
#pragma unroll 1
    for (unsigned i = threadIdx.x; i < ROWS * ROW; i += 32)
        words[i] = base + 4 * ((i / WORDS * WORDS + ROW) % (ROWS * ROW));
    __syncthreads();
    unsigned at = base + 4 * WORDS * threadIdx.x * apart;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; step += UNROLLED)
#pragma unroll
        for (int i = 0; i < UNROLLED; ++i)
            at = next_in_shared<WORDS>(at);
    watch.stop(rows, at - base);
}

extern "C" __global__ void __launch_bounds__(32) chase_shared_32(u64 *rows, unsigned apart, unsigned steps)
{
    chase_shared<1>(rows, apart, steps);
}

extern "C" __global__ void __launch_bounds__(32) chase_shared_64(u64 *rows, unsigned apart, unsigned steps)
{
    chase_shared<2>(rows, apart, steps);
}

extern "C" __global__ void __launch_bounds__(32) chase_shared_128(u64 *rows, unsigned apart, unsigned steps)
{
    chase_shared<4>(rows, apart, steps);
}

// Asynchronous copies of 16 bytes past L1, each waited for before the next, by one lane; they go round `lines`, a power
// of two, of 128 bytes. `from` holds the numbers 0, 1, 2, ... as 32-bit words.
extern "C" __global__ void __launch_bounds__(32) copies(u64 *rows, const char *from, unsigned lines, unsigned steps)
{
#if __CUDA_ARCH__ >= 800
    __shared__ __align__(16) unsigned landing[4];
    if (threadIdx.x == 0) {
        const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(landing));
        const unsigned last = (lines - 1) * 128;
        unsigned offset = 0;
        const Stopwatch watch;
#pragma unroll 1
        for (unsigned step = 0; step < steps; step += UNROLLED)
#pragma unroll
            for (int i = 0; i < UNROLLED; ++i) {
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from + offset) : "memory");
                asm volatile("cp.async.commit_group;" ::: "memory");
                offset = (offset + 128) & last;
                asm volatile("cp.async.wait_group 0;" ::: "memory");
            }
        watch.stop(rows, landing[0]);
    }
#endif
}

// What follows has loops of two lengths, so that the loop's own instructions cancel out too; `steps` counts passes.

// FFMA, each of which needs the one before.
template <int FFMA> __device__ __forceinline__ void ffma_chain(u64 *rows, float x, float y, unsigned steps)
{
    float sum = threadIdx.x;
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step)
#pragma unroll
        for (int i = 0; i < FFMA; ++i)
            asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(sum) : "f"(x), "f"(y) : "memory");
    watch.stop(rows, __float_as_uint(sum));
}

extern "C" __global__ void __launch_bounds__(32) ffma_chain_32(u64 *rows, float x, float y, unsigned steps)
{
    ffma_chain<32>(rows, x, y, steps);
}

extern "C" __global__ void __launch_bounds__(32) ffma_chain_96(u64 *rows, float x, float y, unsigned steps)
{
    ffma_chain<96>(rows, x, y, steps);
}

// Barriers of the whole block and nothing else.
template <int BARRIERS> __device__ __forceinline__ void barriers(u64 *rows, unsigned steps)
{
    __syncthreads();
    const Stopwatch watch;
#pragma unroll 1
    for (unsigned step = 0; step < steps; ++step)
#pragma unroll
        for (int i = 0; i < BARRIERS; ++i)
            __syncthreads();
    watch.stop(rows, steps);
}

extern "C" __global__ void __launch_bounds__(1024) barriers_32(u64 *rows, unsigned steps)
{
    barriers<32>(rows, steps);
}

extern "C" __global__ void __launch_bounds__(1024) barriers_96(u64 *rows, unsigned steps)
{
    barriers<96>(rows, steps);
}

// Code that runs once, from its first instruction to its last: EIGHT chains, so that no FFMA waits for another.
template <int FFMA> __device__ __forceinline__ void straight(u64 *rows, float x, float y)
{
    constexpr int EIGHT = 8;
    float sums[EIGHT];
    for (int i = 0; i < EIGHT; ++i)
        sums[i] = threadIdx.x + i;
    const Stopwatch watch;
#pragma unroll
    for (int i = 0; i < FFMA; ++i)
        asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(sums[i % EIGHT]) : "f"(x), "f"(y) : "memory");
    float sum = 0;
    for (int i = 0; i < EIGHT; ++i)
        sum += sums[i];
    watch.stop(rows, __float_as_uint(sum));
}

extern "C" __global__ void __launch_bounds__(32) straight_512(u64 *rows, float x, float y)
{
    straight<512>(rows, x, y);
}

extern "C" __global__ void __launch_bounds__(32) straight_2048(u64 *rows, float x, float y)
{
    straight<2048>(rows, x, y);
}
