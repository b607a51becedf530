// Block, warp and thread tiles: the lanes of a warp share out a tile of their own such that they read fragments without
// bank conflicts, whatever the thread tile. Tiles and fragments are fetched ahead as in double_buffer.cu.
#include "warp.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k) {
    constexpr int PITCH_A = BLOCK_M + PAD_A;
    constexpr int PITCH_B = BLOCK_N + PAD_B;
    constexpr int TILE_A = BLOCK_K * PITCH_A;
    constexpr int BUFFER = TILE_A + BLOCK_K * PITCH_B;
    static_assert(BLOCK_K % 2 == 0, "fragments alternate, and tiles must start on the first one");
    float* const shared = shared_tiles();

    const Tile tile(m, n);
    const Place place(threadIdx.x);
    a += tile.row * k;
    b += tile.column;
    c += tile.row * n + tile.column;

    Carrier<BLOCK_M, BLOCK_K, VECTOR_A> tile_a;
    Carrier<BLOCK_K, BLOCK_N, VECTOR_B> tile_b;
    float fragment_a[2][THREAD_M], fragment_b[2][THREAD_N];
    float sum[THREAD_M][THREAD_N] = {};

    float* current = shared;
    tile_a.load(a, k, tile.rows, k);
    tile_b.load(b, n, k, tile.columns);
    tile_a.store_transposed(current, PITCH_A);
    tile_b.store(current + TILE_A, PITCH_B);
    __syncthreads();
    read_a(fragment_a[0], current + place.row);
    read_b(fragment_b[0], current + TILE_A + place.column);

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
            read_a(fragment_a[next % 2], current + next * PITCH_A + place.row);
            read_b(fragment_b[next % 2], current + TILE_A + next * PITCH_B + place.column);
            multiply_there_and_back(sum, fragment_a[i % 2], fragment_b[i % 2]);
        }
        if (more) {
            parity ^= 1;
            current = shared + parity * BUFFER;
            tile_a.store_transposed(current, PITCH_A);
            tile_b.store(current + TILE_A, PITCH_B);
            __syncthreads();
            read_a(fragment_a[0], current + place.row);
            read_b(fragment_b[0], current + TILE_A + place.column);
        }
        multiply_there_and_back(sum, fragment_a[1], fragment_b[1]);
    }
    write_thread_tile(c, n, tile.rows, tile.columns, place, sum);
}
