// The product in float64, slow and simple, and how far a float32 result is from it. Nothing here is shared with the
// kernels that it judges. Row-major: A is m x k, B is k x n, C is m x n.
constexpr int SIDE = 32, ROWS = 8, EACH = SIDE / ROWS;  // threads of a block: ROWS x SIDE, EACH elements a thread
constexpr unsigned POISON = 0xFFFFFFFF;

extern "C" __global__ void __launch_bounds__(SIDE * ROWS)
multiply(const float* a, const float* b, double* c, int m, int n, int k) {
    __shared__ double tile_a[SIDE][SIDE], tile_b[SIDE][SIDE];
    const int x = threadIdx.x, y = threadIdx.y;
    const long long top = (long long)blockIdx.y * SIDE, column = (long long)blockIdx.x * SIDE + x;
    double sum[EACH] = {};
    for (long long start = 0; start < k; start += SIDE) {
        for (int row = y; row < SIDE; row += ROWS) {
            tile_a[row][x] = top + row < m && start + x < k ? a[(top + row) * k + start + x] : 0;
            tile_b[row][x] = start + row < k && column < n ? b[(start + row) * n + column] : 0;
        }
        __syncthreads();
        for (int i = 0; i < SIDE; ++i)
            for (int each = 0; each < EACH; ++each) sum[each] += tile_a[y + each * ROWS][i] * tile_b[i][x];
        __syncthreads();
    }
    for (int each = 0; each < EACH; ++each) {
        const long long row = top + y + each * ROWS;
        if (row < m && column < n) c[row * n + column] = sum[each];
    }
}

// What is found over all elements: the bits of the largest |C - expected| over the norms of its row of A and column of
// B (numbers from 0 are ordered as their bits are), the first element that is off by more than `tolerance` times these
// norms, how many were never written, and the first of those. "First" starts as the largest number.
struct Findings {
    unsigned long long worst, first_wrong, unwritten, first_unwritten;
};

extern "C" __global__ void judge(const float* c, const double* expected, const double* norms_a, const double* norms_b,
                                 double tolerance, int m, int n, Findings* findings) {
    const long long elements = (long long)m * n, step = (long long)gridDim.x * blockDim.x;
    double worst = 0;
    for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < elements; i += step) {
        if (__float_as_uint(c[i]) == POISON) {
            atomicAdd(&findings->unwritten, 1ull);
            atomicMin(&findings->first_unwritten, (unsigned long long)i);
        }
        const double scale = norms_a[i / n] * norms_b[i % n], off = fabs(c[i] - expected[i]);
        if (off <= tolerance * scale)  // never of a NaN
            worst = fmax(worst, scale > 0 ? off / scale : 0);
        else
            atomicMin(&findings->first_wrong, (unsigned long long)i);
    }
    atomicMax(&findings->worst, (unsigned long long)__double_as_longlong(worst));
}
