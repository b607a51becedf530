// What L2 keeps, and which multiprocessors' reads travel on as one: what docs/caches.md says of both was counted so.
//
// nvcc -arch=native -o probe campaigns/caches_probe.cu
// ncu --csv --page raw -k phases --metrics dram__bytes_read.sum probe keep
// SECTORS=l1tex__m_xbar2l1tex_read_sectors.sum,lts__t_sectors_srcunit_tex_op_read.sum
// ncu --csv --page raw -k together --metrics $SECTORS probe meet
//
// Launches are in the order of the lines that it prints. Written for an H200: 132 multiprocessors. Some of what one counted
// is in measured/caches_probe_h200.jsonl; the profiler flushed all caches before each launch, but where it says in_l2.
#include <cstdio>
#include <cstdlib>
#include <cstring>

constexpr int SMS = 132;
constexpr int STEPS = 512, STEP_CYCLES = 8000;  // of 4 KB each: what multiprocessors read together

void check(cudaError_t error) {
    if (error == cudaSuccess) return;
    fprintf(stderr, "%s\n", cudaGetErrorString(error));
    exit(1);
}

__device__ void barrier(volatile unsigned* arrived, unsigned all) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd((unsigned*)arrived, 1);
        while (*arrived < all) {}
        __threadfence();
    }
    __syncthreads();
}

// Each multiprocessor that takes part reads the same, a step at a time, from `delay` cycles after the others started.
struct Part {
    bool reads[SMS];
    int delay[SMS];
};

__global__ void together(const float4* from, Part part, unsigned* arrived, float* out) {
    int sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    barrier(arrived, gridDim.x);
    if (!part.reads[sm]) return;
    const long long start = clock64() + part.delay[sm];
    float sum = 0;
    for (int step = 0; step < STEPS; ++step) {
        while (clock64() < start + (long long)step * STEP_CYCLES) {}
        __syncthreads();
        sum += __ldg(from + step * 256 + threadIdx.x).x;
    }
    if (sum == 1) *out = sum;
}

// Reads by all multiprocessors of all, by each of its own part, and writes of its own part, one after the other.
enum Kind { READ_ALL, READ_OWN, WRITE_OWN };
struct Phase {
    Kind kind;
    float4* base;
    size_t count;
};
struct Phases {
    int count;
    Phase phase[3];
};

__global__ void phases(Phases given, unsigned* arrived, float* out) {
    float sum = 0;
    const size_t mine = blockIdx.x * blockDim.x + threadIdx.x, all = (size_t)blockDim.x * gridDim.x;
    for (int number = 0; number < given.count; ++number) {
        const Phase phase = given.phase[number];
        if (phase.kind == READ_ALL)
            for (size_t i = threadIdx.x; i < phase.count; i += blockDim.x) {
                sum += __ldcg(phase.base + i).x;
                if (i / blockDim.x % 64 == 63) __syncthreads();
            }
        else
            for (size_t i = mine; i < phase.count; i += all)
                if (phase.kind == READ_OWN) sum += __ldcg(phase.base + i).x;
                else phase.base[i] = make_float4(1, 2, 3, 4);
        barrier(arrived, gridDim.x * (number + 1));
    }
    if (sum == 1) *out = sum;
}

int main(int count, char** arguments) {
    unsigned* arrived;
    float* out;
    char* memory;
    check(cudaMalloc(&arrived, sizeof *arrived));
    check(cudaMalloc(&out, sizeof *out));
    check(cudaMalloc(&memory, 512 << 20));
    check(cudaMemset(memory, 0, 512 << 20));
    if (count > 1 && !strcmp(arguments[1], "meet")) {
        const int shared = 200 << 10;  // so that each multiprocessor has one block
        check(cudaFuncSetAttribute(together, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
        auto launch = [&](const Part& part, const char* what, int number, int delay) {
            check(cudaMemset(arrived, 0, sizeof *arrived));
            together<<<SMS, 256, shared>>>((float4*)memory, part, arrived, out);
            printf("%s %d, delay %d\n", what, number, delay);
        };
        for (int other = 1; other < SMS; ++other)
            for (int delay : {0, 200, 400, 800, 1600}) {
                Part part = {};
                part.reads[0] = part.reads[other] = true;
                part.delay[other] = delay;
                launch(part, "multiprocessors 0 and", other, delay);
            }
        for (int number : {2, 4, 8, 16, 32, 64, SMS})
            for (int delay : {0, 300, 1000, 3000}) {
                Part part = {};
                for (int sm = 0; sm < number; ++sm) {
                    part.reads[sm] = true;
                    part.delay[sm] = sm * 7919 % 101 * delay / 100;
                }
                launch(part, "so many multiprocessors:", number, delay);
            }
    } else {
        const char* names[] = {"read by all", "each its own", "written"};
        float4 *const first = (float4*)memory, *const second = (float4*)(memory + (256 << 20));
        for (Kind kind : {READ_ALL, READ_OWN, WRITE_OWN})
            for (size_t megabytes : {8, 16})
                for (size_t between : {8, 12, 16, 20, 24, 28, 32, 40, 48, 64}) {
                    const size_t size = megabytes * 1000000 / 16;
                    const Phase again = {READ_ALL, first, size};
                    check(cudaMemset(arrived, 0, sizeof *arrived));
                    phases<<<SMS, 1024>>>({3, {again, {kind, second, between * 1000000 / 16}, again}}, arrived, out);
                    printf("%zu MB read by all, %zu MB %s, the first again\n", megabytes, between, names[kind]);
                }
    }
    check(cudaDeviceSynchronize());
}
