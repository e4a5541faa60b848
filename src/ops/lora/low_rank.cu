// Products with the narrow matrices of low-rank adapters (Hu et al. 2021, "LoRA"), of all adapted layers of one input in a
// launch. With `wide` x, y or one of their gradients, `low` [tokens, LAYERS · RANK], A [RANK, inputs] and B [outputs, RANK]
// of each layer, and x̃ = x ⊙ m / (1 − p), whose mask m a layer draws by its key:
//
//   down_a   low = s x̃Aᵀ                   gradient_b   dB = gᵀ low        up_b   y += low Bᵀ
//   down_b   low = s g B                   gradient_a   dA = lowᵀ x̃        up_a   dx += Σ (low A) ⊙ m / (1 − p)
//
// Given at compile time: A and G, the types of tensors and of gradients; LAYERS; RANK; WIDTH, elements that are taken at once,
// 4 or 1, a divisor of every layer's columns and of the stride; DROPOUT, 0 or 1; THREADS of a block; DOWN_ROWS, tokens of a
// block in `down`; UP_ROWS, tokens of a thread in `up`; UP_GROUPS and GROUPS, groups of WIDTH columns that a block has in `up`
// and in `gradient`. Philox stands before this.

constexpr u32 WARPS = THREADS / 32;
// Columns of `low`.
constexpr u32 NARROW = LAYERS * RANK;

typedef typename Stored<A>::type Number;
typedef typename Stored<G>::type Gradient;

// Neighbours that are read at once.
template <u32 N> struct alignas(N * sizeof(Number)) Neighbours {
    Number x[N];
};

struct Parameters {
    Number *wide, *low;
    // A or B of each layer, or where its gradient goes.
    void *matrices[3];
    // Elements from one token of `wide` to the next.
    int tokens, stride;
    // Of each layer: its first column in `wide`, and how many it has.
    int first[3], columns[3];
    // Of its mask.
    u32 keys[3][2];
    u32 threshold;
    float kept, scale;
};

// Ranks that are read at once, at most 16 bytes.
constexpr u32 ALIKE = RANK % 8 == 0 ? 8 : RANK % 4 == 0 ? 4 : RANK % 2 == 0 ? 2 : 1;
constexpr u32 MOST = 16 / sizeof(Number), RANKS = ALIKE < MOST ? ALIKE : MOST;

template <u32 AT_ONCE, u32 N> __device__ __forceinline__ void load(const Number *at, float (&x)[N]) {
#pragma unroll
    for (u32 i = 0; i < N; i += AT_ONCE) {
        const auto some = *reinterpret_cast<const Neighbours<AT_ONCE> *>(at + i);
#pragma unroll
        for (u32 k = 0; k < AT_ONCE; k++) x[i + k] = widen<A>(some.x[k]);
    }
}

// x ⊙ m / (1 − p), of elements from this one of the layer's input on.
__device__ __forceinline__ void mask(const Parameters &p, u32 layer, u64 element, float (&x)[WIDTH]) {
    u32 numbers[4];
    philox(static_cast<u32>(element / 4), p.keys[layer], numbers);
    if constexpr (WIDTH == 4) {
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) x[k] = numbers[k] < p.threshold ? 0.0f : x[k] * p.kept;
    } else {
        const u32 place = element % 4;
        const u32 number = place == 0 ? numbers[0] : place == 1 ? numbers[1] : place == 2 ? numbers[2] : numbers[3];
        x[0] = number < p.threshold ? 0.0f : x[0] * p.kept;
    }
}

// The matrix of a layer: A by its ranks, or B by its columns.
template <bool OF_A> struct Matrix {
    const Number *at;
    u32 columns;

    __device__ __forceinline__ Matrix(const Parameters &p, u32 layer)
        : at(static_cast<const Number *>(p.matrices[layer])), columns(p.columns[layer]) {}

    // Of every rank, the elements of WIDTH columns.
    __device__ __forceinline__ void of(u32 column, float (&x)[RANK][WIDTH]) const {
        if constexpr (OF_A) {
#pragma unroll
            for (u32 j = 0; j < RANK; j++) load<WIDTH>(at + static_cast<u64>(j) * columns + column, x[j]);
        } else {
#pragma unroll
            for (u32 k = 0; k < WIDTH; k++) {
                float row[RANK];
                load<RANKS>(at + static_cast<u64>(column + k) * RANK, row);
#pragma unroll
                for (u32 j = 0; j < RANK; j++) x[j][k] = row[j];
            }
        }
    }
};

