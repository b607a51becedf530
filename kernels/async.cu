// Tiles travel from global to shared memory past the registers, STAGES of them at once in a ring. The loop has no
// branch: rows and columns beyond the matrix are read as its last ones and never stored, what lies beyond the end of k
// becomes zero, and the loop goes on fetching such tiles to its end.
//
// A buffer is free when its tile's last fragments are in registers. Its copies are issued then, all at once; or, where
// SPREAD is not 0, in so many groups among the small iterations of the next tile, so that loads of fragments do not
// queue up behind them.
#include "copies.cuh"

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

#if SPREAD
    constexpr int AHEAD = STAGES - 1;
    const unsigned buffers = (unsigned)__cvta_generic_to_shared(shared);
    unsigned freed = buffers + AHEAD * 4 * BUFFER;
    SpreadCopier copier(a, b, part, k, n, first * BLOCK_K, left);
#pragma unroll
    for (int stage = 0; stage < AHEAD; ++stage)
#pragma unroll
        for (int group = 0; group < SPREAD; ++group) copier.copy_group(buffers + stage * 4 * BUFFER, n, group);
#else
    constexpr int AHEAD = STAGES;
    Copier copier(a, b, part, k, n, first * BLOCK_K, left);
#pragma unroll
    for (int stage = 0; stage < AHEAD; ++stage) copier.next(shared + stage * BUFFER, n);
#endif
    float fragment_a[2][THREAD_M], fragment_b[2][THREAD_N];
    float sum[THREAD_M][THREAD_N] = {};

    wait<AHEAD - 1>();
    __syncthreads();
    float* current = shared;
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
#if SPREAD
                freed = buffers + stage * 4 * BUFFER;
#else
                copier.next(current, n);
#endif
                stage = stage == STAGES - 1 ? 0 : stage + 1;
                current = shared + stage * BUFFER;
                read_a(fragment_a[0], current + place.row);
                read_b(fragment_b[0], current + TILE_A + place.column);
            } else {
                read_a(fragment_a[(i + 1) % 2], current + (i + 1) * PITCH_A + place.row);
                read_b(fragment_b[(i + 1) % 2], current + TILE_A + (i + 1) * PITCH_B + place.column);
#if SPREAD
#pragma unroll
                for (int group = 0; group < SPREAD; ++group)
                    if (i == group * (BLOCK_K - 1) / SPREAD) copier.copy_group(freed, n, group);
#endif
            }
            multiply_there_and_back(sum, fragment_a[i % 2], fragment_b[i % 2]);
        }
    }
    finish(c, n, part, place, sum);
}
