// Causal attention, forward (Dao 2023, FlashAttention-2): a block has OWN queries of one head and passes over the
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

// Blocks on a multiprocessor: what fits into its registers.
constexpr int FORWARD_BLOCKS = HEAD_DIM > 64 ? 2 : WGMMA ? 5 : 3;

// Shared memory: Q, two tiles each of K and V. Grid: batch * heads, blocks of queries.
extern "C" __global__ void __launch_bounds__(THREADS, FORWARD_BLOCKS) attend(const Forward p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 q_tile = shared_address(memory);
    const u32 kv_tiles = q_tile + TILE_BYTES<OWN>;
    const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5) * 16;

    const int head = blockIdx.x % p.heads, batch = blockIdx.x / p.heads;
    const int kv_head = head / (p.heads / p.kv_heads);
    const long long token = static_cast<long long>(batch) * p.sequence;
    // The blocks that see the most keys come first.
    const int first = (gridDim.y - 1 - blockIdx.y) * OWN;
    const int last = min(first + OWN, p.sequence) - 1;
    const element *q = p.q + token * p.q_stride + head * HEAD_DIM;
    const element *k = p.k + token * p.k_stride + kv_head * HEAD_DIM;
    const element *v = p.v + token * p.v_stride + kv_head * HEAD_DIM;
    const int *start = p.start ? p.start + token : nullptr;

    // Of the warps that work together; queries beyond the sequence are computed like others and not written.
    const int unit_first = first + (OWN > TOGETHER ? warp_row : 0), unit_last = unit_first + TOGETHER - 1;
    const int begin_tile = common(start ? start[first] / KEYS : 0), end_tile = last / KEYS + 1;
    const int some_begin = start ? start[min(unit_first, last)] : 0;
    const int all_begin = common(start ? start[min(unit_last, last)] : 0);

    copy_tile<OWN>(q_tile, q, p.q_stride, first, p.sequence);
    auto copy = [&](int stage, int n) {
        const u32 tiles = kv_tiles + stage * 2 * TILE_BYTES<KEYS>;
        copy_tile<KEYS>(tiles, k, p.k_stride, n * KEYS, p.sequence);
        copy_tile<KEYS>(tiles + TILE_BYTES<KEYS>, v, p.v_stride, n * KEYS, p.sequence);
    };
    copy(0, begin_tile);

    const float scale = p.scale * LOG2E;
    // The thread's rows are this one and the eighth after it.
    const int row = first + warp_row + (lane >> 2);
    float o[STEPS * 2][4] = {};
    float highest[2] = {-INFINITE, -INFINITE}, sum[2] = {};
    int row_begin[2] = {};
    if (start) {
        row_begin[0] = start[min(row, last)];
        row_begin[1] = start[min(row + 8, last)];
    }
    copies_end();
    __syncthreads();
    Left<OWN, !WGMMA> left_q(q_tile, warp_row);
    left_q.hold();

    int stage = 0;
    for (int n = begin_tile; n < end_tile; n++, stage ^= 1) {
        copies_end();
        publish();
        __syncthreads();
        if (n + 1 < end_tile) copy(stage ^ 1, n + 1);
        const u32 k_tile = kv_tiles + stage * 2 * TILE_BYTES<KEYS>, v_tile = k_tile + TILE_BYTES<KEYS>;
        const int key = n * KEYS;
        if (OWN > TOGETHER && key + KEYS <= some_begin) continue;

        float s[KEYS / 8][4];
        begin();
        scores<KEYS>(s, left_q, k_tile);
        commit();
        wait<0>(s);
        if (key + KEYS - 1 > unit_first || key < all_begin) hide(s, key, row, row_begin, -INFINITE);
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

    float *lse = p.lse + (static_cast<long long>(batch) * p.heads + head) * p.sequence;
    float factor[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float all = row_sum(sum[r]);
        factor[r] = 1.0f / all;
        if ((lane & 3) == 0 && row + r * 8 <= last) lse[row + r * 8] = highest[r] * p.scale + logf(all);
    }
    // This warp alone reads these rows of Q.
    __syncwarp();
    put<OWN>(q_tile, warp_row, o, factor[0], factor[1]);
    write_rows<OWN>(p.o + token * p.o_stride + head * HEAD_DIM, p.o_stride, q_tile, warp_row, first, p.sequence);
}
