// Register tiling: a thread computes THREAD_M x THREAD_N neighbouring elements of C from a column of
// A and a row of B that it reads from shared memory once for each small iteration.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    constexpr int PITCH_A = BLOCK_K + PAD_A;
    constexpr int PITCH_B = BLOCK_N + PAD_B;
    float* const shared_a = shared_tiles();
    float* const shared_b = shared_a + BLOCK_M * PITCH_A;

    const Tile tile(m, n);
    const float* const rows_a = shared_a + threadIdx.x / THREAD_COLUMNS * THREAD_M * PITCH_A;
    const float* const columns_b = shared_b + threadIdx.x % THREAD_COLUMNS * THREAD_N;
    a += tile.row * k;
    b += tile.column;

    float sum[THREAD_M][THREAD_N] = {};
    for (int start = 0; start < k; start += BLOCK_K) {
        Carrier<BLOCK_M, BLOCK_K, 1> tile_a;
        Carrier<BLOCK_K, BLOCK_N, 1> tile_b;
        tile_a.load(a, k, tile.rows, k - start);
        tile_b.load(b, n, k - start, tile.columns);
        tile_a.store(shared_a, PITCH_A);
        tile_b.store(shared_b, PITCH_B);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < BLOCK_K; i += READ_A) {
            float runs_a[THREAD_M][READ_A];
#pragma unroll
            for (int row = 0; row < THREAD_M; ++row) read_fragment<READ_A, READ_A>(runs_a[row], rows_a + row * PITCH_A + i);
#pragma unroll
            for (int j = 0; j < READ_A; ++j) {
                float fragment_a[THREAD_M], fragment_b[THREAD_N];
#pragma unroll
                for (int row = 0; row < THREAD_M; ++row) fragment_a[row] = runs_a[row][j];
                read_fragment<THREAD_N, READ_B>(fragment_b, columns_b + (i + j) * PITCH_B);
                multiply(sum, fragment_a, fragment_b);
            }
        }
        __syncthreads();
        a += BLOCK_K;
        b += (long long)BLOCK_K * n;
    }
    write_results<1>(c, n, tile, sum);
}
