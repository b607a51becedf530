// The block stages tiles of A and B in shared memory; a thread still computes one element of C.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    constexpr int PITCH_A = BLOCK_K + PAD_A;
    constexpr int PITCH_B = BLOCK_N + PAD_B;
    float* const shared_a = shared_tiles();
    float* const shared_b = shared_a + BLOCK_M * PITCH_A;

    const Tile tile(m, n);
    const int row = threadIdx.x / THREAD_COLUMNS;
    const int column = threadIdx.x % THREAD_COLUMNS;
    a += tile.row * k;
    b += tile.column;

    float sum = 0;
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
            float run_a[READ_A];
            read_fragment<READ_A, READ_A>(run_a, shared_a + row * PITCH_A + i);
#pragma unroll
            for (int j = 0; j < READ_A; ++j) sum += run_a[j] * shared_b[(i + j) * PITCH_B + column];
        }
        __syncthreads();
        a += BLOCK_K;
        b += (long long)BLOCK_K * n;
    }
    if (row < tile.rows && column < tile.columns)
        c[(tile.row + row) * n + tile.column + column] = sum;
}
