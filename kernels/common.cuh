// What every kernel of the ladder shares: which tile a block owns, and how its threads carry a
// tile of A or B from global memory into shared memory.
//
// C = A B, row-major: A is m x k, B is k x n, C is m x n. A block computes BLOCK_M x BLOCK_N of C
// and a thread THREAD_M x THREAD_N of that; threads run fastest along n, blocks too.
// All sizes in capitals are macros that the tiling sets when the kernel is compiled.
#pragma once

constexpr int THREAD_COLUMNS = BLOCK_N / THREAD_N;
constexpr int THREAD_ROWS = BLOCK_M / THREAD_M;
constexpr int THREADS = THREAD_COLUMNS * THREAD_ROWS;

// A run of N floats that moves in one access, and therefore lies at a multiple of its size.
template <int N>
struct alignas(4 * N) Vector {
    float at[N];
};

// WIDTH neighbours of global memory in one store. Written as PTX, because the compiler takes some plain
// stores of vectors apart.
template <int WIDTH>
__device__ void store(float* to, const float* from) {
    if constexpr (WIDTH == 4)
        asm volatile("st.global.v4.f32 [%0], {%1, %2, %3, %4};"
                     :: "l"(to), "f"(from[0]), "f"(from[1]), "f"(from[2]), "f"(from[3]) : "memory");
    else if constexpr (WIDTH == 2)
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" :: "l"(to), "f"(from[0]), "f"(from[1]) : "memory");
    else
        *to = *from;
}

// The block's tiles in shared memory. They start at its beginning, but the compiler must not know that:
// it would merge neighbouring accesses wherever it can prove them aligned, across rows and padding
// too, while the model counts accesses of the width in which they are written.
__constant__ int shared_origin = 0;

__device__ inline float* shared_tiles() {
    extern __shared__ __align__(16) float shared_memory[];
    return shared_memory + shared_origin;
}

// Where a column lies in its row of a shared tile. SWIZZLE moves columns among 32 of them, as many as there
// are banks, by an exclusive or that keeps vectors whole; 0 leaves them as they come.
//
// A, transposed: rows that came as one vector are moved by SWIZZLE columns against the next such rows, which
// spreads the stores that transpose. B: each 32 columns are moved by one vector against the next, because
// fragments of 8 or 16 floats start in the same few banks over and over.
__device__ constexpr int column_in_a(int column, int row) { return column ^ row / VECTOR_A * SWIZZLE % 32; }
__device__ constexpr int column_in_b(int column) { return SWIZZLE ? column ^ column / 32 * READ_B % 32 : column; }

// Where float i of a thread's fragment lies: counted from the fragment's first column or, since a swizzle moves
// that one too, from the beginning of its row.
struct InOrder {
    __device__ constexpr int operator()(int i) const { return i; }
};
struct InA {
    int first, row;
    __device__ constexpr int operator()(int i) const { return column_in_a(first + i, row) - (SWIZZLE ? 0 : first); }
};
struct InB {
    int first;
    __device__ constexpr int operator()(int i) const { return column_in_b(first + i) - (SWIZZLE ? 0 : first); }
};

// The block's tile of C, and how far the matrix reaches beyond the tile's first row and column.
struct Tile {
    long long row, column;
    int rows, columns;

    __device__ Tile(int m, int n) {
        const int tiles_across = (n + BLOCK_N - 1) / BLOCK_N;
        row = (long long)(blockIdx.x / tiles_across) * BLOCK_M;
        column = (long long)(blockIdx.x % tiles_across) * BLOCK_N;
        rows = m - (int)row;
        columns = n - (int)column;
    }
};

// One tile of ROWS x COLUMNS floats on its way from global to shared memory, held in registers in
// between. Item i of thread t is vector number t + i * THREADS of the tile, row by row, so
// that neighbouring lanes read neighbouring addresses. What lies outside the matrix becomes zero.
template <int ROWS, int COLUMNS, int WIDTH>
struct Carrier {
    static constexpr int PER_ROW = COLUMNS / WIDTH;
    static constexpr int ITEMS = ROWS * PER_ROW;
    static constexpr int STEPS = (ITEMS + THREADS - 1) / THREADS;
    static_assert(COLUMNS % WIDTH == 0, "a row of the tile is a whole number of vectors");

