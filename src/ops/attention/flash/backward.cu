// The backward of causal attention, in two passes that compute the probabilities again from lse:
//
//     P = exp(scale QK^T - lse)    dS = P * (dO V^T - delta)    delta = rowsum(dO * O)
//     dQ = scale dS K              dK = scale dS^T Q            dV = P^T dO
//
// With a soft cap the scores are CAP tanh(scale QK^T / CAP), and dS has the factor 1 - tanh^2.
//
// A block of the first has queries and passes over keys; a block of the second has keys and passes over queries, of
// every query head that shares them. Each sum has one order, so results are the same from run to run, and P and dS
// stay in registers.

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
    int batch, sequence, heads, kv_heads, parts, window;
    float scale;
};

// Whether registers hold the left-hand sides of the scores, and blocks on a multiprocessor.
constexpr bool DQ_HELD = HEAD_DIM <= 64 && !WGMMA;
constexpr int DQ_BLOCKS = HEAD_DIM > 128 ? 1 : (HEAD_DIM > 64 ? 2 : 3) + WGMMA;

// Shared memory: Q, dO and two tiles each of K and V. Grid: batch * heads, blocks of queries.
extern "C" __global__ void __launch_bounds__(THREADS, DQ_BLOCKS) attend_backward_queries(const Backward p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 q_tile = shared_address(memory), g_tile = q_tile + TILE_BYTES<OWN>;
    const u32 kv_tiles = g_tile + TILE_BYTES<OWN>;
    const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5) * 16;

    constexpr int KEYS = BACKWARD_KEYS;
    const Queries<KEYS> own(p);
    const int first = own.first, last = own.last;
    const element *o = p.o + own.token * p.o_stride + own.head * HEAD_DIM;
    const element *g = p.g + own.token * p.o_stride + own.head * HEAD_DIM;

    copy_tile<OWN>(q_tile, p.q + own.token * p.q_stride + own.head * HEAD_DIM, p.q_stride, first, p.sequence);
    copy_tile<OWN>(g_tile, g, p.o_stride, first, p.sequence);
    auto copy = [&](int stage, int n) { own.copy(p, kv_tiles + stage * 2 * TILE_BYTES<KEYS>, n); };
    copy(0, own.begin_tile);

    const float scale = score_scale(p.scale) * LOG2E;
    const int row = first + warp_row + (lane >> 2);
    const long long statistics = (static_cast<long long>(own.batch) * p.heads + own.head) * p.sequence;
    float dq[STEPS * 2][4] = {};
    float lse[2], delta[2];
    int row_begin[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const int valid = min(row + r * 8, last);
        row_begin[r] = first_key(own.start, valid, p.window);
        lse[r] = p.lse[statistics + valid] * LOG2E;
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
        delta[r] = row_sum(all);
        if ((lane & 3) == 0 && row + r * 8 <= last) p.delta[statistics + row + r * 8] = delta[r];
    }
    copies_end();
    __syncthreads();
    Left<OWN, DQ_HELD> left_q(q_tile, warp_row), left_g(g_tile, warp_row);
    left_q.hold();
    left_g.hold();

    int stage = 0;
    for (int n = own.begin_tile; n < own.end_tile; n++, stage ^= 1) {
        copies_end();
        publish();
        __syncthreads();
        if (n + 1 < own.end_tile) copy(stage ^ 1, n + 1);
        const u32 k_tile = kv_tiles + stage * 2 * TILE_BYTES<KEYS>, v_tile = k_tile + TILE_BYTES<KEYS>;
        const int key = n * KEYS;
        if (own.passes(key)) continue;

        float s[KEYS / 8][4], dp[KEYS / 8][4];
        begin();
        scores<KEYS>(s, left_q, k_tile);
        commit();
        scores<KEYS>(dp, left_g, v_tile);
        commit();
        wait<1>(s);
        cap_softly(s, p.scale);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) {
                const float tanh = s[j][c];
                s[j][c] = exp2_fast(fmaf(s[j][c], scale, -lse[c >> 1]));
                if constexpr (CAPPED) s[j][c] *= 1.0f - tanh * tanh;
            }
        }
        own.hide(s, key, row, row_begin, 0.0f);
        wait<0>(dp);
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
            for (int c = 0; c < 4; c++) s[j][c] *= dp[j][c] - delta[c >> 1];
        }
        u32 left[KEYS / 16][4];
        as_left(left, s);
        begin();
        accumulate<KEYS>(dq, left, k_tile);
        commit();
        wait<0>(dq);
    }
    __syncthreads();
    put<OWN>(q_tile, warp_row, dq, p.scale, p.scale);
    element *out = p.dq + own.token * p.dq_stride + own.head * HEAD_DIM;
    write_rows<OWN>(out, p.dq_stride, q_tile, warp_row, first, p.sequence);
}
