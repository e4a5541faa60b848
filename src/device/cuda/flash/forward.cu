// Causal attention, forward (Dao 2023, FlashAttention-2): a block has one head's QUERIES queries and passes over the
// keys that these may see, tile by tile, with the softmax's maximum and sum of each row so far.
//
// Key j is visible to query i when start[i] <= j <= i. `start` does not fall along a sequence.

struct Forward {
    // Row 0, column 0 of head 0, each with a token a row.
    const element *q, *k, *v;
    element *o;
    // [batch, heads, sequence]: the natural logarithm of the sum of the exponentials.
    float *lse;
    // [batch, sequence], or null: all zero.
    const int *start;
    // Elements between tokens.
    int q_stride, k_stride, v_stride, o_stride;
    int sequence, heads, kv_heads;
    float scale;
};

namespace forward {

// Of 16 queries, for each warp.
constexpr int TILES = FORWARD_TILES;
constexpr int WARPS = FORWARD_WARPS;
constexpr int KEYS = FORWARD_KEYS;
constexpr int THREADS = WARPS * 32;
constexpr int QUERIES = WARPS * TILES * 16;
// Q and two tiles each of K and V.
constexpr int SHARED = TILE_BYTES<QUERIES> + 4 * TILE_BYTES<KEYS>;
// Q's fragments are read again for each tile of keys where the registers cannot hold them.
constexpr bool HOLD = TILES * STEPS <= 8;

}

// Grid: batch * heads, blocks of queries.
extern "C" __global__ void __launch_bounds__(forward::THREADS, FORWARD_RESIDENT) forward_kernel(const Forward p) {
    using namespace forward;
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 q_tile = shared_address(memory);
    const u32 kv_tiles = q_tile + TILE_BYTES<QUERIES>;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;

    const int head = blockIdx.x % p.heads, batch = blockIdx.x / p.heads;
    const int kv_head = head / (p.heads / p.kv_heads);
    const long long token = static_cast<long long>(batch) * p.sequence;
    // The blocks that see the most keys come first.
    const int first = (gridDim.y - 1 - blockIdx.y) * QUERIES;
    const int last = min(first + QUERIES, p.sequence) - 1;
    const element *q = p.q + token * p.q_stride + head * HEAD_DIM;
    const element *k = p.k + token * p.k_stride + kv_head * HEAD_DIM;
    const element *v = p.v + token * p.v_stride + kv_head * HEAD_DIM;
    const int *start = p.start ? p.start + token : nullptr;

    // Of the warp's queries; those beyond the sequence are computed like others and not written.
    const int warp_row = warp * TILES * 16;
    const int warp_first = first + warp_row, warp_last = warp_first + TILES * 16 - 1;
    const int begin = start ? start[first] / KEYS : 0, end = last / KEYS + 1;
    const int warp_begin = start ? start[min(warp_first, last)] : 0;
    const int all_begin = start ? start[min(warp_last, last)] : 0;

    copy_tile<QUERIES, THREADS>(q_tile, q, p.q_stride, first, p.sequence);
    auto copy = [&](int n) {
        const u32 tiles = kv_tiles + (n & 1) * 2 * TILE_BYTES<KEYS>;
        copy_tile<KEYS, THREADS>(tiles, k, p.k_stride, n * KEYS, p.sequence);
        copy_tile<KEYS, THREADS>(tiles + TILE_BYTES<KEYS>, v, p.v_stride, n * KEYS, p.sequence);
    };
    copy(begin);

    const float scale = p.scale * LOG2E;
    float o[TILES][STEPS * 2][4] = {};
    float highest[TILES][2], sum[TILES][2] = {};
    int row_begin[TILES][2];
#pragma unroll
    for (int t = 0; t < TILES; t++) {
#pragma unroll
        for (int r = 0; r < 2; r++) {
            highest[t][r] = -INFINITE;
            row_begin[t][r] = start ? start[min(warp_first + t * 16 + r * 8 + (lane >> 2), last)] : 0;
        }
    }
    u32 a[TILES][STEPS][4];

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
                for (int t = 0; t < TILES; t++) load_left<QUERIES>(a[t][step], q_tile, warp_row + t * 16, step);
            }
        }
        if (key > warp_last || key + KEYS <= warp_begin) continue;

        float s[TILES][KEYS / 8][4] = {};
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
        if (key + KEYS - 1 > warp_first || key < all_begin) {
#pragma unroll
            for (int t = 0; t < TILES; t++) {
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        const int at = key + j * 8 + (lane & 3) * 2 + (c & 1);
                        const int row = warp_first + t * 16 + (c >> 1) * 8 + (lane >> 2);
                        if (at > row || at < row_begin[t][c >> 1]) s[t][j][c] = -INFINITE;
                    }
                }
            }
        }
#pragma unroll
        for (int t = 0; t < TILES; t++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float most = highest[t][r];
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++) most = fmaxf(most, fmaxf(s[t][j][2 * r], s[t][j][2 * r + 1]));
                most = row_max(most);
                // A row that has seen no key yet.
                const float base = most == -INFINITE ? 0.0f : most * scale;
                const float correction = exp2_fast(highest[t][r] * scale - base);
                highest[t][r] = most;
                float added = 0.0f;
#pragma unroll
                for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                    for (int c = 2 * r; c < 2 * r + 2; c++) {
                        s[t][j][c] = exp2_fast(fmaf(s[t][j][c], scale, -base));
                        added += s[t][j][c];
                    }
                }
                sum[t][r] = sum[t][r] * correction + added;
#pragma unroll
                for (int d = 0; d < STEPS * 2; d++) {
                    o[t][d][2 * r] *= correction;
                    o[t][d][2 * r + 1] *= correction;
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
                load_right<KEYS>(b, v_tile, j * 16, d);
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                    multiply(o[t][2 * d], left[t], b[0], b[1]);
                    multiply(o[t][2 * d + 1], left[t], b[2], b[3]);
                }
            }
        }
    }

    float *lse = p.lse + (static_cast<long long>(batch) * p.heads + head) * p.sequence;
#pragma unroll
    for (int t = 0; t < TILES; t++) {
        float factor[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const float all = row_sum(sum[t][r]);
            factor[r] = 1.0f / all;
            const int row = warp_first + t * 16 + r * 8 + (lane >> 2);
            if ((lane & 3) == 0 && row <= last) lse[row] = highest[t][r] * p.scale + logf(all);
        }
        // This warp alone reads these rows of Q, and has done so.
        __syncwarp();
        put<QUERIES>(q_tile, warp_row + t * 16, o[t], factor[0], factor[1]);
    }
    element *out = p.o + token * p.o_stride + head * HEAD_DIM;
    write_rows<QUERIES, TILES * 16>(out, p.o_stride, q_tile, warp_row, first, p.sequence);
}
