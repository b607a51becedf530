// How tiles of A and B travel from global to shared memory past the registers: by asynchronous copies, which all
// threads of a block share out. What lies beyond the end of k becomes zero.
#pragma once
#include "split.cuh"

constexpr int PITCH_A = BLOCK_M + PAD_A;
constexpr int PITCH_B = BLOCK_N + PAD_B;
constexpr int TILE_A = BLOCK_K * PITCH_A;
constexpr int BUFFER = TILE_A + BLOCK_K * PITCH_B;

// Copies WIDTH floats from global to shared memory past the registers, or fills their place with zeros.
template <int WIDTH>
__device__ void copy(unsigned address, const void* from, bool exists) {
    if constexpr (WIDTH == 4)
        asm volatile("{ .reg .pred outside; setp.eq.b32 outside, %2, 0;"
                     " cp.async.cg.shared.global [%0], [%1], 16, outside; }"
                     :: "r"(address), "l"(from), "r"((int)exists) : "memory");
    else
        asm volatile("{ .reg .pred outside; setp.eq.b32 outside, %3, 0;"
                     " cp.async.ca.shared.global [%0], [%1], %2, outside; }"
                     :: "r"(address), "l"(from), "n"(4 * WIDTH), "r"((int)exists) : "memory");
}

template <int WIDTH>
__device__ void copy(float* to, const float* from, bool exists) {
    copy<WIDTH>((unsigned)__cvta_generic_to_shared(to), (const void*)from, exists);
}

// Closes the thread's group of copies.
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most GROUPS of the thread's groups are still under way.
template <int GROUPS>
__device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(GROUPS) : "memory"); }

// A goes element by element, because it is transposed on the way: RUN_A neighbours along k, then the next row.
constexpr int RUN_A = BLOCK_K % 8 ? 4 : 8;
constexpr int ITEMS_A = BLOCK_M * BLOCK_K;
constexpr int STEPS_A = (ITEMS_A + THREADS - 1) / THREADS;
constexpr int ROWS_A = THREADS / RUN_A;  // rows that a step covers, of one run
constexpr int PER_ROW_B = BLOCK_N / VECTOR_B;
constexpr int ITEMS_B = BLOCK_K * PER_ROW_B;
constexpr int STEPS_B = (ITEMS_B + THREADS - 1) / THREADS;
constexpr int BEYOND = 1 << 30;  // any k

struct Copier {
    const float *a, *b;  // the same for all threads
    unsigned from_a[STEPS_A], from_b[STEPS_B];  // bytes
    int left;

    // Of item number step * THREADS + thread. Where a step is a whole number of rows (or the like), this is said in a
    // form that leaves one address and constant distances.
    __device__ static int row_of_a(int step) {
        if (BLOCK_M % ROWS_A == 0) return threadIdx.x / RUN_A + step % (BLOCK_M / ROWS_A) * ROWS_A;
        return (step * THREADS + threadIdx.x) / RUN_A % BLOCK_M;
    }
    __device__ static int along_of_a(int step) {
        if (BLOCK_M % ROWS_A == 0) return threadIdx.x % RUN_A + step / (BLOCK_M / ROWS_A) * RUN_A;
        const int item = step * THREADS + threadIdx.x;
        return item % RUN_A + item / (RUN_A * BLOCK_M) * RUN_A;
    }
    __device__ static int row_of_b(int step) {
        if (THREADS % PER_ROW_B == 0) return threadIdx.x / PER_ROW_B + step * (THREADS / PER_ROW_B);
        return (step * THREADS + threadIdx.x) / PER_ROW_B;
    }
    __device__ static int column_of_b(int step) {
        if (THREADS % PER_ROW_B == 0) return threadIdx.x % PER_ROW_B * VECTOR_B;
        return (step * THREADS + threadIdx.x) % PER_ROW_B * VECTOR_B;
    }
    __device__ static bool exists(int items, int step) {
        return (step + 1) * THREADS <= items || step * THREADS + threadIdx.x < items;
    }

    __device__ Copier(const float* a_, const float* b_, const Part& part, int k, int n, int first, int left_) {
        left = left_;
        a = a_ + (long long)part.row * k + first;
        b = b_ + (long long)first * n + part.column;
#pragma unroll
        for (int step = 0; step < STEPS_A; ++step)
            from_a[step] = 4 * (unsigned)(min(row_of_a(step), part.rows - 1) * k + along_of_a(step));
#pragma unroll
        for (int step = 0; step < STEPS_B; ++step)
            from_b[step] = 4 * (unsigned)(row_of_b(step) * n + min(column_of_b(step), part.columns - VECTOR_B));
    }

