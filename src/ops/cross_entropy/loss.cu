// The cross-entropy of tokens whose logits exist whole, and its gradient. CLUSTER blocks have a token, which exchange
// the maxima and sums of their parts of the row; with HELD a part stays in shared memory, so that logits are read once.
// Exponentials are powers of two: with s = log2(e), exp(x - lse) = 2^(s x - s lse), one multiply-add before the unit that
// computes the power.
//
// Given at compile time: SCALE and SOFT_CAP, of logits that are SOFT_CAP tanh(SCALE z / SOFT_CAP) of what is read, or either
// alone; CLUSTER, a power of two (above 1 from compute capability 9.0 on), HELD, 0 or 1, the type A of the
// gradient, THREADS of a block, and WIDTH, elements that a thread takes at once: one load of 16 bytes, so that the threads of
// a warp read whole sectors of 32 bytes.

// Blocks that share a multiprocessor, so that some compute while others wait for memory.
constexpr u32 RESIDENT = 3;
constexpr float LOG2_E = 1.4426950408889634f, LN_2 = 0.6931471805599453f;
// Logits that do not count, and the maximum of none: below it 2^x is 0.
constexpr float HIDDEN = -1e30f, LOWEST = -1e20f;

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

struct alignas(16) Logits {
    float x[WIDTH];
};

struct alignas(WIDTH * sizeof(Stored<A>::type)) Results {
    Pair<A> x[WIDTH / 2];
};

#if defined(SCALE) || defined(SOFT_CAP)
#define SHAPED 1
#else
#define SHAPED 0
#endif

// The logit of a product.
__device__ __forceinline__ float logit(float z) {
#ifdef SCALE
    z *= SCALE;
#endif
#ifdef SOFT_CAP
    z = SOFT_CAP * tanhf(z * (1.0f / SOFT_CAP));
#endif
    return z;
}

#if SHAPED
// The derivative of a logit by its product; one that does not count lies below the cap.
__device__ __forceinline__ float slope(float logit) {
    float slope = 1.0f;
#ifdef SOFT_CAP
    const float share = fmaxf(logit * (1.0f / SOFT_CAP), -1.0f);
    slope = 1.0f - share * share;
#endif
#ifdef SCALE
    slope *= SCALE;
#endif
    return slope;
}
#endif

