// A bit of everything that compilers put around a matrix multiplication, for the table of opcodes to be held against.
extern "C" __global__ void zoo(float *out, const float *in, double *wide, const int *whole, long long *longs, unsigned n)
{
    __shared__ float4 tile[512];
    const unsigned lane = threadIdx.x;
    const float a = in[lane], b = in[lane + 32], c = in[lane + 64];
    const int i = whole[lane], j = whole[lane + 32], k = whole[lane + 64];
    float *slot = reinterpret_cast<float *>(tile);

    // shared memory of every width, with addresses of every form
    slot[lane] = a;
    reinterpret_cast<float2 *>(tile)[lane * 3 + i] = make_float2(a, b);
    tile[lane ^ j] = make_float4(a, b, c, a);
    __syncthreads();
    const float4 four = tile[lane * k & 511];
    const float2 two = reinterpret_cast<float2 *>(tile)[(lane + i) & 255];
    const unsigned char byte = reinterpret_cast<unsigned char *>(tile)[lane * 5 + j];

    // floats: sums, products, comparisons, selections, roots, halves
    float f = fmaf(a, b, c) + a * c - fminf(a, b) + fmaxf(fabsf(b), -c);
    f += a > b ? c : f * 0.5f;
    f += rsqrtf(fabsf(a)) + exp2f(b) + __sinf(c) + fmaf(a, 3.0f, b) + fmaf(f, b, 2.5f);
    f += floorf(a) + (float)i + (float)(unsigned)j + (float)(int)b + (float)byte;
    unsigned h, g; // two halves each
    asm volatile("mov.b32 %0, {%1, %2};" : "=r"(h) : "h"((short)i), "h"((short)j));
    asm volatile("mov.b32 %0, {%1, %2};" : "=r"(g) : "h"((short)k), "h"((short)i));
    asm volatile("fma.rn.f16x2 %0, %1, %2, %0;" : "+r"(h) : "r"(g), "r"(h));
    asm volatile("add.f16x2 %0, %1, %0;" : "+r"(h) : "r"(g));
    asm volatile("mul.f16x2 %0, %1, %0;" : "+r"(h) : "r"(g));
    f += __uint_as_float(h);

    // doubles and conversions
    double d = fma((double)a, (double)b, (double)c);
    d = d * (double)i + (d > 2.0 ? (double)b : d - 1.0);
    wide[lane] = d + wide[lane + 32] * wide[lane + 64];
    d = __dadd_rn(d, wide[lane + 96]);
    d = d > wide[lane + 128] ? __dmul_rn(d, wide[lane + 160]) : d;
    f += (float)d + (float)(long long)d + (float)longs[lane + 96] + (float)(int)d;

    // whole numbers: sums, products, shifts, bits, comparisons
    int w = i * j + k + min(i, j) - max(j, k) + abs(k) + (i << 3) + (j >> 2) + (k << (i & 7));
    w ^= (i & j) | ~k;
    w += __popc(i) + __clz(j) + __brev(k) + __ffs(i) + __byte_perm(i, j, k) + __funnelshift_l(i, j, k);
    w += i > j ? k : w * 7;
    w += __mulhi(i, j) + __umulhi(j, k);
    longs[lane] = (long long)i * j + longs[lane + 32] + ((long long)k << 5) - (long long)w * longs[lane + 64];
    w += (i > 3 && j < 5) || k == 7;

    // between lanes, and to memory
    w += __shfl_down_sync(~0u, w, 3) + __shfl_xor_sync(~0u, w, j & 3) + __ballot_sync(~0u, i > k);
    f += __shfl_sync(~0u, f, i);
    atomicAdd(reinterpret_cast<int *>(slot) + (i & 63), w);
    w += atomicAdd(reinterpret_cast<int *>(out) + 4096, w);
    w += atomicCAS(reinterpret_cast<int *>(out) + 4096 + k, i, w) + atomicCAS(reinterpret_cast<int *>(slot) + k, j, w);
    w += __dp4a(i, j, w) + __sad(i, j, w) + (longs[lane + 128] > longs[lane + 160] ? i : j);
    atomicMax(reinterpret_cast<int *>(out) + 4097 + lane, w);
    float local[16];
    for (int at = 0; at < 16; ++at)
        local[at] = f * at;
    for (unsigned at = 0; at < n; ++at)
        local[(i + at) & 15] += local[(j * at) & 15];
    __syncthreads();
    out[lane] = f + (float)w + four.x * four.y + four.z * four.w + two.x * two.y + local[k & 15] + slot[i & 255];
    reinterpret_cast<float2 *>(out)[lane + 512] = two;
    reinterpret_cast<float4 *>(out)[lane + 512] = four;
#if __CUDA_ARCH__ >= 800
    const unsigned to = (unsigned)__cvta_generic_to_shared(tile + lane);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + 4 * i) : "memory");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + 64), "l"(in + k) : "memory");
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    out[lane + 9999] = slot[lane];
#endif
}
