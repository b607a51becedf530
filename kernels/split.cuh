// Splitting k: SPLIT_K blocks sum parts of the same tile of C. Each leaves its sums in global memory, waits for the
// others, and adds up its share of the tile, in the order of k: the result does not depend on who comes first.
//
// Blocks take their numbers in the order in which they start. So whoever waits, waits for blocks that have started or
// start before any of a later tile: as long as SPLIT_K blocks fit on the GPU at once, all of them end.
// The counters return to where they were; launches of the same loaded kernel must not overlap.
#pragma once
#include "warp.cuh"

// The tile of C that a block computes, the part of k that it sums, and how far the matrix reaches beyond the tile's
// first row and column. Blocks that run at the same time share rows and columns: of GROUP rows of tiles, they take
// one column of GROUP tiles after the other.
struct Part {
    int tile, split, row, column, rows, columns;

    __device__ Part(int block, int m, int n) {
        tile = block / SPLIT_K;
        split = block % SPLIT_K;
        const int across = (n + BLOCK_N - 1) / BLOCK_N, down = (m + BLOCK_M - 1) / BLOCK_M;
        if (GROUP == 1) {
            row = tile / across;
            column = tile % across;
        } else {
            const int band = tile / (GROUP * across) * GROUP;
            const int height = min(GROUP, down - band);
            const int within = tile % (GROUP * across);
            row = band + within % height;
            column = within / height;
        }
        row *= BLOCK_M;
        column *= BLOCK_N;
        rows = m - row;
        columns = n - column;
    }
};

#if SPLIT_K == 1

__device__ inline int block_number(float*) { return blockIdx.x; }
__device__ inline void finish(float* c, int n, const Part& part, const Place& place,
                              const float (&sum)[THREAD_M][THREAD_N]) {
    write_thread_tile(c + (long long)part.row * n + part.column, n, part.rows, part.columns, place, sum);
}

#else

constexpr int PIECES = THREAD_M * THREAD_N / PIECE_N;  // of a thread's sums
constexpr int UNITS = PIECES * THREADS / WARP_SIZE;    // of a tile's sums: a piece of each lane of a warp
constexpr int WARPS = THREADS / WARP_SIZE;
constexpr int TOGETHER = SPLIT_K < 16 ? SPLIT_K : 16;  // loads under way
constexpr int TILE_C = BLOCK_M * BLOCK_N;

// TILES is at least the number of tiles of C.
__device__ unsigned blocks_started;
__device__ unsigned arrived[TILES], rounds[TILES];
__device__ __align__(128) float partial_sums[(long long)TILES * SPLIT_K * TILE_C];

// How many blocks have started before, counted from 0 again after the last of the grid.
__device__ inline int block_number(float* shared) {
    unsigned* const number = reinterpret_cast<unsigned*>(shared);
    if (threadIdx.x == 0) *number = atomicInc(&blocks_started, gridDim.x - 1);
    __syncthreads();
    const int mine = *number;
    __syncthreads();  // before its place is used for tiles
    return mine;
}

// Returns when all blocks of the tile are here, and what they wrote before can be read. It looks with an addition of
// nothing, which reads past L1 and is no load, so that loads can be counted.
__device__ inline void meet(int tile) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const unsigned before = atomicAdd(&rounds[tile], 0);
        __threadfence();
        if (atomicInc(&arrived[tile], SPLIT_K - 1) == SPLIT_K - 1)
            atomicAdd(&rounds[tile], 1);
        else
            while (atomicAdd(&rounds[tile], 0) == before) __nanosleep(32);
        __threadfence();
    }
    __syncthreads();
}

// A piece that another block has written in this launch: past L1, which may hold an older one. A relaxed load is made
// where it stands; the compiler moves a plain one, volatile or not, behind the guard of the store that needs it.
__device__ inline void load_fresh(float (&to)[PIECE_N], const float* from) {
    if constexpr (PIECE_N == 4)
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3]) : "l"(from) : "memory");
    else if constexpr (PIECE_N == 2)
        asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "l"(from) : "memory");
    else
        asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(to[0]) : "l"(from) : "memory");
}

__device__ inline void finish(float* __restrict__ c, int n, const Part& part, const Place&,
                              const float (&sum)[THREAD_M][THREAD_N]) {
    float* const tile = partial_sums + (long long)part.tile * SPLIT_K * TILE_C;
    float* const mine = tile + (long long)part.split * TILE_C + threadIdx.x * PIECE_N;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += PIECE_N) {
            float values[PIECE_N];
            freed(values, &sum[i][j]);
            store<PIECE_N>(mine + (i * THREAD_N + j) * THREADS, values);
        }
    meet(part.tile);

    c += (long long)part.row * n + part.column;
#pragma unroll 1
    for (int unit = threadIdx.x / WARP_SIZE * SPLIT_K + part.split; unit < UNITS; unit += WARPS * SPLIT_K) {
        const int item = unit * WARP_SIZE + threadIdx.x % WARP_SIZE;
        const float* from = tile + item * PIECE_N;
        float values[PIECE_N] = {};
#pragma unroll TOGETHER
        for (int split = 0; split < SPLIT_K; ++split) {
            float of_split[PIECE_N];
            load_fresh(of_split, from + (long long)split * TILE_C);
#pragma unroll
            for (int i = 0; i < PIECE_N; ++i) values[i] += of_split[i];
        }
        const Place place(item % THREADS);
        const int i = item / THREADS / (THREAD_N / PIECE_N);
        const int j = item / THREADS % (THREAD_N / PIECE_N) * PIECE_N;
        write_piece(c, n, place.row + row_of(i), place.column + column_of(j), part.rows, part.columns, values);
    }
}

#endif
