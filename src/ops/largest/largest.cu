// The place of the largest number of each row, the first of equals. A is a type of numbers.cuh.

constexpr u32 WARPS = THREADS / 32;

struct Parameters {
    // [rows, stride], of which the first `columns` count.
    const typename Stored<A>::type *x;
    // [rows]
    int *places;
    u32 columns, stride;
    float unused;
};

struct Best {
    float value;
    u32 place;

    __device__ __forceinline__ void take(float other, u32 at) {
        if (other > value || (other == value && at < place)) value = other, place = at;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS) largest(const IN_PLACE Parameters p) {
    __shared__ Best warps[WARPS];
    const typename Stored<A>::type *row = p.x + static_cast<u64>(blockIdx.x) * p.stride;
    Best best = {__uint_as_float(0xff800000u), ~0u};
    for (u32 i = threadIdx.x; i < p.columns; i += THREADS) best.take(widen<A>(row[i]), i);
    for (u32 other = 16; other > 0; other /= 2) {
        const float value = __shfl_xor_sync(~0u, best.value, other);
        best.take(value, __shfl_xor_sync(~0u, best.place, other));
    }
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = best;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (u32 warp = 1; warp < WARPS; warp++) best.take(warps[warp].value, warps[warp].place);
    // A row without a number has none.
    p.places[blockIdx.x] = best.place < p.columns ? best.place : 0;
}
