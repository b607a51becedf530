// Register tiling with 128-bit accesses. A's tile lies transposed in shared memory, so that a thread's
// column of A is a run of neighbours too. In global memory an operand is read VECTOR_A or VECTOR_B
// floats at a time: 4 where its leading dimension is a multiple of 4, else 1; C likewise.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    constexpr int PITCH_A = BLOCK_M + PAD_A;
    constexpr int PITCH_B = BLOCK_N + PAD_B;
    float* const shared_a = shared_tiles();
    float* const shared_b = shared_a + BLOCK_K * PITCH_A;

    const Tile tile(m, n);
    const unsigned first_a = threadIdx.x / THREAD_COLUMNS * THREAD_M;
    const unsigned first_b = threadIdx.x % THREAD_COLUMNS * THREAD_N;
    const float* const column_a = shared_a + (SWIZZLE ? 0 : first_a);
    const float* const row_b = shared_b + (SWIZZLE ? 0 : first_b);
    a += tile.row * k;
    b += tile.column;

    float sum[THREAD_M][THREAD_N] = {};
    for (int start = 0; start < k; start += BLOCK_K) {
        Carrier<BLOCK_M, BLOCK_K, VECTOR_A> tile_a;
        Carrier<BLOCK_K, BLOCK_N, VECTOR_B> tile_b;
        tile_a.load(a, k, tile.rows, k - start);
        tile_b.load(b, n, k - start, tile.columns);
        tile_a.store_transposed(shared_a, PITCH_A);
        tile_b.store(shared_b, PITCH_B);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BLOCK_K; ++i) {
            float fragment_a[THREAD_M], fragment_b[THREAD_N];
            read_fragment<THREAD_M, READ_A>(fragment_a, column_a + i * PITCH_A, InA{(int)first_a, i});
            read_fragment<THREAD_N, READ_B>(fragment_b, row_b + i * PITCH_B, InB{(int)first_b});
            multiply(sum, fragment_a, fragment_b);
        }
        __syncthreads();
        a += BLOCK_K;
        b += (long long)BLOCK_K * n;
    }
    write_results<VECTOR_C>(c, n, tile, sum);
}
