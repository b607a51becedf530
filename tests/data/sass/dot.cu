// A small loop with loads, FFMA and a load from shared memory, for tests that read machine code.
extern "C" __global__ void dot(float *c, const float *a, const float *b, int k)
{
    __shared__ float4 tile[32];
    tile[threadIdx.x] = reinterpret_cast<const float4 *>(b)[threadIdx.x];
    __syncthreads();
    float sum = 0, other = 0;
#pragma unroll 1
    for (int i = 0; i < k; ++i) {
        const float x = a[i * 32 + threadIdx.x];
        const float4 y = tile[i & 31];
        sum = fmaf(x, y.x, fmaf(x, y.y, sum));
        other = fmaf(x, y.z, fmaf(x, y.w, other));
    }
    c[threadIdx.x] = sum + other;
}

extern "C" __global__ void fill(float *c)
{
    c[threadIdx.x] = 1;
}
