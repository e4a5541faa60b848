// One step of Adafactor (Shazeer and Stern 2018) of one parameter, as src/optim/adafactor/mod.rs has it. Of a matrix by four
// kernels, of a vector by the last two:
//
//   sums    Σ g² of parts of each row and of each column
//   means   r and c from these, and Σ r of each block of rows
//   sizes   Σ u² and Σ p² of each block; of a vector also v
//   apply   p
//
// No kernel adds floats atomically, so results do not depend on the order of blocks.
//
// Given at compile time: A and B, the types of p and g; THREADS of a block; SIDE, columns of a block of `sums`; MOST blocks of
// `sizes` and `apply`.

constexpr u32 WARPS = THREADS / 32;
// Columns of a lane in `sums`.
constexpr u32 OWN = SIDE / 32;
// The least number that has all its bits: a mean square is at least as large, so that 0 / 0 is 0.
constexpr float LEAST = 1.17549435e-38f;

struct Parameters {
    // [rows, columns], or a vector of `rows` with one column.
    typename Stored<A>::type *p;
    const typename Stored<B>::type *g;
    // r and c; of a vector v, and null.
    float *r, *c;
    // What the kernels leave each other: parts of rows [rows, tiles], of columns [bands, columns], Σ r [blocks of rows], and
    // Σ u² and Σ p², MOST each.
    float *parts;
    // One number, or null; whether the step is applied and how many have been, or null.
    const float *clip, *shared;
    // Tiles of SIDE columns, bands of `band` rows, and blocks of THREADS rows.
    u32 rows, columns, tiles, bands, band, blocks;
    // As src/optim/adafactor/cuda.rs has them.
    float weight, rate, beta_2_decay, lr, decay, epsilon, epsilon_2, threshold;

    __device__ __forceinline__ bool skipped() const { return shared && shared[0] == 0.0f; }
    __device__ __forceinline__ float steps() const { return fmaxf(shared[1], 1.0f); }
    __device__ __forceinline__ float weight_of_new() const { return shared ? powf(steps(), -beta_2_decay) : weight; }
    __device__ __forceinline__ float largest_rate() const { return shared ? fminf(lr, 1.0f / sqrtf(steps())) : rate; }
    __device__ __forceinline__ float gradient(u32 i) const { return widen<B>(g[i]) * (clip ? clip[0] : 1.0f); }

    __device__ __forceinline__ float *of_rows() const { return parts; }
    __device__ __forceinline__ float *of_columns() const { return of_rows() + static_cast<u64>(rows) * tiles; }
    __device__ __forceinline__ float *of_blocks() const { return of_columns() + static_cast<u64>(bands) * columns; }
    __device__ __forceinline__ float *of_u() const { return of_blocks() + blocks; }
    __device__ __forceinline__ float *of_p() const { return of_u() + MOST; }
};

// The sum over the block's threads, in all of them.
__device__ __forceinline__ float total(float x) {
    __shared__ float warps[WARPS];
    for (u32 other = 16; other > 0; other /= 2) x += __shfl_xor_sync(~0u, x, other);
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    float sum = 0;
    for (u32 warp = 0; warp < WARPS; warp++) sum += warps[warp];
    return sum;
}

// The sum of numbers in memory, in all threads.
__device__ __forceinline__ float total_of(const float *x, u32 count) {
    float sum = 0;
    for (u32 i = threadIdx.x; i < count; i += THREADS) sum += x[i];
    return total(sum);
}

// 1 / mean r, of a matrix.
__device__ __forceinline__ float scale_of(const Parameters &p) {
    if (!p.c) return 1.0f;
    return 1.0f / fmaxf(total_of(p.of_blocks(), p.blocks) / p.rows, p.epsilon);
}

__device__ __forceinline__ float update_of(const Parameters &p, float scale, u32 i, float g) {
    const float v = p.c ? p.r[i / p.columns] * scale * p.c[i % p.columns] : p.r[i];
    return g / sqrtf(fmaxf(v, fmaxf(p.epsilon * p.epsilon, LEAST)));
}