__device__ __forceinline__ float power(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// The sum of 2^(x - top) over what was seen, of which top is the maximum.
struct alignas(8) Sum {
    float top, total;

    __device__ __forceinline__ void add(Sum other) {
        const float before = top;
        top = fmaxf(top, other.top);
        total = total * power(before - top) + other.total * power(other.top - top);
    }

    // Over groups of `lanes` neighbours in a warp.
    __device__ __forceinline__ void over(u32 lanes) {
        for (u32 step = lanes / 2; step > 0; step /= 2) {
            add({__shfl_xor_sync(~0u, top, step), __shfl_xor_sync(~0u, total, step)});
        }
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

#if CLUSTER > 1
// All threads of the token's blocks arrive, and wait for one another. Who has written for others makes it visible before.
__device__ __forceinline__ void publish() { asm volatile("fence.acq_rel.cluster;" ::: "memory"); }
__device__ __forceinline__ void arrive() {
    __syncwarp();
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait() {
    __syncwarp();
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// The sum of another of the token's blocks, in its shared memory at the place of `mine` in this one.
__device__ __forceinline__ Sum of_block(const Sum *mine, u32 block) {
    const u32 here = static_cast<u32>(__cvta_generic_to_shared(mine));
    u32 there;
    Sum sum;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
    asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(sum.top), "=f"(sum.total) : "r"(there) : "memory");
    return sum;
}
#endif

// Begins the copy of 16 bytes to shared memory.
__device__ __forceinline__ void copy(Logits *to, const Logits *from) {
#if CAPABILITY >= 800
    const u32 there = static_cast<u32>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(there), "l"(__cvta_generic_to_global(from)) : "memory");
#else
    *to = *from;
#endif
}

// This thread's copies are there.
__device__ __forceinline__ void copied() {
#if CAPABILITY >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Sums over a token's blocks; the same in every thread. Every warp adds up the sums of all.
__device__ __forceinline__ Sum over_blocks(Sum sum) {
    constexpr u32 WARPS = THREADS / 32;
    __shared__ Sum warps[WARPS];
    const u32 lane = threadIdx.x % 32;
    sum.over(32);
    if (lane == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warps[lane % WARPS];
    sum.over(WARPS);
#if CLUSTER > 1
    __shared__ Sum own;
    if (threadIdx.x == 0) {
        own = sum;
        publish();
    }
    arrive();
    wait();
    sum = of_block(&own, lane % CLUSTER);
    sum.over(CLUSTER);
#endif
    return {__shfl_sync(~0u, sum.top, 0), __shfl_sync(~0u, sum.total, 0)};
}

extern "C" __global__ void __launch_bounds__(THREADS, HELD ? RESIDENT : 1)
#if CLUSTER > 1
    __cluster_dims__(CLUSTER, 1, 1)
#endif
    lose(const IN_PLACE Parameters p) {
    extern __shared__ Logits held[];
    const u32 token = blockIdx.x / CLUSTER;
    const u32 begin = min(rank() * p.part, p.row), end = min(begin + p.part, p.row);
    const u32 pieces = (end - begin) / WIDTH;
    const Logits *logits = reinterpret_cast<const Logits *>(p.logits + static_cast<u64>(token) * p.row + begin);
#if HELD
    // All at once; each thread reads what it has copied.
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) copy(held + piece, logits + piece);
    copied();
#if SHAPED
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) {
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) held[piece].x[k] = logit(held[piece].x[k]);
    }
#endif
#endif
    auto load = [&](u32 piece, float (&x)[WIDTH]) {
#if HELD
        const Logits own = held[piece];
#else
        const Logits own = logits[piece];
#endif
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) x[k] = HELD ? own.x[k] : logit(own.x[k]);
        const u32 first = begin + piece * WIDTH;
        if (first + WIDTH > p.vocab) {
#pragma unroll
            for (u32 k = 0; k < WIDTH; k++) x[k] = first + k < p.vocab ? x[k] : HIDDEN;
        }
    };

    Sum sum = {LOWEST, 0.0f};
#pragma unroll 4
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) {
        float x[WIDTH];
        load(piece, x);
        float top = x[0];
#pragma unroll
        for (u32 k = 1; k < WIDTH; k++) top = fmaxf(top, x[k]);
        top = fmaxf(sum.top, top * LOG2_E);
        float total = 0.0f;
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) total += power(fmaf(x[k], LOG2_E, -top));
        sum = {top, sum.total * power(sum.top - top) + total};
    }
    sum = over_blocks(sum);
    const float log2_sum = sum.top + log2f(sum.total);
    const int label = p.labels[p.first_token + token];
    const bool counts = label >= 0 && label < static_cast<int>(p.vocab);
    if (blockIdx.x % CLUSTER == 0 && threadIdx.x == 0) {
        const float own = counts ? logit(p.logits[static_cast<u64>(token) * p.row + label]) : 0.0f;
        p.losses[p.first_token + token] = counts ? log2_sum * LN_2 - own : 0.0f;
    }

    Stored<A>::type *results = p.dlogits + static_cast<u64>(p.first_row + token) * p.row + begin;
    // gain * softmax = 2^(s x - less); 0 for a token that is not counted.
    const float gain = counts ? p.gain : 0.0f, less = log2_sum - log2f(gain);
    // The piece of the label, and its place there.
    const u32 place = counts && label >= static_cast<int>(begin) ? label - begin : p.row;
    for (u32 piece = threadIdx.x; piece < pieces; piece += THREADS) {
        float x[WIDTH];
        load(piece, x);
#if SHAPED
        float slopes[WIDTH];
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) slopes[k] = slope(x[k]);
#endif
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) x[k] = power(fmaf(x[k], LOG2_E, -less));
        if (place / WIDTH == piece) {
#pragma unroll
            for (u32 k = 0; k < WIDTH; k++) x[k] -= place % WIDTH == k ? gain : 0.0f;
        }
#if SHAPED
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) x[k] *= slopes[k];
#endif
        Results r;
#pragma unroll
        for (u32 k = 0; k < WIDTH / 2; k++) r.x[k] = narrow_two<A>(x[2 * k], x[2 * k + 1]);
        *reinterpret_cast<Results *>(results + piece * WIDTH) = r;
    }
#if CLUSTER > 1
    // No block ends while another reads from it.
    arrive();
    wait();
#endif
}
