// The container of the register microbenchmarks: its instructions are replaced by generated ones, what the compiler
// says of it stays: LIVE values held at once decide the registers, LENGTH the room for code; the barrier is declared.
//
//   out      start clocks of 1024 threads, end clocks of 1024 threads; or the registers, 256 words a thread
//   buffer   what loads from global memory read
//   trips    passes of the loop, at least one
extern "C" __global__ void __launch_bounds__(THREADS, 1) bench(unsigned *out, const float *buffer, unsigned trips)
{
    float live[LIVE];
    for (int i = 0; i < LIVE; ++i)
        live[i] = buffer[i * THREADS + threadIdx.x];
    __syncthreads();
    for (unsigned trip = 0; trip < trips; ++trip) {
#pragma unroll
        for (int i = 0; i < LENGTH; ++i)
            live[i % LIVE] = fmaf(live[(i + 1) % LIVE], live[(i + 3) % LIVE], live[i % LIVE]);
    }
    for (int i = 0; i < LIVE; ++i)
        out[i * THREADS + threadIdx.x] = __float_as_uint(live[i]);
}