    __device__ void next(float* buffer, int n) {
#pragma unroll
        for (int step = 0; step < STEPS_A; ++step)
            if (exists(ITEMS_A, step))
                copy<1>(buffer + along_of_a(step) * PITCH_A + row_of_a(step),
                        (const float*)((const char*)a + from_a[step]), along_of_a(step) < left);
#pragma unroll
        for (int step = 0; step < STEPS_B; ++step)
            if (exists(ITEMS_B, step))
                copy<VECTOR_B>(buffer + TILE_A + row_of_b(step) * PITCH_B + column_of_b(step),
                               (const float*)((const char*)b + from_b[step]), row_of_b(step) < left);
        commit();
        left -= BLOCK_K;
        a += BLOCK_K;
        b += (long long)BLOCK_K * n;
    }
};

#if SPREAD

// The same where the copies of a tile are issued in SPREAD groups. There registers are scarce, so there are few
// addresses: all threads together copy a run of each row of B at a time, and runs, of A too, lie at constant
// distances. What lies beyond the columns of B becomes zero too.
struct SpreadCopier {
    static constexpr int ROW_STEPS_A = BLOCK_M / ROWS_A;
    static constexpr int RUNS_A = BLOCK_K / RUN_A;
    static constexpr int RUN_B = THREADS / BLOCK_K;
    static constexpr int COPIES = STEPS_A + STEPS_B;
    static_assert(BLOCK_M % ROWS_A == 0 && THREADS % BLOCK_K == 0 && PER_ROW_B % RUN_B == 0, "all steps are whole");

    const float *a, *b;  // the same for all threads
    unsigned from_a[ROW_STEPS_A], from_b, to_a, to_b;  // bytes
    int left, along_a, along_b[STEPS_B];

    __device__ SpreadCopier(const float* a_, const float* b_, const Part& part, int k, int n, int first, int left_) {
        left = left_;
        a = a_ + (long long)part.row * k + first;
        b = b_ + (long long)first * n + part.column;
        along_a = threadIdx.x % RUN_A;
        const int row_a = threadIdx.x / RUN_A, row_b = threadIdx.x / RUN_B, column_b = threadIdx.x % RUN_B * VECTOR_B;
#pragma unroll
        for (int step = 0; step < ROW_STEPS_A; ++step)
            from_a[step] = 4 * (unsigned)(min(row_a + step * ROWS_A, part.rows - 1) * k + along_a);
        from_b = 4 * (unsigned)(row_b * n + column_b);
#pragma unroll
        for (int step = 0; step < STEPS_B; ++step)
            along_b[step] = column_b + step * RUN_B * VECTOR_B < part.columns ? row_b : BEYOND;
        to_a = 4 * (along_a * PITCH_A + row_a);
        to_b = 4 * (TILE_A + row_b * PITCH_B + column_b);
    }

    // A group of the steps of A and B; behind the last comes the next tile. `buffer` is an address in shared memory.
    __device__ void copy_group(unsigned buffer, int n, int group) {
        const int first = COPIES * group / SPREAD, last = COPIES * (group + 1) / SPREAD;
#pragma unroll
        for (int step = 0; step < STEPS_A; ++step) {
            const int rows = step / RUNS_A * ROWS_A, along = step % RUNS_A * RUN_A;
            if (first <= step && step < last)
                copy<1>(buffer + to_a + 4 * (along * PITCH_A + rows),
                        (const char*)a + from_a[step / RUNS_A] + 4 * along, along_a + along < left);
        }
#pragma unroll
        for (int step = 0; step < STEPS_B; ++step) {
            const int columns = step * RUN_B * VECTOR_B;
            if (first <= STEPS_A + step && STEPS_A + step < last)
                copy<VECTOR_B>(buffer + to_b + 4 * columns, (const char*)b + from_b + 4 * columns,
                               along_b[step] < left);
        }
        if (group < SPREAD - 1) return;
        commit();
        left -= BLOCK_K;
        a += BLOCK_K;
        b += (long long)BLOCK_K * n;
    }
};

#endif
