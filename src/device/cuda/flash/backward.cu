// The backward of causal attention, in two passes that compute the probabilities again from lse:
//
//     P = exp(scale QK^T - lse)    dS = P * (dO V^T - delta)    delta = rowsum(dO * O)
//     dQ = scale dS K              dK = scale dS^T Q            dV = P^T dO
//
// A block of the first has queries and passes over keys; a block of the second has keys and passes over queries, of
// every query head that shares them. Each sum has one order, so results are the same from run to run, and the left
// factors of all products stay in registers.

struct Backward {
    const element *q, *k, *v, *o, *g;
    element *dq, *dk, *dv;
    const float *lse;
    // [batch, heads, sequence]: the first pass writes it, the second reads it.
    float *delta;
    // [parts, 2, batch * sequence, kv_heads * HEAD_DIM]: dK and dV of each part of the query heads; null for one part.
    float *sums;
    const int *start;
    int q_stride, k_stride, v_stride, o_stride, dq_stride, dk_stride, dv_stride;
    int sequence, heads, kv_heads, parts;
    float scale;
};

namespace queries {

constexpr int TILES = DQ_TILES;
constexpr int WARPS = DQ_WARPS;
constexpr int KEYS = DQ_KEYS;
constexpr int THREADS = WARPS * 32;
constexpr int QUERIES = WARPS * TILES * 16;
// Q, dO and two tiles each of K and V.
constexpr int SHARED = 2 * TILE_BYTES<QUERIES> + 4 * TILE_BYTES<KEYS>;
constexpr bool HOLD = TILES * STEPS <= 4;

}

