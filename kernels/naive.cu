// One thread computes one element of C, straight from global memory.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    const Tile tile(m, n);
    const int row = threadIdx.x / THREAD_COLUMNS;
    const int column = threadIdx.x % THREAD_COLUMNS;
    if (row >= tile.rows || column >= tile.columns) return;

    a += (tile.row + row) * k;
    b += tile.column + column;
    float sum = 0;
    for (int i = 0; i < k; ++i) sum += a[i] * b[(long long)i * n];
    c[(tile.row + row) * n + tile.column + column] = sum;
}
