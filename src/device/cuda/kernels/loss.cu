// The cross-entropy of tokens whose logits exist whole, and its gradient. CLUSTER blocks have a token, which exchange
// the maxima and sums of their parts of the row; with HELD a part stays in shared memory, so that logits are read once.
//
// Given at compile time: CLUSTER, a power of two (above 1 from compute capability 9.0 on), HELD, 0 or 1, and the type
// A of the gradient.

constexpr u32 THREADS = 512;
// Elements that a thread takes at once.
constexpr u32 WIDTH = 8;
// Below every logit; the difference of two is finite.
constexpr float HIDDEN = -1e30f;

struct Parameters {
    // [tokens, row] and, from row `first_row` on, the same; row is a multiple of WIDTH.
    const float *logits;
    Stored<A>::type *dlogits;
    // Of all tokens.
    const int *labels;
    float *losses;
    u32 first_token, first_row;
    // Entries that count, columns of a row, and those of a block.
    u32 vocab, row, part;
    float gain;
};

struct alignas(16) Four {
    float x[4];
};

struct alignas(WIDTH * sizeof(Stored<A>::type)) Results {
    Stored<A>::type x[WIDTH];
};

// The sum of exponentials of what was seen, less the maximum.
struct Sum {
    float top, total;

    __device__ __forceinline__ void add(Sum other) {
        const float before = top;
        top = fmaxf(top, other.top);
        total = total * __expf(before - top) + other.total * __expf(other.top - top);
    }
};

__device__ __forceinline__ u32 rank() {
#if CLUSTER > 1
    u32 rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
#else
    return 0;
#endif
}

// All threads of the token's blocks are here.
__device__ __forceinline__ void meet() {
#if CLUSTER > 1
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#else
    __syncthreads();
#endif
}

// A number in the shared memory of another of the token's blocks, at the place of `mine` in this one.
__device__ __forceinline__ float of_block(const float *mine, u32 block) {
#if CLUSTER > 1
    const u32 here = static_cast<u32>(__cvta_generic_to_shared(mine));
    u32 there;
    float value;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
#else
    return *mine;
#endif
}

// Begins the copy of 16 bytes to shared memory.
__device__ __forceinline__ void copy(Four *to, const Four *from) {
#if __CUDA_ARCH__ >= 800
    const u32 there = static_cast<u32>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(there), "l"(__cvta_generic_to_global(from)) : "memory");
#else
    *to = *from;
#endif
}

// This thread's copies are there.
__device__ __forceinline__ void copied() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Sums over a token's blocks; the same in every thread.
__device__ __forceinline__ Sum over_blocks(Sum sum) {
    __shared__ float tops[THREADS / 32], totals[THREADS / 32], own[2];
    for (u32 step = 16; step > 0; step /= 2) {
        sum.add({__shfl_xor_sync(~0u, sum.top, step), __shfl_xor_sync(~0u, sum.total, step)});
    }
    if (threadIdx.x % 32 == 0) {
        tops[threadIdx.x / 32] = sum.top;
        totals[threadIdx.x / 32] = sum.total;
    }
    __syncthreads();
    sum = {tops[0], totals[0]};
    for (u32 warp = 1; warp < THREADS / 32; warp++) sum.add({tops[warp], totals[warp]});
    if (threadIdx.x == 0) {
        own[0] = sum.top;
        own[1] = sum.total;
    }
    meet();
    sum = {of_block(own, 0), of_block(own + 1, 0)};
    for (u32 block = 1; block < CLUSTER; block++) sum.add({of_block(own, block), of_block(own + 1, block)});
    // No block ends while another reads from it.
    meet();
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
    lose(const __grid_constant__ Parameters p) {
    extern __shared__ Four held[];
    const u32 token = blockIdx.x / CLUSTER;
    const u32 begin = min(rank() * p.part, p.row), end = min(begin + p.part, p.row);
    const u32 pieces = (end - begin) / WIDTH;
    const Four *logits = reinterpret_cast<const Four *>(p.logits + static_cast<u64>(token) * p.row + begin);
#if HELD
    // All at once; each thread reads what it has copied. Halves lie apart, so that neighbouring threads write to
    // neighbouring places.
    const u32 halves = p.part / WIDTH;
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) {
        copy(held + piece, logits + piece * 2);
        copy(held + halves + piece, logits + piece * 2 + 1);
    }
    copied();
#endif
    auto load = [&](u32 piece, float (&x)[WIDTH]) {
#pragma unroll
        for (u32 half = 0; half < 2; half++) {
#if HELD
            const Four four = held[half * halves + piece];
#else
            const Four four = logits[piece * 2 + half];
#endif
#pragma unroll
            for (u32 k = 0; k < 4; k++) x[half * 4 + k] = four.x[k];
        }
        const u32 first = begin + piece * WIDTH;
        if (first + WIDTH > p.vocab) {
#pragma unroll
            for (u32 k = 0; k < WIDTH; k++) x[k] = first + k < p.vocab ? x[k] : HIDDEN;
        }
    };

    Sum sum = {HIDDEN, 0.0f};
#pragma unroll 2
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) {
        float x[WIDTH];
        load(piece, x);
        float top = sum.top;
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) top = fmaxf(top, x[k]);
        float total = 0.0f;
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) total += __expf(x[k] - top);
        sum = {top, sum.total * __expf(sum.top - top) + total};
    }
    sum = over_blocks(sum);
    const float lse = sum.top + logf(sum.total);
    const int label = p.labels[p.first_token + token];
    if (blockIdx.x % CLUSTER == 0 && threadIdx.x == 0) {
        const bool counts = label >= 0 && label < static_cast<int>(p.vocab);
        const float own = counts ? p.logits[static_cast<u64>(token) * p.row + label] : 0.0f;
        p.losses[p.first_token + token] = counts ? lse - own : 0.0f;
    }

    Stored<A>::type *results = p.dlogits + static_cast<u64>(p.first_row + token) * p.row + begin;
    const float gain = label >= 0 ? p.gain : 0.0f;
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) {
        float x[WIDTH];
        load(piece, x);
        Results r;
        const int first = static_cast<int>(begin + piece * WIDTH);
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) {
            const float hit = first + static_cast<int>(k) == label ? 1.0f : 0.0f;
            r.x[k] = narrow<A>((__expf(x[k] - lse) - hit) * gain);
        }
        *reinterpret_cast<Results *>(results + piece * WIDTH) = r;
    }
}