// Grid: batch * heads, blocks of queries.
extern "C" __global__ void __launch_bounds__(queries::THREADS, DQ_RESIDENT) backward_queries(const Backward p) {
    using namespace queries;
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 q_tile = shared_address(memory), g_tile = q_tile + TILE_BYTES<QUERIES>;
    const u32 kv_tiles = g_tile + TILE_BYTES<QUERIES>;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

    const int head = blockIdx.x % p.heads, batch = blockIdx.x / p.heads;
    const int kv_head = head / (p.heads / p.kv_heads);
    const long long token = static_cast<long long>(batch) * p.sequence;
    const int first = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const int last = min(first + QUERIES, p.sequence) - 1;
    const element *k = p.k + token * p.k_stride + kv_head * HEAD_DIM;
    const element *v = p.v + token * p.v_stride + kv_head * HEAD_DIM;
    const element *o = p.o + token * p.o_stride + head * HEAD_DIM;
    const element *g = p.g + token * p.o_stride + head * HEAD_DIM;
    const int *start = p.start ? p.start + token : nullptr;

    const int warp_row = warp * TILES * 16;
    const int warp_first = first + warp_row, warp_last = warp_first + TILES * 16 - 1;
    const int begin = start ? start[first] / KEYS : 0, end = last / KEYS + 1;
    const int warp_begin = start ? start[min(warp_first, last)] : 0;
    const int all_begin = start ? start[min(warp_last, last)] : 0;

    copy_tile<QUERIES, THREADS>(q_tile, p.q + token * p.q_stride + head * HEAD_DIM, p.q_stride, first, p.sequence);
    copy_tile<QUERIES, THREADS>(g_tile, g, p.o_stride, first, p.sequence);
    auto copy = [&](int n) {
        const u32 tiles = kv_tiles + (n & 1) * 2 * TILE_BYTES<KEYS>;
        copy_tile<KEYS, THREADS>(tiles, k, p.k_stride, n * KEYS, p.sequence);
        copy_tile<KEYS, THREADS>(tiles + TILE_BYTES<KEYS>, v, p.v_stride, n * KEYS, p.sequence);
    };
    copy(begin);

    const float scale = p.scale * LOG2E;
    const long long statistics = (static_cast<long long>(batch) * p.heads + head) * p.sequence;
    float dq[TILES][STEPS * 2][4] = {};
    float lse[TILES][2], delta[TILES][2];
    int row_begin[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int row = warp_first + t * 16 + r * 8 + (lane >> 2), valid = min(row, last);
            row_begin[t][r] = start ? start[valid] : 0;
            lse[t][r] = p.lse[statistics + valid] * LOG2E;
            // The four threads of a row have its chunks in turn.
            float all = 0.0f;
#pragma unroll
            for (int chunk = lane & 3; chunk < CHUNKS; chunk += 4) {
                const long long at = static_cast<long long>(valid) * p.o_stride + chunk * 8;
                const uint4 x = *reinterpret_cast<const uint4 *>(o + at), y = *reinterpret_cast<const uint4 *>(g + at);
                const u32 xs[] = {x.x, x.y, x.z, x.w}, ys[] = {y.x, y.y, y.z, y.w};
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    float x0, x1, y0, y1;
                    unpack(xs[i], x0, x1);
                    unpack(ys[i], y0, y1);
                    all = fmaf(x0, y0, fmaf(x1, y1, all));
                }
            }
            delta[t][r] = row_sum(all);
            if ((lane & 3) == 0 && row <= last) p.delta[statistics + row] = delta[t][r];
        }
    }
    u32 a[TILES][STEPS][4], b_left[TILES][STEPS][4];

    for (int n = begin; n < end; n++) {
        copies_end();
        __syncthreads();
        if (n + 1 < end) copy(n + 1);
        const u32 k_tile = kv_tiles + (n & 1) * 2 * TILE_BYTES<KEYS>, v_tile = k_tile + TILE_BYTES<KEYS>;
        const int key = n * KEYS;
        if (HOLD && n == begin) {
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    load_left<QUERIES>(a[t][step], q_tile, warp_row + t * 16, step);
                    load_left<QUERIES>(b_left[t][step], g_tile, warp_row + t * 16, step);
                }
            }
        }
        if (key > warp_last || key + KEYS <= warp_begin) continue;

        float s[TILES][KEYS / 8][4] = {}, dp[TILES][KEYS / 8][4] = {};
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (!HOLD) {
#pragma unroll
                for (int t = 0; t < TILES; t++) load_left<QUERIES>(a[t][step], q_tile, warp_row + t * 16, step);
            }
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                u32 b[4];
                load_transposed<KEYS>(b, k_tile, j * 16, step);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply(s[t][2 * j], a[t][step], b[0], b[1]);
                    multiply(s[t][2 * j + 1], a[t][step], b[2], b[3]);
                }
            }
        }
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
            if (!HOLD) {
#pragma unroll
                for (int t = 0; t < TILES; t++) load_left<QUERIES>(b_left[t][step], g_tile, warp_row + t * 16, step);
            }
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                u32 b[4];
                load_transposed<KEYS>(b, v_tile, j * 16, step);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply(dp[t][2 * j], b_left[t][step], b[0], b[1]);
                    multiply(dp[t][2 * j + 1], b_left[t][step], b[2], b[3]);
                }
            }
        }
        const bool masked = key + KEYS - 1 > warp_first || key < all_begin;
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    float probability = exp2_fast(fmaf(s[t][j][c], scale, -lse[t][c >> 1]));
                    if (masked) {
                        const int at = key + j * 8 + (lane & 3) * 2 + (c & 1);
                        const int row = warp_first + t * 16 + (c >> 1) * 8 + (lane >> 2);
                        if (at > row || at < row_begin[t][c >> 1]) probability = 0.0f;
                    }
                    s[t][j][c] = probability * (dp[t][j][c] - delta[t][c >> 1]);
                }
            }
        }
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            u32 left[TILES][4];
#pragma unroll
            for (int t = 0; t < TILES; t++) as_left(left[t], s[t][2 * j], s[t][2 * j + 1]);