extern "C" __global__ void __launch_bounds__(THREADS) sums(const IN_PLACE Parameters p) {
    __shared__ float warps[WARPS][SIDE];
    const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const u32 tile = blockIdx.x, first = blockIdx.y * p.band, end = min(first + p.band, p.rows);
    float columns[OWN] = {};
    for (u32 row = first + warp; row < end; row += WARPS) {
        float sum = 0;
#pragma unroll
        for (u32 k = 0; k < OWN; k++) {
            const u32 column = tile * SIDE + k * 32 + lane;
            const float g = column < p.columns ? p.gradient(row * p.columns + column) : 0.0f;
            columns[k] += g * g;
            sum += g * g;
        }
        for (u32 other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
        if (lane == 0) p.of_rows()[static_cast<u64>(row) * p.tiles + tile] = sum;
    }
#pragma unroll
    for (u32 k = 0; k < OWN; k++) warps[warp][k * 32 + lane] = columns[k];
    __syncthreads();
    for (u32 k = threadIdx.x; k < SIDE; k += THREADS) {
        const u32 column = tile * SIDE + k;
        float sum = 0;
        for (u32 other = 0; other < WARPS; other++) sum += warps[other][k];
        if (column < p.columns) p.of_columns()[static_cast<u64>(blockIdx.y) * p.columns + column] = sum;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS) means(const IN_PLACE Parameters p) {
    if (p.skipped()) return;
    const bool is_of_rows = blockIdx.x < p.blocks;
    const u32 i = (is_of_rows ? blockIdx.x : blockIdx.x - p.blocks) * THREADS + threadIdx.x;
    const u32 many = is_of_rows ? p.tiles : p.bands;
    float mean = 0;
    if (i < (is_of_rows ? p.rows : p.columns)) {
        const float *parts = is_of_rows ? p.of_rows() + static_cast<u64>(i) * many : p.of_columns() + i;
        const u32 stride = is_of_rows ? 1 : p.columns;
        // There may be thousands, one after the other.
        double sum = 0;
        for (u32 k = 0; k < many; k++) sum += parts[static_cast<u64>(k) * stride];
        float *const kept = (is_of_rows ? p.r : p.c) + i;
        const float now = static_cast<float>(sum / (is_of_rows ? p.columns : p.rows));
        mean = *kept + p.weight_of_new() * (now - *kept);
        *kept = mean;
    }
    if (!is_of_rows) return;
    const float sum = total(mean);
    if (threadIdx.x == 0) p.of_blocks()[blockIdx.x] = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS) sizes(const IN_PLACE Parameters p) {
    if (p.skipped()) return;
    const u32 elements = p.rows * p.columns;
    const float scale = scale_of(p), weight = p.weight_of_new();
    float squares_of_u = 0, squares_of_p = 0;
    for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < elements; i += gridDim.x * THREADS) {
        const float g = p.gradient(i), value = widen<A>(p.p[i]);
        if (!p.c) p.r[i] += weight * (g * g - p.r[i]);
        const float u = update_of(p, scale, i, g);
        squares_of_u += u * u;
        squares_of_p += value * value;
    }
    squares_of_u = total(squares_of_u);
    squares_of_p = total(squares_of_p);
    if (threadIdx.x == 0) p.of_u()[blockIdx.x] = squares_of_u, p.of_p()[blockIdx.x] = squares_of_p;
}

extern "C" __global__ void __launch_bounds__(THREADS) apply(const IN_PLACE Parameters p) {
    if (p.skipped()) return;
    const u32 elements = p.rows * p.columns;
    const float scale = scale_of(p);
    // `sizes` had as many blocks.
    const float size_of_u = sqrtf(total_of(p.of_u(), gridDim.x) / elements);
    const float size_of_p = sqrtf(total_of(p.of_p(), gridDim.x) / elements);
    const float rate = p.largest_rate() * fmaxf(size_of_p, p.epsilon_2) / fmaxf(size_of_u / p.threshold, 1.0f);
    for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < elements; i += gridDim.x * THREADS) {
        const float u = update_of(p, scale, i, p.gradient(i));
        p.p[i] = narrow<A>(widen<A>(p.p[i]) * p.decay - rate * u);
    }
}
