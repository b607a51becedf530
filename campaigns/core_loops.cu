// What the loops of core_loops.py are made of: accesses of 1, 2 or 4 registers a lane, none of which the compiler moves
// or leaves out, and the frame around a loop. Behind this text it writes a kernel for each loop.
//
//   rows    start and end clock, and the sum of what was added up, of each thread; then shared memory, word by word
//   memory  what global accesses read
//   at      the first word of each lane, of each kind of access
//   none    zero, which the compiler does not know: addresses that did not change would let it load once for all passes

struct Row { long long start, end; float sum, unused; };

template <int> __device__ void global_load(float *v, const float *from);
template <int> __device__ void shared_load(float *v, unsigned from);
template <int> __device__ void shared_store(unsigned to, float value);
template <int> __device__ void global_copy(unsigned to, const float *from);

#define ONE(v) "=f"((v)[0])
#define TWO(v) ONE(v), "=f"((v)[1])
#define FOUR(v) TWO(v), "=f"((v)[2]), "=f"((v)[3])
#define DEFINED template <> __device__ __forceinline__ void
DEFINED global_load<1>(float *v, const float *p) { asm volatile("ld.global.f32 %0, [%1];" : ONE(v) : "l"(p)); }
DEFINED global_load<2>(float *v, const float *p) { asm volatile("ld.global.v2.f32 {%0, %1}, [%2];" : TWO(v) : "l"(p)); }
DEFINED global_load<4>(float *v, const float *p)
{ asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];" : FOUR(v) : "l"(p)); }
DEFINED shared_load<1>(float *v, unsigned p) { asm volatile("ld.shared.f32 %0, [%1];" : ONE(v) : "r"(p)); }
DEFINED shared_load<2>(float *v, unsigned p) { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : TWO(v) : "r"(p)); }
DEFINED shared_load<4>(float *v, unsigned p)
{ asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : FOUR(v) : "r"(p)); }
DEFINED shared_store<1>(unsigned p, float x) { asm volatile("st.shared.f32 [%0], %1;" :: "r"(p), "f"(x)); }
DEFINED shared_store<2>(unsigned p, float x) { asm volatile("st.shared.v2.f32 [%0], {%1, %1};" :: "r"(p), "f"(x)); }
DEFINED shared_store<4>(unsigned p, float x)
{ asm volatile("st.shared.v4.f32 [%0], {%1, %1, %1, %1};" :: "r"(p), "f"(x)); }
DEFINED global_copy<1>(unsigned to, const float *p)
{ asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" :: "r"(to), "l"(p)); }
DEFINED global_copy<2>(unsigned to, const float *p)
{ asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" :: "r"(to), "l"(p)); }
DEFINED global_copy<4>(unsigned to, const float *p)
{ asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(p)); }

__device__ __forceinline__ void copies_of_the_last_pass()
{
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

__device__ __forceinline__ void ffma(float &z, float one, float also_one)
{
    asm volatile("fma.rn.f32 %0, %1, %2, %0;" : "+f"(z) : "f"(one), "f"(also_one));
}

#define GIVEN Row *rows, const float *memory, const int *at, int passes, int none, float one, float also_one
#define BEGIN \
    extern __shared__ float words[]; \
    for (int i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) \
        words[i] = i < AREA_WORDS ? i % SHARED_VALUES : 0; \
    unsigned shared = (unsigned)__cvta_generic_to_shared(words); \
    const int lane = threadIdx.x % 32; \
    float z[SUMS], v[ACCESSES][4]; \
    for (int i = 0; i < SUMS; ++i) \
        z[i] = i; \
    __syncthreads(); \
    const long long start = clock64(); \
    _Pragma("unroll 1") for (int pass = 0; pass < passes; ++pass, memory += none, shared += none)
#define END \
    asm volatile("cp.async.wait_all;" ::: "memory"); \
    const long long end = clock64(); \
    float sum = 0; \
    for (int i = 0; i < SUMS; ++i) \
        sum += z[i]; \
    rows[threadIdx.x] = {start, end, sum, 0}; \
    __syncthreads(); \
    for (int i = threadIdx.x; i < SHARED_WORDS; i += blockDim.x) \
        ((float *)(rows + 1024))[i] = words[i];