#pragma unroll
            for (int d = 0; d < STEPS; d++) {
                u32 b[4];
                load_right<KEYS>(b, k_tile, j * 16, d);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply(dq[t][2 * d], left[t], b[0], b[1]);
                    multiply(dq[t][2 * d + 1], left[t], b[2], b[3]);
                }
            }
        }
    }
    __syncwarp();
#pragma unroll
    for (int t = 0; t < TILES; t++) put<QUERIES>(q_tile, warp_row + t * 16, dq[t], p.scale, p.scale);
    element *out = p.dq + token * p.dq_stride + head * HEAD_DIM;
    write_rows<QUERIES, TILES * 16>(out, p.dq_stride, q_tile, warp_row, first, p.sequence);
}

namespace keys {

constexpr int WARPS = DKV_WARPS;
// Of a tile, and of what is computed at a time.
constexpr int QUERIES = DKV_QUERIES;
constexpr int SUB = DKV_SUB;
constexpr int THREADS = WARPS * 32;
constexpr int KEYS = WARPS * 16;
// Numbers of a query: lse, delta and start.
constexpr int ROW_BYTES = 3 * 4 * QUERIES;
constexpr int STAGE = 2 * TILE_BYTES<QUERIES> + ROW_BYTES;
// K, V and two tiles each of Q and dO with their rows' numbers.
constexpr int SHARED = 2 * TILE_BYTES<KEYS> + 2 * STAGE;
// V's fragments are read again for each tile of queries where the registers cannot hold them.
constexpr bool HOLD = STEPS <= 4;

}

