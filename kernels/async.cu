// Tiles travel from global to shared memory past the registers, STAGES of them at once in a ring. The loop has no
// branch: rows and columns beyond the matrix are read as its last ones and never stored, what lies beyond the end of k
// becomes zero, and the loop goes on fetching such tiles to its end.
//
// A buffer is free when its tile's last fragments are in registers. Its copies are issued then, all together; or, where
// SPREAD is not 0, in so many groups among the small iterations of the next tile, so that loads of fragments do not
// queue up behind them.
#include "split.cuh"

constexpr int PITCH_A = BLOCK_M + PAD_A;
constexpr int PITCH_B = BLOCK_N + PAD_B;
constexpr int TILE_A = BLOCK_K * PITCH_A;
constexpr int BUFFER = TILE_A + BLOCK_K * PITCH_B;

// Copies WIDTH floats from global to shared memory past the registers, or fills their place with zeros.
template <int WIDTH>
__device__ void copy(float* to, const float* from, bool exists) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (WIDTH == 4)
        asm volatile("{ .reg .pred outside; setp.eq.b32 outside, %2, 0;"
                     " cp.async.cg.shared.global [%0], [%1], 16, outside; }"
                     :: "r"(address), "l"(from), "r"((int)exists) : "memory");
    else
        asm volatile("{ .reg .pred outside; setp.eq.b32 outside, %3, 0;"
                     " cp.async.ca.shared.global [%0], [%1], %2, outside; }"
                     :: "r"(address), "l"(from), "n"(4 * WIDTH), "r"((int)exists) : "memory");
}

// Closes the thread's group of copies.
__device__ inline void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most LEFT of the thread's groups are still under way.
template <int LEFT>
__device__ void wait() { asm volatile("cp.async.wait_group %0;" :: "n"(LEFT) : "memory"); }

// A goes element by element, because it is transposed on the way: RUN_A neighbours along k, then the next row.
constexpr int RUN_A = BLOCK_K % 8 ? 4 : 8;
constexpr int ITEMS_A = BLOCK_M * BLOCK_K;
constexpr int STEPS_A = (ITEMS_A + THREADS - 1) / THREADS;
constexpr int ROWS_A = THREADS / RUN_A;  // rows that a step covers, of one run
constexpr int PER_ROW_B = BLOCK_N / VECTOR_B;
constexpr int ITEMS_B = BLOCK_K * PER_ROW_B;
constexpr int STEPS_B = (ITEMS_B + THREADS - 1) / THREADS;
constexpr int COPIES = STEPS_A + STEPS_B;
constexpr int AHEAD = SPREAD ? STAGES - 1 : STAGES;  // tiles whose copies are issued before the loop
constexpr int GROUPS = SPREAD ? SPREAD : 1;          // of copies of a tile

// Steps of A with an offset of their own; where copies are spread, those of the first run have one, and the other runs
// lie at constant distances.
constexpr int OFFSETS_A = SPREAD && BLOCK_M % ROWS_A == 0 ? BLOCK_M / ROWS_A : STEPS_A;

struct Copier {
    const float *a, *b;  // the same for all threads
    unsigned from_a[OFFSETS_A], from_b[STEPS_B];  // bytes
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
        for (int step = 0; step < OFFSETS_A; ++step)
            from_a[step] = 4 * (unsigned)(min(row_of_a(step), part.rows - 1) * k + along_of_a(step));
#pragma unroll
        for (int step = 0; step < STEPS_B; ++step)
            from_b[step] = 4 * (unsigned)(row_of_b(step) * n + min(column_of_b(step), part.columns - VECTOR_B));
    }

    // The steps of A, then those of B, are shared out among the groups; behind the last group comes the next tile.
    __device__ void copy_group(float* buffer, int n, int group) {
        const int first = COPIES * group / GROUPS, last = COPIES * (group + 1) / GROUPS;
#pragma unroll
        for (int step = 0; step < STEPS_A; ++step)
            if (first <= step && step < last && exists(ITEMS_A, step))
                copy<1>(buffer + along_of_a(step) * PITCH_A + row_of_a(step),
                        (const float*)((const char*)a + from_a[step % OFFSETS_A]) + step / OFFSETS_A * RUN_A,
                        along_of_a(step) < left);
#pragma unroll
        for (int step = 0; step < STEPS_B; ++step)
            if (first <= STEPS_A + step && STEPS_A + step < last && exists(ITEMS_B, step))
                copy<VECTOR_B>(buffer + TILE_A + row_of_b(step) * PITCH_B + column_of_b(step),
                               (const float*)((const char*)b + from_b[step]), row_of_b(step) < left);
        if (group < GROUPS - 1) return;
        commit();
        left -= BLOCK_K;
        a += BLOCK_K;
        b += (long long)BLOCK_K * n;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    static_assert(BLOCK_K % 2 == 0, "fragments alternate, and tiles must start on the first one");
    extern __shared__ __align__(16) float shared[];
    const Part part(block_number(shared), m, n);
    const Place place(threadIdx.x);
    const int tiles = (k + BLOCK_K - 1) / BLOCK_K;
    const int first = (int)((long long)tiles * part.split / SPLIT_K);
    const int last = (int)((long long)tiles * (part.split + 1) / SPLIT_K);
    const int left = min(k, last * BLOCK_K) - first * BLOCK_K;

    Copier copier(a, b, part, k, n, first * BLOCK_K, left);
#pragma unroll
    for (int stage = 0; stage < AHEAD; ++stage)
#pragma unroll
        for (int group = 0; group < GROUPS; ++group) copier.copy_group(shared + stage * BUFFER, n, group);
    float fragment_a[2][THREAD_M], fragment_b[2][THREAD_N];
    float sum[THREAD_M][THREAD_N] = {};

    wait<AHEAD - 1>();
    __syncthreads();
    float* current = shared;
    float* freed = shared + (STAGES - 1) * BUFFER;
    int stage = 0;
    read_a(fragment_a[0], current + place.row);
    read_b(fragment_b[0], current + TILE_A + place.column);
#pragma unroll 1
    for (int tile = last - first; tile > 0; --tile) {
#pragma unroll
        for (int i = 0; i < BLOCK_K; ++i) {
            if (i == BLOCK_K - 1) {
                // All fragments of this tile are in registers once everyone is here; its buffer is free then.
                wait<STAGES - 2>();
                __syncthreads();
                freed = current;
                if (SPREAD == 0) copier.copy_group(freed, n, 0);
                stage = stage == STAGES - 1 ? 0 : stage + 1;
                current = shared + stage * BUFFER;
                read_a(fragment_a[0], current + place.row);
                read_b(fragment_b[0], current + TILE_A + place.column);
            } else {
                read_a(fragment_a[(i + 1) % 2], current + (i + 1) * PITCH_A + place.row);
                read_b(fragment_b[(i + 1) % 2], current + TILE_A + (i + 1) * PITCH_B + place.column);
#pragma unroll
                for (int group = 0; group < SPREAD; ++group)
                    if (i == group * (BLOCK_K - 1) / GROUPS) copier.copy_group(freed, n, group);
            }
            multiply_there_and_back(sum, fragment_a[i % 2], fragment_b[i % 2]);
        }
    }
    finish(c, n, part, place, sum);
}
