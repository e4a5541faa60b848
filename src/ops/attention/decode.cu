// Attention of one new token of each sequence over the keys and values of all tokens so far. A block of threads has a key
// head of a sequence and the GROUP query heads that share it (Ainslie et al. 2023), and reads its keys and values once;
// softmax goes along with the keys (Milakov and Gimelshein 2018, "Online normalizer calculation for softmax"). Given at
// compile time: A, a type of numbers.cuh, D, the size of a head, GROUP, THREADS of a block, and where
// there is a soft cap of scores (Gemma Team 2024, "Gemma 2") SOFT_CAP.

// A thread has a key of a chunk in the scores, and a column of a share of its keys in the sum of values.
constexpr u32 CHUNK = THREADS, WARPS = THREADS / 32;
constexpr u32 SHARES = THREADS / D;
// Elements that are read at once.
constexpr u32 WIDTH = D % 8 == 0 ? 8 : 1;

typedef typename Stored<A>::type Number;

#define INFINITE __uint_as_float(0x7f800000u)

struct alignas(WIDTH * sizeof(Number)) Wide {
    Number x[WIDTH];
};

struct Parameters {
    // [batch, kv_heads · GROUP · D]
    const Number *q;
    // [batch, capacity, kv_heads · D], of which the first `keys` of each sequence are there.
    const Number *k, *v;
    // As q.
    Number *o;
    // [batch, keys]: the first key that each token sees; null: 0.
    const int *starts;
    int keys, capacity, kv_heads;
    // The first key of the window.
    int first;
    float scale;
};

__device__ __forceinline__ float largest_of_warp(float x) {
    for (u32 other = 16; other > 0; other /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, other));
    return x;
}

__device__ __forceinline__ float sum_of_warp(float x) {
    for (u32 other = 16; other > 0; other /= 2) x += __shfl_xor_sync(~0u, x, other);
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS) attend_next(const IN_PLACE Parameters parameters) {
    __shared__ float query[GROUP][D], weight[GROUP][CHUNK];
    __shared__ float largest[GROUP], sum[GROUP], shrunk[GROUP];
    const u32 thread = threadIdx.x, keys = parameters.keys, kv_heads = parameters.kv_heads;
    const u32 sequence = blockIdx.x / kv_heads, head = blockIdx.x % kv_heads;
    const u64 columns = kv_heads * D;
    const u64 before = static_cast<u64>(sequence) * parameters.capacity * columns + head * D;
    const Number *k = parameters.k + before, *v = parameters.v + before;
    const u64 own = static_cast<u64>(blockIdx.x) * GROUP * D;
    for (u32 i = thread; i < GROUP * D; i += THREADS) {
        query[i / D][i % D] = widen<A>(parameters.q[own + i]) * parameters.scale;
    }
    if (thread < GROUP) largest[thread] = -INFINITE, sum[thread] = 0;
    const u32 start = parameters.starts ? parameters.starts[static_cast<u64>(sequence) * keys + keys - 1] : 0;
    const u32 first = max(start, static_cast<u32>(parameters.first));
    const u32 share = thread / D, column = thread % D;
    float total[GROUP] = {};
    __syncthreads();
    // The first chunk has a key that is seen, so that its largest score is a number.
    for (u32 chunk = first / CHUNK * CHUNK; chunk < keys; chunk += CHUNK) {
        const u32 key = chunk + thread;
        const bool seen = key >= first && key < keys;
        float score[GROUP] = {};
        if (seen) {
            for (u32 c = 0; c < D; c += WIDTH) {
                const Wide wide = *reinterpret_cast<const Wide *>(k + key * columns + c);
#pragma unroll
                for (u32 i = 0; i < WIDTH; i++) {
                    const float x = widen<A>(wide.x[i]);
#pragma unroll
                    for (u32 g = 0; g < GROUP; g++) score[g] += query[g][c + i] * x;
                }
            }
        }
#pragma unroll
        for (u32 g = 0; g < GROUP; g++) {
#ifdef SOFT_CAP
            score[g] = SOFT_CAP * tanhf(score[g] / SOFT_CAP);
#endif
            weight[g][thread] = seen ? score[g] : -INFINITE;
        }
        __syncthreads();
        // Each warp has other query heads.
        for (u32 g = thread / 32; g < GROUP; g += WARPS) {
            float most = largest[g];
            for (u32 i = thread % 32; i < CHUNK; i += 32) most = fmaxf(most, weight[g][i]);
            most = largest_of_warp(most);
            float part = 0;
            for (u32 i = thread % 32; i < CHUNK; i += 32) {
                const float x = __expf(weight[g][i] - most);
                weight[g][i] = x;
                part += x;
            }
            part = sum_of_warp(part);
            if (thread % 32 == 0) {
                const float factor = __expf(largest[g] - most);
                shrunk[g] = factor, sum[g] = sum[g] * factor + part, largest[g] = most;
            }
        }
        __syncthreads();
        if (share < SHARES) {
#pragma unroll
            for (u32 g = 0; g < GROUP; g++) total[g] *= shrunk[g];
            const u32 end = min(CHUNK, keys - chunk);
#pragma unroll 8
            for (u32 i = share; i < end; i += SHARES) {
                const float x = widen<A>(v[(chunk + i) * columns + column]);
#pragma unroll
                for (u32 g = 0; g < GROUP; g++) total[g] += weight[g][i] * x;
            }
        }
        __syncthreads();
    }
    // The weights are used up, and SHARES · D are at most CHUNK.
    float *shares = &weight[0][0];
    if (share < SHARES) {
#pragma unroll
        for (u32 g = 0; g < GROUP; g++) shares[(share * GROUP + g) * D + column] = total[g];
    }
    __syncthreads();
    for (u32 i = thread; i < GROUP * D; i += THREADS) {
        float x = 0;
#pragma unroll
        for (u32 s = 0; s < SHARES; s++) x += shares[s * GROUP * D + i];
        parameters.o[own + i] = narrow<A>(x / sum[i / D]);
    }
}