// Grid: batch * kv_heads * parts, blocks of keys.
extern "C" __global__ void __launch_bounds__(keys::THREADS, DKV_RESIDENT) backward_keys(const Backward p) {
    using namespace keys;
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 k_tile = shared_address(memory), v_tile = k_tile + TILE_BYTES<KEYS>;
    const u32 stages = v_tile + TILE_BYTES<KEYS>;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

    const int part = blockIdx.x % p.parts, matrix = blockIdx.x / p.parts;
    const int kv_head = matrix % p.kv_heads, batch = matrix / p.kv_heads;
    const int group = p.heads / p.kv_heads;
    // This part's query heads.
    const int head_begin = kv_head * group + group * part / p.parts;
    const int head_end = kv_head * group + group * (part + 1) / p.parts;
    const long long token = static_cast<long long>(batch) * p.sequence;
    // The blocks that the most queries see come first.
    const int first = blockIdx.y * KEYS, last = min(first + KEYS, p.sequence) - 1;
    const element *q = p.q + token * p.q_stride, *g = p.g + token * p.o_stride;
    const int *start = p.start ? p.start + token : nullptr;

    copy_tile<KEYS, THREADS>(k_tile, p.k + token * p.k_stride + kv_head * HEAD_DIM, p.k_stride, first, p.sequence);
    copy_tile<KEYS, THREADS>(v_tile, p.v + token * p.v_stride + kv_head * HEAD_DIM, p.v_stride, first, p.sequence);

    // Tiles of queries, from the one that has the first key, as long as their first query sees the last key.
    const int begin = first / QUERIES;
    int end = (p.sequence + QUERIES - 1) / QUERIES;
    if (start) {
        for (int from = begin; from < end; from += THREADS) {
            const int n = from + threadIdx.x;
            const int seeing = __syncthreads_count(n < end && (n == begin || start[n * QUERIES] <= last));
            if (seeing < THREADS) end = min(end, from + seeing);
        }
    }
    const int tiles = end - begin;

    auto copy = [&](int i) {
        const int head = head_begin + i / tiles, query = (begin + i % tiles) * QUERIES;
        const u32 stage = stages + (i & 1) * STAGE;
        copy_tile<QUERIES, THREADS>(stage, q + head * HEAD_DIM, p.q_stride, query, p.sequence);
        copy_tile<QUERIES, THREADS>(stage + TILE_BYTES<QUERIES>, g + head * HEAD_DIM, p.o_stride, query, p.sequence);
        const long long statistics = (static_cast<long long>(batch) * p.heads + head) * p.sequence;
        unsigned char *numbers = memory + (stage - k_tile) + 2 * TILE_BYTES<QUERIES>;
        for (int row = threadIdx.x; row < QUERIES; row += THREADS) {
            const bool there = query + row < p.sequence;
            // P is 0 for a query beyond the sequence.
            reinterpret_cast<float *>(numbers)[row] = there ? p.lse[statistics + query + row] * LOG2E : INFINITE;
            reinterpret_cast<float *>(numbers)[QUERIES + row] = there ? p.delta[statistics + query + row] : 0.0f;
            if (start) reinterpret_cast<int *>(numbers)[2 * QUERIES + row] = there ? start[query + row] : p.sequence;
        }
    };
    copy(0);

    const float scale = p.scale * LOG2E;
    const int warp_row = warp * 16, warp_first = first + warp_row, warp_last = warp_first + 15;
    const int row = warp_first + (lane >> 2);
    float dk[STEPS * 2][4] = {}, dv[STEPS * 2][4] = {};
    u32 k_left[STEPS][4], v_left[STEPS][4];

    for (int i = 0; i < tiles * (head_end - head_begin); i++) {
        copies_end();
        __syncthreads();
        if (i + 1 < tiles * (head_end - head_begin)) copy(i + 1);
        if (HOLD && i == 0) {
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                load_left<KEYS>(k_left[step], k_tile, warp_row, step);
                load_left<KEYS>(v_left[step], v_tile, warp_row, step);
            }
        }
        const u32 q_tile = stages + (i & 1) * STAGE, g_tile = q_tile + TILE_BYTES<QUERIES>;
        const unsigned char *numbers = memory + (g_tile - k_tile) + TILE_BYTES<QUERIES>;
        const float *lse = reinterpret_cast<const float *>(numbers);
        const int *starts = reinterpret_cast<const int *>(numbers) + 2 * QUERIES;
        const int tile_query = (begin + i % tiles) * QUERIES;

#pragma unroll 1
        for (int sub = 0; sub < QUERIES; sub += SUB) {
            const int query = tile_query + sub;
            if (query + SUB - 1 < warp_first || (start && starts[sub] > warp_last)) continue;
            float s[SUB / 8][4] = {}, dp[SUB / 8][4] = {};
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                if (!HOLD) load_left<KEYS>(k_left[step], k_tile, warp_row, step);
#pragma unroll
                for (int j = 0; j < SUB / 16; j++) {
                    u32 b[4];
                    load_transposed<QUERIES>(b, q_tile, sub + j * 16, step);
                    multiply(s[2 * j], k_left[step], b[0], b[1]);
                    multiply(s[2 * j + 1], k_left[step], b[2], b[3]);
                }
            }
#pragma unroll
            for (int step = 0; step < STEPS; step++) {
                if (!HOLD) load_left<KEYS>(v_left[step], v_tile, warp_row, step);
#pragma unroll
                for (int j = 0; j < SUB / 16; j++) {
                    u32 b[4];
                    load_transposed<QUERIES>(b, g_tile, sub + j * 16, step);
                    multiply(dp[2 * j], v_left[step], b[0], b[1]);
                    multiply(dp[2 * j + 1], v_left[step], b[2], b[3]);
                }
            }
            const bool masked = warp_last > query || (start && starts[sub + SUB - 1] > warp_first);
#pragma unroll
            for (int j = 0; j < SUB / 8; j++) {
                const int column = sub + j * 8 + (lane & 3) * 2;
                const float2 l = *reinterpret_cast<const float2 *>(lse + column);
                const float2 d = *reinterpret_cast<const float2 *>(lse + QUERIES + column);
                int2 from = make_int2(0, 0);
                if (masked && start) from = *reinterpret_cast<const int2 *>(starts + column);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    const bool second = c & 1;
                    float probability = exp2_fast(fmaf(s[j][c], scale, -(second ? l.y : l.x)));
                    if (masked) {
                        const int key = row + (c >> 1) * 8;
                        if (key > tile_query + column + second || key < (second ? from.y : from.x)) probability = 0.0f;
                    }
                    s[j][c] = probability;
                    dp[j][c] = probability * (dp[j][c] - (second ? d.y : d.x));
                }
            }
