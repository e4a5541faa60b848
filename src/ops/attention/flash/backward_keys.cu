// The second pass of backward.cu: a block has keys and passes over the queries that see them. Where registers do not hold
// the sums for dK and for dV, another block has the same keys for the other one.

constexpr bool APART = HEAD_DIM > 128;

// Whether registers hold the left-hand sides of the scores, and blocks on a multiprocessor.
constexpr bool DKV_HELD = HEAD_DIM <= 64 && !WGMMA;
constexpr int DKV_BLOCKS = APART ? 1 : HEAD_DIM <= 64 && WGMMA ? 3 : 2;

// Shared memory: K, V, two tiles each of Q and dO, and for both lse, delta and start of each query. `block` of
// batch * kv_heads * parts.
template <bool DK, bool DV>
__device__ __forceinline__ void sum_over_queries(const Backward &p, unsigned char *memory, int block) {
    const u32 k_tile = shared_address(memory), v_tile = k_tile + TILE_BYTES<OWN>;
    const u32 qg_tiles = v_tile + TILE_BYTES<OWN>;
    float *numbers = reinterpret_cast<float *>(memory + 2 * TILE_BYTES<OWN> + 4 * TILE_BYTES<QUERIES>);
    const int lane = threadIdx.x & 31, warp_row = (threadIdx.x >> 5) * 16;

    const int part = block % p.parts, matrix = block / p.parts;
    const int kv_head = matrix % p.kv_heads, batch = matrix / p.kv_heads;
    const int group = p.heads / p.kv_heads;
    // This part's query heads.
    const int head_begin = kv_head * group + group * part / p.parts;
    const int head_end = kv_head * group + group * (part + 1) / p.parts;
    const long long token = static_cast<long long>(batch) * p.sequence;
    // The blocks that the most queries see come first.
    const int first = blockIdx.y * OWN, last = min(first + OWN, p.sequence) - 1;
    const element *q = p.q + token * p.q_stride, *g = p.g + token * p.o_stride;
    const int *start = p.start ? p.start + token : nullptr;
    const bool begins = WINDOW || start;

    copy_tile<OWN>(k_tile, p.k + token * p.k_stride + kv_head * HEAD_DIM, p.k_stride, first, p.sequence);
    copy_tile<OWN>(v_tile, p.v + token * p.v_stride + kv_head * HEAD_DIM, p.v_stride, first, p.sequence);

    // Tiles of queries, from the one that has the first key, as long as their first query sees the last key.
    const int begin_tile = first / QUERIES;
    int end_tile = ((WINDOW ? min(p.sequence, last + p.window) : p.sequence) + QUERIES - 1) / QUERIES;
    if (start) {
        for (int from = begin_tile; from < end_tile; from += THREADS) {
            const int n = from + threadIdx.x;
            const bool sees = n < end_tile && (n == begin_tile || start[n * QUERIES] <= last);
            const int seeing = __syncthreads_count(sees);
            if (seeing < THREADS) end_tile = min(end_tile, from + seeing);
        }
    }

    auto copy = [&](int stage, int head, int n) {
        const u32 tiles = qg_tiles + stage * 2 * TILE_BYTES<QUERIES>;
        const int query = n * QUERIES;
        copy_tile<QUERIES>(tiles, q + head * HEAD_DIM, p.q_stride, query, p.sequence);
        copy_tile<QUERIES>(tiles + TILE_BYTES<QUERIES>, g + head * HEAD_DIM, p.o_stride, query, p.sequence);
        const long long statistics = (static_cast<long long>(batch) * p.heads + head) * p.sequence + query;
        float *to = numbers + stage * 3 * QUERIES;
        for (int i = threadIdx.x; i < QUERIES; i += THREADS) {
            const bool there = query + i < p.sequence;
            // P is 0 for a query beyond the sequence.
            to[i] = there ? p.lse[statistics + i] * LOG2E : INFINITE;
            to[QUERIES + i] = there ? p.delta[statistics + i] : 0.0f;
            if (begins) to[2 * QUERIES + i] = __int_as_float(there ? first_key(start, query + i, p.window) : p.sequence);
        }
    };
    copy(0, head_begin, begin_tile);

    const float scale = score_scale(p.scale) * LOG2E;
    const int unit_first = first + (OWN > TOGETHER ? warp_row : 0), unit_last = unit_first + TOGETHER - 1;
    const int row = first + warp_row + (lane >> 2);
    float dk[DK ? STEPS * 2 : 1][4] = {}, dv[DV ? STEPS * 2 : 1][4] = {};
    copies_end();
    __syncthreads();
    Left<OWN, DKV_HELD> left_k(k_tile, warp_row), left_v(v_tile, warp_row);
    left_k.hold();
    left_v.hold();

    int stage = 0;
    for (int head = head_begin; head < head_end; head++) {
        for (int n = begin_tile; n < end_tile; n++, stage ^= 1) {
            copies_end();
            publish();
            __syncthreads();
            if (n + 1 < end_tile) copy(stage ^ 1, head, n + 1);
            else if (head + 1 < head_end) copy(stage ^ 1, head + 1, begin_tile);
            const u32 q_tile = qg_tiles + stage * 2 * TILE_BYTES<QUERIES>, g_tile = q_tile + TILE_BYTES<QUERIES>;
            const float *lse = numbers + stage * 3 * QUERIES, *delta = lse + QUERIES;
            const int *starts = reinterpret_cast<const int *>(delta + QUERIES);
            const int query = n * QUERIES;
            if (OWN > TOGETHER && (query + QUERIES - 1 < unit_first || (begins && starts[0] > unit_last))) continue;

            float s[QUERIES / 8][4], dp[QUERIES / 8][4];
            begin();
            scores<QUERIES>(s, left_k, q_tile);
            commit();
            if constexpr (DK) scores<QUERIES>(dp, left_v, g_tile);
            commit();
            wait<1>(s);
            cap_softly(s, p.scale);
            float slope[QUERIES / 8][4];
#pragma unroll
            for (int j = 0; j < QUERIES / 8; j++) {
                const float2 l = *reinterpret_cast<const float2 *>(lse + j * 8 + (lane & 3) * 2);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    if constexpr (CAPPED) slope[j][c] = 1.0f - s[j][c] * s[j][c];
                    s[j][c] = exp2_fast(fmaf(s[j][c], scale, -(c & 1 ? l.y : l.x)));
                }
            }
            if (unit_last > query || (begins && starts[QUERIES - 1] > unit_first)) {
#pragma unroll
                for (int j = 0; j < QUERIES / 8; j++) {
#pragma unroll
                    for (int c = 0; c < 4; c++) {
                        const int column = j * 8 + (lane & 3) * 2 + (c & 1), key = row + (c >> 1) * 8;
                        if (key > query + column || (begins && key < starts[column])) s[j][c] = 0.0f;
                    }
                }
            }
            wait<0>(dp);
#pragma unroll
            for (int j = 0; j < QUERIES / 8 && DK; j++) {
                const float2 d = *reinterpret_cast<const float2 *>(delta + j * 8 + (lane & 3) * 2);
#pragma unroll
                for (int c = 0; c < 4; c++) {
                    dp[j][c] = s[j][c] * (dp[j][c] - (c & 1 ? d.y : d.x));
                    if constexpr (CAPPED) dp[j][c] *= slope[j][c];
                }
            }
            u32 left_p[QUERIES / 16][4], left_ds[QUERIES / 16][4];
            if constexpr (DV) as_left(left_p, s);
            if constexpr (DK) as_left(left_ds, dp);
            begin();
            if constexpr (DV) accumulate<QUERIES>(dv, left_p, g_tile);
            if constexpr (DK) accumulate<QUERIES>(dk, left_ds, q_tile);
            commit();
            wait<0>(dv);
            wait<0>(dk);
        }
    }

    if (p.sums) {
        const long long columns = static_cast<long long>(p.kv_heads) * HEAD_DIM;
        const long long all = static_cast<long long>(p.batch) * p.sequence * columns;
        float *sums = p.sums + 2 * part * all + (token * p.kv_heads + kv_head) * HEAD_DIM + (lane & 3) * 2;
#pragma unroll
        for (int r = 0; r < 2; r++) {
            if (row + r * 8 > last) continue;
            float *sum = sums + (row + r * 8) * columns;
#pragma unroll
            for (int n = 0; n < CHUNKS; n++) {
                if constexpr (DK) {
                    const float2 of_k = {dk[n][2 * r] * p.scale, dk[n][2 * r + 1] * p.scale};
                    *reinterpret_cast<float2 *>(sum + n * 8) = of_k;
                }
                if constexpr (DV)
                    *reinterpret_cast<float2 *>(sum + all + n * 8) = make_float2(dv[n][2 * r], dv[n][2 * r + 1]);
            }
        }
        return;
    }
    __syncthreads();
    if constexpr (DK) put<OWN>(k_tile, warp_row, dk, p.scale, p.scale);
    if constexpr (DV) put<OWN>(v_tile, warp_row, dv, 1.0f, 1.0f);
    element *out_k = p.dk + token * p.dk_stride + kv_head * HEAD_DIM;
    element *out_v = p.dv + token * p.dv_stride + kv_head * HEAD_DIM;
    if constexpr (DK) write_rows<OWN>(out_k, p.dk_stride, k_tile, warp_row, first, p.sequence);
    if constexpr (DV) write_rows<OWN>(out_v, p.dv_stride, v_tile, warp_row, first, p.sequence);
}

// Grid: batch * kv_heads * parts, twice where the sums are apart, and blocks of keys.
extern "C" __global__ void __launch_bounds__(THREADS, DKV_BLOCKS) attend_backward_keys(const Backward p) {
    extern __shared__ __align__(1024) unsigned char memory[];
    if constexpr (!APART) sum_over_queries<true, true>(p, memory, blockIdx.x);
    else if (blockIdx.x & 1) sum_over_queries<false, true>(p, memory, blockIdx.x >> 1);
    else sum_over_queries<true, false>(p, memory, blockIdx.x >> 1);
}

// dK and dV from their parts, in order. Grid: over tokens * kv_heads * CHUNKS, and 2.
extern "C" __global__ void __launch_bounds__(THREADS) attend_backward_sum(const Backward p) {
    const long long tokens = static_cast<long long>(p.batch) * p.sequence;
    const int chunks = p.kv_heads * CHUNKS;
    const long long at = static_cast<long long>(blockIdx.x) * THREADS + threadIdx.x;
    if (at >= tokens * chunks) return;
    const long long all = tokens * chunks * 8;
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
