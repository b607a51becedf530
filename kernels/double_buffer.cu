// The classic ping-pong: while one pair of shared tiles is multiplied, the next pair travels from
// global memory into registers; while one pair of fragments is multiplied, the next is read from
// shared memory. Two shared buffers need one barrier for each large iteration instead of two.
#include "common.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    constexpr int PITCH_A = BLOCK_M + PAD_A;
    constexpr int PITCH_B = BLOCK_N + PAD_B;
    constexpr int BUFFER = BLOCK_K * (PITCH_A + PITCH_B);
    static_assert(BLOCK_K % 2 == 0, "fragments alternate, and tiles must start on the first one");
    float* const shared = shared_tiles();

    const Tile tile(m, n);
    const int first_a = threadIdx.x / THREAD_COLUMNS * THREAD_M;
    const int first_b = threadIdx.x % THREAD_COLUMNS * THREAD_N;
    const int column_a = SWIZZLE ? 0 : first_a;
    const int row_b = BLOCK_K * PITCH_A + (SWIZZLE ? 0 : first_b);
    a += tile.row * k;
    b += tile.column;

    Carrier<BLOCK_M, BLOCK_K, VECTOR_A> tile_a;
    Carrier<BLOCK_K, BLOCK_N, VECTOR_B> tile_b;
    float fragment_a[2][THREAD_M], fragment_b[2][THREAD_N];
    float sum[THREAD_M][THREAD_N] = {};

    float* current = shared;
    tile_a.load(a, k, tile.rows, k);
    tile_b.load(b, n, k, tile.columns);
    tile_a.store_transposed(current, PITCH_A);
    tile_b.store(current + BLOCK_K * PITCH_A, PITCH_B);
    __syncthreads();
    read_fragment<THREAD_M, READ_A>(fragment_a[0], current + column_a, InA{first_a, 0});
    read_fragment<THREAD_N, READ_B>(fragment_b[0], current + row_b, InB{first_b});

    int parity = 0;
    for (int left = k; left > 0; left -= BLOCK_K) {
        const bool more = left > BLOCK_K;
        if (more) {
            a += BLOCK_K;
            b += (long long)BLOCK_K * n;
            tile_a.load(a, k, tile.rows, left - BLOCK_K);
            tile_b.load(b, n, left - BLOCK_K, tile.columns);
        }
#pragma unroll
        for (int i = 0; i < BLOCK_K - 1; ++i) {
            const int next = i + 1;
            read_fragment<THREAD_M, READ_A>(
                fragment_a[next % 2], current + column_a + next * PITCH_A, InA{first_a, next});
            read_fragment<THREAD_N, READ_B>(fragment_b[next % 2], current + row_b + next * PITCH_B, InB{first_b});
            multiply(sum, fragment_a[i % 2], fragment_b[i % 2]);
        }
        if (more) {
            parity ^= 1;
            current = shared + parity * BUFFER;
            tile_a.store_transposed(current, PITCH_A);
            tile_b.store(current + BLOCK_K * PITCH_A, PITCH_B);
            __syncthreads();
            read_fragment<THREAD_M, READ_A>(fragment_a[0], current + column_a, InA{first_a, 0});
            read_fragment<THREAD_N, READ_B>(fragment_b[0], current + row_b, InB{first_b});
        }
        multiply(sum, fragment_a[1], fragment_b[1]);
    }
    write_results<VECTOR_C>(c, n, tile, sum);
}