#pragma unroll
            for (int j = 0; j < SUB / 16; j++) {
                u32 left[4], b[4];
                as_left(left, s[2 * j], s[2 * j + 1]);
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    load_right<QUERIES>(b, g_tile, sub + j * 16, step);
                    multiply(dv[2 * step], left, b[0], b[1]);
                    multiply(dv[2 * step + 1], left, b[2], b[3]);
                }
                as_left(left, dp[2 * j], dp[2 * j + 1]);
#pragma unroll
                for (int step = 0; step < STEPS; step++) {
                    load_right<QUERIES>(b, q_tile, sub + j * 16, step);
                    multiply(dk[2 * step], left, b[0], b[1]);
                    multiply(dk[2 * step + 1], left, b[2], b[3]);
                }
            }
        }
    }

    if (p.sums) {
        const long long columns = static_cast<long long>(p.kv_heads) * HEAD_DIM;
        const long long all = static_cast<long long>(gridDim.x / p.parts / p.kv_heads) * p.sequence * columns;
        float *sums = p.sums + 2 * part * all + (token * p.kv_heads + kv_head) * HEAD_DIM + (lane & 3) * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (row + r * 8 > last) continue;
            float *sum = sums + (row + r * 8) * columns;
#pragma unroll
            for (int n = 0; n < STEPS * 2; n++) {
                const float2 of_k = {dk[n][2 * r] * p.scale, dk[n][2 * r + 1] * p.scale};
                *reinterpret_cast<float2 *>(sum + n * 8) = of_k;
                *reinterpret_cast<float2 *>(sum + all + n * 8) = make_float2(dv[n][2 * r], dv[n][2 * r + 1]);
            }
        }
        return;
    }
    __syncwarp();
    put<KEYS>(k_tile, warp_row, dk, p.scale, p.scale);
    put<KEYS>(v_tile, warp_row, dv, 1.0f, 1.0f);
    element *out_k = p.dk + token * p.dk_stride + kv_head * HEAD_DIM;
    element *out_v = p.dv + token * p.dv_stride + kv_head * HEAD_DIM;
    write_rows<KEYS, 16>(out_k, p.dk_stride, k_tile, warp_row, first, p.sequence);
    write_rows<KEYS, 16>(out_v, p.dv_stride, v_tile, warp_row, first, p.sequence);
}

// dK and dV from their parts, in order. Grid: over tokens * kv_heads * CHUNKS, and 2.
extern "C" __global__ void __launch_bounds__(256) backward_sum(const Backward p, const int tokens) {
    const int chunks = p.kv_heads * CHUNKS;
    const long long at = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x;
    if (at >= static_cast<long long>(tokens) * chunks) return;
    const long long all = static_cast<long long>(tokens) * chunks * 8;
    const float *x = p.sums + blockIdx.y * all + at * 8;
    float sum[8] = {};
    for (int part = 0; part < p.parts; part++, x += 2 * all) {
        const float4 low = reinterpret_cast<const float4 *>(x)[0], high = reinterpret_cast<const float4 *>(x)[1];
        const float some[] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int i = 0; i < 8; i++) sum[i] += some[i];
    }
    element *out = blockIdx.y ? p.dv + at / chunks * p.dv_stride : p.dk + at / chunks * p.dk_stride;
    const uint4 packed = {pack(sum[0], sum[1]), pack(sum[2], sum[3]), pack(sum[4], sum[5]), pack(sum[6], sum[7])};
    *reinterpret_cast<uint4 *>(out + at % chunks * 8) = packed;
}