// Adds up 2 · HALF numbers over as many neighbouring lanes; each lane gets the sum of its own. Lanes exchange half of what they
// have left.
template <u32 HALF> __device__ __forceinline__ float sum_of_lane(const float *x) {
    if constexpr (HALF == 0) {
        return x[0];
    } else {
        const bool upper = threadIdx.x & HALF;
        float left[HALF];
#pragma unroll
        for (u32 i = 0; i < HALF; i++) {
            left[i] = (upper ? x[i + HALF] : x[i]) + __shfl_xor_sync(~0u, upper ? x[i] : x[i + HALF], HALF);
        }
        return sum_of_lane<HALF / 2>(left);
    }
}

// A block has DOWN_ROWS tokens of a layer, and each thread every THREADS-th group of columns: few tokens in many blocks, since
// a thread mostly waits for what it reads. Sums are the same from run to run.
template <bool OF_A> __device__ __forceinline__ void down(const Parameters &p) {
    constexpr u32 VALUES = DOWN_ROWS * RANK;
    static_assert(VALUES <= 32, "a lane has a sum");
    __shared__ float parts[WARPS][32];
    const u32 layer = blockIdx.y, row = blockIdx.x * DOWN_ROWS, tokens = p.tokens;
    const Matrix<OF_A> matrix(p, layer);
    const Number *wide = p.wide + p.first[layer];
    float sums[32] = {};
    for (u32 column = threadIdx.x * WIDTH; column < matrix.columns; column += THREADS * WIDTH) {
        float x[DOWN_ROWS][WIDTH], factors[RANK][WIDTH];
#pragma unroll
        for (u32 r = 0; r < DOWN_ROWS; r++) {
            // What is beyond the last token is that token again, and is not stored.
            const u64 token = min(row + r, tokens - 1);
            load<WIDTH>(wide + token * p.stride + column, x[r]);
            if constexpr (OF_A && DROPOUT) mask(p, layer, token * matrix.columns + column, x[r]);
        }
        matrix.of(column, factors);
#pragma unroll
        for (u32 r = 0; r < DOWN_ROWS; r++) {
#pragma unroll
            for (u32 j = 0; j < RANK; j++) {
#pragma unroll
                for (u32 k = 0; k < WIDTH; k++) sums[r * RANK + j] += x[r][k] * factors[j][k];
            }
        }
    }
    parts[threadIdx.x / 32][threadIdx.x % 32] = sum_of_lane<16>(sums);
    __syncthreads();
    const u32 value = threadIdx.x, token = row + value / RANK;
    if (value >= VALUES || token >= tokens) return;
    float sum = 0;
#pragma unroll
    for (u32 warp = 0; warp < WARPS; warp++) sum += parts[warp][value];
    p.low[static_cast<u64>(token) * NARROW + layer * RANK + value % RANK] = narrow<A>(sum * p.scale);
}

// What `low` of a layer gives WIDTH columns of UP_ROWS tokens.
template <bool OF_A>
__device__ __forceinline__ void product(const Parameters &p, u32 layer, u32 row, u32 column, float (&sums)[UP_ROWS][WIDTH]) {
    float factors[RANK][WIDTH];
    Matrix<OF_A>(p, layer).of(column, factors);
#pragma unroll
    for (u32 r = 0; r < UP_ROWS; r++) {
        const u64 token = min(row + r, static_cast<u32>(p.tokens) - 1);
        float low[RANK];
        load<RANKS>(p.low + token * NARROW + layer * RANK, low);
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) {
            sums[r][k] = 0;
#pragma unroll
            for (u32 j = 0; j < RANK; j++) sums[r][k] += low[j] * factors[j][k];
        }
    }
}

