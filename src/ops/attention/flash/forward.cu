// Causal attention, forward (Dao 2023, FlashAttention-2): a block has OWN queries of one head and passes over the
// keys that these may see, tile by tile, with the softmax's maximum and sum of each row so far.
//
// Key j is visible to query i when start[i] <= j <= i, and with a window when i - window < j. `start` does not fall along
// a sequence.

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
    int sequence, heads, kv_heads, window;
    float scale;
};

// Blocks on a multiprocessor: what fits into its registers.
constexpr int FORWARD_BLOCKS = HEAD_DIM > 128 ? 1 : HEAD_DIM > 64 ? 2 : WGMMA ? 5 : 3;
// Whether registers hold Q.
constexpr bool Q_HELD = HEAD_DIM <= 128 && !WGMMA;

// Shared memory: Q, two tiles each of K and V. Grid: batch * heads, blocks of queries.
extern "C" __global__ void __launch_bounds__(THREADS, FORWARD_BLOCKS) attend(const Forward p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 q_tile = shared_address(memory);
    const u32 kv_tiles = q_tile + TILE_BYTES<OWN>;
    const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5) * 16;
    constexpr int KEYS = FORWARD_KEYS;
    const Queries<KEYS> own(p);
    const int first = own.first, last = own.last;

    copy_tile<OWN>(q_tile, p.q + own.token * p.q_stride + own.head * HEAD_DIM, p.q_stride, first, p.sequence);
    auto copy = [&](int stage, int n) { own.copy(p, kv_tiles + stage * 2 * TILE_BYTES<KEYS>, n); };
    copy(0, own.begin_tile);

    const float scale = score_scale(p.scale) * LOG2E;
    // The thread's rows are this one and the eighth after it.
    const int row = first + warp_row + (lane >> 2);
    float o[STEPS * 2][4] = {};
    float highest[2] = {-INFINITE, -INFINITE}, sum[2] = {};
    const int row_begin[2] = {first_key(own.start, min(row, last), p.window),
                              first_key(own.start, min(row + 8, last), p.window)};
    copies_end();
    __syncthreads();
    Left<OWN, Q_HELD> left_q(q_tile, warp_row);
    left_q.hold();

    int stage = 0;
    for (int n = own.begin_tile; n < own.end_tile; n++, stage ^= 1) {
        copies_end();
        publish();
        __syncthreads();
        if (n + 1 < own.end_tile) copy(stage ^ 1, n + 1);
        const u32 k_tile = kv_tiles + stage * 2 * TILE_BYTES<KEYS>, v_tile = k_tile + TILE_BYTES<KEYS>;
        const int key = n * KEYS;
        if (own.passes(key)) continue;

        float s[KEYS / 8][4];
        begin();
        scores<KEYS>(s, left_q, k_tile);
        commit();
        wait<0>(s);
        cap_softly(s, p.scale);
        own.hide(s, key, row, row_begin, -INFINITE);
        float correction[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
            float most = highest[r];
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) most = fmaxf(most, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
            most = row_max(most);
            // A row that has seen no key yet.
            const float base = most == -INFINITE ? 0.0f : most * scale;
            correction[r] = exp2_fast(highest[r] * scale - base);
            highest[r] = most;
            float added[2] = {};
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    s[j][2 * r + c] = exp2_fast(fmaf(s[j][2 * r + c], scale, -base));
                    added[c] += s[j][2 * r + c];
                }
            }
            sum[r] = sum[r] * correction[r] + (added[0] + added[1]);
        }
        // After the first tiles the maxima seldom rise.
        if (__any_sync(~0u, correction[0] != 1.0f || correction[1] != 1.0f)) {
#pragma unroll
            for (int d = 0; d < STEPS * 2; d++) {
#pragma unroll
                for (int c = 0; c < 4; c++) o[d][c] *= correction[c >> 1];
            }
        }
        u32 left[KEYS / 16][4];
        as_left(left, s);
        begin();
        accumulate<KEYS>(o, left, v_tile);
        commit();
        wait<0>(o);
    }

    float *lse = p.lse + (static_cast<long long>(own.batch) * p.heads + own.head) * p.sequence;
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float all = row_sum(sum[r]);
        factor[r] = 1.0f / all;
        if ((lane & 3) == 0 && row + r * 8 <= last) lse[row + r * 8] = highest[r] * score_scale(p.scale) + logf(all);
    }
    // This warp alone reads these rows of Q.
    __syncwarp();
    put<OWN>(q_tile, warp_row, o, factor[0], factor[1]);
    element *o_rows = p.o + own.token * p.o_stride + own.head * HEAD_DIM;
    write_rows<OWN>(o_rows, p.o_stride, q_tile, warp_row, first, p.sequence);
}