    Vector<WIDTH> held[STEPS];

    __device__ static int row(int step) { return (threadIdx.x + step * THREADS) / PER_ROW; }
    __device__ static int column(int step) { return (threadIdx.x + step * THREADS) % PER_ROW * WIDTH; }
    __device__ static bool exists(int step) {
        return (step + 1) * THREADS <= ITEMS || threadIdx.x + step * THREADS < ITEMS;
    }

    // `tile` points at the tile's first element; `rows` and `columns` are what is left of the matrix.
    __device__ void load(const float* __restrict__ tile, int pitch, int rows, int columns) {
#pragma unroll
        for (int step = 0; step < STEPS; ++step) {
            held[step] = {};
            if (exists(step) && row(step) < rows && column(step) < columns)
                held[step] = *reinterpret_cast<const Vector<WIDTH>*>(
                    tile + (long long)row(step) * pitch + column(step));
        }
    }

    __device__ void store(float* shared, int pitch) const {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
            if (exists(step))
                *reinterpret_cast<Vector<WIDTH>*>(
                    shared + row(step) * pitch + column_in_b(column(step))) = held[step];
    }

    __device__ void store_transposed(float* shared, int pitch) const {
#pragma unroll
        for (int step = 0; step < STEPS; ++step)
            if (exists(step))
#pragma unroll
                for (int i = 0; i < WIDTH; ++i)
                    shared[(column(step) + i) * pitch + column_in_a(row(step), column(step))] =
                        held[step].at[i];
    }
};

// N floats of shared memory into registers, WIDTH neighbours at a time.
template <int N, int WIDTH, class Place = InOrder>
__device__ void read_fragment(float (&fragment)[N], const float* shared, Place place = {}) {
#pragma unroll
    for (int i = 0; i < N; i += WIDTH) {
        const auto part = *reinterpret_cast<const Vector<WIDTH>*>(shared + place(i));
#pragma unroll
        for (int j = 0; j < WIDTH; ++j) fragment[i + j] = part.at[j];
    }
}

// One small iteration, the outer product of a column of A and a row of B, in bands of TRAVERSAL rows: down and up the
// columns of a band, there and back, so that neighbouring FFMA share an operand.
__device__ inline void multiply_in_bands(float (&sum)[THREAD_M][THREAD_N], const float (&a)[THREAD_M],
                                         const float (&b)[THREAD_N]) {
    constexpr int ROWS = TRAVERSAL > 0 ? TRAVERSAL : THREAD_M;
#pragma unroll
    for (int band = 0; band < THREAD_M; band += ROWS)
#pragma unroll
        for (int step = 0; step < THREAD_N; ++step)
#pragma unroll
            for (int of_band = 0; of_band < ROWS; ++of_band) {
                const int turns = band / ROWS;
                const int j = turns % 2 ? THREAD_N - 1 - step : step;
                const int i = band + ((turns * THREAD_N + step) % 2 ? ROWS - 1 - of_band : of_band);
                sum[i][j] += a[i] * b[j];
            }
}

// One small iteration: row by row, unless TRAVERSAL says otherwise.
__device__ inline void multiply(float (&sum)[THREAD_M][THREAD_N], const float (&a)[THREAD_M],
                                const float (&b)[THREAD_N]) {
    if constexpr (TRAVERSAL > 0) {
        multiply_in_bands(sum, a, b);
    } else {
#pragma unroll
        for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
            for (int j = 0; j < THREAD_N; ++j) sum[i][j] += a[i] * b[j];
    }
}

// The thread's THREAD_M x THREAD_N results, WIDTH neighbours of a row at a time.
template <int WIDTH>
__device__ void write_results(float* __restrict__ c, int n, const Tile& tile,
                              const float (&sum)[THREAD_M][THREAD_N]) {
    const int row = threadIdx.x / THREAD_COLUMNS * THREAD_M;
    const int column = threadIdx.x % THREAD_COLUMNS * THREAD_N;
    c += (tile.row + row) * n + tile.column + column;
#pragma unroll
    for (int i = 0; i < THREAD_M; ++i)
#pragma unroll
        for (int j = 0; j < THREAD_N; j += WIDTH)
            if (row + i < tile.rows && column + j < tile.columns)
                store<WIDTH>(c + (long long)i * n + j, &sum[i][j]);
}