// A thread has WIDTH columns of UP_ROWS tokens; up_b's blocks have a layer each, up_a's all of them.
template <bool OF_A> __device__ __forceinline__ void up(const Parameters &p) {
    constexpr u32 ROWS = THREADS / UP_GROUPS * UP_ROWS;
    const u32 tokens = p.tokens, blocks = (tokens + ROWS - 1) / ROWS, layer = blockIdx.y / blocks;
    const u32 row = blockIdx.y % blocks * ROWS + threadIdx.x / UP_GROUPS * UP_ROWS;
    const u32 column = (blockIdx.x * UP_GROUPS + threadIdx.x % UP_GROUPS) * WIDTH;
    if (column >= p.columns[layer]) return;
    float total[UP_ROWS][WIDTH] = {};
    if constexpr (OF_A) {
#pragma unroll
        for (u32 each = 0; each < LAYERS; each++) {
            float sums[UP_ROWS][WIDTH];
            product<true>(p, each, row, column, sums);
#pragma unroll
            for (u32 r = 0; r < UP_ROWS; r++) {
                if constexpr (DROPOUT) {
                    mask(p, each, static_cast<u64>(row + r) * p.columns[each] + column, sums[r]);
                }
#pragma unroll
                for (u32 k = 0; k < WIDTH; k++) total[r][k] += sums[r][k];
            }
        }
    } else {
        product<false>(p, layer, row, column, total);
    }
#pragma unroll
    for (u32 r = 0; r < UP_ROWS; r++) {
        if (row + r >= tokens) return;
        Number *at = p.wide + static_cast<u64>(row + r) * p.stride + p.first[layer] + column;
        float before[WIDTH];
        load<WIDTH>(at, before);
        Neighbours<WIDTH> wide;
#pragma unroll
        for (u32 k = 0; k < WIDTH; k++) wide.x[k] = narrow<A>(before[k] + total[r][k]);
        *reinterpret_cast<Neighbours<WIDTH> *>(at) = wide;
    }
}

// A block has GROUPS · WIDTH columns of a layer, and each thread WIDTH of them and a share of the tokens. Sums are the same
// from run to run.
template <bool OF_A> __device__ __forceinline__ void gradient(const Parameters &p) {
    // AHEAD: tokens that a thread reads before it adds the first of them, since it mostly waits for them.
    constexpr u32 LANES = THREADS / GROUPS, VALUES = GROUPS * WIDTH * RANK, AHEAD = RANK > 8 ? 2 : 4;
    __shared__ float parts[WARPS][VALUES];
    const u32 layer = blockIdx.y, columns = p.columns[layer], tokens = p.tokens;
    const u32 begin = blockIdx.x * GROUPS * WIDTH;
    if (begin >= columns) return;
    const u32 group = threadIdx.x % GROUPS, column = begin + group * WIDTH;
    float sums[WIDTH][RANK] = {};
    if (column < columns) {
        const Number *wide = p.wide + p.first[layer] + column;
        for (u32 first = threadIdx.x / GROUPS; first < tokens; first += LANES * AHEAD) {
            float x[AHEAD][WIDTH], low[AHEAD][RANK];
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                // What is beyond the last token is that token again, and counts nothing.
                const u64 token = min(first + i * LANES, tokens - 1);
                load<WIDTH>(wide + token * p.stride, x[i]);
                load<RANKS>(p.low + token * NARROW + layer * RANK, low[i]);
            }
#pragma unroll
            for (u32 i = 0; i < AHEAD; i++) {
                const u32 token = first + i * LANES;
                if constexpr (OF_A && DROPOUT) mask(p, layer, static_cast<u64>(token) * columns + column, x[i]);
#pragma unroll
                for (u32 k = 0; k < WIDTH; k++) {
                    const float factor = token < tokens ? x[i][k] : 0.0f;
#pragma unroll
                    for (u32 j = 0; j < RANK; j++) sums[k][j] += factor * low[i][j];
                }
            }
        }
    }
#pragma unroll
    for (u32 k = 0; k < WIDTH; k++) {
#pragma unroll
        for (u32 j = 0; j < RANK; j++) {
            float sum = sums[k][j];
            // Lanes of a warp that have the same columns.
#pragma unroll
            for (u32 other = 16; other >= GROUPS; other /= 2) sum += __shfl_xor_sync(~0u, sum, other);
            if (threadIdx.x % 32 < GROUPS) parts[threadIdx.x / 32][(group * WIDTH + k) * RANK + j] = sum;
        }
    }
    __syncthreads();
    for (u32 value = threadIdx.x; value < VALUES; value += THREADS) {
        const u32 at = begin + value / RANK, rank = value % RANK;
        if (at >= columns) break;
        float sum = 0;
#pragma unroll
        for (u32 warp = 0; warp < WARPS; warp++) sum += parts[warp][value];
        const u64 place = OF_A ? static_cast<u64>(rank) * columns + at : static_cast<u64>(at) * RANK + rank;
        static_cast<Gradient *>(p.matrices[layer])[place] = narrow<G>(sum);
    }
}

// One block of a multiprocessor at least: to fit more, the compiler would read a few numbers at a time, and wait for each.
#define KERNEL(name, work) \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const IN_PLACE Parameters p) { work(p); }

KERNEL(down_a, down<true>)
KERNEL(down_b, down<false>)
KERNEL(up_a, up<true>)
KERNEL(up_b, up<false>)
KERNEL(gradient_a, gradient<true>)
KERNEL(gradient_b, gradient<false>)
