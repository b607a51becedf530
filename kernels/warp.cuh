// What the kernels with warp tiles share: which elements of the block's tile a thread owns, how it reads their
// fragments, multiplies them and writes the results.
#pragma once
#include "common.cuh"

constexpr int WARP_SIZE = 32;
constexpr int LANE_COLUMNS = WARP_N / THREAD_N;
constexpr int LANE_ROWS = WARP_M / THREAD_M;
constexpr int WARP_COLUMNS = BLOCK_N / WARP_N;
static_assert(LANE_ROWS * LANE_COLUMNS == WARP_SIZE, "a warp tile is 32 thread tiles");

// A thread's rows (columns) come in pieces of at most 4 neighbours; the pieces of a warp's lanes lie side
// by side, so that lanes that read different vectors read neighbouring ones.
constexpr int PIECE_M = THREAD_M < 4 ? THREAD_M : 4;
constexpr int PIECE_N = THREAD_N < 4 ? THREAD_N : 4;
constexpr int WIDTH_C = VECTOR_C < PIECE_N ? VECTOR_C : PIECE_N;

__device__ constexpr int row_of(int i) { return i / PIECE_M * PIECE_M * LANE_ROWS + i % PIECE_M; }
__device__ constexpr int column_of(int j) { return j / PIECE_N * PIECE_N * LANE_COLUMNS + j % PIECE_N; }

// Where the thread's first element is in the block's tile. The bits of a lane's number go to columns and rows in
// turn: of lanes i, i^1 and i^2 then always two read the same address of A and two the same of B, which lets
// 128-bit loads of 16 lanes share a pass.
struct Place {
    int row, column;

    __device__ explicit Place(int thread) {
        const int lane = thread % WARP_SIZE, warp = thread / WARP_SIZE;
        int lane_row = 0, lane_column = 0;
        int rows = 1, columns = 1;
#pragma unroll
        for (int bit = 0; bit < 5; ++bit) {
            const int value = lane >> bit & 1;
            if (columns < LANE_COLUMNS && (bit % 2 == 0 || rows == LANE_ROWS)) {
                lane_column += value * columns;
                columns *= 2;
            } else {
                lane_row += value * rows;
                rows *= 2;
            }
        }
        row = warp / WARP_COLUMNS * WARP_M + lane_row * PIECE_M;
        column = warp % WARP_COLUMNS * WARP_N + lane_column * PIECE_N;
    }
};

// Where float i of a thread's fragment lies, counted from the first.
struct InPiecesOfA {
    __device__ constexpr int operator()(int i) const { return row_of(i); }
};
struct InPiecesOfB {
    __device__ constexpr int operator()(int j) const { return column_of(j); }
};

__device__ inline void read_a(float (&fragment)[THREAD_M], const float* shared) {
    read_fragment<THREAD_M, PIECE_M>(fragment, shared, InPiecesOfA{});
}
__device__ inline void read_b(float (&fragment)[THREAD_N], const float* shared) {
    read_fragment<THREAD_N, PIECE_N>(fragment, shared, InPiecesOfB{});
}

// One small iteration, in an order in which neighbouring FFMA share an operand, so that they read their registers
// over fewer ports: row after row, there and back, where a thread tile is tall; else two columns at a time; or as
// TRAVERSAL says.
__device__ inline void multiply_there_and_back(float (&sum)[THREAD_M][THREAD_N], const float (&a)[THREAD_M],
                                               const float (&b)[THREAD_N]) {
    if constexpr (TRAVERSAL > 0) {
        multiply_in_bands(sum, a, b);
    } else if constexpr (THREAD_M > THREAD_N || THREAD_N == 1) {
#pragma unroll
        for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
            for (int step = 0; step < THREAD_N; ++step) {
                const int j = i % 2 ? THREAD_N - 1 - step : step;
                sum[i][j] += a[i] * b[j];
            }
    } else {
#pragma unroll
        for (int pair = 0; pair < THREAD_N; pair += 2)
#pragma unroll
            for (int step = 0; step < THREAD_M; ++step)
#pragma unroll
                for (int of_pair = 0; of_pair < 2; ++of_pair) {
                    const int i = pair / 2 % 2 ? THREAD_M - 1 - step : step;
                    const int j = pair + (of_pair ^ (step & 1));
                    sum[i][j] += a[i] * b[j];
                }
    }
}

// Accumulators that go into a vector's registers as they are would have to lie there all along, in the banks of
// B's fragment: each FFMA then reads one bank twice. Through an addition that the compiler cannot drop, they are free.
__constant__ float zero = -0.0f;

__device__ inline void freed(float (&values)[PIECE_N], const float* sums) {
#pragma unroll
    for (int i = 0; i < PIECE_N; ++i) values[i] = sums[i] + zero;
}

// A piece of a row of a thread tile, as far as it is in the matrix. `c` points at the block's tile, of which `rows`
// and `columns` are in the matrix.
__device__ inline void write_piece(float* c, int n, int row, int column, int rows, int columns, const float* values) {
#pragma unroll
    for (int i = 0; i < PIECE_N; i += WIDTH_C)
        if (row < rows && column + i < columns) store<WIDTH_C>(c + (long long)row * n + column + i, values + i);
}

// The thread's results; `c` as above.
__device__ inline void write_thread_tile(float* __restrict__ c, int n, int rows, int columns, const Place& place,
                                         const float (&sum)[THREAD_M][THREAD_N]) {
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += PIECE_N) {
            float values[PIECE_N];
            freed(values, &sum[i][j]);
            write_piece(c, n, place.row + row_of(i), place.column + column_of(j), rows, columns, values);
        }
}
